"""A few random histories of queues keep rule 30.11; `python -m tests.property.queued` plays many."""

from dataclasses import replace
from random import Random

import pytest

from hived_extender.queues import table
from hived_extender.queues.policies import Policy
from hived_extender.queues.table import WHOLE, Pace
from tests.property.queued import History, random_setting
from tests.property.queued_setting import Setting
from tests.quality.small import KINDS

pytestmark = pytest.mark.sample(3)

STORM = Setting(
    kind="MIX", grace_s=2, events=100, quotas=True, users=2, failures=3, health=3, restarts=3, edits=4, removals=3,
    people=5, shrinking=8, write_s=2,
)  # fmt: skip
"""All that may happen."""


def played(setting: Setting, seed: int) -> History:
    """A history that has been played; nothing that it checks was broken."""
    history = History(setting, seed)
    history.run()
    return history


@pytest.mark.sample(1)
@pytest.mark.parametrize("grace_s", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_guaranteed_jobs_start_when_their_virtual_cluster_alone_would_start_them(kind: str, grace_s: int) -> None:
    history = played(Setting(kind=kind, grace_s=grace_s, events=100, restarts=0), 1)
    assert history.checks.compared > 20


def test_a_hold_spares_claims_also_where_all_that_leave_for_them_leave_together() -> None:
    seed = 5396  # cells that came free were lent while two jobs waited for others, and these left at the same moment
    assert played(random_setting(Random(seed), 100), seed).checks.compared > 60


def test_a_job_that_ends_in_its_grace_period_under_another_leader_has_run_since_its_start() -> None:
    seed = 9369
    assert played(random_setting(Random(seed), 100), seed).checks.compared > 60


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", [Policy.PRIORITY, Policy.BLOCK])
def test_the_bound_holds_under_policies_of_kube_queue(policy: Policy) -> None:
    assert played(Setting(kind="NODE", policy=policy, grace_s=2, events=100), 2).checks.compared > 20


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", list(Policy))
def test_the_bound_holds_where_several_quotas_and_users_share_a_virtual_cluster(policy: Policy) -> None:
    setting = Setting(kind="PAIR", policy=policy, grace_s=2, events=100, quotas=True, users=2, restarts=0)
    assert played(setting, 3).checks.compared >= 12


@pytest.mark.long
@pytest.mark.parametrize("grace_s", [0, 3])
def test_the_bound_holds_where_jobs_declare_limits_and_go_past_others_by_them(grace_s: int) -> None:
    assert played(Setting(kind="MIX", grace_s=grace_s, events=100, limits=80, restarts=0), 16).checks.compared > 20


@pytest.mark.long
def test_from_another_replica_on_the_bound_holds_for_jobs_that_wait_then() -> None:
    assert played(Setting(kind="MIX", grace_s=2, events=100, restarts=8), 5).checks.compared > 20


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("priorities", [(0,), (0, 1, 5)])
def test_no_job_is_lost_or_stuck_whatever_happens(policy: Policy, priorities: tuple[int, ...]) -> None:
    history = played(replace(STORM, policy=policy, priorities=priorities), 4)
    assert all(course.is_over for course in history.courses.values())


@pytest.mark.long
@pytest.mark.parametrize(("quotas", "weights"), [(False, False), (False, True), (True, False)])
def test_each_queue_has_what_the_ideal_gives_it_but_for_one_job(
    quotas: bool, weights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "FIRST_S", 0.0)  # who rests has less than its share
    setting = Setting(kind="PAIR", events=80, size=1, quotas=quotas, weights=weights, opportunistic=50, load=2.0)
    assert played(setting, 6).checks.fair > 20


@pytest.mark.long
@pytest.mark.parametrize("policy", [Policy.HIVED, Policy.PRIORITY])
def test_another_replica_would_have_jobs_wait_in_the_same_order_at_every_point(policy: Policy) -> None:
    setting = Setting(kind="MIX", policy=policy, grace_s=2, events=60, limits=30, restarts=0, restarts_always=True)
    assert played(setting, 7).turns > 60


def test_the_same_events_give_the_same_orders() -> None:
    first, second = (played(replace(STORM, events=60), 9) for _ in range(2))
    assert first.log == second.log


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_turns_that_are_cut_start_jobs_that_are_due_as_whole_ones(kind: str) -> None:
    setting = Setting(
        kind=kind, grace_s=2, events=80, borrows=False, priorities=(0, 1), limits=30, failures=3, restarts=0, load=2.0
    )
    cut, whole = (played(replace(setting, pace=pace), 11) for pace in (Pace(1, 1), WHOLE))
    assert cut.log == whole.log
    assert (cut.replica.cuts > 20, whole.replica.cuts) == (True, 0)


@pytest.mark.long
@pytest.mark.parametrize("policy", list(Policy))
def test_turns_that_are_cut_lend_as_whole_ones(policy: Policy) -> None:
    setting = replace(STORM, policy=policy, priorities=(0, 1), limits=30, restarts=0, load=2.0)
    cut, whole = (played(replace(setting, pace=pace), 11) for pace in (Pace(1, 1), WHOLE))
    assert cut.log == whole.log


@pytest.mark.long
def test_turns_that_are_cut_while_they_lend_break_no_rule() -> None:
    assert played(replace(STORM, pace=Pace(1, 1)), 12).replica.cuts > 20
