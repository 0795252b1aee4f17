"""The scheduler loop of the embedded cluster: it treats the extender as kube-scheduler does.

One thread takes pod after pod from the queue: own feasibility, then the filter verb, then, on a thread of its own, the
bind verb. If no node is left, it calls the preempt verb, whose victims it deletes. Watches keep the view and the queue
up to date. The extender is asked about every pod, and says itself which are none of its own. The loop serves every pod,
whatever its `schedulerName`: no other scheduler is there.

    active  --pop-->  in flight  --park-->  unschedulable  --wake-->  back-off  --time-->  active
                                 --defer->  back-off

As in kube-scheduler: the highest Kubernetes priority first, then first come first served. A pod that failed waits for
an event that could help it. Its n-th failure costs at least `initial * 2^(n-1)` seconds, at most `longest`. An event
that comes while a pod is in flight counts for it too.
"""

import itertools
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from hived.values.errors import HivedError, UserError
from hived_extender.api.paths import BIND_PATH, FILTER_PATH, PREEMPT_PATH
from hived_extender.jobs.namespaces import NAMESPACE_NAME
from hived_extender.jobs.wire import (
    BindResult,
    FilterResult,
    Node,
    Pod,
    PodSpec,
    PodStatus,
    PreemptResult,
    StatusCondition,
    encode,
)
from hived_extender.kube.client import LIVE_PODS, NAMESPACES, NODES, PODS, KubeClient, KubeError, pod_path
from hived_extender.kube.connections import BrokenError, Connections
from hived_extender.kube.events import NORMAL, WARNING, EventRecorder
from hived_extender.kube.logs import tell_failure
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import Reflector, Resource, mirrored
from hived_extender.kube_rules.demands import DemandsReader, RuledPod
from hived_extender.kube_rules.nodes import RuledNode
from hived_extender.kube_rules.residents import Refusal, Residents, refusals
from hived_lab.embedded.apiserver.kinds import set_condition


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds; the defaults of kube-scheduler.

    `settle_s` passes between an event and the attempt that it causes, so that the extender, which watches for itself,
    has seen the event too. `flush_s` is the longest time that a pod waits for an event.
    """

    backoff_initial_s: float = 1.0
    backoff_longest_s: float = 10.0
    flush_s: float = 300.0
    settle_s: float = 0.05


@dataclass(slots=True, eq=False)
class _Entry:
    """`order` is its place among the active pods, None for others; `ready_at` is infinite in flight."""

    priority: int
    order: int | None
    ready_at: float = 0.0
    is_parked: bool = False
    failure_count: int = 0
    not_before: float = 0.0
    was_woken: bool = False


class SchedulingQueue:
    """Pods by uid. Not thread-safe."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._entries: dict[str, _Entry] = {}
        self._orders = itertools.count()

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, uid: str, priority: int) -> None:
        """Add a pod to be tried at once; a pod that is known already stays where it is."""
        if uid not in self._entries:
            self._entries[uid] = _Entry(priority, next(self._orders))

    def remove(self, uid: str) -> None:
        """Forget a pod, wherever it is."""
        self._entries.pop(uid, None)

    def pop(self, now: float) -> str | None:
        """Take the next pod in flight, None if there is none. Every pod popped is then parked, deferred or removed."""
        for entry in self._entries.values():
            if entry.order is None and entry.ready_at <= now:
                entry.order, entry.is_parked = next(self._orders), False
        active = [(-one.priority, one.order, uid) for uid, one in self._entries.items() if one.order is not None]
        if not active:
            return None
        uid = min(active)[-1]
        entry = self._entries[uid]
        entry.order, entry.ready_at, entry.was_woken = None, math.inf, False
        return uid

    def next_due(self) -> float | None:
        """Return when `pop` will have something at the latest if nothing happens, None if it waits for `add`."""
        due = min((entry.ready_at for entry in self._entries.values() if entry.order is None), default=math.inf)
        return due if math.isfinite(due) else None

    def park(self, uid: str, now: float) -> None:
        """Put a pod that fits nowhere aside until an event wakes it."""
        if (entry := self._failed(uid, now)) is not None:
            entry.is_parked, entry.ready_at = True, now + self._pace.flush_s
            if entry.was_woken:
                self._wake(entry, now)

    def defer(self, uid: str, now: float) -> None:
        """Try a pod again after its back-off: the attempt failed for a reason that no event will announce as gone."""
        if (entry := self._failed(uid, now)) is not None:
            entry.ready_at = entry.not_before

    def wake(self, uid: str, now: float) -> None:
        """Something happened that could help this pod."""
        if uid in self._entries:
            self._wake(self._entries[uid], now)

    def wake_all(self, now: float) -> None:
        """Something happened that could help every pod."""
        for entry in self._entries.values():
            self._wake(entry, now)

    def _wake(self, entry: _Entry, now: float) -> None:
        entry.was_woken = True  # which counts for a pod in flight
        if entry.is_parked:
            entry.is_parked, entry.ready_at = False, max(entry.not_before, now + self._pace.settle_s)

    def _failed(self, uid: str, now: float) -> _Entry | None:
        """Count a failure; None if the pod was removed while it was in flight."""
        entry = self._entries.get(uid)
        if entry is None or entry.ready_at != math.inf:
            return None
        entry.failure_count += 1
        doublings = min(entry.failure_count - 1, 30)
        entry.not_before = now + min(self._pace.backoff_initial_s * 2**doublings, self._pace.backoff_longest_s)
        return entry


NOT_READY = "node(s) were not ready"

_demands = DemandsReader(is_unbounded=True)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node as last seen."""

    name: str
    is_ready: bool
    ruled: RuledNode

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "SeenNode":
        """Return the node in `body`; UserError if it is not one."""
        node = _read(body, Node)
        conditions = (node.status.conditions if node.status is not None else None) or ()
        is_ready = any(one.type == "Ready" and one.status == "True" for one in conditions)
        return cls(node.metadata.name, is_ready, RuledNode.of(node))


@dataclass(frozen=True, slots=True, eq=False)
class SeenPod:
    """A pod as last seen: all of it for the extender, what the loop reads of it, and what rules look at.

    `label` is `namespace/name`; `node` and `nominated_node` are empty without one. One that `is_schedulable` waits for
    a node.
    """

    body: Mapping[str, Any]
    view: Pod
    ruled: RuledPod
    uid: str
    label: str
    node: str
    nominated_node: str
    priority: int
    never_preempts: bool
    is_terminating: bool
    is_schedulable: bool

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "SeenPod":
        """Return the pod in `body`; UserError if it is not one."""
        view = _read(body, Pod)
        meta, spec, status = view.metadata, view.spec or PodSpec(), view.status or PodStatus()
        is_terminating = bool(meta.deletion_timestamp)
        return cls(
            body,
            view,
            _demands.read_pod(view),
            meta.uid,
            f"{meta.namespace}/{meta.name}",
            view.node,
            status.nominated_node or "",
            spec.priority or 0,
            spec.preemption_policy == "Never",
            is_terminating,
            not (view.node or is_terminating or view.is_held or view.has_completed),
        )

    def differs_besides_status(self, other: "SeenPod") -> bool:
        """True if more of the pod than its status has changed since `other`."""
        return _without_status(self.body) != _without_status(other.body)


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
        # Uids of pods that we bound and have not seen with their node yet.
        self.assumed: set[str] = set()
        # Uids of pods without a node that one elsewhere may help, by affinity or topology spread, as they were seen.
        self.choosy: dict[str, None] = {}

    def put_pod(self, pod: SeenPod) -> SeenPod | None:
        """Take in the present state of a pod and return the one known before."""
        known = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        if pod.view.has_completed:
            self._residents.remove(pod.uid)
        elif pod.node:
            self.assumed.discard(pod.uid)
            self.choosy.pop(pod.uid, None)
            self._residents.put(pod.uid, pod.node, pod.ruled, is_leaving=pod.is_terminating)
        elif pod.ruled.demands.has_neighbour_rules:
            self.choosy[pod.uid] = None
        return known

    def remove_pod(self, uid: str) -> SeenPod | None:
        """Forget a pod and return what was known of it."""
        self.assumed.discard(uid)
        self.choosy.pop(uid, None)
        self._residents.remove(uid)
        return self.pods.pop(uid, None)

    def assume(self, pod: SeenPod, node: str) -> None:
        """The pod is being bound: it counts there from now on. A pod that is gone by now counts nowhere."""
        if pod.uid in self.pods:
            self.assumed.add(pod.uid)
            self._residents.put(pod.uid, node, pod.ruled)

    def take_back(self, uid: str) -> None:
        """The binding of a pod has failed; one that was seen with its node stays there."""
        if uid in self.assumed:
            self.assumed.discard(uid)
            self._residents.remove(uid)

    def refused_nodes(self, pod: SeenPod) -> dict[str, Refusal]:
        """Return the nodes that `pod` may not use now, and why."""
        ruled = {name: node.ruled for name, node in self.nodes.items()}
        refused = refusals(pod.ruled, ruled, self._residents, self.namespace_labels)
        return refused | {
            name: Refusal((NOT_READY,), is_final=True) for name, node in self.nodes.items() if not node.is_ready
        }

    def preemption_candidates(self, pod: SeenPod, nodes: Iterable[str]) -> dict[str, list[str]]:
        """Return the uids of pods of lower priority than `pod`, by node; as kube-scheduler, without other nodes."""
        lower = {
            node: sorted(uid for uid in self._residents.on(node) if self.pods[uid].priority < pod.priority)
            for node in nodes
        }
        return {node: uids for node, uids in lower.items() if uids}

    def may_preempt(self, pod: SeenPod) -> bool:
        """True if `pod` may preempt now: its policy allows it and no earlier victim is still leaving."""
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


_JOIN_S = 2.0

Body = Mapping[str, Any]

log = logging.getLogger(__name__)


def _metadata(field: str, body: Body) -> str:
    return str(body["metadata"][field])


def _is_new_to_others(pod: SeenPod, known: SeenPod) -> bool:
    """True if a bound pod has changed in a way that rules between pods look at."""
    return (pod.node, pod.is_terminating, pod.view.labels) != (known.node, known.is_terminating, known.view.labels)


def _read_or_log(read: Callable[[Body], T], body: Body) -> T | None:
    try:
        return read(body)
    except UserError as error:
        log.error("an object is left out: %s", error)
        return None


MOST_CALLS = 256
"""At once, as many as there are bindings under way."""

_HEADERS = {"Content-Type": "application/json"}


class ExtenderError(HivedError):
    """The extender did not answer, or answered with an error."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The nodes that can take the pod; for the others why not, and whether removing pods would not help either."""

    nodes: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]


class ExtenderClient:
    """Calls to the extender at `url`; thread-safe."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UserError(f"the extender's address must be http://HOST:PORT, not {url!r}")
        self._connections = Connections(url, {}, most_idle=MOST_CALLS)
        self._timeout_s = timeout_s

    def filter(self, pod: Body, nodes: list[str]) -> Filtered:
        """Ask which of `nodes` can take `pod`. Raises ExtenderError."""
        answer = self._call(FILTER_PATH, {"Pod": pod, "Nodes": None, "NodeNames": nodes}, FilterResult)
        if answer.error:
            raise ExtenderError(answer.error)
        chosen = answer.node_names or []
        if not set(chosen) <= set(nodes):
            raise ExtenderError(f"the extender chose {chosen!r}, which is not among the nodes it was asked about")
        return Filtered(chosen, answer.failed_nodes or {}, answer.failed_and_unresolvable_nodes or {})

    def preempt(self, pod: Body, candidates: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """Ask whom to remove for `pod`; `candidates` are uids of possible victims by node, and so is the answer.

        Raises ExtenderError, also when the answer has a node without victims.
        """
        victims = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in candidates.items()
        }
        arguments = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        answer = self._call(PREEMPT_PATH, arguments, PreemptResult).node_name_to_meta_victims or {}
        chosen = {node: [pod.uid for pod in victims.pods] for node, victims in answer.items()}
        for node, uids in chosen.items():
            if node not in candidates or not uids:
                raise ExtenderError(f"expected at least one victim pod on a candidate node, found {uids!r} on {node!r}")
        return chosen

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Let the extender bind a pod. Raises ExtenderError."""
        arguments = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node}
        answer = self._call(BIND_PATH, arguments, BindResult)
        if answer.error:
            raise ExtenderError(answer.error)

    def abort(self) -> None:
        """End all calls under way, which fail, and let every later one fail."""
        self._connections.abort()

    def _call(self, path: str, arguments: Body, answer_type: type[T]) -> T:
        timeout_s = self._timeout_s
        try:
            reply = self._connections.call(
                "POST", path, _HEADERS, encode(arguments), connect_timeout_s=timeout_s, read_timeout_s=timeout_s
            )
        except BrokenError as error:
            cause = error.__cause__
            reason = (cause and cause.__cause__) or cause  # urllib3's own text names an address in memory
            raise ExtenderError(f"no answer from the extender to {path}: {reason!r}") from error
        if reply.status != 200:
            text = reply.body[:500].decode(errors="replace")
            raise ExtenderError(f"the extender answered {path} with {reply.status}: {text}")
        try:
            return msgspec.json.decode(reply.body, type=answer_type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ExtenderError(f"the extender's answer to {path} cannot be read: {error}") from error


DEFAULT_EXTENDER_TIMEOUT_S = 60.0
COMPONENT = "default-scheduler"


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
        self._changed = threading.Condition()  # guards the view and the queue; never held during a call
        self._cluster = ClusterView()
        self._queue = SchedulingQueue(pace)
        self._failures: dict[str, str] = {}  # by uid; each is told as a warning once
        view, name, uid, metrics = self._cluster, partial(_metadata, "name"), partial(_metadata, "uid"), Metrics()
        followed: tuple[Resource[dict[str, Any]], ...] = (
            mirrored(NAMESPACES, dict, name, view.namespace_labels.keys, self._namespace_seen, self._namespace_gone),
            mirrored(NODES, dict, name, view.nodes.keys, self._node_seen, self._node_gone),
            mirrored(PODS, dict, uid, view.pods.keys, self._pod_seen, self._pod_gone, LIVE_PODS),
        )
        self._reflectors = [Reflector(kube, each, metrics) for each in followed]
        self._worker = threading.Thread(target=self._run, name="embedded-scheduler", daemon=True)

    def start(self) -> None:
        """Read the cluster, then follow it and schedule."""
        listed = [reflector.relist() for reflector in self._reflectors]
        for reflector in self._reflectors:
            reflector.start()
        for done in listed:
            done.wait()
        self._worker.start()

    def stop(self) -> None:
        """Drop the pod in hand and stop; the watches end with their next event, at the latest with the client."""
        self._stop.set()
        for reflector in self._reflectors:
            reflector.stop()
        self._extender.abort()
        with self._changed:
            self._changed.notify_all()
        if self._worker.ident is not None:
            self._worker.join()
        self._bindings.shutdown(wait=True, cancel_futures=True)

    def join(self) -> None:
        """Wait a moment for the watches to end."""
        for reflector in self._reflectors:
            reflector.join(_JOIN_S)

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
        is_gone = self._is_gone(pod)  # its watch may not have said so yet
        is_told = is_gone or self._failures.get(pod.uid) == str(error)
        log.log(logging.INFO if is_told else logging.WARNING, "scheduling %s failed: %s", pod.label, error)
        self._later(self._queue.defer, pod)
        if not is_gone:
            self._failures[pod.uid] = str(error)
            self._report_failure(pod, "SchedulerError", str(error))

    def _is_gone(self, pod: SeenPod) -> bool:
        meta = pod.view.metadata
        try:
            return self._kube.get(pod_path(meta.namespace, meta.name), Pod).metadata.uid != meta.uid
        except KubeError as error:
            return error.is_not_found

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
                    self._wake_all()
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
        known = pod.view.condition("PodScheduled") or StatusCondition()
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
        """Write one condition; conditions that others have written meanwhile stay."""
        conditions = set_condition(pod.body.get("status", {}), dict(condition))["conditions"]
        self._patch_status(pod, {"conditions": [one for one in conditions if one["type"] == condition["type"]]})

    def _patch_status(self, pod: SeenPod, status: Mapping[str, Any]) -> None:
        meta = pod.view.metadata
        body = {"metadata": {"uid": meta.uid}, "status": status}
        self._kube.patch_lists(f"{pod_path(meta.namespace, meta.name)}/status", body)

    # ---- what the watches report

    def _node_seen(self, body: Body) -> None:
        node = _read_or_log(SeenNode.read, body)
        if node is None:
            return
        with self._changed:
            known = self._cluster.nodes.get(node.name)
            self._cluster.nodes[node.name] = node
            if known != node:
                self._wake_all()

    def _node_gone(self, name: str) -> None:
        with self._changed:
            self._cluster.nodes.pop(name, None)
            self._wake_all()

    def _pod_seen(self, body: Body) -> None:
        pod = _read_or_log(SeenPod.read, body)
        if pod is None:
            return
        with self._changed:
            known = self._cluster.put_pod(pod)
            if pod.node and (known is None or _is_new_to_others(pod, known)):
                self._wake_choosy()
            if not pod.is_schedulable:
                self._queue.remove(pod.uid)
            elif pod.uid not in self._cluster.assumed:
                if pod.uid not in self._queue:
                    self._queue.add(pod.uid, pod.priority)
                elif known is None or pod.differs_besides_status(known):
                    self._queue.wake(pod.uid, time.monotonic())
                self._changed.notify_all()

    def _pod_gone(self, uid: str) -> None:
        self._failures.pop(uid, None)
        with self._changed:
            self._cluster.remove_pod(uid)
            self._queue.remove(uid)
            self._wake_all()

    def _wake_all(self) -> None:
        """Something happened that could help every pod; with the lock held."""
        self._queue.wake_all(time.monotonic())
        self._changed.notify_all()

    def _wake_choosy(self) -> None:
        """A pod runs, leaves or has other labels: that may help pods whose rules look at others."""
        for uid in self._cluster.choosy:
            self._queue.wake(uid, time.monotonic())
        self._changed.notify_all()

    def _namespace_seen(self, body: Body) -> None:
        name = body["metadata"]["name"]
        with self._changed:
            self._cluster.namespace_labels[name] = {NAMESPACE_NAME: name, **body["metadata"].get("labels", {})}
            self._wake_choosy()

    def _namespace_gone(self, name: str) -> None:
        with self._changed:
            self._cluster.namespace_labels.pop(name, None)
