"""The node for a single pod against a plain minimum over all nodes (rules 18.5, 18.8), and loose order of views."""

import random
from dataclasses import replace

import numpy as np
import pytest

from hived.better_rules.close_packing import exposure, exposures_of_free, fullest_node, least_exposed_node
from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.cells.views import may_use, sort_loosely, view_key
from hived.scheduler import check_invariants
from hived.values.decisions import Bind
from hived.values.specs import Rules
from tests.core.builders import delete, healthy_state, pod, quota, rack_cluster, request, run, set_nodes
from tests.core.callable_kernels import callable_kernel

fullest_node = callable_kernel(fullest_node)
least_exposed_node = callable_kernel(least_exposed_node)
exposure = callable_kernel(exposure)
exposures_of_free = callable_kernel(exposures_of_free)
may_use = callable_kernel(may_use)
sort_loosely = callable_kernel(sort_loosely)
view_key = callable_kernel(view_key)

EVERY_NODE = np.ones(1, np.bool_)


def many_nodes() -> State:
    """Six racks of twenty nodes, so that many nodes are equally full; A and B share them, as racks and as nodes."""
    vcs = quota("A", {"RACK": 2, "RACK.NODE": 18}), quota("B", {"RACK": 1, "RACK.NODE": 22})
    return healthy_state(replace(rack_cluster(*vcs, racks=6, nodes=20, gpus=4), rules=Rules.BETTER))


def busy(seed: int, steps: int) -> State:
    """Pods, gangs and failing nodes, at random."""
    state, source, running = many_nodes(), random.Random(seed), []
    for step in range(steps):
        if running and source.random() < 0.3:
            delete(state, *running.pop(source.randrange(len(running))))
        elif source.random() < 0.2:
            set_nodes(state, source.choice(state.topology.node_names), is_healthy=source.random() < 0.5)
        members = ((source.choice((1, 1, 1, 2, 6)), source.choice((1, 2, 4))),)
        wanted = pod(f"p{step}", vc=source.choice("AB"), priority=source.choice((-1, 0, 0)), members=members)
        if isinstance(request(state, wanted), Bind):
            running.append([wanted])
            run(state, wanted)
    check_invariants(state)
    return state


def fullness_above(state: State, cell: int) -> tuple[int, ...]:
    """Free leaves of the cells above a node; fewer cells come first."""
    arrays, found = state.arrays, list[int]()
    cell = int(arrays.parent[cell])
    while cell != NO_CELL:
        found.append(int(arrays.leaf_count[arrays.chain_level[cell]] - state.cells.used[cell]))
        cell = int(arrays.parent[cell])
    return tuple(found)


def first_choice(state: State, view: int, size: int) -> int:
    """The least node of a view by how exposed and how full it is, and the cells above it are."""
    arrays, cells, best = state.arrays, state.cells, []
    chain = int(arrays.chain_of_level[arrays.chain_level[arrays.view_cell[arrays.view_start[view]]]])
    of_free = exposures_of_free(arrays, cells, chain)
    for cell in arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]].tolist():
        free = int(arrays.leaf_count[arrays.chain_level[cell]] - cells.used[cell])
        if free >= size and may_use(arrays, cells, cell, EVERY_NODE, True):
            best.append((exposure(arrays, cells, cell, of_free), free, fullness_above(state, cell), cell))
    return min(best)[-1] if best else NO_CELL


@pytest.mark.parametrize("seed", range(6))
def test_the_node_for_a_single_pod_is_the_first_of_all(seed: int) -> None:
    state = busy(seed, 30)
    for size in (1, 2, 4, 5):
        for vc in range(2):
            view = state.topology.vc_views[vc, 0]
            found = fullest_node(state.arrays, state.cells, view, size, EVERY_NODE, True)
            assert found == first_choice(state, view, size)
        found = least_exposed_node(state.arrays, state.cells, 0, size, EVERY_NODE, True)
        assert found == first_choice(state, 0, size)


def test_a_view_in_loose_order_has_ascending_keys_and_all_of_its_cells() -> None:
    state, source = many_nodes(), random.Random(1)
    arrays, cells, view = state.arrays, state.cells, state.topology.vc_views[0, 0]
    places = slice(arrays.view_start[view], arrays.view_start[view + 1])
    for step in range(40):
        run(state, pod(f"p{step}", vc="A", members=((1, source.choice((1, 2, 4))),)))
        if step % 3 == 2:
            delete(state, pod(f"p{step - 1}", vc="A"))
        sort_loosely(arrays, cells, view, EVERY_NODE, True)
        order = cells.view_order[places].tolist()
        keys = [view_key(arrays, cells, cell, EVERY_NODE, True) for cell in order]
        assert keys == sorted(keys) == cells.view_keys[places].tolist()
        assert sorted(order) == sorted(arrays.view_cell[places].tolist())
        assert cells.view_place[order].tolist() == list(range(places.start, places.stop))
