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
"""

import logging
from collections import defaultdict
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hived.values.errors import HivedError, UserError
from hived_extender.kube_rules.demands import needs_kube_scheduler
from hived_extender.service.announcements import Announcements
from hived_extender.service.cluster_cache import ClusterCache
from hived_extender.service.core import Core
from hived_extender.service.effects import BindPod
from hived_extender.service.emptied import EmptiedCells
from hived_extender.service.forced import FORCE, ForcedBindings
from hived_extender.service.notices import Reason
from hived_extender.service.outbox import Outbox
from hived_extender.service.pods import PodRecord, PodState
from hived_extender.service.retries import Retries
from hived_extender.service.starts import REPEAT, START, Start, Starts
from hived_extender.service.wakes import Wakes

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

log = logging.getLogger(__name__)


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
