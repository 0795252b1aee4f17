"""Cells that others are to have first: room is being made for them, and a hold must not disturb that.

Played on a copy of the state, claim by claim; nothing changes. Only asked while jobs leave for others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hived.copying import copy_state
from hived.decisions import Bind
from hived.errors import UserError
from hived.events import Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.scheduler import Asked, handle, plan_in_turn
from hived.specs import PodRequest
from hived.state import State
from hived_extender.service.core import Core


@dataclass(frozen=True, slots=True)
class Claim:
    """`asked` gets its cells once the pods of `leaving` have left; None if it has them all."""

    asked: Asked | None
    leaving: Sequence[PodRequest]


def met(core: Core, claims: Sequence[Claim]) -> list[int]:
    """The claims that get their cells in turn, beside all that holds cells now. Cost O(cells + groups)."""
    return _play(copy_state(core.state), claims, core.now_s)


class Afterwards:
    """A copy of the state in which claims have their cells, and others have left as well. Cost O(cells + groups)."""

    def __init__(self, core: Core, claims: Sequence[Claim], leaving: Sequence[PodRequest]) -> None:
        self._state = copy_state(core.state)
        self._now_s = core.now_s
        _play(self._state, claims, core.now_s)
        _leave(self._state, leaving)

    def binds_without(self, asked: Asked, gone: Sequence[PodRequest]) -> bool:
        """Would a request have cells, and nobody leave, if these pods were gone too? Cost O(cells), and the search."""
        facts = [PodDeleted(pod) for pod in gone if pod.spec.group.name in self._state.groups]
        (found,) = plan_in_turn(self._state, [[asked]], self._now_s, facts)
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
