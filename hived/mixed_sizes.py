"""Gangs of pods of several sizes in one view: larger pods first, each on the fullest node that has room (rule 19.2).

The reference places smaller pods first and never returns to a node. So small pods can take the only room of a large
one. Both look at the cells of the VC alone, not at the hardware behind them.
"""

import numpy as np

from hived.jit import entry_kernel, kernel
from hived.packing import free_leaves, pick_leaves, skip_full
from hived.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived.state import Cells
from hived.topology import NO_CELL, BoolArray, IntArray, LongArray, TopologyArrays
from hived.views import may_use, sort_view


@kernel
def _is_idle_doomed(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """Is a node of a view bound only by a doomed cell that nobody uses, so that other hardware may take its place?"""
    if t.vc[cell] == NO_CELL or s.bound[t.root[cell]] == NO_CELL or s.priority[t.root[cell]] >= MIN_GUARANTEED_PRIORITY:
        return False
    return bool(s.doomed_position[s.bound[t.root[cell]]] != NO_CELL)


@entry_kernel
def could_hold(
    t: TopologyArrays, s: Cells, view: int, priority: int, sizes: IntArray, counts: LongArray, suggested: BoolArray,
    ignore_suggested: bool, combines: bool,
) -> bool:  # fmt: skip
    """Does a view have room for the pods of each size by themselves, and leaves for all of them?

    If not, no choice of cells and hardware can help. Nodes bound to bad or not suggested hardware do not count.

    sizes, counts : as in `packing.pick_nodes`

    combines : may a pod be on several nodes of the view? Then the leaves alone are counted

    Cost O(log nodes) in a VC that is full, O(nodes) as a rule, O(leaves) if there are lower priorities.
    """
    sort_view(t, s, view, suggested, ignore_suggested)
    below, start = priority, t.view_start[view]
    if priority <= MIN_GUARANTEED_PRIORITY:
        below = OPPORTUNISTIC_PRIORITY
        start += skip_full(t, s, view, 1 if combines else sizes[0])
    wanted = np.int64(0)
    for member in range(len(sizes)):
        wanted += sizes[member] * counts[member]
    room = np.zeros(len(sizes), np.int64)
    total = np.int64(0)
    for position in range(start, t.view_start[view + 1]):
        cell = s.view_order[position]
        if _is_idle_doomed(t, s, cell):
            free = np.int64(t.leaf_count[t.chain_level[cell]])
        elif may_use(t, s, cell, suggested, ignore_suggested):
            free = np.int64(free_leaves(t, s, cell, below, False))
        else:
            continue
        total += free
        is_enough = bool(total >= wanted)
        for member in range(len(sizes)):
            room[member] += free // sizes[member]
            is_enough = is_enough and (combines or bool(room[member] >= counts[member]))
        if is_enough:
            return True
    return False


@entry_kernel
def place_descending(
    t: TopologyArrays, s: Cells, view: int, priority: int, sizes: IntArray, counts: LongArray, suggested: BoolArray,
    ignore_suggested: bool, leaves: IntArray,
) -> bool:  # fmt: skip
    """Place a gang in a view, larger pods first, each on the first node in the view's order that has room.

    priority : of the leaves that may be taken, as in `packing.pick_nodes`

    leaves : out; the leaf cells in the order size, pod, leaf; as many as are wanted

    Returns whether all have a place. Nodes bound to bad or not suggested hardware are passed over. Cost O(nodes x sizes
    + pods x leaves of a node).
    """
    sort_view(t, s, view, suggested, ignore_suggested)
    start, end = t.view_start[view], t.view_start[view + 1]
    free = np.zeros(end - start, np.int64)
    for place in range(end - start):
        cell = s.view_order[start + place]
        if may_use(t, s, cell, suggested, ignore_suggested):
            free[place] = free_leaves(t, s, cell, priority, False)
    pod_count = 0
    for member in range(len(sizes)):
        pod_count += counts[member]
    places = np.empty(pod_count, np.int64)
    last = pod_count
    for member in range(len(sizes) - 1, -1, -1):
        place = 0
        for pod in range(last - counts[member], last):
            while place < len(free) and free[place] < sizes[member]:
                place += 1
            if place == len(free):
                return False
            free[place] -= sizes[member]
            places[pod] = place
        last -= counts[member]
    _pick_all(t, s, view, priority, sizes, counts, places, leaves)
    return True


@kernel
def _pick_all(
    t: TopologyArrays, s: Cells, view: int, priority: int, sizes: IntArray, counts: LongArray, places: LongArray,
    leaves: IntArray,
) -> None:  # fmt: skip
    """Choose the leaves of each pod on its node, larger pods first."""
    size_of, first_of = np.empty(len(places), np.int32), np.empty(len(places), np.int64)
    pod, filled = 0, 0
    for member in range(len(sizes)):
        for _ in range(counts[member]):
            size_of[pod], first_of[pod] = sizes[member], filled
            filled += sizes[member]
            pod += 1
    keys = np.empty(len(places), np.int64)
    for i in range(len(places)):
        keys[i] = np.int64(places[i]) * len(places) + len(places) - 1 - i
    order = np.argsort(keys, kind="mergesort")
    taken, previous = np.zeros(0, np.int32), -1
    for pod in order:
        cell = s.view_order[t.view_start[view] + places[pod]]
        if places[pod] != previous:
            taken = np.zeros(t.leaf_count[t.chain_level[cell]], np.int32)
            previous = places[pod]
        first, size = first_of[pod], size_of[pod]
        pick_leaves(t, s, cell, priority, False, size, taken, leaves[first : first + size])
