"""The nodes of the embedded cluster: machines of a configuration, kubelets, node health, pod garbage collection.

Everything runs on the event loop of the API server and uses its registry directly. A pod is looked at whenever it or
its node changes and when the time of its next step comes; the next step is derived anew each time, so a late or
repeated look does no harm.

A node's annotation `embedded.hived/ready` plays its failures: `false` is a kubelet that reports itself not Ready and
still runs and stops pods; `unknown` is a machine that is gone from the network: nothing on it starts, ends or stops
until the annotation is taken off. Taints with NoExecute end pods that do not tolerate them, as the taint eviction
controller has it.

Annotations of a pod say what a real workload would show by itself:

    embedded.hived/run-seconds    how long it runs (default: until it is deleted)
    embedded.hived/exit-code      with what it ends (default 0; anything else is Failed)
    embedded.hived/exit-reason    the reason of its containers then, such as OOMKilled (default Completed, or Error)
    embedded.hived/stop-seconds   how long it takes to stop when it is deleted (default 0, at most the grace period)
"""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hived.cells.layout import build_topology
from hived.cells.topology import Topology
from hived.values.errors import UserError
from hived.values.specs import ClusterSpec, SkuTypeSpec
from hived_config.node_names import PLACEHOLDER
from hived_config.rules import PodRules
from hived_config.skus import GPU_RESOURCE
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.clocks import timestamp
from hived_extender.kube_rules.demands import Toleration
from hived_extender.kube_rules.nodes import Taint
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import is_finished, set_condition
from hived_lab.embedded.apiserver.models import DeleteOptions, Preconditions, View
from hived_lab.embedded.apiserver.registry import Registry, follow, look_at
from hived_lab.embedded.apiserver.resources import LEASES, NODES, PODS
from hived_lab.embedded.apiserver.store import Key, Revision

POD_LIMIT = 110
# The limit that marks our pods is no scarce resource: every node has more of it than pods can ask for.
ENABLE_CAPACITY = 1_000_000
_UNSTATED_CPU = 64.0
_UNSTATED_MEMORY_MIB = 256 * 1024.0
NO_RULES = PodRules()


@dataclass(frozen=True, slots=True)
class Machine:
    """A future node: its name, its capacity by Kubernetes resource name, and labels beside the usual ones."""

    name: str
    capacity: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)


def machines_of(spec: ClusterSpec, rules: PodRules = NO_RULES) -> list[Machine]:
    """Return a machine for every node of the configuration, ascending by name.

    Placeholders stand for nodes to come, and have none. A node offers the sum of its leaf cells' SKUs, and has the
    labels that pods choose them by; without SKUs in the configuration every leaf cell counts as one GPU.
    Raises UserError as `build_topology` does.
    """
    topology = build_topology(spec)
    names = topology.node_names
    nodes = [node for node, name in enumerate(names) if not name.startswith(PLACEHOLDER)]
    return [_machine(spec, rules, topology, node) for node in nodes]


def _machine(spec: ClusterSpec, rules: PodRules, topology: Topology, node: int) -> Machine:
    leaves = topology.leaves_of(node)
    bare = SkuTypeSpec() if spec.sku_types else SkuTypeSpec(gpu=1)
    types = [topology.cell_type(int(leaf)) for leaf in leaves]
    skus = [spec.sku_types.get(each, bare) for each in types]
    cpu = sum(sku.cpu for sku in skus) or _UNSTATED_CPU
    memory_mib = sum(sku.memory_mib for sku in skus) or _UNSTATED_MEMORY_MIB
    capacity = {
        "cpu": f"{round(cpu * 1000)}m",
        "memory": f"{round(memory_mib)}Mi",
        "pods": str(POD_LIMIT),
        ENABLE_LIMIT: str(ENABLE_CAPACITY),
    }
    devices: Counter[str] = Counter()
    for each, sku in zip(types, skus, strict=True):
        devices[rules.resources.get(each, GPU_RESOURCE)] += sku.gpu
    capacity |= {resource: str(count) for resource, count in devices.items() if count}
    labels = {key: value for each in dict.fromkeys(types) for key, value in rules.node_labels.get(each, {}).items()}
    return Machine(topology.node_names[node], capacity, labels)


PREFIX = "embedded.hived/"
RUN_SECONDS = PREFIX + "run-seconds"
EXIT_CODE = PREFIX + "exit-code"
EXIT_REASON = PREFIX + "exit-reason"
STOP_SECONDS = PREFIX + "stop-seconds"

_POD_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The lifetime that annotations of a pod ask for; `run_s` is infinite for a pod that runs until it is deleted."""

    run_s: float
    exit_code: int
    stop_s: float


def lifetime_of(annotations: Mapping[str, str]) -> Lifetime:
    """Return what `annotations` ask for; UserError says which of them cannot be read."""
    exit_code = _number(annotations, EXIT_CODE, 0.0)
    if not exit_code.is_integer() or exit_code > 255:
        raise UserError(f"annotation {EXIT_CODE}: expected a whole number in 0..255, found {annotations[EXIT_CODE]!r}")
    run_s, stop_s = _number(annotations, RUN_SECONDS, math.inf), _number(annotations, STOP_SECONDS, 0.0)
    return Lifetime(run_s, int(exit_code), stop_s)


def stay_s(pod: View, taints: Sequence[View]) -> float:
    """Return how long a pod may stay on a node with these taints, infinite if none of them ends it."""
    borne: list[float] = []
    for taint in (Taint(one.key, one.value, one.effect) for one in taints if one.effect == "NoExecute"):
        bearing = [one for one in pod.spec.tolerations if taint.is_borne([_toleration(one)])]
        if not bearing:
            return 0.0
        borne += [float(max(0, one.toleration_seconds)) for one in bearing if one.toleration_seconds is not None]
    return min(borne, default=math.inf)


def evicted_by_taint(status: Body, pod: View) -> Body:
    """Return the status of a pod that is about to go because of a taint of its node."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": f"Taint manager: deleting due to NoExecute taint on {pod.spec.node_name}",
    }
    return set_condition(status, condition)


def running(pod: View, status: Body, pod_ip: str) -> Body:
    """Return the status of a pod whose containers have just started."""
    now = timestamp()
    status = {
        **status,
        "phase": "Running",
        "startTime": now,
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "containerStatuses": [
            _container_status(container, is_ready=True, state={"running": {"startedAt": now}})
            for container in pod.spec.containers
        ],
    }
    for condition in _POD_CONDITIONS:
        status = set_condition(status, {"type": condition, "status": "True"})
    return status


def finished(pod: View, status: Body, exit_code: int) -> Body:
    """Return the status of a pod whose containers have all ended with `exit_code`."""
    reason = pod.metadata.annotations.get(EXIT_REASON) or ("Error" if exit_code else "Completed")
    ended = {
        "exitCode": exit_code,
        "reason": reason,
        "startedAt": status.get("startTime", timestamp()),
        "finishedAt": timestamp(),
    }
    status = {
        **status,
        "phase": "Failed" if exit_code else "Succeeded",
        "containerStatuses": [
            _container_status(container, is_ready=False, state={"terminated": ended})
            for container in pod.spec.containers
        ],
    }
    for condition in ("Ready", "ContainersReady"):
        status = set_condition(status, {"type": condition, "status": "False", "reason": "PodCompleted"})
    return status


def refused(status: Body, why: str) -> Body:
    """Return the status of a pod that its node will not start."""
    return {**status, "phase": "Failed", "reason": "InvalidAnnotation", "message": why}


def _toleration(one: View) -> Toleration:
    return Toleration(one.key, one.operator, one.value, one.effect)


def _number(annotations: Mapping[str, str], key: str, default: float) -> float:
    text = annotations.get(key)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise UserError(f"annotation {key}: expected a number of at least 0, found {text!r}")
    return number


def _container_status(container: View, is_ready: bool, state: Body) -> Body:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


READY = PREFIX + "ready"
LEASE_NAMESPACE = "kube-node-lease"
_LEASES_PER_SLICE = 100
_NODE_INFO = {
    "machineID": "", "systemUUID": "", "bootID": "", "kubeletVersion": "v1.32.0+hived", "kubeProxyVersion": "",
    "osImage": "embedded", "kernelVersion": "embedded", "containerRuntimeVersion": "embedded://1",
    "operatingSystem": "linux", "architecture": "amd64",
}  # fmt: skip
_DEFAULT_CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": str(POD_LIMIT), ENABLE_LIMIT: str(ENABLE_CAPACITY)}


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds between lease renewals, and after which pods of a deleted node are removed."""

    heartbeat_s: float = 10.0
    orphan_s: float = 40.0


@dataclass(slots=True)
class _PodClock:
    """Moments of one pod on the loop's clock, None for what has not happened, and the timer of its next step."""

    uid: str
    started: float | None = None
    stopping: float | None = None
    orphaned: float | None = None
    tainted: float | None = None
    timer: asyncio.TimerHandle | None = None


class Nodes:
    """All nodes of one embedded cluster; every method runs on the event loop of the API server."""

    def __init__(self, registry: Registry, timing: Timing) -> None:
        self._registry = registry
        self._timing = timing
        self._clocks: dict[Key, _PodClock] = {}
        self._reachable: dict[str, bool] = {}
        # Of each node, the taints that end pods.
        self._ending: dict[str, list[View]] = {}
        self._addresses = itertools.count(1)

    def register(self, machines: Iterable[Machine]) -> None:
        """Add a Ready node for each machine that has none yet."""
        present = self._registry.collection(NODES).revisions
        for machine in machines:
            if Key("", machine.name) in present:
                continue
            labels = dict(machine.labels) | {
                "kubernetes.io/hostname": machine.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            }
            status = {"capacity": dict(machine.capacity), "allocatable": dict(machine.capacity)}
            body = {"metadata": {"name": machine.name, "labels": labels}, "status": status}
            self._registry.create(NODES, body)
            self._node_seen(Key("", machine.name))

    async def run(self) -> None:
        """Play the nodes until cancelled."""
        await asyncio.gather(
            follow(self._registry, NODES, self._node_seen, lambda: [Key("", name) for name in self._reachable]),
            follow(self._registry, PODS, self._pod_seen, lambda: list(self._clocks)),
            self._renew_leases(),
        )

    def _node_seen(self, key: Key) -> None:
        revision = self._registry.collection(NODES).revisions.get(key)
        before = self._reachable.get(key.name), self._ending.get(key.name)
        if revision is None:
            self._reachable.pop(key.name, None)
            self._ending.pop(key.name, None)
            self._remove_lease(key.name)
        else:
            wish = revision.view.metadata.annotations.get(READY, "true").lower()
            self._reachable[key.name] = wish != "unknown"
            taints = revision.view.spec.taints
            self._ending[key.name] = [one for one in taints if one.effect == "NoExecute"]
            self._report_node(revision, wish)
        if before != (self._reachable.get(key.name), self._ending.get(key.name)):
            for pod_key, pod in list(self._registry.collection(PODS).revisions.items()):
                if pod.view.spec.node_name == key.name:
                    self._pod_seen(pod_key)

    def _report_node(self, revision: Revision, wish: str) -> None:
        old = revision.body.get("status", {})
        status = {"capacity": _DEFAULT_CAPACITY, **old}
        status.setdefault("allocatable", status["capacity"])
        status.setdefault("nodeInfo", _NODE_INFO)
        if "addresses" not in status:
            ip = self._next_address("172.16")
            status["addresses"] = [
                {"type": "InternalIP", "address": ip},
                {"type": "Hostname", "address": revision.key.name},
            ]
        for condition in _node_conditions(wish):
            known: Body = next((one for one in old.get("conditions", []) if one.get("type") == condition["type"]), {})
            if any(known.get(field) != value for field, value in condition.items()):
                status = set_condition(status, {**condition, "lastHeartbeatTime": timestamp()})
        if status != old:
            self._registry.update(NODES, revision.key, {**revision.body, "status": status}, is_status=True)
        if Key(LEASE_NAMESPACE, revision.key.name) not in self._registry.collection(LEASES).revisions:
            self._registry.create(LEASES, _lease(revision))

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(self._timing.heartbeat_s)
            for index, name in enumerate([name for name, is_reachable in self._reachable.items() if is_reachable]):
                self._renew_lease(name)
                if index % _LEASES_PER_SLICE == _LEASES_PER_SLICE - 1:
                    await asyncio.sleep(0)

    def _renew_lease(self, name: str) -> None:
        lease = self._registry.collection(LEASES).revisions.get(Key(LEASE_NAMESPACE, name))
        if lease is not None:
            spec = {**lease.body.get("spec", {}), "renewTime": timestamp(digits=6)}
            self._registry.update(LEASES, lease.key, {**lease.body, "spec": spec})

    def _remove_lease(self, name: str) -> None:
        key = Key(LEASE_NAMESPACE, name)
        if key in self._registry.collection(LEASES).revisions:
            self._registry.delete(LEASES, key, DeleteOptions())

    def _pod_seen(self, key: Key) -> None:
        """Take the next step of the pod at `key`, and set the timer for the following one."""
        revision = self._registry.collection(PODS).revisions.get(key)
        clock = self._clock(key, revision)
        if revision is None or clock is None:
            return
        ends_at = self._end_by_taint(revision, clock)
        if ends_at is None:
            return
        due_at = min(ends_at, math.inf if (next_at := self._step(revision, clock)) is None else next_at)
        if math.isfinite(due_at):
            clock.timer = asyncio.get_running_loop().call_at(due_at, look_at, self._pod_seen, key)

    def _end_by_taint(self, revision: Revision, clock: _PodClock) -> float | None:
        """Delete the pod if a taint of its node has not been borne for long enough, and return None.

        Else return when that will be, infinite if never. The deletion brings the pod back here.
        """
        pod, now = revision.view, asyncio.get_running_loop().time()
        may_stay_s = stay_s(pod, self._ending.get(pod.spec.node_name, ()))
        if not math.isfinite(may_stay_s) or is_finished(pod) or pod.metadata.deletion_timestamp:
            clock.tainted = None
            return math.inf
        clock.tainted = now if clock.tainted is None else clock.tainted
        if now < clock.tainted + may_stay_s:
            return clock.tainted + may_stay_s
        self._report_pod(revision, evicted_by_taint(revision.body["status"], pod))
        self._registry.delete(PODS, revision.key, DeleteOptions(preconditions=Preconditions(uid=pod.metadata.uid)))
        return None

    def _clock(self, key: Key, revision: Revision | None) -> _PodClock | None:
        """Return the clock of the pod that is now at `key`, its timer stopped; None if no node has to do with it."""
        clock = self._clocks.pop(key, None)
        if clock is not None and clock.timer is not None:
            clock.timer.cancel()
        if revision is None or not revision.view.spec.node_name:
            return None
        uid = revision.view.metadata.uid
        if clock is None or clock.uid != uid:
            clock = _PodClock(uid)
        self._clocks[key] = clock
        return clock

    def _step(self, revision: Revision, clock: _PodClock) -> float | None:
        """Take the step whose time has come, if any; return when to look again, None for "when something changes"."""
        pod, now = revision.view, asyncio.get_running_loop().time()
        is_reachable = self._reachable.get(pod.spec.node_name)
        if is_reachable is None:
            clock.orphaned = now if clock.orphaned is None else clock.orphaned
            return self._remove_at(revision, clock.orphaned + self._timing.orphan_s, now)
        clock.orphaned = None
        if not is_reachable:
            return None
        try:
            lifetime = lifetime_of(pod.metadata.annotations)
        except UserError as error:
            if pod.metadata.deletion_timestamp:
                return self._remove_at(revision, now, now)
            if not is_finished(pod):
                self._report_pod(revision, refused(revision.body["status"], str(error)))
            return None
        if pod.metadata.deletion_timestamp:
            clock.stopping = now if clock.stopping is None else clock.stopping
            grace_s = min(lifetime.stop_s, pod.metadata.deletion_grace_period_seconds)
            return self._remove_at(revision, clock.stopping + grace_s, now)
        if is_finished(pod):
            return None
        if clock.started is None:
            clock.started = now
            self._report_pod(revision, running(pod, revision.body["status"], self._next_address("10.0")))
            return None
        if now < clock.started + lifetime.run_s:
            return clock.started + lifetime.run_s if lifetime.run_s < _LONGEST_TIMER_S else None
        self._report_pod(revision, finished(pod, revision.body["status"], lifetime.exit_code))
        return None

    def _remove_at(self, revision: Revision, due_at: float, now: float) -> float | None:
        if now < due_at:
            return due_at
        options = DeleteOptions(grace_period_seconds=0, preconditions=Preconditions(uid=revision.view.metadata.uid))
        self._registry.delete(PODS, revision.key, options)
        return None

    def _report_pod(self, revision: Revision, status: Body) -> None:
        """Write a pod's status; that change brings the pod back here for its next step."""
        self._registry.update(PODS, revision.key, {**revision.body, "status": status}, is_status=True)

    def _next_address(self, network: str) -> str:
        number = next(self._addresses)
        return f"{network}.{number // 250 % 250}.{number % 250 + 1}"


_LONGEST_TIMER_S = 10 * 365 * 86400.0


def _node_conditions(wish: str) -> list[Body]:
    if wish == "unknown":
        message = "Kubelet stopped posting node status."
        kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
        return [
            {"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown", "message": message} for kind in kinds
        ]
    pressures = {"MemoryPressure": "Memory", "DiskPressure": "Disk", "PIDPressure": "PID"}
    conditions: list[Body] = [
        {"type": kind, "status": "False", "reason": f"KubeletHasSufficient{what}", "message": ""}
        for kind, what in pressures.items()
    ]
    if wish not in ("true", "unknown"):
        found = "says so" if wish == "false" else f"is {wish!r}, expected true, false or unknown"
        ready = {"status": "False", "reason": "KubeletNotReady", "message": f"the annotation {READY} {found}"}
    else:
        ready = {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return [*conditions, {"type": "Ready", **ready}]


def _lease(node: Revision) -> Body:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.key.name, "uid": node.view.metadata.uid}
    return {
        "metadata": {"name": node.key.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": node.key.name, "leaseDurationSeconds": 40, "renewTime": timestamp(digits=6)},
    }
