"""The room of a view on the hardware: all leaves that its pods could get, whichever virtual cells stand behind.

A bound physical cell has as many unbound children as its virtual cell, so every leaf below it can come to be the VC's.
Everything else takes a preassigned cell: of a level of which the VC has one left, at a physical cell that is free as a
whole. Whole cells above it are split for that. VC safety holds exactly if no level is split more often than it has
cells to spare (`safety`).

A *row* is a possible place of a pod: a node-level cell, or a lower cell that is or could be a preassigned one. It is
open if it is below a preassigned cell of the VC. Rows of one level stand in the order of their cells. The rows above
and below a free row stand for the same leaves: opening one ends the others.
"""

from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hived.cells.safety import good_spare_of, spare_of
from hived.cells.state import NO_GROUP, CellState, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray
from hived.cells.views import first_cell
from hived.complete.owners import ChainShape, Owners, by_place, free_cells
from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY

Value = TypeVar("Value", bound=np.generic)

# Rank of a leaf: how much it costs others to take it. A search takes leaves up to a rank.
IDLE, LENT_ELASTIC, LENT, ELASTIC, LOWER, NEVER = range(6)


_ANY = 1 << 30  # splits of good cells, if any number may be split


class Opening(NamedTuple):
    """The undo record of a preassigned cell that was taken."""

    level: int
    place: int
    split: tuple[int, ...]  # levels above it of which a cell was split


class Splits:
    """The splits of free cells that leave every VC its promises; `left` says how many of each level."""

    def __init__(self, state: State, shape: ChainShape, *, keeps_good: bool) -> None:
        """With `keeps_good`, good cells are left for as many claims as before (rule 18.7). Cost O(levels)."""
        spare = spare_of(state, shape.chain)[shape.offset :].tolist()
        good = good_spare_of(state, shape.chain)[shape.offset :].tolist()
        self.left = [max(0, count) for count in spare]
        self._good_left = [count if keeps_good and count >= 0 else _ANY for count in good]
        self._is_good = [np.zeros(0, np.bool_)] * (shape.top + 1)
        for level in range(1, shape.top + 1):
            self._is_good[level] = state.cells.bad[shape.cells(level)] == 0

    def kept_whole(self, level: int, free: BoolArray) -> BoolArray:
        """Mask the free cells of a level that must not be split."""
        if self.left[level] == 0:
            return free
        return free & self._is_good[level] if self._good_left[level] == 0 else np.zeros_like(free)

    def count(self, level: int, place: int, more: int) -> None:
        """Count one more split of a cell of a level; -1: one less."""
        self.left[level] -= more
        self._good_left[level] -= more * int(self._is_good[level][place])


class Capacity:
    """The rows of a view, and the leaves given to a group so far; the state itself does not change."""

    def __init__(self, state: State, view: int, priority: int, *, keeps_good: bool = False) -> None:
        """Look at a view for pods of a priority. Cost O(cells of the chain), in sweeps of arrays.

        keeps_good : leave good cells for as many claims as now (rule 18.7)
        """
        arrays, first = state.arrays, first_cell(state, view)
        self._state, self._first, self.priority = state, first, priority
        self.is_guaranteed = bool(arrays.vc[first] != NO_CELL)
        self.shape = ChainShape(state, int(arrays.chain_of_level[arrays.chain_level[first]]))
        self.owners = Owners(state, view, self.shape)
        self.free = free_cells(state, self.shape)
        self._read_promises(keeps_good=keeps_good)
        levels = [level for level in range(1, self.shape.node_level) if self._roots(level)] if self._may_open() else []
        self.levels = [self.shape.node_level, *levels]
        self._make_rows()
        self.demand = np.zeros(len(self.cell), np.int64)
        self._refresh()

    def _may_open(self) -> bool:
        return self.is_guaranteed and self._state.arrays.pinned[self._state.arrays.root[self._first]] == 0

    def _slot(self, level: int) -> int:
        arrays = self._state.arrays
        return int(arrays.vc[self._first]) * len(arrays.child_count) + self.shape.offset + level

    def _roots(self, level: int) -> int:
        return int(self._state.arrays.root_count[self._slot(level)])

    def _read_promises(self, *, keeps_good: bool) -> None:
        """Read how many preassigned cells of each level are left, and the splits allowed for them."""
        self.claims = [0] * (self.shape.top + 1)
        self._splits = Splits(self._state, self.shape, keeps_good=keeps_good)
        if self._may_open():
            for level in range(1, self.shape.top + 1):
                self.claims[level] = int(self._state.cells.vc_claims[self._slot(level)])

    def _make_rows(self) -> None:
        arrays = self._state.arrays
        cells: list[IntArray] = []
        levels, is_open, own_level = [], [], []
        self.start: dict[int, int] = {}
        for level in self.levels:
            self.start[level] = sum(map(len, cells))
            owner, mine = self.owners.owner(level), self.owners.mine(level)
            owned = np.where(mine, arrays.level[owner], 0)
            here = self.shape.cells(level)
            cells.append(np.arange(here.start, here.stop, dtype=np.int32))
            levels.append(np.full(len(owner), level))
            is_open.append(mine if level == self.shape.node_level else mine & (owned == level))
            own_level.append(owned)
        self.cell = np.concatenate(cells)
        self.level = np.concatenate(levels)
        self.is_open = np.concatenate(is_open)
        self.root_level = np.concatenate(own_level)  # of the preassigned cell of rows that are open
        self.node = arrays.node[self.cell]
        self.parent = arrays.parent[self.cell]
        self.is_bad = self._state.cells.bad[self.cell] == 1  # in part, or as a whole
        self.first_leaf = arrays.first_leaf[self.cell]

    @cached_property
    def rank(self) -> npt.NDArray[np.int8]:
        """The rank of every leaf of the chain, computed on first use."""
        cells, here = self._state.cells, self.shape.cells(1)
        priority, own = cells.priority[here], self.owners.owner(1)
        rank = np.full(len(own), NEVER, np.int8)
        rank[priority == FREE_PRIORITY] = IDLE
        if self.is_guaranteed:
            is_elastic = cells.elastic[here] == 1
            mine = self.owners.mine(1)
            rank[priority == OPPORTUNISTIC_PRIORITY] = LENT
            rank[(priority == OPPORTUNISTIC_PRIORITY) & is_elastic] = LENT_ELASTIC
            lower = mine & (priority >= MIN_GUARANTEED_PRIORITY) & (priority < self.priority)
            if lower.any():
                is_used = cells.state[here] == CellState.USED
                rank[lower] = LOWER
                rank[lower & is_elastic & is_used] = ELASTIC
                rank[lower & is_used & np.isin(cells.using[here], self._lazy_numbers())] = NEVER
            rank[~mine & (own != NO_CELL)] = NEVER
        rank[cells.bad[here] == 1] = NEVER
        return rank

    def _lazy_numbers(self) -> list[int]:
        """Groups that are preempted lazily before their cells are taken: they leave the VC and keep their cells."""
        if not self._state.lazy_group_count:
            return []
        groups = self._state.groups.values()
        return [group.number for group in groups if group.spec.lazy_preemption and group.virtual is not None]

    def take_up_to(self, rank: int) -> None:
        """Count the leaves of each row up to a rank, `room`, and of them the `idle` ones.

        `evict` tells if any has a user.
        """
        using = self._state.cells.using[self.shape.cells(1)]
        is_idle, is_taken = self.rank == IDLE, self.rank <= rank
        in_use = is_taken & (using != NO_GROUP)
        idle, taken, evicts = [], [], []
        for level in self.levels:
            span = self.shape.span(level, 1)
            idle.append(by_place(is_idle, span).sum(axis=0))
            taken.append(by_place(is_taken, span).sum(axis=0))
            evicts.append(by_place(in_use, span).any(axis=0))
        self.idle: LongArray = np.concatenate(idle)
        self.room: LongArray = np.concatenate(taken)  # leaves that may be taken in all
        self.evicts: BoolArray = np.concatenate(evicts)

    def _refresh(self) -> None:
        """Recompute the cells that can be opened, and the splits for each: `can[level]`, `splits[level]`."""
        self.can: list[BoolArray] = [np.zeros(0, np.bool_)] * (self.shape.top + 1)
        self.splits: list[LongArray] = [np.zeros(0, np.int64)] * (self.shape.top + 1)
        lowest = min(self.levels)
        top = self.shape.top
        blocked, splits = np.zeros(self.shape.size(top), np.bool_), np.zeros(self.shape.size(top), np.int64)
        for level in range(top, lowest - 1, -1):
            if self.claims[level] > 0:
                self.can[level] = self.free[level] & ~blocked
                self.splits[level] = splits
            if level > lowest:
                span = self.shape.span(level, level - 1)
                splits = np.repeat(splits + self.free[level], span)
                blocked = np.repeat(blocked | self._splits.kept_whole(level, self.free[level]), span)

    def options(self) -> list[int]:
        """The levels of which a preassigned cell could be taken."""
        return [level for level in range(1, self.shape.top + 1) if len(self.can[level]) and self.can[level].any()]

    def reachable(self) -> BoolArray:
        """The rows that are open or could be opened."""
        found = self.is_open.copy()
        for level in self.options():
            found[self.rows_for(level)] |= self.spread_to_rows(level, self.can[level])
        return found

    def rows_for(self, level: int) -> slice:
        """The rows that open with a preassigned cell of a level."""
        own = min(level, self.shape.node_level)
        return slice(self.start[own], self.start[own] + self.shape.size(own))

    def spread_to_rows(self, level: int, values: npt.NDArray[Value]) -> npt.NDArray[Value]:
        """Values of the cells of a level for the rows that open with them."""
        nodes = self.shape.node_level
        return np.repeat(values, self.shape.span(level, nodes)) if level > nodes else values

    def place_above(self, row: int, level: int) -> int:
        """The cell of a level, counted from the first, that is at or above a row."""
        own = int(self.level[row])
        return (row - self.start[own]) // self.shape.span(level, own)

    def open_cell(self, level: int, place: int) -> Opening:
        """Take a preassigned cell of a level at a physical cell that `can` have it. Cost O(rows)."""
        split = []
        for above in range(self.shape.top, level, -1):
            cell = place // self.shape.span(above, level)
            if self.free[above][cell]:
                self.free[above][cell] = False
                self._splits.count(above, cell, 1)
                split.append(above)
        self._mark(level, place, is_open=True)
        self.claims[level] -= 1
        self._refresh()
        return Opening(level, place, tuple(split))

    def close_cell(self, opening: Opening) -> None:
        """Undo `open_cell`; the last opening first."""
        level, place, split = opening
        for above in split:
            cell = place // self.shape.span(above, level)
            self.free[above][cell] = True
            self._splits.count(above, cell, -1)
        self._mark(level, place, is_open=False)
        self.claims[level] += 1
        self._refresh()

    def _mark(self, level: int, place: int, *, is_open: bool) -> None:
        for below in range(level, min(self.levels) - 1, -1):
            span = self.shape.span(level, below)
            self.free[below][place * span : (place + 1) * span] = not is_open
        own = min(level, self.shape.node_level)
        span = self.shape.span(level, own)
        rows = slice(self.start[own] + place * span, self.start[own] + (place + 1) * span)
        self.is_open[rows] = is_open
        self.root_level[rows] = level if is_open else 0

    def most(self, fits: LongArray) -> int:
        """The most pods that can be placed if `fits[row]` fit into a row: a bound, not a promise.

        Rows to be opened count as far as the VC has preassigned cells of each level, and cells above may be split.
        """
        return int(fits[self.is_open].sum()) + self.most_to_open(fits)

    def most_to_open(self, fits: LongArray) -> int:
        """The part of `most` in rows that are not open yet; the same until a cell is opened or closed."""
        total = 0
        for level in self.options():
            rows = self.rows_for(level)
            own = np.where(self.is_open[rows], 0, fits[rows])
            span = len(own) // self.shape.size(level)
            sums = (own.reshape(-1, span).sum(axis=1) if span > 1 else own) * self.can[level]
            part = _top(sums, self.claims[level])
            for above in range(level + 1, self.shape.top + 1):
                sums = sums.reshape(-1, self.shape.span(above, above - 1)).sum(axis=1)
                whole = self.free[above]
                part = min(part, int(sums[~whole].sum()) + _top(sums[whole], self._splits.left[above]))
            total += part
        return total


def _top(values: LongArray, count: int) -> int:
    """The sum of the so many greatest values."""
    return int(values.sum()) if count >= len(values) else int(np.sort(values)[len(values) - count :].sum())
