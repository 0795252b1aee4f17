"""Cells that are kept for pods to come, by a move of their group or by the queue of their job. Not thread-safe.

A job that its queue holds back has none, and its pods get no others either. Nor do pods beyond a quota.
"""

from collections.abc import Callable
from typing import Any

from hived.values.decisions import Bind, Wait
from hived.values.events import Offer
from hived.values.specs import PodRequest
from hived_extender.machine.core import Core
from hived_extender.machine.gangs.plans import Round
from hived_extender.machine.gangs.rounds import single_request
from hived_extender.machine.holds import Holds
from hived_extender.machine.moves import Moves
from hived_extender.machine.pods import PodRecord


class KeptCells:
    """All that waiting pods ask of both."""

    def __init__(self, moves: Moves, holds: Holds) -> None:
        self._moves, self._holds = moves, holds
        self.quotas = holds.quotas

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

    def chooses(self, record: PodRecord) -> bool:
        """Choose which pods of a gang start with the cells that are kept for them; False if none are."""
        sizes = self._holds.pods.sizes_for(record)
        if sizes and record.gang is not None:
            self._holds.pods.rounds.choose_within(record.gang, sizes)
        return self.are_for(record)

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

    def over_quota(self, core: Core, record: PodRecord, asked: PodRequest | Round) -> Wait | None:
        """Why a quota does not allow a pod its cells, or those that start with it. One that moves has had some always.

        Cost: nothing without a quota tree, else O(pods + changes).
        """
        quotas = self.quotas
        if not quotas.is_asked or self._moves.is_held_for(record, None if isinstance(asked, Round) else asked):
            return None
        found = quotas.refusal(core, pods_of(record, asked), instead=reserved_by(asked))
        if found is not None:
            record.cause = "quota"
        return found

    def give_to_gang(self, core: Core, round_: Round) -> None:
        """A gang that moves is asked about: it takes what is kept for it, as far as it finds it."""
        self._moves.give_to_gang(core, round_.key)

    def start(self, core: Core, round_: Round, asker: PodRecord) -> bool:
        """Pods that start together take what is held for their job, all at once, if it is held for all of them."""
        return self._holds.pods.start(core, round_, asker)


def pods_of(record: PodRecord, asked: PodRequest | Round) -> list[tuple[PodRecord, PodRequest]]:
    """The pods that would get cells, each with its own request."""
    if not isinstance(asked, Round):
        return [(record, asked)]
    return [(one, single_request(one)) for part in asked.parts for one in part.members]


def reserved_by(asked: PodRequest | Round) -> list[str]:
    """The groups under which cells are reserved for all of a round."""
    return [part.request.spec.group.name for part in asked.parts] if isinstance(asked, Round) else []
