"""EASY backfill over the whole cluster, as batch systems have it: no virtual clusters, no lending, no evictions.

All jobs stand in one queue, by falling priority, then place. The first one starts as soon as it fits. While it does
not, it has a start reserved: the moment at which it fits if each running job ends by its declared limit, which is its
*shadow* time. A later job goes past it if it fits now, and either ends by the shadow time or leaves the first one room
then. A job that declares no limit may run for ever, so the shadow time may be unknown: then a later job has to leave
the first one room beside it once all others have ended. Where that does not fit an empty cluster, as nodes have failed,
all others go past it. A gang is packed: its largest pods first, each on the fullest node that has room.

The rival of a cluster that is divided: it makes no promise, and loses nothing by division.
"""

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from hived.cells.topology import LongArray
from hived.values.specs import ClusterSpec
from hived_simulator.changes import Change
from hived_simulator.clusters import Started, Waits
from hived_simulator.loop import Loop, Manner
from hived_simulator.queued import Queueing
from hived_simulator.quotas import QuotaCluster, Seated, Seats
from hived_simulator.tasks import Cause, Shape, Task

Free = Mapping[str, LongArray]
"""Leaf cells that may be taken, by leaf type and node."""

_Place = tuple[tuple[int, tuple[int, int]], int]
"""Rank and number of a task that waits."""


@dataclass(slots=True)
class _First:
    """The first task that waits, as long as the cluster's `room` does not grow.

    `then` may be taken at its shadow time, and has room for it if it is bound to.
    """

    room: int
    task: Task
    shadow_s: float
    then: dict[str, LongArray]
    is_bound: bool


class EasyCluster(QuotaCluster):
    """Nodes with free leaf cells, without shares of them."""

    def __init__(self, spec: ClusterSpec) -> None:
        """Cost O(cells)."""
        super().__init__(spec, spreads=False)

    def lacks_room(self, task: Task, priority: int) -> Cause | None:
        """None: there are no shares that could be used up."""
        return None

    def _impossible(self, task: Task) -> Waits | None:
        whole = {name: nodes.whole for name, nodes in self._types.items()}
        if self._find(task.shape, whole) is None:
            return Waits(Cause.REFUSED, "there are not enough nodes of that size")
        return None

    def free(self) -> dict[str, LongArray]:
        """The leaf cells that may be taken now."""
        return self._usable()

    def without(self, free: Free, tasks: Sequence[Task]) -> dict[str, LongArray]:
        """The leaf cells that could be taken once these running tasks have ended, too."""
        found, names = {name: cells.copy() for name, cells in free.items()}, list(self._types)
        for task in tasks:
            for kind, node, leaves in self._seated[task.group].seats:
                found[names[kind]][node] += leaves * (self._types[names[kind]].size[node] > 0)
        return found

    def less(self, free: Free, seats: Seats) -> dict[str, LongArray]:
        """The leaf cells that are left beside these seats."""
        found, names = {name: cells.copy() for name, cells in free.items()}, list(self._types)
        for kind, node, leaves in seats:
            found[names[kind]][node] -= leaves
        return found

    def seats(self, shape: Shape, free: Free) -> Seats | None:
        """Seats for a task; None if it does not fit."""
        return self._find(shape, free)

    def start(self, task: Task, seats: Seats) -> Started:
        """The task runs on these seats, which are free."""
        self._take(self._seated, Seated(task, task.priority, seats))
        return Started(self._level(seats))


class EasyLoop(Loop):
    """One queue for the whole cluster, with EASY backfill. `changes` are of health alone."""

    cluster: EasyCluster

    def __init__(
        self, cluster: EasyCluster, tasks: Sequence[Task], changes: Sequence[Change], queueing: Queueing,
        grace_s: float, every_s: float,
    ) -> None:  # fmt: skip
        """Of `queueing` the limits count that jobs declare."""
        super().__init__(cluster, tasks, changes, Manner(grace_s, has_backfill=True), every_s)
        self._limit_s = {task.group: inf if (limit := queueing.limit_s(task)) is None else limit for task in tasks}
        self._queue: list[_Place] = []  # rank, number of the task
        self._running: dict[str, Task] = {}
        self._come: list[_Place] = []  # since the last turn
        self._first: _First | None = None

    def _enter(self, task: Task, *, is_guaranteed: bool = True) -> None:
        self.now.waiting[task.cause] += 1
        insort(self._queue, (task.rank, self._number[task.group]))
        self._come.append((task.rank, self._number[task.group]))

    def _leave(self, task: Task) -> None:
        self._running.pop(task.group, None)
        super()._leave(task)

    def _try_waiting(self) -> None:
        """Start the first ones while they fit, then jobs that may go past.

        While nothing has become free only jobs that have come can: what is left for others only shrinks. Cost: a search
        for each kind that waits.
        """
        if not self._queue:
            return
        come, self._come = sorted(self._come), []
        free, known = self.cluster.free(), self._first
        is_known = known is not None and known.room == self.cluster.room("") and known.shadow_s < inf
        if known is not None and is_known and known.task is self.tasks[self._queue[0][1]]:
            self._pass(known, free, come)
            return
        while self._queue:
            first = self.tasks[self._queue[0][1]]
            seats = self.cluster.seats(first.shape, free)
            if seats is None:
                shadow_s, then = self._shadow(first, free)
                is_bound = self.cluster.seats(first.shape, then) is not None
                self._first = _First(self.cluster.room(""), first, shadow_s, then, is_bound)
                self._pass(self._first, free, self._queue[1:])
                return
            del self._queue[0]
            self._run(first, seats)
            free = self.cluster.less(free, seats)

    def _pass(self, first: _First, free: dict[str, LongArray], places: Sequence[_Place]) -> None:
        """Start the jobs that fit and do not delay the first one."""
        refused, started = set[Shape](), set[_Place]()
        for place in places:
            task = self.tasks[place[1]]
            seats = None if task.shape in refused else self.cluster.seats(task.shape, free)
            if seats is None:
                refused.add(task.shape)
                continue
            if not self.now.at_s + self._limit_s[task.group] <= first.shadow_s < inf:
                beside = self.cluster.less(first.then, seats)
                if first.is_bound and self.cluster.seats(first.task.shape, beside) is None:
                    continue
                first.then = beside
            self._run(task, seats)
            free = self.cluster.less(free, seats)
            started.add(place)
        if started:
            self._queue = [place for place in self._queue if place not in started]

    def _shadow(self, first: Task, free: dict[str, LongArray]) -> tuple[float, dict[str, LongArray]]:
        """Return when the first task fits at the latest, and what could be taken then; it never fits before it."""
        order = sorted(self._running.values(), key=lambda task: (self._ends_s(task), task.place))
        low, high = 0, len(order)  # it does not fit once `low` have ended
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.cluster.seats(first.shape, self.cluster.without(free, order[:middle])) is not None
            low, high = (low, middle) if fits else (middle, high)
        shadow_s = self._ends_s(order[high - 1]) if order else inf
        ended = [task for task in order if self._ends_s(task) <= shadow_s]
        return shadow_s, self.cluster.without(free, ended)

    def _ends_s(self, task: Task) -> float:
        return max(task.started_s + self._limit_s[task.group], self.now.at_s)

    def _run(self, task: Task, seats: Seats) -> None:
        self._start(task, task.priority, self.cluster.start(task, seats))
        self._running[task.group] = task
