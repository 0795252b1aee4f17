"""The nodes of the embedded cluster: kubelets, node health and pod garbage collection in one.

Everything runs on the event loop of the API server and uses its registry directly. A pod is looked at whenever it or
its node changes and when the time of its next step comes; what is due is derived anew each time, so a late or repeated
look does no harm.

A node's annotation `embedded.hived/ready` plays its failures: `false` is a kubelet that reports itself not Ready and
still runs and stops pods; `unknown` is a machine that is gone from the network: nothing on it starts, ends or stops
until the annotation is taken off. Taints with NoExecute end pods that do not tolerate them, as the taint eviction
controller has it.
"""

import asyncio
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from hived.errors import UserError
from hived_extender.pods.wire import ENABLE_LIMIT
from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import micro_timestamp, set_condition, timestamp
from hived_lab.embedded.apiserver.models import DeleteOptions, Preconditions
from hived_lab.embedded.apiserver.registry import Registry
from hived_lab.embedded.apiserver.resources import LEASES, NODES, PODS
from hived_lab.embedded.apiserver.store import Key, Revision
from hived_lab.embedded.changes import follow, look_at
from hived_lab.embedded.lifetimes import PREFIX, evicted_by_taint, finished, lifetime_of, refused, running, stay_s
from hived_lab.embedded.machines import ENABLE_CAPACITY, POD_LIMIT, Machine

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
        self._ending: dict[str, list[models.Taint]] = {}
        self._addresses = itertools.count(1)

    def register(self, machines: Iterable[Machine]) -> None:
        """Add a Ready node for each machine that has none: somebody may have created it."""
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
            follow(self._registry, NODES, self._look_at_node, lambda: [Key("", name) for name in self._reachable]),
            follow(self._registry, PODS, self._look_at_pod, lambda: list(self._clocks)),
            self._renew_leases(),
        )

    def _look_at_node(self, key: Key) -> None:
        look_at(self._node_seen, key)

    def _look_at_pod(self, key: Key) -> None:
        look_at(self._pod_seen, key)

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
            taints = cast(models.Node, revision.view).spec.taints
            self._ending[key.name] = [one for one in taints if one.effect == "NoExecute"]
            self._report_node(revision, wish)
        if before != (self._reachable.get(key.name), self._ending.get(key.name)):
            for pod_key, pod in list(self._registry.collection(PODS).revisions.items()):
                if cast(models.Pod, pod.view).spec.node_name == key.name:
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
            spec = {**lease.body.get("spec", {}), "renewTime": micro_timestamp()}
            self._registry.update(LEASES, lease.key, {**lease.body, "spec": spec})

    def _remove_lease(self, name: str) -> None:
        key = Key(LEASE_NAMESPACE, name)
        if key in self._registry.collection(LEASES).revisions:
            self._registry.delete(LEASES, key, DeleteOptions())

    def _pod_seen(self, key: Key) -> None:
        """Do what is due for the pod at `key`, and set the timer for what comes next."""
        revision = self._registry.collection(PODS).revisions.get(key)
        clock = self._clock(key, revision)
        if revision is None or clock is None:
            return
        ends_at = self._end_by_taint(revision, clock)
        if ends_at is None:
            return
        due_at = min(ends_at, math.inf if (next_at := self._step(revision, clock)) is None else next_at)
        if math.isfinite(due_at):
            clock.timer = asyncio.get_running_loop().call_at(due_at, self._look_at_pod, key)

    def _end_by_taint(self, revision: Revision, clock: _PodClock) -> float | None:
        """Delete the pod if a taint of its node has not been borne for long enough, and return None.

        Else return when that will be, infinite if never. The deletion brings the pod back here.
        """
        pod, now = cast(models.Pod, revision.view), asyncio.get_running_loop().time()
        may_stay_s = stay_s(pod, self._ending.get(pod.spec.node_name, ()))
        if not math.isfinite(may_stay_s) or pod.is_finished or pod.metadata.deletion_timestamp:
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
        if revision is None or not cast(models.Pod, revision.view).spec.node_name:
            return None
        uid = revision.view.metadata.uid
        if clock is None or clock.uid != uid:
            clock = _PodClock(uid)
        self._clocks[key] = clock
        return clock

    def _step(self, revision: Revision, clock: _PodClock) -> float | None:
        """Take the step that is due, if any; return when to look again, None for "when something changes"."""
        pod, now = cast(models.Pod, revision.view), asyncio.get_running_loop().time()
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
            if not pod.is_finished:
                self._report_pod(revision, refused(revision.body["status"], str(error)))
            return None
        if pod.metadata.deletion_timestamp:
            clock.stopping = now if clock.stopping is None else clock.stopping
            grace_s = min(lifetime.stop_s, pod.metadata.deletion_grace_period_seconds)
            return self._remove_at(revision, clock.stopping + grace_s, now)
        if pod.is_finished:
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
        "spec": {"holderIdentity": node.key.name, "leaseDurationSeconds": 40, "renewTime": micro_timestamp()},
    }
