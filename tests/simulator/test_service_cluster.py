"""The whole service decides as the core alone: its machine gets the same questions, with pods as Kubernetes has them.

Every pod is created with its annotation and seen by the machine. kube-scheduler is played as it asks: filter with all
healthy nodes, preempt if there is none, bind; writes of the machine are made, and seen again.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from hived.cells.layout import build_topology
from hived.cells.state import GroupState, State
from hived.life.groups import bind_info_of_slot
from hived.life.victims import victims_of
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.errors import InvariantError, UserError
from hived.values.events import Phase, PodAllocated
from hived.values.specs import ClusterSpec, PodRequest, Rules, WorkTimes
from hived_config.loader import Configuration
from hived_config.rules import PodRules
from hived_config.settings import Settings
from hived_extender.jobs.annotations import SCHEDULING_SPEC, spec_fields
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.progress import CHECKPOINTED_AT
from hived_extender.jobs.proofs import Prover
from hived_extender.jobs.readings import Texts
from hived_extender.jobs.wire import (
    ENABLE_LIMIT,
    BindArgs,
    FilterArgs,
    FilterResult,
    Node,
    Pod,
    PreemptArgs,
    PreemptResult,
    decode_args,
)
from hived_extender.machine.effects import Awaits, BindPod, Now
from hived_extender.machine.machine import Machine
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.stimuli import (
    BindAsked,
    Elected,
    FilterAsked,
    NodeSeen,
    PodGone,
    PodSeen,
    PreemptAsked,
    Stimulus,
    Switched,
    Wrote,
)
from hived_extender.reconfiguration.successor import Successor
from hived_simulator.clusters import Displaced
from hived_simulator.hived_cluster import HivedCluster, Owned
from hived_simulator.loop import Manner
from hived_simulator.tasks import NAMESPACE, Task, pod_of, pod_spec
from tests.simulator.builders import history, job, random_jobs, run
from tests.simulator.test_loop import CHANGES, MANNERS, SPEC

STEP_S = 0.001
"""Time between two stimuli, so that each has a moment of its own."""


EPOCH_S = 1_000_000_000.0
"""The trace's start for whoever reads times, in seconds since 1970."""


class ServiceCluster(HivedCluster):
    """See the module."""

    PREFIX = f"{NAMESPACE}:"

    def __init__(self, spec: ClusterSpec, is_lazy: bool = False) -> None:
        """Cost O(cells)."""
        super().__init__(spec, is_lazy)
        self._prover, self._rules = Prover(), PodRules()
        interpreter = Interpreter(spec, self._rules, _NoObjects(), serves_every_name=True)
        self._machine = Machine(spec, interpreter, preemption=PreemptionPolicy(by_service=False), prover=self._prover)
        self._texts = Texts(self._prover, lambda pod: None)
        self._clock_s = 0.0
        self._created_count = 0
        self._pods: dict[str, dict[str, Any]] = {}
        for node in self.state.topology.node_names:
            self._see_node(node, True)
        self._tell(Elected())
        self.state = self._core_state()

    def _core_state(self) -> State:
        core = self._machine.cache.core
        if core is None:
            raise InvariantError("the service does not lead")
        return core.state

    def _tell(self, stimulus: Stimulus) -> Any:
        self._clock_s += STEP_S
        answer, _ = self._machine.handle(stimulus, Now(self._clock_s, EPOCH_S + self._now_s))
        return answer

    def _see_node(self, name: str, is_ready: bool) -> None:
        status = {"conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}]}
        body = {"metadata": {"name": name, "uid": f"node-{name}"}, "spec": {}, "status": status}
        self._tell(NodeSeen(msgspec.convert(body, Node)))

    def _tell_health(self, node: str, is_healthy: bool) -> None:
        self._see_node(node, is_healthy)

    def _tell_progress(self, pod: PodRequest, times: WorkTimes) -> None:
        body = self._pods[pod.uid]
        body["metadata"]["annotations"][CHECKPOINTED_AT] = _moment(times.saved_s or 0.0)
        self._see(body)

    def _nodes(self) -> list[str]:
        return [node for node in self.state.topology.node_names if node not in self._bad_nodes]

    def _see(self, body: dict[str, Any]) -> None:
        pod = msgspec.convert(body, Pod)
        self._tell(PodSeen(pod, self._texts.read(pod.metadata, node=body["spec"]["nodeName"])))

    def _decide(self, task: Task, pod: PodRequest, phase: Phase) -> Decision:
        """Ask as kube-scheduler does for a gang's first pod, once all its pods are there."""
        if pod.uid not in self._pods:
            for each in _all_pods(task, pod.spec.priority, self._is_lazy):
                self._created_count += 1
                body = self._pods[each.uid] = _manifest(each, f"{each.uid}~{self._created_count}")
                self._see(body)
        before = self._reserving()
        try:
            answer = self._filter(pod.uid)
        except UserError:
            self._drop(task, pod.spec.priority)
            raise
        decision: Bind | Preempt | Wait
        if answer.node_names:
            decision = Bind(bind_info_of_slot(self.state, self.state.groups[self.PREFIX + task.group], 0))
        elif victims := self._victims(task, pod.uid):
            decision = Preempt(victims)
        else:
            self._drop(task, pod.spec.priority)
            told = next(iter((answer.failed_nodes or {}).values()), answer.error)
            decision = Wait(told)
        cancelled = tuple(sorted(before - self._reserving() - {task.group}))
        for name in cancelled:
            holding = self._holdings[name]
            self._drop(holding.task, holding.pods[0].spec.priority)
        self._note_lent()
        return replace(decision, cancelled=cancelled)

    def _note_lent(self) -> None:
        """The service does not say whom it has preempted lazily."""
        if self._is_lazy:
            self._usage.lend(self._without_place())

    def _reserving(self) -> set[str]:
        groups = self.state.groups.items()
        return {name.removeprefix(self.PREFIX) for name, group in groups if group.state is GroupState.PREEMPTING}

    def _filter(self, uid: str) -> FilterResult:
        body = {"Pod": self._pods[uid], "Nodes": None, "NodeNames": self._nodes()}
        args = decode_args(json.dumps(body).encode(), FilterArgs)
        answer = self._tell(FilterAsked(args, self._texts.read(args.pod.metadata)))
        if isinstance(answer, UserError):
            raise answer
        if answer.error:
            raise UserError(answer.error)
        assert isinstance(answer, FilterResult)
        return answer

    def _victims(self, task: Task, uid: str) -> Mapping[str, tuple[str, ...]]:
        """Ask for preemption; the answer names victims of one node, the state all of them."""
        candidates = {node: {"Pods": [], "NumPDBViolations": 0} for node in self._nodes()}
        body = {"Pod": self._pods[uid], "NodeNameToVictims": None, "NodeNameToMetaVictims": candidates}
        args = decode_args(json.dumps(body).encode(), PreemptArgs)
        answer = self._tell(PreemptAsked(args, self._texts.read(args.pod.metadata)))
        group = self.state.groups.get(self.PREFIX + task.group)
        if not isinstance(answer, PreemptResult) or group is None or group.state is not GroupState.PREEMPTING:
            return {}
        return victims_of(self.state, group)

    def _drop(self, task: Task, priority: int) -> None:
        """Pods of a task that waits are deleted; they are created anew when it is tried again."""
        for each in _all_pods(task, priority, self._is_lazy):
            self._remove(each.uid)

    def _remove(self, uid: str) -> None:
        body = self._pods.pop(uid, None)
        if body is not None:
            self._tell(PodGone(body["metadata"]["uid"]))

    def _allocate(self, event: PodAllocated) -> tuple[str, ...]:
        """Ask for the pod and bind it. InvariantError if the service gives it another place than the core."""
        uid, body = event.pod.uid, self._pods[event.pod.uid]
        nodes = self._filter(uid).node_names or []
        if nodes != [event.bind_info.node]:
            raise InvariantError(f"{uid}: the service offers {nodes}, the core {event.bind_info.node}")
        meta = body["metadata"]
        answer = self._tell(BindAsked(BindArgs(meta["name"], meta["namespace"], meta["uid"], event.bind_info.node)))
        if not isinstance(answer, Awaits) or not isinstance(answer.effect, BindPod):
            raise InvariantError(f"{uid}: is not bound: {answer}")
        body["spec"]["nodeName"] = answer.effect.node
        meta["annotations"].update(answer.effect.annotations)
        meta["resourceVersion"] = "2"
        body["status"] = {"phase": "Running", "startTime": _moment(self._now_s)}
        self._tell(Wrote(answer.effect, found="2"))
        self._see(body)
        self._note_lent()
        return ()

    def _delete(self, pod: PodRequest) -> tuple[str, ...]:
        before = self._reserving()
        if pod.uid.endswith("/0") and self._pods.get(pod.uid, {}).get("spec", {}).get("nodeName") == "":
            holding = self._holdings[pod.spec.group.name]  # it only reserves: all of its pods go
            self._drop(holding.task, pod.spec.priority)
        else:
            self._remove(pod.uid)
        return tuple(sorted(before - self._reserving()))

    def reconfigure(self, spec: ClusterSpec, owned: Owned | None = None) -> Displaced:
        """See `SimulatedCluster`: by the successor of the service's state, and the switch to it."""
        for node in build_topology(spec).node_names:
            self._see_node(node, node not in self._bad_nodes)
        successor = Successor(spec, rules=self._rules)
        successor.catch_up(self._machine.terms.inputs())
        configuration = Configuration(spec, Settings(), self._rules)
        self._tell(Switched(configuration, successor.core, successor.losses, successor.unaccounted))
        self._take_over(self._core_state())
        evicted = {uid.rpartition("/")[0]: None for uid in sorted(successor.unaccounted)}
        lost = sorted(name.removeprefix(self.PREFIX) for name in successor.lost)
        for name in lost:
            holding = self._holdings[name]
            self._drop(holding.task, holding.pods[0].spec.priority)
            self._forget(name)
        return Displaced(tuple(evicted), tuple(lost), self._usage.take_lent())


class _NoObjects:
    """No objects describe gangs: every pod has the annotation."""

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        return None


def _moment(now_s: float) -> str:
    """A moment of the trace in RFC 3339."""
    return datetime.fromtimestamp(EPOCH_S + now_s, UTC).isoformat()


def _all_pods(task: Task, priority: int, is_lazy: bool) -> Iterator[PodRequest]:
    """Every pod of a task, those with fewer leaf cells first."""
    slot = 0
    for count, leaves in task.shape.pods:
        spec = pod_spec(task, priority, is_lazy, leaves)
        for _ in range(count):
            yield pod_of(task, spec, slot)
            slot += 1


def _manifest(pod: PodRequest, uid: str) -> dict[str, Any]:
    """A pod as the API server has it, with its request in our own annotation. No two pods ever have one uid."""
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": uid,
            "resourceVersion": "1",
            "creationTimestamp": _moment(0.0),
            "annotations": {SCHEDULING_SPEC: json.dumps(spec_fields(pod.spec))},
        },
        "spec": {"nodeName": "", "containers": [{"resources": {"limits": {ENABLE_LIMIT: "1"}}}]},
        "status": {"phase": "Pending"},
    }


@pytest.mark.sample(1)
@pytest.mark.parametrize(("seed", "manner", "rules"), [(0, "grace", Rules.HIVED), (1, "over quota", Rules.BETTER)])
def test_the_service_decides_as_the_core(seed: int, manner: str, rules: Rules) -> None:
    jobs = random_jobs(seed, ("a", "b", "c"), count=25)
    spec = replace(SPEC, rules=rules)
    core, service = (run(each, jobs, CHANGES, MANNERS[manner]) for each in (HivedCluster(spec), ServiceCluster(spec)))
    assert list(map(history, service)) == list(map(history, core))


def test_lazy_preemption_goes_through_the_service() -> None:
    jobs = [job("low", "c", 0, 100, (1, 4)), job("high", "c", 10, 20, (1, 4), priority=9)]
    low, high = run(ServiceCluster(SPEC, is_lazy=True), jobs, manner=Manner())
    assert (low.eviction_count, low.ended_s, high.first_s) == (0, 100, 10)


def test_wishes_are_told_to_the_service() -> None:
    jobs = [
        job("near", "b", 0, 10, (2, 4), within_cell="RACK", leaf_type="GPU"),
        job("far", "b", 0, 10, (1, 1), leaf_type="X"),
    ]
    near, far = run(ServiceCluster(SPEC), jobs)
    assert (near.first_s, near.level, far.first_s) == (0, 4, -1)
