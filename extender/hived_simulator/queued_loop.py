"""The event loop of jobs that wait in queues: `hived_extender.queues` decides whose turn it is, as in production.

After the events of each moment there is a turn. Tasks that it stops leave after the grace period, and keep their
places.
"""

from collections.abc import Sequence

from hived.specs import OPPORTUNISTIC_PRIORITY
from hived_extender.queues.policies import THROTTLE_S, QueueRules, Rules
from hived_extender.queues.policies import Policy as QueuePolicy
from hived_extender.queues.queues import Queues
from hived_extender.queues.table import WHOLE
from hived_extender.queues.units import Order, Start, Stop, Unit, Upgrade
from hived_simulator.agenda import Entry, Kind
from hived_simulator.changes import Act, Change
from hived_simulator.loop import Loop, Manner
from hived_simulator.queued_cluster import QueuedCluster
from hived_simulator.queueing import Queueing
from hived_simulator.requests import pod_spec
from hived_simulator.summaries import Usage
from hived_simulator.tasks import NEVER, Cause, Phase, Task


class QueuedLoop(Loop):
    """See the module. `changes` are of health alone.

    late_s : by how much tasks first started later than their own schedule had started them, by group; only those that
        it had
    borrowed_s, given_back_s : leaf-seconds of runs on borrowed cells, and of those that ended as they were taken back
    """

    cluster: QueuedCluster

    def __init__(
        self, cluster: QueuedCluster, tasks: Sequence[Task], changes: Sequence[Change], queueing: Queueing,
        grace_s: float, every_s: float,
    ) -> None:  # fmt: skip
        """See `Loop`."""
        super().__init__(cluster, tasks, changes, Manner(grace_s, lends_over_quota=queueing.borrows), every_s)
        self.late_s: dict[str, float] = {}
        self.borrowed_s = self.given_back_s = 0.0
        self._queueing = queueing
        self._queues = Queues(cluster.spec, pace=WHOLE)
        self._queues.told_rules(Rules(default=QueueRules(policy=queueing.policy, borrows=queueing.borrows)))
        self._keys = {task.group: _key(task) for task in tasks}
        self._tasks_of = {_key(task): task for task in tasks}
        self._in_queue: set[str] = set()  # keys; looked up only
        self._wake_s = -1.0

    def _take(self, entry: Entry) -> None:
        if entry.kind is not Kind.TURN:
            super()._take(entry)

    def _enter(self, task: Task, *, is_guaranteed: bool = True) -> None:
        """A task waits in its queue. One that was evicted is there already, at its old place."""
        key = self._keys[task.group]
        self.now.waiting[task.cause] += 1
        if key in self._in_queue:
            return
        self._in_queue.add(key)
        self.cluster.tell_unit(key, task)
        spec = pod_spec(task, task.priority, is_lazy=False)
        self._queues.arrived(Unit(key, task.vc, spec, task.submitted_s, limit_s=self._queueing.limit_s(task)))

    def _leave(self, task: Task) -> None:
        key = self._keys[task.group]
        if task.runs_as == OPPORTUNISTIC_PRIORITY:
            ran_s = (self.now.at_s - task.lent_from_s) * task.shape.leaf_count
            self.borrowed_s += ran_s
            self.given_back_s += ran_s * (task.phase is not Phase.ENDED)
        super()._leave(task)
        if task.phase is Phase.ENDED:
            self._queues.ended(key, self.now.at_s)
        else:
            self._queues.evicted(key, self.now.at_s)

    def _change(self, change: Change) -> None:
        for cell in change.cells:
            for node in self.cluster.nodes_of(cell):
                self._queues.health(node, change.act is Act.HEAL)
        super()._change(change)

    def _try_waiting(self) -> None:
        """One turn; nobody is left after it who could start."""
        orders = self._queues.turn(self.now.at_s, self.cluster)
        for order in orders:
            self._carry_out(order)
        self._wake(has_moved=bool(orders))

    def _carry_out(self, order: Order) -> None:
        if isinstance(order, Start):
            task = self._tasks_of[order.key]
            priority = OPPORTUNISTIC_PRIORITY if order.is_borrowed else task.priority
            due_s = self._queues.due(order.key)
            if due_s is not None and task.first_s == NEVER:
                self.late_s[task.group] = self.now.at_s - due_s
            self._start(task, priority, self.cluster.started.pop(order.key))
        elif isinstance(order, Upgrade):
            self._upgrade(self._tasks_of[order.key])
        elif isinstance(order, Stop):
            victim, winner = self._tasks_of[order.key], self._tasks_of[order.winner]
            number = self._number[victim.group]
            self.agenda.add(self.now.at_s + self._manner.grace_s, Kind.LEAVE, number, victim.run)
            if winner.phase is Phase.WAITING:
                self._wait(winner, Cause.VICTIMS)

    def _upgrade(self, task: Task) -> None:
        """The cells of a task are its own from now on."""
        leaves, until_s = task.shape.leaf_count, min(self.now.at_s, self.window_s)
        self.usage.setdefault(task.vc, Usage()).lent_s += max(0.0, until_s - task.lent_from_s) * leaves
        self.borrowed_s += task.own(self.now.at_s) * leaves
        self.now.lent_count -= leaves

    def _wake(self, *, has_moved: bool) -> None:
        """Have another turn when a task ends in its own schedule, or a blocked queue may try again."""
        times = [] if (end_s := self._queues.next_own_end_s()) is None else [end_s]
        if self._queueing.policy is QueuePolicy.BLOCK and self._queueing.borrows and has_moved:
            times.append(self.now.at_s + THROTTLE_S)
        wake_s = min(times, default=-1.0)
        if wake_s > self.now.at_s and wake_s != self._wake_s:
            self.agenda.add(wake_s, Kind.TURN, 0)
            self._wake_s = wake_s


def _key(task: Task) -> str:
    """The key of a task's unit; keys of one moment are in the order of places."""
    job, part = task.place
    return f"{job:09}-{part:06}"
