"""Pods with cells and no binding yet: kube-scheduler must accept the node, then bind.

It is woken until it does. A node that it does not offer any more is not forced: the place is freed, with those of its
mates while none is bound, and the search starts again.

Pods that start together are bound together (rule 26.7). kube-scheduler counts held pods as on their nodes, so its
filters see them all. A refused binding frees that room, so the start *gathers* and is *repeated* (rule 26.8). A pod is
bound without kube-scheduler only if it ignores offers, or if kube-scheduler has forgotten it. Not thread-safe.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hived.values.errors import HivedError, UserError
from hived_extender.kube_rules.demands import needs_kube_scheduler
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core
from hived_extender.machine.effects import BindPod, HoldBindings, Outbox, ReleaseBindings
from hived_extender.machine.emptied import EmptiedCells
from hived_extender.machine.gangs.plans import listed
from hived_extender.machine.gangs.table import Gangs
from hived_extender.machine.notices import Reason
from hived_extender.machine.pods import PodRecord, PodState
from hived_extender.machine.retries import Retries, Wakes

START = "start"
REPEAT = "repeat start"

START_S = 30.0
"""The time that kube-scheduler has to accept the places of all pods that start together, until they are taken back."""

MOST_KEPT_S = 600.0
"""The longest time that pods of a gang that is not strict keep their cells for one that is refused."""

BACKOFF_S = (2.0, 4.0, 8.0, 10.0)
"""The time after a refusal that kube-scheduler may leave a pod alone, whoever wakes it; longer after each."""

IN_TURN_S = 1.0
"""Until a start that waits for its turn looks again."""


class Start(msgspec.Struct, eq=False):
    """A start of several pods: by uid those whose place is not accepted yet.

    `joined` have got places later, because these pods have theirs. `failures` counts bindings refused for being held
    too long. While it `is_gathering`, `found` has the moments at which kube-scheduler last had a node for a pod, by
    uid. Until `places_until` a refused pod does not cost its mates their places; 0 if their gang is strict.
    """

    members: tuple[PodRecord, ...]
    pending: dict[str, PodRecord]
    joined: list[PodRecord] = msgspec.field(default_factory=list)
    failures: int = 0
    is_gathering: bool = False
    places_until: float = 0.0
    found: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def pods(self) -> list[PodRecord]:
        """All pods whose bindings are held."""
        return [*self.members, *self.joined]

    @property
    def uids(self) -> tuple[str, ...]:
        """The pods by uid."""
        return tuple(record.uid for record in self.pods)

    @property
    def is_repeated(self) -> bool:
        """True if kube-scheduler is to accept all pods once more, having found a node for each."""
        return self.failures > 0 and not self.is_gathering

    @property
    def lacking(self) -> list[PodRecord]:
        """Pods for which kube-scheduler has no known node."""
        if self.is_gathering:
            return [record for record in self.members if record.uid not in self.found]
        return list(self.pending.values())


class Starts:
    """The starts under way, each known by its first pod, which also names its timers."""

    def __init__(self, gangs: Gangs, outbox: Outbox, wakes: Wakes) -> None:
        self._gangs = gangs
        self._outbox = outbox
        self._wakes = wakes
        self._starts: dict[str, Start] = {}  # by the uid of each pod

    def begin(self, members: Sequence[PodRecord]) -> None:
        """Begin a start of pods that were placed together; a single pod needs none.

        Pods without cells only gather while another start is repeated: they could take its room.
        """
        if len(members) > 1:
            start = Start(tuple(members), {record.uid: record for record in members})
            has_cells = any(record.place.info is not None for record in members)
            start.is_gathering = not has_cells and any(one.is_repeated for one in self._starts.values())
            if kept_s := self._waiting_s(members):
                start.places_until = self._outbox.now.at + kept_s
            self._starts |= dict.fromkeys(start.pending, start)
            self._outbox.send(HoldBindings(start.uids))
            self._watch(start)

    def join(self, record: PodRecord) -> None:
        """Add a pod placed by itself to the start of its gang, so that it is bound no earlier."""
        if record.gang is None or record.uid in self._starts:
            return
        mates = self._gangs.placed_with(record.gang)
        start = next((start for mate in mates if (start := self._starts.get(mate.uid)) is not None), None)
        if start is not None:
            start.joined.append(record)
            self._starts[record.uid] = start
            self._outbox.send(HoldBindings((record.uid,)))

    def has_asked(self, record: PodRecord) -> None:
        """Note that kube-scheduler took the node of a pod, or any node of a pod without cells."""
        start = self._starts.get(record.uid)
        if start is None:
            return
        if start.is_gathering:
            start.found[record.uid] = self._outbox.now.at
            self._plan_repetition(start)
            return
        start.pending.pop(record.uid, None)
        if not start.pending:
            self.end(start)

    def of(self, uid: str) -> Start | None:
        """The start of a pod; None if none holds it."""
        return self._starts.get(uid)

    def refusal_for_now(self, record: PodRecord) -> str:
        """The reason to refuse a pod its node for now although kube-scheduler offers it; "" if none."""
        start = self._starts.get(record.uid)
        if start is None or not start.is_gathering:
            return ""
        if lacking := start.lacking:
            names = listed([one.name for one in lacking])
            return f"it has its place; kube-scheduler has found no node yet for {names} (see the events there)"
        return f"it has its place; its {len(start.members)} pods are tried together in a moment"

    def held_for(self, record: PodRecord) -> str:
        """The reason to hold a pod's binding; "" if none."""
        start = self._starts.get(record.uid)
        if start is None:
            return ""
        names = listed([one.name for one in start.lacking if one is not record]) or "all have to be accepted anew"
        return f"{record.key} is bound when kube-scheduler has accepted the nodes of its mates: {names}"

    def lapse(self, record: PodRecord) -> None:
        """Refuse a binding that was held too long (rule 26.8): all places must be accepted again."""
        start = self._starts.get(record.uid)
        if start is None or start.is_gathering or all(one is not record for one in start.members):
            return
        start.failures += 1
        start.is_gathering = True
        start.found = {one.uid: self._outbox.now.at for one in start.members if one.state is PodState.BOUND}
        self._outbox.send(ReleaseBindings(start.uids))  # kube-scheduler gets their room back
        self._outbox.send(HoldBindings(start.uids))
        self._watch(start)

    def is_hopeless(self, start: Start) -> bool:
        """True if other places should be searched after too many tries, or if other pods could start instead."""
        return (self.has_others(start) or start.failures > len(BACKOFF_S)) and not self.keeps_places(start)

    def has_others(self, start: Start) -> bool:
        """True if new pods could replace a pod without cells that fits no node."""
        return bool(start.joined) and any(record.place.info is None for record in start.lacking)

    def keeps_places(self, start: Start) -> bool:
        """True if the other pods keep their places when one is refused."""
        return self._outbox.now.at < start.places_until

    def refused(self, start: Start, record: PodRecord) -> None:
        """Note that a pod of a running start lost its place: it needs another, and its mates wait."""
        start.pending[record.uid] = record
        start.found.pop(record.uid, None)

    def search_others(self, start: Start) -> None:
        """Search other places for pods without a node; their mates keep waiting."""
        self._watch(start)

    def _watch(self, start: Start) -> None:
        left_s = start.places_until - self._outbox.now.at
        self._outbox.wake_in((START, start.members[0].uid), min(START_S, left_s) if left_s > 0 else START_S)

    def _waiting_s(self, members: Sequence[PodRecord]) -> float:
        """Seconds for which these pods keep their places when one is refused (rule 26.7); 0 if a gang is strict."""
        gangs = [self._gangs.get(record.gang) if record.gang is not None else None for record in members]
        kept_s = MOST_KEPT_S
        for gang in dict.fromkeys(gangs):
            try:
                terms = gang.terms() if gang is not None else None
            except UserError:
                terms = None
            if terms is None or terms.is_strict:
                return 0.0
            kept_s = min(kept_s, terms.waiting_s or MOST_KEPT_S)
        return kept_s

    def _plan_repetition(self, start: Start) -> None:
        """Set the timer to repeat a start once kube-scheduler has a node for each pod."""
        if start.lacking:
            return
        latest = max(start.found[record.uid] for record in start.members)
        delay_s = BACKOFF_S[min(max(start.failures - 1, 0), len(BACKOFF_S) - 1)]
        self._outbox.wake_in((REPEAT, start.members[0].uid), latest + delay_s - self._outbox.now.at)

    def repeat(self, start: Start) -> None:
        """Have kube-scheduler accept all pods at once, unless another start is repeated now."""
        if not start.is_gathering or start.lacking:
            return
        first = start.members[0].uid
        if any(one.is_repeated for one in self._starts.values()):
            self._outbox.wake_in((REPEAT, first), IN_TURN_S)
            return
        start.failures, start.is_gathering = max(start.failures, 1), False
        start.pending = {record.uid: record for record in start.members if record.state is not PodState.BOUND}
        self._watch(start)
        for record in start.pods:
            if record.state is not PodState.BOUND:
                record.is_asked = False  # until kube-scheduler, which is awake then, asks
                self._wakes.ask(record)
        if not start.pending:
            self.end(start)

    def leave(self, start: Start, uid: str) -> bool:
        """Remove a pod that only joined; False if the start needs it."""
        joined = [one for one in start.joined if one.uid != uid]
        if len(joined) == len(start.joined):
            return False
        start.joined = joined
        del self._starts[uid]
        self._outbox.send(ReleaseBindings((uid,)))
        return True

    def end(self, start: Start) -> None:
        """End a start: its bindings are held no longer."""
        for uid in start.uids:
            self._starts.pop(uid, None)
        for kind in (START, REPEAT):
            self._outbox.timers.drop((kind, start.members[0].uid))
        self._outbox.send(ReleaseBindings(start.uids))

    def forget_all(self) -> None:
        """Drop all starts at the end of a term."""
        for start in dict.fromkeys(self._starts.values()):
            self.end(start)


FORCE = "force"

FORCE_WAITS_S = (0.2, 1.0, 5.0)
"""After each attempt but the last one; then kube-scheduler is asked to try the pod again."""

log = logging.getLogger(__name__)


class ForcedBindings:
    """Bindings without kube-scheduler, each tried a few times."""

    def __init__(self, cache: ClusterCache, outbox: Outbox, announcements: Announcements, wakes: Wakes) -> None:
        self._cache = cache
        self._outbox = outbox
        self._announcements = announcements
        self._wakes = wakes
        self._failures: dict[str, int] = {}  # by uid

    def bind(self, record: PodRecord, why: str) -> None:
        """Bind a placed pod, unless a binding is under way."""
        node = record.place.node
        if record.writing.count or record.place.info is None:
            return
        record.writing = record.writing.begun()
        self._outbox.metrics.forced_bindings.inc()
        self._announcements.say(record, Reason.FORCED_BINDING, f"bound to node {node} without kube-scheduler: {why}")
        log.info("force bind", extra={"fields": {"pod": record.key, "node": node, "reason": why}})
        self._failures[record.uid] = 0
        self.time_came(record)

    def time_came(self, record: PodRecord) -> bool:
        """Make the next attempt. True if kube-scheduler must try the pod again instead."""
        if record.state is not PodState.BINDING:
            return self._give_up(record)
        node = record.place.node
        annotations = self._cache.bound.to_write(record, node)
        self._outbox.send(BindPod(record.named, node, record.seen.version, annotations, "force"))
        return False

    def wrote(self, record: PodRecord, error: HivedError | None) -> bool:
        """Take the result of an attempt. True as for `time_came`."""
        count = self._failures.get(record.uid)
        if error is None or count is None:
            self._failures.pop(record.uid, None)
            return False
        # A write without an answer may still succeed until the pod has another version.
        if not isinstance(error, UserError):
            record.writing = replace(record.writing, is_unanswered=True)
        if count == len(FORCE_WAITS_S):
            return self._give_up(record)
        self._failures[record.uid] = count + 1
        self._outbox.wake_in((FORCE, record.uid), FORCE_WAITS_S[count])
        return False

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self._failures.pop(uid, None)
        self._outbox.timers.drop((FORCE, uid))

    def forget_all(self) -> None:
        """Drop everything at the end of a term."""
        for uid in list(self._failures):
            self.forget(uid)

    def _give_up(self, record: PodRecord) -> bool:
        self.forget(record.uid)
        record.writing = record.writing.ended()
        if record.state is PodState.BINDING:
            self._wakes.ask(record)
        return True


UNASKED_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""The time that kube-scheduler has to ask about a placed pod, until it is told again; the last one repeats."""

FORGOTTEN_S = 400.0
"""Without a question about a pod for so long, kube-scheduler does not handle it: it tries every pod it has refused
again after five minutes, and takes note of every change of a pod.
"""

UNBOUND_S = 660.0
"""The time that it has to bind a pod that it has asked about: it gives volumes ten minutes to be there."""

HELD_S = 4.0
"""The time that a binding is held back (rule 26.8); kube-scheduler's call may take 5 s unless it is told more."""

MOST_REFUSALS = 4
"""After so many places that were refused in a row, a pod waits for the next change before it gets another."""

QUESTION = "question"
TIMERS = (QUESTION, START, REPEAT, FORCE)


class _Trial(msgspec.Struct, eq=False):
    """kube-scheduler's answers about the place of one pod.

    It was told of the pod `times` times without asking, or has accepted the node and not bound the pod. It asked
    `repeat_count` times about this place and refused `refusal_count` places in a row. A place that `is_probed` was
    missing from an offer of a single node.
    """

    since: float = 0.0
    times: int = 0
    is_accepted: bool = False
    repeat_count: int = 0
    refusal_count: int = 0
    is_probed: bool = False


class Acceptance:
    """Follows each placed pod until it is bound, and frees places that kube-scheduler refuses."""

    def __init__(
        self,
        cache: ClusterCache,
        outbox: Outbox,
        announcements: Announcements,
        retries: Retries,
        wakes: Wakes,
    ) -> None:
        self.force_bind_threshold = 3
        self._cache = cache
        self._outbox = outbox
        self._announcements = announcements
        self._retries = retries
        self._wakes = wakes
        self._metrics = outbox.metrics
        self.starts = Starts(cache.gangs, outbox, wakes)
        self.emptied = EmptiedCells(cache, outbox, retries, wakes)
        self._trials: defaultdict[str, _Trial] = defaultdict(_Trial)
        self._forced = ForcedBindings(cache, outbox, announcements, wakes)

    def time_came(self, kind: str, uid: str) -> None:
        """Handle a timer: an expected answer of kube-scheduler has not come."""
        record, core = self._cache.pods.get(uid), self._cache.core
        if record is None or core is None:
            return
        if kind == QUESTION:
            self._unanswered(record)
        elif kind in (START, REPEAT):
            start = self.starts.of(uid)
            if start is not None and kind == START:
                self._not_accepted(core, start)
            elif start is not None:
                self.starts.repeat(start)
        elif self._forced.time_came(record):
            self.expect_question(record)

    def begin(self, members: Sequence[PodRecord]) -> None:
        """Hold the bindings of pods placed together until kube-scheduler has accepted all of them."""
        for record in members:
            self.expect_question(record)
        self.starts.begin(members)

    def settled(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self._outbox.timers.drop((QUESTION, uid))
        self._trials.pop(uid, None)
        self.emptied.forget(uid)
        self._forced.forget(uid)

    def gone(self, uid: str) -> None:
        """Forget a pod that has ended or leaves; pods of the same start wait again."""
        self.settled(uid)
        start = self.starts.of(uid)
        if start is not None and self._cache.core is not None and not self.starts.leave(start, uid):
            self._undo(self._cache.core, [one for one in start.pods if one.uid != uid])
            self.starts.end(start)

    def forget_all(self) -> None:
        """Drop everything at the end of a term."""
        self.starts.forget_all()
        for uid in list(self._trials):
            self.settled(uid)
        self.emptied.forget_all()
        self._forced.forget_all()

    def check_not_held(self, core: Core, record: PodRecord) -> None:
        """Raise UserError while the start of a pod holds its binding.

        kube-scheduler then gives the pod's room away, so all places must be accepted again.
        """
        if why := self.starts.held_for(record):
            start = self.starts.of(record.uid)
            if start is None or not self.starts.has_others(start):
                self.starts.lapse(record)
            if start is not None and self.starts.is_hopeless(start):
                self._not_accepted(core, start)
            raise UserError(why)

    def _not_accepted(self, core: Core, start: Start) -> None:
        """Free the places of a start for which kube-scheduler lacks nodes, and ask first about pods without one."""
        if self.starts.keeps_places(start):
            lacking = [record for record in start.lacking if record.state.is_placed]
            for record in lacking:
                self.starts.refused(start, record)
            self._undo(core, lacking)
            self.starts.search_others(start)
            return
        for record in start.lacking:
            record.offer = replace(record.offer, is_doubted=True)
        self._undo(core, start.pods)
        self.starts.end(start)

    def expect_question(self, record: PodRecord) -> None:
        """Wake kube-scheduler for a placed pod until it asks."""
        if record.state is PodState.BINDING and self._cache.pods.get(record.uid) is record:
            self._expect(record, self._outbox.now.at, 0)

    def accepts(self, core: Core, record: PodRecord) -> bool:
        """True if kube-scheduler offers the pod's node, or does not refuse it for good; else the pod waits for another
        place.
        """
        trial = self._trials[record.uid]
        if self._cache.offers.includes(record, record.place.node):
            trial.repeat_count += 1
            self.starts.has_asked(record)
            trial.is_probed, trial.is_accepted = False, True
            self._outbox.wake_in((QUESTION, record.uid), UNBOUND_S)
            is_held = self.starts.of(record.uid) is not None
            if self._ignores_offers(record) and trial.repeat_count > self.force_bind_threshold and not is_held:
                self._forced.bind(record, "it was asked about again and again")
            return True
        if record.writing.is_open:
            return True
        if self._ignores_offers(record):
            self.starts.has_asked(record)
            if self.starts.of(record.uid) is None:
                self._forced.bind(record, "it ignores which nodes kube-scheduler offers")
            return True
        if self._is_probe(record, trial):
            return True
        self._free_places(core, record)
        return False

    def has_enough(self, record: PodRecord) -> bool:
        """True once kube-scheduler refused so many places in a row that the pod must wait; restarts the count."""
        trial = self._trials.get(record.uid)
        if trial is None or trial.refusal_count <= MOST_REFUSALS:
            return False
        trial.refusal_count = 0
        return True

    def _free_places(self, core: Core, record: PodRecord) -> None:
        """Free a refused place, with those of its group or gang while none is bound."""
        start = self.starts.of(record.uid)
        if start is not None and self.starts.keeps_places(start) and not record.writing.is_open:
            self._free_place(core, record, start)
            return
        has_joined = start is not None and self.starts.leave(start, record.uid)
        others = start.pods if start is not None and not has_joined else []
        if start is None:
            others = self._started_with(core, record)
            if any(one.writing.is_open or one.state is PodState.BOUND for one in others):
                others = []
        fields = {"pod": record.key, "node": record.place.node, "with": len(others)}
        log.info("place taken back", extra={"fields": fields})
        self._metrics.refused_places.inc()
        self._trials[record.uid].refusal_count += 1
        undone = list(dict.fromkeys((record, *others)))
        over = dict.fromkeys(start for one in undone if (start := self.starts.of(one.uid)) is not None)
        self._undo(core, undone)
        for start in over:  # also one of mates that came after the pod
            self.starts.end(start)

    def _free_place(self, core: Core, record: PodRecord, start: Start) -> None:
        """Free one refused place; the mates keep theirs."""
        log.info("place taken back", extra={"fields": {"pod": record.key, "node": record.place.node, "with": 0}})
        self._metrics.refused_places.inc()
        self._trials[record.uid].refusal_count += 1
        if not self.starts.leave(start, record.uid):
            self.starts.refused(start, record)
        self._undo(core, [record])

    def _undo(self, core: Core, records: Sequence[PodRecord]) -> None:
        """Return pods that are not bound to waiting."""
        for one in records:
            is_kept = one.writing.is_open or one.state is PodState.BOUND
            if is_kept or self._cache.pods.get(one.uid) is not one:
                continue
            request = one.request
            self._outbox.timers.drop((QUESTION, one.uid))
            if (trial := self._trials.get(one.uid)) is not None:
                trial.repeat_count, trial.is_probed = 0, False
            self._cache.bound.release(one)
            if not one.is_of_dialect:
                one.request = request
            self._cache.pods.move(one, PodState.WAITING)
            self._retries.refused(one.uid)
        for gang in dict.fromkeys(one.gang for one in records if one.gang is not None):
            self._cache.reconcile(core, gang)
        core.forget_answers()
        self._retries.room_made()

    def _not_written(self, record: PodRecord, *, is_unanswered: bool) -> None:
        """Handle a failed binding. One without an answer may still be written until the pod has another version.

        Touching the pod gives it one, and makes kube-scheduler ask again.
        """
        record.writing = record.writing.ended(is_unanswered=is_unanswered)
        if is_unanswered:
            self._wakes.ask(record)
        self.expect_question(record)

    def wrote(self, record: PodRecord, effect: BindPod, error: HivedError | None) -> None:
        """Take the result of a binding: written, failed or unknown."""
        if effect.origin == "force":
            if self._forced.wrote(record, error):
                self.expect_question(record)
        elif error is not None:
            self._not_written(record, is_unanswered=not isinstance(error, UserError))

    def _expect(self, record: PodRecord, since: float, times: int) -> None:
        trial = self._trials[record.uid]
        trial.since, trial.times, trial.is_accepted = since, times, False
        self._outbox.wake_in((QUESTION, record.uid), UNASKED_S[min(times, len(UNASKED_S) - 1)])

    def _unanswered(self, record: PodRecord) -> None:
        """Handle a placed pod about which kube-scheduler did not ask, or that it accepted and did not bind."""
        trial = self._trials[record.uid]
        if record.state is not PodState.BINDING or record.writing.count:
            return
        now = self._outbox.now.at
        if trial.is_accepted:
            self._wakes.ask(record)
            self.expect_question(record)
            return
        if now - trial.since < FORGOTTEN_S:
            self._wakes.ask(record)
            self._expect(record, trial.since, trial.times + 1)
            return
        need = needs_kube_scheduler(record.ruled.demands) if record.ruled is not None else ""
        if not need:
            self._forced.bind(record, f"it has not asked about the pod for {FORGOTTEN_S:g} s")
            return
        text = f"kube-scheduler does not ask about this pod, and no other may bind it: {need}"
        self._announcements.say(
            record, Reason.NOT_HANDLED, f"{text}; is a kube-scheduler of its schedulerName running?"
        )
        self._expect(record, now, len(UNASKED_S))

    def _ignores_offers(self, record: PodRecord) -> bool:
        """True if the pod's own spec ignores kube-scheduler's offers."""
        return record.request is not None and record.request.spec.ignore_suggested_nodes

    def _is_probe(self, record: PodRecord, trial: _Trial) -> bool:
        """True if one node is offered because it is nominated, or fitted a similar pod; all others follow then."""
        latest = record.offer.latest
        if latest is None or trial.is_probed or int(latest.mask.sum()) > 1:
            trial.is_probed = False
            return False
        trial.is_probed = True
        self.expect_question(record)
        return True

    def _started_with(self, core: Core, record: PodRecord) -> list[PodRecord]:
        """The other pods placed by the same decision, at their nodes or not."""
        if record.gang is not None:
            found = self._cache.gangs.placed_with(record.gang)
        else:
            uids = core.holders(record.request.spec.group.name) if record.request is not None else []
            found = [one for one in map(self._cache.pods.get, uids) if one is not None]
        return [one for one in found if one is not record]
