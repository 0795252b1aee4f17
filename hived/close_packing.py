"""Where in a view a group goes under better rules: as near together as can be, on the fullest cells (rules 18.5, 18.8).

A guaranteed group chooses among the cells of its VC by the use of these cells alone. So others have no part in the
choice, and it is the one that the VC would make in a private cluster. An opportunistic group chooses among physical
cells: it keeps off cells that a VC has begun to use, as their owner comes first to the rest of them.

Nobody is preempted in the view: leaves are free, or the group has no place.
"""

import numpy as np

from hived.fullest_node import fullest_node, least_exposed_node
from hived.jit import entry_kernel, kernel
from hived.journal import put, undo_writes
from hived.packing import free_leaves
from hived.specs import FREE_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived.state import Cells
from hived.topology import NO_CELL, BoolArray, IntArray, LongArray, TopologyArrays
from hived.tree import first_below
from hived.view_room import (
    Room,
    best_cell,
    cells_at,
    comes_before,
    exposure,
    may_have_room,
    node_level_of,
    room_of_empty,
    roomiest_cell,
    survey,
    take_room,
    top_level_of,
)
from hived.views import is_bad_as_a_whole, physical_of

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
    """Have a leaf in use count as free, until that is undone."""
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
    """Is the node of one cell a better choice than that of another?"""
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
    """A node for each pod, below one cell of the lowest level possible."""
    for level in range(node_level_of(t, room.tops[0, 0]), most_level + 1):
        if _find_below(t, room, level, sizes, counts, nodes):
            return True
    return False


@kernel
def _spread_over_tops(
    t: TopologyArrays, s: Cells, room: Room, sizes: IntArray, counts: LongArray, nodes: IntArray
) -> bool:
    """A node for each pod, below several top cells. In a VC empty ones come first, as these can be near each other.

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
    """A node for each pod below the best cell of a level."""
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
    """Leaves below a cell that may still be chosen."""
    free = 0
    for leaf in range(t.first_leaf[cell], t.first_leaf[cell] + t.leaf_count[t.chain_level[cell]]):
        free += int(s.priority[leaf] == FREE_PRIORITY and s.bad[leaf] == 0 and s.mark[leaf] == 0)
    return free


@kernel
def _is_tighter(t: TopologyArrays, s: Cells, one: int, other: int, node: int) -> bool:
    """Does one cell of a node come before another: physical ones that no VC has, the fullest, below the fullest?"""
    while one != other:
        cost = (int(_is_owned(t, s, one)) << 32) + _unmarked(t, s, one)
        cost_there = (int(_is_owned(t, s, other)) << 32) + _unmarked(t, s, other)
        if cost != cost_there or one == node:
            return bool(cost < cost_there)
        one, other = t.parent[one], t.parent[other]
    return False


@kernel
def _is_owned(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """Does a VC use this physical cell?"""
    return bool(t.vc[cell] == NO_CELL and s.bound[cell] != NO_CELL)
