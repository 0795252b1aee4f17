"""Victims, reservations and lazy preemption (rules 8)."""

from typing import Any

import pytest

from hived.cells.state import CellState, GroupState, State
from hived.cells.topology import NO_CELL
from hived.life.preemption import find_preemptors, lazy_groups_below, preempt_lazily
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Applied, Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Phase, PodAllocated
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from tests.core.builders import (
    bind_info,
    delete,
    describe_groups,
    fingerprint,
    healthy_state,
    held_nodes,
    placement,
    pod,
    quota,
    rack_cluster,
    request,
    run,
    set_nodes,
)

FOUR = ((4, 2),)


def all_for_a(*vcs: str) -> ClusterSpec:
    """Four nodes, all of them promised to A; further VCs have nothing."""
    return rack_cluster(quota("A", {"RACK.NODE": 4}), *(quota(vc, {}) for vc in vcs))


def full_of(count: int, priority: int = -1, **spec: Any) -> State:
    """Four nodes of A, of which `count` are used by one group each: v0, v1, ..."""
    state = healthy_state(all_for_a())
    for i in range(count):
        run(state, pod(f"v{i}", priority=priority, **spec))
    return state


def states(state: State, group: str) -> list[CellState]:
    return [CellState(value) for value in state.cells.state[state.groups[group].physical].tolist()]


# --- victims -------------------------------------------------------------------------------------------------------


def test_every_pod_of_a_group_in_the_way_is_a_victim() -> None:
    """One node is wanted, and the whole gang on two nodes has to go (rule 8.1)."""
    state = healthy_state(all_for_a())
    for uid in ("p0", "p1"):
        run(state, pod(uid, "gang", priority=0, members=((2, 2),)))
    run(state, pod("other", priority=9, members=((2, 2),)))
    decision = request(state, pod("urgent", priority=5), Phase.FILTERING)
    first, second = held_nodes(state, "gang")[::2]
    assert decision == Preempt({first: ("p0",), second: ("p1",)})


def test_victims_are_listed_by_node_in_ascending_order() -> None:
    decision = request(full_of(4), pod("urgent", members=FOUR))
    assert isinstance(decision, Preempt)
    assert list(decision.victims_by_node) == ["n0", "n1", "n2", "n3"]


def test_pods_of_one_node_are_listed_in_ascending_order() -> None:
    state = healthy_state(all_for_a())
    for i in (3, 1, 2, 0, 7, 5, 6, 4):
        run(state, pod(f"v{i}", priority=-1, members=((1, 1),)))
    decision = request(state, pod("urgent", members=FOUR))
    assert isinstance(decision, Preempt)
    assert all(list(pods) == sorted(pods) for pods in decision.victims_by_node.values())
    assert sorted(uid for pods in decision.victims_by_node.values() for uid in pods) == [f"v{i}" for i in range(8)]


def test_slots_without_a_pod_have_no_victim() -> None:
    state = healthy_state(all_for_a())
    run(state, pod("p0", "gang", priority=-1, members=FOUR))
    node = held_nodes(state, "gang")[0]
    assert request(state, pod("urgent", members=FOUR)) == Preempt({node: ("p0",)})


def test_a_guaranteed_pod_of_the_same_priority_is_no_victim() -> None:
    assert isinstance(request(full_of(4, priority=5), pod("urgent", priority=5)), Wait)


def test_pods_of_another_vc_are_no_victims_unless_they_are_opportunistic() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("b", vc="B", priority=0, members=((2, 2),)))
    assert isinstance(request(state, pod("a", priority=9, members=((3, 2),))), Wait)


# --- reservations --------------------------------------------------------------------------------------------------


def test_a_preemptor_reserves_used_and_free_cells() -> None:
    state = full_of(3)
    request(state, pod("urgent", members=FOUR), Phase.PREEMPTING)
    by_node = dict(zip(held_nodes(state, "urgent"), states(state, "urgent"), strict=True))
    assert sorted(by_node.values()) == [CellState.RESERVING] * 3 + [CellState.RESERVED]
    assert {node for node, value in by_node.items() if value is CellState.RESERVED} == {"n3"}


def test_the_victims_groups_are_being_preempted() -> None:
    state = full_of(4)
    request(state, pod("urgent", members=((2, 2),)), Phase.PREEMPTING)
    victims = {group.name for group in state.groups.values() if group.state is GroupState.BEING_PREEMPTED}
    assert victims == {"v0", "v1"}


def test_nothing_is_reserved_in_the_filtering_phase() -> None:
    state = full_of(4)
    before = fingerprint(state)
    assert isinstance(request(state, pod("urgent", members=FOUR), Phase.FILTERING), Preempt)
    assert fingerprint(state) == before


def test_the_preemptor_binds_once_all_its_victims_are_gone() -> None:
    state = full_of(4)
    urgent = pod("urgent", members=FOUR)
    request(state, urgent, Phase.PREEMPTING)
    for i in range(4):
        assert isinstance(request(state, urgent, Phase.PREEMPTING), Preempt)
        delete(state, pod(f"v{i}"))
        check_invariants(state)
    run(state, urgent, Phase.PREEMPTING)
    assert state.groups["urgent"].state is GroupState.ALLOCATED
    assert set(states(state, "urgent")) == {CellState.USED}


def test_a_deleted_victim_leaves_its_cells_reserved() -> None:
    state = full_of(4)
    request(state, pod("urgent", members=FOUR), Phase.PREEMPTING)
    delete(state, pod("v2"))
    assert states(state, "urgent").count(CellState.RESERVED) == 2


def test_cancelling_gives_the_cells_back_to_their_victims() -> None:
    """A victim in a VC is bound and counted again as before."""
    state = full_of(4, priority=1)
    before = state.cells.priority.copy(), state.cells.used.copy(), state.cells.bound.copy(), state.cells.using.copy()
    urgent = pod("urgent", priority=5, members=((2, 2),))
    request(state, urgent, Phase.PREEMPTING)
    delete(state, urgent)
    check_invariants(state)
    after = state.cells.priority, state.cells.used, state.cells.bound, state.cells.using
    assert all((old == new).all() for old, new in zip(before, after, strict=True))


def test_a_victim_stays_being_preempted_after_its_preemptor_was_cancelled() -> None:
    """A quirk of the reference that is kept (rule 8.9)."""
    state = full_of(4)
    urgent = pod("urgent")
    request(state, urgent, Phase.PREEMPTING)
    delete(state, urgent)
    assert GroupState.BEING_PREEMPTED in {group.state for group in state.groups.values()}


def test_a_preemption_is_cancelled_with_its_last_pod() -> None:
    state = full_of(4)
    first, second = (pod(uid, "gang", members=((2, 2),)) for uid in ("p0", "p1"))
    request(state, first, Phase.PREEMPTING)
    request(state, second, Phase.PREEMPTING)
    delete(state, first)
    assert "gang" in state.groups
    delete(state, second)
    assert "gang" not in state.groups


def test_cancelling_is_reported() -> None:
    state = full_of(4)
    urgent = pod("urgent")
    request(state, urgent, Phase.PREEMPTING)
    applied = handle(state, PodAllocated(pod("late"), bind_info((placement("n0", 0, 1),))))
    assert applied == Applied(cancelled=("urgent",))


def test_a_stronger_preemptor_cancels_the_ones_whose_cells_it_takes() -> None:
    state = full_of(4)
    for i in range(2):
        request(state, pod(f"weak{i}", members=((2, 2),)), Phase.PREEMPTING)
    request(state, pod("strong", priority=9, members=FOUR), Phase.PREEMPTING)
    check_invariants(state)
    assert [name for name in state.groups if not name.startswith("v")] == ["strong"]


def test_overlapping_preemptors_are_named_in_ascending_order() -> None:
    state = full_of(4)
    for name in ("zeta", "alpha"):
        request(state, pod(name, members=((2, 2),)), Phase.PREEMPTING)
    leaves = (state.cells.reserving != -1).nonzero()[0].astype("int32")
    assert [group.name for group in find_preemptors(state, leaves)] == ["alpha", "zeta"]


def test_a_preemptor_moves_when_one_of_its_cells_turns_bad() -> None:
    state = full_of(2)
    urgent = pod("urgent", members=((3, 2),))
    request(state, urgent, Phase.PREEMPTING)
    lost = held_nodes(state, "urgent")[0]
    set_nodes(state, lost, is_healthy=False)
    request(state, urgent, Phase.PREEMPTING)
    check_invariants(state)
    assert lost not in held_nodes(state, "urgent")


def test_a_preemptor_that_heeds_suggestions_moves_when_a_node_is_not_suggested_any_more() -> None:
    state = full_of(2)
    urgent = pod("urgent", members=((3, 2),), ignore_suggested_nodes=False)
    request(state, urgent, Phase.PREEMPTING)
    lost, *_ = held_nodes(state, "urgent")
    suggested = [node for node in state.topology.node_names if node != lost]
    request(state, urgent, Phase.PREEMPTING, *suggested)
    assert lost not in held_nodes(state, "urgent")


def test_a_preemptor_that_ignores_suggestions_stays() -> None:
    state = full_of(2)
    urgent = pod("urgent", members=((3, 2),))
    request(state, urgent, Phase.PREEMPTING)
    before = held_nodes(state, "urgent")
    request(state, urgent, Phase.PREEMPTING, "n0")
    assert held_nodes(state, "urgent") == before


def test_a_preemptor_stays_in_the_filtering_phase_whatever_its_nodes_are() -> None:
    state = full_of(2)
    urgent = pod("urgent", members=((3, 2),))
    request(state, urgent, Phase.PREEMPTING)
    before = held_nodes(state, "urgent")
    set_nodes(state, *before, is_healthy=False)
    assert isinstance(request(state, urgent, Phase.FILTERING), Preempt)
    assert held_nodes(state, "urgent") == before


def test_a_preemption_of_8000_leaves_is_made_whole_or_not_at_all() -> None:
    """The journal fills up after the group was entered; the retry must reserve everything."""
    nodes = 1000
    state = healthy_state(rack_cluster(quota("A", {"RACK": nodes // 10}), racks=nodes // 10, nodes=10, gpus=8))
    run(state, pod("lent", priority=-1, members=((nodes, 8),)))
    capacity = len(state.cells.journal_value)
    request(state, pod("urgent", priority=5, members=((nodes, 8),)), Phase.PREEMPTING)
    assert len(state.cells.journal_value) > capacity
    assert (state.cells.reserving == state.groups["urgent"].number).sum() == nodes * 8
    check_invariants(state)


# --- pods of groups that are being preempted or preempt ------------------------------------------------------------


def test_a_pod_of_a_group_that_lost_the_cells_of_its_slot_waits() -> None:
    state = healthy_state(all_for_a())
    run(state, pod("p0", "gang", priority=0, members=FOUR))
    request(state, pod("urgent", priority=5, members=FOUR), Phase.PREEMPTING)
    late = pod("p1", "gang", priority=0, members=FOUR)
    assert request(state, late) == Wait("the affinity group is being preempted")


def test_a_pod_of_a_group_that_kept_the_cells_of_its_slot_is_bound() -> None:
    state = healthy_state(all_for_a())
    run(state, pod("p0", "gang", priority=0, members=FOUR))
    urgent = pod("urgent", priority=5)
    request(state, urgent, Phase.PREEMPTING)
    lost = held_nodes(state, "urgent")[0]
    delete(state, urgent)
    late = pod("p1", "gang", priority=0, members=FOUR)
    assert state.groups["gang"].state is GroupState.BEING_PREEMPTED
    assert run(state, late).bind_info.node == held_nodes(state, "gang")[2] != lost


def test_further_pods_of_a_preempting_group_wait_for_the_same_victims() -> None:
    state = full_of(4)
    pods = [pod(uid, "gang", members=((2, 2),)) for uid in ("p0", "p1")]
    first, second = (request(state, each, Phase.PREEMPTING) for each in pods)
    assert first == second
    assert sorted(state.groups["gang"].preempting_pods) == ["p0", "p1"]


def test_a_pod_bound_by_somebody_else_before_its_victims_left_takes_what_is_free() -> None:
    """Two schedulers overlap at a change of leader: the reservation ends, leaves in use are left out."""
    state = full_of(4)
    gang = pod("p0", "gang", members=((2, 2),))
    request(state, gang, Phase.PREEMPTING)
    nodes = dict.fromkeys(held_nodes(state, "gang"))
    applied = handle(state, PodAllocated(gang, bind_info(tuple(placement(node, 0, 1) for node in nodes))))
    assert applied == Applied(cancelled=("gang",))
    check_invariants(state)
    assert {value for i in range(4) for value in states(state, f"v{i}")} == {CellState.USED}
    assert (state.groups["gang"].physical == NO_CELL).all()
    for i in range(4):
        delete(state, pod(f"v{i}"))
        check_invariants(state)
    delete(state, gang)
    check_invariants(state)
    assert not state.groups


def test_a_garbled_bind_info_does_not_cancel_a_preemption() -> None:
    state = full_of(4)
    gang = pod("p0", "gang", members=((2, 2),))
    request(state, gang, Phase.PREEMPTING)
    before = fingerprint(state)
    with pytest.raises(UserError):
        handle(state, PodAllocated(gang, bind_info((placement("n0", 0, 1),))))
    assert fingerprint(state) == before


# --- lazy preemption -----------------------------------------------------------------------------------------------


def lazy_state() -> State:
    """Half of A's four nodes are used by a group that may be lazily preempted; eight nodes in all."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4}), racks=4))
    run(state, pod("lazy", members=((2, 2),), lazy_preemption=True))
    return state


def test_a_lazy_group_leaves_its_vc_and_keeps_running() -> None:
    state = lazy_state()
    before = held_nodes(state, "lazy")
    decision = run(state, pod("urgent", priority=5, members=FOUR))
    check_invariants(state)
    assert decision.lazily_preempted == ("lazy",)
    assert held_nodes(state, "lazy") == before
    assert set(states(state, "lazy")) == {CellState.USED}
    assert set(state.cells.priority[state.groups["lazy"].physical].tolist()) == {-1}


def test_a_group_that_may_not_be_lazily_preempted_is_a_victim() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4}), racks=4))
    run(state, pod("firm", members=((2, 2),)))
    assert isinstance(request(state, pod("urgent", priority=5, members=FOUR)), Preempt)


def test_a_lazy_preemption_that_leads_to_no_mapping_is_taken_back() -> None:
    """The gang fits the VC, but only three nodes are suggested."""
    state = lazy_state()
    before = fingerprint(state)
    urgent = pod("urgent", priority=5, members=FOUR, ignore_suggested_nodes=False)
    decision = request(state, urgent, Phase.FILTERING, "n0", *held_nodes(state, "lazy"))
    assert isinstance(decision, Wait)
    assert decision.reason.startswith("Mapping the virtual placement")
    assert fingerprint(state) == before


def test_a_group_keeps_its_first_lazy_preemptor() -> None:
    state = lazy_state()
    run(state, pod("urgent", priority=5, members=FOUR))
    assert not preempt_lazily(state, [state.groups["lazy"]], "late")
    assert state.groups["lazy"].lazy_preemptor == "urgent"


def test_only_the_cells_that_a_group_still_uses_leave_the_vc() -> None:
    """One of its two nodes is reserved by a preemptor already (rule 8.8)."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1))
    run(state, pod("firm", members=((2, 2),)))
    request(state, pod("urgent", priority=5), Phase.PREEMPTING)
    reserved = held_nodes(state, "urgent")
    handle(state, PodAllocated(pod("late", vc="gone"), bind_info((placement("gone", 0, 1),)), ("firm",)))
    check_invariants(state)
    priorities = dict(zip(held_nodes(state, "firm"), leaf_priorities(state, "firm"), strict=True))
    assert priorities == {node: 5 if node in reserved else -1 for node in ("n0", "n1")}


def leaf_priorities(state: State, group: str) -> list[int]:
    return [int(priority) for priority in state.cells.priority[state.groups[group].physical]]


def test_a_group_that_has_left_its_vc_is_not_to_be_preempted_lazily_though_its_bad_leaf_is_still_bound() -> None:
    """Another group keeps the rack allocated."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    run(state, pod("lazy", lazy_preemption=True))
    run(state, pod("firm"))
    leaves = state.groups["lazy"].virtual
    assert leaves is not None
    set_nodes(state, *held_nodes(state, "lazy"), is_healthy=False)
    assert lazy_groups_below(state, leaves) == [state.groups["lazy"]]
    preempt_lazily(state, [state.groups["lazy"]], "urgent")
    assert (state.cells.bound[leaves] != NO_CELL).all()
    assert lazy_groups_below(state, leaves) == []


def test_a_chain_that_was_tried_in_vain_keeps_its_lazy_groups() -> None:
    """The gang preempts lazily in chain A, finds too few suggested nodes there, and reserves cells of chain Z."""
    names = ("a0", "a1", "a2", "z0", "z1")
    cell_types = {name: CellTypeSpec(name, "GPU", 2, is_node_level=True) for name in "AZ"}
    tops = tuple(PhysicalCellSpec(name[0].upper(), address=name) for name in names)
    state = healthy_state(ClusterSpec(cell_types, tops, {"V": quota("V", {"A": 2, "Z": 2})}))
    run(state, pod("lazy", vc="V", lazy_preemption=True))
    for node in ("z0", "z1"):
        lent = bind_info((placement(node, 0, 1, cell_type=""),), chain="Z")
        handle(state, PodAllocated(pod(node, vc="V", priority=-1), lent))
    urgent = pod("urgent", vc="V", priority=5, members=((2, 2),), ignore_suggested_nodes=False)
    decision = request(state, urgent, Phase.PREEMPTING, *held_nodes(state, "lazy"), "z0", "z1")
    assert decision == Preempt({"z0": ("z0",), "z1": ("z1",)})
    assert state.groups["lazy"].virtual is not None
    check_invariants(state)


def test_an_opportunistic_group_has_no_vc_to_leave() -> None:
    state = full_of(1, lazy_preemption=True)
    before = describe_groups(state)
    assert not preempt_lazily(state, [state.groups["v0"]], "urgent")
    assert describe_groups(state) == before


def test_a_later_pod_of_a_lazily_preempted_group_is_bound_without_preassigned_cells() -> None:
    state = lazy_state()
    run(state, pod("urgent", priority=5, members=FOUR))
    decision = request(state, pod("late", "lazy", members=((2, 2),), lazy_preemption=True))
    assert isinstance(decision, Bind)
    assert {types for p in decision.bind_info.members[0] for types in p.preassigned_cell_types} == {""}


@pytest.mark.parametrize("named", [("ghost",), ("firm", "ghost")])
def test_only_groups_that_left_their_vc_are_reported(named: tuple[str, ...]) -> None:
    """Names in the event are not echoed: unknown groups, and groups of a pod whose own group is known."""
    state = healthy_state(rack_cluster())
    firm = pod("firm", members=((2, 2),))
    info = run(state, firm).bind_info
    assert handle(state, PodAllocated(firm, info, named)) == Applied()


def test_a_preempting_group_cannot_be_named_as_lazily_preempted() -> None:
    state = full_of(3, lazy_preemption=True)
    request(state, pod("urgent", members=((2, 2),), lazy_preemption=True), Phase.PREEMPTING)
    free = ({"n0", "n1", "n2", "n3"} - set(held_nodes(state, "urgent"))).pop()
    delete(state, *(pod(f"v{i}") for i in range(3) if held_nodes(state, f"v{i}")[0] == free))
    applied = handle(state, PodAllocated(pod("late"), bind_info((placement(free, 0, 1),)), ("urgent",)))
    assert applied == Applied()
    assert state.groups["urgent"].virtual is not None
