"""When a waiting job starts: each kind of moment, and how it follows from who is in the way."""

import math
from datetime import datetime

import numpy as np
import pytest
from msgspec.structs import replace

from hived.scheduler import handle
from hived.values.events import NodeHealthChanged, Offer
from hived.values.specs import Rules
from hived_extender.api.waiting import When
from hived_extender.insight.forecast import SCHEDULING_S, STAYING, forecast_all, forecast_of
from hived_extender.insight.past import LEAST_ENDS, Ended, Past
from hived_extender.insight.snapshot import WaitingEntry
from tests.core.builders import rack_cluster
from tests.extender.insight.situations import AT, HOUR, Situation

GRACE_S = 30.0


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() - AT


def past_of(vc: str = "A", *hours: float) -> Past:
    past = Past()
    past.durations.add([Ended(vc, 2, each * HOUR) for each in hours])
    return past


def asked(situation: Situation, name: str, past: Past | None = None) -> When:
    snapshot = situation.snapshot()
    entry = snapshot.find(name)
    assert entry is not None
    return forecast_of(snapshot, entry, past or Past())


def full() -> Situation:
    """A's two nodes are in use by one job each, which say nothing."""
    situation = Situation()
    situation.runs("first")
    situation.runs("second")
    return situation


def test_a_job_with_room_starts_now() -> None:
    situation = Situation()
    situation.waits("job")
    assert asked(situation, "job") == When(kind="now", by="2027-01-15T08:00:00Z", position=1)


@pytest.mark.parametrize("rules", Rules)
def test_with_lent_cells_in_the_way_the_grace_period_is_certain(rules: Rules) -> None:
    situation = Situation(rules=rules)
    for number in range(4):
        situation.runs(f"guest-{number}", vc="B", priority=-1)
    situation.waits("job")
    when = asked(situation, "job")
    assert (when.kind, seconds(when.by)) == ("certain", GRACE_S)


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("limit_s", [None, 2 * HOUR])
def test_a_job_that_preempts_nobody_waits_for_the_end_of_lower_ones(rules: Rules, limit_s: float | None) -> None:
    """Guaranteed work of its virtual cluster stays, whatever its priority; only a limit bounds the wait."""
    situation = Situation(rules=rules)
    for name in ("first", "second"):
        situation.runs(name, left_s=limit_s)
    situation.waits("ready", priority=5)
    situation.waiting[-1] = replace(situation.waiting[-1], preempts=False)
    when = asked(situation, "ready")
    assert when.kind == ("unknown" if limit_s is None else "bounded")
    if limit_s is not None:
        assert seconds(when.by) == pytest.approx(limit_s + GRACE_S, abs=SCHEDULING_S + GRACE_S)
    situation.waits("sure", priority=5)
    situation.waiting.reverse()
    assert asked(situation, "sure").kind == "certain"


@pytest.mark.parametrize("rules", Rules)
def test_a_job_that_preempts_nobody_takes_lent_cells_back(rules: Rules) -> None:
    situation = Situation(rules=rules)
    for number in range(4):
        situation.runs(f"guest-{number}", vc="B", priority=-1)
    situation.waits("job")
    situation.waiting[-1] = replace(situation.waiting[-1], preempts=False)
    assert asked(situation, "job").kind == "certain"


def test_a_job_that_reserves_cells_already_gets_them_when_the_victims_have_left() -> None:
    situation = Situation()
    for number in range(4):
        situation.runs(f"guest-{number}", vc="B", priority=-1)
    situation.reserves("job")
    when = asked(situation, "job")
    assert (when.kind, seconds(when.by)) == ("certain", GRACE_S)


def test_a_holder_with_a_limit_bounds_the_wait() -> None:
    situation = Situation()
    situation.runs("limited", left_s=HOUR)
    situation.runs("open")
    situation.waits("job")
    when = asked(situation, "job")
    assert (when.kind, seconds(when.by)) == ("bounded", HOUR + GRACE_S + SCHEDULING_S)
    assert when.unless == "a newer job takes its cells first"


def test_the_first_holder_that_makes_room_bounds_the_wait() -> None:
    situation = Situation()
    situation.runs("later", left_s=5 * HOUR)
    situation.runs("sooner", left_s=2 * HOUR)
    situation.waits("job")
    assert seconds(asked(situation, "job").by) == 2 * HOUR + GRACE_S + SCHEDULING_S
    assert seconds(asked(situation, "job", past_of("A", *[1.5] * 30)).by) == 2 * HOUR + GRACE_S + SCHEDULING_S


def test_a_job_that_needs_both_nodes_waits_for_the_later_limit() -> None:
    situation = Situation()
    situation.runs("later", left_s=5 * HOUR)
    situation.runs("sooner", left_s=2 * HOUR)
    situation.waits("job", ((2, 2),))
    assert seconds(asked(situation, "job").by) == 5 * HOUR + GRACE_S + SCHEDULING_S


def test_jobs_ahead_add_their_own_limits_to_the_bound() -> None:
    situation = Situation()
    situation.runs("limited", left_s=HOUR)
    situation.runs("open")
    situation.waits("ahead", limit_s=3 * HOUR)
    situation.waits("job")
    when = asked(situation, "job")
    assert (when.kind, when.position) == ("bounded", 2)
    assert seconds(when.by) == HOUR + 3 * HOUR + GRACE_S + GRACE_S + SCHEDULING_S


def test_a_job_ahead_without_a_limit_leaves_no_bound() -> None:
    situation = Situation()
    situation.runs("limited", left_s=HOUR)
    situation.runs("open")
    situation.waits("ahead")
    situation.waits("job")
    assert asked(situation, "ahead").kind == "bounded"
    assert asked(situation, "job").kind == "unknown"


def test_a_later_and_smaller_job_may_take_cells_first_so_it_counts() -> None:
    situation = Situation()
    situation.runs("sooner", left_s=HOUR)
    situation.runs("later", left_s=2 * HOUR)
    situation.waits("wide", ((2, 2),))
    situation.waits("narrow")
    assert asked(situation, "wide").kind == "unknown"
    situation.waiting.pop()
    situation.waits("limited", limit_s=HOUR)
    assert seconds(asked(situation, "wide").by) == 2 * HOUR + HOUR + GRACE_S + GRACE_S + SCHEDULING_S


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("vc", ["A", "B"])
@pytest.mark.parametrize("is_bad", [False, True])
def test_an_opportunistic_job_without_a_limit_leaves_the_bound_of_a_guaranteed_one(
    rules: Rules, vc: str, is_bad: bool
) -> None:
    situation = Situation(rack_cluster(racks=2, nodes=3), rules)
    for number in range(3):
        situation.runs(f"holder-{number}", left_s=HOUR)
    if is_bad:
        handle(situation.state, NodeHealthChanged(situation.state.topology.node_names[-1], is_healthy=False))
    situation.waits("job")
    before = asked(situation, "job", past_of("A", *[1.0] * 30))
    situation.waits("guest", vc=vc, priority=-1, members=((4, 2),))
    situation.runs("other-guest", vc=vc, priority=-1)
    after = asked(situation, "job", past_of("A", *[1.0] * 30))
    assert (before.kind, after.kind) == ("bounded", "bounded")
    assert after.by == before.by


def test_a_limit_that_is_over_bounds_nothing() -> None:
    situation = Situation()
    situation.runs("overdue", left_s=-1.0)
    situation.runs("open")
    situation.waits("job")
    assert asked(situation, "job").kind == "unknown"


def test_without_a_history_the_start_is_unknown_and_the_answer_says_why() -> None:
    situation = full()
    situation.waits("job")
    when = asked(situation, "job", past_of("A", 1.0))
    assert (when.kind, when.by, when.likely) == ("unknown", "", "")
    assert when.because == (
        f"virtual cluster A has no history of durations yet: 1 of its jobs has ended so far, {LEAST_ENDS} are needed"
    )


def test_with_a_history_the_start_is_estimated_and_the_same_each_time() -> None:
    situation = full()
    situation.waits("job")
    past = past_of("A", *[1.0 + number / 10 for number in range(40)])
    when = asked(situation, "job", past)
    assert when.kind == "estimated"
    assert 0 < seconds(when.likely) < seconds(when.by) <= 2 * 4 * HOUR
    assert asked(situation, "job", past) == when


def test_a_job_that_has_run_for_long_is_expected_to_run_on() -> None:
    history = [0.1] * 25 + [50.0] * 25
    young, old = Situation(), Situation()
    for situation, age_s in ((young, 60.0), (old, 2 * HOUR)):
        for name in ("first", "second"):
            situation.runs(name, age_s=age_s)
        situation.waits("job")
    past = past_of("A", *history)
    assert seconds(asked(young, "job", past).likely) < HOUR < seconds(asked(old, "job", past).likely)


def test_jobs_behind_start_later_and_a_higher_priority_comes_first() -> None:
    situation = full()
    for name in ("one", "two", "three"):
        situation.waits(name)
    situation.waits("urgent", priority=5)
    past = past_of("A", *[1.0 + number / 10 for number in range(40)])
    found = forecast_all(situation.snapshot(), past)
    order = ["urgent", "one", "two", "three"]
    assert [found[name].position for name in order] == [1, 2, 3, 4]
    moments = [found[name].likely for name in order[1:]]
    assert moments == sorted(moments)
    assert len(set(moments)) > 1
    assert found["urgent"].kind == "certain"  # holders of a lower priority leave


def test_groups_of_one_job_end_together() -> None:
    situation = Situation()
    situation.runs("mate-1", left_s=HOUR, job="gang")
    situation.runs("mate-2", left_s=3 * HOUR, job="gang")
    situation.waits("job")
    assert seconds(asked(situation, "job").by) == 3 * HOUR + GRACE_S + SCHEDULING_S


def test_other_virtual_clusters_do_not_count_by_their_guarantee() -> None:
    situation = Situation()
    situation.runs("limited", left_s=HOUR)
    situation.runs("open")
    for number in range(3):
        situation.waits(f"other-{number}", vc="B")
    situation.waits("job")
    when = asked(situation, "job")
    assert (when.kind, when.position) == ("bounded", 1)


def test_nodes_that_groups_leave_are_offered_where_the_pod_fits() -> None:
    situation = Situation()
    situation.runs("limited", left_s=HOUR)
    situation.runs("open", left_s=2 * HOUR)
    nodes = situation.state.topology.node_names
    used = {nodes[situation.state.arrays.node[situation.state.groups["limited"].physical[0]]]}
    none = np.zeros((1, len(nodes)), np.bool_)
    situation.waits("job", offer=Offer(none, none), fit={})
    assert asked(situation, "job").kind == "unknown"
    situation.waiting.pop()
    situation.waits("job", offer=Offer(none, none), fit=dict.fromkeys(used, True))
    assert seconds(asked(situation, "job").by) == HOUR + GRACE_S + SCHEDULING_S


def test_a_job_that_cannot_be_asked_for_says_why() -> None:
    situation = Situation()
    situation.waiting.append(WaitingEntry("job", "ns", "A", 0, ("ns/job",), refusal="2 of 4 pods created"))
    assert asked(situation, "job") == When(kind="unknown", because="2 of 4 pods created", position=1)


def test_nobody_changes_the_state_of_the_snapshot() -> None:
    situation = full()
    situation.waits("job")
    before = situation.state.cells.memory.copy()
    asked(situation, "job", past_of("A", *[1.0] * 20))
    assert (situation.state.cells.memory == before).all()


def lent(gone_in_s: float, *, left_s: float | None = None) -> Situation:
    """A's two nodes are lent to B, and a job of A waits."""
    situation = Situation()
    for number in range(4):
        situation.runs(f"guest-{number}", vc="B", priority=-1, gone_in_s=gone_in_s, left_s=left_s)
    situation.waits("job")
    return situation


def test_retries_of_evictions_are_part_of_a_certain_moment() -> None:
    when = asked(lent(70.0), "job")
    assert (when.kind, seconds(when.by)) == ("certain", 70.0)


@pytest.mark.parametrize("gone_in_s", [math.inf, -1.0])
def test_no_moment_is_certain_while_victims_may_stay_or_have_stayed_too_long(gone_in_s: float) -> None:
    when = asked(lent(gone_in_s), "job", past_of("A", *[1.0] * 30))
    assert (when.kind, when.by, when.because) == ("unknown", "", STAYING)


def test_limits_of_victims_that_may_stay_bound_the_wait() -> None:
    when = asked(lent(math.inf, left_s=HOUR), "job")
    assert (when.kind, seconds(when.by)) == ("bounded", HOUR + SCHEDULING_S)


def test_no_moment_is_certain_with_a_victim_on_a_bad_node() -> None:
    situation = Situation()
    for number in range(2):
        situation.runs(f"guest-{number}", ((2, 2),), vc="B", priority=-1)
    situation.waits("job")
    assert asked(situation, "job").kind == "certain"
    handle(situation.state, NodeHealthChanged("n1", is_healthy=False))
    assert asked(situation, "job").kind == "unknown"


def test_no_bound_counts_on_jobs_that_wait_and_would_have_to_be_evicted() -> None:
    situation = lent(math.inf, left_s=HOUR)
    situation.waits("guest", vc="B", priority=-1)
    assert asked(situation, "job").because == STAYING
