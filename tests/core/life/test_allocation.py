"""Priorities, use counts and states against recomputation over whole trees (rules 9.1 to 9.4)."""

import random

import numpy as np
import pytest

from hived.cells.state import CellState, State, empty_state
from hived.cells.topology import NO_CELL
from hived.life.allocation import allocate_leaf, count_opportunistic, release_leaf, set_priority, set_state
from hived.values.errors import InvariantError
from hived.values.events import Phase
from hived.values.specs import FREE_PRIORITY
from tests.core.builders import (
    cell_at,
    delete,
    fingerprint,
    healthy_state,
    leaf,
    pod,
    quota,
    rack_cluster,
    request,
    run,
    set_nodes,
)
from tests.core.callable_kernels import callable_kernel

set_priority = callable_kernel(set_priority)
count_opportunistic = callable_kernel(count_opportunistic)
set_state = callable_kernel(set_state)
allocate_leaf = callable_kernel(allocate_leaf)
release_leaf = callable_kernel(release_leaf)


def leaves_of(state: State, cell: int) -> slice:
    first = int(state.arrays.first_leaf[cell])
    return slice(first, first + int(state.arrays.leaf_count[state.arrays.chain_level[cell]]))


def test_priorities_and_use_counts_are_what_the_leaves_add_up_to() -> None:
    source = random.Random(1)
    state = empty_state(rack_cluster(racks=2, nodes=3, gpus=3))
    arrays, cells = state.arrays, state.cells
    leaves = np.flatnonzero(arrays.level == 1)
    for _ in range(300):
        set_priority(arrays, cells, source.choice(leaves), source.choice([-2, -2, -1, 0, 5, 9]))
        below = [cells.priority[leaves_of(state, cell)] for cell in range(len(arrays.parent))]
        assert cells.priority.tolist() == [int(own.max()) for own in below]
        assert cells.used.tolist() == [int((own > FREE_PRIORITY).sum()) for own in below]


def test_opportunistic_counts_are_what_the_leaves_add_up_to() -> None:
    source = random.Random(2)
    state = empty_state(rack_cluster(racks=2, nodes=3, gpus=3))
    arrays, cells = state.arrays, state.cells
    lent: set[int] = set()
    for _ in range(100):
        cell = source.choice(np.flatnonzero(arrays.level[: state.topology.physical_count] == 1))
        count_opportunistic(arrays, cells, cell, -1 if cell in lent else 1)
        lent ^= {cell}
        counts = [len(lent.intersection(range(*leaves_of(state, c).indices(10**6)))) for c in range(len(arrays.parent))]
        assert cells.opportunistic_used.tolist() == counts[: state.topology.physical_count]


def test_a_state_rises_if_it_is_used_or_if_all_children_have_it() -> None:
    source = random.Random(3)
    state = empty_state(rack_cluster(racks=2, nodes=2, gpus=2))
    arrays, cells = state.arrays, state.cells
    expected = cells.state.tolist()
    for _ in range(300):
        cell = int(source.choice(np.flatnonzero(arrays.level[: state.topology.physical_count] == 1)))
        new = source.choice(list(CellState))
        set_state(arrays, cells, cell, int(new))
        expected[cell] = new
        while (cell := int(arrays.parent[cell])) != NO_CELL:
            if new != CellState.USED and any(expected[child] != new for child in state.topology.children(cell)):
                break
            expected[cell] = new
        assert cells.state.tolist() == expected


def test_the_virtual_cell_takes_the_state_of_its_hardware() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("g"))
    physical = state.groups["g"].physical[0]
    set_state(state.arrays, state.cells, physical, int(CellState.RESERVING))
    assert state.cells.state[state.cells.bound[physical]] == CellState.RESERVING


@pytest.mark.parametrize("priority", [-1, 0, 1000])
@pytest.mark.parametrize("is_healthy", [True, False])
def test_deleting_a_group_takes_back_everything_that_its_start_changed(priority: int, is_healthy: bool) -> None:
    """One rack, so that even the order of the free lists is the same again."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    set_nodes(state, "n1", is_healthy=is_healthy)
    before = fingerprint(state)
    wanted = pod("g", priority=priority)
    run(state, wanted)
    assert fingerprint(state) != before
    delete(state, wanted)
    assert fingerprint(state) == before


def test_a_cell_bound_elsewhere_is_not_allocated() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("g"))
    other = leaf(state, "n3", 0)
    virtual = int(state.cells.bound[state.groups["g"].physical[0]])
    with pytest.raises(InvariantError, match="through a virtual cell that is bound elsewhere"):
        allocate_leaf(state.arrays, state.cells, other, virtual, 0, 0)


def test_an_opportunistic_leaf_shows_the_vc_it_is_lent_to() -> None:
    state = healthy_state(rack_cluster())
    node = run(state, pod("o", vc="B", priority=-1)).bind_info.node
    lent = leaf(state, node, 0)
    assert (state.cells.lent_to[lent], state.cells.shown_vc[lent]) == (1, 1)


def test_a_released_bad_leaf_stays_bound_and_shows_its_vc_again() -> None:
    """A bad leaf of VC A, lent to B meanwhile: B's entry goes, A's binding stays (rule 9.12)."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), quota("B", {}), racks=1, nodes=1))
    first, lent = pod("g", members=((1, 1),)), pod("o", vc="B", priority=-1, members=((1, 1),))
    run(state, first)
    run(state, lent)
    set_nodes(state, "n0", is_healthy=False)
    delete(state, first, lent)
    leaves = [leaf(state, "n0", 0), leaf(state, "n0", 1)]
    assert state.cells.lent_to[leaves].tolist() == [NO_CELL, NO_CELL]
    assert state.cells.shown_vc[leaves].tolist() == [0, 0]
    assert (state.cells.bound[leaves] != NO_CELL).all()


def test_a_reserved_leaf_of_a_cancelled_preemption_is_free_again() -> None:
    """Two pods of two leaves where one node is free and one is lent."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    run(state, pod("o", priority=-1))
    wanted = pod("g", members=((2, 2),))
    request(state, wanted, Phase.PREEMPTING)
    states = [int(state.cells.state[leaf(state, node, 0)]) for node in ("n0", "n1")]
    assert sorted(states) == [CellState.RESERVING, CellState.RESERVED]
    delete(state, wanted)
    assert [int(state.cells.state[cell_at(state, f"0/{node}")]) for node in ("n0", "n1")] == [
        CellState.USED,
        CellState.FREE,
    ]
