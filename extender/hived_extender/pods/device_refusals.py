"""Pods that the admission webhook refuses: they would use devices of hived's nodes that hived has not given them.

Pods of the cluster's own namespaces pass: of kube-system, and of namespaces with the label `EXEMPT`, such as that of an
operator whose pods test each device. Administrators label namespaces.
"""

import msgspec

from hived.cells.layout import build_topology
from hived.values.specs import ClusterSpec
from hived_config.rules import PodRules, names_for
from hived_extender.pods.annotations import PREFIX
from hived_extender.pods.node_selectors import NodeSelector
from hived_extender.pods.permissions import LabelsOf
from hived_extender.pods.requests import requested
from hived_extender.pods.wire import Pod

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of mirror pods. A mirror pod shows a static pod, which runs whether or not the API server knows it.

Anybody may write the annotation. It counts only if a kubelet creates the pod.
"""

SYSTEM_NAMESPACES = ("kube-system",)
EXEMPT, ALLOW = PREFIX + "foreign-devices", "allow"
"""Label of a namespace, and its value, whose pods may use devices past hived."""


class _NodeAffinity(msgspec.Struct):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class Refusals:
    """Refuses pods that ask for a resource, unless the configuration says otherwise by `foreignDevices`."""

    def __init__(self, cluster: ClusterSpec, rules: PodRules, labels_of: LabelsOf | None = None) -> None:
        """`labels_of` has the labels of namespaces. Cost O(cells) if any resource is refused, else nothing."""
        self._labels_of = labels_of
        means = rules.resources_in(cluster)
        self._types = {
            resource: [leaf_type for leaf_type, each in means.items() if each == resource]
            for resource in rules.refused_in(cluster)
        }
        self._nodes = frozenset(build_topology(cluster).node_names if self._types else ())
        self._node_labels = rules.node_labels
        self._names = names_for(rules.scheduler_names, cluster.virtual_clusters)

    def refusal(self, pod: Pod, *, is_ours: bool, is_by_kubelet: bool = False) -> str:
        """Why a pod that is created is refused, "" if it is not. `is_ours`: it gets cells, unless it names a node."""
        is_static = is_by_kubelet and MIRROR in pod.annotations
        if not self._types or (is_ours and not pod.node) or is_static or self._is_exempt(pod.metadata.namespace):
            return ""
        resource = next((name for name in self._types if requested(pod, name) > 0), "")
        node = pod.node or _daemon_node(pod)
        if not resource or (node and node not in self._nodes) or (not node and self._is_elsewhere(pod, resource)):
            return ""
        if pod.node:
            remedy = "leave nodeName out" + ("" if is_ours else f" and set schedulerName to {self._named()}")
        else:
            remedy = f"set schedulerName to {self._named()}"
        place = f"on node {node}" if node else "on the nodes of this cluster"
        return f"it asks for {resource}, which hived gives away {place}: {remedy}"

    def _is_exempt(self, namespace: str) -> bool:
        labels = (self._labels_of(namespace) if self._labels_of is not None else None) or {}
        return namespace in SYSTEM_NAMESPACES or labels.get(EXEMPT) == ALLOW

    def _named(self) -> str:
        return " or ".join(self._names[:3])

    def _is_elsewhere(self, pod: Pod, resource: str) -> bool:
        """Does its nodeSelector rule out the nodes of every leaf cell type of the resource, by their labels?"""
        selector = (pod.spec and pod.spec.node_selector) or {}
        labels = [self._node_labels.get(leaf_type, {}) for leaf_type in self._types[resource]]
        return all(any(selector.get(key, value) != value for key, value in each.items()) for each in labels)


def _daemon_node(pod: Pod) -> str:
    """The node that a DaemonSet has made a pod for, "" if none has."""
    try:
        affinity = msgspec.convert((pod.spec and pod.spec.affinity) or {}, _Affinity)
    except ValueError:
        return ""  # the API server refuses it, in its own words
    required = affinity.node_affinity and affinity.node_affinity.required
    return required.only_node if required else ""
