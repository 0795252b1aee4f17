"""Picks nodes, then leaf cells, for a gang (rules 6).

The same code serves a VC's virtual cells and the opportunistic view of a chain. A group that is to be near together
is placed below one physical cell: `cells_of` counts the free leaves of each, and `DeadEnds` skips cells just like one
that has failed. A cell is broken if it was unused before, and the group uses it in part.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hived.cells.state import Cells, CellState, GroupState, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray, TopologyArrays
from hived.cells.views import first_cell, is_bad_as_a_whole, least_key, physical_of, sort_view, used_in_key
from hived.kernels.jit import entry_kernel, kernel
from hived.values.specs import (
    FREE_PRIORITY,
    MAX_LEVELS,
    MIN_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    PodRequest,
    PodSpec,
)

Attempt = tuple[int, bool]  # leaves below which priority may be taken, used ones only from elastic groups

_UNLIKE = -1  # in place of a kind: a cell that is like no other


class Request(NamedTuple):
    """A new group, as arrays for kernels."""

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
        """True if the group goes through a VC (rule 7.11)."""
        return self.pod.spec.priority >= MIN_GUARANTEED_PRIORITY

    @property
    def where(self) -> str:
        """Name of the cluster that is searched, for reasons."""
        return f"VC {self.pod.spec.virtual_cluster}" if self.is_guaranteed else "physical cluster"


def broken_above(state: State, cells: IntArray, wanted: int) -> IntArray:
    """Count, for each cell, the unused cells at and above it that so many leaves below it would use in part.

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
    """Count the unused cells below a level that these leaves would use in part."""
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
    """Count the lost leaves of each cell of a level among its free and preemptible ones."""
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
    """Cells below which a group has no place even if every user leaves, and all cells just like one of these.

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
        """Mask the cells of one level that are dead ends."""
        level = int(self._state.arrays.chain_level[cells[0]]) if len(cells) else 0
        dead = self._dead.get((level, attempt))
        return np.zeros(len(cells), np.bool_) if dead is None else dead[cells - self._state.arrays.level_base[level]]


def _kinds(state: State, request: Request, chain_level: int) -> npt.NDArray[np.int64]:
    """Number the cells of a level; cells that differ in their place alone have equal numbers.

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


# outcome of a search; a blocked search names the node cell that stood in the way
PLACED, NO_CAPACITY, BAD_NODE, NON_SUGGESTED_NODE = 0, 1, 2, 3

_USED = int(CellState.USED)


@kernel
def is_elastic(t: TopologyArrays, s: Cells, leaf: int) -> bool:
    """True if an elastic group uses this leaf, physical or virtual, and it is not reserved."""
    physical = physical_of(t, s, leaf)
    return physical != NO_CELL and s.elastic[physical] == 1 and s.state[physical] == _USED


@kernel
def free_leaves(t: TopologyArrays, s: Cells, cell: int, priority: int, only_elastic: bool) -> int:
    """Count the leaves below a cell that a pod of this priority may take: leaves of lower priority (rule 6.7).

    only_elastic : of used leaves, take only leaves of elastic groups

    Lost leaves do not count, unless the whole cell is bad, which is refused when its turn comes.
    """
    if s.lost[cell] == 0 or is_bad_as_a_whole(t, s, physical_of(t, s, cell)):
        return _free_leaves_of_all(t, s, cell, priority, only_elastic)
    free = 0
    for leaf in range(t.first_leaf[cell], t.first_leaf[cell] + t.leaf_count[t.chain_level[cell]]):
        if s.bad[leaf] == 0:
            free += _free_leaves_of_all(t, s, leaf, priority, only_elastic)
    return free


@kernel
def _free_leaves_of_all(t: TopologyArrays, s: Cells, cell: int, priority: int, only_elastic: bool) -> int:
    total = t.leaf_count[t.chain_level[cell]]
    if priority == OPPORTUNISTIC_PRIORITY:
        return total - s.used[cell]
    first = t.first_leaf[cell]
    free = 0
    for leaf in range(first, first + total):
        free += s.priority[leaf] < priority and (
            not only_elastic or s.priority[leaf] == FREE_PRIORITY or is_elastic(t, s, leaf)
        )
    return free


@kernel
def pick_nodes(
    t: TopologyArrays, s: Cells, order: IntArray, position: int, priority: int, only_elastic: bool, sizes: IntArray,
    counts: LongArray, suggested: BoolArray, ignore_suggested: bool, nodes: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """Walk cells in order once and give each pod the first with room (rules 6.8, 6.9).

    order, position : node cells as a view has them sorted, and the place to start at

    sizes, counts : leaves per pod, ascending, and how many pods want that many; counts are never expanded
    nodes : out; the node cell of each pod; its length bounds the pods that can fit at all

    Returns outcome and the node cell that blocks, NO_CELL if none. Cost O(nodes x leaves per node + pods).
    """
    end, taken, pod = len(order), 0, 0
    free = free_leaves(t, s, order[position], priority, only_elastic) if position < end else 0
    for member in range(len(sizes)):
        size = sizes[member]
        placed = 0
        while placed < counts[member]:
            if position == end:
                return NO_CAPACITY, NO_CELL
            cell = order[position]
            if free - taken < size:
                position += 1
                taken = 0
                if position < end:
                    free = free_leaves(t, s, order[position], priority, only_elastic)
                continue
            physical = physical_of(t, s, cell)
            if physical != NO_CELL:
                if s.bad[physical] == 1 and is_bad_as_a_whole(t, s, physical):
                    return BAD_NODE, physical
                if not ignore_suggested and not suggested[t.node[physical]]:
                    return NON_SUGGESTED_NODE, physical
            nodes[pod] = cell
            taken += size
            pod += 1
            placed += 1
    return PLACED, NO_CELL


@kernel
def skip_full(t: TopologyArrays, s: Cells, view: int, size: int) -> int:
    """The first place in a sorted view where a pod of the smallest size finds free leaves; only keys are read.

    Cost O(log nodes) in a VC, where the fullest nodes come first; O(nodes) in the opportunistic view.
    """
    start, end = t.view_start[view], t.view_start[view + 1]
    leaves = t.view_node_leaves[view]
    if leaves == 0:
        return 0
    keys = s.view_keys[start:end]
    for position in range(np.searchsorted(keys, least_key(leaves - size)), len(keys)):
        if leaves - used_in_key(keys[position]) >= size:
            return position
    return len(keys)


@kernel
def pick_leaves(
    t: TopologyArrays, s: Cells, cell: int, priority: int, only_elastic: bool, wanted: int, taken: IntArray,
    leaves: IntArray,
) -> None:  # fmt: skip
    """Choose leaves of a node for one pod, as low in the tree as they can be together (rules 6.10, 6.11).

    Candidates are the free leaves in tree order, then the preemptible ones, elastic groups' first; lost leaves are
    none. The answer is the first of the lowest cells that have enough candidates, and of it the first `wanted`.

    taken : 1 for leaves that earlier pods of this call got, index relative to the node's first leaf; updated
    leaves : out, shape (wanted,)

    Cost O(levels x leaves of the node).
    """
    first, total = t.first_leaf[cell], t.leaf_count[t.chain_level[cell]]
    rank = np.empty(total, np.int32)  # 0 free, 1 elastic, 2 preemptible, 3 not a candidate
    for i in range(total):
        leaf_priority = s.priority[first + i]
        if taken[i] == 1 or leaf_priority >= priority or s.bad[first + i] == 1:
            rank[i] = 3
        elif leaf_priority == FREE_PRIORITY:
            rank[i] = 0
        elif is_elastic(t, s, first + i):
            rank[i] = 1
        else:
            rank[i] = 3 if only_elastic else 2
    leaf_level = t.chain_level[cell] - t.level[cell] + 1
    for level in range(leaf_level, t.chain_level[cell] + 1):
        span = t.leaf_count[level]
        if span < wanted:
            continue
        best, best_place = NO_CELL, 3 * total
        for group in range(0, total, span):
            count, place = 0, 3 * total
            for i in range(group, group + span):
                if rank[i] < 3:
                    count += 1
                    place = min(place, rank[i] * total + i)
            if count >= wanted and place < best_place:
                best, best_place = group, place
        if best != NO_CELL:
            found = 0
            for wanted_rank in range(3):
                for i in range(best, best + span):
                    if rank[i] == wanted_rank and found < wanted:
                        leaves[found] = first + i
                        taken[i] = 1
                        found += 1
            return


@kernel
def pick_all_leaves(
    t: TopologyArrays, s: Cells, priority: int, only_elastic: bool, sizes: IntArray, counts: LongArray,
    nodes: IntArray, leaves: IntArray,
) -> None:  # fmt: skip
    """`pick_leaves` for every pod, in order; `taken` starts anew with each node."""
    taken = np.zeros(0, np.int32)
    previous, pod, filled = NO_CELL, 0, 0
    for member in range(len(sizes)):
        for _ in range(counts[member]):
            cell = nodes[pod]
            if cell != previous:
                taken = np.zeros(t.leaf_count[t.chain_level[cell]], np.int32)
                previous = cell
            pick_leaves(
                t, s, cell, priority, only_elastic, sizes[member], taken, leaves[filled : filled + sizes[member]]
            )  # fmt: skip
            filled += sizes[member]
            pod += 1


@entry_kernel
def place_group(
    t: TopologyArrays, s: Cells, view: int, priority: int, has_elastic: bool, sizes: IntArray, counts: LongArray,
    suggested: BoolArray, ignore_suggested: bool, leaves: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """Place a whole gang in a view: first without preemption, then at its own priority (rules 6.6, 15.1).

    has_elastic : there are elastic groups; between the two attempts, only they are preempted.

    sizes, counts : as in `pick_nodes`

    suggested : bool per node; read only if not `ignore_suggested`

    leaves : out; the leaf cells in the order size, pod, leaf; as many as are wanted, or as the view has if that is less

    Returns outcome and, if blocked, the physical cell of the node in the way. Cost O(nodes + leaves) as a rule.
    """
    nodes = np.empty(min(counts.sum(), len(leaves)), np.int32)
    sort_view(t, s, view, suggested, ignore_suggested)
    order = s.view_order[t.view_start[view] : t.view_start[view + 1]]
    outcome, blocker = NO_CAPACITY, NO_CELL
    for attempt in range(3):
        if attempt == 1 and not has_elastic:
            continue
        below = OPPORTUNISTIC_PRIORITY if attempt == 0 else priority
        position = skip_full(t, s, view, sizes[0]) if below == OPPORTUNISTIC_PRIORITY else 0
        outcome, blocker = pick_nodes(
            t, s, order, position, below, attempt == 1, sizes, counts, suggested, ignore_suggested, nodes
        )  # fmt: skip
        if outcome == PLACED:
            pick_all_leaves(t, s, below, attempt == 1, sizes, counts, nodes, leaves)
            return outcome, blocker
        if priority <= MIN_GUARANTEED_PRIORITY:
            break  # none here is lower: the second attempt would end as the first
    return outcome, blocker
