"""Physical cells below which a group could be near together: how many leaves each has free, how many cells it would
break there, and which cells are alike.

A cell is broken if nobody used it before, and the group uses it in part.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hived.specs import MAX_LEVELS, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, PodRequest, PodSpec
from hived.state import GroupState, State
from hived.topology import NO_CELL, BoolArray, IntArray, LongArray
from hived.views import first_cell

Attempt = tuple[int, bool]  # leaves below which priority may be taken, used ones only from elastic groups

_UNLIKE = -1  # in place of a kind: a cell that is like no other


class Request(NamedTuple):
    """A new group as the kernels want it."""

    pod: PodRequest
    sizes: IntArray
    counts: LongArray
    wanted: int
    suggested: BoolArray
    ignore: bool
    explains: bool = True  # shall an answer say why there is no room?
    is_sound: bool = False  # shall new preassigned cells have no bad leaf, and leave good ones for all claims?
    own: IntArray | None = None  # virtual leaves to be taken if they are free (rule 18.11)

    @property
    def is_guaranteed(self) -> bool:
        """Does it go through a VC (rule 7.11)?"""
        return self.pod.spec.priority >= MIN_GUARANTEED_PRIORITY

    @property
    def where(self) -> str:
        """Name of the cluster that is searched, for reasons."""
        return f"VC {self.pod.spec.virtual_cluster}" if self.is_guaranteed else "physical cluster"


def broken_above(state: State, cells: IntArray, wanted: int) -> IntArray:
    """How many of each cell and its ancestors nobody uses, and would be used in part by so many leaves below it.

    cells : of one level. Cost O(cells of that level).
    """
    arrays = state.arrays
    if len(cells) == 0:
        return cells
    lowest = int(arrays.chain_level[cells[0]])
    top = lowest - int(arrays.level[cells[0]]) + int(arrays.top_level[arrays.chain_of_level[lowest]])
    broken = np.zeros(int(arrays.level_size[top]), np.int32)
    for level in range(top, lowest - 1, -1):
        base = int(arrays.level_base[level])
        own = state.cells.used[base : base + int(arrays.level_size[level])]
        broken = np.repeat(broken, 1 if level == top else int(arrays.child_count[level + 1]))
        if arrays.leaf_count[level] > wanted:
            broken += own == 0
    return broken[cells - int(arrays.level_base[lowest])]


def broken_below(state: State, leaves: IntArray, level: int) -> int:
    """How many cells below a level nobody uses, and would be used in part by these leaves."""
    arrays = state.arrays
    broken, cells, counts = 0, leaves, np.ones(len(leaves), np.int64)
    for _ in range(2, level):
        cells, place = np.unique(arrays.parent[cells], return_inverse=True)
        counts = np.bincount(place, weights=counts).astype(np.int64)
        is_part = counts < arrays.leaf_count[arrays.chain_level[cells]]
        broken += int(((state.cells.used[cells] == 0) & is_part).sum())
    return broken


def cells_of(state: State, request: Request, view: int, level: int) -> tuple[IntArray, IntArray]:
    """The physical cells of a level that the group may be below, and their numbers of free leaves (rule 13.7).

    None if they are too small. Cells in opportunistic use are free for others. Lost leaves are not free.
    """
    arrays, cells = state.arrays, state.cells
    first = first_cell(state, view)
    chain_level = int(arrays.chain_level[first] - arrays.level[first]) + level
    if request.wanted > arrays.leaf_count[chain_level]:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    base = int(arrays.level_base[chain_level])
    found = np.arange(base, base + int(arrays.level_size[chain_level]), dtype=np.int32)
    beside = leaf_beside(state, request.pod.spec)
    if beside != NO_CELL:
        while beside != NO_CELL and arrays.level[beside] < level:
            beside = int(arrays.parent[beside])
        found = found[found == beside]
    free = arrays.leaf_count[chain_level] - cells.used[found]
    if request.is_guaranteed:
        free = free + cells.opportunistic_used[found]
    if cells.lost_total[arrays.chain_of_level[chain_level]]:
        free = free - _lost_among_free(state, chain_level, request)[found - base]
    return found, free


def _lost_among_free(state: State, chain_level: int, request: Request) -> IntArray:
    """How many lost leaves each cell of a level has among its free and preemptible ones."""
    arrays, cells = state.arrays, state.cells
    leaf_level = int(arrays.level_offset[arrays.chain_of_level[chain_level]]) + 1
    first = int(arrays.level_base[leaf_level])
    leaves = np.flatnonzero(cells.lost[first : first + int(arrays.level_size[leaf_level])])
    limit = MIN_GUARANTEED_PRIORITY if request.is_guaranteed else OPPORTUNISTIC_PRIORITY
    leaves = leaves[cells.priority[first + leaves] < limit]
    lost = np.bincount(leaves // arrays.leaf_count[chain_level], minlength=int(arrays.level_size[chain_level]))
    return lost.astype(np.int32)


def leaf_beside(state: State, spec: PodSpec) -> int:
    """A leaf of the allocated group that the pod is to be beside; NO_CELL if there is none (rule 13.6)."""
    group = state.groups.get(spec.beside)
    if group is None or group.state is not GroupState.ALLOCATED:
        return NO_CELL
    return next((leaf for leaf in group.physical.tolist() if leaf != NO_CELL), NO_CELL)


class DeadEnds:
    """Cells below which a group fits in no way, whoever stays or leaves there, and all cells just like one of these.

    Good for one view, and for one state: what is tried in between must be undone.
    """

    def __init__(self, state: State, request: Request) -> None:
        self._state, self._request = state, request
        self._dead: dict[tuple[int, Attempt], BoolArray] = {}  # by chain level and attempt, for each cell
        self._kinds: dict[int, npt.NDArray[np.int64]] = {}  # by chain level

    def note(self, cell: int, attempt: Attempt) -> bool:
        """Remember a cell where an attempt failed; returns whether there may be others like it.

        The first of a level costs O(nodes x log(cells of the level)), others of a kind a sweep of the level.
        """
        level = int(self._state.arrays.chain_level[cell])
        if level not in self._kinds:
            self._kinds[level] = _kinds(self._state, self._request, level)
        kinds, place = self._kinds[level], cell - int(self._state.arrays.level_base[level])
        if (level, attempt) not in self._dead:
            self._dead[level, attempt] = np.zeros(len(kinds), np.bool_)
        dead = self._dead[level, attempt]
        dead[place] = True
        has_others = bool(kinds[place] != _UNLIKE)
        if has_others:
            dead |= kinds == kinds[place]
        return has_others

    def among(self, cells: IntArray, attempt: Attempt) -> BoolArray:
        """Which of these cells of one level are dead ends for an attempt?"""
        level = int(self._state.arrays.chain_level[cells[0]]) if len(cells) else 0
        dead = self._dead.get((level, attempt))
        return np.zeros(len(cells), np.bool_) if dead is None else dead[cells - self._state.arrays.level_base[level]]


def _kinds(state: State, request: Request, chain_level: int) -> npt.NDArray[np.int64]:
    """A number for each cell of a level, equal for cells that nothing but their place tells apart.

    These are unused, healthy, whole, and at or below free cells of one level, with the same nodes suggested. A way to
    place a group below one of them is one below each.
    """
    arrays, cells = state.arrays, state.cells
    chain = int(arrays.chain_of_level[chain_level])
    offset, top = int(arrays.level_offset[chain]), int(arrays.level_offset[chain] + arrays.top_level[chain])
    free_level = np.zeros(int(arrays.level_size[top]), np.int64)
    for level in range(top, chain_level - 1, -1):
        here = slice(int(arrays.level_base[level]), int(arrays.level_base[level] + arrays.level_size[level]))
        free_level = np.repeat(free_level, 1 if level == top else int(arrays.child_count[level + 1]))
        free_level[cells.free_position[here] != NO_CELL] = level - offset
    is_alike = (free_level > 0) & (cells.used[here] == 0) & (cells.bad[here] == 0)
    is_alike &= (cells.split[here] == 0) & (cells.bound[here] == NO_CELL)
    patterns = np.zeros(len(free_level), np.int64)
    if not request.ignore:
        lowest = min(chain_level, offset + int(arrays.node_level[chain]))
        base = int(arrays.level_base[lowest])
        nodes = arrays.node[base : base + int(arrays.level_size[lowest])]
        patterns = _patterns(request.suggested[nodes].reshape(len(free_level), -1))
    return np.where(is_alike, patterns * (MAX_LEVELS + 1) + free_level, _UNLIKE)


def _patterns(rows: BoolArray) -> npt.NDArray[np.int64]:
    """A number for each row of a mask, equal for equal rows. Cost O(size x log(rows))."""
    packed = np.packbits(rows, axis=1)
    if packed.shape[1] <= 4:  # a number that has room for a level beside it
        return packed.astype(np.int64) @ (1 << 8 * np.arange(packed.shape[1], dtype=np.int64))
    _, numbers = np.unique(packed.view(np.dtype((np.void, packed.shape[1]))).ravel(), return_inverse=True)
    return numbers.astype(np.int64)
