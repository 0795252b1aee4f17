"""Free lists against Python lists that are searched and rebuilt by hand (rules 3)."""

import random

import pytest

from hived.cells.free_lists import append_bad, give_free_cell, is_free, remove_bad, take_free_cell
from hived.cells.state import State, empty_state
from hived.cells.topology import NO_CELL
from hived.values.errors import InvariantError
from hived.values.specs import ClusterSpec
from tests.core.builders import rack_cluster, tree_cluster
from tests.core.callable_kernels import callable_kernel

take_free_cell = callable_kernel(take_free_cell)
give_free_cell = callable_kernel(give_free_cell)
append_bad = callable_kernel(append_bad)
remove_bad = callable_kernel(remove_bad)
is_free = callable_kernel(is_free)


def three_pools() -> ClusterSpec:
    """3 pools x 2 racks x 3 nodes x 2 GPUs."""
    return tree_cluster({"POOL": 2, "RACK": 3, "NODE": 2}, tops=3)


class FreeLists:
    """One list of cells per level."""

    def __init__(self, state: State) -> None:
        self.topology = state.topology
        self.parent = state.arrays.parent.tolist()
        self.level = state.arrays.level.tolist()
        top = state.topology.chains[0].top_level
        self.lists: dict[int, list[int]] = {level: [] for level in range(1, top + 1)}
        self.lists[top] = [cell for cell, level in enumerate(self.level) if level == top]

    def path(self, cell: int) -> list[int]:
        """The cell and its ancestors, the top one first."""
        path = [cell]
        while self.parent[path[0]] != NO_CELL:
            path.insert(0, self.parent[path[0]])
        return path

    def has(self, cell: int) -> bool:
        return any(above in self.lists[self.level[above]] for above in self.path(cell))

    def remove(self, cell: int) -> None:
        """The last one takes its place."""
        cells = self.lists[self.level[cell]]
        cells[cells.index(cell)] = cells[-1]
        cells.pop()

    def take(self, cell: int) -> int:
        path = self.path(cell)
        listed = next(above for above in path if above in self.lists[self.level[above]])
        self.remove(listed)
        for above, below in zip(path[path.index(listed) :], path[path.index(listed) + 1 :], strict=False):
            self.lists[self.level[below]] += self.topology.children(above)
            self.remove(below)
        return listed

    def give(self, cell: int) -> int:
        while (parent := self.parent[cell]) != NO_CELL:
            buddies = [child for child in self.topology.children(parent) if child != cell]
            if not all(buddy in self.lists[self.level[cell]] for buddy in buddies):
                break
            for buddy in buddies:
                self.remove(buddy)
            cell = parent
        self.lists[self.level[cell]].append(cell)
        return cell


def free_lists(state: State) -> dict[int, list[int]]:
    cells, base = state.cells, state.arrays.level_base.tolist()
    levels = range(1, state.topology.chains[0].top_level + 1)
    return {level: cells.free_list[base[level] :][: cells.free_count[level]].tolist() for level in levels}


@pytest.mark.parametrize("seed", range(3))
def test_taking_and_giving_equals_a_model_with_python_lists(seed: int) -> None:
    source = random.Random(seed)
    state = empty_state(three_pools())
    model = FreeLists(state)
    taken: list[int] = []
    for _ in range(300):
        cell = source.randrange(state.topology.physical_count)
        if source.random() < 0.5 and model.has(cell):
            assert take_free_cell(state.arrays, state.cells, cell) == model.take(cell)
            taken.append(cell)
        elif taken:
            given = taken.pop(source.randrange(len(taken)))
            assert give_free_cell(state.arrays, state.cells, given) == model.give(given)
        assert free_lists(state) == model.lists


def test_every_listed_cell_knows_its_place() -> None:
    source = random.Random(7)
    state = empty_state(three_pools())
    for _ in range(12):
        cell = source.randrange(state.topology.physical_count)
        if is_free(state.arrays, state.cells, cell):
            take_free_cell(state.arrays, state.cells, cell)
    known = {cell: place for cell, place in enumerate(state.cells.free_position.tolist()) if place != NO_CELL}
    assert known == {cell: place for cells in free_lists(state).values() for place, cell in enumerate(cells)}


def test_a_cell_is_free_if_a_list_has_it_or_one_above_it() -> None:
    state = empty_state(three_pools())
    model = FreeLists(state)
    for cell in (5, 20, 60):
        take_free_cell(state.arrays, state.cells, cell)
        model.take(cell)
    count = state.topology.physical_count
    assert [is_free(state.arrays, state.cells, c) for c in range(count)] == [model.has(c) for c in range(count)]


def test_giving_everything_back_merges_into_whole_top_cells() -> None:
    state = empty_state(three_pools())
    leaves = (state.arrays.level == 1).nonzero()[0].tolist()
    for leaf in leaves:
        take_free_cell(state.arrays, state.cells, leaf)
    for leaf in random.Random(1).sample(leaves, len(leaves)):
        give_free_cell(state.arrays, state.cells, leaf)
    assert {level: sorted(cells) for level, cells in free_lists(state).items()} == {1: [], 2: [], 3: [], 4: [0, 1, 2]}
    assert not state.cells.split.any()


def test_a_cell_is_split_while_its_children_stand_alone() -> None:
    state = empty_state(rack_cluster())
    node = int((state.arrays.level == 2).nonzero()[0][0])
    take_free_cell(state.arrays, state.cells, node)
    assert state.cells.split.nonzero()[0].tolist() == [state.arrays.parent[node]]


def test_taking_a_cell_twice_is_refused() -> None:
    state = empty_state(rack_cluster())
    take_free_cell(state.arrays, state.cells, 0)
    with pytest.raises(InvariantError, match="was taken from the free lists"):
        take_free_cell(state.arrays, state.cells, 0)


def test_bad_lists_equal_a_model_with_a_python_list() -> None:
    source = random.Random(3)
    state = empty_state(three_pools())
    base, level = state.arrays.level_base.tolist(), 2
    nodes = (state.arrays.level == level).nonzero()[0].tolist()
    model: list[int] = []
    for _ in range(200):
        cell = source.choice(nodes)
        if cell in model:
            remove_bad(state.arrays, state.cells, cell)
            model[model.index(cell)] = model[-1]
            model.pop()
        else:
            append_bad(state.arrays, state.cells, cell)
            model.append(cell)
        assert state.cells.bad_list[base[level] :][: state.cells.bad_count[level]].tolist() == model


def test_removing_a_cell_that_is_not_listed_as_bad_does_nothing() -> None:
    state = empty_state(rack_cluster())
    before = state.cells.memory.copy()
    remove_bad(state.arrays, state.cells, 0)
    assert (state.cells.memory == before).all()
