"""Waiting jobs, and the next one to be asked.

Each virtual cluster has a lane of guaranteed tasks by rank: falling priority, then place. Its head is tried; with
backfill, the first one of a shape that was not refused. Opportunistic tasks, and those that may run so while their lane
has no room for them, wait in a pool by rank; they never hold each other up. A shape that was refused is not tried again
before the cluster's `room` grows. Lists are heaps from which tasks are taken lazily: entries of tasks that do not wait
any more, or wait anew, are skipped.
"""

import heapq
from collections.abc import Sequence

from hived.specs import OPPORTUNISTIC_PRIORITY
from hived_simulator.clusters import Cluster
from hived_simulator.tasks import Phase, Shape, Task

Entry = tuple[int, tuple[int, int], int, int]
"""Falling priority, place, ticket, number of the task."""

Kind = tuple[int, Shape]


class Heap:
    """Waiting tasks, the next one first."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def add(self, task: Task, number: int) -> None:
        """A task waits here from now on. Cost O(log entries)."""
        heapq.heappush(self._entries, (*task.rank, task.ticket, number))

    def first(self, tasks: Sequence[Task]) -> Task | None:
        """The next task; None if nobody waits."""
        entries = self._entries
        while entries:
            _, _, ticket, number = entries[0]
            task = tasks[number]
            if task.ticket == ticket and task.phase is Phase.WAITING:
                return task
            heapq.heappop(entries)
        return None


class Lanes:
    """See the module. `has_backfill`: later tasks pass the head of their lane."""

    def __init__(self, tasks: Sequence[Task], cluster: Cluster, has_backfill: bool, lends_over_quota: bool) -> None:
        self._tasks = tasks
        self._cluster = cluster
        self._has_backfill = has_backfill
        self._lends_over_quota = lends_over_quota
        self._lanes: dict[str, Heap] = {}
        self._kinds: dict[str, dict[Kind, Heap]] = {}
        self._pools: dict[str, dict[Shape, Heap]] = {}
        self._refused: dict[tuple[str, int, Shape], int] = {}
        self._refused_idle: dict[tuple[str, Shape], int] = {}

    def add(self, task: Task, number: int, *, is_guaranteed: bool = True) -> None:
        """A task waits from now on. Not `is_guaranteed`: its virtual cluster is too small for it."""
        task.ticket += 1
        if not task.is_opportunistic and is_guaranteed:
            self._lanes.setdefault(task.vc, Heap()).add(task, number)
            if self._has_backfill:
                kinds = self._kinds.setdefault(task.vc, {})
                kinds.setdefault((task.priority, task.shape), Heap()).add(task, number)
        if task.is_opportunistic or self._lends_over_quota:
            pool = self._pools.setdefault(self._cluster.pool(task.vc), {})
            pool.setdefault(task.shape, Heap()).add(task, number)

    def refuse(self, task: Task, priority: int) -> None:
        """Nobody of this shape is tried before there is more room."""
        room = self._cluster.room(task.vc)
        if priority == OPPORTUNISTIC_PRIORITY:
            self._refused_idle[self._cluster.pool(task.vc), task.shape] = room
        else:
            self._refused[task.vc, priority, task.shape] = room

    def next_guaranteed(self) -> Task | None:
        """The task to be tried next in its lane: of all lanes the one of the first rank."""
        best: Task | None = None
        for vc, lane in self._lanes.items():
            task = self._candidate(vc, lane)
            if task is not None and (best is None or task.rank < best.rank):
                best = task
        return best

    def _candidate(self, vc: str, lane: Heap) -> Task | None:
        room = self._cluster.room(vc)
        if not self._has_backfill:
            head = lane.first(self._tasks)
            return None if head is None or self._refused.get((vc, head.priority, head.shape)) == room else head
        best: Task | None = None
        for (priority, shape), heap in self._kinds.get(vc, {}).items():
            if self._refused.get((vc, priority, shape)) == room:
                continue
            task = heap.first(self._tasks)
            if task is not None and (best is None or task.rank < best.rank):
                best = task
        return best

    def next_opportunistic(self) -> Task | None:
        """The task to be tried next on idle cells: the first rank of all that were not refused."""
        best: Task | None = None
        for pool, shapes in self._pools.items():
            for shape, heap in shapes.items():
                task = heap.first(self._tasks)
                if task is None or self._refused_idle.get((pool, shape)) == self._cluster.room(task.vc):
                    continue
                if self._cluster.lacks_room(task, OPPORTUNISTIC_PRIORITY) is None and (
                    best is None or task.rank < best.rank
                ):
                    best = task
        return best
