"""The reason why a request waits: the least set of causes, and counts of the cells it looked at (rules 20.1, 20.2).

Three things can be in the way: Kubernetes' offer, bad hardware, and others. Each is taken away in turn, and the core is
asked whether it has a place then; what is tried is undone. If none of them helps alone, two are taken away, then all.
If even all of them do not help, the request can never run.

Why a pod waits whose group has its cells, or reserves them (rules 5.4, 12.9, 12.10, 20.8).
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from hived.cells.state import NO_GROUP, Group, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray
from hived.cells.views import views_to_try
from hived.values.decisions import Cause, Explanation, HoldingGroup
from hived.values.events import Offer
from hived.values.specs import MIN_GUARANTEED_PRIORITY, PodRequest, PodSpec, Rules, count_leaves, count_pods, sizes_of
from hived.why.counts import (
    CellCount,
    ViewLeaves,
    cells_needed,
    holders_of,
    level_for,
    name_holders,
    of_largest,
    reach_of,
    to_any,
)
from hived.why.relaxing import (
    NO_LEAVES,
    Emptied,
    every_node,
    has_place,
    single_pod,
    without_idle_doomed,
    would_have_place,
)


def explain_member(state: State, group: Group, offer: Offer | None, largest_ever: int) -> Explanation:
    """The cells of the group: those that others have reserved, and those on nodes that are not offered.

    Counted are cells of the group alone. Nodes count as refused only for pods that are not there yet. Cost O(leaves of
    the chain) in sweeps of arrays.
    """
    arrays, members = state.arrays, group.members
    physical = group.physical[group.physical != NO_CELL]
    chain = state.topology.chain_of(int(physical[0])) if len(physical) else state.topology.chains[0]
    level = level_for(chain, members[-1].leaf_cell_count)
    offset, span = int(arrays.level_offset[state.topology.chain_index[chain.name]]), chain.leaf_count(level)
    first, count = int(arrays.level_base[offset + 1]), int(arrays.level_size[offset + 1])
    own = np.zeros(count, np.bool_)
    own[physical - first] = True
    held = holders_of(state, first, own)
    held[held == group.number] = NO_GROUP
    is_taken = held[physical - first] != NO_GROUP
    is_refused = _refused(state, group, offer)[group.physical != NO_CELL] & ~is_taken
    cells, in_use = _cells(physical - first, span), _cells((physical - first)[is_taken], span)
    refused = np.setdiff1d(_cells((physical - first)[is_refused], span), in_use)
    holders, more = name_holders(state, first, held)
    return Explanation(
        causes=(Cause.IN_USE,) if len(in_use) and not len(refused) else (Cause.KUBERNETES,), chain=chain.name,
        level=chain.types[level - 1], leaf_type=chain.types[0], asked=cells_needed(members, span), total=len(cells),
        free=len(cells) - len(in_use) - len(refused), in_use=len(in_use), in_pieces=0, bad=0, refused=len(refused),
        free_leaves=int((~is_taken & ~is_refused).sum()), largest_fit=0, largest_ever=largest_ever, holders=holders,
        more_holders=more, bad_nodes=(),
    )  # fmt: skip


def _cells(leaves: IntArray, span: int) -> IntArray:
    """The cells that these leaves are below, each once."""
    return np.unique(leaves // span)


def _refused(state: State, group: Group, offer: Offer | None) -> BoolArray:
    """Return which leaves of a group are on nodes that are not offered to their pod, which is not there yet."""
    slots = np.repeat(np.arange(len(group.holders)), sizes_of(group.members))
    if offer is None:
        return np.zeros(len(slots), np.bool_)
    is_open = np.array([holder is None for holder in group.holders], np.bool_)
    nodes = np.where(group.physical == NO_CELL, 0, state.arrays.node[group.physical])
    return np.asarray(is_open[slots] & ~offer.nodes[slots, nodes])


MOST_BAD_NODES = 8
"""So many bad nodes are named."""

MOST_HEALED = 256
"""With more bad nodes in the chains of a request, cells are counted instead of asking the core with them healed."""

MOST_RELEASED = 64
"""With more groups, an empty cluster stands for the same cluster with all of them gone."""

MOST_SEARCHED = 1 << 16
"""Pods of the request times nodes: for larger requests, cells are counted instead of asking the core."""

_OFFER, _BAD, _OTHERS = range(3)  # what can be taken away, in the order in which it is tried alone
_CAUSES = {_OFFER: Cause.KUBERNETES, _BAD: Cause.BAD}


def explain_wait(state: State, request: PodRequest, offer: Offer | None, emptied: Emptied | None = None) -> Explanation:
    """Explain a request that `scheduler.handle` has answered with `Wait`, in the state it was asked in.

    offer : of the request, None for every node
    emptied : of the caller, kept from one question to the next; without it the cluster is built anew

    Nothing changes. Raises UserError for a request that the core refuses (rule 5.7). Cost O(cells of the chains that
    the request may use) in sweeps of arrays, and a search for each thing that can be taken away, if there are two.
    """
    emptied = emptied or Emptied()
    group = state.groups.get(request.spec.group.name)
    if group is not None:
        return explain_member(state, group, offer, emptied.largest_ever(state, request))
    question = _Question(state, request, offer, emptied)
    return question.explain(question.least_set())


NOTHING_PROMISED = Explanation(
    causes=(Cause.NEVER,), chain="", level="", leaf_type="", asked=0, total=0, free=0, in_use=0, in_pieces=0, bad=0,
    refused=0, free_leaves=0, largest_fit=0, largest_ever=0, holders=(), more_holders=0, bad_nodes=(),
)  # fmt: skip
"""The explanation for a VC that has no cells of any chain, and a request that names no pinned cell."""


class _Question:
    """One request that waits, and what it looked at."""

    def __init__(self, state: State, request: PodRequest, offer: Offer | None, emptied: Emptied) -> None:
        self._state, self._request, self._emptied = state, request, emptied
        self._offer = offer
        spec = request.spec
        self._view_numbers = [view for views in views_to_try(state, spec) for view in views]
        self._views = _look_at(state, self._view_numbers, spec, offer)
        self._counted_views: dict[tuple[bool, bool], list[ViewLeaves]] = {}
        self._reach = [reach_of(state, view) for view in self._view_numbers]
        slots = count_pods(spec.group.members)
        self._is_small = slots * len(state.topology.node_names) <= MOST_SEARCHED

    def least_set(self) -> tuple[int, ...] | None:
        """The fewest things to take away that let the request run; None if nothing would (rules 20.2, 20.6, 20.7)."""
        possible = self._emptied.could_ever_run(self._state, self._request, is_offered=self._offer is not None)
        if not possible and (self._state.spec.rules is Rules.BETTER or not self._is_small):
            return None
        every = tuple(self._obstacles())
        if not self._is_small and self._may_help(frozenset()):
            return every[:1] if self._offer is not None and self._offer.rules else (_OTHERS,)
        for count in range(1, len(every)):
            for some in combinations(every, count):
                if self._helps(frozenset(some)):
                    return some
        return every if possible or self._helps(frozenset(every)) else None

    def explain(self, taken_away: tuple[int, ...] | None) -> Explanation:
        """The explanation, by the view that came closest (rules 20.3, 20.9)."""
        counts = [view.count() for view in self._views]
        if not counts:
            return NOTHING_PROMISED
        best = max(range(len(counts)), key=lambda place: (*self._nearness(place, counts[place]), -place))
        view, count, wanted = self._views[best], counts[best], self._wanted
        if taken_away is None:
            causes: tuple[Cause, ...] = (Cause.NEVER,)
        else:
            others = Cause.IN_PIECES if count.free_leaves >= wanted else Cause.IN_USE
            causes = tuple(_CAUSES.get(each, others) for each in reversed(taken_away))
        largest_ever = self._emptied.largest_ever(self._state, self._request)
        holders, more = self._holders(view, looks_beside=taken_away is not None and _OTHERS in taken_away)
        return Explanation(
            causes=causes, chain=view.chain.name, level=view.chain.types[count.level - 1],
            leaf_type=view.chain.types[0], asked=count.asked, total=count.total, free=count.free, in_use=count.in_use,
            in_pieces=count.in_pieces, bad=count.bad, refused=count.refused, free_leaves=count.free_leaves,
            largest_fit=self._largest_fit(count, largest_ever), largest_ever=largest_ever,
            holders=holders, more_holders=more, bad_nodes=self._bad_nodes(view),
        )  # fmt: skip

    @property
    def _wanted(self) -> int:
        return count_leaves(self._request.spec.group.members)

    def _nearness(self, place: int, count: CellCount) -> tuple[int, int, int, int]:
        """Return how much of the largest pod a view could ever hold; its free cells, its free leaves, and all its
        cells.
        """
        largest = self._request.spec.group.members[-1].leaf_cell_count
        return min(self._reach[place], largest), min(count.free, count.asked), count.free_leaves, count.total

    def _obstacles(self) -> Iterator[int]:
        """Obstacles that can be taken away, in the order in which they are tried."""
        if self._offer is not None and not _is_everything(self._offer):
            yield _OFFER
        if any(view.is_bad_anywhere for view in self._views):
            yield _BAD
        yield _OTHERS

    def _helps(self, taken_away: frozenset[int]) -> bool:
        """Has the request a place without these?"""
        state, offer = self._state, self._offer
        heals, empties = _BAD in taken_away, _OTHERS in taken_away
        healed = self._bad_leaves() if heals else NO_LEAVES
        nodes = np.unique(state.arrays.node[healed])
        if offer is not None and _OFFER in taken_away:
            offer = every_node(state, self._request)
        elif offer is not None:
            offer = _eased(offer, nodes[state.cells.node_bad[nodes] == 1], empties=empties)
        if not self._is_small or len(nodes) > MOST_HEALED:
            return self._may_help(taken_away)
        if empties and len(state.groups) > MOST_RELEASED:
            twin = self._emptied.healthy(state) if heals else self._emptied.with_same_health(state)
            return has_place(twin, self._request, offer, as_in=state)
        return would_have_place(state, self._request, offer, healed, is_emptied=empties)

    def _may_help(self, taken_away: frozenset[int]) -> bool:
        """The same by counting alone (rule 20.7): what really helps is found to help, and perhaps other things too."""
        others, heals, offers = (each in taken_away for each in (_OTHERS, _BAD, _OFFER))
        views = self._counted(is_emptied=others, heals=heals)
        return any(view.may_hold(heals=heals, offers=offers) for view in views)

    def _counted(self, *, is_emptied: bool, heals: bool) -> list[ViewLeaves]:
        """The views with the nodes offered to any pod, perhaps without others.

        Which cells are doomed hangs on all that was before. So where anything is different, idle
        cells count as not doomed.
        """
        state, members, offer = self._state, self._request.spec.group.members, self._offer
        if is_emptied:
            state = self._emptied.with_same_health(state)
            offer = offer and _eased(offer, NO_LEAVES, empties=True)
        drops_doomed = (is_emptied or heals) and bool(state.cells.doomed_total.any())
        if not is_emptied and not drops_doomed and (offer is None or len(members) == 1):
            return self._views
        key = is_emptied, drops_doomed
        if key not in self._counted_views:
            self._counted_views[key] = _look_at(
                state, self._view_numbers, self._request.spec, offer and to_any(offer), drops_doomed=drops_doomed
            )
        return self._counted_views[key]

    def _bad_leaves(self) -> IntArray:
        """The bad leaves of all chains that the request may use."""
        found = {view.first: view.first + np.flatnonzero(view.bad) for view in self._views}
        return np.concatenate([found[first] for first in sorted(found)]).astype(np.int32)

    def _holders(self, view: ViewLeaves, *, looks_beside: bool) -> tuple[tuple[HoldingGroup, ...], int]:
        """Groups in the view that the request cannot evict; if there are none, perhaps guaranteed ones beside it."""
        held = holders_of(self._state, view.first, view.blockers())
        if looks_beside and not (held != NO_GROUP).any():
            here = slice(view.first, view.first + len(held))
            is_promised = self._state.cells.priority[here] >= MIN_GUARANTEED_PRIORITY
            held = holders_of(self._state, view.first, is_promised & ~view.mine)
        return name_holders(self._state, view.first, held)

    def _bad_nodes(self, view: ViewLeaves) -> tuple[str, ...]:
        """Nodes with bad leaves in the view, or else free ones that could come to be in it; in order of their names."""
        if not view.is_bad_anywhere:
            return ()
        mine = view.bad & view.mine
        chosen: BoolArray = mine if mine.any() else view.bad & (view.capacity.owners.owner(1) == NO_CELL)
        names = self._state.topology.node_names
        return tuple(names[node] for node in np.unique(view.node[chosen])[:MOST_BAD_NODES].tolist())

    def _largest_fit(self, count: CellCount, largest_ever: int) -> int:
        """The largest pod that starts now: where the VC combines cells, larger ones than any single cell has."""
        state, request = self._state, self._request
        if not state.spec.virtual_clusters[request.spec.virtual_cluster].combines:
            return count.largest_fit
        members = request.spec.group.members
        most = largest_ever if len(members) > 1 or members[0].pod_count > 1 else min(largest_ever, self._wanted - 1)
        offer = None if self._offer is None else of_largest(self._offer, members)
        larger = range(most, count.largest_fit, -1)
        return next((size for size in larger if has_place(state, single_pod(request, size), offer)), count.largest_fit)


def _look_at(
    state: State, views: list[int], spec: PodSpec, offer: Offer | None, *, drops_doomed: bool = False
) -> list[ViewLeaves]:  # fmt: skip
    """The views; where the search may take idle doomed cells for others, they are the VC's no more (rule 19.3).

    drops_doomed : shall it be so by either set of rules?
    """

    def look() -> list[ViewLeaves]:
        return [ViewLeaves(state, view, spec, offer) for view in views]

    is_held_back = state.spec.rules is Rules.HIVED or spec.priority < MIN_GUARANTEED_PRIORITY
    has_doomed = bool(state.cells.doomed_total.any())
    return without_idle_doomed(state, look) if has_doomed and (drops_doomed or not is_held_back) else look()


def _is_everything(offer: Offer) -> bool:
    """Does an offer leave the core every choice?"""
    return not offer.rules and bool((offer.nodes[0] if offer.nodes.strides[0] == 0 else offer.nodes).all())


def _eased(offer: Offer, healed: IntArray, *, empties: bool) -> Offer:
    """An offer once nodes are healed, and all groups are gone: pods have left the nodes that they had to leave.

    healed : bad nodes; Kubernetes offers none of them, and would once they are healthy
    """
    is_one_row = offer.nodes.strides[0] == 0 == offer.after.strides[0]
    nodes, after = (offer.nodes[:1], offer.after[:1]) if is_one_row else (offer.nodes, offer.after)
    if empties:
        nodes, after = nodes | after, np.zeros_like(after)
    if len(healed):
        nodes = nodes.copy()
        nodes[:, healed] = True
    return Offer(np.broadcast_to(nodes, offer.nodes.shape), np.broadcast_to(after, offer.after.shape), offer.rules)
