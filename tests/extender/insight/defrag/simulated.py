"""Plans carried out in the simulator's loop: groups are evicted, come back as jobs, and the job that waits starts.

Cells are held as a service does: by a stand-in in the core, from before the group leaves until it comes back.
"""

from random import Random

from hived.life.groups import bind_info_for
from hived.scenario import Asked
from hived.values.decisions import Bind
from hived.values.events import PodAllocated, PodDeleted
from hived.values.specs import BindInfo, ClusterSpec, PodRequest
from hived_extender.api.defrag import DefragPlan, Inputs, Move
from hived_extender.insight.defrag.collecting import Facts, inputs_of
from hived_extender.insight.defrag.execution import placement_of
from hived_extender.insight.defrag.planner import PLAN, job_shapes, plan
from hived_extender.insight.defrag.planner import Task as Question
from hived_extender.machine.core import StateInputs, reservations
from hived_extender.machine.offers import Asking
from hived_extender.reconfiguration.judging import Waiting
from hived_simulator.changes import Change
from hived_simulator.clusters import Answer
from hived_simulator.hived_cluster import HivedCluster, placed_pods
from hived_simulator.loop import Loop, Manner
from hived_simulator.tasks import Cause, Phase, Task, pod_of, pod_spec

SPACING_S = 60.0
"""Between two plans."""


class MovingCluster(HivedCluster):
    """The core, with cells that are held for groups on the move."""

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(spec)
        self._held: dict[str, tuple[BindInfo, list[PodRequest]]] = {}

    def inputs(self, waiting: Task, movable: Random) -> Inputs:
        """The inputs of a plan for a task that waits. Three of four groups may be moved."""
        request = pod_of(waiting, pod_spec(waiting, waiting.priority, self._is_lazy), 0)
        names = self.state.topology.node_names
        placed = placed_pods(self._holdings, self.state, self._saves)
        allowed = {name: movable.random() < 0.75 for name in sorted(self._holdings)}
        return inputs_of(
            StateInputs(frozenset(names) - self._bad_nodes, placed, reservations(self.state)),
            names,
            configuration="",
            at=self._now_s,
            facts={uid: Facts(may_move=allowed[uid.rpartition("/")[0]]) for uid in placed},
            waiting=[Waiting(waiting.group, waiting.vc, (request.name,), (Asking(Asked(request)),))],
        )

    def chain_of(self, group: str) -> str:
        """The cell chain that a group runs in."""
        return self._holdings[group].infos[0].cell_chain

    def hold(self, task: Task, info: BindInfo) -> None:
        """Have a stand-in take cells. The group that it stands for may not have them any more."""
        pods: list[PodRequest] = []
        sizes = [len(place.leaf_cell_indices) for size in info.members for place in size]
        for slot, leaves in enumerate(sizes):
            spec = pod_spec(task, task.priority, self._is_lazy, leaves).of_group(f"held/{task.group}")
            pods.append(PodRequest(f"held/{task.group}/{slot}", f"held-{slot}", "held", spec))
            event = PodAllocated(pods[-1], bind_info_for(info.members, slot, info.cell_chain))
            assert not self._apply(event).cancelled
        self._held[task.group] = info, pods

    def ask(self, task: Task, priority: int) -> Answer:
        """As the core answers; but a group on the move gets the cells that are held for it."""
        if task.group not in self._held:
            return super().ask(task, priority)
        info, pods = self._held.pop(task.group)
        for pod in pods:
            self._apply(PodDeleted(pod))
        return self._start(task, priority, Bind(info), ())


class DefragmentingLoop(Loop):
    """A loop that makes room for the first task that waits because of fragmentation; `made` has the plans."""

    cluster: MovingCluster

    def __init__(self, cluster: MovingCluster, tasks: list[Task], changes: list[Change], seed: int) -> None:
        super().__init__(cluster, tasks, changes, Manner(), 600.0)
        self.made: list[DefragPlan] = []
        self._random = Random(seed)
        self._next_s = 0.0

    def step(self) -> None:
        """Go on, then make room. Not while victims leave: the loop counts their cells and the reserved ones as used."""
        super().step()
        if any(task.phase is Phase.RESERVING for task in self.tasks):
            return
        heads = [entry for lane in self._lanes._lanes.values() if (entry := lane.first()) is not None]
        waiting = next((task for *_, number in heads if (task := self.tasks[number]).cause is Cause.FRAGMENTED), None)
        if waiting is not None and self.now.at_s >= self._next_s:
            self._next_s = self.now.at_s + SPACING_S
            self._make_room(waiting)

    def _make_room(self, waiting: Task) -> None:
        inputs = self.cluster.inputs(waiting, self._random)
        vc, shapes = job_shapes(inputs, waiting.group)
        found = plan(Question(self.cluster.spec, inputs, vc, shapes))
        if found.outcome != PLAN or not found.wanted[0].is_met:
            return
        self.made.append(found)
        for step in sorted({move.step for move in found.moves}):
            self._move([move for move in found.moves if move.step == step])
        self._try_waiting()
        assert waiting.phase is (Phase.RESERVING if found.wanted[0].preempts else Phase.RUNNING)

    def _move(self, moves: list[Move]) -> None:
        """The groups of one step leave, and come back as jobs to the cells that are held."""
        cluster = self.cluster
        pairs = [(move, self.tasks[self._number[move.group]]) for move in moves]
        becomes = {
            task.group: placement_of(move.becomes, cluster.chain_of(task.group))
            for move, task in pairs
            if move.is_guaranteed
        }
        for _, task in pairs:
            self._evict(task)
        for move, task in pairs:
            if move.is_guaranteed:
                cluster.hold(task, becomes[task.group])
        for move, task in pairs:
            if move.is_guaranteed:
                self._ask(task, task.priority)
                assert task.phase is Phase.RUNNING
