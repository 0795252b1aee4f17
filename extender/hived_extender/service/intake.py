"""Taking in what the watches tell: text is read first, then the machine gets the fact."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

from hived.values.errors import InvariantError
from hived_extender.kube.watch import drained
from hived_extender.pods.dialects.description import ObjectRef
from hived_extender.pods.readings import Texts
from hived_extender.pods.wire import Node, Pod
from hived_extender.service.machine import Machine
from hived_extender.service.runner import Runner
from hived_extender.service.stimuli import (
    DeviceObject,
    DeviceSeen,
    DevicesListed,
    NamespaceChanged,
    NodeSeen,
    NodesListed,
    ObjectSeen,
    PodGone,
    PodSeen,
    Stimulus,
)


class PodFollower(Protocol):
    """Is told of pods besides the machine, on the threads of watches."""

    def listed(self, pods: Iterable[Pod], /) -> None:
        """These are all pods."""

    def seen(self, pod: Pod, /) -> None:
        """A pod looks like this now, or did a moment ago."""

    def gone(self, uid: str, /) -> None:
        """A pod was deleted."""


class Intake:
    """Every method may be called from any thread, in any order, twice or late."""

    def __init__(self, machine: Machine, runner: Runner, texts: Texts) -> None:
        self.machine = machine
        self.runner = runner
        self._texts = texts
        self._pods = machine.cache.pods
        self._followers: list[PodFollower] = []

    def follow_pods(self, follower: PodFollower) -> None:
        """Tell somebody else of all pods, from the first one on: to be called before that."""
        self._followers.append(follower)

    def node_seen(self, node: Node) -> None:
        """A node exists and looks like this now."""
        self.tell(NodeSeen(node))

    def node_gone(self, node: Node) -> None:
        """A node does not exist any more."""
        self.tell(NodeSeen(node, is_gone=True))

    def sync_nodes(self, nodes: Iterable[Node]) -> None:
        """These are all nodes there are."""
        nodes = list(nodes)
        self.tell(NodesListed(tuple(node.metadata.name for node in nodes)))
        for node in drained(nodes):
            self.node_seen(node)

    def pod_seen(self, pod: Pod, *, is_listed: bool = False) -> None:
        """A pod exists and looks like this now; one that `is_listed` is sure to."""
        for each in self._followers:
            each.seen(pod)
        reading = self._texts.read(pod.metadata, node=pod.node, pod=pod)
        self.tell(PodSeen(pod, reading, is_listed))

    def pod_gone(self, uid: str) -> None:
        """A pod was deleted."""
        for each in self._followers:
            each.gone(uid)
        self.tell(PodGone(uid))

    def sync_pods(self, pods: Iterable[Pod]) -> None:
        """These are all pods there are."""
        pods = list(pods)
        for each in self._followers:
            each.listed(pods)
        present = {pod.metadata.uid for pod in pods}
        with self.runner.look() as machine:
            known = machine.cache.known_pods()
        for uid in known:
            if uid not in present:
                self.pod_gone(uid)
        for pod in drained(pods):
            self.pod_seen(pod, is_listed=True)

    def devices_listed(self, kind: type[DeviceObject], objects: Iterable[Any]) -> None:
        """These are all objects of dynamic resource allocation of a kind."""
        self.tell(DevicesListed(kind, tuple(objects)))

    def device_seen(self, item: DeviceObject, *, is_gone: bool = False) -> None:
        """An object of dynamic resource allocation looks like this now, or did when it went."""
        self.tell(DeviceSeen(item, is_gone))

    def object_seen(self, ref: ObjectRef) -> None:
        """An object that describes gangs was created, changed or deleted."""
        self.tell(ObjectSeen(ref))

    def namespace_changed(self, namespace: str) -> bool:
        """A namespace has other labels. True if its pods may do something else now, and have to be told anew."""
        return bool(self.tell(NamespaceChanged(namespace)))

    def tell(self, fact: Stimulus) -> Any:
        """Hand in a fact. A fault is on record, and nobody who tells a fact listens any more."""
        with suppress(InvariantError):
            return self.runner.handle(fact)
        return None

    def _read_late(self, pod: Pod) -> None:
        """The text of a pod has been read, which could not be when it was seen."""
        if self._pods.get(pod.metadata.uid) is not None:
            self.pod_seen(pod)
