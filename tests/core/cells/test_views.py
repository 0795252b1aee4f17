"""Views against Python's own stable sort (rules 6.1 to 6.4)."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from hived.cells.state import State, empty_state
from hived.cells.topology import NO_CELL
from hived.cells.views import BoolArray, forget_order, least_key, note_change, sort_view, used_in_key, view_key
from hived.values.specs import ClusterSpec
from tests.core.builders import quota, rack_cluster
from tests.core.callable_kernels import callable_kernel

sort_view = callable_kernel(sort_view)
note_change = callable_kernel(note_change)
view_key = callable_kernel(view_key)
used_in_key = callable_kernel(used_in_key)
least_key = callable_kernel(least_key)

NODES = 40


def many_nodes() -> ClusterSpec:
    return rack_cluster(quota("A", {"RACK": 10}), racks=10, nodes=4, gpus=4)


class View:
    """A view of the core beside a Python list that is sorted with `list.sort`."""

    def __init__(self, state: State, view: int) -> None:
        self.state = state
        self.view = view
        self.order = self.in_core()

    def in_core(self) -> list[int]:
        start = self.state.arrays.view_start
        return [int(cell) for cell in self.state.cells.view_order[start[self.view] : start[self.view + 1]]]

    def key(self, cell: int, suggested: BoolArray, ignore: bool) -> tuple[bool, bool, int, int]:
        """Healthy first, suggested first, more used alike first, less used at higher priority first."""
        cells, arrays = self.state.cells, self.state.arrays
        is_physical = arrays.vc[cell] == NO_CELL
        hardware = cell if is_physical else int(cells.bound[cell])
        is_bad = hardware != NO_CELL and bool(cells.bad[hardware])
        is_left_out = hardware != NO_CELL and not ignore and not suggested[arrays.node[hardware]]
        alike = int(cells.opportunistic_used[cell]) if is_physical else int(cells.used[cell])
        return is_bad, is_left_out, -alike, int(cells.used[cell]) - alike if is_physical else 0

    def sort(self, suggested: BoolArray, ignore: bool) -> None:
        sort_view(self.state.arrays, self.state.cells, self.view, suggested, ignore)
        self.order.sort(key=lambda cell: self.key(cell, suggested, ignore))

    def change(self, source: random.Random, cell: int) -> None:
        """Use, health or binding of a cell of the view is another one now."""
        cells = self.state.cells
        if self.state.arrays.vc[cell] == NO_CELL:
            cells.opportunistic_used[cell] = source.randint(0, 2)
            cells.used[cell] = cells.opportunistic_used[cell] + source.randint(0, 2)
            cells.bad[cell] = source.random() < 0.2
        else:
            cells.used[cell] = source.randint(0, 4)
            cells.bound[cell] = source.choice([NO_CELL, *self.state.arrays.view_cell[:NODES]])
        note_change(self.state.arrays, cells, cell)


def physical_view() -> View:
    return View(empty_state(many_nodes()), 0)


def virtual_view() -> View:
    state = empty_state(many_nodes())
    state.cells.bad[: state.topology.physical_count] = np.arange(state.topology.physical_count) % 5 == 0
    return View(state, state.topology.vc_views[0, 0])


@pytest.mark.parametrize("make", [physical_view, virtual_view])
@pytest.mark.parametrize("most_changes", [1, 4, 16, 40])
def test_a_view_is_in_the_order_of_a_stable_sort(make: Callable[[], View], most_changes: int) -> None:
    source = random.Random(most_changes)
    view = make()
    for _ in range(60):
        for cell in source.sample(view.order, source.randint(0, most_changes)):
            view.change(source, cell)
        is_masked = source.random() < 0.15
        view.sort(np.array([source.random() < 0.7 for _ in range(NODES)]), not is_masked)
        if source.random() < 0.1:
            forget_order(view.state.arrays, view.state.cells)
        assert view.in_core() == view.order


def test_a_view_in_great_disorder_is_in_the_order_of_a_stable_sort() -> None:
    view = physical_view()
    for place, cell in enumerate(view.order):
        view.state.cells.used[cell] = (NODES - place) // 2
    view.sort(np.ones(0, np.bool_), True)
    assert view.in_core() == view.order


def test_ties_keep_their_order_when_cells_move_through_them() -> None:
    """All keys equal; the first and the last node fill up and empty again, in both orders."""
    view = physical_view()
    everything = np.ones(0, np.bool_)
    view.sort(everything, True)
    for changed in ([0, -1], [-1, 0], [3, 4, 5], [5, 3, 4]):
        for used in (1, 0):
            for cell in [view.order[place] for place in changed]:
                view.state.cells.used[cell] = used
                note_change(view.state.arrays, view.state.cells, cell)
            view.sort(everything, True)
            assert view.in_core() == view.order


def test_keys_are_kept_beside_the_cells_they_were_made_from() -> None:
    source = random.Random(5)
    view = physical_view()
    everything = np.ones(0, np.bool_)
    for _ in range(30):
        for cell in source.sample(view.order, 3):
            view.change(source, cell)
        view.sort(everything, True)
    arrays, cells = view.state.arrays, view.state.cells
    expected = [view_key(arrays, cells, cell, everything, True) for cell in view.in_core()]
    assert cells.view_keys[:NODES].tolist() == expected


@pytest.mark.parametrize("make", [physical_view, virtual_view])
def test_the_number_of_used_leaves_can_be_read_from_a_key(make: Callable[[], View]) -> None:
    source = random.Random(9)
    view = make()
    mask = np.array([source.random() < 0.5 for _ in range(NODES)])
    for cell in view.order:
        view.change(source, cell)
    arrays, cells = view.state.arrays, view.state.cells
    read = [used_in_key(view_key(arrays, cells, cell, mask, False)) for cell in view.order]
    assert read == [cells.used[cell] for cell in view.order]


def test_a_cell_that_changes_twice_is_noted_once() -> None:
    view = physical_view()
    for _ in range(2):
        note_change(view.state.arrays, view.state.cells, view.order[3])
    assert view.state.cells.changed_count[0] == 1


def test_a_change_of_a_cell_that_is_in_no_view_is_not_noted() -> None:
    view = physical_view()
    note_change(view.state.arrays, view.state.cells, 0)
    assert not view.state.cells.changed_count.any()


def test_sorting_one_view_leaves_the_others_alone() -> None:
    view = physical_view()
    other = View(view.state, view.state.topology.vc_views[0, 0])
    for cell in (*view.order[-3:], *other.order[-3:]):
        view.state.cells.used[cell] = 1
        note_change(view.state.arrays, view.state.cells, cell)
    view.sort(np.ones(0, np.bool_), True)
    assert other.in_core() == other.order


@pytest.mark.parametrize("most_changes", [1, 40])
def test_every_cell_knows_its_place(most_changes: int) -> None:
    source = random.Random(most_changes)
    view = virtual_view()
    everything = np.ones(0, np.bool_)
    start = view.state.arrays.view_start[view.view]
    for _ in range(30):
        for cell in source.sample(view.order, source.randint(0, most_changes)):
            view.change(source, cell)
        view.sort(everything, True)
        places = [int(view.state.cells.view_place[cell]) - start for cell in view.in_core()]
        assert places == list(range(NODES))


def test_no_node_before_the_least_key_has_so_few_used_leaves() -> None:
    source = random.Random(3)
    view = virtual_view()
    for cell in view.order:
        view.change(source, cell)
    view.sort(np.ones(0, np.bool_), True)
    arrays, cells = view.state.arrays, view.state.cells
    start, end = arrays.view_start[view.view], arrays.view_start[view.view + 1]
    keys = cells.view_keys[start:end]
    for used in range(5):
        before = keys[keys < least_key(used)]
        assert all(used_in_key(key) > used for key in before.tolist())
        assert keys[0] < least_key(used) or used_in_key(keys[0]) <= used
