"""Searches cells for a new group: which chains to try, then placement in the VC and mapping (rules 5.7 to 5.11).

With an offer of Kubernetes the search does not end with the first placement in the VC: that one is taken if the offer
allows it. Next comes one that keeps to the nodes that all pods may use, then any other that `offered_placement` finds.
"""

from collections.abc import Iterator

import numpy as np

from hived.better_rules.better_placement import fit_better
from hived.better_rules.own_cells import fit_own
from hived.cells.journal import mark, undo_changes
from hived.cells.state import State
from hived.cells.topology import BoolArray, IntArray
from hived.cells.views import chain_of_view, views_to_try
from hived.complete.assignment import Tries
from hived.complete.capacity import Capacity
from hived.complete.fitting import explain, fit_completely, given_up, tries_for
from hived.complete.offered_placement import fit_idle, fit_offered
from hived.complete.offers import allows
from hived.hived_rules.packing import Request
from hived.hived_rules.placement import Placement, fit_in_view, no_capacity
from hived.life.checks import check_request
from hived.life.victims import has_victims
from hived.values.decisions import Wait
from hived.values.events import Offer
from hived.values.specs import PodRequest, Rules

_EVERY_NODE = np.ones(0, np.bool_)  # is not read
_MOST = 2**31 - 1  # counts saturate here; no cluster has as many leaves (rule 2.6)


def search(state: State, pod: PodRequest, suggested: BoolArray | None, own: IntArray | None = None) -> Placement | Wait:
    """Find cells for a new group; runs while the journal records, and the caller undoes changes. `own` is as in
    `ScheduleRequested`.

    Raises UserError for a request that this cluster can never meet (rule 5.7).
    """
    check_request(state, pod)
    request = _request(pod, suggested, own)
    found = _first_fit(state, request, {})
    if isinstance(found, Placement) or state.spec.rules is Rules.HIVED:
        return found
    complete = fit_completely(state, request, _views(state, pod), None, tries_for(state))
    return complete if isinstance(complete, Placement) else explain(found.reason, complete)


def search_offered(state: State, pod: PodRequest, offer: Offer, own: IntArray | None = None) -> Placement | Wait:
    """Search as `search`, for any placement in the VC that the offer allows (rule 12.6).

    Costs some 20 us more than `search` if the reference's choice will do. Else also a few sweeps of each chain's cells,
    1 ms at 1,024 nodes, and tenths of a millisecond for each pod of a group.
    """
    check_request(state, pod)
    request, members, before = _request(pod, None, own), pod.spec.group.members, mark(state)
    refused: dict[int, Wait] = {}
    found = first = _first_fit(state, request, refused)
    masks = _masks(offer)
    while isinstance(first, Placement):
        if isinstance(found, Placement) and allows(state, members, found.physical, offer):
            return _sparing(state, request, offer, found) or found
        undo_changes(state, before)
        mask = next(masks, None)
        if mask is None:
            break
        found = _first_fit(state, request._replace(suggested=mask, ignore=False, explains=False), {})
    if state.spec.rules is Rules.BETTER:
        tries = Tries() if offer.rules else tries_for(state)
        outcome = fit_completely(state, request, _views(state, pod), offer, tries)
        if isinstance(outcome, Placement):
            return outcome
        told = first if isinstance(first, Wait) else Wait(_reason(state, request, offer, outcome.given_up_after))
        return explain(told.reason, outcome)
    tries = Tries()
    for view in _views(state, pod):
        # without room for pods of one size in the VC itself, nothing behind it can help
        if len(request.sizes) > 1 or refused.get(view) != no_capacity(request):
            complete = fit_offered(state, request, view, offer, tries)
            if complete is not None:
                return complete
    return first if isinstance(first, Wait) else Wait(_reason(state, request, offer, tries.given_up_after))


def _sparing(state: State, request: Request, offer: Offer, found: Placement) -> Placement | None:
    """Find idle cells that the offer allows, instead of a placement that needs victims on nodes that all pods may use.
    None, with nothing changed, if there are none, or the VC is not sparing.

    Where all pods may use the same nodes, the search before has looked for them already.
    """
    spec = request.pod.spec
    if state.spec.rules is Rules.HIVED or not (offer.rules or len(_first_if_equal(offer.nodes)) > 1):
        return None
    if found.lazily_preempted or not state.spec.virtual_clusters[spec.virtual_cluster].spares:
        return None
    if not request.is_guaranteed or not has_victims(state, found.physical):
        return None
    before, tries = mark(state), Tries()
    for view in _views(state, request.pod):
        idle = fit_idle(state, request, view, tries, offer=offer, keeps_good=True)
        if idle is not None:
            return idle
        undo_changes(state, before)
    return None


def _request(pod: PodRequest, suggested: BoolArray | None, own: IntArray | None) -> Request:
    sizes, counts, wanted = [], [], 0
    for member in pod.spec.group.members:
        sizes.append(min(member.leaf_cell_count, _MOST))
        counts.append(min(member.pod_count, _MOST))
        wanted += member.leaf_cell_count * member.pod_count
    # a copy, because a read-only or strided mask would make numba compile the kernels once more
    mask = _EVERY_NODE if suggested is None else np.array(suggested, np.bool_)
    ignores = suggested is None or pod.spec.ignore_suggested_nodes or bool(mask.all())
    return Request(pod, np.array(sizes, np.int32), np.array(counts, np.int64), wanted, mask, ignores, own=own)


def _first_fit(state: State, request: Request, refused: dict[int, Wait]) -> Placement | Wait:
    """Find the first view that has room, as the reference tries them (rules 5.9, 5.11), after the group's own cells.

    `refused` receives the reason of each one before.
    """
    is_better = state.spec.rules is Rules.BETTER
    own = fit_own(state, request) if is_better and request.own is not None else None
    if own is not None:
        return own
    fit = fit_better if is_better else fit_in_view
    reason = ""
    for views in views_to_try(state, request.pod.spec):
        last = ""
        for view in views:
            found = fit(state, request, view)
            if isinstance(found, Placement):
                return found
            refused[view] = found
            last = found.reason or last
        reason = last or reason
    return Wait(reason)


def _views(state: State, pod: PodRequest) -> list[int]:
    return [view for views in views_to_try(state, pod.spec) for view in views]


def _masks(offer: Offer) -> Iterator[BoolArray]:
    """The nodes that all pods may use: first as they are, then with nodes that others have to leave before."""
    nodes = np.asarray(offer.nodes.all(axis=0))
    if nodes.any():
        yield nodes
    if offer.after.any():
        more = np.asarray((offer.nodes | offer.after).all(axis=0))
        if (more != nodes).any():
            yield more


def _reason(state: State, request: Request, offer: Offer, tries: int) -> str:
    """Explain a wait that ends if Kubernetes offers every node to every pod of the group.

    tries : after so many the search was given up, 0 if it was not
    """
    spec = request.pod.spec
    found = []
    for view in _views(state, request.pod):
        capacity = Capacity(state, view, spec.priority)
        found.append(np.unique(capacity.node[capacity.reachable()]))
        leaf = chain_of_view(state, view).types[0]
    nodes = np.concatenate(found)
    where = request.where if request.is_guaranteed else f"the {request.where}"
    whose = "VC's" if request.is_guaranteed else "cluster's"
    obstacle = _refusals(offer, nodes, whose)
    pods = ",".join(f"{member.pod_count}x{member.leaf_cell_count}" for member in spec.group.members)
    are_rules_alone = not obstacle and _are_rules_in_the_way(state, request, offer)
    if not obstacle and offer.after.any() and offer.after[:, nodes].any():
        obstacle = f" (pods would have to leave the {whose} nodes first)"
    if are_rules_alone:
        reason = f"the rules between its pods leave no room for pods of {pods} {leaf}s in {where}"
    elif len(offer.nodes) == 1:
        reason = f"no node of {where} that Kubernetes offers has {request.wanted} free {leaf}s in one piece{obstacle}"
    else:
        reason = f"the nodes of {where} that Kubernetes offers have no room for pods of {pods} {leaf}s{obstacle}"
        if offer.rules:
            reason += " where the pods' rules about each other hold"
    return reason + given_up(tries)


def _are_rules_in_the_way(state: State, request: Request, offer: Offer) -> bool:
    """True if a group would wait for its own rules alone, even if no pod had to leave a node before.

    kube-scheduler's candidates for preemption are in `after` also where no pod runs. Costs one more search if rules
    exclude nodes.
    """
    if not offer.rules or not offer.after.any():
        return bool(offer.rules)
    emptied = Offer(offer.nodes | offer.after, np.zeros_like(offer.after), offer.rules)
    before, tries = mark(state), Tries()
    has_room = any(fit_offered(state, request, view, emptied, tries) for view in _views(state, request.pod))
    undo_changes(state, before)
    return not has_room and not tries.gave_up


def _refusals(offer: Offer, nodes: IntArray, whose: str) -> str:
    """The number of nodes of a VC or the cluster outside of the offer, in brackets; "" if none."""
    offered = _first_if_equal(offer.nodes) | _first_if_equal(offer.after)
    to_all = int(np.count_nonzero(~np.asarray(offered.any(axis=0))[nodes]))
    to_any = int(np.count_nonzero(~np.asarray(offered.all(axis=0))[nodes]))
    if not to_any:
        return ""
    if len(offer.nodes) == 1:
        return f" (it refuses {to_all} of the {whose} {len(nodes)} nodes)"
    if not to_all:
        return f" (it refuses {to_any} of the {whose} {len(nodes)} nodes to some of the pods)"
    more = f" and {to_any - to_all} to some" if to_any > to_all else ""
    return f" (it refuses {to_all} of the {whose} {len(nodes)} nodes to all{more} of the pods)"


def _first_if_equal(mask: BoolArray) -> BoolArray:
    """The first row of a mask whose rows share their memory, so that there is one row to look at; else all rows."""
    return mask[:1] if mask.strides[0] == 0 else mask
