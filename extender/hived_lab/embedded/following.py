"""The view and the queue of the scheduler loop, kept up to date by three watches: nodes, pods, namespaces."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hived.errors import UserError
from hived_extender.kube.client import LIVE_PODS, NAMESPACES, NODES, PODS, KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import Reflector, Resource
from hived_extender.pods.namespaces import NAMESPACE_NAME
from hived_lab.embedded.feasibility import ClusterView, SeenNode, SeenPod
from hived_lab.embedded.scheduling_queue import Pace, SchedulingQueue

_JOIN_S = 2.0

Body = Mapping[str, Any]
T = TypeVar("T")

log = logging.getLogger(__name__)


class Following:
    """Follows a cluster from `start` to `stop`. `changed` guards the view and the queue; never held during a call."""

    def __init__(self, kube: KubeClient, pace: Pace) -> None:
        self.changed = threading.Condition()
        self.cluster = ClusterView()
        self.queue = SchedulingQueue(pace)
        self.failures: dict[str, str] = {}  # by uid; each is told as a warning once
        nodes = Resource(NODES, dict, self._sync_nodes, self._node_seen, self._node_gone)
        pods = Resource(PODS, dict, self._sync_pods, self._pod_seen, self._pod_gone, LIVE_PODS)
        namespaces = Resource(NAMESPACES, dict, self._sync_namespaces, self._namespace_seen, self._namespace_gone)
        metrics = Metrics()
        self._reflectors: list[Reflector[dict[str, Any]]] = [
            Reflector(kube, resource, metrics) for resource in (namespaces, nodes, pods)
        ]

    def start(self) -> None:
        """Read the cluster, then follow it."""
        listed = [reflector.relist() for reflector in self._reflectors]
        for reflector in self._reflectors:
            reflector.start()
        for done in listed:
            done.wait()

    def stop(self) -> None:
        """Take in nothing more; the watches end with their next event, at the latest with the client."""
        for reflector in self._reflectors:
            reflector.stop()

    def join(self) -> None:
        """Wait a moment for the watches to end."""
        for reflector in self._reflectors:
            reflector.join(_JOIN_S)

    def _sync_nodes(self, bodies: list[dict[str, Any]]) -> None:
        with self.changed:
            names = {body["metadata"]["name"] for body in bodies}
            for name in self.cluster.nodes.keys() - names:
                del self.cluster.nodes[name]
        for body in bodies:
            self._node_seen(body)

    def _node_seen(self, body: Body) -> None:
        node = _read(lambda: SeenNode.read(body))
        if node is None:
            return
        with self.changed:
            known = self.cluster.nodes.get(node.name)
            self.cluster.nodes[node.name] = node
            if known != node:
                self.wake_all()

    def _node_gone(self, body: Body) -> None:
        with self.changed:
            self.cluster.nodes.pop(body["metadata"]["name"], None)
            self.wake_all()

    def _sync_pods(self, bodies: list[dict[str, Any]]) -> None:
        uids = {body["metadata"]["uid"] for body in bodies}
        with self.changed:
            gone = [uid for uid in self.cluster.pods if uid not in uids]
        for uid in gone:
            self._forget(uid)
        for body in bodies:
            self._pod_seen(body)

    def _pod_seen(self, body: Body) -> None:
        pod = _read(lambda: SeenPod.read(body))
        if pod is None:
            return
        with self.changed:
            known = self.cluster.put_pod(pod)
            if pod.node and (known is None or _is_new_to_others(pod, known)):
                self._wake_choosy()
            if not pod.is_schedulable:
                self.queue.remove(pod.uid)
            elif not self.cluster.is_assumed(pod.uid):
                if pod.uid not in self.queue:
                    self.queue.add(pod.uid, pod.priority)
                elif known is None or pod.differs_besides_status(known):
                    self.queue.wake(pod.uid, time.monotonic())
                self.changed.notify_all()

    def _pod_gone(self, body: Body) -> None:
        self._forget(body["metadata"]["uid"])

    def _forget(self, uid: str) -> None:
        self.failures.pop(uid, None)
        with self.changed:
            self.cluster.remove_pod(uid)
            self.queue.remove(uid)
            self.wake_all()

    def wake_all(self) -> None:
        """Something happened that could help every pod; with the lock held."""
        self.queue.wake_all(time.monotonic())
        self.changed.notify_all()

    def _wake_choosy(self) -> None:
        """A pod runs, leaves or has other labels: that may help pods whose rules look at others."""
        for uid in self.cluster.choosy_pods():
            self.queue.wake(uid, time.monotonic())
        self.changed.notify_all()

    def _sync_namespaces(self, bodies: list[dict[str, Any]]) -> None:
        with self.changed:
            self.cluster.namespace_labels.clear()
        for body in bodies:
            self._namespace_seen(body)

    def _namespace_seen(self, body: Body) -> None:
        name = body["metadata"]["name"]
        with self.changed:
            self.cluster.namespace_labels[name] = {NAMESPACE_NAME: name, **body["metadata"].get("labels", {})}
            self._wake_choosy()

    def _namespace_gone(self, body: Body) -> None:
        with self.changed:
            self.cluster.namespace_labels.pop(body["metadata"]["name"], None)


def _is_new_to_others(pod: SeenPod, known: SeenPod) -> bool:
    """Tell whether a pod that has a node may mean something else to rules between pods than before."""
    return (pod.node, pod.is_terminating, pod.view.labels) != (known.node, known.is_terminating, known.view.labels)


def _read(read: Callable[[], T]) -> T | None:
    """Return what `read` makes of an object, None (and a log entry) if it is not what it should be."""
    try:
        return read()
    except UserError as error:
        log.error("an object is left out: %s", error)
        return None
