"""Better rules: a group that did not fit by its first choices fits if there is any place for it (rules 19.1 to 19.6).

A cheap necessary check comes first, so that waiting for room in the VC costs little. Then larger pods are placed first.
Next comes the search over all cells of the VC and all hardware behind them: once as bindings are, once without idle
doomed cells. Where the VC combines cells, pods may also be over several of them.
"""

from collections.abc import Sequence

import numpy as np

from hived.combined_cells import by_pod, can_combine, leaf_by_leaf
from hived.decisions import Wait
from hived.events import Offer
from hived.journal import mark, undo_changes
from hived.known_waits import KnownWait, key_of, known_wait, remember_wait
from hived.mixed_sizes import could_hold, place_descending
from hived.nearness import Request
from hived.offered_placement import fit_offered, offer_to_all
from hived.offers import allows
from hived.placement import Placement, fit_in_view, map_placement
from hived.preassigned import release_idle_doomed
from hived.specs import OPPORTUNISTIC_PRIORITY
from hived.state import State
from hived.tries import MOST_TRIED, Tries
from hived.views import chain_of_view, first_cell, forget_moves

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
    """Any place for a group in its views; if there is none, what else there is to say, which is remembered.

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
    """Any place for a group in its views, and whether `combine: true` would give it one."""
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
    """The words of a reason for a search that was given up after so many tries; "" for 0, where none was."""
    return f"; the search was given up after {tries} tries" if tries else ""


def explain(reason: str, outcome: KnownWait) -> Wait:
    """A reason to wait, with all that would change the answer."""
    if outcome.would_combine:
        reason += "; several cells of the VC on one node have the room together: set combine: true for the VC"
    ending = given_up(outcome.given_up_after)
    return Wait(reason.removesuffix(ending) + ending)


def fit_without_doomed(state: State, request: Request, view: int, offer: Offer, tries: Tries) -> Placement | None:
    """`fit_offered`; if that finds none, once more without the doomed cells of the chain that nobody uses (rule 19.3).

    These are bound only to show bad hardware. Carrying the placement out releases those in the way, so it finds the
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
    """A gang of several sizes and no wish with larger pods first, where nobody of the VC has to leave (rule 19.2)."""
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
