"""Bindings between virtual and physical cells, and plans that doomed cells avoid (rules 9.8 to 9.11, 10.9, 10.12)."""

import random

import numpy as np

from hived.cells.binding import (
    bind_bad_child,
    bind_path,
    first_unbound_child,
    has_bound_child,
    overlaps_plan,
    plan_placement,
    unbind_path,
)
from hived.cells.state import State, empty_state
from hived.cells.topology import NO_CELL
from hived.values.specs import ClusterSpec
from tests.core.builders import cell_at, quota, rack_cluster
from tests.core.callable_kernels import callable_kernel

bind_path = callable_kernel(bind_path)
unbind_path = callable_kernel(unbind_path)
overlaps_plan = callable_kernel(overlaps_plan)
bind_bad_child = callable_kernel(bind_bad_child)
has_bound_child = callable_kernel(has_bound_child)
first_unbound_child = callable_kernel(first_unbound_child)


def one_rack_each() -> ClusterSpec:
    return rack_cluster(quota("A", {"RACK": 2}), racks=2, nodes=2, gpus=2)


def bindings(state: State) -> dict[str, str]:
    """Physical address -> virtual address."""
    address = state.topology.address
    bound = state.cells.bound[: state.topology.physical_count].tolist()
    return {address(cell): address(virtual) for cell, virtual in enumerate(bound) if virtual != NO_CELL}


def bind(state: State, physical: str, virtual: str) -> None:
    bind_path(state.arrays, state.cells, cell_at(state, physical), cell_at(state, virtual))


def unbind(state: State, physical: str) -> None:
    unbind_path(state.arrays, state.cells, cell_at(state, physical))


def test_binding_a_leaf_binds_its_ancestors_too() -> None:
    state = empty_state(one_rack_each())
    bind(state, "1/n2/1", "A/0/1/2")
    assert bindings(state) == {"1": "A/0", "1/n2": "A/0/1", "1/n2/1": "A/0/1/2"}


def test_binding_a_second_leaf_stops_at_the_first_bound_ancestor() -> None:
    state = empty_state(one_rack_each())
    bind(state, "0/n0/0", "A/0/0/0")
    bind(state, "0/n1/0", "A/0/1/2")
    assert bindings(state) == {
        "0": "A/0", "0/n0": "A/0/0", "0/n0/0": "A/0/0/0", "0/n1": "A/0/1", "0/n1/0": "A/0/1/2",
    }  # fmt: skip


def test_unbinding_stops_below_an_ancestor_with_another_bound_child() -> None:
    state = empty_state(one_rack_each())
    bind(state, "0/n0/0", "A/0/0/0")
    bind(state, "0/n1/0", "A/0/1/2")
    unbind(state, "0/n0/0")
    assert bindings(state) == {"0": "A/0", "0/n1": "A/0/1", "0/n1/0": "A/0/1/2"}


def test_unbinding_the_last_leaf_unbinds_everything() -> None:
    state = empty_state(one_rack_each())
    before = state.cells.memory.copy()
    bind(state, "0/n0/0", "A/0/0/0")
    unbind(state, "0/n0/0")
    assert (state.cells.memory == before).all()


def test_unbinding_spares_a_pinned_cell() -> None:
    state = empty_state(rack_cluster(quota("A", {}, ("pin",)), pins={"n0": "pin"}))
    bind(state, "0/n0/0", "A/0/0")
    unbind(state, "0/n0/0")
    assert bindings(state) == {"0/n0": "A/0"}


def test_a_virtual_cell_takes_the_health_of_its_hardware() -> None:
    state = empty_state(one_rack_each())
    state.cells.bad[cell_at(state, "0/n0/0")] = 1
    bind(state, "0/n0/0", "A/0/0/0")
    assert state.cells.bad[cell_at(state, "A/0/0/0")] == 1


def test_children_are_bound_in_order() -> None:
    state = empty_state(one_rack_each())
    rack = cell_at(state, "A/0")
    bind(state, "0/n1/0", "A/0/0/0")
    assert has_bound_child(state.arrays, state.cells, rack)
    assert first_unbound_child(state.arrays, state.cells, rack) == cell_at(state, "A/0/1")


def test_a_planned_child_is_passed_over() -> None:
    state = empty_state(one_rack_each())
    state.cells.planned[cell_at(state, "A/0/0")] = 1
    assert first_unbound_child(state.arrays, state.cells, cell_at(state, "A/0")) == cell_at(state, "A/0/1")


def test_a_rack_without_bound_nodes_has_no_bound_child() -> None:
    state = empty_state(one_rack_each())
    assert not has_bound_child(state.arrays, state.cells, cell_at(state, "A/0"))


def test_a_bad_cell_is_shown_by_the_first_unbound_child_of_its_parents_virtual_cell() -> None:
    state = empty_state(one_rack_each())
    bind(state, "0/n0/0", "A/0/0/0")
    bind_bad_child(state.arrays, state.cells, cell_at(state, "0/n1"))
    assert bindings(state)["0/n1"] == "A/0/1"


def test_a_bad_cell_below_an_unbound_one_is_not_shown() -> None:
    state = empty_state(one_rack_each())
    bind_bad_child(state.arrays, state.cells, cell_at(state, "0/n1"))
    assert bindings(state) == {}


def test_a_cell_overlaps_a_plan_if_one_above_or_below_it_is_planned() -> None:
    """Plans of random pairs of preassigned and physical cells against a search through the tree."""
    source = random.Random(6)
    state = empty_state(rack_cluster(quota("A", {"RACK": 1, "RACK.NODE": 2}), racks=3))
    arrays, cells, count = state.arrays, state.cells, state.topology.physical_count
    virtual_leaves = np.flatnonzero((arrays.level == 1) & (arrays.vc != NO_CELL))
    for _ in range(40):
        virtual = np.array(source.sample(virtual_leaves.tolist(), 2), np.int32)
        physical = np.array([source.choice([NO_CELL, *range(3, count)]) for _ in virtual], np.int32)
        planned = {planned_root(state, int(p), int(v)) for p, v in zip(physical, virtual, strict=True)}
        plan_placement(arrays, cells, physical, virtual, 1)
        for cell in range(count):
            assert overlaps_plan(arrays, cells, cell) == any(
                other in path(state, cell) or cell in path(state, other) for other in planned - {NO_CELL}
            )
        plan_placement(arrays, cells, physical, virtual, -1)


def planned_root(state: State, physical: int, virtual: int) -> int:
    """The physical cell at the level of the virtual leaf's preassigned cell."""
    level = state.arrays.level[state.arrays.root[virtual]]
    while physical != NO_CELL and state.arrays.level[physical] < level:
        physical = int(state.arrays.parent[physical])
    return physical


def path(state: State, cell: int) -> list[int]:
    path = []
    while cell != NO_CELL:
        path.append(cell)
        cell = int(state.arrays.parent[cell])
    return path


def test_a_plan_covers_each_virtual_leaf_and_its_ancestors() -> None:
    state = empty_state(one_rack_each())
    leaf = cell_at(state, "A/1/0/1")
    plan_placement(state.arrays, state.cells, np.array([NO_CELL], np.int32), np.array([leaf], np.int32), 1)
    assert state.cells.planned.nonzero()[0].tolist() == sorted(path(state, leaf))


def test_taking_a_plan_back_leaves_nothing() -> None:
    state = empty_state(one_rack_each())
    before = state.cells.memory.copy()
    physical = np.array([cell_at(state, "0/n0/0"), cell_at(state, "0/n1/0")], np.int32)
    virtual = np.array([cell_at(state, "A/0/0/0"), cell_at(state, "A/0/1/2")], np.int32)
    plan_placement(state.arrays, state.cells, physical, virtual, 1)
    plan_placement(state.arrays, state.cells, physical, virtual, -1)
    assert (state.cells.memory == before).all()
