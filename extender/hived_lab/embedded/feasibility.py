"""The cluster as the scheduler loop last saw it: the nodes that a pod may use, the pods that it could displace."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from hived.errors import UserError
from hived_extender.kube_rules.demands import RuledPod
from hived_extender.kube_rules.neighbours import Refusal, refusals
from hived_extender.kube_rules.nodes import RuledNode
from hived_extender.kube_rules.reader import DemandsReader
from hived_extender.kube_rules.residents import Residents
from hived_extender.pods.wire import Node, Pod, PodSpec

NOT_READY = "node(s) were not ready"

_demands = DemandsReader(is_unbounded=True)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node as last seen."""

    is_ready: bool
    ruled: RuledNode

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "SeenNode":
        """Return the node in `body`; UserError if it is not one."""
        node = _read(body, Node)
        conditions = (node.status.conditions if node.status is not None else None) or ()
        is_ready = any(one.type == "Ready" and one.status == "True" for one in conditions)
        return cls(is_ready, RuledNode.read(node))

    @property
    def name(self) -> str:
        """Its name."""
        return self.ruled.name


@dataclass(frozen=True, slots=True, eq=False)
class SeenPod:
    """A pod as last seen: all of it for the extender, what the loop reads of it, and what rules look at."""

    body: Mapping[str, Any]
    view: Pod
    ruled: RuledPod

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "SeenPod":
        """Return the pod in `body`; UserError if it is not one."""
        view = _read(body, Pod)
        return cls(body, view, _demands.read(view))

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
        return self.view.node

    @property
    def priority(self) -> int:
        """Its Kubernetes priority."""
        return self._spec.priority or 0

    @property
    def never_preempts(self) -> bool:
        """Whether it displaces nobody."""
        return self._spec.preemption_policy == "Never"

    @property
    def nominated_node(self) -> str:
        """The node where room is being made for it, empty if none."""
        return (self.view.status.nominated_node if self.view.status is not None else None) or ""

    @property
    def is_terminating(self) -> bool:
        """Whether it is being deleted."""
        return bool(self.view.metadata.deletion_timestamp)

    @property
    def is_schedulable(self) -> bool:
        """Whether it waits for a node at all."""
        return not (self.node or self.is_terminating or self.view.is_held or self.view.has_completed)

    def differs_besides_status(self, other: "SeenPod") -> bool:
        """Tell whether somebody changed more of the pod than its status since `other`."""
        return _without_status(self.body) != _without_status(other.body)

    @property
    def _spec(self) -> PodSpec:
        return self.view.spec or PodSpec()


def _read(body: Mapping[str, Any], kind: type[T]) -> T:
    """Return `body` as a struct; UserError if it is not one."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"the object cannot be read as {kind.__name__}: {error}") from None


def _without_status(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {
        key: value for key, value in body["metadata"].items() if key not in ("resourceVersion", "managedFields")
    }
    return {"spec": body.get("spec"), "metadata": metadata}


class ClusterView:
    """Nodes, pods and namespaces as the watches reported them, and pods that were just bound. Not thread-safe."""

    def __init__(self) -> None:
        self.nodes: dict[str, SeenNode] = {}
        self.pods: dict[str, SeenPod] = {}
        self.namespace_labels: dict[str, Mapping[str, str]] = {}
        self._residents = Residents()
        # Bound by us and not yet seen with their node.
        self._assumed: set[str] = set()
        # Pods without a node for which it matters where others run, in the order in which they were seen.
        self._choosy: dict[str, None] = {}

    def put_pod(self, pod: SeenPod) -> SeenPod | None:
        """Take in the present state of a pod and return the one known before."""
        known = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        if pod.view.has_completed:
            self._residents.remove(pod.uid)
        elif pod.node:
            self._assumed.discard(pod.uid)
            self._choosy.pop(pod.uid, None)
            self._residents.put(pod.uid, pod.node, pod.ruled, is_leaving=pod.is_terminating)
        elif pod.ruled.demands.has_neighbour_rules:
            self._choosy[pod.uid] = None
        return known

    def remove_pod(self, uid: str) -> SeenPod | None:
        """Forget a pod and return what was known of it."""
        self._assumed.discard(uid)
        self._choosy.pop(uid, None)
        self._residents.remove(uid)
        return self.pods.pop(uid, None)

    def assume(self, pod: SeenPod, node: str) -> None:
        """The pod is being bound: it counts there from now on. A pod that is gone by now counts nowhere."""
        if pod.uid in self.pods:
            self._assumed.add(pod.uid)
            self._residents.put(pod.uid, node, pod.ruled)

    def take_back(self, uid: str) -> None:
        """The binding of a pod has failed; one that was seen with its node stays there."""
        if uid in self._assumed:
            self._assumed.discard(uid)
            self._residents.remove(uid)

    def is_assumed(self, uid: str) -> bool:
        """Tell whether the pod was bound and is not yet seen with its node."""
        return uid in self._assumed

    def choosy_pods(self) -> list[str]:
        """Return the uids of pods without a node that a pod elsewhere may help, by affinity or topology spread."""
        return list(self._choosy)

    def refused_nodes(self, pod: SeenPod) -> dict[str, Refusal]:
        """Return the nodes that `pod` may not use now, and why."""
        ruled = {name: node.ruled for name, node in self.nodes.items()}
        refused = refusals(pod.ruled, ruled, self._residents, self.namespace_labels)
        return refused | {
            name: Refusal((NOT_READY,), is_final=True) for name, node in self.nodes.items() if not node.is_ready
        }

    def preemption_candidates(self, pod: SeenPod, nodes: Iterable[str]) -> dict[str, list[str]]:
        """Return those of `nodes` with pods of lower priority than `pod`, each with the uids of these.

        Like kube-scheduler, which offers an extender no other node.
        """
        lower = {
            node: sorted(uid for uid in self._residents.on(node) if self.pods[uid].priority < pod.priority)
            for node in nodes
        }
        return {node: uids for node, uids in lower.items() if uids}

    def may_preempt(self, pod: SeenPod) -> bool:
        """Tell whether `pod` may displace others now: its policy allows it and no earlier victim is still leaving."""
        return not (
            pod.never_preempts or any(other.is_leaving for other in self._residents.on(pod.nominated_node).values())
        )

    def choose_victims(self, victims_by_node: Mapping[str, list[str]]) -> tuple[str, list[SeenPod]]:
        """Return the node where preemption hurts least, and the victims there that are still known.

        Compared in this order: highest priority among the victims, sum of priorities, number of victims, node name.
        """

        def harm(node: str) -> tuple[int, int, int, str]:
            priorities = [self.pods[uid].priority for uid in victims_by_node[node] if uid in self.pods]
            return max(priorities, default=0), sum(priorities), len(priorities), node

        node = min(victims_by_node, key=harm)
        return node, [self.pods[uid] for uid in victims_by_node[node] if uid in self.pods]


def explain(nodes: Iterable[str], reasons: Mapping[str, Sequence[str]]) -> str:
    """Return why a pod fits nowhere, as kube-scheduler words it.

    Reasons of nodes are counted; a reason under a key that is no node stands by itself.
    """
    known = set(nodes)
    counts = Counter(reason for name, each in reasons.items() if name in known for reason in each)
    parts = [reason for name, each in sorted(reasons.items()) if name not in known for reason in each]
    parts += sorted(f"{count} {reason}" for reason, count in counts.items())
    text = f"0/{len(known)} nodes are available"
    return f"{text}: {', '.join(parts)}." if parts else f"{text}."
