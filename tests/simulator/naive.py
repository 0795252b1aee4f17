"""The event loop without heaps, lanes and counters: every list is searched from its beginning, every time.

Tasks, clusters and the order of things are those of the real loop; who is due, who waits and whose victims have left
is found anew at each moment.
"""

from collections.abc import Sequence

from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived_simulator.changes import Act, Change
from hived_simulator.clusters import Leaving, SimulatedCluster, Started
from hived_simulator.loop import Manner
from hived_simulator.tasks import Cause, Phase, Task


class NaiveLoop:
    """See the module."""

    def __init__(
        self, cluster: SimulatedCluster, tasks: Sequence[Task], changes: Sequence[Change], manner: Manner
    ) -> None:
        self.cluster, self.tasks, self.changes, self.manner = cluster, list(tasks), list(changes), manner
        self.now_s = 0.0
        self.ends: dict[str, float] = {}
        self.leaves: list[tuple[float, str]] = []  # victims that leave because of a drain, or a preemptor's grace
        self.victims: dict[str, set[str]] = {}
        self.impossible: set[str] = set()
        self.refused: set[object] = set()
        self.coming = {task.group for task in tasks}

    def find(self, group: str) -> Task:
        """The task of a group."""
        return next(task for task in self.tasks if task.group == group)

    def run(self) -> list[Task]:
        """Until every task is done or refused, or nothing can happen any more."""
        while any(task.phase is not Phase.ENDED for task in self.tasks):
            moments = [*self.ends.values(), *(at_s for at_s, _ in self.leaves), *(c.at_s for c in self.changes)]
            moments += [task.submitted_s for task in self.tasks if task.group in self.coming]
            moments += [task.borrows_from_s for task in self.tasks if self.rests(task)]
            is_open = any(task.phase not in (Phase.ENDED, Phase.REFUSED) for task in self.tasks)
            if not moments or not (is_open or self.changes):
                break
            self.now_s = min(moments)
            self.cluster.tell_time(self.now_s)
            self.happen()
            self.attempt()
        return self.tasks

    def rests(self, task: Task) -> bool:
        """Was it evicted from idle cells of others a while ago?"""
        return task.phase is Phase.WAITING and self.manner.lends_over_quota and task.borrows_from_s > self.now_s

    def happen(self) -> None:
        """Everything that is due now and was planned before now."""
        due = list(self.leaves)
        for task in self.tasks:
            if self.ends.get(task.group) == self.now_s:
                del self.ends[task.group]
                task.end(self.now_s)
                self.free(task)
        for entry in sorted(due, key=lambda each: self.tasks.index(self.find(each[1]))):
            if entry[0] == self.now_s and entry in self.leaves:
                self.leaves.remove(entry)
                self.leave(self.find(entry[1]))
        for change in [change for change in self.changes if change.at_s == self.now_s]:
            self.changes.remove(change)
            self.change(change)
        for task in self.tasks:
            if task.group in self.coming and task.submitted_s == self.now_s:
                self.coming.remove(task.group)
                self.line_up(task)

    def line_up(self, task: Task) -> None:
        """A task is there; one that cannot run in its virtual cluster may still be lent cells."""
        task.phase = Phase.WAITING
        self.impossible.discard(task.group)
        if self.cluster.can_ever_run(task) is not None:
            self.impossible.add(task.group)
            if task.is_opportunistic or not self.manner.lends_over_quota:
                task.phase = Phase.REFUSED

    def leave(self, task: Task) -> None:
        """A grace is over: that of a task's victims, or its own."""
        if task.phase is Phase.RESERVING:
            for name in sorted(self.victims[task.group]):
                self.evict(self.find(name))
        elif task.phase is Phase.RUNNING:
            self.evict(task)

    def evict(self, task: Task) -> None:
        """A running task waits again."""
        if task.phase is Phase.RUNNING:
            del self.ends[task.group]
            self.leaves = [entry for entry in self.leaves if entry[1] != task.group]
            task.evict(self.now_s)
            self.free(task)
            self.line_up(task)

    def free(self, task: Task) -> None:
        """A task's cells come free; those who waited for them ask again."""
        self.refused.clear()
        self.take_back(self.cluster.release(task))
        for name, victims in list(self.victims.items()):
            if task.group in victims and name in self.victims:
                victims.remove(task.group)
                if not victims:
                    self.ask(self.find(name), self.find(name).priority, is_again=True)

    def take_back(self, groups: Sequence[str]) -> None:
        """These reserve nothing any more."""
        for name in groups:
            self.refused.clear()
            del self.victims[name]
            self.leaves = [entry for entry in self.leaves if entry[1] != name]
            self.find(name).phase = Phase.WAITING

    def ask(self, task: Task, priority: int, is_again: bool = False) -> bool:
        """Returns whether the task waits no more."""
        if not is_again and self.cluster.lacks_room(task, priority) is not None:
            return False
        answer = self.cluster.ask(task, priority)
        self.take_back(answer.cancelled)
        if isinstance(answer, Started):
            self.victims.pop(task.group, None)
            self.leaves = [entry for entry in self.leaves if entry[1] != task.group]
            self.ends[task.group] = task.start(self.now_s, priority, answer.level)
            return True
        if isinstance(answer, Leaving):
            task.phase = Phase.RESERVING
            self.victims[task.group] = set(answer.victims)
            self.leaves = [entry for entry in self.leaves if entry[1] != task.group]
            self.leaves.append((self.now_s + self.manner.grace_s, task.group))
            return True
        if is_again:
            self.take_back([task.group])
        elif answer.cause is Cause.REFUSED:
            task.phase = Phase.REFUSED
        return False

    def change(self, change: Change) -> None:
        """The cluster changes."""
        self.refused.clear()
        spec = change.configuration(self.cluster.spec)
        if spec is not None:
            displaced = self.cluster.reconfigure(spec)
            self.take_back(displaced.unreserved)
            for name in displaced.evicted:
                self.evict(self.find(name))
            for task in self.tasks:
                if task.phase in (Phase.REFUSED, Phase.WAITING):
                    self.line_up(task)
            return
        nodes = [node for cell in change.cells for node in self.cluster.nodes_of(cell)]
        for node in nodes:
            self.cluster.set_health(node, change.act is Act.HEAL)
        for name in self.cluster.groups_on(nodes):
            if change.act is Act.FAIL:
                self.evict(self.find(name))
            elif change.act is Act.DRAIN:
                self.leaves.append((self.now_s + self.manner.grace_s, name))

    def attempt(self) -> None:
        """Try everybody who waits, in order, from the beginning after each start, until nobody can start."""
        while self.attempt_one(is_lending=False) or self.attempt_one(is_lending=True):
            pass

    def attempt_one(self, is_lending: bool) -> bool:
        """Try the first who may be tried and was not refused since somebody left; False if there is none."""
        blocked: set[str] = set()
        waiting = [task for task in self.tasks if task.phase is Phase.WAITING]
        for task in sorted(waiting, key=lambda each: each.rank):
            priority = OPPORTUNISTIC_PRIORITY if is_lending else task.priority
            if is_lending:
                if not task.is_opportunistic and (not self.manner.lends_over_quota or self.rests(task)):
                    continue
                key: object = ("lent", self.cluster.pool(task.vc), task.shape)
            else:
                if task.is_opportunistic or task.group in self.impossible or task.vc in blocked:
                    continue
                key = (task.vc, task.priority, task.shape)
            if key not in self.refused:
                if not self.ask(task, priority) and task.phase is Phase.WAITING:
                    self.refused.add(key)
                return True
            if not is_lending and not self.manner.has_backfill:
                blocked.add(task.vc)
        return False
