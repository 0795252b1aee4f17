"""Slots of a group's pods, and the bind info that describes them."""

import pytest

from hived.cells.state import Group, State
from hived.life.groups import (
    bind_info_of_slot,
    find_slot,
    leaf_range,
    placements_of,
)
from hived.scheduler import handle
from hived.values.errors import UserError
from hived.values.events import PodAllocated
from hived.values.specs import BindInfo, MemberSpec
from tests.core.builders import (
    bind_info,
    healthy_state,
    placement,
    pod,
    quota,
    rack_cluster,
    request,
    run,
)

GANG = ((3, 1), (2, 2))


def gang_state() -> tuple[State, Group]:
    """A gang of three pods of one leaf and two of two; the first one is there."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 2})))
    run(state, pod("p0", "gang", members=GANG))
    return state, state.groups["gang"]


@pytest.mark.parametrize("members", [((1, 4), (3, 1)), ((1, 2), (1, 2))], ids=["descending", "not merged"])
def test_members_that_are_not_in_order_are_refused(members: tuple[tuple[int, int], ...]) -> None:
    state = healthy_state(rack_cluster())
    with pytest.raises(UserError, match="affinity group g: members must be merged by leaf cell number, ascending"):
        request(state, pod("p", "g", members=members))


def test_a_slot_beyond_the_last_has_no_leaves() -> None:
    with pytest.raises(IndexError):
        leaf_range((MemberSpec(3, 1), MemberSpec(2, 4)), 5)


def test_a_placement_of_another_size_is_not_found() -> None:
    state, group = gang_state()
    with pytest.raises(UserError, match="has no free placement"):
        find_slot(state, group, pod("q", "gang", members=GANG, size=2), bind_info_of_slot(state, group, 1))


def test_a_bind_info_without_leaves_is_not_found() -> None:
    state, group = gang_state()
    with pytest.raises(UserError, match="has no free placement"):
        find_slot(state, group, pod("q", "gang", members=GANG), BindInfo("n0", (), "RACK", ()))


def test_bind_info_names_the_devices_and_the_type_of_the_preassigned_cell() -> None:
    state, group = gang_state()
    own = bind_info_of_slot(state, group, 3)
    leaves = group.physical[leaf_range(group.members, 3)]
    assert own.node == state.topology.node_names[state.arrays.node[leaves[0]]]
    assert list(own.leaf_cell_indices) == state.arrays.device[leaves].tolist()
    assert own.members[1][0].preassigned_cell_types == ("RACK", "RACK")
    assert own.cell_chain == "RACK"


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
