"""Waiting jobs, and the next one to be asked.

Each virtual cluster has a lane of guaranteed tasks by rank: falling priority, then place. Its head is tried; with
backfill, the first one of a shape that was not refused. Opportunistic tasks, and tasks that may run so while their lane
has no room for them, wait in a pool by rank; they never hold each other up. A shape that was refused is not tried again
before the cluster's `room` grows. Lists are heaps from which tasks are taken lazily: entries of tasks that do not wait
any more, or wait anew, are skipped.
"""

from collections.abc import Iterator, Sequence

from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived.virtual_time import Heap, Lineup
from hived_simulator.clusters import SimulatedCluster
from hived_simulator.tasks import Phase, Shape, Task

Entry = tuple[int, tuple[int, int], int, int]
"""Falling priority, place, ticket, number of the task."""

Kind = tuple[int, Shape]
"""Priority and shape of tasks that are refused together."""


class Waiting:
    """Tells entries of tasks that wait from those of tasks that do not any more, or wait anew."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks

    def __call__(self, entry: Entry) -> bool:
        """True if the task of an entry waits by it."""
        task = self._tasks[entry[3]]
        return task.ticket == entry[2] and task.phase is Phase.WAITING


class Kinds(Lineup[Entry]):
    """Waiting tasks by kind; those that were refused are tried again once the cluster's room has grown."""

    _room = -1

    def look(self, room: int) -> "Kinds":
        """The same, as the room is so large now."""
        if room != self._room:
            self._room = room
            self.reopen()
        return self


class Lanes:
    """The lanes and pools of a cluster. `has_backfill`: later tasks pass the head of their lane."""

    def __init__(
        self, tasks: Sequence[Task], cluster: SimulatedCluster, has_backfill: bool, lends_over_quota: bool
    ) -> None:
        self._tasks = tasks
        self._is_waiting = Waiting(tasks)
        self._cluster = cluster
        self._has_backfill = has_backfill
        self._lends_over_quota = lends_over_quota
        self._lanes: dict[str, Heap[Entry]] = {}
        self._refused: dict[str, tuple[Task, int]] = {}  # by virtual cluster: its head that was refused, at which room
        self._kinds: dict[str, Kinds] = {}
        self._pools: dict[str, Kinds] = {}
        self._vc_of_pool: dict[str, str] = {}

    def add(self, task: Task, number: int, *, is_guaranteed: bool = True, borrows: bool = True) -> None:
        """A task waits from now on. Not `is_guaranteed`: its virtual cluster is too small for it. Not `borrows`: a
        guaranteed one that takes no idle cells of others before `may_borrow`.
        """
        task.ticket += 1
        entry = (*task.rank, task.ticket, number)
        if not task.is_opportunistic and is_guaranteed:
            if self._has_backfill:
                self._kinds.setdefault(task.vc, Kinds(self._is_waiting)).add((task.priority, task.shape), entry)
            else:
                self._lanes.setdefault(task.vc, Heap(self._is_waiting)).add(entry)
        if task.is_opportunistic or (self._lends_over_quota and borrows):
            self.may_borrow(task, number)

    def may_borrow(self, task: Task, number: int) -> None:
        """A task that waits takes idle cells of others from now on."""
        entry = (*task.rank, task.ticket, number)
        pool = self._cluster.pool(task.vc)
        self._vc_of_pool[pool] = task.vc
        self._pools.setdefault(pool, Kinds(self._is_waiting)).add((OPPORTUNISTIC_PRIORITY, task.shape), entry)

    def refuse(self, task: Task, priority: int) -> None:
        """Try no task of this shape before there is more room."""
        kind, room = (priority, task.shape), self._cluster.room(task.vc)
        if priority == OPPORTUNISTIC_PRIORITY:
            self._pools[self._cluster.pool(task.vc)].look(room).refuse(kind)
        elif self._has_backfill:
            self._kinds[task.vc].look(room).refuse(kind)
        else:
            self._refused[task.vc] = task, room

    def next_guaranteed(self) -> Task | None:
        """The task to be tried next in its lane: of all lanes the one of the first rank."""
        found = self._passing() if self._has_backfill else self._heads()
        return min(found, key=lambda task: task.rank, default=None)

    def _passing(self) -> Iterator[Task]:
        for vc, kinds in self._kinds.items():
            if (entry := kinds.look(self._cluster.room(vc)).first()) is not None:
                yield self._tasks[entry[-1]]

    def _heads(self) -> Iterator[Task]:
        for vc, lane in self._lanes.items():
            if (entry := lane.first()) is not None:
                task, room = self._tasks[entry[-1]], self._cluster.room(vc)
                refused, refused_at = self._refused.get(vc, (None, room))
                if refused is None or refused_at != room or not _are_alike(task, refused):
                    yield task

    def next_opportunistic(self) -> Task | None:
        """The task to be tried next on idle cells: the first rank of all that were not refused."""
        found = (self._idle(pool, kinds) for pool, kinds in self._pools.items())
        return min((task for task in found if task is not None), key=lambda task: task.rank, default=None)

    def _idle(self, pool: str, kinds: Kinds) -> Task | None:
        """The first task of a pool for which there may be room: the cells in use grow less only when `room` grows."""
        kinds.look(self._cluster.room(self._vc_of_pool[pool]))
        while (entry := kinds.first()) is not None:
            task = self._tasks[entry[-1]]
            if self._cluster.lacks_room(task, OPPORTUNISTIC_PRIORITY) is None:
                return task
            kinds.refuse((OPPORTUNISTIC_PRIORITY, task.shape))
        return None


def _are_alike(task: Task, other: Task) -> bool:
    """True if two tasks of a virtual cluster get the same answers."""
    return task is other or (task.priority == other.priority and task.shape == other.shape)
