"""Gangs that wish to be below one cell, beside another group, or are in a VC that packs by topology."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from hived.cells.state import State
from hived.cells.topology import IntArray
from hived.hived_rules import placement as placing
from hived.hived_rules.packing import Request
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import GroupSplit, Phase, PodAllocated
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from tests.core.builders import (
    bind_info,
    delete,
    healthy_state,
    held_nodes,
    placement,
    pod,
    pods_of_racks,
    quota,
    rack_cluster,
    reason,
    request,
    run,
    set_nodes,
    tree_cluster,
    victim_uids,
)

RACKS = {"n0": 0, "n1": 0, "n2": 1, "n3": 1, "n4": 2, "n5": 2}


def switches(**promises: dict[str, int]) -> ClusterSpec:
    """Two nodes of two switches of two GPUs each."""
    vcs = (quota(name, cells) for name, cells in (promises or {"A": {"NODE": 2}}).items())
    return tree_cluster({"NODE": 2, "SWITCH": 2}, *vcs, tops=2)


def three_racks(promise: dict[str, int] | None = None, **vcs: dict[str, int]) -> State:
    """Racks of two nodes of two GPUs; VC A has all nodes unless told."""
    all_vcs = {"A": promise or {"RACK.NODE": 6}} | vcs
    return healthy_state(rack_cluster(*(quota(name, cells) for name, cells in all_vcs.items()), racks=3))


def racks_of(state: State, *groups: str) -> set[int]:
    return {RACKS[node] for group in groups for node in held_nodes(state, group)}


# --- required ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("promise", [{"RACK.NODE": 6}, {"RACK": 3}, {"RACK": 1, "RACK.NODE": 4}])
def test_a_gang_goes_below_one_rack_whatever_its_vc_is_promised(promise: dict[str, int]) -> None:
    state = three_racks(promise)
    run(state, pod("x", members=((1, 2),)))
    run(state, pod("gang", members=((2, 2),), within_cell="RACK"))
    check_invariants(state)
    assert len(racks_of(state, "gang")) == 1
    assert racks_of(state, "gang") != racks_of(state, "x")


def two_rows() -> State:
    """Two rows of three racks of two nodes of two GPUs; VC A is promised the nodes one by one."""
    return healthy_state(tree_cluster({"ROW": 3, "RACK": 2, "NODE": 2}, quota("A", {"ROW.RACK.NODE": 12}), tops=2))


def test_a_gang_gets_whole_free_cells_below_the_one_that_it_is_within() -> None:
    state = two_rows()
    run(state, pod("five", members=((5, 2),), within_cell="ROW"))
    run(state, pod("two", members=((2, 2),), within_cell="RACK"))
    assert set(held_nodes(state, "five") + held_nodes(state, "two")) == {f"n{i}" for i in (0, 1, 2, 4, 5, 6, 7)}
    run(state, pod("three", members=((3, 2),), within_cell="ROW"))
    check_invariants(state)
    assert set(held_nodes(state, "three")) < {"n8", "n9", "n10", "n11"}


def test_without_the_wish_it_would_be_spread() -> None:
    state = three_racks()
    run(state, pod("x", members=((1, 2),)))
    run(state, pod("gang", members=((2, 2),)))
    assert len(racks_of(state, "gang")) == 2


def test_the_rack_with_fewest_free_leaves_that_suffice_is_chosen() -> None:
    state = three_racks()
    run(state, pod("x", members=((1, 2),)))
    used = racks_of(state, "x")
    run(state, pod("one", members=((1, 2),), within_cell="RACK"))
    assert racks_of(state, "one") == used
    run(state, pod("two", members=((1, 1),), within_cell="RACK"))
    assert racks_of(state, "two") != used


def test_a_gang_that_fits_no_rack_waits_and_is_told_which_has_most() -> None:
    state = three_racks()
    for number in range(6):
        run(state, pod(f"p{number}", within_cell="RACK"))
    delete(state, pod("p2"))
    told = reason(request(state, pod("gang", members=((2, 2),), within_cell="RACK")))
    assert told == "no RACK of VC A has 4 free GPUs: most is 2 in 1"


def test_room_in_pieces_that_are_too_small_is_called_so() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1, gpus=3))
    told = reason(request(state, pod("gang", members=((3, 2),), within_cell="RACK")))
    assert told == "no RACK of VC A has 6 free GPUs where pods of 3x2 fit: most is 6 in 0"


def test_a_chain_without_such_cells_does_not_hide_the_reason_of_one_with_them() -> None:
    racks = rack_cluster()
    single = CellTypeSpec("SINGLE", "GPU", 2, is_node_level=True)
    spec = replace(
        racks,
        cell_types={**racks.cell_types, "SINGLE": single},
        physical_cells=(*racks.physical_cells, PhysicalCellSpec("SINGLE", address="single")),
        virtual_clusters={"A": quota("A", {"RACK": 2, "SINGLE": 1})},
    )
    told = reason(request(healthy_state(spec), pod("gang", members=((3, 2),), within_cell="RACK")))
    assert told == "no RACK of VC A has 6 free GPUs: most is 4 in 0"


def test_a_gang_larger_than_a_rack_waits() -> None:
    told = reason(request(three_racks(), pod("gang", members=((3, 2),), within_cell="RACK")))
    assert told == "no RACK of VC A has 6 free GPUs: most is 4 in 0"


def test_of_nodes_with_as_many_free_leaves_one_of_a_rack_in_use_is_chosen() -> None:
    state = three_racks()
    gang = pod("x", members=((1, 2),), ignore_suggested_nodes=False)
    decision = request(state, gang, Phase.FILTERING, "n3")
    assert isinstance(decision, Bind)
    handle(state, PodAllocated(gang, decision.bind_info))
    run(state, pod("y", members=((1, 2),), within_cell="NODE"))
    assert held_nodes(state, "y") == ["n2", "n2"]


def test_cells_of_other_vcs_are_not_counted() -> None:
    state = three_racks({"RACK": 1}, B={"RACK": 2})
    for number in range(2):
        run(state, pod(f"b{number}", vc="B", members=((1, 2),), within_cell="RACK"))
    run(state, pod("x", members=((1, 2),)))
    told = reason(request(state, pod("gang", members=((2, 2),), within_cell="RACK")))
    assert told.startswith("no RACK of VC A has 4 free GPUs: most is 2 in ")


def test_bad_nodes_are_not_counted() -> None:
    state = three_racks()
    set_nodes(state, "n0", "n2", "n4", "n5", is_healthy=False)
    told = reason(request(state, pod("gang", members=((2, 2),), within_cell="RACK")))
    assert told == "no RACK of VC A has 4 free GPUs: most is 2 in 0"


def test_only_suggested_nodes_are_used_by_pods_that_heed_them() -> None:
    state = three_racks()
    gang = pod("gang", members=((2, 2),), within_cell="RACK", ignore_suggested_nodes=False)
    told = reason(request(state, gang, Phase.FILTERING, "n0", "n2", "n5"))
    assert told.startswith("no RACK of VC A has 4 free GPUs: most is 2 in ")
    decision = request(state, gang, Phase.FILTERING, "n0", "n2", "n3")
    assert isinstance(decision, Bind)
    assert {place.node for place in decision.bind_info.members[0]} == {"n2", "n3"}


def test_safety_of_other_vcs_comes_first() -> None:
    """B is promised a whole rack: the second of A's nodes must not break the last one."""
    state = three_racks({"RACK.NODE": 2}, B={"RACK": 2})
    run(state, pod("gang", members=((2, 2),), within_cell="RACK"))
    run(state, pod("b", vc="B", members=((4, 2),)))
    check_invariants(state)
    assert racks_of(state, "gang").isdisjoint(racks_of(state, "b"))


def test_an_opportunistic_gang_goes_below_one_rack_too() -> None:
    state = three_racks({"RACK.NODE": 3}, B={"RACK.NODE": 3})
    run(state, pod("x", members=((1, 2),)))
    run(state, pod("gang", priority=-1, members=((2, 2),), within_cell="RACK"))
    assert racks_of(state, "gang").isdisjoint(racks_of(state, "x"))
    told = reason(request(state, pod("big", priority=-1, members=((3, 2),), within_cell="RACK")))
    assert told.startswith("no RACK of the physical cluster has 6 free GPUs: most is 4 in ")


def test_a_pinned_cell_is_the_only_place_for_who_names_it() -> None:
    spec = rack_cluster(quota("A", {"RACK.NODE": 2}, ("pin",)), racks=2, pins={"n3": "pin"})
    state = healthy_state(spec)
    run(state, pod("gang", pinned_cell_id="pin", within_cell="RACK"))
    assert held_nodes(state, "gang") == ["n3", "n3"]


# --- victims -------------------------------------------------------------------------------------------------------


def test_a_rack_without_victims_goes_before_a_tighter_one_with_victims() -> None:
    state = three_racks({"RACK.NODE": 4}, B={"RACK.NODE": 2})
    run(state, pod("lent", vc="B", priority=-1, members=((1, 2),)))
    lent = racks_of(state, "lent")
    run(state, pod("gang", members=((2, 2),), within_cell="RACK"))
    assert racks_of(state, "gang") != lent


def test_lower_priorities_in_the_vc_leave_if_no_rack_has_room() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4}), racks=2))
    for name in ("x", "y"):
        run(state, pod(name, within_cell="NODE"))
    run(state, pod("z", within_cell="RACK"))
    decision = request(state, pod("gang", priority=1, members=((2, 2),), within_cell="RACK"), Phase.PREEMPTING)
    victims = victim_uids(decision)
    assert len(victims) == 1
    delete(state, *map(pod, victims))
    run(state, pod("gang", priority=1, members=((2, 2),), within_cell="RACK"), Phase.PREEMPTING)
    assert len(racks_of(state, "gang")) == 1


# --- below a node --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("promise", [{"NODE": 2}, {"NODE.SWITCH": 4}, {"NODE.SWITCH.GPU": 8}])
def test_two_pods_share_a_switch(promise: dict[str, int]) -> None:
    state = healthy_state(switches(A=promise))
    run(state, pod("x", members=((1, 1),)))
    run(state, pod("gang", members=((2, 1),), within_cell="SWITCH"))
    check_invariants(state)
    group = state.groups["gang"]
    assert len({int(state.arrays.parent[leaf]) for leaf in group.physical}) == 1
    assert state.arrays.parent[group.physical[0]] != state.arrays.parent[state.groups["x"].physical[0]]


def test_pods_of_several_sizes_share_a_node() -> None:
    state = healthy_state(switches())
    run(state, pod("x", members=((1, 1),)))
    run(state, pod("gang", members=((2, 1), (1, 2)), within_cell="NODE"))
    assert len(set(held_nodes(state, "gang"))) == 1


def test_more_than_a_switch_has_waits() -> None:
    told = reason(request(healthy_state(switches()), pod("gang", members=((3, 1),), within_cell="SWITCH")))
    assert told == "no SWITCH of VC A has 3 free GPUs: most is 2 in n0/0"


# --- preferred -----------------------------------------------------------------------------------------------------


def test_a_preferred_level_is_left_upwards_and_at_last_anywhere() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 6}), racks=3))
    for members, count in ((((1, 2),), 1), (((2, 2),), 1), (((3, 2),), 2)):
        wanted = pod(f"gang{members[0][0]}", members=members, within_cell="NODE", within_is_required=False)
        run(state, wanted)
        assert len(racks_of(state, wanted.uid)) == count


def test_without_a_level_the_node_is_preferred() -> None:
    state = three_racks()
    run(state, pod("x", members=((1, 1),)))
    run(state, pod("gang", members=((2, 1),), within_is_required=False))
    assert len(set(held_nodes(state, "gang"))) == 1


def test_nobody_is_preempted_for_a_preference() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4}), racks=2))
    for name in ("x", "y"):
        run(state, pod(name, within_cell="NODE"))
    delete(state, pod("x"))
    run(state, pod("z", members=((1, 2),), within_cell="RACK"))
    strong = pod("gang", priority=1, members=((2, 2),), within_cell="RACK", within_is_required=False)
    assert isinstance(request(state, strong), Bind)


# --- beside --------------------------------------------------------------------------------------------------------


def test_beside_a_group_that_is_there_only_its_cell_will_do() -> None:
    state = three_racks()
    run(state, pod("first", members=((1, 2),)))
    wanted = pod("second", members=((1, 2),), within_cell="RACK", beside="first")
    run(state, wanted)
    assert racks_of(state, "second") == racks_of(state, "first")
    told = reason(request(state, pod("third", members=((1, 2),), within_cell="RACK", beside="first")))
    assert told == "no RACK of VC A has 2 free GPUs beside affinity group first: most is 0 in 0"


def test_a_preference_to_be_beside_gives_way() -> None:
    state = three_racks()
    run(state, pod("first", members=((2, 2),), within_cell="RACK"))
    run(state, pod("second", members=((1, 2),), within_cell="RACK", within_is_required=False, beside="first"))
    assert racks_of(state, "second") != racks_of(state, "first")


def test_a_group_that_is_gone_is_no_neighbour() -> None:
    state = three_racks()
    run(state, pod("first", members=((2, 2),), within_cell="RACK"))
    delete(state, pod("first"))
    run(state, pod("second", members=((1, 2),), within_cell="RACK", beside="first"))
    assert len(racks_of(state, "second")) == 1


def test_a_part_of_a_split_group_is_a_neighbour() -> None:
    state = three_racks()
    run(state, pod("x", members=((1, 1),)))
    run(state, pod("whole", "gang", members=((1, 2),), within_cell="RACK"))
    handle(state, GroupSplit("gang", (pod("p0"),)))
    run(state, pod("p1", within_cell="RACK", beside="p0", members=((1, 1),)))
    assert racks_of(state, "p1") == racks_of(state, "p0")


# --- a VC that packs by topology -----------------------------------------------------------------------------------


def packed(spec: ClusterSpec) -> State:
    vcs = {name: replace(vc, packs_by_topology=True) for name, vc in spec.virtual_clusters.items()}
    return healthy_state(replace(spec, virtual_clusters=vcs))


def test_a_packing_vc_keeps_a_gang_below_the_lowest_cell_that_holds_it() -> None:
    state = packed(rack_cluster(quota("A", {"RACK.NODE": 6}), racks=3))
    run(state, pod("x", members=((1, 2),)))
    run(state, pod("gang", members=((2, 2),)))
    assert len(racks_of(state, "gang")) == 1
    run(state, pod("small", members=((2, 1),)))
    assert len(set(held_nodes(state, "small"))) == 1


def test_of_cells_that_hold_it_the_one_where_fewest_are_broken() -> None:
    """Two GPUs fit a switch: the free one of the node that is in use breaks nothing."""
    state = packed(switches())
    run(state, pod("x", members=((1, 1),)))
    run(state, pod("gang", members=((1, 2),)))
    assert held_nodes(state, "gang")[0] == held_nodes(state, "x")[0]
    run(state, pod("single", members=((1, 1),)))
    shared = {int(state.arrays.parent[state.groups[name].physical[0]]) for name in ("x", "single")}
    assert len(shared) == 1


def test_a_packing_vc_still_places_what_fits_no_cell() -> None:
    state = packed(rack_cluster(quota("A", {"RACK.NODE": 6}), racks=3))
    run(state, pod("gang", members=((3, 2),)))
    assert len(racks_of(state, "gang")) == 2


def test_in_a_packing_vc_a_neighbour_is_kept_near() -> None:
    state = packed(rack_cluster(quota("A", {"RACK.NODE": 6}), racks=3))
    run(state, pod("x", members=((2, 2),)))
    run(state, pod("first", members=((1, 2),)))
    run(state, pod("second", members=((1, 2),), beside="first"))
    assert racks_of(state, "second") == racks_of(state, "first")


# --- what it costs -------------------------------------------------------------------------------------------------


def count_mappings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with every placement below one cell that is mapped onto hardware, which is what takes time."""
    mapped: list[object] = []
    real: Callable[..., object] = placing.map_placement

    def counting(state: State, request: Request, virtual: IntArray, *cell: int) -> object:
        mapped.extend(cell)
        return real(state, request, virtual, *cell)

    monkeypatch.setattr(placing, "map_placement", counting)
    return mapped


def lent_out(spec: ClusterSpec) -> State:
    state = packed(spec)
    run(state, pod("lent", priority=-1, members=((len(state.topology.node_names), 2),)))
    return state


@pytest.mark.parametrize("level", ["", "GPU", "NODE", "RACK"])
@pytest.mark.parametrize("priority", [0, 1])
def test_where_all_is_lent_one_cell_is_mapped(monkeypatch: pytest.MonkeyPatch, level: str, priority: int) -> None:
    state = lent_out(rack_cluster(quota("A", {"RACK.NODE": 40}), racks=20))
    mapped = count_mappings(monkeypatch)
    wanted = pod("one", priority=priority, members=((1, 1),), within_cell=level)
    assert isinstance(request(state, wanted), Preempt)
    assert len(mapped) == 1


@pytest.mark.parametrize("level", ["", "GPU", "NODE", "RACK"])
def test_a_vc_that_has_nothing_left_maps_nothing(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    state = packed(rack_cluster(quota("A", {"RACK.NODE": 1}), quota("B", {"RACK.NODE": 39}), racks=20))
    run(state, pod("x"))
    mapped = count_mappings(monkeypatch)
    assert isinstance(request(state, pod("one", members=((1, 1),), within_cell=level)), Wait)
    assert mapped == []


@pytest.mark.parametrize("level", ["GPU", "NODE", "RACK"])
@pytest.mark.parametrize("is_suggested", [False, True])
def test_cells_with_bad_or_not_suggested_nodes_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, level: str, is_suggested: bool
) -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 40}), racks=20))
    if not is_suggested:
        set_nodes(state, *(f"n{number}" for number in range(39)), is_healthy=False)
    mapped = count_mappings(monkeypatch)
    wanted = pod("one", members=((1, 2 if level != "GPU" else 1),), within_cell=level, ignore_suggested_nodes=False)
    decision = request(state, wanted, Phase.FILTERING, *(["n39"] if is_suggested else []))
    assert isinstance(decision, Bind)
    assert decision.bind_info.node == "n39"
    assert len(mapped) == 1


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("is_required", [False, True])
def test_of_cells_with_the_same_nodes_suggested_one_is_mapped(
    monkeypatch: pytest.MonkeyPatch, packs: bool, is_required: bool
) -> None:
    state, mapped = pods_of_racks(packs=packs), count_mappings(monkeypatch)
    wish = {"within_cell": "POD", "within_is_required": is_required}
    wanted = pod("gang", members=((2, 2),), ignore_suggested_nodes=False, **wish)
    suggested = [f"n{number}" for number in range(0, 40, 2)]
    assert isinstance(request(state, wanted, Phase.FILTERING, *suggested), Wait)
    assert len(mapped) == 1


def test_a_cell_with_other_nodes_suggested_is_tried_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    state, mapped = pods_of_racks(packs=False), count_mappings(monkeypatch)
    wanted = pod("gang", members=((2, 2),), ignore_suggested_nodes=False, within_cell="POD")
    suggested = ["n31", *(f"n{number}" for number in range(0, 40, 2))]
    decision = request(state, wanted, Phase.FILTERING, *suggested)
    assert isinstance(decision, Bind)
    assert {place.node for places in decision.bind_info.members for place in places} == {"n30", "n31"}
    assert len(mapped) == 2


def test_a_cell_that_somebody_uses_is_tried_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    state, mapped = pods_of_racks(packs=False), count_mappings(monkeypatch)
    run(state, pod("other", members=((1, 2),)))
    wanted = pod("gang", members=((2, 2),), ignore_suggested_nodes=False, within_cell="POD")
    suggested = [f"n{number}" for number in range(0, 40, 2)]
    assert isinstance(request(state, wanted, Phase.FILTERING, *suggested), Wait)
    assert len(mapped) == 2


def test_a_packing_vc_compares_so_many_cells_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GPUs break a switch of two on each of the nodes that have the last one in use."""
    state = healthy_state(tree_cluster({"NODE": 3, "SWITCH": 2}, quota("A", {"NODE": 40}), tops=40))
    for number in range(40):
        run(state, pod(f"most{number}", members=((1, 5),)))
        run(state, pod(f"one{number}", members=((1, 1),)))
    delete(state, *(pod(f"most{number}") for number in range(40)))
    vcs = {name: replace(vc, packs_by_topology=True) for name, vc in state.spec.virtual_clusters.items()}
    state.spec = replace(state.spec, virtual_clusters=vcs)
    mapped = count_mappings(monkeypatch)
    assert isinstance(request(state, pod("gang", members=((1, 3),))), Bind)
    assert len(mapped) == placing.MOST_COMPARED + 1


# --- requests that make no sense -----------------------------------------------------------------------------------


def test_a_cell_type_that_no_chain_has_is_refused_with_those_there_are() -> None:
    message = r"withinCell is POD, which is no type of the cells that the pod can use: GPU, NODE, RACK"
    with pytest.raises(UserError, match=message):
        request(three_racks(), pod("gang", within_cell="POD"))


def test_pods_of_a_gang_must_agree_on_it() -> None:
    state = three_racks()
    run(state, pod("p0", "gang", members=((2, 2),), within_cell="RACK"))
    with pytest.raises(UserError, match="withinCell is preferred RACK, group has required RACK"):
        request(state, pod("p1", "gang", members=((2, 2),), within_cell="RACK", within_is_required=False))


def test_choosing_half_of_64_leaf_cells_takes_no_time() -> None:
    """There are 1.8e18 combinations; every fourth leaf is in use, so none is at the lowest level."""
    state = healthy_state(tree_cluster(dict.fromkeys(["NODE", *"VWXYZ"], 2), quota("A", {"NODE": 1})))
    for device in range(0, 64, 4):
        place = bind_info((placement("n0", device),), chain="NODE")
        handle(state, PodAllocated(pod(f"p{device}", priority=7, members=((1, 1),)), place))
    began = time.process_time()
    chosen = run(state, pod("half", priority=5, members=((1, 32),)))
    assert time.process_time() - began < 2
    assert chosen.bind_info.leaf_cell_indices == tuple(leaf for leaf in range(64) if leaf % 4)[:32]
