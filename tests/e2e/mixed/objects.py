"""The objects that the workload creates: pods of ours and of others, DaemonSets, volumes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hived_config.skus import GPU_RESOURCE
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.asks import PRIORITY as ASKED_PRIORITY
from hived_extender.jobs.asks import VIRTUAL_CLUSTER
from hived_extender.jobs.kinds import koordinator
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_jobs.submission import SCHEDULER
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.e2e.mixed import facts

Json = dict[str, Any]

NAMESPACE = "/api/v1/namespaces/default"
CLAIMS, VOLUMES = f"{NAMESPACE}/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DAEMON_SETS = "/apis/apps/v1/namespaces/default/daemonsets"
STORAGE, HOSTNAME, MAINTENANCE = "mixed-local", "kubernetes.io/hostname", "mixed/maintenance"


@dataclass(frozen=True, slots=True)
class Job:
    """Pods of ours that start together. With `is_hiveds` they say so in HiveD's annotation, else in Koordinator's."""

    name: str
    vc: str
    priority: int
    gpus: int
    run_s: int
    pod_count: int = 1
    is_apart: bool = False
    is_hiveds: bool = False
    is_tolerant: bool = False
    has_volume: bool = False

    def pods(self) -> list[Json]:
        """Its pods, to create."""
        return [self._pod(number) for number in range(self.pod_count)]

    def _pod(self, number: int) -> Json:
        notes = self._asks() | {
            RUN_SECONDS: str(self.run_s),
            facts.VC: self.vc,
            facts.PRIORITY: str(self.priority),
            facts.PODS: str(self.pod_count),
        }
        spec: Json = {"terminationGracePeriodSeconds": 1}
        if self.is_apart:
            notes[facts.APART] = "true"
            term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {facts.JOB: self.name}}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if self.is_tolerant:
            spec["tolerations"] = [{"key": MAINTENANCE, "operator": "Exists"}]
        if self.has_volume:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": self.name}}]
        limits = {ENABLE_LIMIT: "1"} if self.is_hiveds else {}
        return gpu_pod(f"{self.name}-{number}", self.gpus, SCHEDULER, notes, {facts.JOB: self.name}, limits, **spec)

    def _asks(self) -> dict[str, str]:
        if self.is_hiveds:
            asked = {"virtualCluster": self.vc, "priority": self.priority, "leafCellNumber": self.gpus}
            members = [{"podNumber": self.pod_count, "leafCellNumber": self.gpus}]
            return {SCHEDULING_SPEC: json.dumps(asked | {"affinityGroup": {"name": self.name, "members": members}})}
        asks = {VIRTUAL_CLUSTER: self.vc, ASKED_PRIORITY: str(self.priority)}
        if self.pod_count > 1:
            asks |= {koordinator.GANG_NAME: self.name, koordinator.MINIMUM: str(self.pod_count)}
        return asks


def gpu_pod(
    name: str,
    gpus: int,
    scheduler: str,
    annotations: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A pod of anybody."""
    resources = {"limits": {GPU_RESOURCE: str(gpus), **(limits or {})}}
    return {
        "metadata": {"name": name, "annotations": dict(annotations), "labels": dict(labels or {})},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **spec,
        },
    }


def daemon_set(name: str, nodes: Sequence[str], gpus: int) -> Json:
    """One whose pods take devices on some nodes."""
    labels = {"daemon": name}
    template = gpu_pod("", gpus, "default-scheduler", {}, labels, affinity=node_affinity(nodes))
    del template["metadata"]["name"]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def node_affinity(nodes: Sequence[str]) -> Json:
    """These nodes and no others."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _terms(nodes)}}


def storage_class() -> Json:
    """Volumes that are bound when a pod that wants one has a node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def claim(name: str) -> Json:
    """The claim by which a pod wants a volume."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": STORAGE,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def volume(name: str, node: str) -> Json:
    """A disk of one node, for the claim of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": STORAGE,
            "claimRef": {"namespace": "default", "name": name},
            "local": {"path": "/data"},
            "nodeAffinity": {"required": _terms([node])},
        },
    }


def _terms(nodes: Sequence[str]) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(nodes)}]}]}
