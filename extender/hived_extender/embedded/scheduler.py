"""The scheduler loop of the embedded cluster: it treats the extender as kube-scheduler does.

One thread takes pod after pod from the queue: own feasibility, then the filter verb, then the bind verb; if no node is
left, the preempt verb, whose victims it deletes. Two more threads watch nodes and pods. The extender is asked about
every pod, and says itself which are none of its own. The loop serves every pod, whatever its `schedulerName`: no other
scheduler is there.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hived_extender.embedded.apiserver import models
from hived_extender.embedded.apiserver.kinds import set_condition
from hived_extender.embedded.apiserver.models import view_of
from hived_extender.embedded.apiserver.statuses import ApiError
from hived_extender.embedded.extender_client import ExtenderClient, ExtenderError, Filtered
from hived_extender.embedded.feasibility import ClusterView, SeenPod, explain
from hived_extender.embedded.scheduling_queue import Pace, SchedulingQueue
from hived_extender.kube import LIVE_PODS, NODES, PODS, KubeClient, KubeError, pod_path
from hived_extender.metrics import Metrics
from hived_extender.pod_events import NORMAL, WARNING, EventRecorder
from hived_extender.watch import Reflector, Resource

DEFAULT_EXTENDER_TIMEOUT_S = 60.0
COMPONENT = "default-scheduler"
_JOIN_S = 2.0

Body = Mapping[str, Any]
T = TypeVar("T")

log = logging.getLogger(__name__)


class Scheduler:
    """A scheduler loop over one API server and one extender, from `start` to `stop`."""

    def __init__(
        self, kube: KubeClient, extender_url: str, pace: Pace, extender_timeout_s: float = DEFAULT_EXTENDER_TIMEOUT_S
    ) -> None:
        self._kube = kube
        self._extender = ExtenderClient(extender_url, extender_timeout_s)
        self._events = EventRecorder(kube, COMPONENT)
        self._stop = threading.Event()
        # Guards the view, the queue and `_assumed`; never held during a call.
        self._changed = threading.Condition()
        self._cluster = ClusterView()
        self._queue = SchedulingQueue(pace)
        # Bound by us and not yet seen with their node.
        self._assumed: set[str] = set()
        self._reflectors: list[Reflector[dict[str, Any]]] = []
        self._worker = threading.Thread(target=self._run, name="embedded-scheduler", daemon=True)

    def start(self) -> None:
        """Read the cluster, then follow it and schedule."""
        metrics = Metrics()
        nodes = Resource(NODES, dict, self._sync_nodes, self._node_seen, self._node_gone)
        pods = Resource(PODS, dict, self._sync_pods, self._pod_seen, self._pod_gone, LIVE_PODS)
        self._reflectors = [Reflector(self._kube, resource, metrics) for resource in (nodes, pods)]
        listed = [reflector.relist() for reflector in self._reflectors]
        for reflector in self._reflectors:
            reflector.start()
        for done in listed:
            done.wait()
        self._worker.start()

    def stop(self) -> None:
        """Let go of the pod in hand and stop; the watches end with their next event, at the latest with the client."""
        self._stop.set()
        for reflector in self._reflectors:
            reflector.stop()
        self._extender.abort()
        with self._changed:
            self._changed.notify_all()
        if self._worker.ident is not None:
            self._worker.join()

    def join(self) -> None:
        """Wait a moment for the watches to end."""
        for reflector in self._reflectors:
            reflector.join(_JOIN_S)

    # What the watches report

    def _sync_nodes(self, bodies: list[dict[str, Any]]) -> None:
        with self._changed:
            names = {body["metadata"]["name"] for body in bodies}
            for name in self._cluster.nodes.keys() - names:
                del self._cluster.nodes[name]
        for body in bodies:
            self._node_seen(body)

    def _node_seen(self, body: Body) -> None:
        node = _read(lambda: view_of(body, models.Node))
        if node is None:
            return
        with self._changed:
            known = self._cluster.nodes.get(node.metadata.name)
            self._cluster.nodes[node.metadata.name] = node
            if known is None or _is_new_to_scheduling(node, known):
                self._wake_all()

    def _node_gone(self, body: Body) -> None:
        with self._changed:
            self._cluster.nodes.pop(body["metadata"]["name"], None)
            self._wake_all()

    def _sync_pods(self, bodies: list[dict[str, Any]]) -> None:
        uids = {body["metadata"]["uid"] for body in bodies}
        with self._changed:
            gone = [uid for uid in self._cluster.pods if uid not in uids]
        for uid in gone:
            self._forget(uid)
        for body in bodies:
            self._pod_seen(body)

    def _pod_seen(self, body: Body) -> None:
        pod = _read(lambda: SeenPod.read(body))
        if pod is None:
            return
        with self._changed:
            known = self._cluster.put_pod(pod)
            if pod.node:
                self._assumed.discard(pod.uid)
            if not pod.is_schedulable:
                self._queue.remove(pod.uid)
            elif pod.uid not in self._assumed:
                if pod.uid not in self._queue:
                    self._queue.add(pod.uid, pod.priority)
                elif known is None or pod.differs_besides_status(known):
                    self._queue.wake(pod.uid, time.monotonic())
                self._changed.notify_all()

    def _pod_gone(self, body: Body) -> None:
        self._forget(body["metadata"]["uid"])

    def _forget(self, uid: str) -> None:
        with self._changed:
            self._cluster.remove_pod(uid)
            self._queue.remove(uid)
            self._assumed.discard(uid)
            self._wake_all()

    def _wake_all(self) -> None:
        self._queue.wake_all(time.monotonic())
        self._changed.notify_all()

    # The loop

    def _run(self) -> None:
        while not self._stop.is_set():
            pod = self._next_pod()
            if pod is None:
                continue
            try:
                self._schedule(pod)
            except Exception:
                log.exception("scheduling %s failed", pod.label)
                self._later(self._queue.defer, pod)

    def _next_pod(self) -> SeenPod | None:
        """Return the next pod, in flight; None after a wait in which none became due."""
        with self._changed:
            uid = self._queue.pop(time.monotonic())
            if uid is None:
                due = self._queue.next_due()
                if not self._stop.is_set():  # else nobody notifies any more
                    self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))
                return None
            return self._cluster.pods[uid]

    def _schedule(self, pod: SeenPod) -> None:
        with self._changed:
            feasible, reasons = self._cluster.feasible_nodes(pod)
            node_names = list(self._cluster.nodes)
        try:
            filtered = self._filter(pod, feasible)
            if filtered.nodes:
                self._bind(pod, filtered.nodes[0])
                return
            self._preempt(pod, filtered, feasible)
        except (ExtenderError, KubeError) as error:
            log.warning("scheduling %s failed: %s", pod.label, error)
            self._later(self._queue.defer, pod)
            self._report_failure(pod, "SchedulerError", str(error))
            return
        self._later(self._queue.park, pod)
        reasons |= filtered.failed | filtered.unresolvable
        self._report_failure(pod, "Unschedulable", explain(len(node_names), reasons, node_names))

    def _filter(self, pod: SeenPod, feasible: list[str]) -> Filtered:
        """Return the nodes that the extender leaves; a nominated node is tried alone first."""
        if not feasible:
            return Filtered(feasible, {}, {})
        nominated = pod.view.status.nominated_node_name
        if nominated in feasible:
            filtered = self._extender.filter(pod.body, [nominated])
            if filtered.nodes:
                return filtered
        return self._extender.filter(pod.body, feasible)

    def _bind(self, pod: SeenPod, node: str) -> None:
        meta = pod.view.metadata
        with self._changed:
            self._assumed.add(pod.uid)
        try:
            self._extender.bind(meta.namespace, meta.name, meta.uid, node)
        except (ExtenderError, KubeError):
            with self._changed:
                self._assumed.discard(pod.uid)
            raise
        with self._changed:
            self._queue.remove(pod.uid)
        self._tell(pod, NORMAL, "Scheduled", f"Successfully assigned {pod.label} to {node}")

    def _preempt(self, pod: SeenPod, filtered: Filtered, feasible: list[str]) -> None:
        """Make room for `pod` on one node, if the extender names victims there, and nominate it."""
        with self._changed:
            if not self._cluster.may_preempt(pod):
                return
            resolvable = [node for node in feasible if node not in filtered.unresolvable]
            candidates = self._cluster.preemption_candidates(pod, resolvable)
        if not candidates:
            return
        victims_by_node = self._extender.preempt(pod.body, candidates)
        if not victims_by_node:
            self._nominate(pod, "")
            return
        with self._changed:
            node, victims = self._cluster.choose_victims(victims_by_node)
        for victim in victims:
            self._evict(victim, pod, node)
        self._nominate(pod, node)

    def _evict(self, victim: SeenPod, preemptor: SeenPod, node: str) -> None:
        if victim.is_terminating:
            return
        meta, message = victim.view.metadata, f"Preempted by pod {preemptor.uid} on node {node}"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": message,
        }
        try:
            self._patch_condition(victim, condition)
            self._kube.delete_pod(meta.namespace, meta.name, uid=meta.uid)
        except KubeError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
        self._tell(victim, NORMAL, "Preempted", message)

    def _nominate(self, pod: SeenPod, node: str) -> None:
        if pod.view.status.nominated_node_name != node:
            self._patch_status(pod, {"nominatedNodeName": node or None})

    # What becomes known of it

    def _later(self, how: Callable[[str, float], None], pod: SeenPod) -> None:
        with self._changed:
            how(pod.uid, time.monotonic())

    def _report_failure(self, pod: SeenPod, reason: str, message: str) -> None:
        self._tell(pod, WARNING, "FailedScheduling", message)
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        known = next((one for one in pod.view.status.conditions if one.type == "PodScheduled"), models.Condition())
        if (known.status, known.reason, known.message) == ("False", reason, message):
            return
        try:
            self._patch_condition(pod, condition)
        except KubeError as error:
            log.info("the condition of %s is not written: %s", pod.label, error)

    def _tell(self, pod: SeenPod, event_type: str, reason: str, message: str) -> None:
        """Write an event; one that cannot be written is forgotten."""
        try:
            self._events.record(pod.view.metadata, event_type, reason, message)
        except KubeError as error:
            log.info("the event %s about %s is lost: %s", reason, pod.label, error)

    def _patch_condition(self, pod: SeenPod, condition: Mapping[str, str]) -> None:
        """Write one condition and leave those of others alone, whatever they are by now."""
        conditions = set_condition(pod.body.get("status", {}), dict(condition))["conditions"]
        self._patch_status(pod, {"conditions": [one for one in conditions if one["type"] == condition["type"]]})

    def _patch_status(self, pod: SeenPod, status: Mapping[str, Any]) -> None:
        meta = pod.view.metadata
        body = {"metadata": {"uid": meta.uid}, "status": status}
        self._kube.patch_lists(f"{pod_path(meta.namespace, meta.name)}/status", body)


def _is_new_to_scheduling(node: models.Node, known: models.Node) -> bool:
    return (
        node.metadata.labels != known.metadata.labels
        or node.spec != known.spec
        or node.status.allocatable != known.status.allocatable
        or _readiness(node) != _readiness(known)
    )


def _readiness(node: models.Node) -> str:
    return next((one.status for one in node.status.conditions if one.type == "Ready"), "")


def _read(read: Callable[[], T]) -> T | None:
    """Return what `read` makes of an object, None (and a log entry) if it is not what it should be."""
    try:
        return read()
    except ApiError as error:
        log.error("an object is left out: %s", error)
        return None
