"""Leaves that are lost singly: which ones, who can still use the others, and what VCs are promised (rules 14)."""

import random

import pytest

from hived.cells.journal import start_recording, stop_recording, undo_changes
from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.life.status import physical_cluster, snapshot, virtual_cluster
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.events import Phase, PodAllocated
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, VirtualClusterSpec
from tests.core.builders import (
    busy_state,
    cell_at,
    delete,
    fingerprint,
    healthy_state,
    held_nodes,
    lose,
    lost_devices,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
    set_nodes,
    tree_cluster,
)


def one_rack(*vcs: VirtualClusterSpec, nodes: int = 2) -> State:
    """A rack of healthy nodes of 8 GPUs."""
    return healthy_state(rack_cluster(*vcs or (quota("A", {"RACK": 1}),), racks=1, nodes=nodes, gpus=8))


def boards(*vcs: VirtualClusterSpec, nodes: int = 1) -> State:
    """Healthy nodes of 2 boards with 4 GPUs each."""
    return healthy_state(tree_cluster({"NODE": 2, "BOARD": 4}, *vcs or (quota("A", {"NODE": nodes}),), tops=nodes))


def healths(state: State, vc: str) -> list[str]:
    """How the VC sees its preassigned cells."""
    return [cell["cellHealthiness"] for cell in virtual_cluster(state, vc) if "-opp" not in cell["cellAddress"]]


# --- who may use the other leaves ------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [-1, 0, 5])
def test_a_pod_that_needs_all_leaves_of_a_node_does_not_go_where_one_is_lost(priority: int) -> None:
    state = one_rack()
    lose(state, "n0", 1)
    assert run(state, pod("g", priority=priority, members=((1, 8),))).bind_info.node == "n1"
    assert not isinstance(request(state, pod("h", priority=priority, members=((1, 8),))), Bind)


@pytest.mark.parametrize("priority", [-1, 0, 5])
def test_a_pod_that_needs_fewer_leaves_uses_those_that_are_left(priority: int) -> None:
    state = one_rack(nodes=1)
    lose(state, "n0", 0, 2, 5)
    bind = run(state, pod("g", priority=priority, members=((1, 6),)))
    assert bind.bind_info.leaf_cell_indices == (0, 1, 3, 4, 6, 7)


@pytest.mark.parametrize("cell_type", ["RACK", "RACK.NODE", "RACK.NODE.GPU"])
def test_every_kind_of_promise_reaches_the_leaves_that_are_left(cell_type: str) -> None:
    """The VC has the whole rack, its node, or its single GPUs."""
    counts = {"RACK": 1, "RACK.NODE": 1, "RACK.NODE.GPU": 8}
    state = one_rack(quota("A", {cell_type: counts[cell_type]}), nodes=1)
    lose(state, "n0", 0, 3)
    gang = pod("g", members=((7, 1),))
    assert sorted(i for m in run(state, gang).bind_info.members for p in m for i in p.leaf_cell_indices) == [
        0, 1, 2, 4, 5, 6, 7,
    ]  # fmt: skip
    assert isinstance(request(state, pod("h", members=((1, 1),))), Wait)


def test_a_node_is_bad_for_pods_only_if_all_its_leaves_are() -> None:
    state = one_rack(nodes=1)
    lose(state, "n0", 8)
    decision = request(state, pod("g", priority=-1, members=((1, 1),)))
    assert decision == Wait("have to use at least one bad node 0/n0 when scheduling in physical cluster")


def test_a_node_with_too_few_leaves_left_has_no_capacity() -> None:
    state = one_rack(nodes=1)
    lose(state, "n0", 7)
    decision = request(state, pod("g", priority=-1, members=((1, 2),)))
    assert decision == Wait("insufficient capacity when scheduling in physical cluster")


def test_the_other_leaves_of_a_bad_node_are_bad_as_well() -> None:
    state = one_rack()
    lose(state, "n0", 1)
    set_nodes(state, "n0", is_healthy=False)
    assert run(state, pod("g", priority=-1, members=((1, 1),))).bind_info.node == "n1"
    set_nodes(state, "n1", is_healthy=False)
    set_nodes(state, "n0", is_healthy=True)
    assert lost_devices(state, "n0") == [0]
    assert run(state, pod("h", priority=-1, members=((1, 7),))).bind_info.leaf_cell_indices == (1, 2, 3, 4, 5, 6, 7)


def test_whole_nodes_are_taken_before_nodes_that_lost_leaves() -> None:
    state = one_rack(quota("A", {"RACK.NODE": 2}), nodes=4)
    lose(state, "n0", 2)
    lose(state, "n1", 1)
    assert run(state, pod("g", members=((2, 4),))).bind_info.node == "n2"
    run(state, pod("h", members=((1, 8),)))
    assert held_nodes(state, "h") == ["n3"] * 8


def test_of_nodes_that_lost_leaves_the_one_that_lost_fewest_is_taken_first() -> None:
    state = one_rack(quota("A", {"RACK.NODE": 1}), nodes=3)
    for node, count in (("n0", 3), ("n1", 1), ("n2", 2)):
        lose(state, node, count)
    assert run(state, pod("g", members=((1, 4),))).bind_info.node == "n1"


def test_leaves_that_belong_together_are_mapped_to_a_board_that_has_them() -> None:
    """Only n0 is suggested; its first board lacks a GPU, so the pod's four are on the second."""
    state = boards(quota("A", {"NODE": 1}), nodes=2)
    lose(state, "n0", 0, 1)
    decision = request(state, pod("g", members=((1, 4),), ignore_suggested_nodes=False), Phase.FILTERING, "n0")
    assert isinstance(decision, Bind)
    assert decision.bind_info.leaf_cell_indices == (4, 5, 6, 7)


def test_a_gang_near_together_goes_where_enough_leaves_are_left() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 2}), gpus=4))
    lose(state, "n0", 2)
    lose(state, "n1", 1)
    run(state, pod("g", priority=-1, members=((6, 1),), within_cell="RACK"))
    assert set(held_nodes(state, "g")) == {"n2", "n3"}
    run(state, pod("h", priority=-1, members=((5, 1),), within_cell="RACK"))
    assert sorted(held_nodes(state, "h")) == ["n0"] * 2 + ["n1"] * 3


def test_a_gang_that_nothing_is_big_enough_for_is_told_how_much_is_left() -> None:
    state = one_rack(nodes=1)
    lose(state, "n0", 3)
    decision = request(state, pod("g", members=((6, 1),), within_cell="NODE"))
    assert decision == Wait("no NODE of VC A has 6 free GPUs: most is 5 in 0/n0")


def test_a_preemption_does_not_reserve_lost_leaves() -> None:
    state = one_rack(nodes=1)
    run(state, pod("o", priority=-1, members=((1, 4),)))
    lose(state, "n0", 0, 6)
    urgent = pod("urgent", members=((1, 7),))
    assert isinstance(request(state, urgent, Phase.PREEMPTING), Preempt)
    assert cell_at(state, "0/n0/6") not in state.groups["urgent"].physical
    check_invariants(state)


def test_a_preemption_that_loses_a_leaf_begins_anew() -> None:
    state = one_rack(nodes=1)
    run(state, pod("o", priority=-1, members=((1, 8),)))
    urgent = pod("urgent", members=((1, 4),))
    request(state, urgent, Phase.PREEMPTING)
    lose(state, "n0", 0, int(state.arrays.device[state.groups["urgent"].physical[0]]))
    assert request(state, urgent, Phase.PREEMPTING).cancelled == ("urgent",)
    assert not state.cells.bad[state.groups["urgent"].physical].any()


# --- what the VCs are promised ---------------------------------------------------------------------------------------


def test_lost_leaves_and_the_cells_above_them_are_shown_as_bad() -> None:
    state = one_rack()
    lose(state, "n0", 0, 3)
    (rack,) = physical_cluster(state)
    first, second = rack["cellChildren"]
    assert (rack["cellHealthiness"], first["cellHealthiness"], second["cellHealthiness"]) == ("Bad", "Bad", "Healthy")
    assert [leaf["cellAddress"] for leaf in first["cellChildren"] if leaf["cellHealthiness"] == "Bad"] == ["0/n0/3"]


def test_a_vc_that_can_only_be_met_by_a_node_with_lost_leaves_sees_that_and_uses_the_others() -> None:
    state = one_rack(quota("A", {"RACK.NODE": 1}), quota("B", {"RACK.NODE": 1}))
    run(state, pod("b", vc="B"))
    assert held_nodes(state, "b") == ["n0"] * 2
    lose(state, "n1", 1)
    assert healths(state, "A") == ["Bad"]
    assert state.cells.bound[cell_at(state, "A/0")] == cell_at(state, "0/n1")
    assert isinstance(request(state, pod("h", members=((1, 8),))), Wait)
    assert run(state, pod("g", members=((1, 7),))).bind_info.node == "n1"
    check_invariants(state)


def test_a_vc_does_not_see_lost_leaves_while_there_are_whole_nodes_for_it() -> None:
    state = one_rack(quota("A", {"RACK.NODE": 1}))
    lose(state, "n0", 1)
    assert healths(state, "A") == ["Healthy"]
    assert not state.cells.doomed_count.any()


def test_a_doomed_node_is_released_when_its_leaves_heal() -> None:
    state = one_rack(quota("A", {"RACK.NODE": 2}))
    lose(state, "n1", 2)
    assert state.cells.doomed_count.sum() == 1
    lose(state, "n1", 1)
    assert state.cells.doomed_count.sum() == 1
    lose(state, "n1", 0)
    assert snapshot(state) == snapshot(one_rack(quota("A", {"RACK.NODE": 2})))


def test_a_vc_is_doomed_to_the_node_that_lost_fewest_leaves() -> None:
    state = one_rack(quota("A", {"RACK.NODE": 2}), nodes=4)
    set_nodes(state, "n0", is_healthy=False)
    lose(state, "n1", 3)
    lose(state, "n2", 1)
    assert state.cells.bound[cell_at(state, "A/0")] == cell_at(state, "0/n2")


def test_a_doomed_node_that_nobody_uses_is_exchanged_for_one_that_is_less_bad() -> None:
    """n0 fails first; later n1 comes back, but for one GPU."""
    state = one_rack(quota("A", {"RACK.NODE": 1}))
    set_nodes(state, "n0", "n1", is_healthy=False)
    assert state.cells.bound[cell_at(state, "A/0")] == cell_at(state, "0/n0")
    lose(state, "n1", 1)
    set_nodes(state, "n1", is_healthy=True)
    assert state.cells.bound[cell_at(state, "A/0")] == cell_at(state, "0/n1")
    assert run(state, pod("g", members=((1, 7),))).bind_info.node == "n1"


def test_a_doomed_node_in_use_stays_where_it_is() -> None:
    state = one_rack(quota("A", {"RACK.NODE": 1}))
    lose(state, "n0", 3)
    lose(state, "n1", 3)
    node = run(state, pod("g", members=((1, 4),))).bind_info.node
    other = {"n0": "n1", "n1": "n0"}[node]
    lose(state, node, 4)
    lose(state, other, 1)
    assert state.cells.bound[cell_at(state, "A/0")] == cell_at(state, f"0/{node}")


def test_the_order_in_which_a_restart_tells_of_nodes_and_lost_leaves_is_no_loss_to_a_vc() -> None:
    for is_told_first in (False, True):
        state = new_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1, nodes=4, gpus=8))
        if is_told_first:
            lose(state, "n3", 1)
        set_nodes(state, "n2", "n3", is_healthy=True)
        if not is_told_first:
            lose(state, "n3", 1)
        gang = pod("g", members=((1, 7), (1, 8)))
        assert isinstance(request(state, gang), Bind), is_told_first


def test_a_lost_leaf_in_use_stays_with_its_pod_and_stays_lost_after_it() -> None:
    state = one_rack(nodes=1)
    whole = pod("g", members=((1, 8),))
    run(state, whole)
    lose(state, "n0", 1)
    assert held_nodes(state, "g") == ["n0"] * 8
    check_invariants(state)
    delete(state, whole)
    check_invariants(state)
    assert lost_devices(state, "n0") == [0]
    assert isinstance(request(state, whole), Wait)


# --- which leaves are lost -------------------------------------------------------------------------------------------


def test_known_devices_are_lost_and_unknown_ones_are_chosen() -> None:
    state = one_rack()
    lose(state, "n0", 3, 5)
    assert lost_devices(state, "n0") == [0, 1, 5]


def test_known_devices_are_lost_however_many_there_are_said_to_be() -> None:
    state = one_rack()
    lose(state, "n0", 1, 5, 6)
    assert lost_devices(state, "n0") == [5, 6]


def test_devices_that_are_not_configured_are_ignored() -> None:
    state = one_rack()
    lose(state, "n0", 1, 99)
    assert lost_devices(state, "n0") == [0]


@pytest.mark.parametrize(("count", "expected"), [(99, 8), (8, 8), (-3, 0)])
def test_no_more_leaves_are_lost_than_there_are(count: int, expected: int) -> None:
    state = one_rack()
    lose(state, "n0", count)
    assert len(lost_devices(state, "n0")) == expected


def test_nodes_and_leaf_types_that_are_not_configured_are_ignored() -> None:
    state = one_rack()
    before = fingerprint(state)
    lose(state, "elsewhere", 1)
    lose(state, "n0", 1, leaf_type="TPU")
    assert fingerprint(state) == before


def test_only_leaves_of_the_named_type_are_lost() -> None:
    cpus = {"HALF": CellTypeSpec("HALF", "CPU", 4, is_node_level=True), "PAIR": CellTypeSpec("PAIR", "HALF", 1)}
    spec = rack_cluster(gpus=2)
    devices = tuple(PhysicalCellSpec(address=str(32 + i)) for i in range(4))
    shared = PhysicalCellSpec("PAIR", children=(PhysicalCellSpec(address="n0", children=devices),))
    state = healthy_state(
        ClusterSpec({**spec.cell_types, **cpus}, (*spec.physical_cells, shared), spec.virtual_clusters)
    )
    lose(state, "n0", 1, leaf_type="CPU")
    assert lost_devices(state, "n0") == [32]


def test_the_same_event_again_moves_nothing() -> None:
    source = random.Random(7)
    for seed in range(25):
        state = busy_state(random_cluster(seed), source)
        for node in state.topology.node_names:
            for count in (1, 2, 1):
                lose(state, node, count)
                before = fingerprint(state)
                lose(state, node, count)
                assert fingerprint(state) == before


def test_free_leaves_are_lost_before_unused_leaves_of_a_vc_and_used_ones_last() -> None:
    """Board 0 is bound to A, which uses GPUs 0 and 1 of it; an opportunistic pod has GPU 4."""
    state = boards(quota("A", {"NODE.BOARD": 1}))
    run(state, pod("g", members=((1, 2),)))
    run(state, pod("o", priority=-1, members=((1, 2),)))
    held = {name: [int(state.arrays.device[leaf]) for leaf in state.groups[name].physical] for name in ("g", "o")}
    assert held == {"g": [0, 1], "o": [2, 3]}
    order = []
    for count in range(1, 9):
        lose(state, "n0", count)
        order += [device for device in lost_devices(state, "n0") if device not in order]
    assert order == [4, 5, 6, 7, 2, 3, 0, 1]


def test_leaves_of_a_vc_that_nobody_uses_are_lost_before_those_in_opportunistic_use() -> None:
    state = boards(quota("A", {"NODE.BOARD": 2}))
    run(state, pod("g", members=((1, 3),)))
    run(state, pod("o", priority=-1, members=((1, 4),)))
    lose(state, "n0", 1)
    assert lost_devices(state, "n0") == [3]
    lose(state, "n0", 2)
    assert len(set(lost_devices(state, "n0")) & {int(d) for d in state.arrays.device[state.groups["o"].physical]}) == 1


def test_few_boards_are_broken() -> None:
    state = boards()
    run(state, pod("o", priority=-1, members=((1, 1),)))
    lose(state, "n0", 4)
    assert lost_devices(state, "n0") == [4, 5, 6, 7]


def test_the_next_leaf_is_lost_below_a_board_that_is_broken_already() -> None:
    state = boards()
    lose(state, "n0", 2, 6)
    assert lost_devices(state, "n0") == [4, 6]


def test_when_fewer_are_lost_boards_become_whole_again() -> None:
    state = boards()
    lose(state, "n0", 3, 0, 4, 5)
    lose(state, "n0", 2)
    assert lost_devices(state, "n0") == [4, 5]


def test_when_fewer_are_lost_those_in_use_heal_first() -> None:
    state = boards()
    run(state, pod("g", members=((1, 2),)))
    lose(state, "n0", 8)
    lose(state, "n0", 6)
    assert lost_devices(state, "n0") == [2, 3, 4, 5, 6, 7]


def test_told_again_a_leaf_that_a_pod_uses_is_not_the_lost_one() -> None:
    """After a restart, the pods that run may be told later than the number of lost leaves."""
    state, earlier = one_rack(nodes=1), one_rack(nodes=1)
    lose(state, "n0", 1)
    wanted = pod("g", members=((1, 2),))
    bind = run(earlier, wanted)
    assert bind.bind_info.leaf_cell_indices == (0, 1)
    handle(state, PodAllocated(wanted, bind.bind_info))
    assert lost_devices(state, "n0") == [0]
    lose(state, "n0", 1)
    assert lost_devices(state, "n0") == [2]
    check_invariants(state)


# --- undoing and healing ---------------------------------------------------------------------------------------------


def test_losing_leaves_can_be_undone() -> None:
    source = random.Random(8)
    for seed in range(20):
        state = busy_state(random_cluster(seed), source)
        before = fingerprint(state)
        start_recording(state)
        for node in state.topology.node_names:
            lose(state, node, source.choice([1, 2, 100]))
        undo_changes(state, (0, 0))
        stop_recording(state)
        assert fingerprint(state) == before


def test_nothing_is_left_of_lost_leaves_once_all_are_back_and_idle() -> None:
    """Doomed cells, bindings and counts go; only the order of lists may differ."""
    source = random.Random(9)
    counts = (
        "lost",
        "lost_total",
        "left",
        "vc_claims",
        "claims",
        "bad_count",
        "doomed_count",
        "free_count",
        "split",
    )
    for seed in range(25):
        spec = random_cluster(seed)
        state, fresh = busy_state(spec, source), healthy_state(spec)
        for node in source.choices(state.topology.node_names, k=8):
            for leaf_type in state.topology.leaf_type_chains:
                lose(state, node, source.choice([1, 2, 3]), leaf_type=leaf_type)
            check_invariants(state)
        for group in list(state.groups.values()):
            delete(state, *(p for p in [*group.holders, *group.preempting_pods.values()] if p is not None))
        for node in state.topology.node_names:
            for leaf_type in state.topology.leaf_type_chains:
                lose(state, node, 0, leaf_type=leaf_type)
        set_nodes(state, *state.topology.node_names, is_healthy=True)
        assert snapshot(state) == snapshot(fresh)
        for name in counts:
            assert getattr(state.cells, name).tolist() == getattr(fresh.cells, name).tolist(), name
        assert (state.cells.doomed_position == NO_CELL).all()
