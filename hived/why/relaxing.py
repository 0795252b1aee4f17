"""A question to the core as if bad hardware were healed, or all groups gone; what is supposed is undone.

An emptied cluster answers whether a request could ever run, once all others have ended (rules 20.1, 20.6). It has two
states, which share the topology of the one that is explained. In one every node is healthy; the other has the same bad
nodes and lost leaves. They are kept from question to question and made anew for another configuration.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from hived.cells.copying import copy_state
from hived.cells.safety import relieve_chains
from hived.cells.state import GroupState, State
from hived.cells.topology import IntArray
from hived.cells.views import order_alike, views_to_try
from hived.complete.known_waits import forget_waits
from hived.hived_rules.placement import Placement
from hived.life.allocation import release_group
from hived.life.groups import remove_group
from hived.life.health import exchange_doomed, set_lost, set_node_health
from hived.life.preassigned import release_idle_doomed
from hived.life.preemption import cancel_preemption
from hived.scenario import Result, Scenario
from hived.scheduler import idle_state
from hived.search import search, search_offered
from hived.values.events import Offer
from hived.values.specs import MIN_GUARANTEED_PRIORITY, GroupSpec, MemberSpec, PodRequest, PodSpec, count_pods
from hived.why.counts import leaves_of, reach_of

NO_LEAVES = np.zeros(0, np.int32)


def every_node(state: State, pod: PodRequest) -> Offer:
    """An offer of every node to each pod of a group, without rules; all rows are one piece of memory."""
    nodes = len(state.topology.node_names)
    slots = count_pods(pod.spec.group.members)
    return Offer(
        np.broadcast_to(np.ones(nodes, np.bool_), (slots, nodes)),
        np.broadcast_to(np.zeros(nodes, np.bool_), (slots, nodes)),
    )


def has_place(state: State, pod: PodRequest, offer: Offer | None, as_in: State | None = None) -> bool:
    """Has the core a place for a new group, be it that weaker ones leave? Nothing changes.

    as_in : another state of the same topology, whose views say in which order equal nodes are looked at

    Cost that of a search, and O(cells) of copying the order.
    """

    def ask() -> bool:
        if as_in is not None:
            order_alike(state.cells, as_in.cells)
        return _finds(state, pod, offer)

    return Scenario(state).tentatively(ask)


def would_have_place(state: State, pod: PodRequest, offer: Offer | None, healed: IntArray, *, is_emptied: bool) -> bool:
    """`has_place` once bad nodes and lost leaves are healed, or all groups are gone.

    healed : some bad leaves; they and their nodes are to be taken for healthy

    Cost beyond that O(leaves of healed nodes x height), and O(groups + leaves in use x height).
    """

    def ask() -> bool:
        if is_emptied:
            _release_all(state)
        _heal(state, healed)
        relieve_chains(state)
        return _finds(state, pod, offer)

    return Scenario(state).tentatively(ask)


def without_idle_doomed(state: State, look: Callable[[], Result]) -> Result:
    """The result of a look at the state without idle doomed cells (rule 19.3). Nothing changes."""

    def release_and_look() -> Result:
        for chain in range(len(state.topology.chains)):
            release_idle_doomed(state.arrays, state.cells, chain)
        return look()

    return Scenario(state).tentatively(release_and_look)


def _finds(state: State, pod: PodRequest, offer: Offer | None) -> bool:
    forget_waits(state)
    found = search(state, pod, None) if offer is None else search_offered(state, pod, offer)
    return isinstance(found, Placement)


def _release_all(state: State) -> None:
    """All groups are gone, as if their pods had been deleted."""
    for group in list(state.groups.values()):
        if group.state is GroupState.PREEMPTING:
            cancel_preemption(state, group)
        else:
            release_group(state.arrays, state.cells, group.physical)
            remove_group(state, group)


def _heal(state: State, leaves: IntArray) -> None:
    """These bad leaves are had again, and their nodes are healthy, as by events: node by node."""
    arrays, cells = state.arrays, state.cells
    lost = leaves[cells.lost[leaves] == 1]
    for node in np.unique(arrays.node[leaves]).tolist():
        own = lost[arrays.node[lost] == node]
        if len(own):
            set_lost(arrays, cells, NO_LEAVES, own)
            exchange_doomed(arrays, cells, node)
        set_node_health(arrays, cells, np.array([node], np.int32), 0)
        exchange_doomed(arrays, cells, node)


MOST_KNOWN = 4096
"""So many shapes of requests are remembered."""


class Emptied:
    """To be kept by a caller; for one thread at a time. Holds nothing until it is asked.

    Memory that of two states. The first question about a configuration costs O(cells), each one O(leaves of the nodes
    whose health changed since the last).
    """

    def __init__(self) -> None:
        self._healthy: State | None = None
        self._present: State | None = None
        self._possible: dict[Hashable, bool] = {}
        self._largest: dict[Hashable, int] = {}

    def could_ever_run(self, state: State, pod: PodRequest, *, is_offered: bool) -> bool:
        """Has the core a place for a new group in an empty cluster with every node healthy?

        is_offered : does the request come with an offer, which then has every node? The reference's search goes on for
            it where it would end without one (rule 12.6)
        """
        healthy = self.healthy(state)
        key = (is_offered, *_shape(pod.spec))
        known = self._possible.get(key)
        if known is None:
            if len(self._possible) >= MOST_KNOWN:
                self._possible.clear()
            offer = every_node(state, pod) if is_offered else None
            known = self._possible[key] = has_place(healthy, pod, offer)
        return known

    def largest_ever(self, state: State, pod: PodRequest) -> int:
        """Leaves of the largest single pod that could ever run with the request's VC, leaf type or pinned cell."""
        healthy, spec = self.healthy(state), pod.spec
        is_guaranteed = spec.priority >= MIN_GUARANTEED_PRIORITY
        key = (spec.virtual_cluster, is_guaranteed, spec.pinned_cell_id, spec.leaf_cell_type)
        known = self._largest.get(key)
        if known is None:
            known = self._largest[key] = _largest_pod(healthy, pod)
        return known

    def leaves_for(self, state: State, pods: Sequence[PodRequest]) -> int:
        """Leaves of all cells that any of these requests could ever have some of. More than these they never have
        together.
        """
        healthy = self.healthy(state)
        views = {view for pod in pods for some in views_to_try(healthy, pod.spec) for view in some}
        return sum(leaves_of(healthy, view) for view in views)

    def healthy(self, state: State) -> State:
        """The cluster without groups, and with every node healthy. Not to be changed."""
        if self._healthy is None or self._healthy.topology is not state.topology:
            self._healthy, self._present = idle_state(state.spec, state.topology), None
            self._possible.clear()
            self._largest.clear()
        return self._healthy

    def with_same_health(self, state: State) -> State:
        """The cluster without groups, but with the same bad nodes and lost leaves. Not to be changed."""
        if self._present is None or self._present.topology is not state.topology:
            self._present = copy_state(self.healthy(state))
        _take_over_health(state, self._present)
        return self._present


def _take_over_health(state: State, twin: State) -> None:
    """Give a twin the bad nodes and lost leaves of a state."""
    arrays, cells, mine = state.arrays, state.cells, twin.cells
    changed = np.flatnonzero(cells.node_bad != mine.node_bad).astype(np.int32)
    lost = healed = np.zeros(0, np.int32)
    if cells.lost_total.any() or mine.lost_total.any():
        leaves = arrays.node_leaf
        lost = leaves[(cells.lost[leaves] == 1) & (mine.lost[leaves] == 0)]
        healed = leaves[(cells.lost[leaves] == 0) & (mine.lost[leaves] == 1)]
    if not (len(changed) or len(lost) or len(healed)):
        return
    for is_bad in (1, 0):
        set_node_health(arrays, mine, changed[cells.node_bad[changed] == is_bad], is_bad)
    set_lost(arrays, mine, lost, healed)
    for node in np.unique(np.concatenate((changed, arrays.node[lost], arrays.node[healed]))).tolist():
        exchange_doomed(arrays, mine, node)
    relieve_chains(twin)
    forget_waits(twin)


def _largest_pod(healthy: State, pod: PodRequest) -> int:
    spec = pod.spec
    most = 0
    for views in views_to_try(healthy, spec):
        for view in views:
            chain = healthy.topology.chain_of(int(healthy.arrays.view_cell[healthy.arrays.view_start[view]]))
            combines = healthy.spec.virtual_clusters[spec.virtual_cluster].combines
            most = max(most, chain.leaf_count(chain.node_level) if combines else reach_of(healthy, view))
    return next((size for size in range(most, 0, -1) if has_place(healthy, single_pod(pod, size), None)), 0)


def single_pod(pod: PodRequest, size: int) -> PodRequest:
    """A request for one pod of so many leaves, without any wish."""
    old = pod.spec
    spec = PodSpec(
        old.virtual_cluster, old.priority, size, GroupSpec(old.group.name, (MemberSpec(1, size),)),
        pinned_cell_id=old.pinned_cell_id, leaf_cell_type=old.leaf_cell_type,
    )  # fmt: skip
    return PodRequest(pod.uid, pod.name, pod.namespace, spec)


def _shape(spec: PodSpec) -> tuple[Hashable, ...]:
    """Equal for requests that the same cluster could hold, whoever asks."""
    return (
        spec.group.members, spec.virtual_cluster, spec.priority >= MIN_GUARANTEED_PRIORITY, spec.pinned_cell_id,
        spec.leaf_cell_type, spec.within_cell, spec.within_is_required,
    )  # fmt: skip
