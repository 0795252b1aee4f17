"""Finds other virtual cells that are just like the chosen ones, for a VC that is sparing (rules 18.4, 18.6).

Two cells are alike if the same groups use the leaves below them, and below the cells above them, in trees of one shape.
Empty cells of one parent always are; the mapping tries these. Here are the others: cells that differ only for groups
which run on both. Their numbers still differ, and later decide between equally full cells. So in time the VC may choose
otherwise than in a private cluster.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hived.cells.state import NO_GROUP, State
from hived.cells.topology import NO_CELL, IntArray
from hived.values.specs import FREE_PRIORITY

MOST_LIKE = 8
"""So many other choices are looked at."""

_Codes = npt.NDArray[np.uint64]
_FREE, _BAD, _FIRST_GROUP = 0, 1, 2  # in place of the group of a leaf
_STEP = np.uint64(0x9E3779B97F4A7C15)  # odd, and without pattern: 2^64 over the golden ratio


def like_choices(state: State, virtual: IntArray) -> list[IntArray]:
    """Virtual leaves in cells that are like those of `virtual`, below other hardware; at most MOST_LIKE choices.

    virtual : leaves below one preassigned cell; others have no like. Cost O(cells of the VC), in numpy.
    """
    arrays = state.arrays
    root = int(arrays.root[virtual[0]])
    if (arrays.root[virtual] != root).any() or state.cells.used[root] == 0:
        return []
    row = _Row(state, root)
    top = int(virtual[0])
    while not (row.ancestors(virtual, int(arrays.level[top])) == top).all():
        top = int(arrays.parent[top])
    found, hardware = list[IntArray](), {_hardware(state, top)}
    for cell in row.like(top):
        if _hardware(state, cell) not in hardware and len(found) < MOST_LIKE:
            hardware.add(_hardware(state, cell))
            pairs = dict(row.pairs(top, cell))
            found.append(np.array([pairs[leaf] for leaf in virtual.tolist()], np.int32))
    return found


def _hardware(state: State, cell: int) -> int:
    """The lowest physical cell that is known to be behind a virtual cell or one above it, NO_CELL if none is."""
    while cell != NO_CELL and state.cells.bound[cell] == NO_CELL:
        cell = int(state.arrays.parent[cell])
    return cell if cell == NO_CELL else int(state.cells.bound[cell])


def _mixed(values: _Codes) -> _Codes:
    """Hash numbers; equal values have equal hashes (the finalizer of splitmix64)."""
    values = (values + _STEP) * np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class _Row:
    """The trees of preassigned cells of one level, and a code for each cell of them, equal for equal cells."""

    def __init__(self, state: State, root: int) -> None:
        arrays = state.arrays
        self._arrays = arrays
        chain_level = int(arrays.chain_level[root])
        slot = int(arrays.vc[root]) * len(arrays.child_count) + chain_level
        is_pinned = bool(arrays.pinned[root])
        first, count = (root, 1) if is_pinned else (int(arrays.root_base[slot]), int(arrays.root_count[slot]))
        self._first: dict[int, int] = {}  # by level, its first cell
        self._below: dict[int, _Codes] = {}  # by level, codes of what is below each cell
        self._whole: dict[int, _Codes] = {}  # by level, codes of that and of all that is above
        spans = {}
        for level in range(int(arrays.level[root]), 0, -1):
            self._first[level], spans[level] = first, int(arrays.child_count[chain_level])
            first, chain_level = int(arrays.first_child[first]), chain_level - 1
        leaves = self._first[1] + np.arange(count * int(arrays.leaf_count[arrays.chain_level[root]]))
        codes = _mixed(_labels(state, leaves))
        for level in sorted(self._first):
            if level > 1:
                codes = _mixed(codes.reshape(-1, spans[level]).sum(axis=1, dtype=np.uint64) + np.uint64(level))
            self._below[level] = codes
        above = np.zeros(count, np.uint64)
        for level in sorted(self._first, reverse=True):
            self._whole[level] = above = _mixed(self._below[level] + above)
            above = np.repeat(above, spans[level]) if level > 1 else above

    def ancestors(self, leaves: IntArray, level: int) -> IntArray:
        """The cell of a level above each leaf."""
        while self._arrays.level[leaves[0]] < level:
            leaves = self._arrays.parent[leaves]
        return leaves

    def like(self, cell: int) -> list[int]:
        """The cells that are like one, itself included, ascending."""
        level = int(self._arrays.level[cell])
        codes, first = self._whole[level], self._first[level]
        return (first + np.flatnonzero(codes == codes[cell - first])).tolist()

    def pairs(self, one: int, other: int) -> Iterator[tuple[int, int]]:
        """Pair each leaf of a cell with the leaf in the same place of another, like cell."""
        level = int(self._arrays.level[one])
        if level == 1:
            yield one, other
            return
        codes, first = self._below[level - 1], self._first[level - 1]
        span = int(self._arrays.child_count[self._arrays.chain_level[one]])
        orders = []
        for cell in (one, other):
            start = int(self._arrays.first_child[cell])
            order = np.argsort(codes[start - first : start - first + span], kind="stable")
            orders.append((start + order).tolist())
        for mine, theirs in zip(*orders, strict=True):
            yield from self.pairs(mine, theirs)


def _labels(state: State, leaves: npt.NDArray[np.int64]) -> _Codes:
    """Label each virtual leaf by the group that holds it, by bad health, or as free."""
    cells = state.cells
    physical = cells.bound[leaves]
    holder = np.where(cells.reserving[physical] != NO_GROUP, cells.reserving[physical], cells.using[physical])
    labels = np.where(cells.priority[leaves] == FREE_PRIORITY, _FREE, holder + _FIRST_GROUP)
    labels = np.where((labels == _FREE) & (physical != NO_CELL) & (cells.bad[leaves] == 1), _BAD, labels)
    return labels.astype(np.uint64)
