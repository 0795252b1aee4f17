"""The event loop: virtual time from one event to the next, deterministic, with no clock.

Of one moment, tasks end first, then victims leave, then the cluster changes, then jobs are submitted; then waiting
tasks are tried, guaranteed ones before opportunistic ones, until all that are left were refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived.virtual_time import Agenda, Entry
from hived_simulator.changes import Act, Change
from hived_simulator.clusters import Answer, Leaving, SimulatedCluster, Started, Waits
from hived_simulator.lanes import Lanes
from hived_simulator.results import Promises, Usage
from hived_simulator.tasks import Cause, Phase, Task


class Kind(IntEnum):
    """Kinds of events. Of one moment, lower numbers come first: cells come free before they are asked for."""

    END = 0  # of a task's run
    LEAVE = 1  # victims, at the end of their grace
    CHANGE = 2  # of the cluster
    SUBMIT = 3
    TURN = 4  # of queues, although nothing else happens
    BORROW = 5  # a task that was evicted from idle cells of others may take some again


@dataclass(slots=True)
class Now:
    """The moment, and counts of it: tasks waiting by cause, leaf cells in use, of these lent ones."""

    at_s: float = 0.0
    waiting: list[int] = field(default_factory=lambda: [0] * len(Cause))
    used_count: int = 0
    lent_count: int = 0
    open_count: int = 0


class Row(NamedTuple):
    """Leaf cells and waiting tasks at one moment; see `Room`. `waiting` is by cause."""

    at_s: float
    leaf_count: int
    used_count: int
    lent_count: int
    idle_count: int
    bad_count: int
    free_cells: tuple[tuple[str, int], ...]
    waiting: tuple[int, ...]


class Series:
    """The cluster over time: a row at the start and each `every_s` seconds of virtual time after it, none if that is 0.

    Nothing happens between two events, so a row shows the state after all events up to it.
    """

    def __init__(self, every_s: float) -> None:
        self.rows: list[Row] = []
        self._every_s = every_s

    def catch_up(self, until_s: float, now: Now, cluster: SimulatedCluster) -> None:
        """Write the rows before `until_s`, the next event. Cost O(cells) if there are any."""
        if not self._every_s or len(self.rows) * self._every_s >= until_s:
            return
        room = cluster.measure()
        while (at_s := len(self.rows) * self._every_s) < until_s:
            self.rows.append(
                Row(
                    at_s, room.leaf_count, now.used_count, now.lent_count, room.idle_count, room.bad_count,
                    tuple(room.free_cells.items()), tuple(now.waiting),
                )
            )  # fmt: skip


STEPS_PER_LOOK = 64
"""Events between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Manner:
    """The way in which tasks are queued and evicted.

    grace_s : seconds between the decision that victims leave and the moment when they are gone
    has_backfill : later tasks of a virtual cluster pass tasks that have no room
    lends_over_quota : a guaranteed task that has no room in its virtual cluster runs as an opportunistic one
    """

    grace_s: float = 0.0
    has_backfill: bool = False
    lends_over_quota: bool = False


class Loop:
    """One run of a trace on a cluster. `step` goes on; afterwards the tasks and the series have the results.

    `usage` has by virtual cluster the leaf-seconds until `window_s`, the last submission; all of them if all tasks are
    submitted at the start. `promises` has an element for each configuration. `agenda` has everything to come.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        tasks: Sequence[Task],
        changes: Sequence[Change],
        manner: Manner,
        every_s: float,
    ) -> None:
        """`tasks` ascend by place; numbers of the agenda are places in this list."""
        self.cluster = cluster
        self.tasks = tasks
        self.now = Now(open_count=len(tasks))
        self.series = Series(every_s)
        self.usage: dict[str, Usage] = {}
        self.promises: list[Promises] = []
        self.window_s = max((task.submitted_s for task in tasks), default=0.0) or float("inf")
        self._manner = manner
        self._changes = changes
        self.agenda = Agenda()
        self._lanes = Lanes(tasks, cluster, manner.has_backfill, manner.lends_over_quota)
        self._number = {task.group: number for number, task in enumerate(tasks)}
        self._change_count = len(changes)  # to come
        self._refused_count = 0
        self._victims: dict[str, set[str]] = {}
        """Tasks that still have to leave, by the group that reserves their cells."""
        self._read_promises()
        for number, task in enumerate(tasks):
            self.agenda.add(task.submitted_s, Kind.SUBMIT, number)
        for number, change in enumerate(changes):
            self.agenda.add(change.at_s, Kind.CHANGE, number)

    @property
    def is_over(self) -> bool:
        """True if every task is done, or unable to run whatever happens."""
        if not len(self.agenda):
            return True
        return self.now.open_count == 0 and not (self._change_count and self._refused_count)

    @property
    def measured_s(self) -> float:
        """Seconds of which `usage` counts leaf-seconds."""
        return self.window_s if self.window_s != float("inf") else self.now.at_s

    def run(self, look: Callable[[], object] = lambda: None) -> None:
        """Go on to the end; `look` is called after each STEPS_PER_LOOK events."""
        while not self.is_over:
            self.advance()
            look()
        self.finish()

    def advance(self) -> None:
        """Go on by STEPS_PER_LOOK events, or to the end."""
        for _ in range(STEPS_PER_LOOK):
            if not self.is_over:
                self.step()

    def finish(self) -> None:
        """Count the time that tasks have waited that wait still."""
        for task in self.tasks:
            if task.phase in (Phase.WAITING, Phase.RESERVING):
                task.wait(self.now.at_s, task.cause)

    def step(self) -> None:
        """Go on to the next moment at which something happens."""
        self.series.catch_up(self.agenda.next_s, self.now, self.cluster)
        due = self.agenda.pop_next()
        self.now.at_s = due[0].at_s
        self.cluster.tell_time(self.now.at_s)
        for entry in due:
            self._take(entry)
        self._try_waiting()

    def _take(self, entry: Entry) -> None:
        if entry.kind is Kind.CHANGE:
            self._change(self._changes[entry.number])
            return
        task = self.tasks[entry.number]
        if entry.kind is Kind.SUBMIT:
            self._line_up(task)
        elif entry.kind is Kind.BORROW:
            if task.phase is Phase.WAITING and task.ticket == entry.run:
                self._lanes.may_borrow(task, entry.number)
        elif task.run != entry.run:
            return  # evicted meanwhile
        elif entry.kind is Kind.END:
            task.end(self.now.at_s)
            self.now.open_count -= 1
            self._leave(task)
        elif task.phase is Phase.RESERVING:
            for name in sorted(self._victims.get(task.group, ())):
                self._evict_all([name])
        elif task.phase is Phase.RUNNING:
            self._evict(task)

    def _line_up(self, task: Task) -> None:
        """Have a task wait from now on, unless it can never run."""
        failed = self.cluster.can_ever_run(task)
        task.reason = "" if failed is None else failed.reason
        if failed is not None and (task.is_opportunistic or not self._manner.lends_over_quota):
            self._refuse(task)
            return
        task.phase = Phase.WAITING
        task.wait(self.now.at_s, _first_cause(task, failed))
        self._enter(task, is_guaranteed=failed is None)

    def _enter(self, task: Task, *, is_guaranteed: bool = True) -> None:
        self.now.waiting[task.cause] += 1
        number, rests = self._number[task.group], task.borrows_from_s > self.now.at_s
        self._lanes.add(task, number, is_guaranteed=is_guaranteed, borrows=not rests)
        if rests and self._manner.lends_over_quota:
            self.agenda.add(task.borrows_from_s, Kind.BORROW, number, task.ticket)

    def _refuse(self, task: Task) -> None:
        task.wait(self.now.at_s, Cause.REFUSED)
        task.phase = Phase.REFUSED
        self.now.open_count -= 1
        self._refused_count += 1

    def _wait(self, task: Task, cause: Cause) -> None:
        """Note another reason why a task waits."""
        self.now.waiting[task.cause] -= 1
        self.now.waiting[cause] += 1
        task.wait(self.now.at_s, cause)

    def _try_waiting(self) -> None:
        """Start all tasks that can: one that starts on lent cells makes another the head of its lane."""
        while True:
            while (task := self._lanes.next_guaranteed()) is not None:
                cause = self.cluster.lacks_room(task, task.priority)
                if cause is not None:
                    self._wait(task, cause)
                    self._lanes.refuse(task, task.priority)
                else:
                    self._ask(task, task.priority)
            task = self._lanes.next_opportunistic()
            if task is None:
                return
            self._ask(task, OPPORTUNISTIC_PRIORITY)

    def _ask(self, task: Task, priority: int) -> None:
        answer = self.cluster.ask(task, priority)
        self._take_back(answer.cancelled)
        self._lend(answer.lent)
        if isinstance(answer, Started):
            self._start(task, priority, answer)
        elif isinstance(answer, Leaving):
            self._wait(task, Cause.VICTIMS)
            self._make_leave(task, answer)
        elif answer.cause is Cause.REFUSED:
            self.now.waiting[task.cause] -= 1
            task.reason = answer.reason
            self._refuse(task)
        else:
            if priority != OPPORTUNISTIC_PRIORITY or task.is_opportunistic:
                self._wait(task, answer.cause)
            self._lanes.refuse(task, priority)

    def _start(self, task: Task, priority: int, answer: Started) -> None:
        self._victims.pop(task.group, None)
        self.now.waiting[task.cause] -= 1
        self.now.used_count += task.shape.leaf_count
        self.now.lent_count += task.shape.leaf_count * (priority == OPPORTUNISTIC_PRIORITY)
        ends_s = task.start(self.now.at_s, priority, answer.level)
        self.agenda.add(ends_s, Kind.END, self._number[task.group], task.run)

    def _make_leave(self, task: Task, answer: Leaving) -> None:
        """Have victims leave; the task, whose cells are reserved, asks again afterwards."""
        task.phase = Phase.RESERVING
        task.run += 1
        self._victims[task.group] = set(answer.victims)
        self.agenda.add(self.now.at_s + self._manner.grace_s, Kind.LEAVE, self._number[task.group], task.run)

    def _take_back(self, groups: Sequence[str]) -> None:
        """Have groups wait again that reserve cells no more."""
        for name in groups:
            task = self.tasks[self._number[name]]
            del self._victims[name]
            task.phase = Phase.WAITING
            self._wait(task, Cause.BEHIND)
            self.now.waiting[task.cause] -= 1
            self._enter(task)

    def _evict(self, task: Task) -> None:
        task.evict(self.now.at_s)
        self._leave(task)
        self._line_up(task)

    def _leave(self, task: Task) -> None:
        """Free a task's cells; a task that waited for the last of its victims starts at once."""
        self._account(task)
        self.now.used_count -= task.shape.leaf_count
        self.now.lent_count -= task.shape.leaf_count * (task.runs_as == OPPORTUNISTIC_PRIORITY)
        self._take_back(self.cluster.release(task))
        for name in [name for name, victims in self._victims.items() if task.group in victims]:
            victims = self._victims.get(name)
            if victims is None:
                continue  # another one has just taken its reserved cells, and it waits again
            victims.discard(task.group)
            if not victims:
                self._ask_again(self.tasks[self._number[name]])

    def _account(self, task: Task) -> None:
        """Count the leaf-seconds of a run that is over, as far as they lie before the last submission."""
        until_s, leaves = min(self.now.at_s, self.window_s), task.shape.leaf_count
        usage = self.usage.setdefault(task.vc, Usage())
        usage.used_s += max(0.0, until_s - task.started_s) * leaves
        if task.runs_as == OPPORTUNISTIC_PRIORITY:
            usage.lent_s += max(0.0, until_s - task.lent_from_s) * leaves

    def _ask_again(self, task: Task) -> None:
        """Start a task whose victims have all left."""
        answer: Answer = self.cluster.ask(task, task.priority)
        self._take_back(answer.cancelled)
        self._lend(answer.lent)
        if isinstance(answer, Started):
            self._start(task, task.priority, answer)
        elif isinstance(answer, Leaving):
            self._make_leave(task, answer)
        else:
            self._take_back([task.group])

    def _change(self, change: Change) -> None:
        self._change_count -= 1
        spec = change.configuration(self.cluster.spec)
        if spec is not None:
            displaced = self.cluster.reconfigure(spec)
            self._read_promises()
            self._lend(displaced.lent)
            self._take_back(displaced.unreserved)
            self._evict_all(displaced.evicted)
            self._line_up_anew()
            return
        nodes = [node for cell in change.cells for node in self.cluster.nodes_of(cell)]
        for node in nodes:
            self.cluster.set_health(node, change.act is Act.HEAL)
        if change.act is Act.FAIL:
            self._evict_all(self.cluster.groups_on(nodes))
        elif change.act is Act.DRAIN:
            for name in self.cluster.groups_on(nodes):
                task = self.tasks[self._number[name]]
                self.agenda.add(self.now.at_s + self._manner.grace_s, Kind.LEAVE, self._number[name], task.run)

    def _read_promises(self) -> None:
        promised = {vc: self.cluster.promised(vc) for vc in self.cluster.spec.virtual_clusters}
        self.promises.append(Promises(self.now.at_s, self.cluster.measure().leaf_count, promised))

    def _lend(self, groups: Sequence[str]) -> None:
        """Turn groups into opportunistic ones: they have lost the cells of their virtual cluster."""
        for name in groups:
            task = self.tasks[self._number[name]]
            if task.lend(self.now.at_s):
                self.now.lent_count += task.shape.leaf_count

    def _evict_all(self, groups: Sequence[str]) -> None:
        for name in groups:
            task = self.tasks[self._number[name]]
            if task.phase is Phase.RUNNING:
                self._evict(task)

    def _line_up_anew(self) -> None:
        """Try refused and waiting tasks under a new configuration."""
        for task in self.tasks:
            if task.phase is Phase.REFUSED:
                self.now.open_count += 1
                self._refused_count -= 1
                self._line_up(task)
            elif task.phase is Phase.WAITING:
                self.now.waiting[task.cause] -= 1
                self._line_up(task)


def _first_cause(task: Task, failed: Waits | None) -> Cause:
    """The reason why a task begins to wait; `failed` says why it cannot run in its virtual cluster at all."""
    if failed is not None:
        return Cause.REFUSED
    return Cause.NO_ROOM if task.is_opportunistic else Cause.BEHIND
