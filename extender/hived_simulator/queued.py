"""Jobs that wait in queues: `hived_extender.queues` decides whose turn it is, as in production.

After the events of each moment there is a turn. Tasks that it stops leave after the grace period, and keep their
places. Cells are held for tasks as the service holds them (`hived_extender.machine.holds`), of a core that runs whole
tasks. A trace has no declared limits: they are made from durations, as people ask for a round time that is long enough.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from hived.cells.state import State
from hived.life.groups import bind_info_of_slot, virtual_leaves
from hived.scenario import Asked
from hived.values.decisions import Bind, Wait
from hived.values.errors import UserError
from hived.values.events import GroupsUpgraded
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, PodRequest
from hived.virtual_time import Entry
from hived_extender.machine.claims import Afterwards, Claim, Stage, met
from hived_extender.queues.own_schedule import behind_node
from hived_extender.queues.policies import THROTTLE_S, QueueRules, Rules
from hived_extender.queues.policies import Policy as QueuePolicy
from hived_extender.queues.queues import Queues
from hived_extender.queues.room import Ask, Pending, Victims
from hived_extender.queues.table import WHOLE
from hived_extender.queues.units import Order, Start, Stop, Unit, Upgrade
from hived_simulator.changes import Act, Change
from hived_simulator.clusters import Started
from hived_simulator.hived_cluster import HivedCluster, Holding
from hived_simulator.loop import Kind, Loop, Manner
from hived_simulator.results import Usage
from hived_simulator.tasks import NEVER, Cause, Phase, Task, pod_of, pod_spec

ALONE = "alone"
"""`queue:alone`: no job borrows."""

NAMES = {"-".join(("queue", each.lower())) if each is not QueuePolicy.HIVED else "queue": each for each in QueuePolicy}

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
LIMITS_S = (
    *(minutes * _MINUTE_S for minutes in (5, 15, 30)),
    *(hours * _HOUR_S for hours in (1, 2, 4, 8, 12)),
    *(days * _DAY_S for days in (1, 2, 3, 5, 7)),
)
"""Times that people ask for; beyond them, whole weeks."""


class Queueing(msgspec.Struct, frozen=True):
    """The rules of the queues of a policy, and what they know of jobs.

    Attributes
    ----------
    policy : as in the key `queue` of a virtual cluster
    borrows : may jobs borrow idle cells before their turn
    limit_factor : a job's declared limit as a multiple of its duration, before it is rounded up; 0: no limits
    unlimited_share : the share of jobs that declare none, drawn by `seed`
    """

    policy: QueuePolicy = QueuePolicy.HIVED
    borrows: bool = True
    limit_factor: float = 2.0
    unlimited_share: float = 0.0
    seed: int = 0

    def limit_s(self, task: Task) -> float | None:
        """The limit that a task declares, None if it has none. All tasks of a job declare alike."""
        if not self.limit_factor:
            return None
        if (
            self.unlimited_share
            and random.Random(f"limits/{self.seed}/{task.place[0]}").random() < self.unlimited_share
        ):
            return None
        return rounded_up(task.duration_s * self.limit_factor)


def rounded_up(least_s: float) -> float:
    """The shortest time that people ask for and that is at least this long, in seconds."""
    found = next((limit_s for limit_s in LIMITS_S if limit_s >= least_s), None)
    return LIMITS_S[-1] * -(-least_s // LIMITS_S[-1]) if found is None else found


def is_queue(text: str) -> bool:
    """True if this names a policy with queues, or is meant to."""
    return text.partition(":")[0] in NAMES


def queueing_named(text: str) -> tuple[str, QueuePolicy, bool]:
    """The name without what follows a colon, the policy, and whether jobs borrow. UserError for other words there."""
    name, has_words, words = text.partition(":")
    if has_words and words != ALONE:
        raise UserError(f"--against {text!r}: expected {name} or {name}:{ALONE}")
    return name, NAMES[name], not has_words


REFUSED = "others have to leave first"
CLAIMED = "its cells are for jobs that come first"


@dataclass(frozen=True, slots=True)
class _Present:
    """See `claims.Present`."""

    state: State
    now_s: float | None
    version: int = 0


class QueuedCluster(HivedCluster):
    """Holds cells for units, and names borrowers that have to leave; `started` has the tasks held in this turn."""

    def __init__(self, spec: ClusterSpec) -> None:
        """Cost O(cells)."""
        super().__init__(spec)
        self.started: dict[str, Started] = {}
        self._tasks: dict[str, Task] = {}

    def tell_unit(self, key: str, task: Task) -> None:
        """A task has a unit of this key."""
        self._tasks[key] = task

    def hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        """Cost: a search; with claims, four searches more for each."""
        asked, task = self._asked(ask), self._tasks[ask.unit.key]
        try:
            found = self.scenario.ask(asked)
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
        """True if the claims still get their cells if this request gets some now."""
        present = _Present(self.state, self.scenario.now_s)
        return met(present, claims, asked) == met(present, claims)

    def upgrade(self, ask: Ask) -> tuple[int, ...] | None:
        """Cost O(leaves x height)."""
        task = self._tasks[ask.unit.key]
        held, priority = self._holdings[task.group], task.priority
        pods = tuple(replace(pod, spec=replace(pod.spec, priority=priority)) for pod in held.pods)
        try:
            self.scenario.tell([GroupsUpgraded(pods, np.array(ask.own, np.int32))])
        except UserError:
            return None
        group = self.state.groups[pods[0].spec.group.name]
        infos = tuple(bind_info_of_slot(self.state, group, slot) for slot in range(len(pods)))
        self._holdings[task.group] = Holding(task, pods, infos)
        self._usage.remove(task.group)
        self._usage.add(task.group, task.vc, priority, task.shape.leaf_count)
        return virtual_leaves(self.state, group.name)

    def victims(self, ask: Ask, candidates: Sequence[str], pending: Pending) -> Victims | None:
        """Every group has a unit. Cost: a copy of the state, and O(victims) searches."""
        present = _Present(self.state, self.scenario.now_s)
        afterwards = Afterwards(Stage(), present, self._claims(pending), self._pods_of(pending.leaving))
        asked, keys = self._asked(ask), [key for key in candidates if self._pods_of([key])]
        found = afterwards.least_leaving(asked, {key: self._pods_of([key]) for key in keys})
        return None if found is None else Victims(tuple(found))

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


class QueuedLoop(Loop):
    """A loop with a turn of the queues at each moment. `changes` are of health alone.

    late_s : by how much tasks first started later than their own schedule had started them, by group; only those that
        it had
    borrowed_s, given_back_s : leaf-seconds of runs on borrowed cells, and of those that ended as they were taken back
    """

    cluster: QueuedCluster

    def __init__(
        self, cluster: QueuedCluster, tasks: Sequence[Task], changes: Sequence[Change], queueing: Queueing,
        grace_s: float, every_s: float,
    ) -> None:  # fmt: skip
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
            nodes, state = self.cluster.nodes_of(cell), self.cluster.state
            behind = {node: behind_node(state, state.topology.node_index[node]) for node in nodes}
            self._queues.health(dict.fromkeys(nodes, change.act is Act.HEAL), behind)
        super()._change(change)

    def _try_waiting(self) -> None:
        """Take a turn: all tasks that can start."""
        orders = self._queues.turn(self.now.at_s, self.cluster)
        for order in orders:
            self._carry_out(order)
        self._wake(has_moved=bool(orders))

    def _carry_out(self, order: Order) -> None:
        if isinstance(order, Start):
            task = self._tasks_of[order.key]
            priority = OPPORTUNISTIC_PRIORITY if order.is_borrowed else task.priority
            entitled_s = self._queues.entitled_since(order.key)
            if entitled_s is not None and task.first_s == NEVER:
                self.late_s[task.group] = self.now.at_s - entitled_s
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
        if self._queueing.policy.row.blocks and self._queueing.borrows and has_moved:
            times.append(self.now.at_s + THROTTLE_S)
        wake_s = min(times, default=-1.0)
        if wake_s > self.now.at_s and wake_s != self._wake_s:
            self.agenda.add(wake_s, Kind.TURN, 0)
            self._wake_s = wake_s


def _key(task: Task) -> str:
    """The key of a task's unit; keys of one moment are in the order of places."""
    job, part = task.place
    return f"{job:09}-{part:06}"
