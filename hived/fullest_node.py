"""The node for a single pod: the fullest one that has room, of physical ones the least exposed (rules 18.5, 18.8).

Most nodes of a large VC are equally full: empty, or with no room at all. So equally full nodes are not compared one by
one. Nodes below the fullest parent come first, and parents are few.
"""

import numpy as np

from hived.jit import kernel
from hived.packing import free_leaves
from hived.specs import OPPORTUNISTIC_PRIORITY
from hived.state import Cells
from hived.topology import NO_CELL, BoolArray, IntArray, TopologyArrays
from hived.tree import first_below
from hived.view_room import BESIDE, cells_at, exposure, exposures_of_free, node_level_of, rows_of_tops
from hived.views import least_key, may_use, sort_loosely, used_in_key

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
    """Of two nodes that are equally full, is one below fuller cells than the other, or else of lower number?"""
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

    Equal ones are compared by the cells above them. Cost O(parents of nodes), and O(nodes) of those that are in use in
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
    """Does a VC use this cell as a whole, or one above it, so that all cells below are beside cells in use?"""
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
    """Is one node less exposed than another, or equally and fuller, or equally full and below fuller cells?"""
    exposed, exposed_there = exposure(t, s, one, of_free), exposure(t, s, other, of_free)
    if exposed != exposed_there:
        return bool(exposed < exposed_there)
    free = free_leaves(t, s, one, OPPORTUNISTIC_PRIORITY, False)
    free_there = free_leaves(t, s, other, OPPORTUNISTIC_PRIORITY, False)
    return _is_in_fuller(t, s, one, other) if free == free_there else bool(free < free_there)
