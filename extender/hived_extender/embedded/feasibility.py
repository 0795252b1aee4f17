"""What the scheduler loop knows by itself: the cluster as last seen, nodes a pod may use, pods it could displace."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hived_extender.embedded.apiserver import models
from hived_extender.embedded.apiserver.models import view_of

NOT_READY = "node(s) were not ready"
UNSCHEDULABLE = "node(s) were unschedulable"
SELECTOR_MISMATCH = "node(s) didn't match Pod's node affinity/selector"


@dataclass(frozen=True, slots=True, eq=False)
class SeenPod:
    """A pod as last seen: all of it for the extender, and a view for the loop."""

    body: Mapping[str, Any]
    view: models.Pod

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "SeenPod":
        """Return the pod in `body`; ApiError if it is not one."""
        return cls(body, view_of(body, models.Pod))

    @property
    def uid(self) -> str:
        """The pod's identity."""
        return self.view.metadata.uid

    @property
    def label(self) -> str:
        """`namespace/name`."""
        return f"{self.view.metadata.namespace}/{self.view.metadata.name}"

    @property
    def node(self) -> str:
        """The node it is bound to, empty if none."""
        return self.view.spec.node_name

    @property
    def priority(self) -> int:
        """Its Kubernetes priority."""
        return self.view.spec.priority or 0

    @property
    def is_terminating(self) -> bool:
        """Whether it is being deleted."""
        return bool(self.view.metadata.deletion_timestamp)

    @property
    def is_schedulable(self) -> bool:
        """Whether it waits for a node at all."""
        return not (self.node or self.is_terminating or self.view.spec.scheduling_gates or self.view.is_finished)

    def differs_besides_status(self, other: "SeenPod") -> bool:
        """Tell whether somebody changed more of the pod than its status since `other`."""
        return _without_status(self.body) != _without_status(other.body)


def _without_status(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {
        key: value for key, value in body["metadata"].items() if key not in ("resourceVersion", "managedFields")
    }
    return {"spec": body.get("spec"), "metadata": metadata}


class ClusterView:
    """Nodes and pods as the watches reported them. Not thread-safe."""

    def __init__(self) -> None:
        self.nodes: dict[str, models.Node] = {}
        self.pods: dict[str, SeenPod] = {}
        self._bound: dict[str, dict[str, SeenPod]] = {}

    def put_pod(self, pod: SeenPod) -> SeenPod | None:
        """Take in the present state of a pod and return the one known before."""
        known = self.remove_pod(pod.uid)
        self.pods[pod.uid] = pod
        if pod.node:
            self._bound.setdefault(pod.node, {})[pod.uid] = pod
        return known

    def remove_pod(self, uid: str) -> SeenPod | None:
        """Forget a pod and return what was known of it."""
        known = self.pods.pop(uid, None)
        if known is not None and known.node:
            del self._bound[known.node][uid]
        return known

    def feasible_nodes(self, pod: SeenPod) -> tuple[list[str], dict[str, str]]:
        """Return the nodes that `pod` may use, ascending, and why not for each of the others."""
        feasible, refused = [], {}
        for name in sorted(self.nodes):
            reason = _refusal(self.nodes[name], pod)
            if reason:
                refused[name] = reason
            else:
                feasible.append(name)
        return feasible, refused

    def preemption_candidates(self, pod: SeenPod, nodes: Iterable[str]) -> dict[str, list[str]]:
        """Return those of `nodes` that run anything, each with the uids of its pods of lower priority than `pod`.

        A node without any of lower priority is offered too, with an empty list: the extender knows priorities of its
        own, and a pod that it has preempted lazily may go though its Kubernetes priority is not lower.
        """
        return {
            node: sorted(other.uid for other in self._bound[node].values() if other.priority < pod.priority)
            for node in nodes
            if self._bound.get(node)
        }

    def may_preempt(self, pod: SeenPod) -> bool:
        """Tell whether `pod` may displace others now: its policy allows it and no earlier victim is still leaving."""
        if pod.view.spec.preemption_policy == "Never":
            return False
        nominated = pod.view.status.nominated_node_name
        return not any(other.is_terminating for other in self._bound.get(nominated, {}).values())

    def choose_victims(self, victims_by_node: Mapping[str, list[str]]) -> tuple[str, list[SeenPod]]:
        """Return the node where preemption hurts least, and the victims there that are still known.

        Compared in this order: highest priority among the victims, sum of priorities, number of victims, node name.
        """

        def harm(node: str) -> tuple[int, int, int, str]:
            priorities = [self.pods[uid].priority for uid in victims_by_node[node] if uid in self.pods]
            return max(priorities, default=0), sum(priorities), len(priorities), node

        node = min(victims_by_node, key=harm)
        return node, [self.pods[uid] for uid in victims_by_node[node] if uid in self.pods]


def _refusal(node: models.Node, pod: SeenPod) -> str:
    if not any(one.type == "Ready" and one.status == "True" for one in node.status.conditions):
        return NOT_READY
    if node.spec.unschedulable:
        return UNSCHEDULABLE
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.view.spec.node_selector.items()):
        return SELECTOR_MISMATCH
    return ""


def explain(node_count: int, reasons: Mapping[str, str], known_nodes: Iterable[str]) -> str:
    """Return why a pod fits nowhere, as kube-scheduler words it.

    Reasons of nodes are counted; a reason under a key that is no node stands by itself.
    """
    nodes = set(known_nodes)
    counts = Counter(reason for name, reason in reasons.items() if name in nodes)
    parts = [*(reason for name, reason in sorted(reasons.items()) if name not in nodes)]
    parts += sorted(f"{count} {reason}" for reason, count in counts.items())
    text = f"0/{node_count} nodes are available"
    return f"{text}: {', '.join(parts)}." if parts else f"{text}."
