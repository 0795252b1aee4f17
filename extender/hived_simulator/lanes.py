"""Waiting jobs, and the next one to be asked.

Each virtual cluster has a lane of guaranteed tasks by rank: falling priority, then place. Its head is tried; with
backfill, the first one of a shape that was not refused. Opportunistic tasks, and tasks that may run so while their lane
has no room for them, wait in a pool by rank; they never hold each other up. A shape that was refused is not tried again
before the cluster's `room` grows. Lists are heaps from which tasks are taken lazily: entries of tasks that do not wait
any more, or wait anew, are skipped.
"""

import heapq
from collections.abc import Iterator, Sequence

from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived_simulator.clusters import SimulatedCluster
from hived_simulator.tasks import Phase, Shape, Task

Entry = tuple[int, tuple[int, int], int, int]
"""Falling priority, place, ticket, number of the task."""

Kind = tuple[int, Shape]
"""Priority and shape of tasks that are refused together."""


class Heap:
    """Waiting tasks, the next one first."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """A task waits here from now on. Cost O(log entries)."""
        heapq.heappush(self._entries, entry)

    def first(self, tasks: Sequence[Task]) -> Entry | None:
        """The entry of the next task; None if no task waits."""
        entries = self._entries
        while entries:
            _, _, ticket, number = entries[0]
            task = tasks[number]
            if task.ticket == ticket and task.phase is Phase.WAITING:
                return entries[0]
            heapq.heappop(entries)
        return None


class Kinds:
    """Waiting tasks by kind, of which kinds that were refused are passed over.

    `_open` is a heap of the heads of kinds that may be tried while the room is `_room`; it has one entry of each that
    counts, which is `_head[kind]`.
    """

    def __init__(self) -> None:
        self._heaps: dict[Kind, Heap] = {}
        self._refused: dict[Kind, int] = {}
        self._open: list[tuple[Entry, Kind]] = []
        self._head: dict[Kind, Entry] = {}
        self._room = -1

    def add(self, kind: Kind, entry: Entry) -> None:
        """A task waits here from now on. Cost O(log entries)."""
        self._heaps.setdefault(kind, Heap()).add(entry)
        if self._refused.get(kind) != self._room and (kind not in self._head or entry < self._head[kind]):
            self._show(kind, entry)

    def _show(self, kind: Kind, entry: Entry) -> None:
        self._head[kind] = entry
        heapq.heappush(self._open, (entry, kind))

    def refuse(self, kind: Kind, room: int) -> None:
        """Try no task of this kind while there is this room."""
        self._refused[kind] = room

    def first(self, tasks: Sequence[Task], room: int) -> Task | None:
        """The task of the first rank that may be tried; None if there is none.

        Cost O(kinds) when the room has changed, else O(log kinds).
        """
        if room != self._room:
            self._look_anew(tasks, room)
        while self._open:
            entry, kind = self._open[0]
            if entry == self._head.get(kind):
                if self._refused.get(kind) == room:
                    del self._head[kind]
                elif (head := self._heaps[kind].first(tasks)) == entry:
                    return tasks[entry[-1]]
                else:
                    self._replace(kind, head)
            heapq.heappop(self._open)
        return None

    def _replace(self, kind: Kind, head: Entry | None) -> None:
        """The head of a kind does not wait any more; no other comes before it, as one would be shown."""
        del self._head[kind]
        if head is None:
            del self._heaps[kind]
        else:
            self._show(kind, head)

    def _look_anew(self, tasks: Sequence[Task], room: int) -> None:
        self._room = room
        self._refused = {kind: at for kind, at in self._refused.items() if at == room}
        heads = {kind: heap.first(tasks) for kind, heap in self._heaps.items()}
        self._heaps = {kind: heap for kind, heap in self._heaps.items() if heads[kind] is not None}
        self._head = {kind: head for kind, head in heads.items() if head is not None and kind not in self._refused}
        self._open = [(head, kind) for kind, head in self._head.items()]
        heapq.heapify(self._open)


class Lanes:
    """The lanes and pools of a cluster. `has_backfill`: later tasks pass the head of their lane."""

    def __init__(
        self, tasks: Sequence[Task], cluster: SimulatedCluster, has_backfill: bool, lends_over_quota: bool
    ) -> None:
        self._tasks = tasks
        self._cluster = cluster
        self._has_backfill = has_backfill
        self._lends_over_quota = lends_over_quota
        self._lanes: dict[str, Heap] = {}
        self._refused: dict[str, tuple[Kind, int]] = {}  # by virtual cluster: its head that was refused, at which room
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
                self._kinds.setdefault(task.vc, Kinds()).add((task.priority, task.shape), entry)
            else:
                self._lanes.setdefault(task.vc, Heap()).add(entry)
        if task.is_opportunistic or (self._lends_over_quota and borrows):
            self.may_borrow(task, number)

    def may_borrow(self, task: Task, number: int) -> None:
        """A task that waits takes idle cells of others from now on."""
        entry = (*task.rank, task.ticket, number)
        pool = self._cluster.pool(task.vc)
        self._vc_of_pool[pool] = task.vc
        self._pools.setdefault(pool, Kinds()).add((OPPORTUNISTIC_PRIORITY, task.shape), entry)

    def refuse(self, task: Task, priority: int) -> None:
        """Try no task of this shape before there is more room."""
        kind, room = (priority, task.shape), self._cluster.room(task.vc)
        if priority == OPPORTUNISTIC_PRIORITY:
            self._pools[self._cluster.pool(task.vc)].refuse(kind, room)
        elif self._has_backfill:
            self._kinds[task.vc].refuse(kind, room)
        else:
            self._refused[task.vc] = kind, room

    def next_guaranteed(self) -> Task | None:
        """The task to be tried next in its lane: of all lanes the one of the first rank."""
        found = self._passing() if self._has_backfill else self._heads()
        return min(found, key=lambda task: task.rank, default=None)

    def _passing(self) -> Iterator[Task]:
        for vc, kinds in self._kinds.items():
            if (task := kinds.first(self._tasks, self._cluster.room(vc))) is not None:
                yield task

    def _heads(self) -> Iterator[Task]:
        for vc, lane in self._lanes.items():
            if (entry := lane.first(self._tasks)) is not None:
                task = self._tasks[entry[-1]]
                if self._refused.get(vc) != ((task.priority, task.shape), self._cluster.room(vc)):
                    yield task

    def next_opportunistic(self) -> Task | None:
        """The task to be tried next on idle cells: the first rank of all that were not refused."""
        found = (self._idle(pool, kinds) for pool, kinds in self._pools.items())
        return min((task for task in found if task is not None), key=lambda task: task.rank, default=None)

    def _idle(self, pool: str, kinds: Kinds) -> Task | None:
        """The first task of a pool for which there may be room: the cells in use grow less only when `room` grows."""
        room = self._cluster.room(self._vc_of_pool[pool])
        while (task := kinds.first(self._tasks, room)) is not None:
            if self._cluster.lacks_room(task, OPPORTUNISTIC_PRIORITY) is None:
                return task
            kinds.refuse((OPPORTUNISTIC_PRIORITY, task.shape), room)
        return None
