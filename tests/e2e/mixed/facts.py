"""The observer's record of nodes and pods: each version that the API server stored, as a small value.

`version` is the resourceVersion, which is one order for all objects of a control plane; `at` is when the observer heard
of it, in seconds. A version that `is_listed` came with a list: there may have been others before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hived_config.skus import GPU_RESOURCE
from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION

Json = dict[str, Any]

JOB, VC, PRIORITY, PODS, APART = "mixed/job", "mixed/vc", "mixed/priority", "mixed/pods", "mixed/apart"
"""Of our pods, the first a label, the others annotations: which job, virtual cluster, HiveD priority, how many start
together; and whether these have required anti-affinity by hostname."""

COMPLETED = ("Succeeded", "Failed")
OPPORTUNISTIC = -1


@dataclass(frozen=True, slots=True)
class Taint:
    """One that keeps pods away: its effect is NoSchedule or NoExecute."""

    key: str
    value: str
    effect: str

    def is_tolerated(self, tolerations: tuple[Mapping[str, str], ...]) -> bool:
        """Whether one of a pod's tolerations, as Kubernetes spells them, is for it."""
        return any(self._matches(one) for one in tolerations)

    def _matches(self, one: Mapping[str, str]) -> bool:
        if one.get("effect") not in (None, "", self.effect) or one.get("key") not in (None, "", self.key):
            return False
        return one.get("operator") == "Exists" or (one.get("key") == self.key and one.get("value", "") == self.value)


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """One version of a node; `devices` are those that it offers of its `capacity`."""

    name: str
    version: int
    at: float
    devices: int
    capacity: int
    taints: tuple[Taint, ...] = ()
    is_ready: bool = True
    is_gone: bool = False
    is_listed: bool = False

    def admits(self, pod: "PodSeen") -> bool:
        """Whether the pod tolerates all its taints; a cordon is one of them."""
        return not self.is_gone and all(taint.is_tolerated(pod.tolerations) for taint in self.taints)


@dataclass(frozen=True, slots=True)
class PodSeen:
    """One version of a pod. `job` and what follows is empty for pods of others; `leaves` are numbers of devices."""

    uid: str
    name: str
    version: int
    at: float
    node: str = ""
    devices: int = 0
    leaves: tuple[str, ...] = ()
    job: str = ""
    vc: str = ""
    priority: int = 0
    mates: int = 1
    is_apart: bool = False
    tolerations: tuple[Mapping[str, str], ...] = ()
    has_volumes: bool = False
    is_completed: bool = False
    is_leaving: bool = False
    is_gone: bool = False
    is_listed: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether the service under test has to place it."""
        return bool(self.job)

    @property
    def is_running(self) -> bool:
        """Whether it has its devices."""
        return bool(self.node) and not self.is_completed and not self.is_gone

    @property
    def is_waiting(self) -> bool:
        """Whether it wants a node."""
        return not (self.node or self.is_completed or self.is_leaving or self.is_gone)

    @property
    def is_guaranteed(self) -> bool:
        """Whether it uses its VC's share."""
        return self.is_ours and self.priority > OPPORTUNISTIC


Seen = NodeSeen | PodSeen


def node_seen(found: Json, at: float, *, is_gone: bool = False, is_listed: bool = False) -> NodeSeen:
    """A version of a node, from the API's object."""
    metadata, status = found["metadata"], found.get("status", {})
    conditions = status.get("conditions") or ()
    taints = found.get("spec", {}).get("taints") or ()
    return NodeSeen(
        name=metadata["name"],
        version=int(metadata["resourceVersion"]),
        at=at,
        devices=int((status.get("allocatable") or {}).get(GPU_RESOURCE, 0)),
        capacity=int((status.get("capacity") or {}).get(GPU_RESOURCE, 0)),
        taints=tuple(
            Taint(one["key"], one.get("value", ""), one["effect"])
            for one in taints
            if one["effect"] in ("NoSchedule", "NoExecute")
        ),
        is_ready=any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
        is_gone=is_gone,
        is_listed=is_listed,
    )


def pod_seen(found: Json, at: float, *, is_gone: bool = False, is_listed: bool = False) -> PodSeen:
    """A version of a pod, from the API's object."""
    metadata, spec = found["metadata"], found["spec"]
    notes = metadata.get("annotations") or {}
    limits = [one.get("resources", {}).get("limits") or {} for one in spec["containers"]]
    return PodSeen(
        uid=metadata["uid"],
        name=metadata["name"],
        version=int(metadata["resourceVersion"]),
        at=at,
        node=spec.get("nodeName", ""),
        devices=sum(int(one.get(GPU_RESOURCE, 0)) for one in limits),
        leaves=tuple(part for part in notes.get(LEAF_CELL_ISOLATION, "").split(",") if part),
        job=(metadata.get("labels") or {}).get(JOB, ""),
        vc=notes.get(VC, ""),
        priority=int(notes.get(PRIORITY, 0)),
        mates=int(notes.get(PODS, 1)),
        is_apart=APART in notes,
        tolerations=tuple(spec.get("tolerations") or ()),
        has_volumes=any("persistentVolumeClaim" in one for one in spec.get("volumes") or ()),
        is_completed=found.get("status", {}).get("phase") in COMPLETED,
        is_leaving="deletionTimestamp" in metadata,
        is_gone=is_gone,
        is_listed=is_listed,
    )
