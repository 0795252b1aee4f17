"""Answers kube-scheduler: a pod's node, its victims, and its binding (chapter 5), each with a log line and a count.

A placement is assumed when decided: the pod is Binding and its cells are allocated, long before Kubernetes has the
binding. From then on every repeated question gets the same node. Log records have values only; their text is made on
the log's thread.
"""

import logging
import time
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Phase
from hived.values.specs import PodRequest
from hived_config.settings import Settings, WaitingMessages
from hived_extender.api.waiting import PodOutcome
from hived_extender.jobs.interpreter import AccessRefused
from hived_extender.jobs.node_names import Mask, NodeNames
from hived_extender.jobs.readings import Reading
from hived_extender.jobs.wire import WAITING_KEY, AskedPod, FilterArgs, FilterResult, PreemptResult
from hived_extender.kube.answers import is_older
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.acceptance import MOST_REFUSALS, Acceptance
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core, Refused
from hived_extender.machine.effects import Awaits, BindPod, Outbox, ReadPod
from hived_extender.machine.gangs.gang import GrowingError
from hived_extender.machine.gangs.plans import Round
from hived_extender.machine.gangs.rounds import Alone
from hived_extender.machine.notices import Reason
from hived_extender.machine.pods import PodName, PodRecord, PodState, Seen, UnknownPodError
from hived_extender.machine.preemptions import Preemptions, pick_victims
from hived_extender.machine.retries import Retries
from hived_extender.machine.stimuli import BindAsked, FilterAsked, PreemptAsked, WhatIfAsked
from hived_extender.machine.victim_sets import Wanted
from hived_extender.machine.waiting import ROOM_REASON, WaitingPods
from hived_extender.machine.what_if import WhatIf

log = logging.getLogger(__name__)

Outcome = Bind | Preempt | Wait | UserError

_VERBS = {Phase.FILTERING: "filter", Phase.PREEMPTING: "preempt"}
_NAMES: dict[type[Outcome], str] = {Bind: "bind", Preempt: "preempt", Wait: "wait"}
"""Of outcomes; all others are errors."""


class DecisionRecord(logging.LogRecord):
    """The record of one answer. All have the same line, level and message, and no thread."""

    def __init__(
        self, pod: str, request: PodRequest | None, verb: str, name: str, outcome: Outcome, seconds: float
    ) -> None:
        created = time.time()
        relative = _ALIKE["relativeCreated"] + (created - _ALIKE["created"]) * 1000
        self.__dict__ = {**_ALIKE, "created": created, "msecs": created % 1 * 1000 // 1, "relativeCreated": relative}
        self._values = pod, request, verb, name, outcome, seconds

    @property
    def fields(self) -> dict[str, Any]:
        """The facts of the line."""
        pod, request, verb, name, outcome, seconds = self._values
        return {
            "pod": pod,
            "group": request.spec.group.name if request else "",
            "vc": request.spec.virtual_cluster if request else "",
            "verb": verb,
            "outcome": name,
            "reason": _reason(outcome),
            "us": round(seconds * 1e6),
        }


_ALIKE: dict[str, Any] = {
    **vars(logging.LogRecord(log.name, logging.INFO, __file__, 0, "decision", None, None, "tell_decision")),
    "thread": None,
    "threadName": None,
}


def tell_decision(
    metrics: Metrics, pod: str, request: PodRequest | None, phase: Phase, outcome: Outcome, started: float
) -> None:
    """Log and count a request's outcome; `pod` is `namespace/name`, `started` a reading of `time.perf_counter`."""
    seconds = time.perf_counter() - started
    verb, name = _VERBS[phase], _NAMES.get(type(outcome), "error")
    metrics.count_decision(verb, name, seconds)
    if log.isEnabledFor(logging.INFO):
        log.handle(DecisionRecord(pod, request, verb, name, outcome, seconds))


def _reason(outcome: Outcome) -> str:
    if isinstance(outcome, Bind):
        return f"node {outcome.bind_info.node}"
    if isinstance(outcome, Preempt):
        return "victims on " + ", ".join(f"{node} ({len(uids)})" for node, uids in outcome.victims_by_node.items())
    return outcome.reason if isinstance(outcome, Wait) else outcome.message


RECOVERING = "bound pods are still being replayed"


class NotLeadingError(UserError):
    """Another replica leads; the caller should reconnect to find it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not ready: {why}", code=503)


class VerbSettings(msgspec.Struct, frozen=True):
    """Limits of answers to kube-scheduler.

    After `force_bind_threshold` repeated filter calls for a Binding pod, the service binds it itself. `waiting_block_s`
    delays the answer "wait", so that pods are served more strictly in order. `wake_delay_s` is the time for
    kube-scheduler to ask by itself after a change that made room. With `waits_for_pods` the answer about a gang in
    creation may be GrowingError for a moment. `waiting_messages` chooses the text for pods without room.
    """

    force_bind_threshold: int = 3
    waiting_block_s: float = 0.0
    wake_delay_s: float = 0.3
    waits_for_pods: bool = False
    waiting_messages: WaitingMessages = WaitingMessages.EXPLAINED

    def set_by(self, settings: Settings) -> "VerbSettings":
        """The same with the values of a configuration (rule 1.12)."""
        block_s = settings.waiting_pod_block_ms / 1000
        return replace(
            self,
            force_bind_threshold=settings.force_pod_bind_threshold,
            waiting_block_s=block_s,
            waiting_messages=settings.waiting_messages,
        )


class Verbs:
    """The three verbs. `standing` says why a replica does not lead; `verb_settings` may be replaced."""

    def __init__(
        self,
        verb_settings: VerbSettings,
        cache: ClusterCache,
        outbox: Outbox,
        preemptions: Preemptions,
        acceptance: Acceptance,
        waiting: WaitingPods,
        announcements: Announcements,
        retries: Retries,
    ) -> None:
        self.verb_settings = verb_settings
        self.standing = RECOVERING
        self.node_names = NodeNames({})
        self._interpreter = cache.interpreter
        self._cache, self._pods = cache, cache.pods
        self._preemptions = preemptions
        self._acceptance = acceptance
        self._waiting = waiting
        self._gang_notices = waiting.gang_notices
        self._announcements = announcements
        self._retries = retries
        self._metrics = outbox.metrics

    @property
    def core(self) -> Core:
        """The core of the present term. Raises NotLeadingError if there is none."""
        if self._cache.core is None:
            raise NotLeadingError(self.standing or "the term of this replica has ended")
        return self._cache.core

    def filter_nodes(self, asked: FilterAsked) -> FilterResult | PodOutcome:
        """Decide where a pod runs: one node, or none and why (rules 5.1, 5.2)."""
        args, started = asked.args, time.perf_counter()
        if asked.tentatively:
            return self._what_if.of_asked(args.pod, asked.reading, self.node_names.mask(args.node_names))
        try:
            core = self.core
            record = self._admit(args.pod, asked.reading)
            if record is None or record.is_cleared:
                return FilterResult(node_names=args.offered()) if record is None else self._answer_cleared(record, args)
            suggested = self.node_names.mask(args.node_names)
        except UserError as error:
            self._tell_refusal(args.pod, Phase.FILTERING, error, started)
            raise
        self._check_growth(record)
        self._cache.offers.take(record, suggested)
        if record.state is PodState.BINDING and self._acceptance.accepts(core, record):
            return self._answer_binding(record)
        if self._acceptance.has_enough(record):
            record.is_asked = True
            self._retries.refused(record.uid)
            refused = f"kube-scheduler has refused {MOST_REFUSALS + 1} places for it in a row"
            return self._answer_wait(record, f"{refused}; it is tried after the next change")
        decision, wanted = self._schedule(core, record, asked.reading, Phase.FILTERING)
        if record.is_cleared:
            self._acceptance.starts.join(record)
            return self._answer_cleared(record, args)
        by_service = self._preemptions.policy.by_service
        if isinstance(decision, Preempt | Refused) and by_service and record.request is not None:
            wanted = wanted or self._wanted(record, record.request, exact=record)
            decision = self._waiting.make_room(core, record, wanted, decision)
        elif isinstance(decision, Bind) and record.state is not PodState.BINDING and record.request is not None:
            self._pods.place(record, record.request, decision.bind_info)  # by itself, not with its gang
            self._acceptance.starts.join(record)
        if record.state is PodState.BINDING:
            if self._acceptance.accepts(core, record):
                return self._answer_binding(record)
            return self._answer_wait(record, ROOM_REASON)
        if isinstance(decision, Preempt):
            return FilterResult(failed_nodes=self._preemptions.tell(record, decision))
        reason = self._waiting.told(record, decision) if isinstance(decision, Wait) else ROOM_REASON
        return self._answer_wait(record, reason)

    def preempt_victims(self, asked: PreemptAsked) -> PreemptResult:
        """Name the victims on one of the candidate nodes (rule 8.4); an empty answer if there is nothing to do.

        If the service evicts, the answer is empty, and all victims are evicted at once. A bind decided here is left to
        the next filter call (rule 5.2).
        """
        args = asked.args
        started = time.perf_counter()
        try:
            core = self.core
            record = self._admit(args.pod, asked.reading)
        except UserError as error:
            self._tell_refusal(args.pod, Phase.PREEMPTING, error, started)
            raise
        if record is None or record.state.is_placed or self._preemptions.never_preempts(record):
            return PreemptResult({})
        by_service = self._preemptions.policy.by_service
        if by_service and record.request is not None and core.is_waiting_for_victims(record.request):
            return PreemptResult({})
        candidates = self.node_names.candidates(args.candidates)
        decision, _ = self._schedule(core, record, asked.reading, Phase.PREEMPTING, candidates)
        if isinstance(decision, Bind):
            # The way is free, and no event will tell kube-scheduler so.
            self._acceptance.emptied.look_soon(record)
        elif isinstance(decision, Preempt) and by_service:
            self._preemptions.evict(core, record, decision)
        elif isinstance(decision, Preempt):
            picked = pick_victims(record, decision, args.candidates)
            chosen = (picked.node_name_to_meta_victims or {}).values()
            uids = [pod.uid for each in chosen for pod in each.pods]
            self._preemptions.left_to_scheduler(record, uids)
            return picked
        elif isinstance(decision, Wait):  # kube-scheduler may never come to ask which node to use
            self._announcements.say(record, Reason.WAITING, self._waiting.told(record, decision))
        return PreemptResult({})

    def bind_pod(self, asked: BindAsked) -> Awaits | None:
        """The write of a decided binding; None if already written.

        Raises UserError if there is no such decision.
        """
        args = asked.args
        core = self.core
        record = self._pods.get(args.pod_uid)
        if record is None and asked.stranger is None:
            return Awaits(ReadPod(PodName(args.pod_uid, args.pod_namespace, args.pod_name)))
        record = record or self._stranger(asked)
        if not record.state.is_placed:
            raise UserError(f"{record.key} cannot be bound: no node has been decided for it")
        if record.place.node not in ("", args.node):
            raise UserError(f"{record.key} cannot be bound to {args.node!r}: its node is {record.place.node}")
        if record.state is PodState.BOUND:
            return None
        self._acceptance.check_not_held(core, record)
        annotations = self._cache.bound.to_write(record, args.node)
        record.writing = record.writing.begun()
        return Awaits(BindPod(record.named, args.node, record.seen.version, annotations, "scheduler"))

    def what_if(self, asked: WhatIfAsked) -> list[PodOutcome]:
        """The outcomes of pods if they were created now; nothing changes. Cost O(cells) for each gang."""
        return self._what_if.of_new(asked.pods)

    @property
    def _what_if(self) -> WhatIf:
        return WhatIf(
            self.core, self._cache, self._waiting.explaining, self._waiting.kept.quotas, self._preemptions
        )  # fmt: skip

    def _stranger(self, asked: BindAsked) -> PodRecord:
        """Pass a foreign pod through filter. Raises UnknownPodError if it is hived's."""
        args, pod = asked.args, asked.stranger
        if pod is None or pod.metadata.uid != args.pod_uid or self._interpreter.is_ours(pod):
            raise _unknown(PodName(args.pod_uid, args.pod_namespace, args.pod_name))
        return PodRecord(args.pod_uid, args.pod_name, args.pod_namespace, PodState.CLEARED, Seen(pod.metadata.version))

    def _admit(self, pod: AskedPod, reading: Reading) -> PodRecord | None:
        """The record of an asked pod, None if foreign. Raises UnknownPodError if it may still become known."""
        meta = pod.metadata
        record = self._pods.get(meta.uid)
        if record is None and not self._interpreter.is_ours(pod.whole()):
            return None
        if record is None or (record.namespace, record.name) != (meta.namespace, meta.name):
            raise _unknown(PodName(meta.uid, meta.namespace, meta.name))
        if record.state is PodState.BOUND:
            raise UserError(f"{record.key} is already bound to node {record.place.node}")
        if meta.version != record.seen.version and not is_older(meta.version, record.seen.version):
            self._cache.pod_asked(record, pod, reading)
        return record

    def _tell_refusal(self, pod: AskedPod, phase: Phase, error: UserError, started: float) -> None:
        """Log a request refused before the core is asked. An unknown pod may be known in a moment."""
        if not isinstance(error, UnknownPodError):
            tell_decision(self._metrics, f"{pod.metadata.namespace}/{pod.metadata.name}", None, phase, error, started)

    def _check_growth(self, record: PodRecord) -> None:
        """Raise GrowingError if the pod's gang may be complete in a moment."""
        if not self.verb_settings.waits_for_pods or record.gang is None or record.state.has_node:
            return
        is_forming = bool(self._cache.gangs.plan(record.gang).forming)
        if self._cache.growth.may_wait(record.gang, is_forming=is_forming):
            raise GrowingError(f"podgroup/{record.gang} is being created: ask again in a moment")

    def _schedule(
        self, core: Core, record: PodRecord, reading: Reading, phase: Phase, candidates: Mask | None = None
    ) -> tuple[Bind | Preempt | Wait | None, Wanted | None]:
        """Ask the core, carry out a Filtering bind at once, and log it. None: the pod takes no cells and may go.

        Also returns the request, if it was for the pod alone.
        """
        started = time.perf_counter()
        request: PodRequest | None = None
        wanted: Wanted | None = None
        try:
            step = self._next_step(record, reading, phase)
            record.is_asked = True
            if isinstance(step, Round):
                request = step.parts[0].request if step.parts else None
                decision = self._waiting.ask_round(core, record, step, phase)
            elif isinstance(step, Wait):
                self._gang_notices.tell_gang_soon(record)
                decision = step
            elif step.request is None:
                self._pods.move(record, PodState.CLEARED)
                decision = None
            else:
                request = step.request
                decision, wanted = self._ask_alone(core, record, request, phase, candidates)
        except UserError as error:
            if isinstance(error, AccessRefused):
                self._cache.bound.release(record)  # nothing is reserved for who may not have it
            tell_decision(self._metrics, record.key, request, phase, error, started)
            self._announcements.say(record, Reason.INVALID_SPEC, error.message)
            raise
        if decision is None:
            self._retries.settled(record.uid)
            return None, None
        is_placed = isinstance(decision, Bind) and phase is Phase.FILTERING
        (self._retries.settled if is_placed else self._retries.refused)(record.uid)
        tell_decision(self._metrics, record.key, request, phase, decision, started)
        return decision, wanted

    def _wanted(
        self, record: PodRecord, request: PodRequest, *, exact: PodRecord | None, candidates: Mask | None = None
    ) -> Wanted:
        slots = self._cache.slots(record, request)
        return Wanted(request, slots, self._cache.offers.of(request, slots, exact=exact, candidates=candidates))

    def _ask_alone(
        self, core: Core, record: PodRecord, request: PodRequest, phase: Phase, candidates: Mask | None
    ) -> tuple[Bind | Preempt | Wait, Wanted | None]:
        """Ask the core for a pod that starts by itself, or for its whole affinity group."""
        if missing := self._cache.missing_members(request):
            return Wait(missing), None
        self._cache.bound.ask_for(core, record, request)
        is_filtering = phase is Phase.FILTERING
        wanted = self._wanted(record, request, exact=record if is_filtering else None, candidates=candidates)
        offer = self._cache.leaves_slots(core, record, request, wanted.offer)
        if is_filtering and core.has_lost_cells(request):
            # In this phase the core would bind to a bad node; in the other it searches a new place.
            core.decide(request, Phase.PREEMPTING, offer, commit=False)
        held = self._waiting.kept.answer(core, record, request, offer, commit=is_filtering)
        decision = held or core.decide(request, phase, offer, commit=is_filtering)
        is_emptied = isinstance(decision, Wait) and decision.is_emptied
        if is_emptied and self._acceptance.emptied.are_refused(core, record, [request]):
            wanted = self._wanted(record, request, exact=record)
            decision = core.decide(request, phase, wanted.offer, commit=is_filtering)
        return decision, wanted

    def _next_step(self, record: PodRecord, reading: Reading, phase: Phase) -> Alone | Round | Wait:
        """The way to try a waiting pod. Raises UserError if it is refused."""
        if reading.is_own or not record.is_of_dialect:
            if record.is_of_dialect:  # kube-scheduler knows of the change before our watch does
                self._cache.use_own_annotation(record)
            record.reading = reading  # what is decided is decided of this text
            return Alone(self._cache.bound.own_request(record, reading))
        if record.offer.is_doubted and phase is Phase.FILTERING:
            record.offer = replace(record.offer, is_doubted=False)
        if record.gang is not None and not self._waiting.kept.chooses(record):
            self._cache.rounds.choose(self.core, record.gang)
        return self._cache.rounds.step(record)

    def _answer_cleared(self, record: PodRecord, args: FilterArgs) -> FilterResult:
        """All nodes for a pod without cells, unless its gang must wait."""
        self._acceptance.starts.has_asked(record)
        if why := self._acceptance.starts.refusal_for_now(record):
            return self._told_to_wait(record, why)
        return FilterResult(node_names=args.offered())

    def _answer_binding(self, record: PodRecord) -> FilterResult:
        """The node of a placed pod, if kube-scheduler offers it now, unless its gang must wait."""
        node = record.place.node
        if why := self._acceptance.starts.refusal_for_now(record):
            return self._told_to_wait(record, why)
        if self._cache.offers.includes(record, node):
            return FilterResult(node_names=[node])
        text = f"being bound to node {node}, which was not among the nodes offered"
        return FilterResult(failed_nodes={WAITING_KEY: text})

    def _answer_wait(self, record: PodRecord, reason: str) -> FilterResult:
        self._announcements.say(record, Reason.WAITING, reason)
        return self._told_to_wait(record, reason)

    def _told_to_wait(self, record: PodRecord, reason: str) -> FilterResult:
        return FilterResult(failed_nodes={WAITING_KEY: self._gang_notices.for_kube_scheduler(record, reason)})


def _unknown(pod: PodName) -> UnknownPodError:
    return UnknownPodError(
        f"pod {pod.key} (uid {pod.uid}) is not known: it is deleted, completed, not of "
        "this scheduler, or Kubernetes has not told of it yet"
    )
