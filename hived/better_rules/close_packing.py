"""Picks leaves in a view under better rules: near together, on the fullest cells (rules 18.5, 18.8).

A guaranteed group chooses among the cells of its VC by the use of these cells alone. So other VCs have no influence,
and the choice is the one that the VC would make in a private cluster. An opportunistic group chooses among physical
cells: it avoids cells that a VC has begun to use, as their owner takes the rest of them first. Nothing is preempted in
the view: leaves are free, or the group has no place.

Cells of a view are nodes, or preassigned cells that are smaller; both are called nodes here. Most nodes of a large VC
are equally full: empty, or without room. So equally full nodes are not compared one by one: nodes below the fullest
parent come first, and parents are few.
"""

from typing import NamedTuple

import numpy as np

from hived.cells.journal import put, undo_writes
from hived.cells.state import Cells
from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray, TopologyArrays
from hived.cells.tree import first_below
from hived.cells.views import is_bad_as_a_whole, least_key, may_use, physical_of, sort_loosely, used_in_key
from hived.hived_rules.packing import free_leaves
from hived.kernels.jit import entry_kernel, kernel
from hived.values.specs import FREE_PRIORITY, OPPORTUNISTIC_PRIORITY

_EXPOSED_SHIFT = 40  # of how exposed a cell is, above its number of free leaves
_PARTS = 1024  # exposure is counted in parts of one leaf
_CLAIMED, _SOON, BESIDE, _USED = range(1, 5)


class Room(NamedTuple):
    """Free leaves and costs of the cells of a view at node level and above; index is the cell minus `base`.

    tops : first cell, number and level of each row of top cells, shape (rows, 3)
    of_free : how exposed free cells of each chain level are, shape (chain levels, 2), see `exposures_of_free`
    free : leaves that may be taken; free[c] == sum(free[children])
    cost : the cell of least cost is the first choice: the fullest one, of physical cells the least exposed one
    """

    base: int
    tops: IntArray
    of_free: IntArray
    free: LongArray
    cost: LongArray


@kernel
def exposures_of_free(t: TopologyArrays, s: Cells, chain: int) -> IntArray:
    """Return how soon a VC will take the free cells of each chain level.

    0: some are left over when all claims are met. 1: VCs claim them as a whole. 2: they claim nodes, or have to split
    them. Shape (chain levels, 2): first for cells of which a part is lent, then for others. Cost O(levels), and O(free
    list) where some cells are left over.

    A claim of the whole cell comes later than a claim of parts: in a cell that it has taken, a VC uses first what is
    not lent. The rest is lent first from cells that are lent in part, so that others stay clean for the claims.
    """
    bottom, top = t.level_offset[chain] + 1, t.level_offset[chain] + t.top_level[chain]
    found = np.zeros((top + 1, 2), np.int32)
    splits = 0  # cells of the level that claims below make necessary
    for level in range(bottom, top + 1):
        needed = int(s.claims[level]) + splits
        left, clean = int(s.free_count[level]) - needed, 0
        claimed = _CLAIMED if splits == 0 and level - t.level_offset[chain] > t.node_level[chain] else _SOON
        if left > 0 and needed > 0:
            for position in range(s.free_count[level]):
                clean += int(s.opportunistic_used[s.free_list[t.level_base[level] + position]] == 0)
        found[level, 0] = 0 if left > 0 else claimed
        found[level, 1] = 0 if left > 0 and (needed == 0 or clean > needed) else claimed
        if level < top:
            span = t.child_count[level + 1]
            splits = (max(-left, 0) + span - 1) // span
    return found


@kernel
def exposure(t: TopologyArrays, s: Cells, cell: int, of_free: IntArray) -> int:
    """Return how soon a VC will take the rest of a physical cell: 4 if it uses that cell, 3 if it uses cells beside it,
    else as `exposures_of_free` has it. 0 for virtual cells. Cost O(height).
    """
    if t.vc[cell] != NO_CELL:
        return 0
    if s.bound[cell] != NO_CELL:
        return _USED
    if s.split[cell] == 1:
        return BESIDE
    while cell != NO_CELL:
        if s.free_position[cell] != NO_CELL:
            return int(of_free[t.chain_level[cell], int(s.opportunistic_used[cell] == 0)])
        if s.bound[cell] != NO_CELL:
            return BESIDE
        cell = t.parent[cell]
    return BESIDE


@kernel
def rows_of_tops(t: TopologyArrays, view: int) -> IntArray:
    """The top cells of a view: preassigned cells by level, ascending; one pinned cell; or the tops of a chain."""
    first = t.view_cell[t.view_start[view]]
    root, chain = t.root[first], t.chain_of_level[t.chain_level[first]]
    offset, top = t.level_offset[chain], t.top_level[chain]
    rows = np.empty((top, 3), np.int32)
    count = 0
    if t.vc[first] == NO_CELL:
        rows[0, 0], rows[0, 1], rows[0, 2] = t.level_base[offset + top], t.level_size[offset + top], top
        return rows[:1]
    if t.pinned[root] == 1:
        rows[0, 0], rows[0, 1], rows[0, 2] = root, 1, t.level[root]
        return rows[:1]
    for level in range(1, top + 1):
        slot = t.vc[first] * len(t.child_count) + offset + level
        if t.root_count[slot] > 0:
            rows[count, 0], rows[count, 1], rows[count, 2] = t.root_base[slot], t.root_count[slot], level
            count += 1
    return rows[:count]


@kernel
def node_level_of(t: TopologyArrays, cell: int) -> int:
    """The node level of a cell's chain."""
    return int(t.node_level[t.chain_of_level[t.chain_level[cell]]])


@kernel
def top_level_of(t: TopologyArrays, room: Room) -> int:
    """The level of the highest top cells, node level at least."""
    return int(max(t.level[room.tops[len(room.tops) - 1, 0]], node_level_of(t, room.tops[0, 0])))


@kernel
def cells_at(t: TopologyArrays, tops: IntArray, row: int, level: int) -> tuple[int, int]:
    """The first cell of a level in a row of top cells, and how many there are. Smaller top cells count as nodes."""
    first, count = tops[row, 0], tops[row, 1]
    if tops[row, 2] < level:
        return first, count if level == node_level_of(t, first) else 0
    below, each = first_below(t, first, level)
    return below, each * count


@kernel
def survey(t: TopologyArrays, s: Cells, view: int, suggested: BoolArray, ignore_suggested: bool) -> Room:
    """The room in a whole view. Cost O(nodes)."""
    tops = rows_of_tops(t, view)
    node_level = node_level_of(t, tops[0, 0])
    base, end = tops[0, 0], 0
    for row in range(len(tops)):
        first, count = cells_at(t, tops, row, node_level)
        base, end = min(base, tops[row, 0]), max(end, first + count)
    of_free = exposures_of_free(t, s, t.chain_of_level[t.chain_level[tops[0, 0]]])
    room = Room(base, tops, of_free, np.empty(end - base, np.int64), np.empty(end - base, np.int64))
    for row in range(len(tops)):
        first, count = cells_at(t, tops, row, node_level)
        for cell in range(first, first + count):
            free = 0
            if may_use(t, s, cell, suggested, ignore_suggested):
                free = int(free_leaves(t, s, cell, OPPORTUNISTIC_PRIORITY, False))
            room.free[cell - base] = free
            room.cost[cell - base] = (exposure(t, s, cell, of_free) * _PARTS << _EXPOSED_SHIFT) + free
    _sum_up_all(t, room)
    return room


@kernel
def may_have_room(t: TopologyArrays, s: Cells, view: int, wanted: int) -> bool:
    """True if the top cells of a view have so many unused leaves. Cost O(top cells)."""
    tops, left = rows_of_tops(t, view), 0
    for row in range(len(tops)):
        for top in range(tops[row, 0], tops[row, 0] + tops[row, 1]):
            left += int(t.leaf_count[t.chain_level[top]] - s.used[top])
            if left >= wanted:
                return True
    return False


@kernel
def room_of_empty(t: TopologyArrays, s: Cells, room: Room) -> Room:
    """The room of the preassigned cells that are unused and not bound, so that any hardware may be theirs.

    Cost O(nodes).
    """
    empty = Room(room.base, room.tops, room.of_free, room.free.copy(), room.cost.copy())
    for row in range(len(room.tops)):
        for top in range(room.tops[row, 0], room.tops[row, 0] + room.tops[row, 1]):
            if s.used[top] == 0 and s.bound[top] == NO_CELL:
                continue
            first, count = first_below(t, top, min(node_level_of(t, top), t.level[top]))
            for cell in range(first, first + count):
                empty.cost[cell - room.base] -= empty.free[cell - room.base]
                empty.free[cell - room.base] = 0
    _sum_up_all(t, empty)
    return empty


@kernel
def _sum_up_all(t: TopologyArrays, room: Room) -> None:
    """Sum up free leaves and costs of all cells above node level."""
    for row in range(len(room.tops)):
        for level in range(node_level_of(t, room.tops[row, 0]) + 1, room.tops[row, 2] + 1):
            _sum_up(t, room, row, level)


@kernel
def _sum_up(t: TopologyArrays, room: Room, row: int, level: int) -> None:
    """Sum up free leaves and costs of the cells of a level from their children."""
    first, count = cells_at(t, room.tops, row, level)
    span = t.child_count[t.chain_level[first]]
    for cell in range(first, first + count):
        free, exposed = np.int64(0), np.int64(0)
        for child in range(t.first_child[cell], t.first_child[cell] + span):
            own = room.free[child - room.base]
            free += own
            exposed += (room.cost[child - room.base] >> _EXPOSED_SHIFT) * own
        room.free[cell - room.base] = free
        room.cost[cell - room.base] = ((exposed // max(int(free), 1)) << _EXPOSED_SHIFT) + free


@kernel
def take_room(t: TopologyArrays, room: Room, node: int, count: int) -> None:
    """Take leaves of a node, or give them back if `count` is negative."""
    cell = node
    while cell != NO_CELL:
        room.free[cell - room.base] -= count
        room.cost[cell - room.base] -= count
        cell = t.parent[cell]


@kernel
def comes_before(t: TopologyArrays, room: Room, one: int, other: int) -> bool:
    """True if a cell is a better choice than another of its level: of less cost, or else below cells of less cost."""
    while one != other:
        if room.cost[one - room.base] != room.cost[other - room.base]:
            return bool(room.cost[one - room.base] < room.cost[other - room.base])
        if t.parent[one] == NO_CELL or t.parent[other] == NO_CELL:
            return bool(t.parent[one] == NO_CELL and t.parent[other] != NO_CELL)
        one, other = t.parent[one], t.parent[other]
    return False


@kernel
def pods_below(t: TopologyArrays, room: Room, cell: int, size: int) -> int:
    """Count the pods of a size that the nodes of a cell have room for. Cost O(nodes of the cell)."""
    first, count = first_below(t, cell, min(node_level_of(t, cell), t.level[cell]))
    pods = np.int64(0)
    for node in range(first, first + count):
        pods += room.free[node - room.base] // size
    return int(pods)


@kernel
def cells_within(t: TopologyArrays, room: Room, row: int, within: int, level: int) -> tuple[int, int]:
    """As `cells_at`, of the cells below `within` alone if that is not NO_CELL."""
    first, count = cells_at(t, room.tops, row, level)
    if within == NO_CELL or count == 0:
        return first, count
    root = t.root[within]
    if root < room.tops[row, 0] or root >= room.tops[row, 0] + room.tops[row, 1] or t.level[within] < level:
        return first, 0
    return first_below(t, within, level)


@kernel
def best_cell(
    t: TopologyArrays, room: Room, within: int, level: int, wanted: int, size: int, pods: int, tested: IntArray
) -> int:  # fmt: skip
    """The best cell of a level that has so many free leaves, and room for some pods of one size; NO_CELL if none has.

    within : the cell above it; NO_CELL: anywhere in the view

    tested : cells that are passed over. Cost O(cells of the level), and O(nodes) of each best one so far.
    """
    best = NO_CELL
    for row in range(len(room.tops)):
        first, count = cells_within(t, room, row, within, level)
        if t.leaf_count[t.chain_level[first]] < wanted:
            continue
        for cell in range(first, first + count):
            if room.free[cell - room.base] < wanted or (best != NO_CELL and not comes_before(t, room, cell, best)):
                continue
            if not _is_among(tested, cell) and pods_below(t, room, cell, size) >= pods:
                best = cell
    return best


@kernel
def roomiest_cell(t: TopologyArrays, room: Room, within: int, size: int) -> int:
    """The child of `within`, or the top cell of the view, with room for most pods of a size; NO_CELL if none has room.

    Cost O(nodes), and O(cells) up to the first one of each level that is unused.
    """
    best, most = NO_CELL, 0
    if within != NO_CELL and t.level[within] <= node_level_of(t, within):
        return best
    for row in range(len(room.tops)):
        level = t.level[within] - 1 if within != NO_CELL else room.tops[row, 2]
        first, count = cells_within(t, room, row, within, level)
        node, nodes = first_below(t, first, min(node_level_of(t, first), t.level[first]))
        whole = nodes * int(t.leaf_count[t.chain_level[node]] // size)  # pods in a cell that is empty
        for cell in range(first, first + count):
            if most >= whole:
                break
            if room.free[cell - room.base] < size * max(most, 1):
                continue
            pods = pods_below(t, room, cell, size)
            if pods > most:
                best, most = cell, pods
    return best


@kernel
def _is_among(cells: IntArray, cell: int) -> bool:
    for each in cells:
        if each == cell:
            return True
    return False


_FEW_NODES = 16  # so many equally full nodes are compared one by one, more by their parents
_NOT_SUGGESTED_KEY = 1 << 61  # keys of nodes that are bad or not suggested are not less, see views.view_key


@kernel
def fullest_node(
    t: TopologyArrays, s: Cells, view: int, size: int, suggested: BoolArray, ignore_suggested: bool
) -> int:
    """The fullest node of a VC that has room for a pod; of equally full ones, the one below the fullest cells.

    view : of a VC, whose cells all have as many leaves. Cost O(log nodes), and O(parents of nodes) where many nodes are
    equally full, as a rule; for changed nodes that of `sort_loosely`.
    """
    sort_loosely(t, s, view, suggested, ignore_suggested)
    start, end, total = t.view_start[view], t.view_start[view + 1], t.view_node_leaves[view]
    keys, best = s.view_keys[start:end], NO_CELL
    place = start + np.searchsorted(keys, least_key(total - size))
    while best == NO_CELL and place < end and s.view_keys[place] < _NOT_SUGGESTED_KEY:
        key = s.view_keys[place]
        after = start + np.searchsorted(keys, key + 1)
        if after - place > _FEW_NODES:
            best = _in_fullest_parent(t, s, view, key, size)
        else:
            for cell in s.view_order[place:after]:
                if _has_room(t, s, cell, size) and (best == NO_CELL or _is_in_fuller(t, s, cell, best)):
                    best = cell
        place = after
    return int(best)


@kernel
def _in_fullest_parent(t: TopologyArrays, s: Cells, view: int, key: int, size: int) -> int:
    """Of the nodes of one key that have room, the one below the fullest cells.

    Cost O(parents of nodes) in most states, as only children of the fullest parent so far are looked at.
    """
    tops, best = rows_of_tops(t, view), NO_CELL
    node_level = node_level_of(t, tops[0, 0])
    used = used_in_key(key)
    for row in range(len(tops)):
        is_top = tops[row, 2] <= node_level
        first, count = cells_at(t, tops, row, node_level if is_top else node_level + 1)
        nodes = 1 if is_top else int(t.child_count[t.chain_level[first]])
        total = int(t.leaf_count[t.chain_level[first]])
        start = first if is_top else int(t.first_child[first])
        for parent in range(count):
            if total - s.used[first + parent] < size:
                continue
            node = start + parent * nodes
            if best != NO_CELL and not _is_in_fuller(t, s, node, best):
                continue
            for cell in range(node, node + nodes):
                if s.used[cell] == used and s.view_keys[s.view_place[cell]] == key and _has_room(t, s, cell, size):
                    best = cell
                    break
    return int(best)


@kernel
def _has_room(t: TopologyArrays, s: Cells, node: int, size: int) -> bool:
    return bool(s.lost[node] == 0 or free_leaves(t, s, node, OPPORTUNISTIC_PRIORITY, False) >= size)


@kernel
def _is_in_fuller(t: TopologyArrays, s: Cells, one: int, other: int) -> bool:
    """True if, of two equally full nodes, one is below fuller cells, or else has the lower number."""
    is_lower = one < other
    one, other = t.parent[one], t.parent[other]
    while one != other:
        if one == NO_CELL or other == NO_CELL:
            return bool(one == NO_CELL)
        free = t.leaf_count[t.chain_level[one]] - s.used[one]
        free_there = t.leaf_count[t.chain_level[other]] - s.used[other]
        if free != free_there:
            return bool(free < free_there)
        one, other = t.parent[one], t.parent[other]
    return is_lower


@kernel
def least_exposed_node(
    t: TopologyArrays, s: Cells, view: int, size: int, suggested: BoolArray, ignore_suggested: bool
) -> int:
    """The physical node for an opportunistic pod: the least exposed one that has room, then the fullest (rule 18.8).

    Equal ones are compared by the cells above them. Cost O(parents of nodes), and O(nodes) of cells that are in use in
    part and to which owners do not come late, or of all if no other node has room.
    """
    tops = rows_of_tops(t, view)
    of_free = exposures_of_free(t, s, t.chain_of_level[t.chain_level[tops[0, 0]]])
    first, count = cells_at(t, tops, 0, min(node_level_of(t, tops[0, 0]) + 1, tops[0, 2]))
    total, best = t.leaf_count[t.chain_level[first]], NO_CELL
    for is_soon in (False, True):
        for parent in range(first, first + count):
            if total - s.used[parent] >= size and _is_taken(t, s, parent, of_free) == is_soon:
                best = _better_below(t, s, parent, best, size, of_free, suggested, ignore_suggested)
        if best != NO_CELL and exposure(t, s, best, of_free) < BESIDE:
            break
    return int(best)


@kernel
def _is_taken(t: TopologyArrays, s: Cells, cell: int, of_free: IntArray) -> bool:
    """True if a VC uses this cell as a whole, or one above it, so that all cells below are beside cells in use."""
    return bool(s.bound[cell] != NO_CELL or (s.split[cell] == 0 and exposure(t, s, cell, of_free) >= BESIDE))


@kernel
def _better_below(
    t: TopologyArrays, s: Cells, parent: int, best: int, size: int, of_free: IntArray, suggested: BoolArray,
    ignore_suggested: bool,
) -> int:  # fmt: skip
    """The best node so far, or the first of the better ones below a cell. Cost O(nodes of the cell)."""
    node, span = first_below(t, parent, min(node_level_of(t, parent), t.level[parent]))
    if s.used[parent] == 0 and s.split[parent] == 0 and best != NO_CELL and not _is_before(t, s, node, best, of_free):
        return best  # all nodes below are like the first one
    for cell in range(node, node + span):
        if (
            t.leaf_count[t.chain_level[cell]] - s.used[cell] >= size
            and may_use(t, s, cell, suggested, ignore_suggested)
            and _has_room(t, s, cell, size)
            and (best == NO_CELL or _is_before(t, s, cell, best, of_free))
        ):
            best = cell
    return best


@kernel
def _is_before(t: TopologyArrays, s: Cells, one: int, other: int, of_free: IntArray) -> bool:
    """True if one node is less exposed than another, or equally and fuller, or equally full below fuller cells."""
    exposed, exposed_there = exposure(t, s, one, of_free), exposure(t, s, other, of_free)
    if exposed != exposed_there:
        return bool(exposed < exposed_there)
    free = free_leaves(t, s, one, OPPORTUNISTIC_PRIORITY, False)
    free_there = free_leaves(t, s, other, OPPORTUNISTIC_PRIORITY, False)
    return _is_in_fuller(t, s, one, other) if free == free_there else bool(free < free_there)


_MOST_TESTED = 8  # cells of a level where a gang of several sizes is tried


@entry_kernel
def pack_closely(
    t: TopologyArrays, s: Cells, view: int, sizes: IntArray, counts: LongArray, suggested: BoolArray,
    ignore_suggested: bool, most_level: int, pardoned: IntArray, leaves: IntArray,
) -> bool:  # fmt: skip
    """Choose free leaves for a group; returns whether there are any.

    sizes, counts : leaves per pod, ascending, and how many pods want that many

    most_level : the group has to be below one cell of the view of this level at most; 0: anywhere in the view

    pardoned : leaves in use that count as free; must run while the journal records

    leaves : out; the leaf cells in the order size, pod, leaf; as many as are wanted

    A single pod goes to the fullest node that has room. A gang goes below the cell of the lowest level that has room,
    and of these to the fullest one. Equally full cells are compared by the cells above them, then by number.

    Cost of a single pod as `fullest_node` or `least_exposed_node`; else O(nodes x levels + pods), and for a gang that
    could be within one node O(leaves).
    """
    nodes, mark = np.empty(counts.sum(), np.int32), s.journal_control[1]
    for leaf in pardoned:
        _free(t, s, leaf)
    is_one = len(nodes) == 1 and most_level == 0 and len(pardoned) == 0
    is_virtual = t.vc[t.view_cell[t.view_start[view]]] != NO_CELL
    if is_one and is_virtual and t.view_node_leaves[view] > 0:
        nodes[0] = fullest_node(t, s, view, sizes[0], suggested, ignore_suggested)
        is_found = nodes[0] != NO_CELL
    elif is_one and not is_virtual:
        nodes[0] = least_exposed_node(t, s, view, sizes[0], suggested, ignore_suggested)
        is_found = nodes[0] != NO_CELL
    elif not may_have_room(t, s, view, len(leaves)):
        is_found = False
    else:
        room = survey(t, s, view, suggested, ignore_suggested)
        top = top_level_of(t, room)
        is_found = False
        if len(nodes) > 1 or most_level > 0:
            part = _best_part(t, s, room, len(leaves), most_level if most_level > 0 else top)
            is_found = part != NO_CELL
            for i in range(len(nodes)):
                nodes[i] = part
        if not is_found:
            is_found = _find_nodes(t, room, sizes, counts, most_level if most_level > 0 else top, nodes)
        if not is_found and most_level == 0:
            is_found = _spread_over_tops(t, s, room, sizes, counts, nodes)
    if is_found:
        _pick_all(t, s, sizes, counts, nodes, leaves)
    if len(pardoned) > 0:
        undo_writes(s, mark)
    return bool(is_found)


@kernel
def _free(t: TopologyArrays, s: Cells, leaf: int) -> None:
    """Let a leaf in use count as free, until that is undone."""
    put(s, s.priority, leaf, FREE_PRIORITY)
    cell = leaf
    while cell != NO_CELL:
        put(s, s.used, cell, s.used[cell] - 1)
        cell = t.parent[cell]


@kernel
def _best_part(t: TopologyArrays, s: Cells, room: Room, wanted: int, most_level: int) -> int:
    """The best cell below node level that has room for all leaves of a gang, of the lowest level; NO_CELL if none.

    Cost O(cells of the level in nodes with room) for each level.
    """
    node_level = node_level_of(t, room.tops[0, 0])
    for level in range(1, min(node_level - 1, most_level) + 1):
        best, least = NO_CELL, 0
        for row in range(len(room.tops)):
            first, count = cells_at(t, room.tops, row, node_level)
            if t.level[first] < level or t.leaf_count[t.chain_level[first] - t.level[first] + level] < wanted:
                continue
            for node in range(first, first + count):
                if room.free[node - room.base] < wanted:
                    continue
                below, span = first_below(t, node, level)
                for cell in range(below, below + span):
                    behind = physical_of(t, s, cell)
                    if behind != NO_CELL and s.bad[behind] == 1 and is_bad_as_a_whole(t, s, behind):
                        continue
                    free = int(free_leaves(t, s, cell, OPPORTUNISTIC_PRIORITY, False))
                    cost = (exposure(t, s, cell, room.of_free) << 32) + free
                    if (
                        free >= wanted
                        and (best == NO_CELL or cost <= least)
                        and (best == NO_CELL or cost < least or _is_in_better(t, room, cell, best))
                    ):
                        best, least = cell, cost
        if best != NO_CELL:
            return best
    return NO_CELL


@kernel
def _is_in_better(t: TopologyArrays, room: Room, one: int, other: int) -> bool:
    """True if the node of one cell is a better choice than that of another."""
    node_level = node_level_of(t, one)
    while t.level[one] < node_level and t.parent[one] != NO_CELL:
        one = t.parent[one]
    while t.level[other] < node_level and t.parent[other] != NO_CELL:
        other = t.parent[other]
    return comes_before(t, room, one, other)


@kernel
def _find_nodes(
    t: TopologyArrays, room: Room, sizes: IntArray, counts: LongArray, most_level: int, nodes: IntArray
) -> bool:
    """Find a node for each pod, below one cell of the lowest level possible."""
    for level in range(node_level_of(t, room.tops[0, 0]), most_level + 1):
        if _find_below(t, room, level, sizes, counts, nodes):
            return True
    return False


@kernel
def _spread_over_tops(
    t: TopologyArrays, s: Cells, room: Room, sizes: IntArray, counts: LongArray, nodes: IntArray
) -> bool:
    """Find a node for each pod, below several top cells; in a VC, empty ones first, as these can be near each other.

    Where a part of the hardware is given, its place follows from what others did, and the VC must not look at that.
    """
    if t.vc[room.tops[0, 0]] == NO_CELL:
        return _spread(t, room, NO_CELL, sizes, counts, nodes)
    empty = room_of_empty(t, s, room)
    if _spread(t, empty, NO_CELL, sizes, counts, nodes):
        return True
    if len(sizes) > 1:
        return _spread(t, room, NO_CELL, sizes, counts, nodes)
    placed = _spread_alike(t, empty, NO_CELL, sizes[0], nodes)
    for node in nodes[:placed]:
        take_room(t, room, node, sizes[0])
    return placed + _spread_alike(t, room, NO_CELL, sizes[0], nodes[placed:]) == len(nodes)


@kernel
def _find_below(t: TopologyArrays, room: Room, level: int, sizes: IntArray, counts: LongArray, nodes: IntArray) -> bool:
    """Find a node for each pod below the best cell of a level."""
    tested = np.full(_MOST_TESTED, NO_CELL, np.int32)
    last, wanted = len(sizes) - 1, 0
    for member in range(len(sizes)):
        wanted += int(sizes[member] * counts[member])
    for test in range(_MOST_TESTED):
        cell = best_cell(t, room, NO_CELL, level, wanted, sizes[last], counts[last], tested)
        if cell == NO_CELL:
            return False
        if _spread(t, room, cell, sizes, counts, nodes):
            return True
        tested[test] = cell
    return False


@kernel
def _spread(t: TopologyArrays, room: Room, within: int, sizes: IntArray, counts: LongArray, nodes: IntArray) -> bool:
    """Give all pods nodes below a cell, or anywhere, larger pods first; if that cannot be, take no room."""
    end = len(nodes)
    for member in range(len(sizes) - 1, -1, -1):
        first = end - counts[member]
        placed = _spread_alike(t, room, within, sizes[member], nodes[first:end])
        if placed < counts[member]:
            _give_back(t, room, nodes[first : first + placed], sizes[member])
            for before in range(member + 1, len(sizes)):
                _give_back(t, room, nodes[end : end + counts[before]], sizes[before])
                end += counts[before]
            return False
        end = first
    return True


@kernel
def _give_back(t: TopologyArrays, room: Room, nodes: IntArray, size: int) -> None:
    for node in nodes:
        take_room(t, room, node, -size)


@kernel
def _spread_alike(t: TopologyArrays, room: Room, within: int, size: int, nodes: IntArray) -> int:
    """Give pods of one size nodes below a cell, or anywhere, in as few cells of each level as can be easily found.

    The lowest cell that has room for all pods that are left gets them; else the roomiest child gets as many as it can.
    Returns how many have a place.
    """
    placed, area = 0, within
    while placed < len(nodes):
        cell = _lowest_cell(t, room, area, size, len(nodes) - placed)
        if cell == NO_CELL:
            cell = roomiest_cell(t, room, area, size)
            if cell == NO_CELL:
                break
            placed = _fill(t, room, cell, size, nodes, placed)
        elif t.level[cell] <= node_level_of(t, cell):
            placed = _fill(t, room, cell, size, nodes, placed)
        else:
            area = cell
    return placed


@kernel
def _lowest_cell(t: TopologyArrays, room: Room, area: int, size: int, pods: int) -> int:
    """The best cell of the lowest level below an area that has room for all pods; the area itself if it is a node."""
    node_level = node_level_of(t, room.tops[0, 0])
    nothing = np.empty(0, np.int32)
    if area != NO_CELL and t.level[area] <= node_level:
        return area if room.free[area - room.base] >= size else NO_CELL
    end = t.level[area] if area != NO_CELL else top_level_of(t, room) + 1
    for level in range(node_level, end):
        cell = best_cell(t, room, area, level, size * pods, size, pods, nothing)
        if cell != NO_CELL:
            return cell
    return NO_CELL


@kernel
def _fill(t: TopologyArrays, room: Room, cell: int, size: int, nodes: IntArray, placed: int) -> int:
    """Give pods the nodes of a cell, one after the other; returns how many have one now."""
    first, count = first_below(t, cell, min(node_level_of(t, cell), t.level[cell]))
    for node in range(first, first + count):
        while placed < len(nodes) and room.free[node - room.base] >= size:
            nodes[placed] = node
            take_room(t, room, node, size)
            placed += 1
    return placed


@kernel
def _pick_all(
    t: TopologyArrays, s: Cells, sizes: IntArray, counts: LongArray, nodes: IntArray, leaves: IntArray
) -> None:
    """Choose the leaves of each pod in its node, larger pods first."""
    pod, filled = len(nodes), len(leaves)
    for member in range(len(sizes) - 1, -1, -1):
        size = sizes[member]
        pod -= counts[member]
        filled -= size * counts[member]
        for i in range(counts[member]):
            _pick(t, s, nodes[pod + i], size, leaves[filled + i * size : filled + (i + 1) * size])
    for leaf in leaves:
        s.mark[leaf] = 0


@kernel
def _pick(t: TopologyArrays, s: Cells, node: int, wanted: int, leaves: IntArray) -> None:
    """Choose free leaves of a node for one pod: below a cell of the lowest level that has enough, the fullest of these.

    Chosen leaves are marked, and marked ones are not free. Cost O(levels x leaves of the node).
    """
    for level in range(1, t.level[node] + 1):
        first, count = first_below(t, node, level)
        if t.leaf_count[t.chain_level[first]] < wanted:
            continue
        best = NO_CELL
        for cell in range(first, first + count):
            if _unmarked(t, s, cell) >= wanted and (best == NO_CELL or _is_tighter(t, s, cell, best, node)):
                best = cell
        if best != NO_CELL:
            found = 0
            for leaf in range(t.first_leaf[best], t.first_leaf[best] + t.leaf_count[t.chain_level[best]]):
                if found < wanted and _unmarked(t, s, leaf) == 1:
                    leaves[found] = leaf
                    s.mark[leaf] = 1
                    found += 1
            return


@kernel
def _unmarked(t: TopologyArrays, s: Cells, cell: int) -> int:
    """Count the leaves below a cell that may still be chosen."""
    free = 0
    for leaf in range(t.first_leaf[cell], t.first_leaf[cell] + t.leaf_count[t.chain_level[cell]]):
        free += int(s.priority[leaf] == FREE_PRIORITY and s.bad[leaf] == 0 and s.mark[leaf] == 0)
    return free


@kernel
def _is_tighter(t: TopologyArrays, s: Cells, one: int, other: int, node: int) -> bool:
    """True if one cell of a node comes before another: physical ones without a VC, fullest, below the fullest."""
    while one != other:
        cost = (int(_is_owned(t, s, one)) << 32) + _unmarked(t, s, one)
        cost_there = (int(_is_owned(t, s, other)) << 32) + _unmarked(t, s, other)
        if cost != cost_there or one == node:
            return bool(cost < cost_there)
        one, other = t.parent[one], t.parent[other]
    return False


@kernel
def _is_owned(t: TopologyArrays, s: Cells, cell: int) -> bool:
    return bool(t.vc[cell] == NO_CELL and s.bound[cell] != NO_CELL)
