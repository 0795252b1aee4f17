"""The service without the world: facts and questions go in, answers and effects come out.

    answer, effects = machine.handle(stimulus, now)

Nothing here reads a clock, waits, starts a thread or calls the API server, so a test is a table of stimuli and effects.
Equal stimuli at equal moments have equal answers and effects. Facts are taken in at all times (`cache`), questions are
answered between `Elected` and `Deposed`. Not thread-safe: `runner.Runner` hands in one stimulus at a time.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.loader import Configuration
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.jobs.node_names import NodeNames
from hived_extender.kube.metrics import Metrics
from hived_extender.machine import (
    acceptance,
    announcements,
    bound_pods,
    emptied,
    empty_slots,
    explaining,
    gang_notices,
    holds,
    kept_cells,
    moves,
    preemptions,
    retries,
    statuses,
    stimuli,
    waiting,
)
from hived_extender.machine.cluster_cache import MISSING_TIMER, ClusterCache
from hived_extender.machine.counts import Tallies
from hived_extender.machine.effects import (
    AnnotatePod,
    Announce,
    BindPod,
    CallJob,
    Effect,
    Errand,
    EvictPod,
    KeepChanged,
    Now,
    Outbox,
    ReadPod,
    TouchPod,
    WriteStatuses,
)
from hived_extender.machine.notices import Pace
from hived_extender.machine.pods import PodState
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.recording.record import Recorder
from hived_extender.machine.retries import Wakes
from hived_extender.machine.terms import Began, Terms
from hived_extender.machine.verbs import Verbs, VerbSettings

log = logging.getLogger(__name__)

TURN = "turn"
"""The timer of the next turn of the queues."""

AGAIN_S = 0.5
"""After a turn has failed."""


class Queueing(Protocol):
    """The queues of jobs, which take their turns within the machine."""

    @property
    def has_turn(self) -> bool:
        """True if a `TakeTurn` has something to do."""

    def handlers(self) -> dict[type[Any], Callable[[Any], Any]]:
        """The handler of each stimulus about queues."""

    def wrote(self, wrote: stimuli.Wrote) -> None:
        """Take in the result of a `CallJob` or an `Errand`."""

    def follow_up(self) -> None:
        """Take in what other parts have done, after each stimulus."""

    def begin_turn(self) -> None:
        """Have a turn taken: its time has come."""

    def begin_anew(self) -> None:
        """Drop all that is half done, after a mistake of ours, and read it anew."""


class Machine:
    """Routes each stimulus to its part and returns the answer with all effects.

    `cache`, `verbs`, `starts` and `announcements` may be read between two stimuli; `term` counts this replica's terms,
    and `began` says how the last one began.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        interpreter: Interpreter,
        *,
        verb_settings: VerbSettings | None = None,
        preemption: PreemptionPolicy | None = None,
        recorder: Recorder | None = None,
        metrics: Metrics | None = None,
        pace: Pace | None = None,
        prover: Prover | None = None,
    ) -> None:
        """`pace` limits writes about each pod. `prover` proves bindings."""
        verb_settings = verb_settings or VerbSettings()
        self.term = 0
        self.began = Began(0.0, 0, 0)
        self.interpreter, self.recorder = interpreter, recorder
        outbox = self._outbox = Outbox(metrics)
        self._retries = retries.Retries(outbox, verb_settings.wake_delay_s)
        self.announcements = announcements.Announcements(outbox, pace=pace)
        cache = self.cache = ClusterCache(interpreter, prover or Prover(), outbox, self.announcements, self._retries)
        if recorder is not None:
            recorder.job_of = cache.job_of
        self.terms = Terms(spec, recorder, cache, self.announcements, self._retries)
        self._wakes = Wakes(outbox, cache.pods, self._retries)
        self.preemptions = preemptions.Preemptions(
            preemption or PreemptionPolicy(), cache, outbox, self.announcements, self._wakes
        )
        self._acceptance = acceptance.Acceptance(cache, outbox, self.announcements, self._retries, self._wakes)
        self._acceptance.emptied.is_clearing = self.preemptions.is_clearing
        self.starts = self._acceptance.starts
        cache.nodes.keep_shares(self.preemptions.policy.keeps_shares)
        self._acceptance.force_bind_threshold = verb_settings.force_bind_threshold
        self.moves = moves.Moves(cache, outbox, self.announcements, self.preemptions.own_grace)
        self.holds = holds.Holds(cache, self.preemptions, self._retries)
        self.kept = kept_cells.KeptCells(self.moves, self.holds)
        self.explaining = explaining.Explaining(cache, outbox)
        self.explaining.messages = verb_settings.waiting_messages
        self._gang_notices = gang_notices.GangNotices(cache, outbox, self.announcements, self._wakes)
        self._waiting = waiting.WaitingPods(
            cache, self._gang_notices, self.preemptions, self._acceptance, self.announcements, self._retries,
            self.kept, self.explaining,
        )  # fmt: skip
        self.verbs = Verbs(
            verb_settings,
            cache,
            outbox,
            self.preemptions,
            self._acceptance,
            self._waiting,
            self.announcements,
            self._retries,
        )
        self.tallies = Tallies(cache, outbox, self.preemptions, self.moves)
        self._statuses = statuses.Statuses(outbox, cache.gangs)
        self._empty_slots = empty_slots.EmptySlots(cache, outbox)
        self._queues: Queueing | None = None
        self._follow_queues: Callable[[Any], Any] = lambda _: None
        self._is_broken = False
        self._handlers = self._by_stimulus()
        self._timers = self._by_timer()

    def join(self, queues: Queueing) -> Outbox:
        """Have queues take their turns here from now on; returns where they put their effects and timers.

        A mistake of theirs stops no pod: it is logged, and they begin anew. One of the machine, while they ask it
        something, is one of the machine.
        """
        self._queues, self._follow_queues = queues, self._guarded(lambda _: queues.follow_up())
        begin_turn = self._guarded(lambda _: queues.begin_turn())
        self._handlers |= {kind: self._guarded(each) for kind, each in queues.handlers().items()}
        self._timers[TURN] = lambda *_: begin_turn(None)
        return self._outbox

    def _guarded(self, act: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def guarded(stimulus: Any) -> Any:
            try:
                return act(stimulus)
            except UserError:
                raise
            except Exception:
                if self._is_broken or self._queues is None:
                    raise
                log.critical("a turn of the queues has failed, and is tried again", exc_info=True)
                self._queues.begin_anew()
                self._outbox.wake_in((TURN, ""), AGAIN_S)
                return None

        return guarded

    def ask(self, stimulus: stimuli.Stimulus) -> Any:
        """Handle a stimulus for the queues within another one; its effects go with those of that. Raises UserError."""
        try:
            answer = self._handlers[type(stimulus)](stimulus)
            self._follow_up()
        except UserError:
            raise
        except Exception:
            self._is_broken = True
            raise
        return answer

    def _by_stimulus(self) -> dict[type[Any], Callable[[Any], Any]]:
        return {
            stimuli.NodesListed: lambda one: self.cache.sync_nodes(one.names),
            stimuli.NodeSeen: lambda one: self.cache.node_seen(one.node, is_gone=one.is_gone),
            **self.tallies.handlers(self._pod_seen, self._pod_gone),
            stimuli.ObjectSeen: self._object_seen,
            stimuli.NamespaceChanged: self._namespace_changed,
            stimuli.DevicesListed: lambda one: self.cache.devices.sync_objects(one.kind, one.objects),
            stimuli.DeviceSeen: lambda one: self.cache.devices.object_seen(one.object, is_gone=one.is_gone),
            stimuli.FilterAsked: self.verbs.filter_nodes,
            stimuli.PreemptAsked: self.verbs.preempt_victims,
            stimuli.BindAsked: self.verbs.bind_pod,
            stimuli.WhatIfAsked: self.verbs.what_if,
            **self.kept.handlers(),
            stimuli.Wrote: self._wrote,
            stimuli.TimeCame: self._time_came,
            stimuli.TryWaiting: lambda one: self._waiting.try_some(),
            stimuli.Closing: lambda one: self.cache.bound.kept.flush(),
            stimuli.Elected: self._elected,
            stimuli.Deposed: self._deposed,
            stimuli.Configured: self._configured,
            stimuli.Switched: self._switched,
            stimuli.Reconfigured: lambda one: _tell_affected(one, self.cache, self.announcements),
        }

    def _by_timer(self) -> dict[str, Callable[[str, Any], None]]:
        return {
            **dict.fromkeys(acceptance.TIMERS, self._acceptance.time_came),
            **dict.fromkeys(emptied.TIMERS, self._acceptance.emptied.time_came),
            **dict.fromkeys(gang_notices.TIMERS, self._gang_notices.time_came),
            **dict.fromkeys(statuses.TIMERS, self._statuses.time_came),
            empty_slots.TIMER: self._empty_slots.time_came,
            MISSING_TIMER: self.cache.members_are_late,
            retries.TIMER: self._retries.time_came,
            announcements.TIMER: self.announcements.time_came,
            preemptions.TIMER: self.preemptions.time_came,
            preemptions.OVERDUE: self.preemptions.is_overdue,
            **dict.fromkeys(moves.TIMERS, self.moves.time_came),
            bound_pods.TIMER: self.cache.bound.rewrites.time_came,
            bound_pods.KEEP_TIMER: self.cache.bound.kept.time_came,
        }

    @property
    def due_at(self) -> float:
        """The moment of the next `TimeCame`; infinity if none."""
        return self._outbox.timers.due_at

    @property
    def has_turn(self) -> bool:
        """True if a `TakeTurn` has something to do."""
        return self._queues is not None and self._queues.has_turn

    @property
    def has_backlog(self) -> bool:
        """True if a `TryWaiting` has pods to try."""
        return self._retries.has_backlog

    def handle(self, stimulus: stimuli.Stimulus, now: Now) -> tuple[Any, tuple[Effect, ...]]:
        """Handle a stimulus; returns the answer, which may be a UserError or `Awaits` an effect, and all effects.

        Raises on a bug; the state is useless then.
        """
        self._outbox.now = now
        self.cache.term.tell_time(now.wall)
        try:
            answer = self._handlers[type(stimulus)](stimulus)
        except UserError as error:
            answer = error
        self._follow_up()
        return answer, self._outbox.take()

    def _follow_up(self) -> None:
        """Tell news of pods and gangs to the parts that watch them."""
        for uid in self.cache.take_removed():
            self.preemptions.gone(uid)
            self.holds.quotas.forget(uid)
        self._empty_slots.look()
        self.preemptions.look()
        self.kept.look()
        if keys := self.cache.gangs.take_changed():
            self._statuses.changed(keys)
        self._follow_queues(None)

    # Facts

    def _pod_seen(self, seen: stimuli.PodSeen) -> None:
        uid = seen.pod.metadata.uid
        before = self.cache.pods.get(uid)
        stayed = before is not None and not before.seen.is_leaving
        self.cache.pod_seen(seen.pod, seen.reading, is_listed=seen.is_listed)
        self.holds.quotas.see(seen.pod)
        record = self.cache.pods.get(uid)
        if record is None or (record.seen.is_leaving and record.state is not PodState.BOUND):
            self._acceptance.gone(uid)
        elif record.state is PodState.BOUND:
            self._acceptance.starts.has_asked(record)
            self._acceptance.settled(uid)
            if record.seen.is_leaving and self.cache.core is not None:
                self.preemptions.left_to_kubelet(record, is_new=stayed)

    def _pod_gone(self, gone: stimuli.PodGone) -> None:
        self.cache.pod_gone(gone.uid)
        self._acceptance.gone(gone.uid)

    def _object_seen(self, seen: stimuli.ObjectSeen) -> None:
        self.cache.object_seen(seen.ref)
        self._statuses.changed([GangKey(seen.ref.namespace, seen.ref.name)])

    def _namespace_changed(self, changed: stimuli.NamespaceChanged) -> bool:
        is_concerned = any(one.namespace == changed.namespace for one in self.cache.pods.without_node())
        if is_concerned:
            self.cache.forget_readings()
        return is_concerned

    # Results and time

    def _wrote(self, wrote: stimuli.Wrote) -> Any:
        effect, error, is_current = wrote.effect, wrote.error, wrote.is_current
        match effect:
            case BindPod():
                return self._bound(effect, wrote)
            case ReadPod() if error is not None:
                return UserError(f"{effect.pod.key} cannot be read: {error}", code=502)
            case ReadPod():
                return wrote.found
            case TouchPod():
                self._wakes.wrote(effect, error)
            case AnnotatePod():
                self.cache.bound.rewrites.wrote(effect, error)
            case EvictPod():
                (self.moves if effect.is_move else self.preemptions).wrote(effect, error, is_current=is_current)
            case Announce():
                self.announcements.wrote(effect, wrote.found)
            case KeepChanged():
                self.cache.bound.kept.wrote(effect, error, is_current=is_current)
            case WriteStatuses():
                self._statuses.wrote(effect, *wrote.found)
            case CallJob() | Errand() if self._queues is not None:
                self._guarded(self._queues.wrote)(wrote)
        return None

    def _bound(self, effect: BindPod, wrote: stimuli.Wrote) -> UserError | None:
        record, error = self.cache.pods.get(effect.pod.uid), wrote.error
        if record is not None and wrote.is_current:
            record.writing = replace(record.writing, tried_version=wrote.found)
            self._acceptance.wrote(record, effect, error)
        if error is None:
            return None
        code = error.code if isinstance(error, UserError) else 502
        return UserError(f"{effect.pod.key} cannot be bound to {effect.node}: {error}", code=code)

    def _time_came(self, _: stimuli.TimeCame) -> None:
        while (key := self._outbox.timers.pop_due(self._outbox.now.at)) is not None:
            self._timers[key[0]](*key)
            self._follow_up()

    # Leadership and configuration

    def _elected(self, elected: stimuli.Elected) -> None:
        self.term += 1
        self.cache.bound.take_changed(elected.changed)
        core = self.terms.begin()
        self.verbs.node_names = NodeNames(core.state.topology.node_index)
        self.verbs.standing = ""
        self.holds.quotas.begin_term()
        for record in self.cache.pods.records(PodState.BINDING):
            self._acceptance.expect_question(record)
        for record in self.cache.pods.records(PodState.BOUND):
            if record.seen.is_leaving:
                self.preemptions.left_to_kubelet(record)
        self._empty_slots.begin()
        self._statuses.lead(True)
        bound = sum(record.is_in_core for record in self.cache.pods.records(PodState.BOUND))
        self.began = Began(self._outbox.now.wall, bound, len(self.cache.pods.without_node()))
        log.info("leading", extra={"fields": {"pods": self.cache.pods.counts()}})

    def _deposed(self, deposed: stimuli.Deposed) -> None:
        self.verbs.standing = deposed.standing
        if self.cache.core is None:
            return
        self.term += 1
        self._acceptance.forget_all()
        self.preemptions.forget_all()
        self.kept.forget_all("this replica does not lead any more")
        self._wakes.forget_all()
        self._empty_slots.forget_all()
        self._statuses.lead(False)
        self.terms.end()
        log.info("following", extra={"fields": {"reason": deposed.standing}})

    def _configured(self, configured: stimuli.Configured) -> bool:
        if self.cache.core is not None:
            return False
        self._take_up(configured.configuration)
        if self.recorder is not None:
            self.recorder.configured(configured.text)
        return True

    def _switched(self, switched: stimuli.Switched) -> None:
        core = self.verbs.core
        are_other_nodes = core.node_names != switched.core.node_names
        self.kept.lose_all("another configuration came into force")
        core.take_over(switched.core, switched.version)
        self._take_up(switched.configuration)
        self.cache.devices.take_over(switched.losses)
        self._empty_slots.forget_all()
        self._empty_slots.begin()
        if are_other_nodes:
            self.verbs.node_names = NodeNames(core.state.topology.node_index)
        self.terms.switched(switched.unaccounted, are_other_nodes=are_other_nodes)

    def _take_up(self, configuration: Configuration) -> None:
        self.terms.configure(configuration.cluster)
        self.interpreter.configure(configuration.cluster, configuration.rules)
        verb_settings = self.verbs.verb_settings = self.verbs.verb_settings.set_by(configuration.settings)
        self._acceptance.force_bind_threshold = verb_settings.force_bind_threshold
        self.preemptions.policy = PreemptionPolicy.of(configuration.settings, configuration.rules)
        self.cache.nodes.keep_shares(self.preemptions.policy.keeps_shares)
        self.explaining.messages = verb_settings.waiting_messages


def _tell_affected(reconfigured: stimuli.Reconfigured, cache: ClusterCache, tell: announcements.Announcements) -> None:
    """Announce effects of a new configuration to the owners of running pods."""
    for uids, told in reconfigured.news:
        for record in filter(None, map(cache.pods.get, uids)):
            if record.state.has_node:
                tell.say(record, *told)
