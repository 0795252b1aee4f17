"""From virtual cells to physical ones: which hardware stands behind a VC's placement (rules 7).

The virtual leaves that are not bound yet form trees of cells to bind, here *wishes*. A wish at the top is a
preassigned cell, placed by buddy allocation on the chain's free lists, or a child of a bound cell, placed below its
parent's physical cell. Below a candidate, wishes are matched level by level: a bipartite matching, first in
lexicographic order, so mapping is complete and polynomial (rule 7.8). Free lists and quota are changed on the way
and put back at the end.

A cell that is usable at or below node level has only usable cells below it, unless some of its leaves are lost: an
unbound cell has no bound descendants, and a node is healthy and suggested as a whole. So fitting needs a proof above
node level, and below it for cells with lost leaves, which are the last choice.
"""

from typing import NamedTuple

import numpy as np

from hived.buddy import append_free, remove_free
from hived.jit import entry_kernel, kernel
from hived.journal import put, undo_writes
from hived.matching import match_first
from hived.safety import keeps_safety, spare_cells
from hived.state import Cells
from hived.topology import NO_CELL, BoolArray, IntArray, TopologyArrays
from hived.tree import children_of, descend, overlap
from hived.views import is_bad_as_a_whole

NO_WISH = -1
_RANK_SHIFT = 31
_IS_LOST = 1 << 61  # more than any rank of a cell without lost leaves


class Wishes(NamedTuple):
    """Virtual cells to bind, as linked trees; index 0 .. total[0] - 1, children in the order of first use."""

    cell: IntArray  # the virtual cell
    first_child: IntArray
    last_child: IntArray
    next: IntArray  # next sibling; for wishes at the top the next one below the same bound parent
    child_count: IntArray
    match: IntArray  # out: the physical cell
    total: IntArray


class Suggestion(NamedTuple):
    """Which nodes may be used, and the cell below or above which all that is bound shall be; NO_CELL: anywhere."""

    suggested: BoolArray
    ignore: bool
    within: int


@kernel
def is_usable(t: TopologyArrays, s: Cells, cell: int, suggestion: Suggestion) -> bool:
    """May a virtual cell be bound to this physical cell? (rule 7.5) Cost O(nodes of the cell)."""
    if s.bound[cell] != NO_CELL:
        return False
    if suggestion.within != NO_CELL and not overlap(t, cell, suggestion.within):
        return False
    if t.node[cell] != NO_CELL:
        is_bad = s.bad[cell] == 1 and is_bad_as_a_whole(t, s, cell)
        return not is_bad and (suggestion.ignore or suggestion.suggested[t.node[cell]])
    if suggestion.ignore:
        return True
    first, count = cell, 1
    while t.node[first] == NO_CELL:
        count *= t.child_count[t.chain_level[first]]
        first = t.first_child[first]
    for node_cell in range(first, first + count):
        if suggestion.suggested[t.node[node_cell]]:
            return True
    return False


@kernel
def collect_wishes(
    t: TopologyArrays, s: Cells, virtual: IntArray, leaf_wish: IntArray, w: Wishes, tops: IntArray
) -> tuple[int, int]:
    """Turn the virtual leaves that are not bound into wishes.

    leaf_wish : out; the wish of each leaf, NO_WISH for leaves that are bound already

    tops : out; preassigned wishes from the front, and from the back one wish per bound parent, the first of its list

    Returns how many of each. Cost O(leaves x height).
    """
    preassigned, below_bound = 0, 0
    for i in range(len(virtual)):
        cell = virtual[i]
        child = NO_WISH
        while cell != NO_CELL and s.bound[cell] == NO_CELL:
            wish = s.mark[cell] - 1
            is_known = wish != NO_WISH
            if not is_known:
                wish = _add_wish(s, w, cell)
            if child == NO_WISH:
                leaf_wish[i] = wish
            else:
                _append_child(w, wish, child)
            child = wish
            if is_known:
                break
            cell = t.parent[cell]
        else:
            if child == NO_WISH:
                continue
            if cell == NO_CELL:
                tops[preassigned] = child
                preassigned += 1
            elif s.mark[cell] == 0:
                below_bound += 1
                tops[len(tops) - below_bound] = child
                s.mark[cell] = child + 1
            else:
                w.next[s.mark[cell] - 1] = child
                s.mark[cell] = child + 1
    for wish in range(w.total[0]):
        s.mark[w.cell[wish]] = 0
        if t.parent[w.cell[wish]] != NO_CELL:
            s.mark[t.parent[w.cell[wish]]] = 0
    return preassigned, below_bound


@kernel
def _add_wish(s: Cells, w: Wishes, cell: int) -> int:
    """A new wish for a cell; `mark` holds its number plus one until all are collected."""
    wish = w.total[0]
    w.cell[wish] = cell
    w.first_child[wish] = NO_WISH
    w.last_child[wish] = NO_WISH
    w.next[wish] = NO_WISH
    w.child_count[wish] = 0
    w.match[wish] = NO_CELL
    w.total[0] = wish + 1
    s.mark[cell] = wish + 1
    return wish


@kernel
def _append_child(w: Wishes, parent: int, child: int) -> None:
    if w.first_child[parent] == NO_WISH:
        w.first_child[parent] = child
    else:
        w.next[w.last_child[parent]] = child
    w.last_child[parent] = child
    w.child_count[parent] += 1


@kernel
def rank_of(s: Cells, cell: int) -> int:
    """Which physical cells to take first: those with fewest opportunistic leaves, last those with lost leaves.

    Opportunistic leaves of elastic groups count only between equals. Of cells with lost leaves, those with fewest come
    first, then those with fewest opportunistic leaves of any group.
    """
    lent = int(s.opportunistic_used[cell])
    if s.lost[cell] > 0:
        return _IS_LOST + (int(s.lost[cell]) << _RANK_SHIFT) + lent
    return ((lent - int(s.elastic_lent[cell])) << _RANK_SHIFT) + lent


@kernel
def order_candidates(t: TopologyArrays, s: Cells, first: IntArray, suggestion: Suggestion, ordered: IntArray) -> int:
    """Positions of the usable cells of `first`, least `rank_of` first, stably; returns their number."""
    count = 0
    for i in range(len(first)):
        if is_usable(t, s, first[i], suggestion):
            rank = rank_of(s, first[i])
            place = count
            while place > 0 and rank_of(s, first[ordered[place - 1]]) > rank:
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = i
            count += 1
    return count


@kernel
def fit_matrix(
    t: TopologyArrays, s: Cells, w: Wishes, wishes: IntArray, candidates: IntArray, suggestion: Suggestion
) -> IntArray:
    """Which of `wishes` fits which of `candidates`, all at one level: shape (wishes, candidates), 1 where it fits.

    Worked out from the nodes upwards: a wish fits a usable cell whose children its children match. At node level and
    below, that needs to be looked at only where leaves are lost.
    """
    node_level = t.node_level[t.chain_of_level[t.chain_level[candidates[0]]]]
    depth = max(0, t.level[candidates[0]] - node_level)
    wish_lists, wish_starts = _descend_wishes(w, wishes, depth)
    rows, cells = wish_lists[wish_starts[depth] : wish_starts[depth + 1]], descend(t, candidates, depth)
    fits = _fit_usable(t, s, rows, cells, suggestion)
    for column in range(len(cells)):
        if s.lost[cells[column]] > 0 and t.level[cells[column]] > 1:
            for row in range(len(rows)):
                if fits[row, column] == 1:
                    fits[row, column] = _fits_in_part(t, s, w, rows[row], cells[column], suggestion)
    for step in range(depth - 1, -1, -1):
        rows = wish_lists[wish_starts[step] : wish_starts[step + 1]]
        fits = _fit_parents(t, s, w, rows, descend(t, candidates, step), fits, suggestion)
    return fits


@kernel
def _fit_usable(t: TopologyArrays, s: Cells, rows: IntArray, cells: IntArray, suggestion: Suggestion) -> IntArray:
    """Every wish fits every usable cell."""
    fits = np.zeros((len(rows), len(cells)), np.int32)
    for column in range(len(cells)):
        if is_usable(t, s, cells[column], suggestion):
            for row in range(len(rows)):
                fits[row, column] = 1
    return fits


@kernel
def _fits_in_part(t: TopologyArrays, s: Cells, w: Wishes, wish: int, cell: int, suggestion: Suggestion) -> int:
    """1 if what is below a wish fits below a cell at or below node level, some of whose leaves are lost.

    Cost O(leaves of the cell^2 x levels), as a rule.
    """
    ones = np.empty(1, np.int32)
    ones[0] = wish
    top = np.empty(1, np.int32)
    top[0] = cell
    depth = t.level[cell] - 1
    wish_lists, wish_starts = _descend_wishes(w, ones, depth)
    rows = wish_lists[wish_starts[depth] : wish_starts[depth + 1]]
    fits = _fit_usable(t, s, rows, descend(t, top, depth), suggestion)
    for step in range(depth - 1, -1, -1):
        rows = wish_lists[wish_starts[step] : wish_starts[step + 1]]
        fits = _fit_parents(t, s, w, rows, descend(t, top, step), fits, suggestion)
    return fits[0, 0]


@kernel
def _fit_parents(
    t: TopologyArrays, s: Cells, w: Wishes, rows: IntArray, cells: IntArray, below: IntArray, suggestion: Suggestion
) -> IntArray:
    """Which of `rows` fits which of `cells`, if `below` says so of their children, in order."""
    fits = np.zeros((len(rows), len(cells)), np.int32)
    span = t.child_count[t.chain_level[cells[0]]]
    child_row = 0
    for row in range(len(rows)):
        end = child_row + w.child_count[rows[row]]
        for column in range(len(cells)):
            if end - child_row <= span and is_usable(t, s, cells[column], suggestion):
                block = below[child_row:end, column * span : (column + 1) * span].copy()
                if match_first(block, np.empty(len(block), np.int32)):
                    fits[row, column] = 1
        child_row = end
    return fits


@kernel
def _descend_wishes(w: Wishes, wishes: IntArray, depth: int) -> tuple[IntArray, IntArray]:
    """The wishes and the `depth` generations below them, one flat list, with the start of each generation."""
    flat = np.empty(w.total[0], np.int32)
    starts = np.zeros(depth + 2, np.int32)
    filled = 0
    for wish in wishes:
        flat[filled] = wish
        filled += 1
    for generation in range(depth):
        starts[generation + 1] = filled
        for i in range(starts[generation], starts[generation + 1]):
            child = w.first_child[flat[i]]
            while child != NO_WISH:
                flat[filled] = child
                filled += 1
                child = w.next[child]
    starts[depth + 1] = filled
    return flat, starts


@kernel
def assign(
    t: TopologyArrays, s: Cells, w: Wishes, wishes: IntArray, candidates: IntArray, suggestion: Suggestion
) -> bool:
    """Match wishes with candidates of their level and everything below them; fills `w.match`, false if impossible."""
    stack = np.empty(w.total[0], np.int32)
    height = 0
    if not _assign_level(t, s, w, wishes, candidates, suggestion):
        return False
    for wish in wishes:
        stack[height] = wish
        height += 1
    while height > 0:
        height -= 1
        wish = stack[height]
        count = w.child_count[wish]
        if count == 0:
            continue
        children = np.empty(count, np.int32)
        child = w.first_child[wish]
        for i in range(count):
            children[i] = child
            child = w.next[child]
        cell = w.match[wish]
        if not _assign_level(t, s, w, children, children_of(t, cell), suggestion):
            return False
        for i in range(count):
            stack[height] = children[i]
            height += 1
    return True


@kernel
def _assign_level(
    t: TopologyArrays, s: Cells, w: Wishes, wishes: IntArray, candidates: IntArray, suggestion: Suggestion
) -> bool:
    """Match wishes with candidates at one level, those to take first by their rank."""
    ordered = np.empty(len(candidates), np.int32)
    usable = order_candidates(t, s, candidates, suggestion, ordered)
    if usable < len(wishes):
        return False
    preferred = candidates[ordered[:usable]]
    if t.node[candidates[0]] != NO_CELL and s.lost[preferred[len(wishes) - 1]] == 0:
        for i in range(len(wishes)):
            w.match[wishes[i]] = preferred[i]
        return True
    match = np.empty(len(wishes), np.int32)
    if not match_first(fit_matrix(t, s, w, wishes, preferred, suggestion), match):
        return False
    for i in range(len(wishes)):
        w.match[wishes[i]] = preferred[match[i]]
    return True


@kernel
def next_candidate(
    t: TopologyArrays, s: Cells, chain_level: int, suggestion: Suggestion, last_rank: int, last_position: int
) -> int:
    """Position in a free list of the usable cell that follows (last_rank, last_position) by (`rank_of`, position).

    NO_CELL if there is none. Cost O(1) as a rule, O(list) at worst.
    """
    base = t.level_base[chain_level]
    best, best_rank = NO_CELL, 0
    for position in range(s.free_count[chain_level]):
        cell = s.free_list[base + position]
        rank = rank_of(s, cell)
        if rank < last_rank or (rank == last_rank and position <= last_position):
            continue
        if (best != NO_CELL and rank >= best_rank) or not is_usable(t, s, cell, suggestion):
            continue
        best, best_rank = position, rank
        if rank == 0 or rank == last_rank:
            break
    return best


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
def split_relaxed(t: TopologyArrays, s: Cells, w: Wishes, root: int, chain_level: int, suggestion: Suggestion) -> bool:
    """Safe relaxed split: split all that the VCs' quota leaves over, level by level, until it fits (rule 7.6)."""
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
    """Take this many cells out of a level's free list, or the one that is at or above the cell to stay within."""
    heads = np.empty(count, np.int32)
    if suggestion.within != NO_CELL:
        head = suggestion.within
        while head != NO_CELL and t.chain_level[head] < level:
            head = t.parent[head]
        if count == 0 or head == NO_CELL or t.chain_level[head] != level or s.free_position[head] == NO_CELL:
            return heads[:0]
        heads[0] = head
        remove_free(t, s, head)
        return heads[:1]
    for i in range(count):
        heads[i] = s.free_list[t.level_base[level]]
        remove_free(t, s, heads[i])
    return heads


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


@kernel
def _place_wishes(
    t: TopologyArrays, s: Cells, w: Wishes, tops: IntArray, preassigned: int, below_bound: int, suggestion: Suggestion
) -> bool:
    if preassigned > 0:
        spare = spare_cells(t, s, t.chain_of_level[t.chain_level[w.cell[tops[0]]]])
    for i in range(preassigned):
        chain_level = 0 + t.chain_level[w.cell[tops[i]]]  # 64 bits wide, or numba compiles the callees twice
        if buddy_allocate(t, s, w, tops[i], chain_level, suggestion):
            put(s, s.all_vc_free, chain_level, s.all_vc_free[chain_level] - 1)
        elif not split_relaxed(t, s, w, tops[i], chain_level, suggestion):
            return False
    if preassigned > 0:
        taken = np.empty(preassigned, np.int32)
        for i in range(preassigned):
            taken[i] = w.match[tops[i]]
        if not keeps_safety(t, s, taken, spare):
            return False
    for i in range(len(tops) - 1, len(tops) - 1 - below_bound, -1):
        count, wish = 0, tops[i]
        while wish != NO_WISH:
            count += 1
            wish = w.next[wish]
        wishes = np.empty(count, np.int32)
        wish = tops[i]
        for k in range(count):
            wishes[k] = wish
            wish = w.next[wish]
        candidates = children_of(t, s.bound[t.parent[w.cell[tops[i]]]])
        if not assign(t, s, w, wishes, candidates, suggestion):
            return False
    return True


@entry_kernel
def map_leaves(
    t: TopologyArrays, s: Cells, virtual: IntArray, suggested: BoolArray, ignore_suggested: bool, within: int,
    physical: IntArray,
) -> bool:  # fmt: skip
    """Find a physical leaf for each virtual leaf of a placement; returns whether there is a mapping.

    virtual : leaves in the order size, pod, leaf; physical : out, same shape

    within : what is bound shall be below or above this physical cell; NO_CELL: anywhere

    Must run while the journal records; what it changes on the way is undone. Cost O(leaves x height)
    when the first candidates fit.
    """
    size = 0
    for leaf in virtual:
        size += t.level[t.root[leaf]]
    w = Wishes(
        np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32),
        np.empty(size, np.int32), np.empty(size, np.int32), np.zeros(1, np.int32),
    )  # fmt: skip
    tops = np.empty(len(virtual), np.int32)
    leaf_wish = np.full(len(virtual), NO_WISH, np.int32)
    preassigned, below_bound = collect_wishes(t, s, virtual, leaf_wish, w, tops)
    mark = s.journal_control[1]
    mapped = _place_wishes(t, s, w, tops, preassigned, below_bound, Suggestion(suggested, ignore_suggested, within))
    undo_writes(s, mark)
    if mapped:
        for i in range(len(virtual)):
            wish = leaf_wish[i]
            physical[i] = s.bound[virtual[i]] if wish == NO_WISH else w.match[wish]
    return mapped
