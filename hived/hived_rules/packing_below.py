"""Places a gang below one physical cell: finds the cells of a view that are, or can come to be, below it.

A virtual cell that is not bound yet can be bound to any physical cell that the free lists, or its bound parent, have
left. So the cells of a view that count below a physical cell R depend on bindings:

- R is bound: the cells below its virtual cell.
- A cell above R is bound: the cells below an unbound descendant of its virtual cell, which may take R.
- Neither is bound, `root_level` 0: the cells bound below R and the VC's unbound preassigned cells lower than R.
- Neither is bound, `root_level` > 0: the cells below an unbound preassigned cell of that level, at least R's, which
  would take all of R.
"""

import numpy as np

from hived.cells.state import Cells, CellState
from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray, TopologyArrays
from hived.cells.views import view_key
from hived.hived_rules.packing import PLACED, free_leaves, pick_all_leaves, pick_nodes
from hived.kernels.jit import entry_kernel, kernel
from hived.values.specs import FREE_PRIORITY, MAX_LEVELS, MIN_GUARANTEED_PRIORITY

_USED, _RESERVING = int(CellState.USED), int(CellState.RESERVING)


@kernel
def _is_in_view(t: TopologyArrays, view: int, virtual: int) -> bool:
    """True if the cells of a view are below or above this virtual cell, or it is one of them."""
    cell = virtual
    node_level = t.node_level[t.chain_of_level[t.chain_level[cell]]]
    while t.level[cell] > node_level:
        cell = t.first_child[cell]
    while cell != NO_CELL and t.view_of[cell] == NO_CELL:
        cell = t.parent[cell]
    return cell != NO_CELL and t.view_of[cell] == view


@kernel
def _append_nodes(t: TopologyArrays, cell: int, out: IntArray, count: int) -> int:
    """Append the node-level cells below a cell, or the cell itself if it is none above them; the new count."""
    first, span = cell, 1
    while t.level[first] > t.node_level[t.chain_of_level[t.chain_level[cell]]]:
        span *= t.child_count[t.chain_level[first]]
        first = t.first_child[first]
    for node_cell in range(first, first + span):
        out[count] = node_cell
        count += 1
    return count


@kernel
def _bound_above(t: TopologyArrays, s: Cells, cell: int) -> int:
    """The lowest bound cell at or above a cell, NO_CELL if there is none."""
    while cell != NO_CELL and s.bound[cell] == NO_CELL:
        cell = t.parent[cell]
    return cell


@kernel
def _first_unbound(s: Cells, first: int, count: int) -> int:
    for cell in range(first, first + count):
        if s.bound[cell] == NO_CELL:
            return cell
    return NO_CELL


@kernel
def cells_within(t: TopologyArrays, s: Cells, view: int, cell: int, root_level: int) -> IntArray:
    """The cells of a view to search for a gang below a physical cell, in order; none: an empty array.

    Cells of bound preassigned cells come first, then cells of larger ones, so that few are split. Cells below node
    level stand for themselves. Cost O(nodes of the cell), for lower roots O(leaves of the split ones), and a sweep over
    the VC's preassigned cells.
    """
    level, chain_level = t.level[cell], t.chain_level[cell]
    out = np.empty(t.leaf_count[chain_level] * (level + 1), np.int32)
    if t.vc[t.view_cell[t.view_start[view]]] == NO_CELL:
        return out[: _append_nodes(t, cell, out, 0)]
    bound = _bound_above(t, s, cell)
    virtual = NO_CELL
    if bound != NO_CELL:
        if root_level > 0 or not _is_in_view(t, view, s.bound[bound]):
            return out[:0]
        virtual = s.bound[bound]
        if bound != cell:
            virtual = _first_unbound(s, t.first_child[virtual], t.child_count[t.chain_level[virtual]])
    elif root_level > 0:
        slot = t.vc[t.view_cell[t.view_start[view]]] * len(t.child_count) + chain_level - level + root_level
        virtual = _first_unbound(s, t.root_base[slot], t.root_count[slot])
    else:
        count = _append_lower_roots(t, s, view, cell, out)
        if count == 0:
            return out[:0]
        keys = np.empty(count, np.int64)
        for i in range(count):
            root = t.root[out[i]]
            keys[i] = (MAX_LEVELS * (s.bound[root] == NO_CELL) - t.level[root]) * len(t.root) + out[i]
        return out[np.argsort(keys, kind="mergesort")]
    if virtual == NO_CELL:
        return out[:0]
    while t.level[virtual] > level:
        virtual = t.first_child[virtual]
    return out[: _append_nodes(t, virtual, out, 0)]


@kernel
def _append_lower_roots(t: TopologyArrays, s: Cells, view: int, cell: int, out: IntArray) -> int:
    """Fill `out` with the cells bound below a cell and as many unbound roots of each lower level as fit below it."""
    count, height = 0, 1
    stack = np.empty(t.leaf_count[t.chain_level[cell]] + t.level[cell], np.int32)
    stack[0] = cell
    while height > 0:
        height -= 1
        below = stack[height]
        if s.bound[below] != NO_CELL:
            if _is_in_view(t, view, s.bound[below]):
                count = _append_nodes(t, s.bound[below], out, count)
        elif s.split[below] == 1:
            for child in range(t.first_child[below], t.first_child[below] + t.child_count[t.chain_level[below]]):
                stack[height] = child
                height += 1
    node = t.view_cell[t.view_start[view]]
    if t.pinned[t.root[node]] == 1:
        return count
    for chain_level in range(t.chain_level[cell] - t.level[cell] + 1, t.chain_level[cell]):
        slot = t.vc[node] * len(t.child_count) + chain_level
        room = t.leaf_count[t.chain_level[cell]] // t.leaf_count[chain_level]
        root, end = t.root_base[slot], t.root_base[slot] + t.root_count[slot]
        if s.vc_claims[slot] == 0:
            continue
        while root < end and room > 0:
            if s.bound[root] == NO_CELL:
                count = _append_nodes(t, root, out, count)
                room -= 1
            root += 1
    return count


@kernel
def _may_hold(
    t: TopologyArrays, s: Cells, cell: int, wanted: int, spares: bool, suggested: BoolArray, ignore_suggested: bool
) -> bool:
    """True if a physical cell has so many healthy, suggested leaves below it; if it `spares`, without preemption."""
    first, total = t.first_leaf[cell], t.leaf_count[t.chain_level[cell]]
    if s.bad[cell] == 0 and ignore_suggested and (not spares or total - s.used[cell] >= wanted):
        return True
    count = 0
    for leaf in range(first, first + total):
        is_taken = s.state[leaf] == _USED or s.state[leaf] == _RESERVING
        is_allowed = ignore_suggested or suggested[t.node[leaf]]
        count += s.bad[leaf] == 0 and is_allowed and not (spares and is_taken)
    return count >= wanted


@kernel
def _has_room(t: TopologyArrays, s: Cells, view: int, priority: int, only_elastic: bool, wanted: int) -> bool:
    """True if a whole view has so many leaves that may be taken. Cost O(leaves) of a view that is full.

    The emptiest nodes are last in a view that was sorted.
    """
    room = 0
    for position in range(t.view_start[view + 1] - 1, t.view_start[view] - 1, -1):
        room += free_leaves(t, s, s.view_order[position], priority, only_elastic)
        if room >= wanted:
            return True
    return False


@entry_kernel
def place_within(
    t: TopologyArrays, s: Cells, view: int, cells: IntArray, root_levels: IntArray, start: int, priority: int,
    only_elastic: bool, spares: bool, sizes: IntArray, counts: LongArray, suggested: BoolArray,
    ignore_suggested: bool, leaves: IntArray,
) -> int:  # fmt: skip
    """Place a gang below the first of some physical cells where it fits, preempting below `priority` if necessary.

    cells, root_levels : physical cells of one level, and the ways to look below each

    start : the first combination to try, `position in cells * len(root_levels) + position in root_levels`

    spares : only below cells with enough leaves without preemption; groups may have to leave all the same

    only_elastic, sizes, counts, leaves : as in `place_group`; all leaves of a cell below node level are one pod's

    Returns the combination, or NO_CELL if there is none. Cost O(nodes below the cells tried).
    """
    if not _has_room(t, s, view, priority, only_elastic, len(leaves)):
        return NO_CELL
    below_node = t.level[cells[0]] < t.node_level[t.chain_of_level[t.chain_level[cells[0]]]]
    nodes = np.empty(len(leaves), np.int32)
    ones, many = np.ones(1, np.int32), np.full(1, len(leaves), np.int64)
    known, may_hold = NO_CELL, False
    for combination in range(start, len(cells) * len(root_levels)):
        cell = cells[combination // len(root_levels)]
        if cell != known:
            known, may_hold = cell, _may_hold(t, s, cell, len(leaves), spares, suggested, ignore_suggested)
        if not may_hold:
            continue
        order = cells_within(t, s, view, cell, root_levels[combination % len(root_levels)])
        if len(order) == 0:
            continue
        keys = np.empty(len(order), np.int64)
        for i in range(len(order)):
            keys[i] = view_key(t, s, order[i], suggested, ignore_suggested)
        order = order[np.argsort(keys, kind="mergesort")]
        # Below node level the leaves may be in several preassigned cells.
        for is_scattered in range(2 if below_node and len(order) > 1 else 1):
            pod_sizes = ones if is_scattered else sizes
            pod_counts = many if is_scattered else counts
            outcome, _ = pick_nodes(
                t, s, order, 0, priority, only_elastic, pod_sizes, pod_counts, suggested, ignore_suggested, nodes
            )
            if outcome == PLACED:
                pick_all_leaves(t, s, priority, only_elastic, pod_sizes, pod_counts, nodes, leaves)
                return combination
    return NO_CELL


@entry_kernel
def most_room(
    t: TopologyArrays, s: Cells, view: int, cells: IntArray, limits: IntArray, priority: int,
    suggested: BoolArray, ignore_suggested: bool,
) -> tuple[int, int]:  # fmt: skip
    """Find the physical cell with the most leaves that a view may take at a priority, and how many it has.

    limits : for each cell a number that it cannot exceed, descending; ends where no better cell can follow

    Unbound leaves count as far as the VC has preassigned cells left. Cost O(leaves of cells looked at).
    """
    first = t.view_cell[t.view_start[view]]
    left = 0
    if t.vc[first] != NO_CELL and t.pinned[t.root[first]] == 0:
        chain = t.chain_of_level[t.chain_level[first]]
        for chain_level in range(t.level_offset[chain] + 1, t.level_offset[chain] + t.top_level[chain] + 1):
            left += s.vc_claims[t.vc[first] * len(t.child_count) + chain_level] * t.leaf_count[chain_level]
    best, most = NO_CELL, -1
    for i in range(len(cells)):
        if limits[i] <= most:
            break
        mine, unbound = 0, 0
        start = t.first_leaf[cells[i]]
        for leaf in range(start, start + t.leaf_count[t.chain_level[cells[i]]]):
            if s.bad[leaf] == 1 or not (ignore_suggested or suggested[t.node[leaf]]):
                continue
            if t.vc[first] == NO_CELL:
                mine += s.priority[leaf] == FREE_PRIORITY
                continue
            bound = _bound_above(t, s, leaf)
            if bound == NO_CELL:
                unbound += 1
            elif s.priority[leaf] < max(priority, MIN_GUARANTEED_PRIORITY) and _is_in_view(t, view, s.bound[bound]):
                mine += 1
        if mine + min(unbound, left) > most:
            best, most = cells[i], mine + min(unbound, left)
    return best, most
