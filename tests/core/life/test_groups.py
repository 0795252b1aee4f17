"""Slots of a group's pods, and the bind info that describes them."""

import random

import numpy as np
import pytest

from hived.cells.state import Group, State
from hived.life.groups import (
    bind_info_of_slot,
    find_slot,
    first_free_slot,
    leaf_range,
    leave_slots,
    member_slots,
    nodes_of_slots,
    placements_of,
    take_slot,
    virtual_placement,
)
from hived.scheduler import handle
from hived.values.errors import UserError
from hived.values.events import PodAllocated
from hived.values.specs import BindInfo, MemberSpec
from tests.core.builders import (
    bind_info,
    cell_at,
    delete,
    healthy_state,
    placement,
    pod,
    quota,
    rack_cluster,
    request,
    run,
)

MEMBERS = (MemberSpec(3, 1), MemberSpec(2, 4))
GANG = ((3, 1), (2, 2))


def gang_state() -> tuple[State, Group]:
    """A gang of three pods of one leaf and two of two; the first one is there."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 2})))
    run(state, pod("p0", "gang", members=GANG))
    return state, state.groups["gang"]


def test_slots_and_leaves_are_those_of_the_members_written_out() -> None:
    source = random.Random(1)
    for _ in range(50):
        sizes = sorted(source.sample(range(1, 9), source.randint(1, 4)))
        members = tuple(MemberSpec(source.randint(1, 4), size) for size in sizes)
        written_out = [member.leaf_cell_count for member in members for _ in range(member.pod_count)]
        for size in sizes:
            own = member_slots(members, size)
            assert list(own) == [slot for slot, leaves in enumerate(written_out) if leaves == size]
        for slot, size in enumerate(written_out):
            start = sum(written_out[:slot])
            assert leaf_range(members, slot) == slice(start, start + size)


def test_a_size_that_no_pod_has_is_refused() -> None:
    with pytest.raises(UserError, match="the affinity group has no pod of 2 leaf cells"):
        member_slots(MEMBERS, 2)


@pytest.mark.parametrize("members", [((1, 4), (3, 1)), ((1, 2), (1, 2))], ids=["descending", "not merged"])
def test_members_that_are_not_in_order_are_refused(members: tuple[tuple[int, int], ...]) -> None:
    state = healthy_state(rack_cluster())
    with pytest.raises(UserError, match="affinity group g: members must be merged by leaf cell number, ascending"):
        request(state, pod("p", "g", members=members))


def test_a_slot_beyond_the_last_has_no_leaves() -> None:
    with pytest.raises(IndexError):
        leaf_range(MEMBERS, 5)


def test_a_full_member_has_no_free_slot() -> None:
    _, group = gang_state()
    for slot in range(3):
        take_slot(group, slot, pod(f"q{slot}", "gang", members=GANG))
    assert first_free_slot(group, range(3)) is None


def test_a_pod_is_found_by_the_node_and_first_leaf_of_its_bind_info() -> None:
    state, group = gang_state()
    for slot, known in enumerate(p for member in placements_of(state, group) for p in member):
        size = len(known.leaf_cell_indices)
        bound = pod("p0" if slot == 0 else "q", "gang", members=GANG, size=size)
        info = BindInfo(known.node, known.leaf_cell_indices, "RACK", ())
        assert find_slot(state, group, bound, info) == slot


def test_the_order_of_the_leaves_in_a_bind_info_does_not_matter() -> None:
    state, group = gang_state()
    known = placements_of(state, group)[1][1]
    info = BindInfo(known.node, known.leaf_cell_indices[::-1], "RACK", ())
    assert find_slot(state, group, pod("q", "gang", members=GANG, size=2), info) == 4


def test_a_placement_of_another_size_is_not_found() -> None:
    state, group = gang_state()
    with pytest.raises(UserError, match="has no free placement"):
        find_slot(state, group, pod("q", "gang", members=GANG, size=2), bind_info_of_slot(state, group, 1))


def test_a_bind_info_without_leaves_is_not_found() -> None:
    state, group = gang_state()
    with pytest.raises(UserError, match="has no free placement"):
        find_slot(state, group, pod("q", "gang", members=GANG), BindInfo("n0", (), "RACK", ()))


def test_a_pod_without_a_slot_leaves_none() -> None:
    _, group = gang_state()
    assert not leave_slots(group, "stranger")
    assert group.holders[0] is not None


def test_a_pod_that_takes_its_slot_again_holds_it_once() -> None:
    _, group = gang_state()
    take_slot(group, 0, pod("p0", "gang", members=GANG))
    assert group.slots_of == {"p0": [0]}


def test_bind_info_names_the_devices_and_the_type_of_the_preassigned_cell() -> None:
    state, group = gang_state()
    own = bind_info_of_slot(state, group, 3)
    leaves = group.physical[leaf_range(group.members, 3)]
    assert own.node == state.topology.node_names[state.arrays.node[leaves[0]]]
    assert list(own.leaf_cell_indices) == state.arrays.device[leaves].tolist()
    assert own.members[1][0].preassigned_cell_types == ("RACK", "RACK")
    assert own.cell_chain == "RACK"


def test_all_pods_of_a_group_share_one_list_of_placements() -> None:
    state, group = gang_state()
    assert bind_info_of_slot(state, group, 0).members is bind_info_of_slot(state, group, 4).members


def test_a_slot_beyond_the_last_has_no_bind_info() -> None:
    state, group = gang_state()
    with pytest.raises(IndexError):
        bind_info_of_slot(state, group, 5)


def test_a_slot_whose_leaf_is_gone_repeats_what_the_pod_was_bound_with() -> None:
    state = healthy_state(rack_cluster())
    placements = (placement("n0", 0, 7), placement("gone", 0, 1), placement("n1", 0, 1))
    handle(state, PodAllocated(pod("p", members=((3, 2),)), bind_info(placements)))
    assert placements_of(state, state.groups["p"])[0] == placements


def test_the_chain_of_a_slot_whose_first_leaf_is_gone_is_the_one_it_was_bound_with() -> None:
    state = healthy_state(rack_cluster())
    info = bind_info((placement("n0", 7, 1),), chain="OLD")
    handle(state, PodAllocated(pod("p"), info))
    assert bind_info_of_slot(state, state.groups["p"], 0) == info


def test_the_nodes_of_slots_are_those_of_their_placements() -> None:
    state, group = gang_state()
    run(state, pod("p1", "gang", members=GANG, size=2))
    placed = placements_of(state, group)
    assert nodes_of_slots(state, group) == [place.node for member in placed for place in member]


def test_a_pod_finds_its_slot_whatever_the_order_in_which_pods_come() -> None:
    state, group = gang_state()
    for slot in (4, 2, 3, 1):
        wanted = pod(f"p{slot}", "gang", members=GANG, size=2 if slot > 2 else 1)
        info = bind_info_of_slot(state, group, slot)
        handle(state, PodAllocated(wanted, info))
        assert group.slots_of[wanted.uid] == [slot]


def test_the_first_free_slot_is_found_again_after_one_before_it_was_left() -> None:
    state, group = gang_state()
    for uid in ("p1", "p2"):
        run(state, pod(uid, "gang", members=GANG))
    delete(state, pod("p1", "gang", members=GANG))
    assert first_free_slot(group, range(3)) == 1


def test_a_virtual_placement_lists_leaves_by_preassigned_cell() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 2})))
    leaves = [cell_at(state, address) for address in ("A/1/1/3", "A/0/0/1", "A/1/0/0")]
    assert virtual_placement(state, np.array(leaves, np.int32)) == {
        "A/0": ["A/0/0/1"],
        "A/1": ["A/1/1/3", "A/1/0/0"],
    }


def test_the_last_pod_takes_its_group_with_it() -> None:
    state, _ = gang_state()
    run(state, pod("p1", "gang", members=GANG))
    delete(state, pod("p0", "gang", members=GANG))
    assert list(state.groups) == ["gang"]
    delete(state, pod("p1", "gang", members=GANG))
    assert not state.groups
    assert not state.group_by_number
