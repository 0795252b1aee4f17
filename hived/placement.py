"""Which nodes, then which leaf cells, for a gang (SEMANTICS 4a, 4b).

The same code serves a VC's virtual cells and the opportunistic view of a chain.
"""

import numpy as np

from hived.jit import entry_kernel, kernel
from hived.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived.state import Cells
from hived.topology import NO_CELL, IntArray, TopologyArrays
from hived.views import BoolArray, LongArray, least_key, physical_of, sort_view, used_in_key

# outcome of a search; a blocked search names the node cell that stood in the way
PLACED, NO_CAPACITY, BAD_NODE, NON_SUGGESTED_NODE = 0, 1, 2, 3


@kernel
def free_leaves(t: TopologyArrays, s: Cells, cell: int, priority: int) -> int:
    """Leaves below a cell that a pod of this priority may take: those whose own priority is lower."""
    total = t.leaf_count[t.chain_level[cell]]
    if priority == OPPORTUNISTIC_PRIORITY:
        return total - s.used[cell]
    first = t.first_leaf[cell]
    free = 0
    for leaf in range(first, first + total):
        free += s.priority[leaf] < priority
    return free


@kernel
def pick_nodes(
    t: TopologyArrays, s: Cells, view: int, priority: int, sizes: IntArray, counts: LongArray,
    suggested: BoolArray, ignore_suggested: bool, nodes: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """Walk a sorted view once and give each pod the first node with room (SEMANTICS 4a.4).

    sizes, counts : leaves per pod, ascending, and how many pods want that many; counts are never expanded
    nodes : out; the node cell of each pod; its length bounds the pods that can fit at all

    Returns outcome and the node cell that blocks, NO_CELL if none. Cost O(nodes x leaves per node + pods).
    """
    start, end = t.view_start[view], t.view_start[view + 1]
    position, taken, pod = start, 0, 0
    if priority == OPPORTUNISTIC_PRIORITY:
        position = _skip_full(t, s, view, sizes[0])
    free = free_leaves(t, s, s.view_order[position], priority) if position < end else 0
    for member in range(len(sizes)):
        size = sizes[member]
        placed = 0
        while placed < counts[member]:
            if position == end:
                return NO_CAPACITY, NO_CELL
            cell = s.view_order[position]
            if free - taken < size:
                position += 1
                taken = 0
                if position < end:
                    free = free_leaves(t, s, s.view_order[position], priority)
                continue
            physical = physical_of(t, s, cell)
            if physical != NO_CELL:
                if s.bad[physical] == 1:
                    return BAD_NODE, physical
                if not ignore_suggested and not suggested[t.node[physical]]:
                    return NON_SUGGESTED_NODE, physical
            nodes[pod] = cell
            taken += size
            pod += 1
            placed += 1
    return PLACED, NO_CELL


@kernel
def _skip_full(t: TopologyArrays, s: Cells, view: int, size: int) -> int:
    """The first place of a sorted view where a pod of the smallest size finds free leaves; only keys are read.

    Cost O(log nodes) in a VC, where the fullest nodes come first; O(nodes) in the opportunistic view.
    """
    start, end = t.view_start[view], t.view_start[view + 1]
    leaves = t.view_node_leaves[view]
    if leaves == 0:
        return start
    first = start + np.searchsorted(s.view_keys[start:end], least_key(leaves - size))
    for position in range(first, end):
        if leaves - used_in_key(s.view_keys[position]) >= size:
            return position
    return end


@kernel
def pick_leaves(
    t: TopologyArrays, s: Cells, cell: int, priority: int, wanted: int, taken: IntArray, leaves: IntArray
) -> None:
    """Choose leaves of a node for one pod, as low in the tree as they can be together (SEMANTICS 4b, FORMAT 4).

    Candidates are the free leaves in tree order, then the preemptible ones. The answer is the first of the lowest
    cells that have enough candidates, and of it the first `wanted` candidates.

    taken : 1 for leaves that earlier pods of this call got, index relative to the node's first leaf; updated
    leaves : out, shape (wanted,)

    Cost O(levels x leaves of the node).
    """
    first, total = t.first_leaf[cell], t.leaf_count[t.chain_level[cell]]
    rank = np.empty(total, np.int32)  # 0 free, 1 preemptible, 2 not a candidate
    for i in range(total):
        leaf_priority = s.priority[first + i]
        if taken[i] == 1 or leaf_priority >= priority:
            rank[i] = 2
        else:
            rank[i] = 0 if leaf_priority == FREE_PRIORITY else 1
    leaf_level = t.chain_level[cell] - t.level[cell] + 1
    for level in range(leaf_level, t.chain_level[cell] + 1):
        span = t.leaf_count[level]
        if span < wanted:
            continue
        best, best_place = NO_CELL, 2 * total
        for group in range(0, total, span):
            count, place = 0, 2 * total
            for i in range(group, group + span):
                if rank[i] < 2:
                    count += 1
                    place = min(place, rank[i] * total + i)
            if count >= wanted and place < best_place:
                best, best_place = group, place
        if best != NO_CELL:
            found = 0
            for wanted_rank in range(2):
                for i in range(best, best + span):
                    if rank[i] == wanted_rank and found < wanted:
                        leaves[found] = first + i
                        taken[i] = 1
                        found += 1
            return


@kernel
def _pick_all_leaves(
    t: TopologyArrays, s: Cells, priority: int, sizes: IntArray, counts: LongArray, nodes: IntArray, leaves: IntArray
) -> None:
    """`pick_leaves` for every pod, in order; `taken` starts anew with each node."""
    taken = np.zeros(0, np.int32)
    previous, pod, filled = NO_CELL, 0, 0
    for member in range(len(sizes)):
        for _ in range(counts[member]):
            cell = nodes[pod]
            if cell != previous:
                taken = np.zeros(t.leaf_count[t.chain_level[cell]], np.int32)
                previous = cell
            pick_leaves(t, s, cell, priority, sizes[member], taken, leaves[filled : filled + sizes[member]])
            filled += sizes[member]
            pod += 1


@entry_kernel
def place_group(
    t: TopologyArrays, s: Cells, view: int, priority: int, sizes: IntArray, counts: LongArray,
    suggested: BoolArray, ignore_suggested: bool, leaves: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """Place a whole gang in a view: first without preempting anybody, then at its own priority (SEMANTICS 4a.2).

    sizes, counts : as in `pick_nodes`

    suggested : bool per node; read only if not `ignore_suggested`

    leaves : out; the leaf cells in the order size, pod, leaf; as many as are wanted, or as the view has if that is less

    Returns outcome and, if blocked, the physical cell of the node in the way. Cost O(nodes + leaves) as a rule.
    """
    nodes = np.empty(min(counts.sum(), len(leaves)), np.int32)
    sort_view(t, s, view, suggested, ignore_suggested)
    outcome, blocker = NO_CAPACITY, NO_CELL
    for attempt in (OPPORTUNISTIC_PRIORITY, priority):
        outcome, blocker = pick_nodes(t, s, view, attempt, sizes, counts, suggested, ignore_suggested, nodes)
        if outcome == PLACED:
            _pick_all_leaves(t, s, attempt, sizes, counts, nodes, leaves)
            return outcome, blocker
        if priority <= MIN_GUARANTEED_PRIORITY:
            break  # nobody here has a lower one: the second attempt would end as the first
    return outcome, blocker
