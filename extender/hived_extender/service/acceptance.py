"""Pods that have their cells and no binding yet: kube-scheduler is to accept the node, and to bind them.

It is asked to ask again until it does. A node that it does not offer to a pod any more is not forced upon it: the place
is taken back, with those of its mates while none of them is bound, and the search begins anew.

Bindings of pods that start together are held back until kube-scheduler has accepted the place of each. It counts the
pods whose bindings it waits for as on their nodes already, so that its filters see mates beside each other, and none of
them runs unless all can.

Only a pod that says
that it ignores kube-scheduler's offers is bound without it, and one that kube-scheduler has forgotten: one that it was
told of again and again, and has not asked about for longer than any pod may stay in its queue. Pods that need more of
kube-scheduler than a node, such as volumes, are never bound without it. Not thread-safe but where it says so.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial

from hived.errors import InvariantError, UserError
from hived.specs import PodRequest
from hived_extender.kube.metrics import Metrics
from hived_extender.kube_rules.demands import needs_kube_scheduler
from hived_extender.service.deadlines import Deadlines
from hived_extender.service.facts import Facts
from hived_extender.service.gangs.plans import listed
from hived_extender.service.ledger import Ledger
from hived_extender.service.nudge import Nudger
from hived_extender.service.pods import Offered, PodRecord, PodState
from hived_extender.service.writes.announcer import Announcer
from hived_extender.service.writes.binder import Binder

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

START_S = 30.0
"""How long kube-scheduler has to accept the places of all pods that start together, until they are taken back."""

EMPTIED_S = 1.0
"""How long kube-scheduler has to see that pods have left a node, until it is told of the pod that waits for it."""

UNASKED_EMPTIED_S = 15.0
"""How long it has to ask about that pod at all."""

MOST_EMPTIED = 5
"""After so many questions in which it does not offer such a node, the pod's cells are looked for elsewhere."""

MOST_REFUSALS = 4
"""After so many places that were refused in a row, a pod waits for the next change before it gets another."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Start:
    """Pods that start together: by uid those whose place is not accepted yet; `is_over` has a result when none is.

    `joined` have come to their places by themselves since, because these pods have theirs.
    """

    members: tuple[PodRecord, ...]
    pending: dict[str, PodRecord]
    is_over: Future[None]
    joined: list[PodRecord] = field(default_factory=list)


class Acceptance:
    """See the module. `exclusive` takes the service's lock; `guard` makes what tells whether a term goes on."""

    def __init__(
        self,
        exclusive: Callable[[], AbstractContextManager[None]],
        guard: Callable[[Ledger], Callable[[], bool]],
        facts: Facts,
        binder: Binder,
        announcer: Announcer,
        nudger: Nudger,
        metrics: Metrics,
        deadlines: Deadlines,
        ask_retry: Callable[[PodRecord], None],
    ) -> None:
        self.force_bind_threshold = 3
        self._exclusive = exclusive
        self._guard = guard
        self._facts = facts
        self._binder = binder
        self._announcer = announcer
        self._nudger = nudger
        self._metrics = metrics
        self._deadlines = deadlines
        self._ask_retry = ask_retry
        self._starts: dict[str, Start] = {}

    # Pods that start together

    def begin(self, members: Sequence[PodRecord]) -> None:
        """These pods have got their places at once: none is bound before kube-scheduler has accepted all of them."""
        for record in members:
            self.expect_question(record)
        if len(members) < 2:
            return
        start = Start(tuple(members), {record.uid: record for record in members}, Future())
        self._starts |= dict.fromkeys(start.pending, start)
        self._deadlines.set(start, START_S, partial(self._not_accepted, start))

    def join(self, record: PodRecord) -> None:
        """A pod has got its place by itself. If its gang is starting, it is bound no earlier than the gang is."""
        if record.gang is None or record.uid in self._starts:
            return
        mates = self._facts.gangs.placed_with(record.gang)
        start = next((start for mate in mates if (start := self._starts.get(mate.uid)) is not None), None)
        if start is not None:
            start.joined.append(record)
            self._starts[record.uid] = start

    def has_asked(self, record: PodRecord) -> None:
        """kube-scheduler has taken the node of a pod, or any node of one that takes no cells."""
        start = self._starts.get(record.uid)
        if start is not None:
            start.pending.pop(record.uid, None)
            if not start.pending:
                self._end(start)

    def hold_of(self, uid: str) -> Future[None] | None:
        """Done when the binding of this pod need not be held back any more; None if it need not be. From any thread."""
        start = self._starts.get(uid)
        return None if start is None else start.is_over

    def check_not_held(self, record: PodRecord) -> None:
        """Raise UserError if a pod may not be bound yet."""
        start = self._starts.get(record.uid)
        if start is not None:
            names = listed([one.name for one in start.pending.values()])
            raise UserError(f"{record.key} is bound when kube-scheduler has accepted the nodes of its mates: {names}")

    def settled(self, uid: str) -> None:
        """A pod is bound, or gone: nothing more is expected of kube-scheduler."""
        self._deadlines.drop(uid)
        self._deadlines.drop(("emptied", uid))
        self._deadlines.drop(("unasked", uid))

    def gone(self, uid: str) -> None:
        """A pod is over, or leaves; those that were to start together with it wait again."""
        self.settled(uid)
        start = self._starts.get(uid)
        if start is not None and self._facts.ledger is not None and not self._has_left(start, uid):
            self._undo(self._facts.ledger, [one for one in (*start.members, *start.joined) if one.uid != uid])
            self._end(start)

    def forget_starts(self) -> None:
        """The term is over."""
        for start in dict.fromkeys(self._starts.values()):
            self._end(start)

    def _has_left(self, start: Start, uid: str) -> bool:
        """Was this a pod that only joined? It is then not among them any more."""
        joined = [one for one in start.joined if one.uid != uid]
        if len(joined) == len(start.joined):
            return False
        start.joined = joined
        del self._starts[uid]
        return True

    def _end(self, start: Start) -> None:
        for record in (*start.members, *start.joined):
            self._starts.pop(record.uid, None)
        self._deadlines.drop(start)
        start.is_over.set_result(None)

    def _not_accepted(self, start: Start) -> None:
        """kube-scheduler has not asked about all pods that start together: nothing stays held for them. Takes the lock.

        The next time it has to ask about those first.
        """
        with suppress(InvariantError), self._exclusive():
            ledger = self._facts.ledger
            if ledger is not None and not start.is_over.done():
                for record in start.pending.values():
                    record.is_doubted = True
                self._undo(ledger, (*start.members, *start.joined))
                self._end(start)

    # Single pods

    def expect_question(self, record: PodRecord) -> None:
        """kube-scheduler should ask about a pod that was placed; until it does, it is told of the pod again."""
        if record.is_binding and self._facts.pods.get(record.uid) is record:
            self._expect(record, time.monotonic(), 0)

    def accepts(self, ledger: Ledger, record: PodRecord) -> bool:
        """kube-scheduler asks about a pod that was placed: does it offer that node, or at least not refuse it for good?

        False if it does not: the pod waits for another place then.
        """
        if self._facts.offers.includes(record, record.node):
            record.repeat_count += 1
            self.has_asked(record)
            record.is_probed = False
            self._deadlines.set(record.uid, UNBOUND_S, partial(self._unbound, record))
            if self._may_force(record) and record.repeat_count > self.force_bind_threshold:
                self.bind_without(ledger, record, "it was asked about again and again")
            return True
        if record.is_writing or record.is_unanswered:
            return True
        if self._may_force(record):
            self.bind_without(ledger, record, "it ignores which nodes kube-scheduler offers")
            return True
        if self._is_probe(record):
            return True
        self.take_back(ledger, record)
        return False

    def is_emptied(self, ledger: Ledger, record: PodRecord, requests: Sequence[PodRequest]) -> bool:
        """Others have left the cells that are reserved for these requests, and kube-scheduler does not offer the nodes.

        It may not have seen that they left. True if the pod is to be tried again at once: after some questions these
        nodes are taken to be refused for a reason that nobody here knows.
        """
        record.emptied_count += 1
        if record.emptied_count < MOST_EMPTIED:
            self.ask_soon(record)
            return False
        record.emptied_count = 0
        for request in requests:
            for node in ledger.nodes_of(request.spec.group.name):
                if not self._facts.offers.includes(record, node):
                    self._facts.offers.refuse(record, node)
        return True

    def ask_soon(self, record: PodRecord) -> None:
        """Have kube-scheduler ask about a pod again in a moment, once however often this is said until then."""
        if ("emptied", record.uid) not in self._deadlines:
            self._deadlines.set(("emptied", record.uid), EMPTIED_S, partial(self._ask_retry, record))

    def watch_emptied(self, ledger: Ledger, record: PodRecord, requests: Sequence[PodRequest]) -> None:
        """Others have left the cells that are reserved for a pod: kube-scheduler should ask about it now.

        Where its own filters leave the pod no node, it never will, and the cells are wanted by others.
        """
        key = ("unasked", record.uid)
        if key not in self._deadlines and any(ledger.is_emptied(request) for request in requests):
            self._deadlines.set(
                key, UNASKED_EMPTIED_S, partial(self._unasked_emptied, record, requests, record.offered)
            )

    def _unasked_emptied(self, record: PodRecord, requests: Sequence[PodRequest], offered: Offered | None) -> None:
        """Takes the lock."""
        with suppress(InvariantError), self._exclusive():
            ledger = self._facts.ledger
            is_known = self._facts.pods.get(record.uid) is record and record.state is PodState.WAITING
            if ledger is not None and is_known and record.offered is offered:
                emptied = [request for request in requests if ledger.is_emptied(request)]
                if emptied:
                    record.emptied_count = MOST_EMPTIED
                    self.is_emptied(ledger, record, emptied)
                    self._nudger.appeared(record.uid)

    def take_back(self, ledger: Ledger, record: PodRecord) -> None:
        """A pod's place is refused: it waits again, and with it those of its group or gang, while none is bound."""
        start = self._starts.get(record.uid)
        has_joined = start is not None and self._has_left(start, record.uid)
        if start is None:
            others = self._started_with(ledger, record)
        else:
            others = [] if has_joined else [*start.members, *start.joined]
        if start is None and any(one.is_writing or one.is_unanswered or one.state is PodState.BOUND for one in others):
            others = []
        fields = {"pod": record.key, "node": record.node, "with": len(others)}
        log.info("place taken back", extra={"fields": fields})
        self._metrics.refused_places.inc()
        record.refusal_count += 1
        self._undo(ledger, list(dict.fromkeys((record, *others))))
        if start is not None and not has_joined:
            self._end(start)

    def _undo(self, ledger: Ledger, records: Sequence[PodRecord]) -> None:
        """These pods wait again, unless they are bound."""
        for one in records:
            is_kept = one.is_writing or one.is_unanswered or one.state is PodState.BOUND
            if is_kept or self._facts.pods.get(one.uid) is not one:
                continue
            request = one.request
            self._deadlines.drop(one.uid)
            self._facts.release(one)
            one.may_go = one.is_probed = False
            if not one.is_of_dialect:
                one.request = request
            self._facts.pods.move(one, PodState.WAITING)
            self._nudger.refused(one.uid)
        for gang in dict.fromkeys(one.gang for one in records if one.gang is not None):
            self._facts.reconcile(ledger, gang)
        ledger.forget_answers()
        self._nudger.room_made()

    def not_written(self, record: PodRecord, *, is_unanswered: bool) -> None:
        """A binding failed. One without an answer may be written yet, until the pod has another version.

        kube-scheduler, which is to ask again, is told of the pod by a change of it: that gives it one.
        """
        record.writes -= 1
        record.is_unanswered = record.is_unanswered or is_unanswered
        if is_unanswered:
            self._ask_retry(record)
        self.expect_question(record)

    def bind_without(self, ledger: Ledger, record: PodRecord, why: str) -> None:
        """Bind a pod without kube-scheduler, in the background."""
        if record.is_writing or record.bind_info is None:
            return

        def done(is_bound: bool) -> None:
            if not is_bound:
                self._not_bound(ledger, record)

        record.writes += 1
        self._metrics.forced_bindings.inc()
        self._announcer.forced(record, f"bound to node {record.node} without kube-scheduler: {why}")
        log.info("force bind", extra={"fields": {"pod": record.key, "node": record.node, "reason": why}})
        self._binder.write_later(
            record, record.node, self._facts.to_write(record, record.node), self._guard(ledger), done
        )

    def _expect(self, record: PodRecord, since: float, times: int) -> None:
        delay_s = UNASKED_S[min(times, len(UNASKED_S) - 1)]
        self._deadlines.set(record.uid, delay_s, partial(self._unasked, record, since, times))

    def _unasked(self, record: PodRecord, since: float, times: int) -> None:
        """kube-scheduler has not asked about a pod that was placed. Takes the lock."""
        with suppress(InvariantError), self._exclusive():
            ledger = self._facts.ledger
            if ledger is None or not record.is_binding or record.is_writing:
                return
            if time.monotonic() - since < FORGOTTEN_S:
                self._ask_retry(record)
                self._expect(record, since, times + 1)
                return
            need = needs_kube_scheduler(record.ruled.demands) if record.ruled is not None else ""
            if not need:
                self.bind_without(ledger, record, f"it has not asked about the pod for {FORGOTTEN_S:g} s")
                return
            text = f"kube-scheduler does not ask about this pod, and nobody else may bind it: {need}"
            self._announcer.not_handled(record, f"{text}; is a kube-scheduler of its schedulerName running?")
            self._expect(record, time.monotonic(), len(UNASKED_S))

    def _unbound(self, record: PodRecord) -> None:
        """kube-scheduler has accepted the node and not bound the pod. Takes the lock."""
        with suppress(InvariantError), self._exclusive():
            if self._facts.ledger is not None and record.is_binding and not record.is_writing:
                self._ask_retry(record)
                self.expect_question(record)

    def _not_bound(self, ledger: Ledger, record: PodRecord) -> None:
        """Takes the lock."""
        with suppress(InvariantError), self._exclusive():
            if self._facts.ledger is not ledger:
                return
            record.writes -= 1
            if record.is_binding and self._facts.pods.get(record.uid) is record:
                self._ask_retry(record)
                self.expect_question(record)

    def _may_force(self, record: PodRecord) -> bool:
        """Does the pod itself say that it may run where kube-scheduler would not have it?"""
        return record.request is not None and record.request.spec.ignore_suggested_nodes

    def _is_probe(self, record: PodRecord) -> bool:
        """One node alone is offered if it is nominated, or was right for a pod alike; all others follow then."""
        if record.offered is None or record.is_probed or int(record.offered.mask.sum()) > 1:
            record.is_probed = False
            return False
        record.is_probed = True
        self.expect_question(record)
        return True

    def _started_with(self, ledger: Ledger, record: PodRecord) -> list[PodRecord]:
        """The other pods that have a place by the same decision, whether they have come to their nodes or not."""
        if record.gang is not None:
            found = self._facts.gangs.placed_with(record.gang)
        else:
            uids = ledger.holders(record.request.spec.group.name) if record.request is not None else []
            found = [one for one in map(self._facts.pods.get, uids) if one is not None]
        return [one for one in found if one is not record]
