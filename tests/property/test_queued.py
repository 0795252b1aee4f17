"""A few random histories of queues; `python -m tests.property.queued` plays many."""

import pytest

from hived_extender.queues.policies import Policy
from tests.property.queued import KINDS, History, Setting


@pytest.mark.parametrize("grace_s", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_guaranteed_jobs_start_when_their_virtual_cluster_alone_would_start_them(kind: str, grace_s: int) -> None:
    history = History(Setting(kind=kind, grace_s=grace_s, events=100, removals=0), 1)
    history.run()
    assert history.check_bound() > 20
    assert history.stops


@pytest.mark.parametrize("policy", [Policy.PRIORITY, Policy.BLOCK])
def test_the_bound_holds_under_policies_of_kube_queue(policy: Policy) -> None:
    history = History(Setting(kind="NODE", policy=policy, grace_s=2, events=100, removals=0), 2)
    history.run()
    assert history.check_bound() > 20


def test_the_bound_holds_where_priorities_preempt_each_other() -> None:
    setting = Setting(kind="PAIR", policy=Policy.PRIORITY, events=100, priorities=(0, 1, 5), removals=0, restarts=0)
    history = History(setting, 3)
    history.run()
    assert history.check_bound() > 20


@pytest.mark.parametrize("policy", list(Policy))
def test_no_job_is_lost_or_stuck_where_jobs_fail_and_are_removed(policy: Policy) -> None:
    history = History(Setting(kind="MIX", policy=policy, grace_s=2, events=120, failures=5, removals=5), 4)
    history.run()
    assert all(course.end_s is not None or course.is_removed for course in history.courses.values())


@pytest.mark.parametrize("grace_s", [0, 3])
def test_the_bound_holds_where_jobs_declare_limits_and_go_past_others_by_them(grace_s: int) -> None:
    history = History(Setting(kind="MIX", grace_s=grace_s, events=100, limits=80, removals=0, restarts=0), 16)
    history.run()
    assert history.check_bound() > 20


@pytest.mark.parametrize("policy", [Policy.HIVED, Policy.PRIORITY])
def test_other_queues_that_are_told_what_is_kept_would_order_the_same_at_every_point(policy: Policy) -> None:
    setting = Setting(kind="MIX", policy=policy, grace_s=2, events=60, limits=30, restarts=0, restarts_always=True)
    history = History(setting, 7)
    history.run()
    assert history.turns > 60


def test_two_replicas_that_see_the_same_events_give_the_same_orders() -> None:
    histories = [
        History(Setting(kind="PAIR", grace_s=2, events=60, failures=3, priorities=(0, 1)), 9) for _ in range(2)
    ]
    for history in histories:
        history.run()
    assert histories[0].log == histories[1].log
