"""Choosing nodes and leaf cells against exhaustive search (rules 6)."""

import itertools
import random
import time

import numpy as np
import pytest

from hived.cells.state import State, empty_state
from hived.cells.topology import NO_CELL, IntArray
from hived.hived_rules.packing import (
    BAD_NODE,
    NO_CAPACITY,
    NON_SUGGESTED_NODE,
    PLACED,
    free_leaves,
    pick_leaves,
    place_group,
)
from hived.values.specs import FREE_PRIORITY, OPPORTUNISTIC_PRIORITY
from tests.core.builders import quota, rack_cluster, tree_cluster
from tests.core.callable_kernels import callable_kernel

pick_leaves = callable_kernel(pick_leaves)
free_leaves = callable_kernel(free_leaves)

ALL = np.ones(0, np.bool_)


def one_node(*child_counts: int) -> State:
    """One node whose cells have these many children each, leaf level last."""
    names = ["NODE", *(f"L{level}" for level in range(len(child_counts), 1, -1))]
    return empty_state(tree_cluster(dict(zip(names, child_counts, strict=True))))


def lowest_common_level(state: State, leaves: tuple[int, ...]) -> int:
    """The level of the lowest cell that has all these leaves."""
    level, cells = 1, set(leaves)
    while len(cells) > 1:
        cells = {int(state.arrays.parent[cell]) for cell in cells}
        level += 1
    return level


def best_combination(state: State, candidates: list[int], wanted: int) -> list[int]:
    """The first combination of candidates, in lexicographic order, of which no other has a lower common ancestor."""
    combinations = list(itertools.combinations(candidates, wanted))
    levels = [lowest_common_level(state, leaves) for leaves in combinations]
    return list(combinations[levels.index(min(levels))])


def candidates_in(state: State, node: int, priority: int, taken: IntArray) -> list[int]:
    """Free leaves in tree order, then those of lower priority; without those given to earlier pods."""
    first = int(state.arrays.first_leaf[node])
    left = [first + i for i in range(len(taken)) if not taken[i]]
    free = [leaf for leaf in left if state.cells.priority[leaf] == FREE_PRIORITY]
    return free + [leaf for leaf in left if FREE_PRIORITY < state.cells.priority[leaf] < priority]


@pytest.mark.parametrize("shape", [(8,), (2, 4), (2, 2, 2), (3, 1, 3), (2, 5)])
def test_the_leaf_cells_of_a_pod_are_the_best_of_all_combinations(shape: tuple[int, ...]) -> None:
    source = random.Random(str(shape))
    state = one_node(*shape)
    total = state.topology.chains[0].leaf_count(len(shape) + 1)
    leaf_level = state.arrays.level == 1
    for _ in range(60):
        state.cells.priority[leaf_level] = [source.choice([-2, -2, -1, 0, 5]) for _ in range(total)]
        priority = source.choice([-1, 0, 5, 9])
        taken = np.array([source.random() < 0.2 for _ in range(total)], np.int32)
        while candidates := candidates_in(state, 0, priority, taken):
            wanted = source.randint(1, len(candidates))
            expected = best_combination(state, candidates, wanted)
            leaves = np.zeros(wanted, np.int32)
            pick_leaves(state.arrays, state.cells, 0, priority, False, wanted, taken, leaves)
            assert leaves.tolist() == expected
            assert [taken[leaf - state.arrays.first_leaf[0]] for leaf in expected] == [1] * wanted


def test_choosing_half_of_64_leaf_cells_takes_no_time() -> None:
    """There are 1.8e18 combinations; every second pair of leaves is in use, so none is at the lowest level."""
    state = one_node(2, 2, 2, 2, 2, 2)
    first = int(state.arrays.first_leaf[0])
    state.cells.priority[first : first + 64] = [7 if leaf % 4 == 0 else -2 for leaf in range(64)]
    leaves = np.zeros(32, np.int32)
    started = time.process_time()
    pick_leaves(state.arrays, state.cells, 0, 5, False, 32, np.zeros(64, np.int32), leaves)
    assert time.process_time() - started < 2
    assert leaves.tolist() == [first + leaf for leaf in range(64) if leaf % 4][:32]


def test_available_leaf_cells_are_those_of_lower_priority() -> None:
    source = random.Random(2)
    state = empty_state(rack_cluster(nodes=3, gpus=4))
    arrays, cells = state.arrays, state.cells
    cells.priority[arrays.level == 1] = [source.choice([-2, -1, 0, 5]) for _ in range(int((arrays.level == 1).sum()))]
    for cell in range(state.topology.physical_count):
        first, count = int(arrays.first_leaf[cell]), int(arrays.leaf_count[arrays.chain_level[cell]])
        below = cells.priority[first : first + count].tolist()
        cells.used[cell] = sum(leaf > FREE_PRIORITY for leaf in below)
        for priority in (-1, 0, 3, 9):
            assert free_leaves(arrays, cells, cell, priority, False) == sum(leaf < priority for leaf in below)


def test_a_gang_is_placed_as_by_a_walk_over_sorted_nodes() -> None:
    """Random use, health and suggestions; each pod gets the first node with room left, and in it the best leaves."""
    source = random.Random(11)
    outcomes = set()
    for _ in range(250):
        priority = source.choice([-1, 0, 5])
        state, view = random_use(source, priority)
        suggested, ignore = np.array([source.random() < 0.8 for _ in range(6)]), source.random() < 0.5
        members = sorted({source.randint(1, 4): source.randint(1, 4) for _ in range(source.randint(1, 2))}.items())
        expected = PlainSearch(state, view, suggested, ignore).place(priority, members)
        sizes, counts = np.array([s for s, _ in members], np.int32), np.array([c for _, c in members], np.int64)
        leaves = np.zeros(min(24, int(sizes @ counts)), np.int32)
        outcome, blocker = place_group(
            state.arrays, state.cells, view, priority, False, sizes, counts, suggested, ignore, leaves
        )
        outcomes.add(outcome)
        assert (outcome, blocker, leaves.tolist() if outcome == PLACED else []) == expected
    assert outcomes == {PLACED, NO_CAPACITY, BAD_NODE, NON_SUGGESTED_NODE}


def random_use(source: random.Random, priority: int) -> tuple[State, int]:
    """6 nodes of 2 x 2 GPUs, partly bad, and the view that a pod is placed in: its nodes partly used, or bound."""
    state = empty_state(tree_cluster({"NODE": 2, "PAIR": 2}, quota("A", {"NODE": 6}), tops=6))
    cells, arrays = state.cells, state.arrays
    view = 0 if priority < 0 else state.topology.vc_views[0, 0]
    cells.bad[:6] = [source.random() < 0.15 for _ in range(6)]
    for place in range(6):
        node = arrays.view_cell[arrays.view_start[view] + place]
        own = [source.choice([-2, -2, -2, -1 if priority < 0 else 0, 0, 5]) for _ in range(4)]
        cells.priority[arrays.first_leaf[node] : arrays.first_leaf[node] + 4] = own
        cells.used[node] = sum(leaf > FREE_PRIORITY for leaf in own)
        if priority < 0:
            cells.opportunistic_used[node] = own.count(OPPORTUNISTIC_PRIORITY)
        else:
            cells.bound[node] = source.choice([NO_CELL, place])
    return state, view


Found = tuple[int, int, list[int]]  # outcome, physical node in the way, leaves


class PlainSearch:
    """Sort the nodes, walk them once, try all combinations of leaves."""

    def __init__(self, state: State, view: int, suggested: np.ndarray, ignore: bool) -> None:
        self.state, self.suggested, self.ignore = state, suggested, ignore
        nodes = state.arrays.view_cell[state.arrays.view_start[view] : state.arrays.view_start[view + 1]].tolist()
        self.nodes = sorted(nodes, key=self.key)

    def hardware(self, node: int) -> int:
        return node if self.state.arrays.vc[node] == NO_CELL else int(self.state.cells.bound[node])

    def is_bad(self, node: int) -> bool:
        return self.hardware(node) != NO_CELL and bool(self.state.cells.bad[self.hardware(node)])

    def is_out(self, node: int) -> bool:
        hardware = self.hardware(node)
        return hardware != NO_CELL and not self.ignore and not self.suggested[self.state.arrays.node[hardware]]

    def key(self, node: int) -> tuple[bool, bool, int, int]:
        used = int(self.state.cells.used[node])
        alike = int(self.state.cells.opportunistic_used[node]) if self.state.arrays.vc[node] == NO_CELL else used
        return self.is_bad(node), self.is_out(node), -alike, used - alike

    def place(self, priority: int, members: list[tuple[int, int]]) -> Found:
        pods = [size for size, count in members for _ in range(count)]
        found = self.walk(OPPORTUNISTIC_PRIORITY, pods)
        return found if found[0] == PLACED or priority < 0 else self.walk(priority, pods)

    def walk(self, priority: int, pods: list[int]) -> Found:
        leaves: list[int] = []
        pods = list(pods)
        for node in self.nodes:
            taken = np.zeros(4, np.int32)
            while pods and len(candidates := candidates_in(self.state, node, priority, taken)) >= pods[0]:
                if self.is_bad(node):
                    return BAD_NODE, self.hardware(node), []
                if self.is_out(node):
                    return NON_SUGGESTED_NODE, self.hardware(node), []
                chosen = best_combination(self.state, candidates, pods.pop(0))
                leaves += chosen
                taken[[leaf - self.state.arrays.first_leaf[node] for leaf in chosen]] = 1
        return (NO_CAPACITY, NO_CELL, []) if pods else (PLACED, NO_CELL, leaves)


def test_counts_are_never_expanded() -> None:
    state = empty_state(rack_cluster())
    sizes, counts = np.array([1, 2], np.int32), np.array([2**62, 2**31], np.int64)
    leaves = np.zeros(8, np.int32)
    outcome, _ = place_group(state.arrays, state.cells, 0, 0, False, sizes, counts, ALL, True, leaves)
    assert outcome == NO_CAPACITY


def test_cells_below_node_level_count_as_nodes() -> None:
    """A VC that has single GPUs only: two of them are never one place for a pod of two."""
    state = empty_state(rack_cluster(quota("A", {"RACK.NODE.GPU": 4})))
    view = state.topology.vc_views[0, 0]
    one, two, once = np.array([1], np.int32), np.array([2], np.int32), np.array([1], np.int64)
    leaves = np.zeros(2, np.int32)
    assert place_group(state.arrays, state.cells, view, 0, False, two, once, ALL, True, leaves)[0] == NO_CAPACITY
    assert place_group(state.arrays, state.cells, view, 0, False, one, 2 * once, ALL, True, leaves)[0] == PLACED
