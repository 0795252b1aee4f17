"""A small office of GPUs with a service that leads, for situations in which a job waits.

Four nodes of eight H100 in a rack (dgx-1 to dgx-4), two nodes of four A10. Virtual cluster vision is promised two of
the dgx nodes and a10-2; foundation one dgx node; inference the pinned cell INFERENCE-A10, which is a10-1. One dgx node
is nobody's. Namespace ns may use all of them, up to priority 200; namespace elsewhere may use vision.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import replace as with_fields
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.values.specs import ClusterSpec, VirtualCellSpec
from hived_config.loader import load_text
from hived_extender.api.waiting import Certificate, IfResult, Why
from hived_extender.insight.answering import Answering
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.asks import LEAF_CELL_TYPE, PINNED_CELL, PRIORITY, VIRTUAL_CLUSTER
from hived_extender.jobs.progress import MAY_MOVE
from hived_extender.kube_rules.nodes import CORDON
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.service import Service
from tests.extender.machine.by_hand import ByHand
from tests.extender.machine.small_cluster import Json, SmallCluster, pod_json, to_node, to_pod
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

CONFIG = """\
rules: 2
access: namespaces
physicalCluster:
  skuTypes:
    H100: {gpu: 1, resource: nvidia.com/gpu, nodeLabels: {gpu: h100}}
    A10: {gpu: 1, resource: nvidia.com/gpu, nodeLabels: {gpu: a10}}
  cellTypes:
    H100-QUAD: {childCellType: H100, childCellNumber: 4}
    H100-NODE: {childCellType: H100-QUAD, childCellNumber: 2, isNodeLevel: true}
    H100-RACK: {childCellType: H100-NODE, childCellNumber: 4}
    A10-NODE: {childCellType: A10, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - cellType: H100-RACK
    cellChildren: [{cellAddress: dgx-1}, {cellAddress: dgx-2}, {cellAddress: dgx-3}, {cellAddress: dgx-4}]
  - {cellType: A10-NODE, cellAddress: a10-1, pinnedCellId: INFERENCE-A10}
  - {cellType: A10-NODE, cellAddress: a10-2}
virtualClusters:
  vision:
    virtualCells: [{cellType: H100-RACK.H100-NODE, cellNumber: 2}, {cellType: A10-NODE, cellNumber: 1}]
    namespaces: [{name: ns, maxPriority: 200}, {name: elsewhere}]
  foundation:
    virtualCells: [{cellType: H100-RACK.H100-NODE, cellNumber: 1}]
    namespaces: [{name: ns, maxPriority: 200}]
  inference:
    virtualCells: []
    pinnedCells: [{pinnedCellId: INFERENCE-A10}]
    namespaces: [{name: ns, maxPriority: 200}]
"""

READ = load_text(CONFIG, "office.yaml", environ={})

OPENS_S = 1_795_442_400.0
"""2026-11-23, 14:00 in UTC: every situation begins then."""

GRACE_S = 30.0
"""Pods that are evicted while the office is patient have so much time."""

KINDS = {"dgx-1": "h100", "dgx-2": "h100", "dgx-3": "h100", "dgx-4": "h100", "a10-1": "a10", "a10-2": "a10"}
"""The label `gpu` of each node."""

TURNS = 4
"""Rounds of kube-scheduler, in each of which it asks about every pod without a node."""


class Job(msgspec.Struct, frozen=True):
    """A job as its owner writes it: `shape` is pods x GPUs, such as 2x8 or 1x2+4x1.

    In our own words it is one affinity group; in those of a gang of another scheduler, a pod group. `missing` pods are
    not created yet. `selector` chooses nodes by labels. Its pods declare that they end after `limit_s`, unless it is 0.
    """

    name: str
    shape: str = "1x8"
    vc: str = "vision"
    priority: int = 0
    leaf_type: str = ""
    pinned: str = ""
    is_gang: bool = False
    missing: int = 0
    selector: Mapping[str, str] = {}
    may_move: bool = False
    is_gated: bool = False
    gate: str = "later"
    limit_s: int = 0
    namespace: str = "ns"
    more: Mapping[str, Any] = {}

    @property
    def sizes(self) -> list[int]:
        """The GPUs of each pod."""
        parts = (part.split("x") for part in self.shape.split("+"))
        return [int(size) for count, size in parts for _ in range(int(count))]

    @property
    def pods(self) -> list[str]:
        """The names of its pods that are created."""
        count = len(self.sizes)
        names = [self.name] if count == 1 else [f"{self.name}-{number}" for number in range(count)]
        return names[: count - self.missing]


class Office(SmallGangCluster):
    """See the module; kube-scheduler offers healthy nodes that a pod's selector chooses. The service evicts.

    Pods that are evicted leave at once, unless the office `is_patient`.
    """

    def __init__(self, cluster: ClusterSpec = READ.cluster, former: "Office | None" = None) -> None:
        """With the pods and nodes of a `former` office, whose service leads no more."""
        options: dict[str, Any] = {"rules": READ.rules, "preemption": PreemptionPolicy()}
        SmallCluster.__init__(self, spec=cluster, is_leading=False, **options)
        self.clock, self._held = 0, []
        self.jobs: dict[str, Job] = {}
        self.nodes: dict[str, Json] = {}
        self.is_patient = False
        if former is None:
            self.by_hand.at = OPENS_S
            for name in KINDS:
                self.node(name)
        else:
            self.kube, self.clock, self.jobs, self.nodes = former.kube, former.clock, former.jobs, former.nodes
            self.service = Service(cluster, self.kube, run=ByHand, **options)
            self.by_hand.at = former.by_hand.at
            self.service.sync_nodes([to_node(each) for each in self.nodes.values()])
            self.service.sync_pods([to_pod(pod) for pod in self.kube.pods.values()])
        self.lead()

    # What happens

    def node(
        self, name: str, *, is_ready: bool = True, is_cordoned: bool = False, taint: str = "", gpus: int | None = None
    ) -> None:
        """A node is like this from now on; with `gpus` devices, or all."""
        count = gpus if gpus is not None else int(KINDS[name] == "h100") * 4 + 4
        devices = {"nvidia.com/gpu": str(count), "pods": "110"}
        taints = [{"key": CORDON.key, "effect": CORDON.effect, "timeAdded": self._moment()}] if is_cordoned else []
        taints += [{"key": taint, "effect": "NoSchedule"}] if taint else []
        self.nodes[name] = {
            "metadata": {"name": name, "uid": f"node-{name}", "labels": {"gpu": KINDS[name]}},
            "spec": {"unschedulable": is_cordoned, "taints": taints},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True" if is_ready else "False", "lastTransitionTime": self._moment()}
                ],
                "allocatable": devices,
                "capacity": devices,
            },
        }
        self.service.node_seen(to_node(self.nodes[name]))

    def remove_node(self, name: str) -> None:
        """Kubernetes has the node no more."""
        self.service.node_gone(to_node(self.nodes.pop(name)))

    def evict(self, name: str) -> None:
        """The pods of a job have to leave."""
        for pod in self.jobs[name].pods:
            self.kube.evict_pod(self.jobs[name].namespace, pod)

    def submit(self, name: str, shape: str = "1x8", **more: Any) -> Job:
        """The pods of a job are created, and kube-scheduler asks about them."""
        job = self.jobs[name] = Job(name, shape, **more)
        for pod, size in zip(job.pods, job.sizes, strict=False):
            self._create(job, pod, size)
        self.go_on()
        return job

    def run(self, name: str, shape: str = "1x8", **more: Any) -> None:
        """The same of a job that starts at once."""
        job = self.submit(name, shape, **more)
        assert self.has_started(job.name), (name, self.placed())

    def end(self, name: str) -> None:
        """All pods of a job are gone."""
        for pod in self.jobs[name].pods:
            if pod in self.kube.pods:
                self.drop(pod)

    def go_on(self) -> None:
        """kube-scheduler asks about every pod without a node; kubelets start pods; pods that are evicted leave."""
        for _ in range(TURNS):
            self.settle(1)
            self.pass_time(5.0)
            self._start_placed()
            self._let_go()

    def _create(self, job: Job, pod: str, size: int) -> None:
        notes = {MAY_MOVE: "true"} if job.may_move else {}
        if job.is_gang:
            notes |= koordinator(job.name, len(job.sizes)) | {PRIORITY: str(job.priority)}
            notes |= {VIRTUAL_CLUSTER: job.vc} if job.vc else {}
            notes |= {LEAF_CELL_TYPE: job.leaf_type} if job.leaf_type else {}
            notes |= {PINNED_CELL: job.pinned} if job.pinned else {}
        else:
            notes[SCHEDULING_SPEC] = json.dumps(_asked(job, size) | dict(job.more))
        spec: Json = {"nodeSelector": dict(job.selector)} if job.selector else {}
        spec |= {"schedulingGates": [{"name": job.gate}]} if job.is_gated else {}
        spec |= {"activeDeadlineSeconds": job.limit_s} if job.limit_s else {}
        body = pod_json(pod, uid=self._uid(pod), annotations=notes)
        if job.is_gang:
            body["spec"]["containers"] = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": size}}}]
        body["spec"] |= {"schedulerName": "hived"} | spec
        body["metadata"] |= {"namespace": job.namespace, "creationTimestamp": self._moment()}
        self.kube.add(body)
        self.see(body)

    def _let_go(self) -> None:
        """Pods that are evicted leave, or begin to."""
        for _, name in self.kube.leaving:
            pod = self.kube.pods.get(name)
            if pod is not None and not self.is_patient:
                self.drop(name)
            elif pod is not None and "deletionTimestamp" not in pod["metadata"]:
                pod["metadata"]["deletionTimestamp"] = self._moment(GRACE_S)
                self.kube.touch(pod)
                self.see(pod)
        if not self.is_patient:
            self.kube.leaving.clear()

    def _start_placed(self) -> None:
        """The kubelet's part: pods that have a node run from now on."""
        for pod in self.kube.pods.values():
            if pod["spec"]["nodeName"] and "startTime" not in pod["status"]:
                pod["status"] |= {"phase": "Running", "startTime": self._moment()}
                self.kube.touch(pod)
                self.see(pod)

    def _moment(self, ahead_s: float = 0.0) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.by_hand.at + ahead_s))

    def _uid(self, pod: str) -> str:
        """Each pod has another one, even if an earlier one had its name."""
        self.clock += 1
        return f"uid-{self.clock}-{pod}"

    def filter(self, pod: Json, nodes: Any = None) -> Any:
        """Call filter with the nodes that kube-scheduler would offer."""
        chosen = pod["spec"].get("nodeSelector", {}).items()
        offered = [
            name
            for name, node in self.nodes.items()
            if to_node(node).is_healthy
            and not node["spec"].get("taints")
            and chosen <= node["metadata"]["labels"].items()
        ]
        return super().filter(pod, offered if nodes is None else nodes)

    def ask(self, name: str) -> str:
        """kube-scheduler asks about a pod, but not about one that is gated."""
        return "" if self.kube.pods[name]["spec"].get("schedulingGates") else super().ask(name)

    # What is seen

    def has_started(self, name: str) -> bool:
        """Have all pods of a job a node?"""
        return set(self.jobs[name].pods) <= self.placed().keys()

    def why(self, name: str) -> Why:
        """The answer of `hived why` for a job of ours."""
        return Answering(self.service, fresh_s=0.0).why(f"{self.jobs[name].namespace}/{self.jobs[name].pods[0]}")

    def try_changes(self, name: str, *changes: str) -> IfResult:
        """The answer of `hived why --if` for a job of ours."""
        return Answering(self.service, fresh_s=0.0).try_changes(f"ns/{self.jobs[name].pods[0]}", changes)

    def certificate(self, name: str) -> Certificate:
        """Why a job waits, and what would help."""
        found = self.why(name).certificate
        assert found is not None
        return found

    def told(self, name: str) -> list[str]:
        """The messages of the conditions that the service has written on the pods of a job."""
        pods = (self.kube.pods[pod] for pod in self.jobs[name].pods)
        return [one["message"] for pod in pods for one in pod["status"].get("conditions", ())]

    @staticmethod
    def named(name: str) -> str:
        """Our job that the service calls so."""
        return name.replace(":", "/").rpartition("/")[2]

    # What people do about it

    def carry_out(self, change: str, name: str) -> "Office":
        """Make a change that would help a job true; the office in which that is so."""
        kind, _, value = change.partition("=")
        job = self.jobs[name]
        self.is_patient = False
        if kind == "ends":
            for each in value.split(","):
                self.end(self.named(each))
        elif kind == "heal":
            for each in value.split(","):
                self.node(each)
        elif kind == "move":
            moved = [self.jobs[self.named(each)] for each in value.split(",")]
            for one in moved:
                self.end(one.name)
            self.go_on()
            assert self.has_started(name)
            for one in moved:
                self._submit_again(one)
                assert self.has_started(one.name)
        elif kind == "cells":
            office = self._restarted(value)
            office.go_on()
            return office
        else:
            self._submit_again(_rewritten(job, kind, value))
        self.go_on()
        return self

    def _submit_again(self, job: Job) -> None:
        self.end(job.name)
        self.submit(**msgspec.structs.asdict(job))

    def _restarted(self, value: str) -> "Office":
        """A service that begins to lead with what the API server has, under another configuration."""
        clusters = dict(self.state.spec.virtual_clusters)
        for one in value.split(","):
            vc, _, cells = one.rpartition(":")
            count, path = cells.split("x", 1)
            counts = {cell.cell_type: cell.cell_count for cell in clusters[vc].virtual_cells}
            counts[path] += int(count)
            own = tuple(VirtualCellSpec(name, number) for name, number in counts.items())
            clusters[vc] = with_fields(clusters[vc], virtual_cells=own)
        self.has_lease = False
        return Office(with_fields(self.state.spec, virtual_clusters=clusters), self)


def _asked(job: Job, size: int) -> Json:
    """The annotation of a pod of a job in our own words."""
    asked: Json = {"virtualCluster": job.vc, "leafCellNumber": size, "priority": job.priority}
    if len(job.sizes) > 1:
        counts = {each: job.sizes.count(each) for each in job.sizes}
        members = [{"podNumber": count, "leafCellNumber": each} for each, count in counts.items()]
        asked["affinityGroup"] = {"name": job.name, "members": members}
    asked |= {"leafCellType": job.leaf_type} if job.leaf_type else {}
    return asked | ({"pinnedCellId": job.pinned} if job.pinned else {})


def _rewritten(job: Job, kind: str, value: str) -> Job:
    """The job as its owner writes it after a change."""
    match kind:
        case "priority":
            return replace(job, priority=int(value))
        case "opportunistic":
            return replace(job, priority=-1, pinned="")
        case "vc":
            return replace(job, vc=value, pinned="")
        case "leafType":
            return replace(job, leaf_type=value, pinned="")
        case "pods":
            return replace(job, shape=value)
    raise AssertionError(kind)
