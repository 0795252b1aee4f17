"""Cells that others are to have first: room is being made for them, and a hold must not disturb that.

Played on a copy of the state, claim by claim; nothing changes. Only asked while jobs leave for others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hived.copying import copy_state
from hived.decisions import Bind
from hived.errors import UserError
from hived.events import Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.scheduler import Asked, handle, plan_in_turn
from hived.specs import PodRequest
from hived.state import State


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
        found = plan_in_turn(state, bundles, self._now_s, facts)[-1]
        return not isinstance(found, UserError) and all(isinstance(one, Bind) for one in found)


def _play(state: State, claims: Sequence[Claim], now_s: float | None) -> list[int]:
    found = []
    for number, claim in enumerate(claims):
        _leave(state, claim.leaving)
        if claim.asked is None:
            found.append(number)
            continue
        pod, own = claim.asked.pod, claim.asked.own
        try:
            decision = handle(
                state, ScheduleRequested(pod, Phase.FILTERING, offer=claim.asked.offer, now_s=now_s, own=own)
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
