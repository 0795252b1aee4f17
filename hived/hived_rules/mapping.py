"""Maps virtual cells to physical ones: finds the hardware behind a VC's placement (rules 7).

Preassigned cells are placed by buddy allocation on the chain's free lists, one after the other (rules 7.2, 7.10). Cells
below a bound cell are matched with the children of its physical cell. Free lists and claims are changed on the way and
restored.
"""

import numpy as np

from hived.cells.journal import put, undo_writes
from hived.cells.safety import keeps_safety, spare_cells
from hived.cells.state import Cells
from hived.cells.topology import BoolArray, IntArray, TopologyArrays
from hived.cells.tree import children_of
from hived.hived_rules.buddy_allocation import buddy_allocate, split_relaxed
from hived.hived_rules.wishes import NO_WISH, Suggestion, Wishes, assign, collect_wishes, no_wishes
from hived.kernels.jit import entry_kernel, kernel


@entry_kernel
def map_leaves(
    t: TopologyArrays, s: Cells, virtual: IntArray, suggested: BoolArray, ignore_suggested: bool, within: int,
    physical: IntArray,
) -> bool:  # fmt: skip
    """Find a physical leaf for each virtual leaf of a placement; returns True if there is a mapping.

    virtual : leaves in the order size, pod, leaf; physical : out, same shape

    within : bound cells shall be below or above this physical cell; NO_CELL: anywhere

    Must run while the journal records; its changes on the way are undone. Cost O(leaves x height) when the first
    candidates fit.
    """
    w = no_wishes(t, virtual)
    tops = np.empty(len(virtual), np.int32)
    leaf_wish = np.full(len(virtual), NO_WISH, np.int32)
    preassigned, below_bound = collect_wishes(t, s, virtual, leaf_wish, w, tops)
    mark = s.journal_control[1]
    suggestion = Suggestion(suggested, ignore_suggested, within, False, False)
    mapped = _place_wishes(t, s, w, tops, preassigned, below_bound, suggestion)
    undo_writes(s, mark)
    if mapped:
        for i in range(len(virtual)):
            wish = leaf_wish[i]
            physical[i] = s.bound[virtual[i]] if wish == NO_WISH else w.match[wish]
    return mapped


@kernel
def _place_wishes(
    t: TopologyArrays, s: Cells, w: Wishes, tops: IntArray, preassigned: int, below_bound: int, suggestion: Suggestion
) -> bool:
    if preassigned > 0:
        spare = spare_cells(t, s, t.chain_of_level[t.chain_level[w.cell[tops[0]]]])
    for i in range(preassigned):
        chain_level = 0 + t.chain_level[w.cell[tops[i]]]  # 64 bits wide, or numba compiles the callees twice
        if buddy_allocate(t, s, w, tops[i], chain_level, suggestion):
            put(s, s.claims, chain_level, s.claims[chain_level] - 1)
        elif not split_relaxed(t, s, w, tops[i], chain_level, suggestion):
            return False
    if preassigned > 0:
        taken = np.empty(preassigned, np.int32)
        for i in range(preassigned):
            taken[i] = w.match[tops[i]]
        if not keeps_safety(t, s, taken, spare):
            return False
    return place_below_bound(t, s, w, tops, below_bound, suggestion)


@kernel
def place_below_bound(
    t: TopologyArrays, s: Cells, w: Wishes, tops: IntArray, below_bound: int, suggestion: Suggestion
) -> bool:
    """Match the wishes below each bound parent with the children of its physical cell (rule 7.8).

    tops : as of `collect_wishes`; fills `w.match`
    """
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
