"""Pods that have their cells and no binding yet: kube-scheduler is to accept the node, and to bind them.

It is asked to ask again until it does. A node that it does not offer to a pod any more is not forced upon it: the place
is taken back, with those of its mates while none of them is bound, and the search begins anew. Mates of a
gang that is not strict keep theirs.

Bindings of pods that start together are held back until kube-scheduler has accepted the place of each. It counts the
pods whose bindings it waits for as on their nodes already. So its filters see mates beside each other, and none of them
runs unless all can. A binding that is held back for too long is refused, and all are to be accepted anew (`starts.py`).

Only a pod that says that it ignores kube-scheduler's offers is bound without it, and one that kube-scheduler has
forgotten: one that it was told of again and again, and has not asked about for longer than any pod may stay in its
queue. Pods that need more of kube-scheduler than a node, such as volumes, are never bound without it. Not thread-safe.

Pods that start together: none is bound before kube-scheduler has accepted the place of each.

An acceptance is good for as long as kube-scheduler counts the pod as on its node: until its binding, which is held back
for a few seconds, is refused. From then on the node's room is anybody's. So all are bound in one moment, in which
kube-scheduler counts every one of them.

Where that did not come about in time, the start *gathers*: kube-scheduler may look for nodes, but no pod gets its own,
and nothing is held up. When there is a node for each, and kube-scheduler lets the last of them try again, all are woken
at once. One start at a time is *repeated* like this: two gangs could keep each other from the room that both need, of
CPU for instance, which nobody holds for them.

A refusal costs all of them their places, unless their gang says that it is not strict (Koordinator's `NonStrict`).
Of such a gang only the refused pod looks for another place. The others keep theirs for the gang's waiting time.

Bindings without kube-scheduler: for a pod that ignores its offers, and for one that it has forgotten.
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
"""How long kube-scheduler has to accept the places of all pods that start together, until they are taken back."""

MOST_KEPT_S = 600.0
"""How long pods of a gang that is not strict keep their cells for one that is refused, at most."""

BACKOFF_S = (2.0, 4.0, 8.0, 10.0)
"""How long after a refusal kube-scheduler may leave a pod alone, whoever wakes it; longer after each."""

IN_TURN_S = 1.0
"""Until a start that waits for its turn looks again."""


class Start(msgspec.Struct, eq=False):
    """Pods that start together: by uid those whose place is not accepted now.

    `joined` have come to their places by themselves since, because these pods have theirs. `failures` counts how often
    a binding was held back for too long. While it `is_gathering`, `found` has the moments at which kube-scheduler last
    had a node for a pod, by uid. Until `kept_until` a refused pod costs the others nothing; 0 if their gang is strict.
    """

    members: tuple[PodRecord, ...]
    pending: dict[str, PodRecord]
    joined: list[PodRecord] = msgspec.field(default_factory=list)
    failures: int = 0
    is_gathering: bool = False
    kept_until: float = 0.0
    found: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def pods(self) -> list[PodRecord]:
        """All whose bindings are held back."""
        return [*self.members, *self.joined]

    @property
    def uids(self) -> tuple[str, ...]:
        """The same by uid."""
        return tuple(record.uid for record in self.pods)

    @property
    def is_repeated(self) -> bool:
        """Is kube-scheduler to accept all pods once more, after it has found a node for each?"""
        return self.failures > 0 and not self.is_gathering

    @property
    def lacking(self) -> list[PodRecord]:
        """Pods that kube-scheduler has no node for, as far as is known."""
        if self.is_gathering:
            return [record for record in self.members if record.uid not in self.found]
        return list(self.pending.values())


class Starts:
    """The starts that are under way. A start is known by its first pod, whose timers it has."""

    def __init__(self, gangs: Gangs, outbox: Outbox, wakes: Wakes) -> None:
        self._gangs = gangs
        self._outbox = outbox
        self._wakes = wakes
        self._starts: dict[str, Start] = {}  # by the uid of each pod

    def begin(self, members: Sequence[PodRecord]) -> None:
        """These pods have got their places at once. A single one waits for nobody.

        Pods without cells only gather while others are accepted once more: they could take the room of those.
        """
        if len(members) > 1:
            start = Start(tuple(members), {record.uid: record for record in members})
            has_cells = any(record.place.info is not None for record in members)
            start.is_gathering = not has_cells and any(one.is_repeated for one in self._starts.values())
            if kept_s := self._kept_s(members):
                start.kept_until = self._outbox.now.at + kept_s
            self._starts |= dict.fromkeys(start.pending, start)
            self._outbox.send(HoldBindings(start.uids))
            self._watch(start)

    def join(self, record: PodRecord) -> None:
        """A pod has got its place by itself. If its gang is starting, it is bound no earlier than the gang is."""
        if record.gang is None or record.uid in self._starts:
            return
        mates = self._gangs.placed_with(record.gang)
        start = next((start for mate in mates if (start := self._starts.get(mate.uid)) is not None), None)
        if start is not None:
            start.joined.append(record)
            self._starts[record.uid] = start
            self._outbox.send(HoldBindings((record.uid,)))

    def has_asked(self, record: PodRecord) -> None:
        """kube-scheduler has taken the node of a pod, or any node of one that takes no cells."""
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
        """The start of a pod, None if nothing holds it back."""
        return self._starts.get(uid)

    def puts_off(self, record: PodRecord) -> str:
        """Why a pod does not get its node now although kube-scheduler offers it, "" if it does."""
        start = self._starts.get(record.uid)
        if start is None or not start.is_gathering:
            return ""
        if lacking := start.lacking:
            names = listed([one.name for one in lacking])
            return f"it has its place; kube-scheduler has found no node yet for {names} (see the events there)"
        return f"it has its place; its {len(start.members)} pods are tried together in a moment"

    def held_for(self, record: PodRecord) -> str:
        """Why a pod may not be bound yet, "" if it may."""
        start = self._starts.get(record.uid)
        if start is None:
            return ""
        names = listed([one.name for one in start.lacking if one is not record]) or "all have to be accepted anew"
        return f"{record.key} is bound when kube-scheduler has accepted the nodes of its mates: {names}"

    def lapse(self, record: PodRecord) -> None:
        """The binding of a pod was held back, and is refused: all places have to be accepted anew."""
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
        """Has it been tried so often that other places should be looked for, or could other pods start instead?"""
        return (self.has_others(start) or start.failures > len(BACKOFF_S)) and not self.keeps_places(start)

    def has_others(self, start: Start) -> bool:
        """Have pods come since that could start in place of one without cells, which no node may take?"""
        return bool(start.joined) and any(record.place.info is None for record in start.lacking)

    def keeps_places(self, start: Start) -> bool:
        """Do its pods keep their places where one of them is refused?"""
        return self._outbox.now.at < start.kept_until

    def refused(self, start: Start, record: PodRecord) -> None:
        """A pod of a start that goes on has lost its place: it is to get another, and the others wait for it."""
        start.pending[record.uid] = record
        start.found.pop(record.uid, None)

    def look_on(self, start: Start) -> None:
        """Those without a node look for another place; the others go on waiting for them."""
        self._watch(start)

    def _watch(self, start: Start) -> None:
        left_s = start.kept_until - self._outbox.now.at
        self._outbox.wake_in((START, start.members[0].uid), min(START_S, left_s) if left_s > 0 else START_S)

    def _kept_s(self, members: Sequence[PodRecord]) -> float:
        """For how long these pods keep their places where one is refused: 0 if one of their gangs is strict."""
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
        """Set the moment for a start to be repeated, once kube-scheduler has a node for each pod."""
        if start.lacking:
            return
        latest = max(start.found[record.uid] for record in start.members)
        delay_s = BACKOFF_S[min(max(start.failures - 1, 0), len(BACKOFF_S) - 1)]
        self._outbox.wake_in((REPEAT, start.members[0].uid), latest + delay_s - self._outbox.now.at)

    def repeat(self, start: Start) -> None:
        """kube-scheduler is to accept all pods at once, unless it does so for others."""
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
        """Let a pod go that only joined; False if the start cannot do without it."""
        joined = [one for one in start.joined if one.uid != uid]
        if len(joined) == len(start.joined):
            return False
        start.joined = joined
        del self._starts[uid]
        self._outbox.send(ReleaseBindings((uid,)))
        return True

    def end(self, start: Start) -> None:
        """Hold nothing back any more."""
        for uid in start.uids:
            self._starts.pop(uid, None)
        for kind in (START, REPEAT):
            self._outbox.timers.drop((kind, start.members[0].uid))
        self._outbox.send(ReleaseBindings(start.uids))

    def forget_all(self) -> None:
        """The term is over."""
        for start in dict.fromkeys(self._starts.values()):
            self.end(start)


FORCE = "force"

FORCE_WAITS_S = (0.2, 1.0, 5.0)
"""After each attempt but the last one; then kube-scheduler is asked to try the pod again."""

log = logging.getLogger(__name__)


class ForcedBindings:
    """Each is tried a few times."""

    def __init__(self, cache: ClusterCache, outbox: Outbox, announcements: Announcements, wakes: Wakes) -> None:
        self._cache = cache
        self._outbox = outbox
        self._announcements = announcements
        self._wakes = wakes
        self._failures: dict[str, int] = {}  # by uid

    def bind(self, record: PodRecord, why: str) -> None:
        """Bind a pod that has a place, unless that is under way."""
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
        """The next attempt is due. True if the pod cannot be bound so, and kube-scheduler is to try it again."""
        if record.state is not PodState.BINDING:
            return self._give_up(record)
        node = record.place.node
        annotations = self._cache.bound.to_write(record, node)
        self._outbox.send(BindPod(record.named, node, record.seen.version, annotations, "force"))
        return False

    def wrote(self, record: PodRecord, error: HivedError | None) -> bool:
        """An attempt has succeeded or failed. True as for `time_came`."""
        count = self._failures.get(record.uid)
        if error is None or count is None:
            self._failures.pop(record.uid, None)
            return False
        # One without an answer may be written yet, until the pod has another version.
        if not isinstance(error, UserError):
            record.writing = replace(record.writing, is_unanswered=True)
        if count == len(FORCE_WAITS_S):
            return self._give_up(record)
        self._failures[record.uid] = count + 1
        self._outbox.wake_in((FORCE, record.uid), FORCE_WAITS_S[count])
        return False

    def forget(self, uid: str) -> None:
        """The pod is bound, or gone."""
        self._failures.pop(uid, None)
        self._outbox.timers.drop((FORCE, uid))

    def forget_all(self) -> None:
        """The term is over."""
        for uid in list(self._failures):
            self.forget(uid)

    def _give_up(self, record: PodRecord) -> bool:
        self.forget(record.uid)
        record.writing = record.writing.ended()
        if record.state is PodState.BINDING:
            self._wakes.ask(record)
        return True


UNASKED_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""How long kube-scheduler has to ask about a pod that was placed, until it is told again; the last one repeats."""

FORGOTTEN_S = 400.0
"""Without a question about a pod for so long, kube-scheduler does not handle it: it tries every pod it has refused
again after five minutes, and takes note of every change of a pod.
"""

UNBOUND_S = 660.0
"""How long it has to bind a pod that it has asked about: it gives volumes ten minutes to be there."""

HELD_S = 4.0
"""How long a binding is held back; a call to an extender may take five seconds unless kube-scheduler is told more."""

MOST_REFUSALS = 4
"""After so many places that were refused in a row, a pod waits for the next change before it gets another."""

QUESTION = "question"
TIMERS = (QUESTION, START, REPEAT, FORCE)


class _Trial(msgspec.Struct, eq=False):
    """The answers of kube-scheduler about the places of one pod.

    It was told of the pod `times` times since a moment, and has not asked; or it has accepted the node, and is to bind
    the pod. It asked `repeat_count` times about this place, and refused `refusal_count` ones in a row. A place that
    `is_probed` was not among the offered nodes, of which there was only one.
    """

    since: float = 0.0
    times: int = 0
    is_accepted: bool = False
    repeat_count: int = 0
    refusal_count: int = 0
    is_probed: bool = False


class Acceptance:
    """See the module."""

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
        """Something that was expected of kube-scheduler about a pod has not come."""
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
        """These pods have got their places at once: none is bound before kube-scheduler has accepted all of them."""
        for record in members:
            self.expect_question(record)
        self.starts.begin(members)

    def settled(self, uid: str) -> None:
        """A pod is bound, or gone: nothing more is expected of kube-scheduler."""
        self._outbox.timers.drop((QUESTION, uid))
        self._trials.pop(uid, None)
        self.emptied.forget(uid)
        self._forced.forget(uid)

    def gone(self, uid: str) -> None:
        """A pod is over, or leaves; those that were to start together with it wait again."""
        self.settled(uid)
        start = self.starts.of(uid)
        if start is not None and self._cache.core is not None and not self.starts.leave(start, uid):
            self._undo(self._cache.core, [one for one in start.pods if one.uid != uid])
            self.starts.end(start)

    def forget_all(self) -> None:
        """The term is over."""
        self.starts.forget_all()
        for uid in list(self._trials):
            self.settled(uid)
        self.emptied.forget_all()
        self._forced.forget_all()

    def check_not_held(self, core: Core, record: PodRecord) -> None:
        """Raise UserError if a pod may not be bound yet, as kube-scheduler has not accepted all that start with it.

        kube-scheduler gives the pod's room to others from now on: all places have to be accepted anew.
        """
        if why := self.starts.held_for(record):
            start = self.starts.of(record.uid)
            if start is None or not self.starts.has_others(start):
                self.starts.lapse(record)
            if start is not None and self.starts.is_hopeless(start):
                self._not_accepted(core, start)
            raise UserError(why)

    def _not_accepted(self, core: Core, start: Start) -> None:
        """kube-scheduler has not found nodes for all pods that start together: nothing stays held for them.

        The next time it has to ask about those without one first.
        """
        if self.starts.keeps_places(start):
            lacking = [record for record in start.lacking if record.state.is_placed]
            for record in lacking:
                self.starts.refused(start, record)
            self._undo(core, lacking)
            self.starts.look_on(start)
            return
        for record in start.lacking:
            record.offer = replace(record.offer, is_doubted=True)
        self._undo(core, start.pods)
        self.starts.end(start)

    def expect_question(self, record: PodRecord) -> None:
        """kube-scheduler should ask about a pod that was placed; until it does, it is told of the pod again."""
        if record.state is PodState.BINDING and self._cache.pods.get(record.uid) is record:
            self._expect(record, self._outbox.now.at, 0)

    def accepts(self, core: Core, record: PodRecord) -> bool:
        """kube-scheduler asks about a pod that was placed: does it offer that node, or at least not refuse it for good?

        False if it does not: the pod waits for another place then.
        """
        trial = self._trials[record.uid]
        if self._cache.offers.includes(record, record.place.node):
            trial.repeat_count += 1
            self.starts.has_asked(record)
            trial.is_probed, trial.is_accepted = False, True
            self._outbox.wake_in((QUESTION, record.uid), UNBOUND_S)
            is_held = self.starts.of(record.uid) is not None
            if self._may_force(record) and trial.repeat_count > self.force_bind_threshold and not is_held:
                self._forced.bind(record, "it was asked about again and again")
            return True
        if record.writing.is_open:
            return True
        if self._may_force(record):
            self.starts.has_asked(record)
            if self.starts.of(record.uid) is None:
                self._forced.bind(record, "it ignores which nodes kube-scheduler offers")
            return True
        if self._is_probe(record, trial):
            return True
        self._take_back(core, record)
        return False

    def has_enough(self, record: PodRecord) -> bool:
        """Has kube-scheduler refused so many places in a row that a pod is to wait? True once, then it counts anew."""
        trial = self._trials.get(record.uid)
        if trial is None or trial.refusal_count <= MOST_REFUSALS:
            return False
        trial.refusal_count = 0
        return True

    def _take_back(self, core: Core, record: PodRecord) -> None:
        """A pod's place is refused: it waits again, and with it those of its group or gang, while none is bound."""
        start = self.starts.of(record.uid)
        if start is not None and self.starts.keeps_places(start) and not record.writing.is_open:
            self._take_one_back(core, record, start)
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

    def _take_one_back(self, core: Core, record: PodRecord, start: Start) -> None:
        """A place is refused, and the mates keep theirs: the pod alone waits for another."""
        log.info("place taken back", extra={"fields": {"pod": record.key, "node": record.place.node, "with": 0}})
        self._metrics.refused_places.inc()
        self._trials[record.uid].refusal_count += 1
        if not self.starts.leave(start, record.uid):
            self.starts.refused(start, record)
        self._undo(core, [record])

    def _undo(self, core: Core, records: Sequence[PodRecord]) -> None:
        """These pods wait again, unless they are bound."""
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
        """A binding failed. One without an answer may be written yet, until the pod has another version.

        kube-scheduler, which is to ask again, is told of the pod by a change of it: that gives it one.
        """
        record.writing = record.writing.ended(is_unanswered=is_unanswered)
        if is_unanswered:
            self._wakes.ask(record)
        self.expect_question(record)

    def wrote(self, record: PodRecord, effect: BindPod, error: HivedError | None) -> None:
        """A binding was written, or was not, or nobody knows."""
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
        """kube-scheduler has not asked about a pod that was placed, or has accepted the node and not bound the pod."""
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
        text = f"kube-scheduler does not ask about this pod, and nobody else may bind it: {need}"
        self._announcements.say(
            record, Reason.NOT_HANDLED, f"{text}; is a kube-scheduler of its schedulerName running?"
        )
        self._expect(record, now, len(UNASKED_S))

    def _may_force(self, record: PodRecord) -> bool:
        """Does the pod itself say that it may run where kube-scheduler would not have it?"""
        return record.request is not None and record.request.spec.ignore_suggested_nodes

    def _is_probe(self, record: PodRecord, trial: _Trial) -> bool:
        """One node alone is offered if it is nominated, or was right for a pod alike; all others follow then."""
        latest = record.offer.latest
        if latest is None or trial.is_probed or int(latest.mask.sum()) > 1:
            trial.is_probed = False
            return False
        trial.is_probed = True
        self.expect_question(record)
        return True

    def _started_with(self, core: Core, record: PodRecord) -> list[PodRecord]:
        """The other pods that have a place by the same decision, whether they have come to their nodes or not."""
        if record.gang is not None:
            found = self._cache.gangs.placed_with(record.gang)
        else:
            uids = core.holders(record.request.spec.group.name) if record.request is not None else []
            found = [one for one in map(self._cache.pods.get, uids) if one is not None]
        return [one for one in found if one is not record]
