"""The worked example of docs/rules.md, step by step; the page shows the states that are asserted here."""

from dataclasses import dataclass

import pytest

from hived.cells.state import CellState, GroupState, State
from hived.cells.topology import NO_CELL
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.events import Phase, PodAllocated
from hived.values.specs import BindInfo
from tests.core.builders import (
    delete,
    fingerprint,
    healthy_state,
    leaf,
    placement,
    pod,
    quota,
    rack_cluster,
    request,
    run,
    set_nodes,
)

CLUSTER = rack_cluster(quota("A", {"RACK": 1}), quota("B", {"RACK.NODE": 1}), quota("C", {"RACK.NODE": 1}))
NODE, RACK = 2, 3
SOLO, NIGHT, OWNER = pod("solo", vc="B"), pod("night", vc="B", priority=-1), pod("owner", vc="C")
DOOMED = {"A/0": "1", "A/0/0": "1/n3"}


@dataclass(frozen=True)
class Level:
    """A row of the tables on the page."""

    free: list[str]
    left: int
    claims: int
    doomed: int = 0


def level(state: State, number: int) -> Level:
    arrays, cells = state.arrays, state.cells
    here = int(arrays.level_offset[0]) + number
    base = int(arrays.level_base[here])
    free = [state.topology.address(int(cell)) for cell in cells.free_list[base : base + cells.free_count[here]]]
    return Level(free, int(cells.left[here]), int(cells.claims[here]), int(cells.doomed_total[here]))


def bindings(state: State) -> dict[str, str]:
    """Virtual cell -> physical cell, above the leaf level."""
    arrays, bound = state.arrays, state.cells.bound
    address = state.topology.address
    return {
        address(cell): address(int(bound[cell]))
        for cell in range(state.topology.physical_count, len(bound))
        if bound[cell] != NO_CELL and arrays.level[cell] > 1
    }


def gpus(state: State, node: str) -> list[tuple[CellState, int]]:
    """State and priority of each GPU of a node."""
    leaves = [leaf(state, node, device) for device in (0, 1)]
    return [(CellState(state.cells.state[each]), int(state.cells.priority[each])) for each in leaves]


def groups(state: State) -> dict[str, GroupState]:
    check_invariants(state)
    return {group.name: group.state for group in state.groups.values()}


def bound_to(node: str) -> BindInfo:
    return BindInfo(node, (0, 1), "RACK", ((placement(node, 0, 1),),))


@pytest.fixture
def empty() -> State:
    return healthy_state(CLUSTER)


@pytest.fixture
def with_solo(empty: State) -> State:
    run(empty, SOLO)
    return empty


@pytest.fixture
def with_bad_node(with_solo: State) -> State:
    set_nodes(with_solo, "n3", is_healthy=False)
    return with_solo


@pytest.fixture
def with_night(with_bad_node: State) -> State:
    run(with_bad_node, NIGHT)
    return with_bad_node


def test_an_empty_cluster_has_its_racks_in_the_free_list(empty: State) -> None:
    assert (level(empty, RACK), level(empty, NODE)) == (Level(["0", "1"], 2, 1), Level([], 4, 2))
    assert bindings(empty) == {}


def test_the_first_pod_splits_a_rack(empty: State) -> None:
    assert run(empty, SOLO) == Bind(bound_to("n0"))
    assert (level(empty, RACK), level(empty, NODE)) == (Level(["1"], 1, 1), Level(["0/n1"], 3, 1))
    assert bindings(empty) == {"B/0": "0/n0"}
    assert groups(empty) == {"solo": GroupState.ALLOCATED}


def test_a_bad_node_dooms_the_promise_of_a_rack(with_solo: State) -> None:
    set_nodes(with_solo, "n3", is_healthy=False)
    assert (level(with_solo, RACK), level(with_solo, NODE)) == (Level([], 0, 0, 1), Level(["0/n1"], 1, 1))
    assert bindings(with_solo) == {"B/0": "0/n0", **DOOMED}
    gang = pod("train-0", group="train", vc="A", members=((2, 2),))
    assert request(with_solo, gang) == Wait("have to use at least one bad node 1/n3 when scheduling in VC A")
    single = request(with_solo, pod("single", vc="A"))
    assert isinstance(single, Bind)
    assert single.bind_info.node == "n2"


def test_an_opportunistic_pod_changes_no_count(with_bad_node: State) -> None:
    before = level(with_bad_node, RACK), level(with_bad_node, NODE)
    assert run(with_bad_node, NIGHT).bind_info.node == "n1"
    assert (level(with_bad_node, RACK), level(with_bad_node, NODE)) == before
    assert gpus(with_bad_node, "n1") == [(CellState.USED, -1)] * 2


def test_a_filter_call_names_victims_and_holds_nothing(with_night: State) -> None:
    before = fingerprint(with_night)
    assert request(with_night, OWNER) == Preempt({"n1": ("night",)})
    assert fingerprint(with_night) == before


def test_a_preemption_goes_from_reserving_to_reserved_to_used(with_night: State) -> None:
    state = with_night
    assert request(state, OWNER, Phase.PREEMPTING) == Preempt({"n1": ("night",)})
    assert gpus(state, "n1") == [(CellState.RESERVING, 0)] * 2
    assert level(state, NODE) == Level([], 0, 0)
    assert groups(state) == {
        "solo": GroupState.ALLOCATED, "night": GroupState.BEING_PREEMPTED, "owner": GroupState.PREEMPTING,
    }  # fmt: skip
    delete(state, NIGHT)
    assert gpus(state, "n1") == [(CellState.RESERVED, 0)] * 2
    assert groups(state) == {"solo": GroupState.ALLOCATED, "owner": GroupState.PREEMPTING}
    assert run(state, OWNER) == Bind(bound_to("n1"))
    assert gpus(state, "n1") == [(CellState.USED, 0)] * 2
    assert groups(state) == {"solo": GroupState.ALLOCATED, "owner": GroupState.ALLOCATED}


def test_a_restart_ends_in_the_state_before(with_night: State) -> None:
    old = with_night
    request(old, OWNER, Phase.PREEMPTING)
    delete(old, NIGHT)
    run(old, OWNER)

    state = new_state(CLUSTER)
    assert {cell: bindings(state)[cell] for cell in ("A/0", "B/0", "C/0")} == {"A/0": "0", "B/0": "1/n2", "C/0": "1/n3"}
    assert (level(state, RACK), level(state, NODE)) == (Level([], 0, 0, 1), Level([], 0, 0, 2))
    set_nodes(state, "n0", "n1", "n2", is_healthy=True)
    assert (level(state, RACK), level(state, NODE)) == (Level(["0", "1"], 2, 1), Level([], 4, 2))
    assert bindings(state) == {}
    for bound, node in ((OWNER, "n1"), (SOLO, "n0")):
        handle(state, PodAllocated(bound, bound_to(node)))
    assert bindings(state) == bindings(old) == {"B/0": "0/n0", "C/0": "0/n1", **DOOMED}
    assert (level(state, RACK), level(state, NODE)) == (level(old, RACK), level(old, NODE))
    assert [gpus(state, node) for node in ("n0", "n1", "n2", "n3")] == [gpus(old, f"n{i}") for i in range(4)]
    assert groups(state) == groups(old)
