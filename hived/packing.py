"""Which nodes, then which leaf cells, for a gang (rules 6).

The same code serves a VC's virtual cells and the opportunistic view of a chain.
"""

import numpy as np

from hived.jit import entry_kernel, kernel
from hived.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived.state import Cells, CellState
from hived.topology import NO_CELL, BoolArray, IntArray, LongArray, TopologyArrays
from hived.views import is_bad_as_a_whole, least_key, physical_of, sort_view, used_in_key

# outcome of a search; a blocked search names the node cell that stood in the way
PLACED, NO_CAPACITY, BAD_NODE, NON_SUGGESTED_NODE = 0, 1, 2, 3

_USED = int(CellState.USED)


@kernel
def is_elastic(t: TopologyArrays, s: Cells, leaf: int) -> bool:
    """Is a leaf, physical or virtual, used by an elastic group and not reserved?"""
    physical = physical_of(t, s, leaf)
    return physical != NO_CELL and s.elastic[physical] == 1 and s.state[physical] == _USED


@kernel
def free_leaves(t: TopologyArrays, s: Cells, cell: int, priority: int, only_elastic: bool) -> int:
    """Leaves below a cell that a pod of this priority may take: leaves whose own priority is lower (rule 6.7).

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
    """Place a whole gang in a view: first without preempting anybody, then at its own priority (rules 6.6, 15.1).

    has_elastic : are there elastic groups? Then, between the two, it is tried to preempt nobody but them.

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
            break  # nobody here has a lower one: the second attempt would end as the first
    return outcome, blocker
