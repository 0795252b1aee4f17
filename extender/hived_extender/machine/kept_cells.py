"""Cells reserved for pods to come, by a move of their group or by their job's queue. Not thread-safe.

Pods of a job held by its queue get no cells at all. Nor do pods beyond a quota.
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
    """One front for moves, holds and quotas: the questions of waiting pods."""

    def __init__(self, moves: Moves, holds: Holds) -> None:
        self._moves, self._holds = moves, holds
        self.quotas = holds.quotas

    def handlers(self) -> dict[type[Any], Callable[[Any], Any]]:
        """The handler of each stimulus about moves and holds."""
        return self._moves.handlers() | self._holds.handlers()

    def look(self) -> None:
        """Advance moves and holds, or end those that cannot finish."""
        self._moves.look()
        self._holds.pods.look()

    def forget_all(self, reason: str) -> None:
        """Drop everything at the end of a term."""
        self._moves.forget_all(reason)
        self._holds.forget_all()

    def lose_all(self, reason: str) -> None:
        """Drop all moves and holds with their state."""
        self._moves.forget_all(reason)
        self._holds.pods.lose_all()

    def refusal(self, record: PodRecord, request: PodRequest | None) -> Wait | None:
        """The reason not to place a pod now: its group is being moved, or its job is not admitted."""
        if bar := self._holds.pods.bar_of(record):
            return Wait(f"its job waits in queue {bar}: it starts when its turn comes")
        return self._moves.refusal(record, request)

    def are_for(self, record: PodRecord) -> bool:
        """True if cells are held for a waiting pod."""
        return self._moves.is_held_for(record, record.request) or self._holds.pods.is_held_for(record)

    def chooses(self, record: PodRecord) -> bool:
        """Choose the pods of a gang that start on its held cells; False if none are held."""
        sizes = self._holds.pods.sizes_for(record)
        if sizes and record.gang is not None:
            self._holds.pods.rounds.choose_within(record.gang, sizes)
        return self.are_for(record)

    def answer(
        self, core: Core, record: PodRecord, request: PodRequest, offer: Offer | None, *, commit: bool
    ) -> Bind | Wait | None:
        """Take the held cells of a pod's group with `commit`; or the reason to wait.

        None if it must look for cells.
        """
        if bar := self._holds.pods.bar_of(record):
            return Wait(f"its job waits in queue {bar}: it starts when its turn comes")
        if (over := self.over_quota(core, record, request)) is not None:
            return over
        found = self._holds.pods.answer(core, record, request, offer, commit=commit)
        return found or self._moves.answer(core, record, request, offer, commit=commit)

    def over_quota(self, core: Core, record: PodRecord, asked: PodRequest | Round) -> Wait | None:
        """The reason why a quota refuses a pod, or pods that start with it. A moving pod keeps its charge.

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
        """Release the cells of a moving gang when it is asked about, as it finds them by its own search."""
        self._moves.give_to_gang(core, round_.key)

    def start(self, core: Core, round_: Round, asker: PodRecord) -> bool:
        """Start a round on its job's held cells, if all of it is held."""
        return self._holds.pods.start(core, round_, asker)


def pods_of(record: PodRecord, asked: PodRequest | Round) -> list[tuple[PodRecord, PodRequest]]:
    """The pods that would get cells, each with its own request."""
    if not isinstance(asked, Round):
        return [(record, asked)]
    return [(one, single_request(one)) for part in asked.parts for one in part.members]


def reserved_by(asked: PodRequest | Round) -> list[str]:
    """The groups under which a round's cells are reserved."""
    return [part.request.spec.group.name for part in asked.parts] if isinstance(asked, Round) else []
