"""A cluster under hived as the room of queues: cells are held for tasks, and borrowers are named that have to leave.

It answers as the service does (`hived_extender.service.holds`), of a core that runs whole tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hived.decisions import Bind, Wait
from hived.errors import UserError
from hived.events import GroupsUpgraded, ScheduleRequested
from hived.groups import bind_info_of_slot, virtual_leaves
from hived.scheduler import Asked, handle
from hived.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, PodRequest, Rules
from hived.state import State
from hived_extender.queues.room import Ask, Pending, Victims
from hived_extender.service.claims import Afterwards, Claim, Stage
from hived_simulator.clusters import Started
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.holdings import Holding
from hived_simulator.requests import pod_of, pod_spec
from hived_simulator.tasks import Task

REFUSED = "others have to leave first"
CLAIMED = "its cells are for jobs that come first"


@dataclass(frozen=True, slots=True)
class _Present:
    """See `claims.Present`."""

    state: State
    now_s: float | None
    version: int = 0


class QueuedCluster(HivedCluster):
    """See the module. It knows tasks by the keys of their units; `started` has what was held in this turn."""

    def __init__(self, spec: ClusterSpec) -> None:
        """Cost O(cells)."""
        super().__init__(spec)
        self.started: dict[str, Started] = {}
        self._tasks: dict[str, Task] = {}

    def tell_unit(self, key: str, task: Task) -> None:
        """A task has a unit of this key."""
        self._tasks[key] = task

    def hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        """See `room.Room`. Cost: a search; with claims, two copies of the state more."""
        asked, task = self._asked(ask), self._tasks[ask.unit.key]
        event = ScheduleRequested(asked.pod, now_s=self._known_s, own=asked.own)
        try:
            found = handle(self.state, event)
        except UserError as error:
            return Wait(str(error))
        if not isinstance(found, Bind):
            return found if isinstance(found, Wait) else Wait(REFUSED)
        claims = self._claims(pending)
        if claims and not self._spares(asked, claims):
            return Wait(CLAIMED)
        self.started[ask.unit.key] = self._start(task, _priority(ask), found, found.cancelled, asked.pod)
        return found

    def _spares(self, asked: Asked, claims: Sequence[Claim]) -> bool:
        """Do the claims still get their cells if this request gets some now?"""
        present = _Present(self.state, self._known_s)
        beside, alone = Stage().met(present, [Claim(asked, ()), *claims]), Stage().met(present, claims)
        return beside == [0, *(number + 1 for number in alone)]

    def upgrade(self, ask: Ask) -> tuple[int, ...] | None:
        """See `room.Room`. Cost O(leaves x height)."""
        task = self._tasks[ask.unit.key]
        held, priority = self._holdings[task.group], task.priority
        pods = tuple(replace(pod, spec=replace(pod.spec, priority=priority)) for pod in held.pods)
        try:
            handle(self.state, GroupsUpgraded(pods, np.array(ask.own, np.int32)))
        except UserError:
            return None
        group = self.state.groups[pods[0].spec.group.name]
        infos = tuple(bind_info_of_slot(self.state, group, slot) for slot in range(len(pods)))
        self._holdings[task.group] = Holding(task, pods, infos)
        self._usage.uncount(task.group)
        self._usage.count(task, priority)
        return virtual_leaves(self.state, group.name)

    def victims(self, ask: Ask, candidates: Sequence[str], pending: Pending) -> Victims | None:
        """See `room.Room`. Every group has a unit. Cost: a copy of the state, and O(victims) searches."""
        present = _Present(self.state, self._known_s)
        afterwards = Afterwards(Stage(), present, self._claims(pending), self._pods_of(pending.leaving))
        asked, keys = self._asked(ask), [key for key in candidates if self._pods_of([key])]
        found = afterwards.least_leaving(asked, {key: self._pods_of([key]) for key in keys})
        return None if found is None else Victims(tuple(found))

    @property
    def _known_s(self) -> float | None:
        return self._now_s if self.state.spec.rules is Rules.BETTER else None

    def _asked(self, ask: Ask) -> Asked:
        task = self._tasks[ask.unit.key]
        pod = pod_of(task, pod_spec(task, _priority(ask), is_lazy=False), 0)
        return Asked(pod, own=np.array(ask.own, np.int32) if ask.own else None)

    def _claims(self, pending: Pending) -> list[Claim]:
        return [Claim(self._asked(claim.ask), self._pods_of(claim.leaving)) for claim in pending.claims]

    def _pods_of(self, keys: Sequence[str]) -> list[PodRequest]:
        held = (self._holdings.get(self._tasks[key].group) for key in keys)
        return [pod for holding in held if holding is not None for pod in holding.pods]


def _priority(ask: Ask) -> int:
    return OPPORTUNISTIC_PRIORITY if ask.is_borrowed else ask.unit.priority
