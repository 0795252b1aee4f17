"""A placed group goes on as groups of one pod each."""

from dataclasses import replace
from typing import Any

import pytest

from hived.cells.journal import mark, start_recording, stop_recording, undo_changes
from hived.cells.state import GroupState, State
from hived.life.allocation import split_bind_info, split_group
from hived.life.groups import virtual_leaves
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind, Preempt
from hived.values.errors import UserError
from hived.values.events import GroupSplit, Phase, PodAllocated
from hived.values.specs import PodRequest
from tests.core.builders import (
    delete,
    describe_groups,
    fingerprint,
    healthy_state,
    held_nodes,
    pod,
    quota,
    rack_cluster,
    request,
    run,
    victim_uids,
)

GANG = ((2, 1), (1, 2))
SIZES = (1, 1, 2)


def gang_state() -> tuple[State, Bind]:
    """A stand-in for three pods holds their cells; the VC has one node left of two."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {"RACK.NODE": 1})))
    return state, run(state, pod("stand-in", "gang", members=GANG))


def part(number: int, **spec: Any) -> PodRequest:
    return pod(f"p{number}", members=((1, SIZES[number]),), **spec)


PARTS = tuple(map(part, range(3)))


def test_every_pod_goes_on_with_the_cells_of_its_slot_and_none_moves() -> None:
    state, _ = gang_state()
    whole = state.groups["gang"].physical.tolist()
    before = state.cells.state.copy(), state.cells.priority.copy(), state.cells.bound.copy()
    handle(state, GroupSplit("gang", PARTS))
    check_invariants(state)
    assert sorted(state.groups) == ["p0", "p1", "p2"]
    assert [leaf for one in PARTS for leaf in state.groups[one.uid].physical.tolist()] == whole
    assert all((mine == old).all() for mine, old in zip((state.cells.state, state.cells.priority, state.cells.bound),
                                                         before, strict=True))  # fmt: skip


def test_a_part_is_what_a_restart_makes_of_its_own_bind_info() -> None:
    state, decision = gang_state()
    handle(state, GroupSplit("gang", PARTS))
    fresh = healthy_state(state.spec)
    for one, info in zip(PARTS, split_bind_info(decision.bind_info, PARTS), strict=True):
        handle(fresh, PodAllocated(one, info))
    assert describe_groups(fresh) == describe_groups(state)
    assert fresh.groups["p2"].bind_info == state.groups["p2"].bind_info


def test_a_part_leaves_alone_and_its_cells_can_be_had_again() -> None:
    state, _ = gang_state()
    nodes = held_nodes(state, "gang")
    handle(state, GroupSplit("gang", PARTS))
    delete(state, PARTS[2])
    again = run(state, pod("replacement", members=((1, 2),)))
    assert again.bind_info.node == nodes[-1]
    assert sorted(state.groups) == ["p0", "p1", "replacement"]


def test_a_part_is_preempted_alone() -> None:
    state, _ = gang_state()
    handle(state, GroupSplit("gang", PARTS))
    decision = request(state, pod("strong", priority=1, members=((1, 2),)), Phase.PREEMPTING)
    victims = victim_uids(decision)
    assert 0 < len(victims) < 3
    assert [one.uid for one in PARTS if state.groups[one.uid].state is GroupState.BEING_PREEMPTED] == victims


def test_a_stand_in_that_preempted_can_be_split_once_its_victims_are_gone() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2})))
    run(state, pod("weak", members=((2, 2),)))
    strong = pod("stand-in", "gang", priority=1, members=((2, 2),))
    assert isinstance(request(state, strong, Phase.PREEMPTING), Preempt)
    pods = tuple(pod(f"p{number}", priority=1) for number in range(2))
    with pytest.raises(UserError, match="affinity group gang cannot be split: it is not allocated"):
        handle(state, GroupSplit("gang", pods))
    delete(state, pod("weak"))
    run(state, strong, Phase.PREEMPTING)
    handle(state, GroupSplit("gang", pods))
    check_invariants(state)
    assert sorted(state.groups) == ["p0", "p1"]


def test_the_parts_of_a_lazily_preempted_group_remain_lazily_preempted() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2})))
    run(state, pod("stand-in", "gang", members=((2, 2),), lazy_preemption=True))
    run(state, pod("strong", priority=1, members=((2, 2),)))
    handle(state, GroupSplit("gang", tuple(pod(f"p{number}", lazy_preemption=True) for number in range(2))))
    check_invariants(state)
    parts = [state.groups[f"p{number}"] for number in range(2)]
    assert [(one.virtual, one.lazy_preemptor) for one in parts] == [(None, "strong")] * 2


def test_a_split_can_be_undone() -> None:
    state, _ = gang_state()
    before = fingerprint(state)
    start_recording(state)
    beginning = mark(state)
    split_group(state, "gang", PARTS)
    assert fingerprint(state) != before
    undo_changes(state, beginning)
    stop_recording(state)
    assert fingerprint(state) == before


REFUSALS: dict[str, tuple[str, tuple[PodRequest, ...], str]] = {
    "unknown": ("nobody", PARTS, "affinity group nobody cannot be split: it is not allocated"),
    "fewer": ("gang", PARTS[:2], "it has 3 pods, 2 are given"),
    "size": (
        "gang", (PARTS[2], *PARTS[1:]), r"slot 0 has 1 leaf cell for one pod, p2\(ns/p2\) asks for others",
    ),
    "gang": ("gang", (pod("p0", members=((2, 1),)), *PARTS[1:]), "slot 0 has 1 leaf cell for one pod"),
    "vc": ("gang", (part(0, vc="B"), *PARTS[1:]), r"p0\(ns/p0\) has another virtualCluster"),
    "priority": ("gang", (*PARTS[:2], part(2, priority=1)), r"p2\(ns/p2\) has another priority"),
    "type": ("gang", (part(0, leaf_cell_type="GPU"), *PARTS[1:]), "p0.* has another leafCellType"),
    "pin": ("gang", (part(0, pinned_cell_id="pin"), *PARTS[1:]), "p0.* has another pinnedCellId"),
    "lazy": ("gang", (part(0, lazy_preemption=True), *PARTS[1:]), "p0.* has another lazyPreemptionEnable"),
    "twice": ("gang", (PARTS[0], PARTS[0], PARTS[2]), "there is a group p0 already"),
    "taken": (
        "gang", (pod("p0", "other", members=((1, 1),)), *PARTS[1:]), "there is a group other already",
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_split_that_would_change_what_is_held_is_refused_and_changes_nothing_because_of(reason: str) -> None:
    state, _ = gang_state()
    run(state, pod("other", vc="B", members=((1, 1),)))
    group, pods, message = REFUSALS[reason]
    before = fingerprint(state)
    with pytest.raises(UserError, match=message):
        handle(state, GroupSplit(group, pods))
    assert fingerprint(state) == before


def test_how_the_cells_were_to_be_placed_need_not_agree() -> None:
    state, _ = gang_state()
    parts = (replace(PARTS[0], spec=replace(PARTS[0].spec, ignore_suggested_nodes=False)), *PARTS[1:])
    handle(state, GroupSplit("gang", parts))
    assert not state.groups["p0"].spec.ignore_suggested_nodes


# --- several slots for one group -----------------------------------------------------------------------------------

REST = pod("stand-in", "gang", members=((1, 1), (1, 2)))
SHARES = ((1,), (0, 2))


def test_a_group_may_have_several_slots_and_the_name_of_the_one_before() -> None:
    state, _ = gang_state()
    whole = state.groups["gang"].physical.tolist()
    virtual = virtual_leaves(state, "gang")
    handle(state, GroupSplit("gang", (part(1), REST), SHARES))
    check_invariants(state)
    assert state.groups["p1"].physical.tolist() == [whole[1]]
    assert state.groups["gang"].physical.tolist() == [whole[0], *whole[2:]]
    assert virtual_leaves(state, "p1") == (virtual[1],)
    assert virtual_leaves(state, "gang") == (virtual[0], *virtual[2:])
    assert [one.uid if one is not None else "" for one in state.groups["gang"].holders] == ["stand-in", ""]


def test_a_whole_group_goes_on_under_another_name_and_its_other_pods_come_later() -> None:
    state, _ = gang_state()
    first, second = pod("a", "g", members=GANG), pod("b", "g", members=GANG)
    handle(state, GroupSplit("gang", (first,), ((0, 1, 2),)))
    check_invariants(state)
    assert list(state.groups) == ["g"]
    assert isinstance(request(state, second), Bind)


def test_a_group_of_several_slots_is_what_a_restart_makes_of_its_bind_info() -> None:
    state, decision = gang_state()
    handle(state, GroupSplit("gang", (part(1), REST), SHARES))
    fresh = healthy_state(state.spec)
    infos = split_bind_info(decision.bind_info, (part(1), REST), SHARES)
    for one, info in reversed([*zip((part(1), REST), infos, strict=True)]):  # virtual cells are chosen in this order
        handle(fresh, PodAllocated(one, info))
    assert describe_groups(fresh) == describe_groups(state)


@pytest.mark.parametrize(
    ("pods", "slots", "expected"),
    [
        ((part(1), REST), ((1,), (0,)), "each of its 3 slots has to go to one pod's group"),
        ((part(1), REST), ((1,), (1, 2)), "each of its 3 slots has to go to one pod's group"),
        ((part(1), REST), ((1,), (2, 0)), r"slots \[2, 0\], .*stand-in.* asks for others"),
        ((part(1),), SHARES, "it has 2 pods, 1 are given"),
        ((pod("x", "gang", members=((1, 1),)), REST), SHARES, "there is a group gang already"),
    ],
)
def test_slots_that_do_not_fit_are_refused(
    pods: tuple[PodRequest, ...], slots: tuple[tuple[int, ...], ...], expected: str
) -> None:
    state, _ = gang_state()
    before = fingerprint(state)
    with pytest.raises(UserError, match=expected):
        handle(state, GroupSplit("gang", pods, slots))
    assert fingerprint(state) == before
