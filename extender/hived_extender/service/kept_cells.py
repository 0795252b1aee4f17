"""Cells that are kept for pods to come, by a move of their group or by the queue of their job. Not thread-safe.

A job that its queue holds back has none, and its pods get no others either. Nor do pods beyond a quota.
"""

from collections.abc import Callable
from typing import Any

from hived.decisions import Bind, Wait
from hived.events import Offer
from hived.specs import PodRequest
from hived_extender.service.core import Core
from hived_extender.service.gangs.plans import Round
from hived_extender.service.gangs.rounds import single_request
from hived_extender.service.holds import Holds
from hived_extender.service.moves import Moves
from hived_extender.service.pods import PodRecord


class KeptCells:
    """All that waiting pods ask of both."""

    def __init__(self, moves: Moves, holds: Holds) -> None:
        self._moves, self._holds = moves, holds

    def handlers(self) -> dict[type[Any], Callable[[Any], Any]]:
        """The handler of each stimulus about moves and holds."""
        return self._moves.handlers() | self._holds.handlers()

    def look(self) -> None:
        """Go on, or give up, if what was waited for has come or cannot come any more."""
        self._moves.look()
        self._holds.pods.look()

    def forget_all(self, reason: str) -> None:
        """The term is over, and with it all that was kept."""
        self._moves.forget_all(reason)
        self._holds.forget_all()

    def lose_all(self, reason: str) -> None:
        """The state is another one, in which nothing is kept."""
        self._moves.forget_all(reason)
        self._holds.pods.lose_all()

    def refusal(self, record: PodRecord, request: PodRequest | None) -> Wait | None:
        """Why a pod may not be placed now: its group is on its way out, or its job is not let go."""
        if bar := self._holds.pods.bar_of(record):
            return Wait(f"its job waits in queue {bar}: it is let go when it is its turn")
        return self._moves.refusal(record, request)

    def are_for(self, record: PodRecord) -> bool:
        """Are cells kept that a waiting pod could have?"""
        return self._moves.is_held_for(record, record.request) or self._holds.pods.is_held_for(record)

    def answer(
        self, core: Core, record: PodRecord, request: PodRequest, offer: Offer | None, *, commit: bool
    ) -> Bind | Wait | None:
        """The cells that are kept for the group of a pod; with `commit`, it has them from now on.

        Or why it has to wait; None if it has to look for cells.
        """
        if bar := self._holds.pods.bar_of(record):
            return Wait(f"its job waits in queue {bar}: it is let go when it is its turn")
        if (over := self.over_quota(core, record, request)) is not None:
            return over
        found = self._holds.pods.answer(core, record, request, offer, commit=commit)
        return found or self._moves.answer(core, record, request, offer, commit=commit)

    def over_quota(self, core: Core, record: PodRecord, request: PodRequest) -> Wait | None:
        """Why a quota does not allow the group of a pod its cells. One that moves has had some all the time."""
        quotas = self._holds.quotas
        if not quotas.is_asked or self._moves.is_held_for(record, request):
            return None
        return quotas.refusal(core, [(record, request)])

    def round_over_quota(self, core: Core, asker: PodRecord, round_: Round) -> Wait | None:
        """The same of pods that start together."""
        quotas = self._holds.quotas
        if not quotas.is_asked or self._moves.is_held_for(asker, None):
            return None
        pods = [(record, single_request(record)) for part in round_.parts for record in part.members]
        return quotas.refusal(core, pods, instead=[part.request.spec.group.name for part in round_.parts])

    def give_to_gang(self, core: Core, round_: Round) -> None:
        """A gang that moves is asked about: it takes what is kept for it, as far as it finds it."""
        self._moves.give_to_gang(core, round_.key)

    def start(self, core: Core, round_: Round, asker: PodRecord) -> bool:
        """Pods that start together take what is held for their job, all at once, if it is held for all of them."""
        return self._holds.pods.start(core, round_, asker)
