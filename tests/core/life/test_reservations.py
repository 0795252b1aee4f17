"""Reservations that outlive the state that they were made in."""

from collections.abc import Callable
from random import Random

import pytest

from hived.cells.state import NO_GROUP, CellState, Group, GroupState, State
from hived.cells.topology import NO_CELL
from hived.life.groups import bind_info_of_slot
from hived.life.victims import find_victims
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Applied, Bind, Decision, Preempt
from hived.values.errors import UserError
from hived.values.events import GroupReserved, NodeHealthChanged, Phase, PodAllocated
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, PodPlacement, PodRequest
from tests.core.builders import (
    bind_info,
    busy_state,
    cell_at,
    delete,
    fingerprint,
    healthy_state,
    held_nodes,
    placement,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
    set_nodes,
    small_journal,
    virtual_addresses,
)

LENT = placement("n0", 0, 1, cell_type="")
WHOLE = placement("n0", 0, 1)


def bound(state: State, wanted: PodRequest, *placements: PodPlacement) -> PodRequest:
    handle(state, PodAllocated(wanted, bind_info(placements)))
    return wanted


def reserve(state: State, wanted: PodRequest, *placements: PodPlacement) -> None:
    assert handle(state, GroupReserved((wanted,), bind_info(placements))) == Applied()
    check_invariants(state)


def lent_state(*nodes: str, spec: ClusterSpec | None = None) -> State:
    """Opportunistic groups of B, named as the nodes that they have; A and B share four nodes unless told."""
    state = healthy_state(spec or rack_cluster())
    for node in nodes:
        bound(state, pod(node, vc="B", priority=-1), placement(node, 0, 1, cell_type=""))
    return state


def leaf_states(state: State, group: str) -> list[CellState]:
    return [CellState(value) for value in state.cells.state[state.groups[group].physical].tolist()]


# --- what it is afterwards -----------------------------------------------------------------------------------------


def test_the_group_waits_for_those_who_use_its_cells() -> None:
    state = lent_state("n0")
    reserve(state, pod("urgent"), WHOLE)
    assert state.groups["urgent"].state is GroupState.PREEMPTING
    assert state.groups["n0"].state is GroupState.BEING_PREEMPTED
    assert set(leaf_states(state, "urgent")) == {CellState.RESERVING}
    assert request(state, pod("urgent"), Phase.PREEMPTING) == Preempt({"n0": ("n0",)})


def test_free_cells_of_it_are_reserved() -> None:
    state = lent_state("n0")
    reserve(state, pod("urgent", members=((2, 2),)), placement("n1", 0, 1), WHOLE)
    assert held_nodes(state, "urgent") == ["n1", "n1", "n0", "n0"]
    assert leaf_states(state, "urgent") == [CellState.RESERVED] * 2 + [CellState.RESERVING] * 2


def test_it_binds_to_its_cells_once_the_victims_are_gone() -> None:
    state = lent_state("n0")
    reserve(state, pod("urgent"), WHOLE)
    delete(state, pod("n0", vc="B", priority=-1))
    assert set(leaf_states(state, "urgent")) == {CellState.RESERVED}
    decision = run(state, pod("urgent"), Phase.PREEMPTING)
    check_invariants(state)
    assert (decision.bind_info.node, decision.bind_info.leaf_cell_indices) == ("n0", (0, 1))
    assert state.groups["urgent"].state is GroupState.ALLOCATED


def test_its_victims_get_their_cells_back_if_its_last_pod_is_deleted() -> None:
    state = healthy_state(rack_cluster())
    bound(state, pod("weak"), WHOLE)
    before = [getattr(state.cells, name).copy() for name in ("priority", "used", "bound", "using")]
    pods = (pod("p0", "urgent", priority=5), pod("p1", "urgent", priority=5))
    handle(state, GroupReserved(pods, bind_info((WHOLE,))))
    delete(state, pods[0])
    assert "urgent" in state.groups
    delete(state, pods[1])
    check_invariants(state)
    assert "urgent" not in state.groups
    after = [getattr(state.cells, name) for name in ("priority", "used", "bound", "using")]
    assert all((old == new).all() for old, new in zip(before, after, strict=True))


def test_its_pods_wait_in_the_order_told() -> None:
    state = lent_state("n0", "n1")
    info = bind_info((WHOLE, placement("n1", 0, 1)))
    pods = tuple(pod(uid, "urgent", members=((2, 2),)) for uid in ("p9", "p1"))
    handle(state, GroupReserved(pods, info))
    assert list(state.groups["urgent"].preempting_pods.items()) == [(each.uid, each) for each in pods]


def test_pods_of_a_gang_may_have_other_sizes_than_the_one_that_the_bind_info_names() -> None:
    state = lent_state("n0", "n1")
    members = ((1, 1), (1, 2))
    info = bind_info((placement("n1", 0),), (WHOLE,))
    handle(state, GroupReserved((pod("p", "urgent", members=members, size=2),), info))
    check_invariants(state)
    assert held_nodes(state, "urgent") == ["n1", "n0", "n0"]


def test_members_may_be_listed_in_any_order() -> None:
    state = lent_state("n0", "n1")
    info = bind_info((WHOLE,), (placement("n1", 0),))
    handle(state, GroupReserved((pod("p", "urgent", members=((1, 1), (1, 2))),), info))
    assert held_nodes(state, "urgent") == ["n1", "n0", "n0"]


# --- its place in the VC -------------------------------------------------------------------------------------------


def test_the_first_unbound_preassigned_cells_stand_behind_it() -> None:
    state = lent_state("n0", "n1", spec=rack_cluster(quota("A", {"RACK.NODE": 3}), quota("B", {"RACK.NODE": 1})))
    bound(state, pod("first"), placement("n3", 0, 1))
    reserve(state, pod("urgent", members=((2, 2),)), placement("n1", 0, 1), WHOLE)
    assert virtual_addresses(state, "urgent") == ["A/1/0", "A/1/1", "A/2/0", "A/2/1"]


def test_leaves_below_one_preassigned_cell_share_its_virtual_cell() -> None:
    """The rack is bound for the first leaf, the node for the first two."""
    state = lent_state("n2", "n3", spec=rack_cluster(quota("A", {"RACK": 2}), quota("B", {})))
    rack = [placement(node, 0, 1, cell_type="RACK") for node in ("n2", "n3")]
    reserve(state, pod("urgent", members=((2, 2),)), *rack)
    assert virtual_addresses(state, "urgent") == ["A/0/0/0", "A/0/0/1", "A/0/1/2", "A/0/1/3"]


def test_it_goes_below_what_its_vc_has_bound_already() -> None:
    state = lent_state("n3", spec=rack_cluster(quota("A", {"RACK": 2}), quota("B", {})))
    bound(state, pod("first"), placement("n2", 0, 1, cell_type="RACK"))
    reserve(state, pod("urgent"), placement("n3", 0, 1, cell_type="RACK"))
    assert virtual_addresses(state, "urgent") == ["A/0/1/2", "A/0/1/3"]


def test_victims_of_the_vc_leave_their_virtual_leaves_to_it() -> None:
    state = healthy_state(rack_cluster())
    bound(state, pod("other"), placement("n1", 0, 1))
    weak = bound(state, pod("weak"), WHOLE)
    expected = virtual_addresses(state, "weak")
    reserve(state, pod("urgent", priority=1), WHOLE)
    assert virtual_addresses(state, "urgent") == expected == ["A/1/0", "A/1/1"]
    delete(state, weak)
    check_invariants(state)
    assert isinstance(request(state, pod("urgent", priority=1)), Bind)


def test_a_pinned_cell_is_had_again() -> None:
    spec = rack_cluster(quota("A", {"RACK.NODE": 1}, ("pin",)), quota("B", {}), pins={"n1": "pin"})
    state = lent_state("n1", spec=spec)
    reserve(state, pod("urgent", pinned_cell_id="pin"), placement("n1", 0, 1))
    assert virtual_addresses(state, "urgent") == ["A/1/0", "A/1/1"]


def test_an_idle_doomed_cell_of_the_vc_is_used_as_it_is_bound() -> None:
    """Both racks have a bad node, so the rack of A is doomed to one of them; the group wants the healthy node there."""
    state = lent_state("n0", "n2", spec=rack_cluster(quota("A", {"RACK": 2}), quota("B", {})))
    set_nodes(state, "n1", "n3", is_healthy=False)
    root = cell_at(state, "0")
    virtual = int(state.cells.bound[root])
    assert virtual != NO_CELL
    reserve(state, pod("urgent"), placement("n0", 0, 1, cell_type="RACK"))
    assert state.arrays.root[state.groups["urgent"].virtual].tolist() == [virtual, virtual]


# --- refusals ------------------------------------------------------------------------------------------------------


def one_type(*tops: tuple[str, str], **vcs: dict[str, int]) -> ClusterSpec:
    """Nodes (name, chain) of one GPU each, of a type that is named after the chain."""
    cell_types = {chain: CellTypeSpec(chain, f"gpu{chain}", 1, is_node_level=True) for _, chain in tops}
    cells = tuple(PhysicalCellSpec(chain, address=name) for name, chain in tops)
    return ClusterSpec(cell_types, cells, {vc: quota(vc, cells) for vc, cells in vcs.items()})


def in_two_chains() -> State:
    return lent_of(healthy_state(one_type(("x", "X"), ("y", "Y"), A={"X": 1, "Y": 1})), "x", "y")


def lent_of(state: State, *nodes: str) -> State:
    for node in nodes:
        bound(state, pod(node, vc="A", priority=-1, members=((1, 1),)), PodPlacement(node, (0,), ("",)))
    return state


def with_bad(state: State, *nodes: str) -> State:
    set_nodes(state, *nodes, is_healthy=False)
    return state


def with_bound(state: State, wanted: PodRequest, *placements: PodPlacement) -> State:
    bound(state, wanted, *placements)
    return state


def with_reserved(state: State, wanted: PodRequest, *placements: PodPlacement) -> State:
    reserve(state, wanted, *placements)
    return state


def racks(**vcs: dict[str, int]) -> ClusterSpec:
    return rack_cluster(*(quota(vc, cells) for vc, cells in vcs.items()))


def pinned() -> State:
    spec = rack_cluster(quota("A", {"RACK.NODE": 1}, ("pin",)), quota("B", {}), pins={"n1": "pin"})
    return lent_state("n0", "n1", spec=spec)


def strained() -> State:
    """A runs on one half of each rack; B is promised a rack, and A one node more."""
    state = lent_state("n1", spec=racks(A={"RACK.NODE": 2}, B={"RACK": 1}))
    return with_bound(state, pod("a"), placement("n2", 0, 1))


GANG = ((2, 2),)
Refusal = tuple[Callable[[], State], PodRequest, tuple[PodPlacement, ...], str]


def refusals() -> dict[str, Refusal]:
    one, two, rack = pod("urgent"), pod("urgent", members=GANG), placement("n0", 0, 1, cell_type="RACK")
    single = pod("urgent", members=((2, 1),))
    x, y = PodPlacement("x", (0,), ("X",)), PodPlacement("y", (0,), ("Y",))
    return {
        "a group of its name exists": (
            lambda: with_bound(lent_state("n0"), pod("urgent"), placement("n1", 0, 1)), one, (WHOLE,), "of that name"),
        "its VC is gone": (lambda: lent_state("n0"), pod("urgent", vc="X"), (WHOLE,), "VC X does not exist"),
        "its pinned cell is gone": (
            lambda: lent_state("n0"), pod("urgent", pinned_cell_id="pin"), (WHOLE,), "does not have pinned cell pin"),
        "its leaf cell type is gone": (
            lambda: lent_state("n0"), pod("urgent", leaf_cell_type="TPU"), (WHOLE,), "the whole cluster does not have"),
        "it is opportunistic": (lambda: lent_state("n0"), pod("urgent", priority=-1), (LENT,), "opportunistic"),
        "the bind info has other sizes": (lambda: lent_state("n0"), two, (WHOLE,), "it places 1x2"),
        "a node is gone": (lambda: lent_state("n0"), two, (WHOLE, placement("n9", 0, 1)), "not configured any more"),
        "a device is gone": (lambda: lent_state("n0"), one, (placement("n0", 0, 7),), "not configured any more"),
        "a leaf is named twice": (lambda: lent_state("n0"), two, (WHOLE, WHOLE), "named twice"),
        "a leaf is bad": (
            lambda: with_bad(lent_state("n0"), "n1"), two, (WHOLE, placement("n1", 0, 1)), "0/n1/0 is bad"),
        "a leaf is reserved": (
            lambda: with_reserved(lent_state("n0", "n1"), pod("rival"), WHOLE), two,
            (WHOLE, placement("n1", 0, 1)), "0/n0/0 is reserved by affinity group rival"),
        "nobody uses it": (lambda: lent_state("n0"), one, (placement("n1", 0, 1),), "nobody uses its cells"),
        "its user has its priority": (
            lambda: with_bound(lent_state(), pod("equal"), WHOLE), one, (WHOLE,), "affinity group equal at priority 0"),
        "its user is of another VC": (
            lambda: with_bound(lent_state(), pod("b", vc="B"), WHOLE), pod("urgent", priority=9), (WHOLE,),
            "0/n0/0 is bound to virtual cell B/0/0"),
        "it names no preassigned types": (lambda: lent_state("n0"), one, (LENT,), "has no type"),
        "its preassigned type is gone": (
            lambda: lent_state("n0"), one, (placement("n0", 0, 1, cell_type="POOL"),), "does not exist any more"),
        "its VC has no cell of that type": (lambda: lent_state("n0"), one, (rack,), "VC A has no RACK left for it"),
        "its VC has no cell left": (
            lambda: with_bound(lent_state("n0", spec=racks(A={"RACK.NODE": 1}, B={})), pod("a"), placement("n1", 0, 1)),
            one, (WHOLE,), "VC A has no NODE left for it"),
        "its VC has too few cells": (
            lambda: lent_state("n0", "n1", spec=racks(A={"RACK.NODE": 1}, B={})), two,
            (WHOLE, placement("n1", 0, 1)), "VC A has no NODE left for it"),
        "its preassigned cell is in use in part": (
            lambda: with_bound(
                lent_state("n0", spec=racks(A={"RACK": 1}, B={"RACK.NODE": 2})), pod("b", vc="B"), placement("n1", 0, 1)
            ), one, (rack,), "0 is not free as a whole"),
        "its preassigned cell is in one of its VC's": (
            lambda: with_bound(
                lent_state("n0", spec=racks(A={"RACK": 1, "RACK.NODE": 1}, B={})), pod("a"),
                placement("n1", 0, 1, cell_type="RACK"),
            ), one, (WHOLE,), "0/n0 is not free as a whole"),
        "its own preassigned cells overlap": (
            lambda: lent_state("n0", spec=racks(A={"RACK": 1, "RACK.NODE": 1}, B={})), two,
            (WHOLE, placement("n1", 0, 1, cell_type="RACK")), "0 is not free as a whole"),
        "its own preassigned cells overlap the other way round": (
            lambda: lent_state("n0", spec=racks(A={"RACK": 1, "RACK.NODE": 1}, B={})), two,
            (rack, placement("n1", 0, 1)), "0/n1 is not free as a whole"),
        "it is outside of its pinned cell": (
            pinned, pod("urgent", pinned_cell_id="pin"), (WHOLE,), "it is not in pinned cell pin"),
        "it is in a pinned cell": (pinned, one, (placement("n1", 0, 1),), "is bound to virtual cell A/1"),
        "the pinned cell is of another level": (
            pinned, pod("urgent", pinned_cell_id="pin"), (placement("n1", 0, 1, cell_type="RACK"),),
            "is bound to virtual cell A/1"),
        "it is in several chains": (in_two_chains, single, (x, y), "its leaf cells are in chains X, Y"),
        "its leaves are of another type": (
            in_two_chains, pod("urgent", leaf_cell_type="gpuY", members=((1, 1),)), (x,), "of type gpuX, not gpuY"),
        "its leaves are not within one cell": (
            lambda: lent_state("n1", spec=racks(A={"RACK.NODE": 4}, B={})),
            pod("urgent", members=GANG, within_cell="RACK"), (placement("n1", 0, 1), placement("n2", 0, 1)),
            "not below one RACK"),
        "another VC is promised what is left": (strained, one, (placement("n1", 0, 1),), "other VCs are promised"),
    }  # fmt: skip


REFUSED = refusals()


@pytest.mark.parametrize("why", REFUSED)
def test_it_is_refused_and_nothing_changes_if(why: str) -> None:
    make, wanted, placements, message = REFUSED[why]
    state = make()
    before, vcs, total = fingerprint(state), list(state.vc_names), state.group_total
    with pytest.raises(UserError) as refused:
        handle(state, GroupReserved((wanted,), bind_info(placements)))
    assert message in refused.value.message
    assert fingerprint(state) == before
    assert (state.vc_names, state.group_total) == (vcs, total)
    check_invariants(state)


def test_pods_that_do_not_agree_are_refused_and_nothing_changes() -> None:
    state = lent_state("n0")
    before = fingerprint(state)
    with pytest.raises(UserError, match="priority is 3, group has 5"):
        handle(
            state,
            GroupReserved((pod("p0", "urgent", priority=5), pod("p1", "urgent", priority=3)), bind_info((WHOLE,))),
        )
    assert fingerprint(state) == before


def test_pods_of_two_groups_are_refused() -> None:
    state = lent_state("n0")
    before = fingerprint(state)
    with pytest.raises(UserError, match="is of affinity group p1"):
        handle(state, GroupReserved((pod("p0"), pod("p1")), bind_info((WHOLE,))))
    assert fingerprint(state) == before


def test_no_pods_are_refused() -> None:
    with pytest.raises(UserError, match="no pod is named"):
        handle(lent_state("n0"), GroupReserved((), bind_info((WHOLE,))))


def test_where_vc_safety_is_broken_it_must_not_become_worse() -> None:
    """A is promised three racks of two; the one that it takes is not missing elsewhere."""
    state = lent_state("n0", spec=racks(A={"RACK": 3}, B={}))
    assert state.cells.strained.all()
    reserve(state, pod("urgent"), placement("n0", 0, 1, cell_type="RACK"))
    assert state.cells.strained.all()


def test_a_small_journal_is_grown() -> None:
    state = small_journal(lent_state("n0"), 4)
    reserve(state, pod("urgent"), WHOLE)
    assert len(state.cells.journal_position) > 4


# --- a whole state, built anew -------------------------------------------------------------------------------------


def built_anew(state: State) -> tuple[State, dict[str, str]]:
    """The same cluster, told the same nodes, bound pods and reservations; and why those that are lost were refused."""
    fresh, lost = new_state(state.spec), {}
    for node, is_bad in zip(state.topology.node_names, state.cells.node_bad.tolist(), strict=True):
        handle(fresh, NodeHealthChanged(node, not is_bad))
    for group in state.groups.values():
        for slot, holder in enumerate(group.holders):
            if holder is not None:
                handle(fresh, PodAllocated(holder, bind_info_of_slot(state, group, slot)))
    for group in reserving(state):
        before = fingerprint(fresh)
        try:
            info = bind_info_of_slot(state, group, 0)
            handle(fresh, GroupReserved(tuple(group.preempting_pods.values()), info))
        except UserError as error:
            lost[group.name] = error.message
            assert fingerprint(fresh) == before
        check_invariants(fresh)
    return fresh, lost


def reserving(state: State) -> list[Group]:
    return [group for group in state.groups.values() if group.state is GroupState.PREEMPTING]


@pytest.mark.long
def test_a_state_built_anew_has_the_same_reservations() -> None:
    """All whose cells are healthy and which still wait for somebody."""
    restored = 0
    for seed in range(150):
        state = busy_state(random_cluster(seed), Random(seed), pods=20)
        fresh, lost = built_anew(state)
        for group in reserving(state):
            cells = state.cells
            if cells.bad[group.physical].any():
                assert "is bad" in lost[group.name]
            elif (cells.state[group.physical] == CellState.RESERVED).all():
                assert "nobody uses its cells" in lost[group.name]
            else:
                assert group.name not in lost, lost[group.name]
                again = fresh.groups[group.name]
                assert again.physical.tolist() == group.physical.tolist()
                assert again.preempting_pods == group.preempting_pods
                assert find_victims(fresh, again.physical) == find_victims(state, group.physical)
                restored += 1
    assert restored > 40


def test_a_group_that_has_its_reservation_again_binds_where_it_would_have() -> None:
    for seed in range(60):
        state = busy_state(random_cluster(seed), Random(seed), pods=20)
        fresh, lost = built_anew(state)
        for group in reserving(state):
            if group.name not in lost:
                for each in (state, fresh):
                    clear(each, group.name)
                wanted = next(iter(group.preempting_pods.values()))
                assert places(request(state, wanted)) == places(request(fresh, wanted))


def clear(state: State, name: str) -> None:
    """Delete the victims of a preempting group."""
    using = state.cells.using[state.groups[name].physical]
    for number in dict.fromkeys(using[using != NO_GROUP].tolist()):
        delete(state, *(holder for holder in state.group_by_number[number].holders if holder is not None))
    check_invariants(state)


def places(decision: Decision) -> list[tuple[str, tuple[int, ...]]]:
    assert isinstance(decision, Bind)
    return [(each.node, each.leaf_cell_indices) for member in decision.bind_info.members for each in member]
