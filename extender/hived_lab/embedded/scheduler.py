"""The scheduler loop of the embedded cluster: it treats the extender as kube-scheduler does.

One thread takes pod after pod from the queue: own feasibility, then the filter verb, then, on a thread of its own, the
bind verb. If no node is left, it calls the preempt verb, whose victims it deletes. `following` keeps the view and the
queue up to date. The extender is asked about every pod, and says itself which are none of its own. The loop serves
every pod, whatever its `schedulerName`: no other scheduler is there.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_extender.kube.events import NORMAL, WARNING, EventRecorder
from hived_extender.kube.logs import tell_failure
from hived_extender.pods.wire import PodCondition
from hived_lab.embedded.apiserver.kinds import set_condition
from hived_lab.embedded.extender_client import MOST_CALLS, ExtenderClient, ExtenderError, Filtered
from hived_lab.embedded.feasibility import SeenPod, explain
from hived_lab.embedded.following import Following
from hived_lab.embedded.scheduling_queue import Pace

DEFAULT_EXTENDER_TIMEOUT_S = 60.0
COMPONENT = "default-scheduler"

log = logging.getLogger(__name__)


class Scheduler:
    """A scheduler loop over one API server and one extender, from `start` to `stop`."""

    def __init__(
        self, kube: KubeClient, extender_url: str, pace: Pace, extender_timeout_s: float = DEFAULT_EXTENDER_TIMEOUT_S
    ) -> None:
        self._kube = kube
        self._extender = ExtenderClient(extender_url, extender_timeout_s)
        self._bindings = ThreadPoolExecutor(MOST_CALLS, "embedded-bind")  # an extender may hold one back
        self._events = EventRecorder(kube, COMPONENT)
        self._stop = threading.Event()
        self._following = Following(kube, pace)
        self._changed = self._following.changed
        self._cluster = self._following.cluster
        self._queue = self._following.queue
        self._worker = threading.Thread(target=self._run, name="embedded-scheduler", daemon=True)

    def start(self) -> None:
        """Read the cluster, then follow it and schedule."""
        self._following.start()
        self._worker.start()

    def stop(self) -> None:
        """Let go of the pod in hand and stop; the watches end with their next event, at the latest with the client."""
        self._stop.set()
        self._following.stop()
        self._extender.abort()
        with self._changed:
            self._changed.notify_all()
        if self._worker.ident is not None:
            self._worker.join()
        self._bindings.shutdown(wait=True, cancel_futures=True)

    def join(self) -> None:
        """Wait a moment for the watches to end."""
        self._following.join()

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
            refused = self._cluster.refused_nodes(pod)
            nodes = sorted(self._cluster.nodes)
        feasible = [name for name in nodes if name not in refused]
        try:
            filtered = self._filter(pod, feasible)
            if filtered.nodes:
                self._bind(pod, filtered.nodes[0])
                return
            resolvable = [name for name in nodes if name not in refused or not refused[name].is_final]
            self._preempt(pod, [name for name in resolvable if name not in filtered.unresolvable])
        except (ExtenderError, KubeError) as error:
            self._failed(pod, error)
            return
        self._later(self._queue.park, pod)
        reasons: dict[str, tuple[str, ...]] = {name: refusal.reasons for name, refusal in refused.items()}
        reasons |= {name: (why,) for name, why in (filtered.failed | filtered.unresolvable).items()}
        self._report_failure(pod, "Unschedulable", explain(nodes, reasons))

    def _failed(self, pod: SeenPod, error: Exception) -> None:
        is_told = self._following.failures.get(pod.uid) == str(error)
        self._following.failures[pod.uid] = str(error)
        log.log(logging.INFO if is_told else logging.WARNING, "scheduling %s failed: %s", pod.label, error)
        self._later(self._queue.defer, pod)
        self._report_failure(pod, "SchedulerError", str(error))

    def _filter(self, pod: SeenPod, feasible: list[str]) -> Filtered:
        """Return the nodes that the extender leaves; a nominated node is tried alone first."""
        if not feasible:
            return Filtered(feasible, {}, {})
        if pod.nominated_node in feasible:
            filtered = self._extender.filter(pod.body, [pod.nominated_node])
            if filtered.nodes:
                return filtered
        return self._extender.filter(pod.body, feasible)

    def _bind(self, pod: SeenPod, node: str) -> None:
        meta = pod.view.metadata
        with self._changed:
            self._cluster.assume(pod, node)

        def bind() -> None:
            try:
                self._extender.bind(meta.namespace, meta.name, meta.uid, node)
            except ExtenderError as error:
                with self._changed:
                    self._cluster.take_back(pod.uid)
                    self._following.wake_all()
                self._failed(pod, error)
                return
            with self._changed:
                self._queue.remove(pod.uid)
            self._tell(pod, NORMAL, "Scheduled", f"Successfully assigned {pod.label} to {node}")

        self._bindings.submit(bind).add_done_callback(tell_failure)

    def _preempt(self, pod: SeenPod, nodes: list[str]) -> None:
        """Make room for `pod` on one of these nodes, if the extender names victims there, and nominate it."""
        with self._changed:
            if not self._cluster.may_preempt(pod):
                return
            candidates = self._cluster.preemption_candidates(pod, nodes)
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
        if pod.nominated_node != node:
            self._patch_status(pod, {"nominatedNodeName": node or None})

    def _later(self, how: Callable[[str, float], None], pod: SeenPod) -> None:
        with self._changed:
            how(pod.uid, time.monotonic())
            self._changed.notify_all()  # a binding fails on another thread than the loop's

    def _report_failure(self, pod: SeenPod, reason: str, message: str) -> None:
        self._tell(pod, WARNING, "FailedScheduling", message)
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        known = pod.view.condition("PodScheduled") or PodCondition()
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
