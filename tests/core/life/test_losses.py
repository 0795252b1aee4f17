"""Lost work: what a group would lose if it left now, by the times of its pods (rule 8.12)."""

from random import Random

import numpy as np
import pytest

from hived.cells.journal import mark, start_recording, stop_recording, undo_changes
from hived.cells.state import NO_TIME, State
from hived.life.losses import forget_times, loss_of, losses_of_leaves, milliseconds, note_times, since_of
from hived.scenario import Asked, Scenario
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind
from hived.values.errors import UserError
from hived.values.events import GroupSplit, PodAllocated, PodDeleted, PodProgressed, ScheduleRequested
from hived.values.specs import PodRequest, WorkTimes
from tests.core.builders import (
    better_state,
    delete,
    fingerprint,
    healthy_state,
    leaf,
    pod,
    quota,
    rack_cluster,
    request,
    run,
)

NOW_S = 1_000.0
NOW_MS = 1_000_000


def better(**sizes: int) -> State:
    """A scheduler under the better rules; A has every rack."""
    racks = sizes.get("racks", 2)
    return better_state(rack_cluster(quota("A", {"RACK": racks}), **sizes))


def progress(state: State, one: PodRequest, started_s: float | None = None, saved_s: float | None = None) -> None:
    handle(state, PodProgressed(one, WorkTimes(started_s, saved_s)))
    check_invariants(state)


def loss(state: State, group: str, now_s: float | None = NOW_S) -> float:
    """In leaf-seconds; by group and by leaf it is the same."""
    found = state.groups[group]
    by_leaf = losses_of_leaves(state, found.physical, milliseconds(now_s))
    of_group = loss_of(found, milliseconds(now_s))
    assert by_leaf.tolist() == [of_group] * len(by_leaf)
    return of_group / 1000


@pytest.mark.parametrize(
    ("started_s", "saved_s", "now_s", "lost_s"),
    [
        pytest.param(400, None, NOW_S, 600, id="since it started"),
        pytest.param(400, 900, NOW_S, 100, id="since it saved its work"),
        pytest.param(400, 100, NOW_S, 600, id="saved before the start"),
        pytest.param(None, None, NOW_S, 0, id="an unknown start"),
        pytest.param(None, 100, NOW_S, 0, id="saved, but an unknown start"),
        pytest.param(NOW_S + 5, None, NOW_S, 0, id="a start in the future"),
        pytest.param(400, None, None, 0, id="an unknown time"),
    ],
)
def test_a_pod_loses_its_leaves_times_the_time_since_it_started_or_saved_its_work(
    started_s: float | None, saved_s: float | None, now_s: float | None, lost_s: float
) -> None:
    state = better()
    run(state, pod("p"))
    progress(state, pod("p"), started_s, saved_s)
    assert loss(state, "p", now_s) == 2 * lost_s


def test_a_gang_works_since_its_first_pod_started_and_saves_its_work_together() -> None:
    state = better()
    gang = [pod(f"p{i}", "gang", members=((3, 2),)) for i in range(3)]
    for one in gang:
        run(state, one)
    progress(state, gang[1], started_s=500)
    progress(state, gang[0], started_s=400)
    assert loss(state, "gang") == 6 * 600
    progress(state, gang[2], started_s=600, saved_s=700)
    assert loss(state, "gang") == 6 * 300


def test_the_times_of_a_pod_that_left_do_not_count() -> None:
    state = better()
    gang = [pod(f"p{i}", "gang", members=((2, 2),)) for i in range(2)]
    for one, started_s in zip(gang, (400, 800), strict=True):
        run(state, one)
        progress(state, one, started_s)
    delete(state, gang[0])
    check_invariants(state)
    assert loss(state, "gang") == 4 * 200


def test_a_group_that_takes_the_cells_of_another_has_lost_nothing_yet() -> None:
    state = better(racks=1, nodes=1)
    run(state, pod("old"))
    progress(state, pod("old"), started_s=1)
    delete(state, pod("old"))
    run(state, pod("new"))
    check_invariants(state)
    assert loss(state, "new") == 0


def test_a_leaf_that_nobody_uses_has_no_loss() -> None:
    state = better()
    run(state, pod("p"))
    progress(state, pod("p"), started_s=400)
    idle = np.array([leaf(state, "n3", 0)], np.int32)
    assert state.cells.using[idle] == -1
    assert losses_of_leaves(state, idle, NOW_MS).tolist() == [0]


def test_a_pod_that_holds_no_cells_is_ignored() -> None:
    state = better()
    progress(state, pod("p"), started_s=400)
    run(state, pod("q", "g", members=((2, 2),)))
    before = fingerprint(state)
    progress(state, pod("r", "g", members=((2, 2),)), started_s=400)
    assert fingerprint(state) == before


def test_a_pod_may_come_with_its_times_and_keeps_them_if_it_is_told_again() -> None:
    state = better()
    decision = request(state, pod("p"))
    assert isinstance(decision, Bind)
    handle(state, PodAllocated(pod("p"), decision.bind_info, times=WorkTimes(400)))
    for times in (None, WorkTimes()):
        handle(state, PodAllocated(pod("p"), decision.bind_info, times=times))
        check_invariants(state)
        assert loss(state, "p") == 2 * 600


def test_the_pods_of_a_group_that_is_split_keep_their_own_times() -> None:
    state = better()
    gang = [pod(f"p{i}", "gang", members=((2, 2),)) for i in range(2)]
    for one, started_s in zip(gang, (400, 800), strict=True):
        run(state, one)
        progress(state, one, started_s)
    handle(state, GroupSplit("gang", (pod("p0"), pod("p1"))))
    check_invariants(state)
    assert (loss(state, "p0"), loss(state, "p1")) == (2 * 600, 2 * 200)


def test_times_can_be_undone() -> None:
    state = better()
    run(state, pod("p"))
    progress(state, pod("p"), started_s=400, saved_s=500)
    before = fingerprint(state)
    start_recording(state)
    group, moment = state.groups["p"], mark(state)
    note_times(state, group, "p", WorkTimes(400, 900))
    forget_times(state, group, "p")
    assert group.since_ms == NO_TIME
    undo_changes(state, moment)
    stop_recording(state)
    assert fingerprint(state) == before


@pytest.mark.parametrize("time_s", [-1.0, float("nan"), float("inf"), 1e12])
def test_a_number_that_is_no_time_is_refused_and_changes_nothing(time_s: float) -> None:
    state = better()
    decision = run(state, pod("p"))
    before = fingerprint(state)
    with pytest.raises(UserError, match="a time must be"):
        progress(state, pod("p"), started_s=time_s)
    with pytest.raises(UserError, match="a time must be"):
        handle(state, PodAllocated(pod("p"), decision.bind_info, times=WorkTimes(1, time_s)))
    with pytest.raises(UserError, match="a time must be"):
        handle(state, ScheduleRequested(pod("q"), now_s=time_s))
    assert fingerprint(state) == before


def test_the_reference_s_rules_keep_the_times_of_groups_but_none_for_kernels() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("p"))
    progress(state, pod("p"), started_s=400)
    assert state.work is None
    assert loss_of(state.groups["p"], NOW_MS) == 2 * 600 * 1000


def test_a_plan_knows_the_time_that_is_asked_with() -> None:
    state = better()
    Scenario(state, 7.5).plan([[Asked(pod("p"))]])
    assert state.now_ms == 7_500


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_telling_ends_with_the_same_losses(seed: int) -> None:
    """Pods come, start, save and leave; then a restart tells those that are left, in another order."""
    source = Random(seed)
    state = better(nodes=4)
    told: dict[str, tuple[PodRequest, Bind]] = {}
    times: dict[str, WorkTimes] = {}
    for step in range(60):
        number = source.randrange(6)
        one = pod(f"p{step}", f"g{number}", members=((3, 1),), priority=number % 2)
        choice = source.random()
        if choice < 0.5 or not told:
            with_room = state.groups.get(f"g{number}")
            if with_room is not None and None not in with_room.holders:
                continue
            decision = request(state, one)
            if isinstance(decision, Bind):
                handle(state, PodAllocated(one, decision.bind_info, decision.lazily_preempted))
                told[one.uid] = one, decision
        else:
            uid = source.choice(sorted(told))
            one = told[uid][0]
            if choice < 0.6:
                handle(state, PodDeleted(one))
                del told[uid]
                times.pop(uid, None)
            else:
                saved = source.choice([None, float(source.randrange(900))])
                times[uid] = WorkTimes(source.choice([None, float(source.randrange(900))]), saved)
                handle(state, PodProgressed(one, times[uid]))
        check_invariants(state)
    again = better(nodes=4)
    uids = sorted(told)
    source.shuffle(uids)
    for uid in uids:
        one, decision = told[uid]
        handle(again, PodAllocated(one, decision.bind_info, times=times.get(uid, WorkTimes())))
    check_invariants(again)
    for name, group in state.groups.items():
        assert (again.groups[name].times, again.groups[name].since_ms) == (group.times, since_of(group))
        assert loss(again, name) == loss(state, name)
    assert any(group.since_ms != NO_TIME for group in state.groups.values())
