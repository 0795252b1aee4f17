"""The owners of the physical cells of a chain, as a view sees them (rules 3.1, 4.1).

The owner of a cell is the preassigned cell that it is bound to, or that one of the cells above it is bound to. Below an
owned cell everything has the same owner; a cell of which only parts are owned has none. Cells of a level are numbered
from the first one of the level.
"""

import numpy as np

from hived.cells.state import State
from hived.cells.topology import NO_CELL, BoolArray, IntArray
from hived.cells.views import first_cell


class ChainShape:
    """The physical cells of each level of a chain: 1 <= level <= top."""

    def __init__(self, state: State, chain: int) -> None:
        """Read the topology. Cost O(levels)."""
        arrays = state.arrays
        self.chain, self.offset = chain, int(arrays.level_offset[chain])
        self.top, self.node_level = int(arrays.top_level[chain]), int(arrays.node_level[chain])
        levels = slice(self.offset, self.offset + self.top + 1)
        self._base: list[int] = arrays.level_base[levels].tolist()
        self._size: list[int] = arrays.level_size[levels].tolist()
        self._leaves: list[int] = arrays.leaf_count[levels].tolist()

    def base(self, level: int) -> int:
        """The first cell of a level."""
        return self._base[level]

    def size(self, level: int) -> int:
        """The number of cells of a level."""
        return self._size[level]

    def cells(self, level: int) -> slice:
        """The cells of a level."""
        return slice(self._base[level], self._base[level] + self._size[level])

    def span(self, level: int, below: int) -> int:
        """The number of cells of a lower level in a cell."""
        return self._leaves[level] // self._leaves[below]


class Owners:
    """The owners of all cells of a chain, and which of them are in the view; nothing changes."""

    def __init__(self, state: State, view: int, shape: ChainShape) -> None:
        """Look at every cell. Cost O(cells of the chain), in sweeps of arrays."""
        self._arrays, self._first = state.arrays, first_cell(state, view)
        self._shape, self._is_guaranteed = shape, bool(state.arrays.vc[self._first] != NO_CELL)
        self._owner: list[IntArray] = [np.full(0, NO_CELL, np.int32)] * (shape.top + 1)
        self._is_mine: list[BoolArray] = [np.zeros(0, np.bool_)] * (shape.top + 1)
        owner, mine = np.full(shape.size(shape.top), NO_CELL, np.int32), np.zeros(shape.size(shape.top), np.bool_)
        for level in range(shape.top, 0, -1):
            if level < shape.top:
                span = shape.span(level + 1, level)
                owner, mine = np.repeat(owner, span), np.repeat(mine, span)
            bound = state.cells.bound[shape.cells(level)]
            new = np.flatnonzero((bound != NO_CELL) & (owner == NO_CELL))
            owner[new] = self._arrays.root[bound[new]]
            mine[new] = self._in_view(owner[new])
            self._owner[level], self._is_mine[level] = owner, mine

    def owner(self, level: int) -> IntArray:
        """The preassigned cell that each cell of a level is at or below, NO_CELL for none.

        callers must not change it.
        """
        return self._owner[level]

    def mine(self, level: int) -> BoolArray:
        """Mask the cells of a level at or below a preassigned cell of the view; all, if it is an opportunistic one."""
        return self._is_mine[level] if self._is_guaranteed else np.ones(self._shape.size(level), np.bool_)

    def _in_view(self, owner: IntArray) -> BoolArray:
        """Mask these preassigned cells by membership in the view."""
        arrays = self._arrays
        root = arrays.root[self._first]
        if not self._is_guaranteed or arrays.pinned[root]:
            return np.asarray(owner == root)
        return np.asarray((arrays.vc[owner] == arrays.vc[root]) & (arrays.pinned[owner] == 0))


def free_cells(state: State, shape: ChainShape) -> list[BoolArray]:
    """Mask, by level, the cells that are free as a whole: in a free list or below one in it.

    Cost O(cells of the chain).
    """
    free = [np.zeros(0, np.bool_)] * (shape.top + 1)
    for level in range(shape.top, 0, -1):
        free[level] = state.cells.free_position[shape.cells(level)] != NO_CELL
        if level < shape.top:
            free[level] |= np.repeat(free[level + 1], shape.span(level + 1, level))
    return free


def by_place(mask: BoolArray, span: int) -> BoolArray:
    """A mask of cells as one row for each place in a larger cell, shape (span, larger cells).

    To sum it up takes a third as long.
    """
    return np.ascontiguousarray(mask.reshape(-1, span).T)
