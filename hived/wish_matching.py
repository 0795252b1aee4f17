"""Matching of wishes with physical cells of their level, and of the trees below both (rule 7.8).

Each level is a bipartite matching, first in lexicographic order, so the search is complete and polynomial.

A cell that is usable at or below node level has only usable cells below it, unless some of its leaves are lost: an
unbound cell has no bound descendants, and a node is healthy and suggested as a whole. So fitting needs a proof above
node level, and below it for cells with lost leaves, which are the last choice. The same holds for leaves in
opportunistic use where these are left alone (rule 18.6).
"""

import numpy as np

from hived.jit import kernel
from hived.matching import match_first
from hived.state import Cells
from hived.topology import NO_CELL, IntArray, TopologyArrays
from hived.tree import children_of, descend
from hived.wishes import NO_WISH, Suggestion, Wishes, is_usable, is_whole, order_candidates


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
    """Every wish fits every usable cell."""
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
