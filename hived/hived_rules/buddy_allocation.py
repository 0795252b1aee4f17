"""Hardware for a preassigned cell: buddy allocation on the free lists, then the relaxed split (rules 7.3, 7.4, 7.6).

Free lists are split on the way. A taken cell, and the cells split for it, have left their lists at the end. A failure
leaves the lists as they were, except that the relaxed split keeps its pieces; `mapping` undoes all of it.
"""

import numpy as np

from hived.cells.free_lists import append_free, remove_free
from hived.cells.journal import put
from hived.cells.safety import spare_cells
from hived.cells.state import Cells
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.cells.tree import descend, overlap
from hived.hived_rules.wishes import Suggestion, Wishes, assign, is_usable, rank_of
from hived.kernels.jit import kernel


@kernel
def buddy_allocate(t: TopologyArrays, s: Cells, w: Wishes, root: int, chain_level: int, suggestion: Suggestion) -> bool:
    """Place a preassigned wish, splitting downwards from the lowest level with a free cell, with backtracking."""
    chain = t.chain_of_level[chain_level]
    top = t.level_offset[chain] + t.top_level[chain]
    start = chain_level
    while start <= top and s.free_count[start] == 0:
        start += 1
    if start > top:
        return False
    rank = np.zeros(top + 1, np.int64)
    position = np.full(top + 1, NO_CELL, np.int32)
    chosen = np.full(top + 1, NO_CELL, np.int32)
    level = start
    while True:
        if level == chain_level:
            if map_to_free_list(t, s, w, root, level, suggestion):
                for above in range(chain_level + 1, start + 1):
                    remove_free(t, s, chosen[above])
                return True
        else:
            position[level] = next_candidate(t, s, level, suggestion, rank[level], position[level])
            if position[level] != NO_CELL:
                cell = s.free_list[t.level_base[level] + position[level]]
                rank[level] = rank_of(s, cell)
                chosen[level] = cell
                for child in range(t.first_child[cell], t.first_child[cell] + t.child_count[level]):
                    append_free(t, s, child)
                level -= 1
                rank[level], position[level] = 0, NO_CELL
                continue
        if level == start:
            return False
        level += 1
        first = t.first_child[chosen[level]]
        for child in range(first + t.child_count[level] - 1, first - 1, -1):
            remove_free(t, s, child)


@kernel
def map_to_free_list(
    t: TopologyArrays, s: Cells, w: Wishes, root: int, chain_level: int, suggestion: Suggestion
) -> bool:
    """Map a preassigned wish onto the first fitting cell of its level's free list, and take that cell."""
    wishes, candidates = np.empty(1, np.int32), np.empty(1, np.int32)
    wishes[0] = root
    rank, position = 0, NO_CELL
    while True:
        position = next_candidate(t, s, chain_level, suggestion, rank, position)
        if position == NO_CELL:
            return False
        candidates[0] = s.free_list[t.level_base[chain_level] + position]
        rank = rank_of(s, candidates[0])
        if assign(t, s, w, wishes, candidates, suggestion):
            remove_free(t, s, candidates[0])
            return True


@kernel
def next_candidate(
    t: TopologyArrays, s: Cells, chain_level: int, suggestion: Suggestion, last_rank: int, last_position: int
) -> int:
    """Position in a free list of the usable cell that follows (last_rank, last_position) by (`rank_of`, position).

    NO_CELL if there is none. Cost O(1) as a rule, O(list) at worst.
    """
    base = t.level_base[chain_level]
    for position in range(last_position + 1, s.free_count[chain_level]):
        cell = s.free_list[base + position]
        if rank_of(s, cell) == last_rank and is_usable(t, s, cell, suggestion):
            return position
    best, best_rank = NO_CELL, 0
    for position in range(s.free_count[chain_level]):
        cell = s.free_list[base + position]
        rank = rank_of(s, cell)
        if rank > last_rank and (best == NO_CELL or rank < best_rank) and is_usable(t, s, cell, suggestion):
            best, best_rank = position, rank
    return best


@kernel
def split_relaxed(t: TopologyArrays, s: Cells, w: Wishes, root: int, chain_level: int, suggestion: Suggestion) -> bool:
    """Split, level by level, all cells that the VCs' claims leave over, until the wish fits: safe relaxed split (rule
    7.6).
    """
    chain = t.chain_of_level[chain_level]
    top = t.level_offset[chain] + t.top_level[chain]
    spare = spare_cells(t, s, chain)
    for level in range(chain_level + 1, top + 1):
        if spare[level] < 0:
            return False
    for level in range(chain_level + 1, top + 1):
        if spare[level] == 0:
            return False
        heads = _heads(t, s, level, min(spare[level], s.free_count[level]), suggestion)
        if len(heads) == 0:
            continue
        _prepend_free(t, s, chain_level, descend(t, heads, level - chain_level))
        if map_to_free_list(t, s, w, root, chain_level, suggestion):
            return True
    return False


@kernel
def _heads(t: TopologyArrays, s: Cells, level: int, count: int, suggestion: Suggestion) -> IntArray:
    """Take up to this many cells out of a level's free list, first ones first.

    With a cell to stay within, only listed cells below it, or the one that is at or above it. Cost O(list) then.
    """
    heads, within = np.empty(count, np.int32), suggestion.within
    taken, position = 0, 0
    while taken < count and position < s.free_count[level]:
        head = s.free_list[t.level_base[level] + position]
        if within != NO_CELL and not overlap(t, head, within):
            position += 1
            continue
        heads[taken] = head
        taken += 1
        remove_free(t, s, head)
    return heads[:taken]


@kernel
def _prepend_free(t: TopologyArrays, s: Cells, chain_level: int, cells: IntArray) -> None:
    base, count = t.level_base[chain_level], s.free_count[chain_level]
    for position in range(count - 1, -1, -1):
        moved = s.free_list[base + position]
        put(s, s.free_list, base + position + len(cells), moved)
        put(s, s.free_position, moved, position + len(cells))
    for position in range(len(cells)):
        put(s, s.free_list, base + position, cells[position])
        put(s, s.free_position, cells[position], position)
    put(s, s.free_count, chain_level, count + len(cells))
