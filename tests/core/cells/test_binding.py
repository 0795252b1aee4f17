"""Plans that doomed cells avoid (rules 10.9, 10.12)."""

import random

import numpy as np

from hived.cells.binding import overlaps_plan, plan_placement
from hived.cells.state import State, empty_state
from hived.cells.topology import NO_CELL
from tests.core.builders import quota, rack_cluster
from tests.core.callable_kernels import callable_kernel

overlaps_plan = callable_kernel(overlaps_plan)


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
