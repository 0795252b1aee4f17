"""Remembers requests for which a complete search found no place, until the state changes (rule 19.9).

Waiting groups are tried again and again, and often many of them ask for the same. The answer to one request is the
answer to all that ask for as much, until an event changes the state.
"""

from collections.abc import Hashable
from typing import NamedTuple

from hived.cells.state import State
from hived.cells.topology import BoolArray
from hived.hived_rules.packing import Request
from hived.values.events import Offer

MOST_KNOWN = 4096
"""So many requests are remembered."""


class KnownWait(NamedTuple):
    """The outcome of a complete search that found nothing."""

    would_combine: bool
    given_up_after: int


def key_of(request: Request, offer: Offer | None) -> Hashable | None:
    """The key of a request, equal for requests that have the same answer; None if it is not remembered.

    These are offers that differ from pod to pod or have rules, and groups for one cell. Cost O(nodes) of copying.
    """
    spec = request.pod.spec
    if spec.beside or (spec.within_cell and spec.within_is_required):
        return None
    nodes: tuple[bytes | None, ...] = (None if request.ignore else request.suggested.tobytes(),)
    if offer is not None:
        if offer.rules or not (_is_one_row(offer.nodes) and _is_one_row(offer.after)):
            return None
        nodes = (offer.nodes[0].tobytes(), offer.after[0].tobytes())
    members = tuple((member.pod_count, member.leaf_cell_count) for member in spec.group.members)
    return (
        members, spec.virtual_cluster, spec.priority, spec.pinned_cell_id, spec.leaf_cell_type, spec.within_cell,
        spec.within_is_required, nodes,
    )  # fmt: skip


def known_wait(state: State, key: Hashable | None) -> KnownWait | None:
    """The outcome of an equal request in this state, if there was one."""
    known = None if key is None else state.known_waits.get(key)
    return None if known is None else KnownWait(*known)


def remember_wait(state: State, key: Hashable | None, outcome: KnownWait) -> None:
    """Remember that a search in this unchanged state found no place."""
    if key is not None and len(state.known_waits) < MOST_KNOWN:
        state.known_waits[key] = outcome


def forget_waits(state: State) -> None:
    """Forget all waits; every change of the state that may give room calls this, also when it is taken back.

    The table is left as it is: a scenario puts it back once its changes are undone.
    """
    state.known_waits = {}


def _is_one_row(mask: BoolArray) -> bool:
    return len(mask) == 1 or mask.strides[0] == 0
