"""The one owner of the scheduler's state and of the lock that orders its events.

Facts come in from the watches (`node_seen`, `pod_seen`, ...), questions from kube-scheduler (`filter_nodes`,
`preempt_victims`, `bind_pod`) and from people (the readers at the end). Each holds the lock while it touches the state
and never while it talks to the API server.

A placement is assumed as soon as it is decided: the pod is Binding and its cells are allocated, long before Kubernetes
has written the binding down. From then on the same node is the answer to every repeated question about the pod.

When the core breaks one of its own rules, the service stops: it answers every verb with an error and says so on
`/healthz`, until somebody restarts the process, which rebuilds the state from the pods' annotations.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from hived import status
from hived.decisions import Applied, Bind, Decision, Preempt, Wait
from hived.errors import InvariantError, UserError
from hived.events import Event, NodeHealthChanged, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.scheduler import check_changed_request, handle, new_state
from hived.specs import ClusterSpec, PodRequest
from hived_extender.annotations import BIND_INFO, LEAF_CELL_ISOLATION, bind_annotations, bind_info, isolation_text
from hived_extender.binder import Binder, KubeApi
from hived_extender.counts import count_groups, count_leaf_cells, count_preempting_pods
from hived_extender.decision_log import tell_decision
from hived_extender.metrics import Gauges, Metrics
from hived_extender.nudge import Nudger
from hived_extender.pods import PodRecord, PodState, PodTable, UnknownPodError
from hived_extender.record import Recorder
from hived_extender.wire import (
    WAITING_KEY,
    BindArgs,
    FilterArgs,
    FilterResult,
    Mask,
    MetaPod,
    MetaVictims,
    Node,
    NodeNames,
    Pod,
    PreemptArgs,
    PreemptResult,
)

log = logging.getLogger(__name__)

NO_CHAIN_REASON = "no cell chain could be tried"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the service goes along with kube-scheduler (SEMANTICS 2.6).

    `force_bind_threshold` repeated filter calls for a pod that is Binding make the service bind it itself.
    `waiting_block_s` is how long the answer "wait" is held back, so that pods are served more strictly in order.
    `nudge_delay_s` is how long kube-scheduler has, after a change that made room, to ask again by itself.
    """

    force_bind_threshold: int = 3
    waiting_block_s: float = 0.0
    nudge_delay_s: float = 0.5


class Service:
    """See the module. Every method may be called from any thread.

    Verbs raise UserError for requests that cannot be served (400; 503 while bound pods are still being replayed),
    UnknownPodError among them, and InvariantError once the service has stopped.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        kube: KubeApi,
        *,
        patience: Patience | None = None,
        recorder: Recorder | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.patience = patience or Patience()
        self._binder = Binder(kube, self.metrics)
        self._nudger = Nudger(self._wake, self.patience.nudge_delay_s)
        self._recorder = recorder
        self._lock = threading.Lock()
        self._state = new_state(spec)
        self._pods = PodTable()
        self._healthy_nodes: set[str] = set()
        self._node_names = NodeNames(self._state.topology.node_index)
        self._lazy_times: dict[str, str] = {}
        self._is_ready = False
        self._fault = ""
        self._last_event: Event | None = None
        self.metrics.observe(self._gauges)

    @property
    def fault(self) -> str:
        """What broke, "" while the service is healthy."""
        return self._fault

    @property
    def is_ready(self) -> bool:
        """True once recovery is over and while the service is healthy."""
        return self._is_ready and not self._fault

    def mark_ready(self) -> None:
        """Every node and every bound pod has been seen: begin to answer verbs."""
        self._is_ready = True

    def close(self) -> None:
        """Wait for bindings that are being written, then close the record."""
        self._nudger.close()
        self._binder.close()
        with self._lock:
            if self._recorder is not None:
                self._recorder.close()

    # Facts

    def node_seen(self, node: Node) -> None:
        """A node exists and looks like this now."""
        self._set_node(node.metadata.name, node.is_healthy)

    def node_gone(self, name: str) -> None:
        """A node does not exist any more, which is as bad as bad."""
        self._set_node(name, False)

    def sync_nodes(self, nodes: Iterable[Node]) -> None:
        """These are all nodes there are."""
        nodes = list(nodes)
        names = {node.metadata.name for node in nodes}
        for name in sorted(self._healthy_nodes - names):
            self.node_gone(name)
        for node in nodes:
            self.node_seen(node)

    def pod_seen(self, pod: Pod) -> None:
        """A pod exists and looks like this now. Told twice, it changes nothing."""
        uid = pod.metadata.uid
        with suppress(InvariantError), self._exclusive():
            if not pod.is_ours or pod.is_completed:
                self._forget(uid)
                return
            record = self._pods.get(uid) or self._pods.add(uid, pod.metadata.name, pod.metadata.namespace)
            if pod.node and record.state is not PodState.BOUND:
                self._confirm_or_adopt(record, pod)

    def pod_gone(self, uid: str) -> None:
        """A pod was deleted."""
        with suppress(InvariantError), self._exclusive():
            self._forget(uid)

    def sync_pods(self, pods: Iterable[Pod]) -> None:
        """These are all pods there are."""
        pods = list(pods)
        present = {pod.metadata.uid for pod in pods}
        for uid in self._pods.uids():
            if uid not in present:
                self.pod_gone(uid)
        for pod in pods:
            self.pod_seen(pod)

    # Verbs

    def filter_nodes(self, args: FilterArgs) -> FilterResult:
        """Decide where a pod runs: one node, or none and why (SEMANTICS 4, Filtering phase)."""
        with self._exclusive():
            with self._telling_refusals(args.pod, Phase.FILTERING):
                record = self._admit(args.pod)
                suggested = self._node_names.mask(args.node_names)
            if record.state is PodState.BINDING:
                record.repeat_count += 1
                return self._answer_binding(record, suggested)
            decision = self._schedule(record, args.pod, Phase.FILTERING, suggested)
            if isinstance(decision, Bind):
                record.bind_info = decision.bind_info
                record.node = decision.bind_info.node
                record.repeat_count = 0
                self._pods.move(record, PodState.BINDING)
                return self._answer_binding(record, suggested)
            if isinstance(decision, Preempt):
                return FilterResult(failed_nodes=self._describe_victims(decision))
            return FilterResult(failed_nodes={WAITING_KEY: decision.reason or NO_CHAIN_REASON})

    def preempt_victims(self, args: PreemptArgs) -> PreemptResult:
        """Name the victims on one of the candidate nodes (SEMANTICS 4e.4); an empty answer if there is nothing to do.

        A bind decided here is not carried out: the next filter call does that (FORMAT 7, C1).
        """
        with self._exclusive():
            with self._telling_refusals(args.pod, Phase.PREEMPTING):
                record = self._admit(args.pod)
            if record.state is PodState.BINDING:
                return PreemptResult({})
            candidates = args.candidates
            decision = self._schedule(record, args.pod, Phase.PREEMPTING, self._node_names.mask_of(candidates))
            if isinstance(decision, Preempt):
                return self._pick_victims(record, decision, candidates)
            if isinstance(decision, Bind):
                # Nothing is in the way any more, and no event will tell kube-scheduler so.
                self._binder.ask_retry_later(record)
            return PreemptResult({})

    def bind_pod(self, args: BindArgs) -> None:
        """Write a decided binding to the API server. Repeating it is harmless, also after it succeeded.

        Raises UserError if there is no such decision, or the API server refuses.
        """
        with self._exclusive():
            self._check_ready()
            record = self._known(args.pod_uid, args.pod_namespace, args.pod_name)
            if not record.node:
                raise UserError(f"{record.key} cannot be bound: no node has been decided for it")
            if record.node != args.node:
                raise UserError(f"{record.key} cannot be bound to {args.node!r}: its node is {record.node}")
            if record.state is PodState.BOUND or record.bind_info is None:
                return
            info = record.bind_info
        self._binder.write(record, info, "scheduler")

    # Reading

    def affinity_groups(self) -> Iterator[dict[str, Any]]:
        """All groups by name, one at a time; others are served in between."""
        with self._lock:
            names = sorted(self._state.groups)
        for name in names:
            with self._lock:
                if name not in self._state.groups:
                    continue
                group = status.affinity_group(self._state, name, self._lazy_times)
            yield group

    def affinity_group(self, name: str) -> dict[str, Any]:
        """One group. Raises UserError if it is not known."""
        with self._lock:
            return status.affinity_group(self._state, name, self._lazy_times)

    def virtual_cluster_names(self) -> tuple[str, ...]:
        """All virtual clusters, ascending."""
        return self._state.topology.vc_names

    def physical_cells(self) -> Iterator[dict[str, Any]]:
        """The physical cluster, one top cell at a time; others are served in between."""
        return self._step_by_step(status.iter_physical_cluster(self._state))

    def virtual_cells(self, vc: str) -> Iterator[dict[str, Any]]:
        """One virtual cluster, one preassigned cell at a time. Raises UserError if it is not known."""
        return self._step_by_step(status.iter_virtual_cluster(self._state, vc))

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Cells and groups that differ from their defaults: equal for equal states (`status.snapshot`)."""
        with self._lock:
            return status.snapshot(self._state)

    # Inside, all under the lock unless they say otherwise

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock. Any exception but UserError, ours or the core's, stops the service.

        Raises InvariantError when that happens and ever after. Those who report facts suppress it: the fault is on
        record, and nobody listens any more.
        """
        with self._lock:
            if self._fault:
                raise InvariantError(f"stopped after an internal error: {self._fault}")
            try:
                yield
            except UserError:
                raise
            except Exception as error:
                self._fault = f"{type(error).__name__}: {error}"
                fields = {"event": repr(self._last_event)}
                log.critical("stopped after an internal error", exc_info=error, extra={"fields": fields})
                raise InvariantError(f"stopped after an internal error: {self._fault}") from error

    def _step_by_step(self, cells: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        while True:
            with self._lock:
                cell = next(cells, None)
            if cell is None:
                return
            yield cell

    def _set_node(self, name: str, is_healthy: bool) -> None:
        with suppress(InvariantError), self._exclusive():
            if name not in self._state.topology.node_index or is_healthy == (name in self._healthy_nodes):
                return
            if self._recorder is not None:
                self._recorder.node_changed(name, is_healthy)
            self._apply(NodeHealthChanged(name, is_healthy))
            (self._healthy_nodes.add if is_healthy else self._healthy_nodes.discard)(name)
            if is_healthy:
                self._nudger.room_made()
            log.info("node", extra={"fields": {"node": name, "healthy": is_healthy}})

    def _confirm_or_adopt(self, record: PodRecord, pod: Pod) -> None:
        """The pod has a node: ours as decided, or one that somebody else, or an earlier process, gave it."""
        if record.state is PodState.BINDING and record.node == pod.node and _is_bound_as_decided(record, pod):
            self._pods.move(record, PodState.BOUND)
            log.info("bound", extra={"fields": {"pod": record.key, "node": record.node}})
            return
        self._release(record)
        record.node = pod.node
        self._pods.move(record, PodState.BOUND)
        try:
            request = record.parse(pod.annotations)
            info = bind_info(pod.annotations, request.label)
            if info.node != pod.node:
                raise UserError(f"[{request.label}]: it runs on {pod.node}, but was placed on {info.node}")
            if self._recorder is not None:
                self._recorder.bound(request, pod.node, bind_annotations(info)[BIND_INFO])
            self._apply(PodAllocated(request, info))
        except UserError as error:
            self.metrics.recovery_failures.inc()
            log.warning("bound pod not accounted", extra={"fields": {"pod": record.key, "reason": error.message}})
            return
        record.request = request
        record.bind_info = info
        log.info("bound pod replayed", extra={"fields": {"pod": record.key, "node": pod.node}})

    def _forget(self, uid: str) -> None:
        record = self._pods.remove(uid)
        if record is not None:
            self._nudger.settled(uid)
            self._release(record)
            log.info("pod gone", extra={"fields": {"pod": record.key, "state": record.state.value}})

    def _release(self, record: PodRecord) -> None:
        """Take back what the core knows of the pod."""
        request, record.request, record.bind_info, record.node = record.request, None, None, ""
        if request is None:
            return
        if self._recorder is not None:
            self._recorder.deleted(record.uid)
        self._apply(PodDeleted(request))
        if record.state is not PodState.WAITING:
            self._nudger.room_made(is_announced=record.state is PodState.BOUND)
        if request.spec.group.name not in self._state.groups:
            self._lazy_times.pop(request.spec.group.name, None)

    def _check_ready(self) -> None:
        if not self._is_ready:
            raise UserError("not ready: bound pods are still being replayed", code=503)

    def _admit(self, pod: Pod) -> PodRecord:
        self._check_ready()
        record = self._known(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name)
        if record.state is PodState.BOUND:
            raise UserError(f"{record.key} is already bound to node {record.node}")
        return record

    @contextmanager
    def _telling_refusals(self, pod: Pod, phase: Phase) -> Iterator[None]:
        """Tell of a request that is refused before the core is asked. An unknown pod may be known in a moment."""
        started = time.perf_counter()
        try:
            yield
        except UnknownPodError:
            raise
        except UserError as error:
            key = f"{pod.metadata.namespace}/{pod.metadata.name}"
            tell_decision(self.metrics, key, None, phase, error, started)
            raise

    def _known(self, uid: str, namespace: str, name: str) -> PodRecord:
        record = self._pods.get(uid)
        if record is None or (record.namespace, record.name) != (namespace, name):
            raise UnknownPodError(
                f"pod {namespace}/{name} (uid {uid}) is not known: it is deleted, completed, not of this scheduler, "
                "or Kubernetes has not told of it yet"
            )
        return record

    def _schedule(self, record: PodRecord, pod: Pod, phase: Phase, suggested: Mask | None) -> Bind | Preempt | Wait:
        """Ask the core, carry a Filtering bind out at once, and tell of it."""
        started = time.perf_counter()
        request: PodRequest | None = None
        try:
            request = record.parse(pod.annotations)
            if record.request not in (None, request):
                check_changed_request(self._state, request)
                self._release(record)
            record.request = request
            decision = self._decide(request, phase, suggested)
        except UserError as error:
            tell_decision(self.metrics, record.key, request, phase, error, started)
            raise
        (self._nudger.settled if isinstance(decision, Bind) else self._nudger.refused)(record.uid)
        tell_decision(self.metrics, record.key, request, phase, decision, started)
        return decision

    def _decide(self, request: PodRequest, phase: Phase, suggested: Mask | None) -> Bind | Preempt | Wait:
        commit = False
        try:
            decision = self._apply(ScheduleRequested(request, phase, suggested))
            commit = phase is Phase.FILTERING and isinstance(decision, Bind)
        finally:
            if self._recorder is not None:
                self._recorder.scheduled(request, phase, suggested, self._state.topology.node_names, commit)
        if isinstance(decision, Bind) and commit:
            self._apply(PodAllocated(request, decision.bind_info, decision.lazily_preempted))
        if isinstance(decision, Applied):
            raise InvariantError(f"the core answered a request with {decision}")
        return decision

    def _apply(self, event: Event) -> Decision:
        self._last_event = event
        decision = handle(self._state, event)
        if decision.cancelled:
            log.info("preemption cancelled", extra={"fields": {"groups": decision.cancelled}})
            self._nudger.room_made(is_announced=False)
        if isinstance(decision, Applied):
            self._note_lazy_preemptions(decision.lazily_preempted)
        elif isinstance(event, ScheduleRequested) and event.phase is Phase.PREEMPTING and self._state.lazy_group_count:
            # What a preemption does is done at once, and the decision to preempt does not name these groups.
            lazy = [group.name for group in self._state.groups.values() if group.lazy_preemptor is not None]
            self._note_lazy_preemptions(name for name in lazy if name not in self._lazy_times)
        return decision

    def _note_lazy_preemptions(self, names: Iterable[str]) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for name in names:
            self._lazy_times[name] = now
            log.info("lazily preempted", extra={"fields": {"group": name}})

    def _answer_binding(self, record: PodRecord, suggested: Mask | None) -> FilterResult:
        """The node of a pod that is Binding, if kube-scheduler will accept it; if not, bind it ourselves."""
        is_offered = self._node_names.contains(suggested, record.node)
        if not is_offered or record.repeat_count >= self.patience.force_bind_threshold:
            self._force_bind(record, is_offered)
        if is_offered:
            return FilterResult(node_names=[record.node])
        text = f"being bound to node {record.node}, which was not among the nodes offered"
        return FilterResult(failed_nodes={WAITING_KEY: text})

    def _force_bind(self, record: PodRecord, is_offered: bool) -> None:
        info = record.bind_info
        if record.is_force_binding or info is None:
            return

        def done() -> None:
            record.is_force_binding = False

        record.is_force_binding = True
        fields = {"pod": record.key, "node": record.node, "repeats": record.repeat_count, "offered": is_offered}
        log.info("force bind", extra={"fields": fields})
        self._binder.write_later(record, info, done)

    def _describe_victims(self, decision: Preempt) -> dict[str, str]:
        return {
            node: "node(s) with pods to preempt: " + ", ".join(self._pod_key(uid) for uid in victims)
            for node, victims in decision.victims_by_node.items()
        }

    def _pod_key(self, uid: str) -> str:
        record = self._pods.get(uid)
        return record.key if record is not None else uid

    def _pick_victims(self, record: PodRecord, decision: Preempt, candidates: list[str]) -> PreemptResult:
        """Victims on the first candidate that has any; an entry without victims would fail the whole attempt."""
        for node in candidates:
            victims = decision.victims_by_node.get(node)
            if victims:
                return PreemptResult({node: MetaVictims([MetaPod(uid) for uid in victims])})
        fields = {"pod": record.key, "victims": sorted(decision.victims_by_node), "candidates": candidates}
        log.warning("no candidate has victims: do the pods' Kubernetes priorities agree?", extra={"fields": fields})
        return PreemptResult({})

    def _wake(self, uid: str) -> None:
        """Takes the lock."""
        with self._lock:
            record = self._pods.get(uid)
            if record is not None and record.state is PodState.WAITING:
                self._binder.ask_retry_later(record)

    def _gauges(self) -> Gauges:
        """Takes the lock."""
        with self._lock:
            pods = self._pods.counts()
            preempting = count_preempting_pods(self._state)
            return Gauges(
                pods=pods | {"Waiting": pods["Waiting"] - preempting, "Preempting": preempting},
                groups=count_groups(self._state),
                leaf_cells=count_leaf_cells(self._state),
                bad_node_count=len(self._state.topology.node_names) - len(self._healthy_nodes),
                is_ready=self.is_ready,
                is_healthy=not self._fault,
            )


def _is_bound_as_decided(record: PodRecord, pod: Pod) -> bool:
    """False if the pod's annotation names other leaf cells: another scheduler placed it on our node."""
    written = pod.annotations.get(LEAF_CELL_ISOLATION)
    return record.bind_info is None or written in (None, isolation_text(record.bind_info))
