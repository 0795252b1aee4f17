"""The one owner of the scheduler's state and of the lock that orders its events.

Facts come in from the watches (`node_seen`, `pod_seen`, ...), questions from kube-scheduler (`filter_nodes`,
`preempt_victims`, `bind_pod`). Each holds the lock while it touches the state and never while it talks to the API
server. Facts are taken in at all times (`facts`), questions answered between `lead` and `follow`.

A placement is assumed as soon as it is decided: the pod is Binding and its cells are allocated, long before Kubernetes
has written the binding down. From then on the same node is the answer to every repeated question about the pod.

When the core breaks one of its own rules, the service stops: it answers every verb with an error and says so on
`/healthz`, until somebody restarts the process, which rebuilds the state from the pods' annotations.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from hived.decisions import Bind, Preempt, Wait
from hived.errors import InvariantError, UserError
from hived.events import Phase
from hived.specs import ClusterSpec, PodRequest
from hived.state import State
from hived_config.document import gc_paused
from hived_config.loader import Configuration
from hived_config.rules import PodRules
from hived_config.settings import PreemptBy, Settings
from hived_extender.api.cells import LostDevices, Shortage
from hived_extender.api.what_if import PodOutcome
from hived_extender.kube.metrics import Gauges, Metrics
from hived_extender.kube.versions import is_older
from hived_extender.pods.annotations import SCHEDULING_SPEC
from hived_extender.pods.asks import no_labels
from hived_extender.pods.dialects.description import GangKey, ObjectRef
from hived_extender.pods.dialects.kinds import Lookup, NoObjects
from hived_extender.pods.interpreter import AccessRefused, Interpreter
from hived_extender.pods.node_names import Mask, NodeNames
from hived_extender.pods.permissions import LabelsOf
from hived_extender.pods.proofs import Prover
from hived_extender.pods.readings import Reading, Texts
from hived_extender.pods.wire import (
    WAITING_KEY,
    AskedPod,
    BindArgs,
    FilterArgs,
    FilterResult,
    Node,
    Pod,
    PodMetadata,
    PreemptArgs,
    PreemptResult,
)
from hived_extender.recording.record import Draft, Recorder
from hived_extender.service.acceptance import MOST_REFUSALS
from hived_extender.service.counts import (
    count_bad_nodes,
    count_groups,
    count_leaf_cells,
    count_preempting_pods,
    count_shared_short_cells,
    count_short_leaf_cells,
)
from hived_extender.service.decision_log import tell_decision
from hived_extender.service.devices.keeper import DeviceKeeper
from hived_extender.service.facts import Facts
from hived_extender.service.gangs.growth import GrowingError
from hived_extender.service.gangs.plans import Round
from hived_extender.service.gangs.rounds import Alone
from hived_extender.service.gangs.states import GangState, state_of
from hived_extender.service.holdings import Holdings
from hived_extender.service.ledger import Ledger
from hived_extender.service.nudge import Nudger
from hived_extender.service.outlook import Waiting, in_turn, note_waiting
from hived_extender.service.pods import PodRecord, PodState, UnknownPodError
from hived_extender.service.preemptions import pick_victims
from hived_extender.service.reader import Reader
from hived_extender.service.successor import Successor
from hived_extender.service.verdicts import Affected, news_of
from hived_extender.service.waiting import ROOM_REASON, WaitingPods
from hived_extender.service.what_if import WhatIf, check_count
from hived_extender.service.writes.announcer import Announcer, AnnouncerApi
from hived_extender.service.writes.binder import Binder, KubeApi
from hived_extender.service.writes.binding_secret import BindingSecret, Changed
from hived_extender.service.writes.evictor import EvictionApi, Evictor, PreemptionPolicy
from hived_extender.service.writes.notices import Pace

log = logging.getLogger(__name__)

LOOKED_AT_ONCE = 100
"""Waiting pods; gangs of which the plan is not known cost 0.1 ms each."""

WHAT_IF = "/what-if"
"""Whose time it takes to read the YAML of pods that are only asked about; no namespace is called so."""

RECOVERING = "bound pods are still being replayed"


class ServiceApi(KubeApi, EvictionApi, AnnouncerApi, Protocol):
    """All that is asked of the API server; `kube.KubeClient` is one."""


class NotLeadingError(UserError):
    """Another replica answers; whoever asks should connect anew and will find it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not ready: {why}", code=503)


class BusyError(UserError):
    """Others hold the lock, and whoever asked must not wait for it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the service goes along with kube-scheduler.

    `force_bind_threshold` repeated filter calls for a pod that is Binding make the service bind it itself.
    `waiting_block_s` is how long the answer "wait" is held back, so that pods are served more strictly in order.
    `nudge_delay_s` is how long kube-scheduler has, after a change that made room, to ask again by itself.
    `waits_for_pods`: the answer about a gang that is just being created may be GrowingError for a moment.
    """

    force_bind_threshold: int = 3
    waiting_block_s: float = 0.0
    nudge_delay_s: float = 0.3
    waits_for_pods: bool = False

    def set_by(self, settings: Settings) -> "Patience":
        """The same, but for what a configuration sets (rule 1.12)."""
        block_s = settings.waiting_pod_block_ms / 1000
        return replace(self, force_bind_threshold=settings.force_pod_bind_threshold, waiting_block_s=block_s)


def policy_of(settings: Settings) -> PreemptionPolicy:
    """As a configuration sets it."""
    by_service = settings.preempt_by is PreemptBy.SERVICE
    return PreemptionPolicy(by_service, settings.disruption_budgets, settings.eviction_grace_s)


class Service:
    """See the module. Every method may be called from any thread.

    Verbs raise UserError for requests that cannot be served (400), NotLeadingError (503) and UnknownPodError among
    them, and InvariantError once the service has stopped. `standing` says in words why a replica does not lead.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        kube: ServiceApi,
        *,
        patience: Patience | None = None,
        preemption: PreemptionPolicy | None = None,
        recorder: Recorder | None = None,
        metrics: Metrics | None = None,
        rules: PodRules | None = None,
        objects: Lookup | None = None,
        serves_every_name: bool = False,
        on_gang_change: Callable[[GangKey], None] = lambda key: None,
        pace: Pace | None = None,
        prover: Prover | None = None,
        secret: BindingSecret | None = None,
        labels_of: LabelsOf = no_labels,
    ) -> None:
        """`on_gang_change` is told of each gang whose `gang_state` may be another, with locks held; `pace` says how
        soon and how often people are told of pods. `prover` proves bindings; what it proved and somebody has changed
        since is kept in `secret`. `labels_of` has the labels of namespaces.
        """
        self.metrics = metrics or Metrics()
        self.patience = patience or Patience()
        self.preemption = preemption or PreemptionPolicy()
        self.standing = RECOVERING
        self._recorder = recorder
        self._on_gang_change = on_gang_change
        self._lock = threading.Lock()
        self._node_names = NodeNames({})
        self._holds: Callable[[], bool] = lambda: False
        self._fault = ""
        self._announcer = Announcer(kube, self.metrics, pace=pace)
        self._prover, self._secret = prover or Prover(), secret
        self._texts = Texts(self._prover, self._read_late)
        self._binder = Binder(kube, self.metrics, self._prover)
        self._nudger = Nudger(self._try_on_core, self.patience.nudge_delay_s)
        self._evictor = Evictor(kube, self.preemption, self.metrics, self._is_victim, self._announcer.blocked)
        self._interpreter = Interpreter(
            spec,
            rules or PodRules(),
            objects or NoObjects(),
            serves_every_name=serves_every_name,
            labels_of=labels_of,
        )
        self._facts = Facts(
            spec,
            recorder,
            self.metrics,
            self._announcer,
            self._nudger,
            self._evictor,
            self._binder,
            self._interpreter,
            self._prover,
            self._keep_changed,
            on_gang_change,
        )
        self._pods = self._facts.pods
        self._waiting = WaitingPods(
            self._exclusive,
            self._guard,
            self._facts,
            self.preemption,
            self._evictor,
            self._binder,
            self._announcer,
            self._nudger,
            self.metrics,
        )
        self._preemptions = self._waiting.preemptions
        self._acceptance = self._waiting.acceptance
        self._acceptance.force_bind_threshold = self.patience.force_bind_threshold
        self.reader = Reader(self._open_ledger)
        self.metrics.observe(self._gauges)

    @property
    def fault(self) -> str:
        """What broke, "" while the service is healthy."""
        return self._fault

    @property
    def is_ready(self) -> bool:
        """True while this replica leads and is healthy."""
        return self._facts.ledger is not None and self._holds() and not self._fault

    # Leadership

    def ping(self) -> str:
        """Change a pod, one that waits if there is any; returns the version that the watch of pods will come to.

        Whoever has been told of that version has been told of everything before. "" if there is no pod to be changed.
        """
        with self._lock:
            records = self._pods.records(PodState.WAITING) or self._pods.records(PodState.BOUND)
        return self._binder.ping(records[0]) if records else ""

    def fence(self, fenced: set[str], *, is_lenient: bool = False) -> None:
        """Make every binding fail that another replica, or an earlier term of this one, may still be writing.

        `fenced` has the uids of pods done before in this term, and gets more: after a KubeError, call again to go on.
        Where `is_lenient`, pods that the API server refuses to change are left as they are. Cost: one call of the API
        server for each pod without a node.
        """
        with self._lock:
            waiting = [record for record in self._pods.records(PodState.WAITING) if record.uid not in fenced]
        for pod in self._binder.touch(waiting, is_lenient=is_lenient):
            self.pod_seen(pod)
            fenced.add(pod.metadata.uid)

    def prepare(self, standing: str, holds: Callable[[], bool]) -> None:
        """Say what this replica does before it leads; nothing happens if the term is over."""
        with self._lock:
            if holds() and self._facts.ledger is None:
                self.standing = standing

    def lead(self, holds: Callable[[], bool]) -> None:
        """Begin a term: build the state from all nodes and bound pods, and answer from now on.

        `holds` tells at any time, from any thread and at once, whether the term goes on; nothing happens if it is over.
        """
        changed = self._changed_bindings()
        with suppress(InvariantError), self._exclusive():
            if not holds():
                return
            self._facts.take_changed(changed)
            ledger = self._facts.begin_term()
            self._node_names = NodeNames(ledger.state.topology.node_index)
            self._holds, self.standing = holds, ""
            for record in self._pods.records(PodState.BINDING):
                self._acceptance.expect_question(record)
            log.info("leading", extra={"fields": {"pods": self._pods.counts()}})

    def follow(self, standing: str) -> None:
        """End the term, if there is one: answer nothing any more, and take back what Kubernetes has not confirmed."""
        with suppress(InvariantError), self._exclusive():
            self.standing = standing
            if self._facts.ledger is not None:
                self._acceptance.forget_starts()
                self._facts.end_term()
                self._holds = lambda: False
                log.info("following", extra={"fields": {"reason": standing}})

    def close(self) -> None:
        """Wait for bindings and evictions that are being written, then close the record."""
        self._texts.close()
        self._nudger.close()
        self._waiting.deadlines.close()
        self._evictor.close()
        self._binder.close()
        self._announcer.close()
        if self._secret is not None:
            self._secret.close()
        with self._lock:
            if self._recorder is not None:
                self._recorder.close()

    # Facts

    def node_seen(self, node: Node) -> None:
        """A node exists and looks like this now."""
        with suppress(InvariantError), self._exclusive():
            self._facts.node_seen(node)

    def node_gone(self, node: Node) -> None:
        """A node does not exist any more."""
        with suppress(InvariantError), self._exclusive():
            self._facts.node_seen(node, is_gone=True)

    def sync_nodes(self, nodes: Iterable[Node]) -> None:
        """These are all nodes there are."""
        nodes = list(nodes)
        with suppress(InvariantError), self._exclusive():
            self._facts.sync_nodes([node.metadata.name for node in nodes])
        for node in nodes:
            self.node_seen(node)

    def pod_seen(self, pod: Pod, *, is_listed: bool = False) -> None:
        """A pod exists and looks like this now; one that `is_listed` is sure to."""
        reading = self._texts.read(pod.metadata, node=pod.node, pod=pod)
        with suppress(InvariantError), self._exclusive():
            self._facts.pod_seen(pod, reading, is_listed=is_listed)
            record = self._pods.get(pod.metadata.uid)
            if record is None or (record.is_leaving and record.state is not PodState.BOUND):
                self._acceptance.gone(pod.metadata.uid)
            elif record.state is PodState.BOUND:
                self._acceptance.has_asked(record)
                self._acceptance.settled(record.uid)

    def _read_late(self, pod: Pod) -> None:
        """The text of a pod has been read, which could not be when it was seen. Takes the lock."""
        if self._pods.get(pod.metadata.uid) is not None:
            self.pod_seen(pod)

    def pod_gone(self, uid: str) -> None:
        """A pod was deleted."""
        with suppress(InvariantError), self._exclusive():
            self._facts.pod_gone(uid)
            self._acceptance.gone(uid)

    def sync_pods(self, pods: Iterable[Pod]) -> None:
        """These are all pods there are."""
        pods = list(pods)
        present = {pod.metadata.uid for pod in pods}
        with self._lock:
            known = self._facts.known_pods()
        for uid in known:
            if uid not in present:
                self.pod_gone(uid)
        for pod in pods:
            self.pod_seen(pod, is_listed=True)

    def devices_told(self, tell: Callable[[DeviceKeeper], None]) -> None:
        """Objects of dynamic resource allocation were listed, created, changed or deleted."""
        with suppress(InvariantError), self._exclusive():
            tell(self._facts.devices)

    def lost_devices(self) -> list[LostDevices]:
        """What cannot be had of the devices of configured nodes, by node and leaf cell type, and why."""
        with self._open_ledger():
            return self._facts.devices.reported_losses()

    def shortages(self) -> list[Shortage]:
        """The promises to virtual clusters that can each be kept, but not all together, by chain."""
        with self._open_ledger():
            return self._facts.devices.shortages()

    def object_seen(self, ref: ObjectRef) -> None:
        """An object that describes gangs was created, changed or deleted."""
        with suppress(InvariantError), self._exclusive():
            self._facts.object_seen(ref)
            self._on_gang_change(GangKey(ref.namespace, ref.name))

    def namespace_changed(self, namespace: str) -> bool:
        """A namespace has other labels. True if its pods may do something else now, and have to be told anew."""
        with self._lock:
            is_concerned = any(one.namespace == namespace for one in self._pods.records(PodState.WAITING))
            if is_concerned:
                self._facts.forget_readings()
            return is_concerned

    def serves(self, scheduler_name: str) -> bool:
        """Are pods of this schedulerName ours?"""
        return self._interpreter.serves(scheduler_name)

    def what_if(self, pods: Sequence[Pod]) -> list[PodOutcome]:
        """What would become of these pods if they were created now; nothing changes. Cost O(cells) for each gang.

        UserError if there are too many.
        """
        check_count(pods)
        readings = [(pod, self._texts.read(pod.metadata, payer=WHAT_IF)) for pod in pods]
        with self._exclusive():
            question = WhatIf(self._leading(), self._interpreter, self._facts.offers, self._facts.own_request)
            return question.answer(readings)

    def gang_state(self, key: GangKey) -> GangState | None:
        """How far a gang has come, None if it has no pods."""
        with self._lock:
            gang = self._facts.gangs.get(key)
            return None if gang is None else state_of(gang, self._facts.gangs.plan(key))

    # Configuration

    def held(self) -> tuple[Holdings, State]:
        """All that another configuration would have to keep, and the present state, which changes on."""
        with self._exclusive():
            ledger = self._leading()
            return self._facts.holdings(), ledger.state

    def waiting_jobs(self) -> list[Waiting]:
        """The jobs that wait, those of the highest priority first. Others are served in between."""
        with self._exclusive():
            records = self._pods.records(PodState.WAITING)
        found: dict[str, Waiting] = {}
        for first in range(0, len(records), LOOKED_AT_ONCE):
            with self._exclusive():
                note_waiting(found, self._facts, records[first : first + LOOKED_AT_ONCE])
            time.sleep(0)  # whoever waits for the lock is to get it, and not we again
        return in_turn(found)

    def nodes_in_use(self) -> frozenset[str]:
        """The nodes that pods of ours run on, or are being bound to."""
        with self._lock:
            return frozenset(record.node for record in self._pods if record.node)

    def draft(self, config_text: str) -> Draft | None:
        """Where to record what a state to come is told; None if nothing is recorded."""
        with self._lock:
            return None if self._recorder is None else self._recorder.draft(config_text)

    def configure(self, configuration: Configuration, text: str) -> bool:
        """Take up another configuration on a replica that does not lead; False on one that does, which has to switch.

        Pods that this makes ours, or reads differently, have to be listed anew.
        """
        with self._exclusive():
            if self._facts.ledger is not None:
                return False
            self._take_up(configuration)
            if self._recorder is not None:
                self._recorder.configured(text)
            return True

    def switch(
        self, configuration: Configuration, successor: Successor, finish: Callable[[Holdings, State], None]
    ) -> float:
        """Replace the state with its successor between two requests; returns how long these had to wait, in seconds.

        `finish` gives the successor what it does not have yet, looking at what is held and at the present state. It
        raises UserError, and nothing else, to keep that.
        """
        with gc_paused(), self._exclusive():
            began = time.perf_counter()
            ledger = self._leading()
            present = ledger.state  # kept until nobody waits any more: to give its groups back takes milliseconds
            finish(self._facts.holdings(), present)
            are_other_nodes = ledger.node_names != successor.ledger.node_names
            ledger.take_over(successor.ledger)
            self._take_up(configuration)
            self._facts.devices.take_over(successor.losses)
            if are_other_nodes:
                self._node_names = NodeNames(ledger.state.topology.node_index)
            self._facts.switched(successor.unaccounted, are_other_nodes=are_other_nodes)
            return time.perf_counter() - began

    def tell_affected(self, affected: Iterable[Affected]) -> None:
        """Tell the owners of running pods what another configuration has done to them."""
        with self._lock:
            for one in affected:
                told = news_of(one)
                for record in filter(None, map(self._pods.get, one.uids)):
                    if told is not None and record.state is not PodState.WAITING:
                        self._announcer.reconfigured(record, *told)

    def _take_up(self, configuration: Configuration) -> None:
        self._facts.configure(configuration.cluster)
        self._interpreter.configure(configuration.cluster, configuration.rules)
        self.patience = self.patience.set_by(configuration.settings)
        self._acceptance.force_bind_threshold = self.patience.force_bind_threshold
        self.preemption = self._evictor.policy = self._waiting.policy = policy_of(configuration.settings)

    # Verbs

    def filter_nodes(self, args: FilterArgs, *, may_wait: bool = True) -> FilterResult:
        """Decide where a pod runs: one node, or none and why (rules 5.1, 5.2).

        Raises BusyError at once if others are served and this call may not wait.
        """
        reading = self._reading(args.pod)
        with self._exclusive(may_wait=may_wait):
            with self._telling_refusals(args.pod, Phase.FILTERING):
                ledger = self._leading()
                record = self._admit(args.pod)
                if record is None or record.may_go:
                    if record is not None:
                        self._acceptance.has_asked(record)
                    return FilterResult(node_names=args.offered())
                suggested = self._node_names.mask(args.node_names)
            self._check_growth(record)
            self._facts.offers.take(record, suggested)
            if record.is_binding and self._acceptance.accepts(ledger, record):
                return self._answer_binding(record)
            if record.refusal_count > MOST_REFUSALS:
                record.refusal_count, record.is_asked = 0, True
                self._nudger.refused(record.uid)
                return self._answer_wait(record, f"kube-scheduler refused {MOST_REFUSALS + 1} places in a row")
            decision = self._schedule(ledger, record, reading, Phase.FILTERING)
            if record.may_go:
                self._acceptance.join(record)
                self._acceptance.has_asked(record)
                return FilterResult(node_names=args.offered())
            if isinstance(decision, Preempt) and self.preemption.by_service and record.request is not None:
                offer = self._facts.offers.of(record.request, [record], exact=record)
                decision = self._preemptions.carry_on(ledger, record, record.request, decision, offer)
            elif isinstance(decision, Bind) and not record.is_binding:  # by itself, not with its gang
                record.bind_info = decision.bind_info
                record.node = decision.bind_info.node
                record.repeat_count = 0
                self._pods.move(record, PodState.BINDING)
                self._acceptance.join(record)
            if record.is_binding:
                if self._acceptance.accepts(ledger, record):
                    return self._answer_binding(record)
                return self._answer_wait(record, ROOM_REASON)
            if isinstance(decision, Preempt):
                return FilterResult(failed_nodes=self._preemptions.tell(record, decision))
            return self._answer_wait(
                record, self._waiting.reason(record, decision) if isinstance(decision, Wait) else ROOM_REASON
            )

    def preempt_victims(self, args: PreemptArgs, *, may_wait: bool = True) -> PreemptResult:
        """Name the victims on one of the candidate nodes (rule 8.4); an empty answer if there is nothing to do.

        Where the service evicts, the answer is always empty, and all victims are made to leave at once. A bind decided
        here is not carried out: the next filter call does that (rule 5.2). Raises BusyError as `filter_nodes`.
        """
        reading = self._reading(args.pod)
        with self._exclusive(may_wait=may_wait):
            with self._telling_refusals(args.pod, Phase.PREEMPTING):
                ledger = self._leading()
                record = self._admit(args.pod)
            if record is None or record.may_go or record.state is PodState.BINDING:
                return PreemptResult({})
            by_service = self.preemption.by_service
            if by_service and record.request is not None and ledger.is_waiting_for_victims(record.request):
                return PreemptResult({})
            candidates = self._node_names.candidates(args.candidates)
            decision = self._schedule(ledger, record, reading, Phase.PREEMPTING, candidates)
            if isinstance(decision, Bind):
                # Nothing is in the way any more, and no event will tell kube-scheduler so.
                self._acceptance.ask_soon(record)
            elif isinstance(decision, Preempt) and by_service:
                self._preemptions.evict(ledger, record, decision)
            elif isinstance(decision, Preempt):
                return pick_victims(record, decision, args.candidates)
            elif isinstance(decision, Wait):  # kube-scheduler may never come to ask which node to use
                self._announcer.waiting(record, self._waiting.reason(record, decision))
            return PreemptResult({})

    def hold_of(self, uid: str) -> Future[None] | None:
        """Done when the binding of this pod need not be held back any more; None if it need not be. Never waits."""
        return self._acceptance.hold_of(uid)

    def bind_pod(self, args: BindArgs) -> None:
        """Write a decided binding to the API server. Repeating it is harmless, also after it succeeded.

        Raises UserError if there is no such decision, or the API server refuses.
        """
        with self._exclusive():
            ledger = self._leading()
            record = self._pods.get(args.pod_uid)
        if record is None:
            record = self._stranger(args)
        with self._exclusive():
            if self._facts.ledger is not ledger:
                raise NotLeadingError("the term of this replica has ended")
            if not (record.may_go or record.node):
                raise UserError(f"{record.key} cannot be bound: no node has been decided for it")
            elif record.node and record.node != args.node:
                raise UserError(f"{record.key} cannot be bound to {args.node!r}: its node is {record.node}")
            if record.state is PodState.BOUND:
                return
            self._acceptance.check_not_held(record)
            annotations = self._facts.to_write(record, args.node)
            record.writes += 1
        try:
            self._binder.write(record, args.node, annotations, "scheduler", self._guard(ledger))
        except UserError as error:
            with self._lock:
                if self._facts.ledger is ledger:
                    self._acceptance.not_written(record, is_unanswered=error.code == 502)
            raise

    # Inside, all under the lock unless they say otherwise

    def _keep_changed(self, changed: Changed) -> None:
        ledger = self._facts.ledger
        if self._secret is not None and ledger is not None:
            self._secret.keep(changed, self._guard(ledger))

    def _changed_bindings(self) -> dict[str, Reading]:
        """What is kept of pods whose annotations were changed, by uid; asks the API server, without the lock.

        Raises KubeError.
        """
        found = {}
        for uid, annotations in (self._secret.changed() if self._secret is not None else {}).items():
            record = self._pods.get(uid)
            if record is not None and record.node:
                meta = PodMetadata(record.name, record.namespace, uid, annotations=dict(annotations))
                found[uid] = self._texts.read(meta, node=record.node)
        return found

    def _reading(self, pod: AskedPod) -> Reading:
        """What an asked pod says, made out without the lock. Raises UnknownPodError if that takes longer."""
        meta = pod.metadata
        record = self._pods.get(meta.uid)
        known = record.reading if record is not None else None
        if known is not None and known.text == pod.annotations.get(SCHEDULING_SPEC, "") and not known.is_pending:
            return known
        reading = self._texts.read(meta)
        if reading.is_pending and isinstance(reading.spec, UserError):
            raise UnknownPodError(reading.spec.message)
        return reading

    def _stranger(self, args: BindArgs) -> PodRecord:
        """A pod that is not ours, which filter lets pass. Raises UnknownPodError if it is; asks the API server."""
        pod = self._binder.read(args.pod_namespace, args.pod_name)
        if pod.metadata.uid != args.pod_uid or self._interpreter.is_ours(pod):
            raise _unknown(args.pod_uid, args.pod_namespace, args.pod_name)
        return PodRecord(args.pod_uid, args.pod_name, args.pod_namespace, pod.metadata.version, may_go=True)

    @contextmanager
    def _exclusive(self, *, may_wait: bool = True) -> Iterator[None]:
        """Hold the lock. Any exception but UserError, ours or the core's, stops the service.

        Raises InvariantError when that happens and ever after. Those who report facts suppress it: the fault is on
        record, and nobody listens any more. Raises BusyError if others hold the lock and this call may not wait.
        """
        if not self._lock.acquire(blocking=may_wait):
            raise BusyError("busy")
        try:
            if self._fault:
                raise InvariantError(f"stopped after an internal error: {self._fault}")
            try:
                yield
            except UserError:
                raise
            except Exception as error:
                self._fault = f"{type(error).__name__}: {error}"
                fields = {"event": repr(self._facts.ledger.last_event) if self._facts.ledger else ""}
                log.critical("stopped after an internal error", exc_info=error, extra={"fields": fields})
                raise InvariantError(f"stopped after an internal error: {self._fault}") from error
        finally:
            self._lock.release()

    @contextmanager
    def _open_ledger(self) -> Iterator[Ledger]:
        """Takes the lock. What stopped the service may still be looked at."""
        with self._lock:
            if self._facts.ledger is None:
                raise NotLeadingError(self.standing)
            yield self._facts.ledger

    def _leading(self) -> Ledger:
        if self._facts.ledger is None or not self._holds():
            raise NotLeadingError(self.standing or "the term of this replica has ended")
        return self._facts.ledger

    def _guard(self, ledger: Ledger) -> Callable[[], bool]:
        """May what was decided in this term still be written? To be asked without the lock."""
        return lambda: self._facts.ledger is ledger and self._holds()

    def _admit(self, pod: AskedPod) -> PodRecord | None:
        """The pod that is asked about, None if it is not ours. Raises UnknownPodError if it may become known yet."""
        meta = pod.metadata
        record = self._pods.get(meta.uid)
        if record is None and not self._interpreter.is_ours(pod.whole()):
            return None
        record = self._known(meta.uid, meta.namespace, meta.name)
        if record.state is PodState.BOUND:
            raise UserError(f"{record.key} is already bound to node {record.node}")
        if not is_older(meta.version, record.version):
            record.version = meta.version
        return record

    @contextmanager
    def _telling_refusals(self, pod: AskedPod, phase: Phase) -> Iterator[None]:
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

    def _check_growth(self, record: PodRecord) -> None:
        """Raise GrowingError if the pod's gang may be complete in a moment."""
        if not self.patience.waits_for_pods or record.gang is None or record.state is not PodState.WAITING:
            return
        is_forming = bool(self._facts.gangs.plan(record.gang).forming)
        if self._facts.growth.may_wait(record.gang, is_forming=is_forming):
            raise GrowingError(f"podgroup {record.gang} is being created: ask again in a moment")

    def _known(self, uid: str, namespace: str, name: str) -> PodRecord:
        record = self._pods.get(uid)
        if record is None or (record.namespace, record.name) != (namespace, name):
            raise _unknown(uid, namespace, name)
        return record

    def _schedule(
        self, ledger: Ledger, record: PodRecord, reading: Reading, phase: Phase, candidates: Mask | None = None
    ) -> Bind | Preempt | Wait | None:
        """Ask the core, carry a Filtering bind out at once, and tell of it. None: the pod takes no cells and may go."""
        started = time.perf_counter()
        request: PodRequest | None = None
        try:
            step = self._next_step(record, reading, phase)
            record.is_asked = True
            if isinstance(step, Round):
                request = step.parts[0].request if step.parts else None
                decision = self._waiting.ask_round(ledger, record, step, phase)
            elif isinstance(step, Wait):
                self._waiting.tell_gang_soon(record)
                decision = step
            elif step.request is None:
                self._pods.let_go(record)
                decision = None
            else:
                request = step.request
                self._facts.ask_for(ledger, record, request)
                slots, exact = self._facts.slots(record, request), record if phase is Phase.FILTERING else None
                offer = self._facts.offers.of(request, slots, exact=exact, candidates=candidates)
                if phase is Phase.FILTERING and ledger.has_lost_cells(request):
                    # In this phase the core would bind to a bad node; in the other it looks for a place anew.
                    ledger.decide(request, Phase.PREEMPTING, offer, commit=False)
                decision = ledger.decide(request, phase, offer, commit=phase is Phase.FILTERING)
                is_emptied = isinstance(decision, Wait) and decision.is_emptied
                if is_emptied and self._acceptance.is_emptied(ledger, record, [request]):
                    offer = self._facts.offers.of(request, slots, exact=record)
                    decision = ledger.decide(request, phase, offer, commit=phase is Phase.FILTERING)
        except UserError as error:
            if isinstance(error, AccessRefused):
                self._facts.release(record)  # nothing is reserved for who may not have it
            tell_decision(self.metrics, record.key, request, phase, error, started)
            self._announcer.refused(record, error.message)
            raise
        if decision is None:
            self._nudger.settled(record.uid)
            return None
        is_placed = isinstance(decision, Bind) and phase is Phase.FILTERING
        (self._nudger.settled if is_placed else self._nudger.refused)(record.uid)
        tell_decision(self.metrics, record.key, request, phase, decision, started)
        return decision

    def _next_step(self, record: PodRecord, reading: Reading, phase: Phase) -> Alone | Round | Wait:
        """How a pod that waits is to be tried. Raises UserError if it is refused."""
        if reading.is_own or not record.is_of_dialect:
            record.reading = reading  # what is decided is decided of this text
            return Alone(self._facts.own_request(record, reading))
        record.is_doubted = record.is_doubted and phase is not Phase.FILTERING
        return self._facts.rounds.step(record)

    def _is_victim(self, uid: str) -> bool:
        """Takes the lock."""
        with self._lock:
            ledger, record = self._facts.ledger, self._pods.get(uid)
            if ledger is None or self._fault or record is None or not self._holds():
                return False
            return self._preemptions.is_victim(ledger, record)

    def _answer_binding(self, record: PodRecord) -> FilterResult:
        """The node of a pod that has its cells, if kube-scheduler offers it now."""
        if self._facts.offers.includes(record, record.node):
            return FilterResult(node_names=[record.node])
        text = f"being bound to node {record.node}, which was not among the nodes offered"
        return FilterResult(failed_nodes={WAITING_KEY: text})

    def _answer_wait(self, record: PodRecord, reason: str) -> FilterResult:
        self._announcer.waiting(record, reason)
        return FilterResult(failed_nodes={WAITING_KEY: self._waiting.in_short(record) or reason})

    def _try_on_core(self, uids: Sequence[str]) -> list[str]:
        """Takes the lock."""
        return self._waiting.try_on_core(uids)

    def _gauges(self) -> Gauges:
        """Takes the lock, but not while it looks at tens of thousands of groups, which may change meanwhile."""
        with self._lock:
            pods = self._pods.counts()
            state = self._facts.ledger.state if self._facts.ledger else None
            groups = list(state.groups.values()) if state else []
            leaf_cells = count_leaf_cells(state) if state else {}
            short_leaf_cells = count_short_leaf_cells(state) if state else {}
            shared_short_cells = count_shared_short_cells(state) if state else {}
            lost_devices = self._facts.devices.counts()
            bad_node_count = count_bad_nodes(state) if state else 0
        preempting = min(count_preempting_pods(groups), pods["Waiting"])
        return Gauges(
            pods=pods | {"Waiting": pods["Waiting"] - preempting, "Preempting": preempting},
            groups=count_groups(groups) if state else {},
            leaf_cells=leaf_cells,
            short_leaf_cells=short_leaf_cells,
            shared_short_cells=shared_short_cells,
            lost_devices=lost_devices,
            bad_node_count=bad_node_count,
            is_ready=self.is_ready,
            is_healthy=not self._fault,
        )


def _unknown(uid: str, namespace: str, name: str) -> UnknownPodError:
    return UnknownPodError(
        f"pod {namespace}/{name} (uid {uid}) is not known: it is deleted, completed, not of this scheduler, or "
        "Kubernetes has not told of it yet"
    )
