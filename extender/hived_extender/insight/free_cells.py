"""Free cells by level: how many whole cells of each level a virtual cluster could give to guaranteed jobs at once.

Jobs ask for pods, and the core finds cells for them. Here no job is asked about: cells are counted, level by level, in
sweeps of whole arrays. Below a preassigned cell that is bound already, a cell is free if its hardware is good and no
guaranteed job is on it. Preassigned cells without hardware get free physical cells, so that most cells of the level are
good; no level is split more often than VC safety leaves it to spare (rules 4.3, 7.7). Opportunistic jobs leave for
guaranteed ones, and are in the way of none.

Levels above the node say how many racks, for example, could be given as a whole to jobs that ask for one with
`withinCell` (rule 18.10). Under better rules (rules 18) the counts are exact: no job for as many cells waits. The
reference's rules may miss a placement that exists.
"""

from collections.abc import Iterator

import msgspec
import numpy as np

from hived.cells.state import State
from hived.cells.topology import NO_CELL, BoolArray, Forest, IntArray, LongArray
from hived.life.status import CellStatus, copy_cells
from hived.values.specs import FREE_PRIORITY
from hived_extender.api.waiting import FreeCells


def free_cells(source: State | CellStatus, *, releases_doomed: bool = True) -> list[FreeCells]:
    """A row for each virtual cluster, chain and level, top level first; for each pinned cell, rows of its own.

    releases_doomed : may cells that are bound only to show bad hardware be bound anew? True under better rules (19.3)

    Cost O(cells x levels) in sweeps, some ms at 16,384 nodes; does not change the state.
    """
    cells = source if isinstance(source, CellStatus) else copy_cells(source)
    topology = cells.topology
    rows: list[FreeCells] = []
    chains = [_Chain(cells, number, releases_doomed) for number in range(len(topology.chains))]
    for vc, name in enumerate(topology.vc_names):
        for chain in chains:
            forests = [forest for forest in topology.forests if forest.vc == vc and forest.chain == chain.number]
            unpinned = [forest for forest in forests if not forest.pinned_cell_id]
            rows += chain.rows(name, vc, unpinned, "")
            for forest in forests:
                if forest.pinned_cell_id:
                    rows += chain.rows(name, NO_CELL, [forest], forest.pinned_cell_id)
    return rows


class _Counted(msgspec.Struct):
    """Cells of one level, of some preassigned cells."""

    promised: int = 0
    in_use: int = 0
    free: int = 0
    lent: int = 0
    in_use_bad: int = 0


class _Chain:
    """The cells of one chain by level: arrays have an entry for each physical cell of the level, in index order."""

    def __init__(self, cells: CellStatus, number: int, releases_doomed: bool) -> None:
        self.number = number
        self._cells, self._releases = cells, releases_doomed
        topology, chain = cells.topology, cells.topology.chains[number]
        self._chain, self._top = chain, chain.top_level
        physical = next(one for one in topology.forests if one.chain == number and one.vc == NO_CELL)
        self._base = physical.bases
        self._sizes = [
            0,
            *(physical.tree_count * chain.leaf_count(self._top) // chain.leaf_count(k + 1) for k in range(self._top)),
        ]
        self._own = [one for one in topology.forests if one.chain == number and one.vc != NO_CELL]
        self._bound = self._bound_by_level()
        self._good = [self._of(cells.bad, level) == 0 for level in self._levels()]
        self._lent = self._any_below(self._of(cells.lent_to, 1) != NO_CELL)
        self._unused = [self._is_unused(bound) for bound in self._bound]
        self._free = self._free_by_level()
        self._listed = [self._is_listed(level) for level in self._levels()]
        self._spare = self._spare_by_level()
        self._borrowed = self._borrowed_by_level()

    # The arrays, with an entry for level 0 that is empty

    def _levels(self) -> range:
        return range(self._top + 1)

    def _of(self, array: IntArray, level: int) -> IntArray:
        if level == 0:
            return array[:0]
        return array[self._base[level] : self._base[level] + self._sizes[level]]

    def _ratio(self, high: int, low: int) -> int:
        """Cells of level `low` below one of level `high`."""
        return self._chain.leaf_count(high) // self._chain.leaf_count(low)

    def _any_below(self, leaves: BoolArray) -> list[BoolArray]:
        found = [leaves[:0], leaves]
        for level in range(2, self._top + 1):
            found.append(np.asarray(found[-1].reshape(self._sizes[level], -1).any(axis=1)))
        return found

    def _is_idle(self, forest: Forest) -> BoolArray:
        """Roots that are bound although no guaranteed job is below them: only to show bad hardware."""
        roots = slice(forest.first_root, forest.first_root + forest.tree_count)
        idle: BoolArray = (self._cells.bound[roots] != NO_CELL) & (self._cells.priority[roots] == FREE_PRIORITY)
        return idle if not forest.pinned_cell_id else np.zeros_like(idle)

    def _bound_by_level(self) -> list[IntArray]:
        """The virtual cell of each physical one; without idle doomed cells, where these may be released."""
        found = [self._of(self._cells.bound, level) for level in self._levels()]
        if not self._releases:
            return found
        for forest in self._own:
            roots = np.flatnonzero(self._is_idle(forest)) + forest.first_root
            if not len(roots):
                continue
            places = self._cells.bound[roots] - self._base[forest.top_level]
            for level in range(1, forest.top_level + 1):
                found[level] = found[level].copy()
                found[level].reshape(-1, self._ratio(forest.top_level, level))[places] = NO_CELL
        return found

    def _is_unused(self, bound: IntArray) -> BoolArray:
        """Cells that no guaranteed job uses: not bound, or to a virtual cell that is free."""
        priority = self._cells.priority[np.where(bound == NO_CELL, 0, bound)]
        unused: BoolArray = (bound == NO_CELL) | (priority == FREE_PRIORITY)
        return unused

    def _free_by_level(self) -> list[BoolArray]:
        """Cells that nothing above, at or below is bound of: free, at any level."""
        has_bound = [self._bound[0] != NO_CELL]
        for level in range(1, self._top + 1):
            own = self._bound[level] != NO_CELL
            has_bound.append(own if level == 1 else own | has_bound[-1].reshape(len(own), -1).any(axis=1))
        free = [~each for each in has_bound]
        is_below = self._bound[self._top] != NO_CELL
        for level in range(self._top - 1, 0, -1):
            is_below = np.repeat(is_below, self._ratio(level + 1, level)) | (self._bound[level] != NO_CELL)
            free[level] &= ~is_below
        return free

    def _is_listed(self, level: int) -> BoolArray:
        """Free cells whose parent is not free."""
        if level in (0, self._top):
            return self._free[level]
        return self._free[level] & ~np.repeat(self._free[level + 1], self._ratio(level + 1, level))

    def _unbound(self, forest: Forest) -> int:
        roots = slice(forest.first_root, forest.first_root + forest.tree_count)
        count = int((self._cells.bound[roots] == NO_CELL).sum())
        return count + (int(self._is_idle(forest).sum()) if self._releases else 0)

    def _spare_by_level(self) -> list[int]:
        """Return how many cells of each level may be split (rule 4.3)."""
        claims = [0] * (self._top + 1)
        for forest in self._own:
            if not forest.pinned_cell_id:
                claims[forest.top_level] += self._unbound(forest)
        spare, above = [0] * (self._top + 1), 0
        for level in range(self._top, 0, -1):
            above = spare[level] = int(self._listed[level].sum()) - claims[level] + above
            above *= self._chain.child_counts[level - 1]
        return spare

    def _borrowed_by_level(self) -> list[LongArray]:
        """By level, how many cells opportunistic jobs of each configured VC use, wholly or in part."""
        lent_to = self._of(self._cells.lent_to, 1)
        count = len(self._cells.topology.vc_names)
        leaves = np.flatnonzero((lent_to != NO_CELL) & (lent_to < count))
        vcs = lent_to[leaves].astype(np.int64)
        found = [np.zeros(count, np.int64)]
        for level in range(1, self._top + 1):
            pairs = np.unique(vcs * self._sizes[level] + leaves // self._chain.leaf_count(level))
            found.append(np.bincount(pairs // self._sizes[level], minlength=count))
        return found

    # Counting

    def rows(self, name: str, vc: int, forests: list[Forest], pinned: str) -> Iterator[FreeCells]:
        """The rows of a virtual cluster for these preassigned cells; none for levels that it neither has nor uses.

        `vc` is NO_CELL for rows that count no borrowed cells.
        """
        for level in range(self._top, 0, -1):
            counted = _Counted()
            above = [forest for forest in forests if forest.top_level >= level]
            for forest in above:
                self._add_bound(counted, forest, level)
            self._add_unbound(counted, above, level)
            borrowed = int(self._borrowed[level][vc]) if vc != NO_CELL else 0
            if counted.promised or borrowed:
                yield FreeCells(
                    vc=name,
                    chain=self._chain.name,
                    level=self._chain.types[level - 1],
                    leaves=self._chain.leaf_count(level),
                    promised=counted.promised,
                    in_use=counted.in_use,
                    lent=counted.lent,
                    bad=counted.promised - counted.in_use - counted.free,
                    free=counted.free,
                    borrowed=borrowed,
                    pinned=pinned,
                    in_use_bad=counted.in_use_bad,
                )

    def _add_bound(self, counted: _Counted, forest: Forest, level: int) -> None:
        """Cells of preassigned cells that have hardware."""
        ratio = self._ratio(forest.top_level, level)
        first, count = forest.bases[level], forest.tree_count * ratio
        counted.promised += count
        is_used = self._cells.priority[first : first + count] > FREE_PRIORITY
        hardware = self._cells.bound[first : first + count][is_used]
        counted.in_use += int(is_used.sum())
        counted.in_use_bad += int((self._cells.bad[hardware[hardware != NO_CELL]] != 0).sum())
        bound = self._cells.bound[forest.first_root : forest.first_root + forest.tree_count]
        has_hardware = bound != NO_CELL
        if self._releases:
            has_hardware &= ~self._is_idle(forest)
        places = bound[has_hardware] - self._base[forest.top_level]
        if len(places):
            free = (self._good[level] & self._unused[level]).reshape(-1, ratio)[places]
            counted.free += int(free.sum())
            counted.lent += int((free & self._lent[level].reshape(-1, ratio)[places]).sum())

    def _add_unbound(self, counted: _Counted, forests: list[Forest], level: int) -> None:
        """Cells of preassigned cells that would get free physical cells, the largest first."""
        wanted: dict[int, int] = {}
        for forest in forests:
            if not forest.pinned_cell_id and (count := self._unbound(forest)):
                wanted[forest.top_level] = wanted.get(forest.top_level, 0) + count
        if not wanted:
            return
        choice = _Choice(self._free, self._listed, self._spare, [0, *self._chain.child_counts])
        for top in sorted(wanted, reverse=True):
            ratio = self._ratio(top, level)
            good = self._good[level].reshape(-1, ratio).sum(axis=1)
            idle = (self._good[level] & ~self._lent[level]).reshape(-1, ratio).sum(axis=1)
            counted.free += choice.take(top, wanted[top], good)
            counted.lent += choice.lent(good, idle)


class _Choice:
    """Free physical cells for the preassigned cells of one VC, taken level by level from the top."""

    def __init__(self, free: list[BoolArray], listed: list[BoolArray], spare: list[int], children: list[int]) -> None:
        """`children[level]` has the children of a cell of the level; a level that is short anyway forbids no split."""
        self._free, self._listed, self._children = free, listed, children
        self._top = len(free) - 1
        self._left = [count if count >= 0 else len(own) for count, own in zip(spare, free, strict=True)]
        self._split: list[BoolArray] = [np.zeros(len(own), np.bool_) for own in free]
        self._taken: list[tuple[int, LongArray]] = []
        self._candidates: LongArray = np.zeros(0, np.int64)
        self._last: LongArray = np.zeros(0, np.int64)

    def take(self, level: int, count: int, worth: IntArray) -> int:
        """Take up to so many cells of a level, and of these the worthiest; returns what they are worth together."""
        self._candidates = np.flatnonzero(self._free[level] & ~self._is_taken(level))
        own = self._candidates
        order = own[np.lexsort((own, ~self._listed[level][own], -worth[own]))]
        self._last = order[:count]
        if not self._may_split(level, self._last):
            self._last = self._one_by_one(level, count, worth, order)
        for above, cells in self._splits(level, self._last):
            self._split[above][cells] = True
            self._left[above] -= len(cells)
        self._taken.append((level, self._last))
        return int(worth[self._last].sum())

    def lent(self, good: IntArray, idle: IntArray) -> int:
        """Return how many of the cells that the last `take` was worth are lent, if idle ones are taken first."""
        own = self._candidates
        preferred = own[np.lexsort((own, -idle[own], -good[own]))][: len(self._last)]
        return int(good[self._last].sum()) - min(int(idle[preferred].sum()), int(good[self._last].sum()))

    def _is_taken(self, level: int) -> BoolArray:
        found = np.zeros(len(self._free[level]), np.bool_)
        for above, cells in self._taken:
            found.reshape(len(self._free[above]), -1)[cells] = True
        return found

    def _splits(self, level: int, cells: LongArray) -> Iterator[tuple[int, LongArray]]:
        """By level, the free cells above these that are not split yet."""
        for above in range(level + 1, self._top + 1):
            cells = np.unique(cells // self._children[above])
            cells = cells[self._free[above][cells]]
            yield above, cells[~self._split[above][cells]]

    def _may_split(self, level: int, cells: LongArray) -> bool:
        return all(len(split) <= self._left[above] for above, split in self._splits(level, cells))

    def _one_by_one(self, level: int, count: int, worth: IntArray, order: LongArray) -> LongArray:
        """The worthiest cells with as few splits as will do: those whose neighbours are worthy too come first."""
        keys = [order, ~self._listed[level][order], -worth[order]]
        sums, cells = worth, order
        for above in range(level + 1, self._top + 1):
            sums = np.where(self._free[above], sums.reshape(len(self._free[above]), -1).sum(axis=1), 0)
            cells = cells // self._children[above]
            keys.insert(1, -sums[cells])
        left, split = list(self._left), [each.copy() for each in self._split]
        chosen: list[int] = []
        for cell in order[np.lexsort(keys)].tolist():
            if len(chosen) == count:
                break
            needed, at = [], cell
            for above in range(level + 1, self._top + 1):
                at //= self._children[above]
                if not self._free[above][at] or split[above][at]:
                    break
                needed.append((above, at))
            if all(left[above] > 0 for above, _ in needed):
                chosen.append(cell)
                for above, at in needed:
                    split[above][at] = True
                    left[above] -= 1
        return np.array(chosen, np.int64)
