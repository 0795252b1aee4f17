"""Pods and nodes for these tests, as JSON has them and as the rules see them."""

from typing import Any

import msgspec

from hived_extender.jobs.wire import Node, Pod
from hived_extender.kube_rules.demands import DemandsReader, RuledPod
from hived_extender.kube_rules.nodes import RuledNode

LARGE = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

reader = DemandsReader()


def make_pod(
    spec: dict[str, Any] | None = None,
    *,
    labels: dict[str, str] | None = None,
    namespace: str = "team",
    limits: dict[str, str] | None = None,
) -> RuledPod:
    """A pod with one container that has these limits."""
    containers = [{"name": "main", "resources": {"limits": limits or {}}}]
    metadata = {"name": "pod", "namespace": namespace, "labels": labels or {}}
    return reader.read_pod(
        msgspec.convert({"metadata": metadata, "spec": {"containers": containers, **(spec or {})}}, Pod)
    )


def wire_node(name: str = "n0", labels: dict[str, str] | None = None, **fields: Any) -> Node:
    """A node with its hostname and these labels; `allocatable` is its status, other fields are its spec."""
    allocatable = fields.pop("allocatable", LARGE)
    metadata = {"name": name, "labels": {HOSTNAME: name, **(labels or {})}}
    return msgspec.convert({"metadata": metadata, "spec": fields, "status": {"allocatable": allocatable}}, Node)


def make_node(name: str = "n0", labels: dict[str, str] | None = None, **fields: Any) -> RuledNode:
    """The same, as the rules see it."""
    return RuledNode.of(wire_node(name, labels, **fields))


def taint(effect: str = "NoSchedule", key: str = "gpu", value: str = "maintenance") -> dict[str, str]:
    """A taint."""
    return {"key": key, "value": value, "effect": effect}


def node_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    """The spec of a pod with required node affinity of these terms."""
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
        }
    }


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A requirement of a selector."""
    return {"key": key, "operator": operator, "values": list(values)}


def pod_affinity(kind: str, app: str = "train", key: str = HOSTNAME, **fields: Any) -> dict[str, Any]:
    """The spec of a pod with one required term of `podAffinity` or `podAntiAffinity`, meaning pods by label app."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **fields}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(max_skew: int = 1, key: str = ZONE, app: str = "train", **fields: Any) -> dict[str, Any]:
    """The spec of a pod with one topology spread constraint, counting pods by label app."""
    constraint = {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **fields,
    }
    return {"topologySpreadConstraints": [constraint]}


def host_port(port: int = 8080, ip: str = "", protocol: str = "TCP") -> dict[str, Any]:
    """The spec of a pod with a host port."""
    ports = [{"containerPort": 80, "hostPort": port, "hostIP": ip, "protocol": protocol}]
    return {"containers": [{"name": "main", "ports": ports}]}
