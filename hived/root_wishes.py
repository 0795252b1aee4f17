"""Preassigned cells that need hardware, and which free cells might be theirs (rules 18.6, 18.7)."""

from typing import NamedTuple

import numpy as np

from hived.jit import kernel
from hived.safety import good_spare_cells, spare_cells
from hived.state import Cells
from hived.topology import IntArray, LongArray, TopologyArrays
from hived.tree import first_below
from hived.wishes import Suggestion, Wishes, is_usable


class Roots(NamedTuple):
    """The preassigned wishes of a group, higher levels first, and of one level those that want most leaves.

    wish : number of the wish
    chain_level : its level
    leaves : how many leaves below it are wanted
    spare : splits that VC safety leaves to each chain level; negative where it does not hold anyway
    good_spare : splits of good cells that leave good ones for all claims; negative where these are too few anyway
    promised : 1 for chain levels of which any VC is promised a cell
    """

    wish: IntArray
    chain_level: IntArray
    leaves: IntArray
    spare: LongArray
    good_spare: LongArray
    promised: IntArray


@kernel
def order_roots(t: TopologyArrays, s: Cells, w: Wishes, wishes: IntArray, virtual: IntArray) -> Roots:
    """The preassigned wishes of some virtual leaves. Cost O(leaves + VCs x levels)."""
    count = len(wishes)
    wanted = np.zeros(count, np.int32)
    for i in range(count):
        s.mark[w.cell[wishes[i]]] = i + 1
    for leaf in virtual:
        if s.mark[t.root[leaf]] > 0:
            wanted[s.mark[t.root[leaf]] - 1] += 1
    keys = np.empty(count, np.int64)
    for i in range(count):
        s.mark[w.cell[wishes[i]]] = 0
        keys[i] = -(np.int64(t.level[w.cell[wishes[i]]]) << 32) - wanted[i]
    order, chain_levels, leaves = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int32)
    for i, place in enumerate(np.argsort(keys, kind="mergesort")):
        order[i], leaves[i] = wishes[place], wanted[place]
        chain_levels[i] = t.chain_level[w.cell[order[i]]]
    promised = np.zeros(len(t.child_count), np.int32)
    for level in range(len(promised)):
        promised[level] = t.most_roots[level] > 0
    chain = t.chain_of_level[chain_levels[0]]
    return Roots(order, chain_levels, leaves, spare_cells(t, s, chain), good_spare_cells(t, s, chain), promised)


@kernel
def least_wanted(roots: Roots, first: int, end: int) -> int:
    """The fewest leaves that one of some wishes wants. (`min` of an array needs what a linked library has not.)"""
    least = int(roots.leaves[first])
    for i in range(first + 1, end):
        least = min(least, int(roots.leaves[i]))
    return least


@kernel
def first_of_chain(t: TopologyArrays, chain_level: int) -> int:
    """The first physical cell of a chain level's chain; cells of a chain are numbered level by level from the top."""
    chain = t.chain_of_level[chain_level]
    return int(t.level_base[t.level_offset[chain] + t.top_level[chain]])


@kernel
def count_free(t: TopologyArrays, s: Cells, roots: Roots, suggestion: Suggestion) -> IntArray:
    """How many free cells of the lowest wished level each cell has below it that may have room; index from the first
    cell of the chain.

    A cell that could only be had by a split that VC safety forbids does not count.
    """
    lowest = roots.chain_level[len(roots.chain_level) - 1]
    base, chain = first_of_chain(t, lowest), t.chain_of_level[lowest]
    top = t.level_offset[chain] + t.top_level[chain]
    counts = np.zeros(t.level_base[lowest] + t.level_size[lowest] - base, np.int32)
    least = roots.leaves[0]
    for leaves in roots.leaves:
        least = min(least, leaves)
    for level in range(lowest, top + 1):
        if level > lowest and roots.spare[level] == 0:
            break
        for position in range(s.free_count[level]):
            listed = s.free_list[t.level_base[level] + position]
            first, count = first_below(t, listed, t.level[listed] - level + lowest)
            for cell in range(first, first + count):
                counts[cell - base] = may_hold(t, s, cell, least, suggestion)
    for level in range(lowest + 1, top + 1):
        for cell in range(t.level_base[level], t.level_base[level] + t.level_size[level]):
            for child in range(t.first_child[cell], t.first_child[cell] + t.child_count[level]):
                counts[cell - base] += counts[child - base]
    return counts


@kernel
def may_hold(t: TopologyArrays, s: Cells, cell: int, wanted: int, suggestion: Suggestion) -> int:
    """1 if a free cell is usable and might have so many leaves for a group."""
    if suggestion.is_sound and (s.bad[cell] == 1 or s.lost[cell] > 0):
        return 0
    had = t.leaf_count[t.chain_level[cell]] - s.lost[cell]
    if suggestion.spares:
        had -= s.opportunistic_used[cell]
    return int(had >= wanted and is_usable(t, s, cell, suggestion))


@kernel
def is_candidate(
    t: TopologyArrays, s: Cells, cell: int, wanted: int, is_whole_wanted: bool, suggestion: Suggestion
) -> bool:
    """Might a free cell hold a wish? If a whole one is wanted, one of which nothing is lent, lost or bad."""
    if is_whole_wanted and (s.opportunistic_used[cell] > 0 or s.lost[cell] > 0 or s.bad[cell] == 1):
        return False
    return may_hold(t, s, cell, wanted, suggestion) == 1


@kernel
def are_enough(t: TopologyArrays, s: Cells, roots: Roots, suggestion: Suggestion) -> bool:
    """Are there as many cells of each level as it has wishes, each with usable leaves for one by itself?

    If not, there is no need to search. Cost O(nodes), and O(nodes of the wishes) as a rule if there are enough.
    """
    first = 0
    while first < len(roots.wish):
        level, end = roots.chain_level[first], first
        while end < len(roots.wish) and roots.chain_level[end] == level:
            end += 1
        least, left = least_wanted(roots, first, end), end - first
        for cell in range(t.level_base[level], t.level_base[level] + t.level_size[level]):
            if s.split[cell] == 0 and may_hold(t, s, cell, least, suggestion) == 1:
                left -= int(_has_leaves(t, s, cell, least, suggestion))
                if left == 0:
                    break
        if left > 0:
            return False
        first = end
    return True


@kernel
def _has_leaves(t: TopologyArrays, s: Cells, cell: int, wanted: int, suggestion: Suggestion) -> bool:
    """Have the usable nodes of a cell so many leaves for a group? Cost O(nodes of the cell)."""
    node_level, found = t.node_level[t.chain_of_level[t.chain_level[cell]]], 0
    if t.level[cell] <= node_level:
        return True
    first, count = first_below(t, cell, node_level)
    for node in range(first, first + count):
        if is_usable(t, s, node, suggestion):
            found += int(t.leaf_count[t.chain_level[node]] - s.lost[node])
            if suggestion.spares:
                found -= int(s.opportunistic_used[node])
            if found >= wanted:
                return True
    return False
