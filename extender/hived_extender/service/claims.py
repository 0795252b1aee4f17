"""Cells that others are to have first: room is being made for them, and a hold must not disturb that.

Played on a copy of the state, claim by claim; nothing changes. Only asked while jobs leave for others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from hived.copying import copy_state
from hived.decisions import Bind
from hived.errors import UserError
from hived.events import Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.groups import nodes_of_slots
from hived.scheduler import Asked, handle, plan_in_turn
from hived.specs import PodRequest
from hived.state import State
from hived.topology import BoolArray


class Present(Protocol):
    """A cluster now: its state, and the time in seconds since 1970, None if that does not count."""

    @property
    def state(self) -> State:
        """The state; it stays as it is."""

    @property
    def now_s(self) -> float | None:
        """The time."""


@dataclass(frozen=True, slots=True)
class Claim:
    """`asked` gets its cells once the pods of `leaving` have left; None if it has them all."""

    asked: Asked | None
    leaving: Sequence[PodRequest]


def met(core: Present, claims: Sequence[Claim]) -> list[int]:
    """The claims that get their cells in turn, beside all that holds cells now. Cost O(cells + groups)."""
    return _play(copy_state(core.state), claims, core.now_s)


class Afterwards:
    """The state once claims have their cells, and others have left as well. Cost O(cells + groups).

    Claims get their cells as soon as their own pods have left, or when all have left together. They may choose other
    cells then, so a request has to have cells either way.
    """

    def __init__(self, core: Present, claims: Sequence[Claim], leaving: Sequence[PodRequest]) -> None:
        self._now_s = core.now_s
        self._present, self._leaving = core.state, leaving
        self._claimed = [[claim.asked] for claim in claims if claim.asked is not None]
        self._left = _nodes_of(core.state, [pod for claim in claims for pod in claim.leaving])
        self._left |= _nodes_of(core.state, leaving)
        self._later = copy_state(core.state)
        _play(self._later, claims, core.now_s)
        _leave(self._later, leaving)

    def binds_without(self, asked: Asked, gone: Sequence[PodRequest]) -> bool:
        """Would a request have cells, and nobody leave, if these pods were gone too? Cost O(cells), and the search."""
        return self._binds(self._later, [[asked]], gone) and (
            not self._claimed or self._binds(self._present, [*self._claimed, [asked]], [*self._leaving, *gone])
        )

    def _binds(self, state: State, bundles: Sequence[Sequence[Asked]], gone: Sequence[PodRequest]) -> bool:
        """Has the last bundle cells?"""
        facts = [PodDeleted(pod) for pod in gone if pod.spec.group.name in state.groups]
        left = self._left | _nodes_of(self._present, gone)
        offered = [[_offered(asked, left) for asked in bundle] for bundle in bundles]
        found = plan_in_turn(state, offered, self._now_s, facts)[-1]
        return not isinstance(found, UserError) and all(isinstance(one, Bind) for one in found)


def _play(state: State, claims: Sequence[Claim], now_s: float | None) -> list[int]:
    found = []
    left = _nodes_of(state, ())
    for number, claim in enumerate(claims):
        left |= _nodes_of(state, claim.leaving)
        _leave(state, claim.leaving)
        if claim.asked is None:
            found.append(number)
            continue
        asked = _offered(claim.asked, left)
        pod = asked.pod
        try:
            decision = handle(
                state, ScheduleRequested(pod, Phase.FILTERING, offer=asked.offer, now_s=now_s, own=asked.own)
            )
        except UserError:
            continue
        if isinstance(decision, Bind):
            handle(state, PodAllocated(pod, decision.bind_info))
            found.append(number)
    return found


def _leave(state: State, pods: Sequence[PodRequest]) -> None:
    for pod in pods:
        if pod.spec.group.name in state.groups:
            handle(state, PodDeleted(pod))


def _nodes_of(state: State, pods: Sequence[PodRequest]) -> BoolArray:
    """The nodes with cells of these pods' groups."""
    found = np.zeros(len(state.topology.node_names), np.bool_)
    for name in dict.fromkeys(pod.spec.group.name for pod in pods):
        if (group := state.groups.get(name)) is not None:
            found[[state.topology.node_index[node] for node in nodes_of_slots(state, group)]] = True
    return found


def _offered(asked: Asked, left: BoolArray) -> Asked:
    """The same once pods have left these nodes: Kubernetes then offers those that only they kept full."""
    offer = asked.offer
    if offer is None or not (offer.after & left).any():
        return asked
    return replace(asked, offer=replace(offer, nodes=offer.nodes | (offer.after & left), after=offer.after & ~left))
