"""Virtual cells that need hardware, and their matching with physical cells (rules 7.1, 7.4, 7.5, 7.8).

The virtual leaves of a placement that are not bound yet form trees of cells to bind, here *wishes*. A wish at the top
is a preassigned cell, or a child of a bound cell. Wishes are matched with physical cells level by level. Each level is
a bipartite matching, first in lexicographic order, so the search is complete and polynomial.

A cell that is usable at or below node level has only usable cells below it, unless some of its leaves are lost: an
unbound cell has no bound descendants, and a node is healthy and suggested as a whole. So fitting needs a proof above
node level, and below it for cells with lost leaves, which are the last choice. The same holds for leaves in
opportunistic use where these are left alone (rule 18.6).
"""

from typing import NamedTuple

import numpy as np

from hived.cells.state import Cells
from hived.cells.topology import NO_CELL, BoolArray, IntArray, TopologyArrays
from hived.cells.tree import children_of, descend, overlap
from hived.cells.views import is_bad_as_a_whole
from hived.hived_rules.matching import match_first
from hived.kernels.jit import kernel

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
    """The nodes that may be used, and the cell below or above which all bound cells shall be; NO_CELL: anywhere.

    spares : leave leaves in opportunistic use alone
    is_sound : new preassigned cells have no bad leaf, used or not, and leave good cells for all claims
    """

    suggested: BoolArray
    ignore: bool
    within: int
    spares: bool
    is_sound: bool


@kernel
def no_wishes(t: TopologyArrays, virtual: IntArray) -> Wishes:
    """An empty `Wishes` with room for some virtual leaves."""
    size = 0
    for leaf in virtual:
        size += t.level[t.root[leaf]]
    return Wishes(
        np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32),
        np.empty(size, np.int32), np.empty(size, np.int32), np.zeros(1, np.int32),
    )  # fmt: skip


@kernel
def collect_wishes(
    t: TopologyArrays, s: Cells, virtual: IntArray, leaf_wish: IntArray, w: Wishes, tops: IntArray
) -> tuple[int, int]:
    """Turn the virtual leaves that are not bound into wishes (rule 7.1).

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
def is_usable(t: TopologyArrays, s: Cells, cell: int, suggestion: Suggestion) -> bool:
    """True if a virtual cell may be bound to this physical cell (rule 7.5). Cost O(nodes of the cell)."""
    if s.bound[cell] != NO_CELL:
        return False
    if suggestion.within != NO_CELL and not overlap(t, cell, suggestion.within):
        return False
    if suggestion.spares and t.level[cell] == 1 and s.opportunistic_used[cell] > 0:
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
def is_whole(s: Cells, cell: int, suggestion: Suggestion) -> bool:
    """True if every leaf below a usable cell at or below node level is usable."""
    return bool(s.lost[cell] == 0 and not (suggestion.spares and s.opportunistic_used[cell] > 0))


@kernel
def rank_of(s: Cells, cell: int) -> int:
    """The order of physical cells to take: fewest opportunistic leaves first, cells with lost leaves last (rule 15.2).

    Opportunistic leaves of elastic groups count only between equals. Among cells with lost leaves, fewest lost leaves
    come first, then fewest opportunistic leaves of any group.
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
    """Match wishes with candidates at one level, in the order of their rank."""
    ordered = np.empty(len(candidates), np.int32)
    usable = order_candidates(t, s, candidates, suggestion, ordered)
    if usable < len(wishes):
        return False
    preferred = candidates[ordered[:usable]]
    if t.node[candidates[0]] != NO_CELL and _are_whole(s, preferred[: len(wishes)], suggestion):
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
def _are_whole(s: Cells, cells: IntArray, suggestion: Suggestion) -> bool:
    for cell in cells:
        if not is_whole(s, cell, suggestion):
            return False
    return True


@kernel
def fit_matrix(
    t: TopologyArrays, s: Cells, w: Wishes, wishes: IntArray, candidates: IntArray, suggestion: Suggestion
) -> IntArray:
    """Match each of `wishes` with each of `candidates` of one level: shape (wishes, candidates), 1 where it fits.

    Worked out from the nodes upwards: a wish fits a usable cell whose children its children match. At node level and
    below, that needs to be looked at only where leaves are lost.
    """
    node_level = t.node_level[t.chain_of_level[t.chain_level[candidates[0]]]]
    depth = max(0, t.level[candidates[0]] - node_level)
    wish_lists, wish_starts = _descend_wishes(w, wishes, depth)
    rows, cells = wish_lists[wish_starts[depth] : wish_starts[depth + 1]], descend(t, candidates, depth)
    fits = _fit_usable(t, s, rows, cells, suggestion)
    for column in range(len(cells)):
        if t.level[cells[column]] > 1 and not is_whole(s, cells[column], suggestion):
            for row in range(len(rows)):
                if fits[row, column] == 1:
                    fits[row, column] = _fits_in_part(t, s, w, rows[row], cells[column], suggestion)
    for step in range(depth - 1, -1, -1):
        rows = wish_lists[wish_starts[step] : wish_starts[step + 1]]
        fits = _fit_parents(t, s, w, rows, descend(t, candidates, step), fits, suggestion)
    return fits


@kernel
def _fit_usable(t: TopologyArrays, s: Cells, rows: IntArray, cells: IntArray, suggestion: Suggestion) -> IntArray:
    fits = np.zeros((len(rows), len(cells)), np.int32)
    for column in range(len(cells)):
        if is_usable(t, s, cells[column], suggestion):
            for row in range(len(rows)):
                fits[row, column] = 1
    return fits


@kernel
def _fits_in_part(t: TopologyArrays, s: Cells, w: Wishes, wish: int, cell: int, suggestion: Suggestion) -> int:
    """1 if the tree below a wish fits below a cell at or below node level of which not all leaves are usable.

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
    """Find the `cells` that fit each of `rows`, if `below` says so of their children, in order."""
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
