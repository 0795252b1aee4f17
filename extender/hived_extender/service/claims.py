"""Cells that others are to have first: room that is being made while jobs leave, and whom a hold must not disturb.

Asked of the core under its journal; nothing changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hived.decisions import Bind
from hived.errors import UserError
from hived.events import PodDeleted
from hived.scheduler import Asked, plan_in_turn
from hived.specs import PodRequest
from hived_extender.service.core import Core


@dataclass(frozen=True, slots=True)
class Claims:
    """`leaving` are pods that have been told to leave. `asked` are the requests that get cells once they have."""

    leaving: Sequence[PodRequest]
    asked: Sequence[Asked]

    def can_be_met(self, core: Core) -> bool:
        """Does everybody get cells once all have left, beside all that holds cells now? Cost O(cells), and searches."""
        return not self.asked or self._all_bind(core, self.asked) is not None

    def place_after(self, core: Core, asked: Asked) -> Bind | None:
        """The cells that a request gets once all have left, and claims have theirs; None if there are none."""
        return self._all_bind(core, [*self.asked, asked])

    def with_others_gone(self, core: Core, asked: Asked, gone: Sequence[PodRequest]) -> bool:
        """Does a request get cells, beside the claims, if these pods leave as well?"""
        return Claims([*self.leaving, *gone], self.asked).place_after(core, asked) is not None

    def _all_bind(self, core: Core, asked: Sequence[Asked]) -> Bind | None:
        """The last answer if all are Bind."""
        uids = dict.fromkeys(pod.uid for pod in self.leaving)
        pods = {pod.uid: pod for pod in self.leaving}
        facts = [PodDeleted(pods[uid]) for uid in uids]
        found = plan_in_turn(core.state, [[one] for one in asked], core.now_s, facts)
        answers = [None if isinstance(one, UserError) else one[0] for one in found]
        last = answers[-1]
        return last if isinstance(last, Bind) and all(isinstance(one, Bind) for one in answers) else None
