"""Views: the candidate nodes of a search, kept in the order in which a search walks them (rules 5.8, 6.1 to 6.5).

A view is re-sorted before each walk, stably and in place, and its order is kept even if nothing comes of the search.
Few nodes change between two searches, so cells note a change of anything that their place depends on, and only changed
cells are moved. Invariant: after `sort_view`, `view_order` equals a stable sort of the earlier order by `view_key`, and
`view_keys` holds the keys. For each cell c of the view, `view_order[view_place[c]] == c`.

An undo may take back only changes that were made after the last sort; `forget_order` must follow any other undo.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hived.cells.state import Cells, State
from hived.cells.topology import NO_CELL, BoolArray, Chain, TopologyArrays
from hived.kernels.jit import entry_kernel, kernel
from hived.values.specs import MIN_GUARANTEED_PRIORITY, PodSpec

_BAD, _NON_SUGGESTED = 1 << 62, 1 << 61
_ALIKE_SHIFT = 31
_MOST_LEAVES = 1 << 29
_HIGHER_MASK = (1 << _ALIKE_SHIFT) - 1
_MOST_MOVES = 16
_NODES_PER_LOOSE_MOVE = 32  # a loose move costs as much as so many nodes of a whole sort, or less
_SHIFTS_PER_CELL = 4
_ORDER = ("view_order", "view_place", "view_keys", "changed", "changed_count", "is_changed", "is_sorted")


def views_to_try(state: State, spec: PodSpec) -> Iterator[list[int]]:
    """For each leaf cell type in turn, the views of its chains (rules 5.8, 5.11)."""
    topology = state.topology
    vc = topology.vc_index[spec.virtual_cluster]
    if spec.pinned_cell_id:
        yield [topology.pinned_views[vc, spec.pinned_cell_id]]
        return
    types = [spec.leaf_cell_type] if spec.leaf_cell_type else list(topology.leaf_type_chains)
    for leaf_type in types:
        chains = topology.leaf_type_chains[leaf_type]
        if spec.priority < MIN_GUARANTEED_PRIORITY:
            yield list(chains)
        else:
            yield [topology.vc_views[vc, chain] for chain in chains if (vc, chain) in topology.vc_views]


def chain_of_view(state: State, view: int) -> Chain:
    """The chain that the cells of a view are in."""
    return state.topology.chain_of(first_cell(state, view))


def first_cell(state: State, view: int) -> int:
    """The first cell of a view, which gives its chain, its VC and its pinned cell, if any."""
    return int(state.arrays.view_cell[state.arrays.view_start[view]])


@kernel
def note_change(t: TopologyArrays, s: Cells, cell: int) -> None:
    """Record a change of the use, health or binding of a cell; cells outside of all views are ignored."""
    view = t.view_of[cell]
    if view != NO_CELL and s.is_changed[cell] == 0:
        s.is_changed[cell] = 1
        s.changed[t.view_start[view] + s.changed_count[view]] = cell
        s.changed_count[view] += 1


@entry_kernel
def forget_order(t: TopologyArrays, s: Cells) -> None:
    """Sort every view as a whole next time."""
    for view in range(len(s.is_sorted)):
        s.is_sorted[view] = 0
        _forget_changes(t, s, view)


@kernel
def _forget_changes(t: TopologyArrays, s: Cells, view: int) -> None:
    start = t.view_start[view]
    for i in range(start, start + s.changed_count[view]):
        s.is_changed[s.changed[i]] = 0
    s.changed_count[view] = 0


def save_order(s: Cells) -> list[npt.NDArray[np.int64]]:
    """Copies of the order of all views and of its upkeep, for `restore_order`. Cost O(cells)."""
    return [getattr(s, name).copy() for name in _ORDER]


def restore_order(s: Cells, saved: list[npt.NDArray[np.int64]]) -> None:
    """Put the views back in a saved order. All changes of cells made since must have been undone."""
    for name, values in zip(_ORDER, saved, strict=True):
        getattr(s, name)[:] = values


def order_alike(s: Cells, model: Cells) -> None:
    """Let the next sort of every view begin with the order of another state of the same topology. Cost O(cells)."""
    for name in _ORDER:
        array = getattr(s, name)
        if name in ("view_order", "view_place"):
            array[:] = getattr(model, name)
        else:
            array[:] = 0


@kernel
def physical_of(t: TopologyArrays, s: Cells, cell: int) -> int:
    """The physical cell behind a cell of a view, NO_CELL if it is virtual and unbound (rule 6.5)."""
    return cell if t.vc[cell] == NO_CELL else s.bound[cell]


@kernel
def is_bad_as_a_whole(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """True if every leaf of this bad physical cell, at or below node level, is bad: by its node, or all lost."""
    lost = s.lost[cell]
    return bool(lost == 0 or lost == t.leaf_count[t.chain_level[cell]] or s.node_bad[t.node[cell]] == 1)


@kernel
def may_use(t: TopologyArrays, s: Cells, cell: int, suggested: BoolArray, ignore_suggested: bool) -> bool:
    """True if a cell at or below node level is not bound yet, or its hardware is healthy and suggested."""
    physical = physical_of(t, s, cell)
    if physical == NO_CELL:
        return True
    if s.bad[physical] == 1 and is_bad_as_a_whole(t, s, physical):
        return False
    return bool(ignore_suggested or suggested[t.node[physical]])


@kernel
def view_key(t: TopologyArrays, s: Cells, cell: int, suggested: BoolArray, ignore_suggested: bool) -> int:
    """Sort key of a node: healthy, suggested, more used alike first, then less used at higher priority (rule 6.4).

    A node that has lost some of its leaves is healthy: the others are there.
    """
    key = 0
    physical = physical_of(t, s, cell)
    if physical != NO_CELL:
        if s.bad[physical] == 1 and is_bad_as_a_whole(t, s, physical):
            key += _BAD
        if not ignore_suggested and not suggested[t.node[physical]]:
            key += _NON_SUGGESTED
    if t.vc[cell] == NO_CELL:
        alike = int(s.opportunistic_used[cell])
        higher = int(s.used[cell]) - alike
    else:
        alike = int(s.used[cell])
        higher = 0
    return key + ((_MOST_LEAVES - alike) << _ALIKE_SHIFT) + higher


@kernel
def least_key(used: int) -> int:
    """The least key of a node with so many used leaves; nodes with a higher key may have as many."""
    return (_MOST_LEAVES - int(used)) << _ALIKE_SHIFT


@kernel
def used_in_key(key: int) -> int:
    """The number of used leaves that a key was made from."""
    return _MOST_LEAVES - ((key & (_NON_SUGGESTED - 1)) >> _ALIKE_SHIFT) + (key & _HIGHER_MASK)


@kernel
def sort_view(t: TopologyArrays, s: Cells, view: int, suggested: BoolArray, ignore_suggested: bool) -> None:
    """Sort a view. Cost O(changed nodes x nodes) in plain sweeps of an array, else O(nodes x log nodes)."""
    if ignore_suggested and s.is_sorted[view] == 1 and s.changed_count[view] <= _MOST_MOVES:
        _move_changed(t, s, view, suggested)
    else:
        _sort_whole(t, s, view, suggested, ignore_suggested)
        s.is_sorted[view] = 1 if ignore_suggested else 0
    _forget_changes(t, s, view)


@entry_kernel
def forget_moves(t: TopologyArrays, s: Cells, view: int) -> None:
    """Begin the next sort with the initial order of a view. Cost O(nodes)."""
    for position in range(t.view_start[view], t.view_start[view + 1]):
        s.view_order[position] = t.view_cell[position]
    s.is_sorted[view] = 0


@kernel
def sort_loosely(t: TopologyArrays, s: Cells, view: int, suggested: BoolArray, ignore_suggested: bool) -> None:
    """Sort a view as `sort_view`, but equal cells in any order: callers choose among these.

    Cost O(changed nodes x different keys x log nodes), so that it does not grow with the number of equal nodes.
    """
    moves = s.changed_count[view] * _NODES_PER_LOOSE_MOVE
    if ignore_suggested and s.is_sorted[view] == 1 and moves <= t.view_start[view + 1] - t.view_start[view]:
        _move_loosely(t, s, view, suggested)
        _forget_changes(t, s, view)
    else:
        sort_view(t, s, view, suggested, ignore_suggested)


@kernel
def _move_loosely(t: TopologyArrays, s: Cells, view: int, suggested: BoolArray) -> None:
    """Move the changed cells one by one, from run to run of equal keys: the cell at the near end fills the gap."""
    start, end = t.view_start[view], t.view_start[view + 1]
    for i in range(start, start + s.changed_count[view]):
        cell = s.changed[i]
        key, gap = view_key(t, s, cell, suggested, True), s.view_place[cell]
        while key > s.view_keys[gap]:
            last = start + np.searchsorted(s.view_keys[start:end], s.view_keys[gap] + 1) - 1
            if last > gap:
                _put_at(s, gap, s.view_order[last], s.view_keys[last])
                gap = last
            s.view_keys[gap] = key if gap + 1 == end else min(key, s.view_keys[gap + 1])
        while key < s.view_keys[gap]:
            first = start + np.searchsorted(s.view_keys[start:end], s.view_keys[gap])
            if first < gap:
                _put_at(s, gap, s.view_order[first], s.view_keys[first])
                gap = first
            s.view_keys[gap] = key if gap == start else max(key, s.view_keys[gap - 1])
        _put_at(s, gap, cell, key)


@kernel
def _sort_whole(t: TopologyArrays, s: Cells, view: int, suggested: BoolArray, ignore_suggested: bool) -> None:
    """Sort the whole view, stably: by insertion while few cells moved, else by merging."""
    start = t.view_start[view]
    order = s.view_order[start : t.view_start[view + 1]]
    keys = s.view_keys[start : t.view_start[view + 1]]
    count = len(order)
    for i in range(count):
        keys[i] = view_key(t, s, order[i], suggested, ignore_suggested)
    shifts = 0
    for i in range(1, count):
        if keys[i - 1] <= keys[i]:
            continue
        key, cell, place = keys[i], order[i], i
        while place > 0 and keys[place - 1] > key:
            keys[place] = keys[place - 1]
            order[place] = order[place - 1]
            place -= 1
        keys[place] = key
        order[place] = cell
        shifts += i - place
        if shifts > _SHIFTS_PER_CELL * count:
            by_key = np.argsort(keys, kind="mergesort")
            sorted_order, sorted_keys = order[by_key], keys[by_key]
            for k in range(count):
                order[k], keys[k] = sorted_order[k], sorted_keys[k]
            break
    for i in range(count):
        s.view_place[order[i]] = start + i


@kernel
def _move_changed(t: TopologyArrays, s: Cells, view: int, suggested: BoolArray) -> None:
    """Move the changed cells one by one to their places in a stable sort.

    Cells that move back go in descending, cells that move forward in ascending order of their place: so cells that meet
    in one run of equal keys keep their order, before and behind the cells that were there.
    """
    start, end = t.view_start[view], t.view_start[view + 1]
    changed = s.changed[start : start + s.changed_count[view]]
    for i in range(1, len(changed)):
        cell, k = changed[i], i
        while k > 0 and s.view_place[changed[k - 1]] > s.view_place[cell]:
            changed[k] = changed[k - 1]
            k -= 1
        changed[k] = cell
    for i in range(len(changed) - 1, -1, -1):
        key = view_key(t, s, changed[i], suggested, True)
        place = s.view_place[changed[i]]
        if key > s.view_keys[place]:
            while place + 1 < end and s.view_keys[place + 1] < key:
                _put_at(s, place, s.view_order[place + 1], s.view_keys[place + 1])
                place += 1
            _put_at(s, place, changed[i], key)
    for i in range(len(changed)):
        key = view_key(t, s, changed[i], suggested, True)
        place = s.view_place[changed[i]]
        if key < s.view_keys[place]:
            while place > start and s.view_keys[place - 1] > key:
                _put_at(s, place, s.view_order[place - 1], s.view_keys[place - 1])
                place -= 1
            _put_at(s, place, changed[i], key)


@kernel
def _put_at(s: Cells, place: int, cell: int, key: int) -> None:
    s.view_order[place] = cell
    s.view_place[cell] = place
    s.view_keys[place] = key
