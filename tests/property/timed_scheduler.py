"""A kube-scheduler that takes its time, on nodes whose CPU strangers take as well, under a clock that the test turns.

It asks about one pod after another, counts a pod as on its node until the binding is refused, gives a binding up that
is held back for too long, and tries the pod again later. Strangers come to nodes and leave them at any moment.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from hived.values.errors import UserError
from hived_extender.machine.acceptance import HELD_S
from tests.extender.machine.small_cluster import NODES, Json, node_json, to_node, to_pod
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator
from tests.property.choices import Choices

BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 10.0)
CPUS = 4
GPUS = 4


class TimedScheduler:
    """See the module. A question takes up to `slowest_s`."""

    def __init__(self, choices: Choices, *, slowest_s: float = 0.05) -> None:
        self.cluster = SmallGangCluster()
        for name in NODES:
            body = node_json(name)
            body["status"]["allocatable"] = {"cpu": str(CPUS), "nvidia.com/gpu": str(GPUS), "pods": "110"}
            self.cluster.service.node_seen(to_node(body))
        self.log: list[str] = []
        self._choices, self._slowest_s = choices, slowest_s
        self._needs: dict[str, Mapping[str, int]] = {}
        self._assumed: dict[str, str] = {}
        self._held: dict[str, tuple[Future[None] | None, float]] = {}  # a binding waits for its mates until then
        self._due: dict[str, float] = {}
        self._parked: dict[str, str] = {}  # by name the version that was refused
        self._tries: dict[str, int] = {}
        self._strangers = 0

    @property
    def now(self) -> float:
        """The clock of the service."""
        return self.cluster.by_hand.at

    def gang(self, name: str, minimum: int, cpus: list[int], gpus: int = 0, **more: Any) -> None:
        """Create the pods of a gang, NAME-0 and so on."""
        for index, cpu in enumerate(cpus):
            self.create(f"{name}-{index}", cpu, gpus, koordinator(name, minimum, **more))

    def create(self, name: str, cpu: int, gpus: int = 0, annotations: Mapping[str, str] | None = None) -> None:
        """Create a pod."""
        self._needs[name] = {"cpu": cpu, "gpu": gpus}
        limits = {"cpu": cpu, **({"nvidia.com/gpu": gpus} if gpus else {})}
        self.cluster.pod(name, gpus, annotations, containers=[{"name": "main", "resources": {"limits": limits}}])
        self._due[name] = self.now

    def stranger(self, node: str, cpu: int) -> str:
        """A pod of another scheduler has come to a node; returns its name."""
        self._strangers += 1
        name = f"stranger-{self._strangers}"
        self._needs[name] = {"cpu": cpu, "gpu": 0}
        pod: Json = {
            "metadata": {"name": name, "namespace": "elsewhere", "uid": f"uid-{name}", "labels": {}, "annotations": {}},
            "spec": {
                "nodeName": node,
                "schedulerName": "default-scheduler",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            },
            "status": {"phase": "Running"},
        }
        self.cluster.kube.add(pod)
        self.cluster.service.pod_seen(to_pod(pod))
        self._note(f"{name} comes to {node} with {cpu}")
        return name

    def leave(self, name: str) -> None:
        """A pod is gone."""
        self._note(f"{name} leaves")
        self.cluster.drop(name)
        for known in (self._assumed, self._held, self._due, self._parked):
            known.pop(name, None)
        self._try_parked()

    def free(self, node: str, what: str = "cpu") -> int:
        """How much of a node nobody has, as kube-scheduler counts."""
        used = sum(
            self._needs[name][what]
            for name, pod in self.cluster.kube.pods.items()
            if node == (pod["spec"]["nodeName"] or self._assumed.get(name))
        )
        return {"cpu": CPUS, "gpu": GPUS}[what] - used

    def bound(self, gang: str) -> list[str]:
        """The pods of a gang that are bound."""
        return sorted(name for name in self.cluster.placed() if name.rsplit("-", 1)[0] == gang)

    def run(self, seconds: float) -> None:
        """Let time go by."""
        until = self.now + seconds
        while self.now < until:
            self._wake_changed()
            ready = sorted((at, name) for name, at in self._due.items() if at <= self.now)
            if ready:
                self._ask(ready[0][1])
            self._finish_bindings()
            if not ready:
                moments = [
                    *self._due.values(),
                    *(at for _, at in self._held.values()),
                    self.cluster.service.machine.due_at,
                    until,
                ]
                self.cluster.pass_time(max(0.001, min(until, *moments) - self.now))

    # In detail

    def _ask(self, name: str) -> None:
        del self._due[name]
        pod = self.cluster.kube.pods[name]
        needs = self._needs[name]
        nodes = [one for one in NODES if all(self.free(one, what) >= count for what, count in needs.items())]
        self._tries[name] = self._tries.get(name, 0) + 1
        if not nodes:
            self._parked[name] = pod["metadata"]["resourceVersion"]
            self._note(f"{name}: no node")
            return
        self.cluster.pass_time(self._choices.integer(0, 100) / 100 * self._slowest_s)
        try:
            found = self.cluster.filter(pod, nodes)
        except UserError as error:
            self._note(f"{name}: {error.message}")
            self._back_off(name)
            return
        if "NodeNames" not in found:
            self._parked[name] = pod["metadata"]["resourceVersion"]
            self._note(f"{name} on {nodes}: {next(iter(found['FailedNodes'].values()))}")
            return
        self._assumed[name] = min(found["NodeNames"], key=lambda one: (self.free(one), one))
        self._held[name] = self.cluster.service.hold_of(pod["metadata"]["uid"]), self.now + HELD_S
        self._note(f"{name} is taken to {self._assumed[name]}")

    def _finish_bindings(self) -> None:
        for name, (hold, until) in list(self._held.items()):
            if hold is not None and not hold.done() and self.now < until:
                continue
            pod = self.cluster.kube.pods[name]
            del self._held[name]
            try:
                self.cluster.bind(pod, self._assumed[name])
                self._note(f"{name} is bound")
                del self._assumed[name]
                self.cluster.see(pod)
            except UserError as error:
                self._note(f"{name} is not bound: {error.message}")
                del self._assumed[name]
                self._back_off(name)
                self._try_parked()

    def _back_off(self, name: str) -> None:
        self._due[name] = self.now + BACKOFF_S[min(self._tries[name] - 1, len(BACKOFF_S) - 1)]

    def _try_parked(self) -> None:
        """Something has left a node: all are tried again."""
        for name in self._parked:
            self._due[name] = self.now
        self._parked.clear()

    def _wake_changed(self) -> None:
        for name, version in list(self._parked.items()):
            if self.cluster.kube.pods[name]["metadata"]["resourceVersion"] != version:
                del self._parked[name]
                self._due[name] = self.now

    def _note(self, what: str) -> None:
        self.log.append(f"{self.now:.2f} {what}")
