"""Places a group that did not fit by its first choices, if there is any place for it (rules 19.1 to 19.6).

A cheap necessary check comes first, so that waiting for room in the VC costs little. Then gangs of several sizes are
tried with larger pods first, each on the fullest node that has room (rule 19.2): the reference places smaller pods
first, and these can take the only room of a large one. Next comes the search over all cells of the VC and all hardware
behind them: once as bindings are, once without idle doomed cells. If the VC combines cells, a pod may also be spread
over several of them.
"""

from collections.abc import Sequence

import numpy as np

from hived.cells.journal import mark, undo_changes
from hived.cells.state import Cells, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray, TopologyArrays
from hived.cells.views import chain_of_view, first_cell, forget_moves, may_use, sort_view
from hived.complete.assignment import MOST_TRIED, Tries
from hived.complete.combined_cells import by_pod, can_combine, leaf_by_leaf
from hived.complete.known_waits import KnownWait, key_of, known_wait, remember_wait
from hived.complete.offered_placement import fit_offered, offer_to_all
from hived.complete.offers import allows
from hived.hived_rules.packing import Request, free_leaves, pick_leaves, skip_full
from hived.hived_rules.placement import Placement, fit_in_view, map_placement
from hived.kernels.jit import entry_kernel, kernel
from hived.life.preassigned import release_idle_doomed
from hived.values.decisions import Wait
from hived.values.events import Offer
from hived.values.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY


@kernel
def _is_idle_doomed(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """True if a node of a view is bound only by an unused doomed cell, so that other hardware may replace it."""
    if t.vc[cell] == NO_CELL or s.bound[t.root[cell]] == NO_CELL or s.priority[t.root[cell]] >= MIN_GUARANTEED_PRIORITY:
        return False
    return bool(s.doomed_position[s.bound[t.root[cell]]] != NO_CELL)


@entry_kernel
def could_hold(
    t: TopologyArrays, s: Cells, view: int, priority: int, sizes: IntArray, counts: LongArray, suggested: BoolArray,
    ignore_suggested: bool, combines: bool,
) -> bool:  # fmt: skip
    """True if a view has room for the pods of each size by themselves, and leaves for all of them.

    If not, no choice of cells and hardware can help. Nodes bound to bad or not suggested hardware do not count.

    sizes, counts : as in `packing.pick_nodes`

    combines : a pod may be on several nodes of the view, so the leaves alone are counted

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


MOST_SWEPT = 1 << 17
"""Nodes times tries of one decision without rules between pods: each try sweeps all nodes. At least LEAST_TRIED are
made."""

LEAST_TRIED = 32

MOST_COMBINED = 1 << 12
"""Leaves times tries of a search for pods over several cells: each try places all leaves anew. Half of LEAST_TRIED at
least are made."""


def fit_completely(
    state: State, request: Request, views: Sequence[int], offer: Offer | None, tries: Tries
) -> Placement | KnownWait:
    """Find any place for a group in its views; without one, return and remember the reason.

    offer : None if the request says which nodes will do

    Runs while the journal records. Costs a `mixed_sizes.could_hold` where the VC has no room, or an equal request had
    no place in this state; else a `fit_offered` for each view, up to four times.
    """
    # asked of every view, which puts each into the order of this request, whether or not it is searched
    could_hold_it = [_could_hold(state, request, view, combines=False) for view in views]
    if not any(could_hold_it) and not any(can_combine(state, request, view) for view in views):
        return KnownWait(would_combine=False, given_up_after=0)
    key = key_of(request, offer)
    outcome = known_wait(state, key)
    if outcome is not None:
        return outcome
    found, would_combine = _search(state, request, views, offer, tries)
    if found is not None:
        return found
    outcome = KnownWait(would_combine, tries.given_up_after)
    remember_wait(state, key, outcome)
    return outcome


def _search(
    state: State, request: Request, views: Sequence[int], offer: Offer | None, tries: Tries
) -> tuple[Placement | None, bool]:  # fmt: skip
    """Find any place for a group in its views; and tell if `combine: true` would give it one."""
    would_combine = False
    for view in views:
        if _could_hold(state, request, view, combines=False):
            found = _fit_descending(state, request, view) if offer is None else None
            if found is None:
                offer = offer or offer_to_all(state, request)
                found = fit_without_doomed(state, request, view, offer, tries)
            if found is not None:
                return found, False
        if can_combine(state, request, view) and _could_hold(state, request, view, combines=True):
            before, offer = mark(state), offer or offer_to_all(state, request)
            fewer = tries.fewer(max(LEAST_TRIED // 2, MOST_COMBINED // request.wanted))
            found = _fit_combined(state, request, view, offer, fewer)
            if found is not None and state.spec.virtual_clusters[request.pod.spec.virtual_cluster].combines:
                return found, False
            undo_changes(state, before)
            would_combine |= found is not None
    return None, would_combine


def tries_for(state: State) -> Tries:
    """The tries of a decision without rules between pods, fewer in large clusters (rule 19.7)."""
    return Tries(max(LEAST_TRIED, min(MOST_TRIED, MOST_SWEPT // len(state.topology.node_names))))


def given_up(tries: int) -> str:
    """The part of a reason that tells after how many tries the search was given up; "" for 0."""
    return f"; the search was given up after {tries} tries" if tries else ""


def explain(reason: str, outcome: KnownWait) -> Wait:
    """A reason to wait, with all that would change the answer."""
    if outcome.would_combine:
        reason += "; several cells of the VC on one node have the room together: set combine: true for the VC"
    ending = given_up(outcome.given_up_after)
    return Wait(reason.removesuffix(ending) + ending)


def fit_without_doomed(state: State, request: Request, view: int, offer: Offer, tries: Tries) -> Placement | None:
    """`fit_offered`; if that fails, once more without the unused doomed cells of the chain (rule 19.3).

    These are bound only to show bad hardware. Carrying the placement out releases the ones in the way, so it finds the
    same state.
    """
    found = fit_offered(state, request, view, offer, tries)
    if found is not None or not request.is_guaranteed:
        return found
    before, chain = mark(state), int(state.arrays.chain_of_level[state.arrays.chain_level[first_cell(state, view)]])
    if not release_idle_doomed(state.arrays, state.cells, chain):
        return None
    found = fit_offered(state, request, view, offer, tries) or _fit_below_node(state, request, view, offer)
    if found is None:
        undo_changes(state, before)
    return found


def _fit_below_node(state: State, request: Request, view: int, offer: Offer) -> Placement | None:
    """A gang for one cell below node level, which `fit_offered` leaves to the search before it."""
    spec, chain = request.pod.spec, chain_of_view(state, view)
    if not spec.within_is_required or not 0 < chain.type_levels.get(spec.within_cell, 0) < chain.node_level:
        return None
    nodes = np.asarray(offer.nodes.all(axis=0))
    before = mark(state)
    found = fit_in_view(state, request._replace(suggested=nodes, ignore=bool(nodes.all()), explains=False), view)
    if isinstance(found, Placement) and allows(state, spec.group.members, found.physical, offer):
        return found
    undo_changes(state, before)
    return None


def _fit_descending(state: State, request: Request, view: int) -> Placement | None:
    """Place a gang of several sizes without a topology wish, larger pods first, without preemption in the VC (rule
    19.2).
    """
    spec = request.pod.spec
    if len(request.sizes) == 1 or spec.within_cell or not spec.within_is_required:
        return None
    if request.wanted > state.topology.view_leaf_counts[view]:
        return None
    leaves = np.empty(request.wanted, np.int32)
    forget_moves(state.arrays, state.cells, view)
    has_room = place_descending(
        state.arrays, state.cells, view, OPPORTUNISTIC_PRIORITY, request.sizes, request.counts, request.suggested,
        request.ignore, leaves,
    )  # fmt: skip
    if not has_room:
        return None
    return map_placement(state, request, leaves) if request.is_guaranteed else Placement(leaves, None)


def _could_hold(state: State, request: Request, view: int, *, combines: bool) -> bool:
    return could_hold(
        state.arrays, state.cells, view, request.pod.spec.priority, request.sizes, request.counts, request.suggested,
        request.ignore, combines,
    )  # fmt: skip


def _fit_combined(state: State, request: Request, view: int, offer: Offer, tries: Tries) -> Placement | None:
    single, own = leaf_by_leaf(state, request, offer)
    found = fit_without_doomed(state, single, view, own, tries)
    return None if found is None else by_pod(state, request, found)
