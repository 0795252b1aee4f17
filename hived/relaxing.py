"""A question to the core as if something were different: bad hardware healed, all groups gone. All is undone."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from hived.allocation import release_group
from hived.events import Offer
from hived.groups import remove_group
from hived.health import set_node_health
from hived.journal import mark, undo_changes
from hived.lost_leaves import exchange_doomed, set_lost
from hived.placement import Placement
from hived.preassigned import release_idle_doomed
from hived.preemption import cancel_preemption
from hived.safety import relieve_chains
from hived.scheduler import while_recording
from hived.search import search, search_offered
from hived.specs import PodRequest
from hived.state import GroupState, State
from hived.topology import IntArray
from hived.views import order_alike, restore_order, save_order

Result = TypeVar("Result")
NO_LEAVES = np.zeros(0, np.int32)


def tentatively(state: State, act: Callable[[], Result]) -> Result:
    """The result of a function that changes the state; the changes are undone, and the order of views is as before.

    Cost O(cells) of copying the order, besides that of the function.
    """
    order, plan, waits = save_order(state.cells), state.last_plan, state.known_waits
    state.known_waits = {}

    def act_and_undo() -> Result:
        before = mark(state)
        found = act()
        undo_changes(state, before)
        return found

    try:
        return while_recording(state, act_and_undo)
    finally:
        restore_order(state.cells, order)
        state.last_plan, state.known_waits = plan, waits


def every_node(state: State, pod: PodRequest) -> Offer:
    """An offer of every node to each pod of a group, without rules; all rows are one piece of memory."""
    nodes = len(state.topology.node_names)
    slots = sum(member.pod_count for member in pod.spec.group.members)
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

    return tentatively(state, ask)


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

    return tentatively(state, ask)


def without_idle_doomed(state: State, look: Callable[[], Result]) -> Result:
    """The result of a look at the state without the doomed cells that nobody uses (rule 19.3). Nothing changes."""

    def release_and_look() -> Result:
        for chain in range(len(state.topology.chains)):
            release_idle_doomed(state.arrays, state.cells, chain)
        return look()

    return tentatively(state, release_and_look)


def _finds(state: State, pod: PodRequest, offer: Offer | None) -> bool:
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
