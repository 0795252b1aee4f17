"""Bad nodes, the bad cells above them, and preassigned cells that are doomed to bad hardware (rules 10)."""

import random

import numpy as np
import pytest

from hived.cells.binding import plan_placement
from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.life.health import catch_up_after_plan
from hived.life.status import snapshot, virtual_cluster
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Wait
from hived.values.events import NodeHealthChanged, Phase, PodAllocated
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from tests.core.builders import (
    bind_info,
    busy_state,
    cell_at,
    delete,
    fingerprint,
    healthy_state,
    held_nodes,
    leaf,
    placement,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
    set_nodes,
    tree_cluster,
)


def bad_cells(state: State, vc: str) -> list[str]:
    """Addresses of the preassigned cells that a VC sees as bad."""
    own = [cell for cell in virtual_cluster(state, vc) if not cell["cellAddress"].endswith("-opp")]
    return [cell["cellAddress"] for cell in own if cell["cellHealthiness"] == "Bad"]


def nodes_only(*quotas: int, nodes: int) -> ClusterSpec:
    """Single nodes, and VCs V0, V1, ... that are promised so many of them."""
    vcs = (quota(f"V{i}", {"NODE": count}) for i, count in enumerate(quotas))
    return tree_cluster({"NODE": 2}, *vcs, tops=nodes)


def test_a_cell_is_bad_while_a_node_below_it_is() -> None:
    source = random.Random(1)
    for seed in range(20):
        state = new_state(random_cluster(seed))
        topology, bad = state.topology, set(state.topology.node_names)
        for _ in range(20):
            node = source.choice(topology.node_names)
            is_healthy = source.random() < 0.5
            set_nodes(state, node, is_healthy=is_healthy)
            bad = bad - {node} if is_healthy else bad | {node}
        for cell in range(topology.physical_count):
            first, arrays = int(state.arrays.first_leaf[cell]), state.arrays
            below = arrays.node[first : first + arrays.leaf_count[arrays.chain_level[cell]]]
            assert state.cells.bad[cell] == any(topology.node_names[node] in bad for node in below.tolist())


def test_every_node_is_bad_at_the_start() -> None:
    state = new_state(rack_cluster())
    assert state.cells.bad[: state.topology.physical_count].all()


def test_nothing_is_left_of_bad_nodes_once_all_are_healthy_and_idle() -> None:
    """Doomed cells, bindings and counts of cells go; only the order of lists may differ."""
    source = random.Random(2)
    counts = ("left", "vc_claims", "claims", "bad_count", "doomed_count", "free_count", "split")
    for seed in range(25):
        spec = random_cluster(seed)
        state, fresh = busy_state(spec, source), healthy_state(spec)
        for group in list(state.groups.values()):
            delete(state, *(p for p in [*group.holders, *group.preempting_pods.values()] if p is not None))
        set_nodes(state, *state.topology.node_names, is_healthy=True)
        assert snapshot(state) == snapshot(fresh)
        for name in counts:
            assert getattr(state.cells, name).tolist() == getattr(fresh.cells, name).tolist(), name


def test_the_same_health_again_changes_nothing() -> None:
    state = busy_state(rack_cluster(), random.Random(3))
    before = fingerprint(state)
    for node, is_bad in zip(state.topology.node_names, state.cells.node_bad.tolist(), strict=True):
        set_nodes(state, node, is_healthy=not is_bad)
    assert fingerprint(state) == before


def test_a_node_that_is_not_configured_is_ignored() -> None:
    state = healthy_state(rack_cluster())
    before = fingerprint(state)
    handle(state, NodeHealthChanged("elsewhere", is_healthy=False))
    assert fingerprint(state) == before


def test_a_vc_does_not_see_bad_hardware_that_it_need_not_take() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 3})))
    set_nodes(state, "n0", is_healthy=False)
    assert bad_cells(state, "A") == []


def test_a_vc_sees_that_one_of_its_cells_can_only_be_met_by_bad_hardware() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    set_nodes(state, "n2", is_healthy=False)
    assert bad_cells(state, "A") == ["A/0"]
    assert state.cells.bound[cell_at(state, "A/0")] == cell_at(state, "1/n2")


def test_a_doomed_cell_is_released_when_its_node_heals() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    set_nodes(state, "n2", is_healthy=False)
    set_nodes(state, "n2", is_healthy=True)
    assert bad_cells(state, "A") == []
    assert (state.cells.bound == NO_CELL).all()


def test_a_doomed_cell_shows_which_of_its_children_are_bad() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    set_nodes(state, "n1", is_healthy=False)
    (rack,) = virtual_cluster(state, "A")
    assert [child["cellHealthiness"] for child in rack["cellChildren"]] == ["Bad", "Healthy"]


@pytest.mark.parametrize("quotas", [(6,), (4, 2), (3, 2, 1), (1, 1), (5, 0, 1)])
def test_each_vc_has_as_many_doomed_cells_as_healthy_ones_are_missing(quotas: tuple[int, ...]) -> None:
    source = random.Random(str(quotas))
    state = new_state(nodes_only(*quotas, nodes=6))
    node_level = 2
    for _ in range(60):
        set_nodes(state, source.choice(state.topology.node_names), is_healthy=source.random() < 0.5)
        healthy = 6 - int(state.cells.node_bad.sum())
        doomed = state.cells.doomed_count.reshape(len(quotas), -1)[:, node_level].tolist()
        assert doomed == [max(0, count - healthy) for count in quotas]


def test_the_first_cell_to_turn_bad_is_the_first_to_be_doomed() -> None:
    state = healthy_state(nodes_only(1, nodes=3))
    set_nodes(state, "n2", "n0", "n1", is_healthy=False)
    assert state.cells.bound[cell_at(state, "V0/0")] == cell_at(state, "n2")


def test_a_pod_waits_rather_than_run_on_a_doomed_cell() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    set_nodes(state, "n2", is_healthy=False)
    decision = request(state, pod("g", members=((4, 2),)))
    assert decision == Wait("have to use at least one bad node 1/n2 when scheduling in VC A")


def test_a_running_pod_keeps_its_cell_when_the_node_turns_bad() -> None:
    state = healthy_state(rack_cluster())
    node = run(state, pod("g")).bind_info.node
    set_nodes(state, node, is_healthy=False)
    assert held_nodes(state, "g") == [node, node]
    assert bad_cells(state, "A") == ["A/0"]


def test_a_bad_leaf_is_bound_until_it_heals() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    first, second = pod("g", members=((1, 2),)), pod("h", members=((1, 2),))
    node = run(state, first).bind_info.node
    run(state, second)
    set_nodes(state, node, is_healthy=False)
    delete(state, first)
    node_cell = cell_at(state, f"0/{node}")
    assert state.cells.bound[node_cell] != NO_CELL
    set_nodes(state, node, is_healthy=True)
    assert state.cells.bound[node_cell] == NO_CELL


def test_a_doomed_cell_that_heals_in_real_use_becomes_an_ordinary_one() -> None:
    """A pod that was bound before the restart runs on the cell that is doomed now (rule 10.11)."""
    state = new_state(nodes_only(1, nodes=1))
    assert bad_cells(state, "V0") == ["V0/0"]
    bound = pod("g", vc="V0")
    handle(state, PodAllocated(bound, bind_info((placement("n0", 0, 1),), chain="NODE")))
    set_nodes(state, "n0", is_healthy=True)
    assert not state.cells.doomed_count.any()
    assert state.cells.bound[cell_at(state, "V0/0")] == cell_at(state, "n0")


def test_a_doomed_cell_in_real_use_stays_doomed_when_it_is_released_while_bad() -> None:
    state = new_state(nodes_only(1, nodes=1))
    bound = pod("g", vc="V0")
    handle(state, PodAllocated(bound, bind_info((placement("n0", 0, 1),), chain="NODE")))
    delete(state, bound)
    assert state.cells.doomed_count.sum() == 1
    assert bad_cells(state, "V0") == ["V0/0"]


def test_after_a_cancelled_preemption_the_vc_sees_its_bad_hardware_again() -> None:
    """The plan of the cancelled placement keeps doomed cells away only while it lasts (rules 10.12, 10.13)."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    run(state, pod("lent", priority=-1, members=((2, 2),)))
    urgent = pod("urgent", priority=5)
    request(state, urgent, Phase.PREEMPTING)
    set_nodes(state, "n0", "n1", is_healthy=False)
    delete(state, urgent)
    check_invariants(state)
    assert bad_cells(state, "A") == ["A/0"]
    assert state.cells.doomed_count.sum() == 1


def planned(state: State, node: str, virtual: str, change: int) -> None:
    """Open (1) or close (-1) the plan to put the first leaf below a virtual cell onto the first leaf of a node."""
    first_leaf = int(state.arrays.first_leaf[cell_at(state, virtual)])
    plan_placement(
        state.arrays, state.cells, np.array([leaf(state, node, 0)], np.int32), np.array([first_leaf], np.int32), change
    )
    if change == -1:
        catch_up_after_plan(state.arrays, state.cells)


def test_a_planned_physical_cell_is_not_doomed_until_the_plan_is_over() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    planned(state, "n2", "A/3", 1)
    set_nodes(state, "n2", is_healthy=False)
    assert bad_cells(state, "A") == []
    planned(state, "n2", "A/3", -1)
    assert bad_cells(state, "A") == ["A/0"]
    check_invariants(state)


def test_a_planned_virtual_cell_is_passed_over_by_doomed_cells() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    planned(state, "n0", "A/0", 1)
    set_nodes(state, "n2", is_healthy=False)
    assert bad_cells(state, "A") == ["A/1"]


def test_a_planned_doomed_cell_is_not_released_until_the_plan_is_over() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 3})))
    set_nodes(state, "n2", "n3", is_healthy=False)
    planned(state, "n2", "A/0", 1)
    set_nodes(state, "n3", is_healthy=True)
    assert bad_cells(state, "A") == ["A/0"]
    planned(state, "n2", "A/0", -1)
    assert bad_cells(state, "A") == []
    check_invariants(state)


def test_a_bad_cell_that_a_plan_leaves_no_virtual_cell_is_shown_when_the_plan_is_over() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    run(state, pod("g"))
    planned(state, "n1", "A/0/1", 1)
    set_nodes(state, "n1", is_healthy=False)
    assert state.cells.bound[cell_at(state, "0/n1")] == NO_CELL
    planned(state, "n1", "A/0/1", -1)
    assert state.cells.bound[cell_at(state, "0/n1")] == cell_at(state, "A/0/1")
    check_invariants(state)


def test_a_bad_cell_that_a_preemption_uses_is_shown_by_the_virtual_cell_that_the_preemption_puts_there() -> None:
    """Binding the rack of a preemptor shows its bad nodes to the VC before the preemptor's other cells are bound.

    Of three cells P in its rack, the second is bad because of n8, and its n9 is wanted.
    """
    vcs = quota("A", {"RACK": 1}), quota("B", {})
    spec = tree_cluster({"RACK": 3, "P": 2, "NODE": 1}, *vcs, tops=2)
    state = healthy_state(spec)
    run(state, pod("lent", vc="B", priority=-1, members=((12, 1),)))
    set_nodes(state, "n8", is_healthy=False)
    request(state, pod("urgent", members=((3, 1),)), Phase.PREEMPTING)
    check_invariants(state)
    assert held_nodes(state, "urgent") == ["n6", "n7", "n9"]
    assert state.cells.bound[cell_at(state, "1/4/n8")] != NO_CELL


def test_cells_that_an_earlier_preemptor_gives_up_are_kept_for_the_next() -> None:
    """The rack is bound anew when `inner` is cancelled; P 1, bad because of n3, is shown where `outer` will use it."""
    state = healthy_state(tree_cluster({"RACK": 4, "P": 2, "NODE": 2}, quota("A", {"RACK": 1})))
    run(state, pod("small", members=((1, 1),)))
    set_nodes(state, "n3", is_healthy=False)
    wide = [pod(f"w{number}", "wide", members=((4, 2),)) for number in range(4)]
    for each in wide:
        run(state, each)
    request(state, pod("inner", priority=5, members=((10, 1),)), Phase.PREEMPTING)
    delete(state, *wide)
    outer = pod("outer", priority=10, members=((6, 1),), ignore_suggested_nodes=False)
    assert request(state, outer, Phase.PREEMPTING, "n0", "n1", "n2").cancelled == ("inner",)
    check_invariants(state)
    assert sorted(set(held_nodes(state, "outer"))) == ["n0", "n1", "n2"]


def test_a_preassigned_cell_takes_its_place_among_healthy_ones_when_it_is_not_doomed_any_more() -> None:
    """A/0 loses its bad node while that is still bad, A/1 keeps its own until it heals: A/0 stays before A/1."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 3})))
    too_many = pod("too many", members=((9, 2),))
    set_nodes(state, "n1", "n2", "n3", is_healthy=False)
    assert bad_cells(state, "A") == ["A/0", "A/1"]
    request(state, too_many)
    set_nodes(state, "n3", is_healthy=True)
    assert bad_cells(state, "A") == ["A/1"]
    set_nodes(state, "n2", is_healthy=True)
    request(state, too_many)
    start = state.arrays.view_start[state.topology.vc_views[0, 0]]
    order = state.cells.view_order[start : start + 3].tolist()
    assert [state.topology.address(cell) for cell in order] == ["A/2", "A/0", "A/1"]


def test_a_pinned_cell_is_bound_whatever_its_health() -> None:
    state = healthy_state(rack_cluster(quota("A", {}, ("pin",)), pins={"n1": "pin"}))
    for is_healthy in (False, True):
        set_nodes(state, "n1", is_healthy=is_healthy)
        assert state.cells.bound[cell_at(state, "A/0")] == cell_at(state, "0/n1")


def test_a_chain_of_64_levels_lives_through_bad_nodes() -> None:
    """The deepest chain there may be, with preassigned cells at several levels that set each other off."""
    types = {f"T{i}": CellTypeSpec(f"T{i}", f"T{i - 1}" if i else "GPU", 2 if i > 58 else 1, i == 0) for i in range(63)}
    tops = tuple(PhysicalCellSpec("T62") for _ in range(2))
    vc = quota("A", {"T62": 1, "T62.T61": 1, "T62.T60.T59.T58.T3": 3})
    state = healthy_state(ClusterSpec(types, tops, {"A": vc}))
    for node in state.topology.node_names[::3]:
        set_nodes(state, node, is_healthy=False)
        check_invariants(state)
