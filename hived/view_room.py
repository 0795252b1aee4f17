"""The room in a view, cell by cell, and which cell is the best choice for pods of one size (rules 18.5, 18.8).

Cells of a view are nodes, or preassigned cells that are smaller; both are called nodes here.
"""

from typing import NamedTuple

import numpy as np

from hived.jit import kernel
from hived.packing import free_leaves
from hived.specs import OPPORTUNISTIC_PRIORITY
from hived.state import Cells
from hived.topology import NO_CELL, BoolArray, IntArray, LongArray, TopologyArrays
from hived.tree import first_below
from hived.views import may_use

_EXPOSED_SHIFT = 40  # of how exposed a cell is, above its number of free leaves
_PARTS = 1024  # exposure is counted in parts of one leaf
_CLAIMED, _SOON, BESIDE, _USED = range(1, 5)


class Room(NamedTuple):
    """The facts that a search knows of the cells of a view at node level and above; index is the cell minus `base`.

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
    """How soon a VC comes to cells in the free list of each chain level.

    0: some are left over when all claims are met. 1: VCs claim them as a whole. 2: they claim nodes, or have to split
    them. Shape (chain levels, 2): first for cells of which a part is lent, then for others. Cost O(levels), and O(free
    list) where some cells are left over.

    As a whole is later than in parts: in a cell that it has taken, a VC uses first what is not lent. The rest
    is lent first from cells that are lent in part, so that others stay clean for the claims.
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
    """How soon an owner comes to the rest of a physical cell: 4 if he uses it, 3 if he uses cells beside it, else as
    `exposures_of_free` has it. 0 for virtual cells. Cost O(height).
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
    """Do the top cells of a view have so many leaves that nobody uses? Cost O(top cells)."""
    tops, left = rows_of_tops(t, view), 0
    for row in range(len(tops)):
        for top in range(tops[row, 0], tops[row, 0] + tops[row, 1]):
            left += int(t.leaf_count[t.chain_level[top]] - s.used[top])
            if left >= wanted:
                return True
    return False


@kernel
def room_of_empty(t: TopologyArrays, s: Cells, room: Room) -> Room:
    """The room of those preassigned cells that nobody uses and that are not bound, so that any hardware may be theirs.

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
    """Free leaves and costs of all cells above node level."""
    for row in range(len(room.tops)):
        for level in range(node_level_of(t, room.tops[row, 0]) + 1, room.tops[row, 2] + 1):
            _sum_up(t, room, row, level)


@kernel
def _sum_up(t: TopologyArrays, room: Room, row: int, level: int) -> None:
    """Free leaves and costs of the cells of a level, from those of their children."""
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
    """Is a cell a better choice than another one of its level: of less cost, or else below cells of less cost?"""
    while one != other:
        if room.cost[one - room.base] != room.cost[other - room.base]:
            return bool(room.cost[one - room.base] < room.cost[other - room.base])
        if t.parent[one] == NO_CELL or t.parent[other] == NO_CELL:
            return bool(t.parent[one] == NO_CELL and t.parent[other] != NO_CELL)
        one, other = t.parent[one], t.parent[other]
    return False


@kernel
def pods_below(t: TopologyArrays, room: Room, cell: int, size: int) -> int:
    """How many pods of a size the nodes of a cell have room for. Cost O(nodes of the cell)."""
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

    tested : cells that are passed over. Cost O(cells of the level), and O(nodes) of those that were the best so far.
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

    Cost O(nodes), and O(cells) up to the first one of each level that nobody uses.
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
