"""Maps virtual cells to physical ones under better rules: without victims, and near together (rules 18.6, 18.7).

The hardware behind bound cells is given. The rest may be chosen: any free physical cells for preassigned cells, and any
free children of a bound cell for children.
"""

import numpy as np

from hived.better_rules.root_choice import order_roots, place_roots
from hived.cells.journal import put, undo_writes
from hived.cells.state import Cells
from hived.cells.topology import NO_CELL, BoolArray, IntArray, TopologyArrays
from hived.cells.tree import ancestor_at
from hived.hived_rules.mapping import place_below_bound
from hived.hived_rules.wishes import NO_WISH, Suggestion, Wishes, collect_wishes, no_wishes
from hived.kernels.jit import entry_kernel, kernel


@entry_kernel
def map_closely(
    t: TopologyArrays, s: Cells, virtual: IntArray, suggested: BoolArray, ignore_suggested: bool, most_level: int,
    is_sound: bool, pardoned: IntArray, physical: IntArray,
) -> bool:  # fmt: skip
    """Find a physical leaf for each virtual leaf without preempting an opportunistic group; returns True if found.

    virtual : leaves in the order size, pod, leaf; physical : out, same shape

    most_level : all leaves shall be below one physical cell of this level at most; 0: anywhere

    is_sound : new preassigned cells have no bad leaf, and leave good cells for all claims

    pardoned : leaves of opportunistic groups that may have to leave all the same, without NO_CELL

    Must run while the journal records; its changes on the way are undone. Cost O(leaves x height + pardoned leaves),
    and that of `place_roots`.
    """
    mark = s.journal_control[1]
    _pardon(t, s, pardoned)
    w = no_wishes(t, virtual)
    tops, leaf_wish = np.empty(len(virtual), np.int32), np.full(len(virtual), NO_WISH, np.int32)
    preassigned, below_bound = collect_wishes(t, s, virtual, leaf_wish, w, tops)
    suggestion = Suggestion(suggested, ignore_suggested, NO_CELL, True, is_sound)
    mapped = place_below_bound(t, s, w, tops, below_bound, suggestion)
    if mapped and preassigned > 0:
        roots = order_roots(t, s, w, tops[:preassigned], virtual)
        anchor = _anchor(t, s, w, virtual, leaf_wish)
        mapped = place_roots(t, s, w, roots, anchor, most_level, suggestion)
    undo_writes(s, mark)
    if mapped:
        for i in range(len(virtual)):
            wish = leaf_wish[i]
            physical[i] = s.bound[virtual[i]] if wish == NO_WISH else w.match[wish]
            if most_level > 0 and ancestor_at(t, physical[i], most_level) != ancestor_at(t, physical[0], most_level):
                return False  # cells that were bound before may be far apart
    return mapped


@kernel
def _pardon(t: TopologyArrays, s: Cells, leaves: IntArray) -> None:
    """Let leaves in opportunistic use count as free, until that is undone.

    Neighbours are counted together in the cells above them. Cost O(leaves) where most are neighbours.
    """
    cells, counts, left = leaves.copy(), np.ones(len(leaves), np.int32), len(leaves)
    while left > 0:
        above = 0
        for i in range(left):
            cell, count = cells[i], counts[i]
            put(s, s.opportunistic_used, cell, s.opportunistic_used[cell] - count)
            parent = t.parent[cell]
            if parent == NO_CELL:
                continue
            if above > 0 and cells[above - 1] == parent:
                counts[above - 1] += count
            else:
                cells[above], counts[above] = parent, count
                above += 1
        left = above


@kernel
def _anchor(t: TopologyArrays, s: Cells, w: Wishes, virtual: IntArray, leaf_wish: IntArray) -> int:
    """The lowest physical cell that has all leaves of bound preassigned cells that a group takes; NO_CELL if none.

    Leaves of different top cells have none; the first one's top cell stands for it.
    """
    anchor = NO_CELL
    for i in range(len(virtual)):
        if s.bound[t.root[virtual[i]]] == NO_CELL:
            continue
        leaf = s.bound[virtual[i]] if leaf_wish[i] == NO_WISH else w.match[leaf_wish[i]]
        if anchor == NO_CELL:
            anchor = leaf
        while t.level[anchor] < t.level[leaf] or anchor != ancestor_at(t, leaf, t.level[anchor]):
            if t.parent[anchor] == NO_CELL:
                break
            anchor = t.parent[anchor]
    return anchor
