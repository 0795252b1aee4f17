"""A cluster under hived: a scenario of the core, which decides as in production."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hived.cells.state import GroupState, State
from hived.cells.topology import NO_CELL
from hived.life.groups import without_place
from hived.scenario import Asked, Scenario
from hived.scheduler import Fact, new_state
from hived.values.decisions import Applied, Bind, Decision, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import (
    LeavesLost,
    NodeHealthChanged,
    Phase,
    PodAllocated,
    PodDeleted,
    PodProgressed,
)
from hived.values.specs import NO_TIMES, OPPORTUNISTIC_PRIORITY, BindInfo, ClusterSpec, PodRequest, Rules, WorkTimes
from hived.virtual_time import Occupancy
from hived_extender.machine.core import Placed, StateInputs, reservations
from hived_extender.reconfiguration.successor import Successor
from hived_simulator.clusters import Answer, Displaced, Leaving, Room, SimulatedCluster, Started, Waits
from hived_simulator.hardware import (
    bad_leaves,
    bad_leaves_of,
    best_level,
    common_level,
    configured_leaves,
    idle_leaves,
    level_name,
    nodes_below,
    whole_cells,
)
from hived_simulator.tasks import Cause, Shape, Task, pod_of, pod_spec


@dataclass(frozen=True, slots=True)
class Owned:
    """The part of a cluster's hardware that is there: nodes, and of some of them the devices that are not.

    `lacking` has device indices by node and leaf cell type, `leaf_count` is that of all the rest.
    """

    nodes: frozenset[str]
    lacking: Mapping[tuple[str, str], tuple[int, ...]]
    leaf_count: int


def is_there(node: str, owned: Owned | None) -> bool:
    """True if this node is there; all are, without `owned`."""
    return owned is None or node in owned.nodes


def with_hardware(spec: ClusterSpec, owned: Owned | None) -> Scenario:
    """An idle cluster with all hardware that is there."""
    scenario = Scenario(new_state(spec))
    nodes = scenario.state.topology.node_names
    scenario.tell(NodeHealthChanged(node, True) for node in nodes if is_there(node, owned))
    tell_lacking(scenario, owned)
    return scenario


def tell_lacking(scenario: Scenario, owned: Owned | None) -> None:
    """Tell of the devices that are not there, on nodes that are."""
    lacking = {} if owned is None else owned.lacking
    scenario.tell(LeavesLost(*place, len(devices), devices) for place, devices in lacking.items())


class Saves:
    """The times of tasks that run. A task saves its work each `checkpoint_s` seconds after its start; seconds are those
    of the trace.
    """

    def __init__(self) -> None:
        self._started: dict[str, tuple[float, float]] = {}  # by group: start, and time between saves
        self._saved: dict[str, float] = {}
        self._due: list[tuple[float, str, float]] = []  # moment, group, start of its run

    def started(self, task: Task, now_s: float) -> WorkTimes:
        """A task runs from now on. Cost O(log tasks)."""
        self._started[task.group] = now_s, task.checkpoint_s
        if task.checkpoint_s > 0:
            heapq.heappush(self._due, (now_s + task.checkpoint_s, task.group, now_s))
        return self.times(task.group)

    def ended(self, group: str) -> None:
        """A task runs no more."""
        self._started.pop(group, None)
        self._saved.pop(group, None)

    def times(self, group: str) -> WorkTimes:
        """The times of a task as they were told last; none of a task that does not run."""
        if group not in self._started:
            return NO_TIMES
        return WorkTimes(self._started[group][0], self._saved.get(group))

    def due(self, now_s: float) -> Iterator[str]:
        """The groups that have saved their work since they were asked for last. Cost O(log tasks) for each."""
        while self._due and self._due[0][0] <= now_s:
            _, group, started_s = heapq.heappop(self._due)
            start_s, every_s = self._started.get(group, (-1.0, 0.0))
            if start_s != started_s:
                continue  # that run is over
            count = max(1.0, (now_s - started_s) // every_s)
            if started_s + (count + 1) * every_s <= now_s:  # a difference of moments can be rounded down
                count += 1
            self._saved[group] = started_s + count * every_s
            heapq.heappush(self._due, (started_s + (count + 1) * every_s, group, started_s))
            yield group


class Holding(NamedTuple):
    """The pods of a task that has or reserves cells, and their places: () while it only reserves."""

    task: Task
    pods: tuple[PodRequest, ...]
    infos: tuple[BindInfo, ...] = ()


def has_place(state: State, group: str) -> bool:
    """True if a group has cells of its virtual cluster, and not only hardware."""
    found = state.groups.get(group)
    return found is not None and found.virtual is not None


def placed_pods(holdings: Mapping[str, Holding], state: State, saves: Saves) -> dict[str, Placed]:
    """Every pod that holds cells by its uid, with what its annotations say. Cost O(pods)."""
    placed = {}
    for group, holding in holdings.items():
        if not holding.infos:
            continue
        members = holding.infos[0].members
        if not has_place(state, group):
            members = without_place(members)
        for pod, info in zip(holding.pods, holding.infos, strict=True):
            told = BindInfo(info.node, info.leaf_cell_indices, info.cell_chain, members)
            placed[pod.uid] = Placed(pod, told, saves.times(group))
    return placed


class HivedCluster(SimulatedCluster):
    """The core on all nodes of a configuration, healthy at first; `owned` limits them.

    `is_lazy`: guaranteed tasks that others of their virtual cluster preempt go on as opportunistic ones.
    """

    def __init__(self, spec: ClusterSpec, is_lazy: bool = False, owned: Owned | None = None) -> None:
        """Cost O(cells)."""
        self.scenario = with_hardware(spec, owned)
        self._is_lazy = is_lazy
        self._owned = owned
        self._bad_nodes: set[str] = set()
        self._holdings: dict[str, Holding] = {}
        self._usage = Occupancy()
        self._lent: list[str] = []  # groups that go on as opportunistic ones since `_take_lent`
        self._room = 0
        self._used_count = 0
        self._empty: Scenario | None = None
        self._refusals: dict[tuple[str, int, Shape], Waits | None] = {}
        self._now_s = 0.0
        self._set_clock()
        self._saves = Saves()
        self._best: dict[Shape, int] = {}
        self._promised = self.state.topology.promised_leaves()
        self._leaf_count = len(self.state.arrays.node_leaf)

    @property
    def state(self) -> State:
        """The core's state."""
        return self.scenario.state

    @property
    def spec(self) -> ClusterSpec:
        return self.state.spec

    def room(self, vc: str) -> int:
        return self._room

    def pool(self, vc: str) -> str:
        """Idle cells are for all."""
        return ""

    def promised(self, vc: str) -> int:
        return self._promised.get(vc, 0)

    def can_ever_run(self, task: Task) -> Waits | None:
        """Cost: a search for each kind of task; one more state the first time."""
        key = (task.vc, task.priority, task.shape)
        if key not in self._refusals:
            self._refusals[key] = self._refusal(task)
        return self._refusals[key]

    def _refusal(self, task: Task) -> Waits | None:
        """The answer of a state on which no task runs, which stays so."""
        if self._empty is None:
            self._empty = with_hardware(self.spec, self._owned)
        pod = pod_of(task, pod_spec(task, task.priority, is_lazy=False), 0)
        try:
            decision = self._empty.ask(Asked(pod))
        except UserError as error:
            return Waits(Cause.REFUSED, str(error))
        return Waits(Cause.REFUSED, decision.reason) if isinstance(decision, Wait) else None

    def lacks_room(self, task: Task, priority: int) -> Cause | None:
        """A quick count: leaf cells without a user of at least this priority are fewer than it asks for."""
        wanted = task.shape.leaf_count
        if priority == OPPORTUNISTIC_PRIORITY:
            return Cause.NO_ROOM if self._used_count + wanted > self._leaf_count else None
        return Cause.FULL if self._usage.count_used(task.vc, priority) + wanted > self.promised(task.vc) else None

    def tell_time(self, now_s: float) -> None:
        """Better rules choose victims by lost work, so the core hears of work that was saved since."""
        self._now_s = now_s
        self._set_clock()
        if self.scenario.now_s is not None:
            for group in self._saves.due(now_s):
                times = self._saves.times(group)
                self.scenario.tell(PodProgressed(pod, times) for pod in self._holdings[group].pods)

    def _set_clock(self) -> None:
        """Only better rules know the time."""
        self.scenario.now_s = self._now_s if self.state.spec.rules is Rules.BETTER else None

    def ask(self, task: Task, priority: int) -> Answer:
        pod = pod_of(task, pod_spec(task, priority, self._is_lazy), 0)
        phase = Phase.PREEMPTING if task.group in self._holdings else Phase.FILTERING
        try:
            decision = self._decide(task, pod, phase)
        except UserError as error:
            self._forget(task.group)
            return Waits(Cause.REFUSED, str(error))
        cancelled = tuple(name for name in decision.cancelled if name != task.group)
        if cancelled:
            self._room += 1
            for name in cancelled:
                self._forget(name)
        if isinstance(decision, Bind):
            return self._start(task, priority, decision, cancelled)
        if isinstance(decision, Preempt):
            self._holdings[task.group] = Holding(task, (pod,))
            victims = {uid.rpartition("/")[0]: None for uid in decision.victims}
            self._usage.add(task.group, task.vc, priority, task.shape.leaf_count, victims)
            return Leaving(tuple(victims), cancelled, self._take_lent())
        assert isinstance(decision, Wait)
        self._forget(task.group)
        return Waits(self._cause(task, priority), decision.reason, cancelled)

    def _start(
        self, task: Task, priority: int, decision: Bind, cancelled: tuple[str, ...], asked: PodRequest | None = None
    ) -> Started:
        """Carry out a decision. With `asked`, the pod that it answers, the task gets just the cells decided for it."""
        pods, infos = _placed(task, priority, self._is_lazy, decision)
        more: list[str] = []
        if asked is not None:
            pods[0], infos[0] = asked, decision.bind_info
        times = None if self.scenario.now_s is None else self._saves.started(task, self._now_s)
        for slot, (pod, info) in enumerate(zip(pods, infos, strict=True)):
            more += self._apply(PodAllocated(pod, info, () if slot else decision.lazily_preempted, times)).cancelled
        for name in more:
            self._forget(name)
        self._room += bool(more)
        self._holdings[task.group] = Holding(task, tuple(pods), tuple(infos))
        self._usage.add(task.group, task.vc, priority, task.shape.leaf_count)
        self._used_count += task.shape.leaf_count
        level = common_level(self.state.topology, self.state.groups[task.group].physical)
        return Started(level, (*cancelled, *more), self._take_lent())

    def _cause(self, task: Task, priority: int) -> Cause:
        lacking = self.lacks_room(task, priority)
        if lacking is not None or priority == OPPORTUNISTIC_PRIORITY:
            return lacking or Cause.NO_ROOM
        bad = bad_leaves_of(self.state, task.vc)
        used = self._usage.count_used(task.vc, priority)
        return Cause.BAD if used + task.shape.leaf_count + bad > self.promised(task.vc) else Cause.FRAGMENTED

    def release(self, task: Task) -> tuple[str, ...]:
        holding = self._holdings[task.group]
        cancelled: list[str] = []
        if holding.infos:
            self._used_count -= configured_leaves(self.state, task.group)
        for pod in holding.pods:
            cancelled += self._apply(PodDeleted(pod)).cancelled
        self._forget(task.group)
        self._room += 1
        return tuple(name for name in cancelled if name != task.group)

    def set_health(self, node: str, is_healthy: bool) -> None:
        (self._bad_nodes.discard if is_healthy else self._bad_nodes.add)(node)
        if is_there(node, self._owned):
            self._apply(NodeHealthChanged(node, is_healthy))
            self._room += 1

    def groups_on(self, nodes: Sequence[str]) -> list[str]:
        wanted = {self.state.topology.node_index[node] for node in nodes if node in self.state.topology.node_index}
        return [
            name
            for name, group in self.state.groups.items()
            if group.state is not GroupState.PREEMPTING
            and wanted.intersection(self.state.arrays.node[group.physical[group.physical != NO_CELL]].tolist())
        ]

    def nodes_of(self, cell: str) -> list[str]:
        return nodes_below(self.state.topology, cell)

    def reconfigure(self, spec: ClusterSpec, owned: Owned | None = None) -> Displaced:
        """The new state is told what a restart is told: health, pods with places, reservations."""
        successor = Successor(spec)
        self._owned = owned
        nodes = successor.core.state.topology.node_index.keys() - self._bad_nodes
        healthy = frozenset(node for node in nodes if is_there(node, self._owned))
        successor.catch_up(
            StateInputs(healthy, placed_pods(self._holdings, self.state, self._saves), reservations(self.state))
        )
        self._take_over(successor.core.state)
        evicted = {uid.rpartition("/")[0]: None for uid in sorted(successor.unaccounted)}
        if owned is not None:
            gone = [node for node in self.state.topology.node_names if node not in owned.nodes]
            evicted |= dict.fromkeys(self.groups_on(gone))
            lacking = (name for name, group in self.state.groups.items() if (group.physical == NO_CELL).any())
            evicted |= dict.fromkeys(lacking)
        for name in successor.lost:
            self._forget(name)
        return Displaced(tuple(evicted), tuple(sorted(successor.lost)), self._take_lent())

    def _take_over(self, state: State) -> None:
        self.scenario.state = state
        self._set_clock()
        tell_lacking(self.scenario, self._owned)
        self._promised = state.topology.promised_leaves()
        self._leaf_count = len(state.arrays.node_leaf)
        self._used_count = sum(
            configured_leaves(self.state, name) for name, held in self._holdings.items() if held.infos
        )
        self._empty = None
        self._refusals.clear()
        self._best.clear()
        self._room += 1
        self._lend(self._without_place())

    def _without_place(self) -> list[str]:
        return [name for name in self._holdings if not has_place(self.state, name)]

    def dissolve(self) -> Displaced:
        """The virtual cluster is gone: all that run have to leave, and nothing is promised."""
        self._promised = {}
        running = [name for name, held in self._holdings.items() if held.infos]
        reserving = [name for name, held in self._holdings.items() if not held.infos]
        for name in reserving:
            self._forget(name)
        return Displaced(tuple(running), tuple(reserving))

    def measure(self) -> Room:
        absent = 0 if self._owned is None else self._leaf_count - self._owned.leaf_count
        is_idle = idle_leaves(self.state)
        whole = whole_cells(self.state.topology, is_idle)
        return Room(self._leaf_count - absent, bad_leaves(self.state) - absent, int(is_idle.sum()), whole)

    def best_level(self, task: Task) -> int:
        shape = task.shape
        if shape not in self._best:
            self._best[shape] = best_level(self.state.topology, shape.pods, shape.leaf_type)
        return self._best[shape]

    def level_name(self, level: int) -> str:
        return level_name(self.state.topology, level)

    def _decide(self, task: Task, pod: PodRequest, phase: Phase) -> Decision:
        """Decide where a task can run, by its first pod; if others have to leave, its cells are reserved."""
        decision = self.scenario.ask(Asked(pod), phase)
        if isinstance(decision, Preempt) and phase is Phase.FILTERING:
            decision = self.scenario.ask(Asked(pod), Phase.PREEMPTING)
        if isinstance(decision, Preempt):
            self._lend(decision.lazily_preempted)
        return decision

    def _apply(self, fact: PodAllocated | Fact) -> Applied:
        applied = self.scenario.apply(fact)
        self._lend(applied.lazily_preempted)
        return applied

    def _lend(self, groups: Iterable[str]) -> None:
        self._lent += [group for group in groups if self._usage.remove(group)]

    def _take_lent(self) -> tuple[str, ...]:
        lent, self._lent = tuple(self._lent), []
        return lent

    def _forget(self, group: str) -> None:
        self._holdings.pop(group, None)
        self._saves.ended(group)
        self._usage.remove(group)


def _placed(task: Task, priority: int, is_lazy: bool, decision: Bind) -> tuple[list[PodRequest], list[BindInfo]]:
    pods: list[PodRequest] = []
    infos: list[BindInfo] = []
    chain, members = decision.bind_info.cell_chain, decision.bind_info.members
    for (_, leaves), member in zip(task.shape.pods, members, strict=True):
        spec = pod_spec(task, priority, is_lazy, leaves)
        for place in member:
            pods.append(pod_of(task, spec, len(pods)))
            infos.append(BindInfo(place.node, place.leaf_cell_indices, chain, members))
    return pods, infos
