"""Trying the pods that wait on the core: preempt for those that need it, wake those that could run."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial

from hived.decisions import Bind, Preempt, Wait
from hived.errors import InvariantError, UserError
from hived.events import Offer, Phase
from hived.specs import OPPORTUNISTIC_PRIORITY, PodRequest
from hived_extender.kube.metrics import Metrics
from hived_extender.pods.dialects.description import GangKey
from hived_extender.service.acceptance import Acceptance
from hived_extender.service.deadlines import Deadlines
from hived_extender.service.facts import Facts
from hived_extender.service.gangs.plans import Round, listed
from hived_extender.service.gangs.rounds import Alone, merged
from hived_extender.service.ledger import Ledger
from hived_extender.service.nudge import Nudger
from hived_extender.service.pods import PodRecord, PodState
from hived_extender.service.preemptions import Preemptions
from hived_extender.service.writes.announcer import Announcer
from hived_extender.service.writes.binder import Binder
from hived_extender.service.writes.evictor import Evictor, PreemptionPolicy
from hived_extender.service.writes.notices import CONDITION_TYPE

NO_CHAIN_REASON = "no cell chain could be tried"
ROOM_REASON = "there is room now, the pod will be tried again"

TELL_S = 0.5
"""How long news of a gang that forms may wait to be told to all its pods: the next pod may be on its way."""

log = logging.getLogger(__name__)


class WaitingPods:
    """`exclusive` takes the service's lock, under which everything is done but `try_on_core` and `not_told`; `guard`
    makes what tells whether decisions of a term may still be written.
    """

    def __init__(
        self,
        exclusive: Callable[[], AbstractContextManager[None]],
        guard: Callable[[Ledger], Callable[[], bool]],
        facts: Facts,
        policy: PreemptionPolicy,
        evictor: Evictor,
        binder: Binder,
        announcer: Announcer,
        nudger: Nudger,
        metrics: Metrics,
    ) -> None:
        self.preemptions = Preemptions(facts.pods, facts.gangs, evictor, announcer, self.ask_retry)
        self.deadlines = Deadlines()
        self.acceptance = Acceptance(
            exclusive, guard, facts, binder, announcer, nudger, metrics, self.deadlines, self.ask_retry
        )
        self._exclusive = exclusive
        self._facts = facts
        self.policy = policy
        self._binder = binder
        self._announcer = announcer
        self._nudger = nudger

    def try_on_core(self, uids: Sequence[str]) -> list[str]:
        """Preempt for those of the pods that need it, wake those that could run. Takes the lock.

        Returns those that could run, but for which the service is to make room should others take their place before
        kube-scheduler asks about them. Cost: a decision for all that ask alike, one for each that has to preempt.
        """
        fitting: list[str] = []
        with suppress(InvariantError), self._exclusive():
            ledger = self._facts.ledger
            for uid in uids:
                record = self._facts.pods.get(uid)
                if ledger is None or record is None or not self._is_for_scheduler(ledger, record):
                    continue
                if any(self._may_make_room(request) for request in self._requests(record)):
                    fitting.append(uid)
                if record.is_asked:
                    record.is_asked = False  # until kube-scheduler, which is awake now, asks
                    self.ask_retry(record)
        return fitting

    def ask_retry(self, record: PodRecord) -> None:
        """Have kube-scheduler try a pod again."""
        self._binder.ask_retry_later(record, lambda: self.not_told(record, PodState.WAITING))

    def not_told(self, record: PodRecord, state: PodState) -> None:
        """The API server could not be told of a pod; if nothing happened to it since, it must not be forgotten. Takes
        the lock.
        """
        with suppress(InvariantError), self._exclusive():
            if record.state is state and self._facts.pods.get(record.uid) is record:
                record.is_asked = True
                self._nudger.not_woken(record.uid)

    def ask_round(self, ledger: Ledger, asker: PodRecord, round_: Round, phase: Phase) -> Bind | Preempt | Wait | None:
        """kube-scheduler asks about a pod of a round: have it start if it can, and make room if the service does that.

        Returns what is to be said of the pod now. None: it has started, and none of its pods takes cells.
        """
        decision = self._settle(ledger, asker, round_, phase)
        if isinstance(decision, Preempt | Wait) or phase is Phase.PREEMPTING:
            return decision
        return decision if self._start(ledger, asker, round_) else Wait(ROOM_REASON)

    def _wait_for_doubted(self, round_: Round) -> Wait:
        """There is room for a round, but kube-scheduler seems to find no node for some of its pods."""
        for record in round_.doubted:
            if record.is_asked:
                self._wake(record)
        names = listed([record.name for record in round_.doubted])
        return Wait(f"{round_.name} has room; kube-scheduler has found no node yet for {names} (see the events there)")

    def _settle(
        self, ledger: Ledger, asker: PodRecord, round_: Round, phase: Phase, *, is_asked: bool = True
    ) -> Bind | Preempt | Wait | None:
        """What the core says of a round, after those of its victims were told to leave that the service evicts.

        `is_asked`: kube-scheduler asks about `asker` at this moment.
        """
        exact = asker if is_asked else None
        self.watch_time(asker)
        rounds = self._facts.rounds
        for record in round_.members:
            if record.request is not None:
                self._facts.release(record)  # it was asked about by itself before, when its gang had started once
        found = rounds.room(ledger, round_)
        if all(isinstance(one, Bind) for one in found) and phase is Phase.FILTERING and round_.doubted and is_asked:
            return self._wait_for_doubted(round_)
        found = rounds.decide(ledger, round_, phase, exact=exact)
        requests = [part.request for part in round_.parts]
        is_emptied = any(isinstance(one, Wait) and one.is_emptied for one in found)
        if is_emptied and is_asked and self.acceptance.is_emptied(ledger, asker, requests):
            found = rounds.decide(ledger, round_, phase, exact=exact)
        if self.policy.by_service and not any(isinstance(one, Wait) for one in found):
            found = [
                self.preemptions.carry_on(ledger, asker, part.request, one, rounds.offer(part, exact=exact))
                if isinstance(one, Preempt)
                else one
                for part, one in zip(round_.parts, found, strict=True)
            ]
            rounds.note_reserved(ledger, round_)
        decision = merged(found)
        if isinstance(decision, Wait):
            refusals = self._facts.offers.refusals(asker)
            reason = f"{round_.name} ({len(round_.members)} pods start together): {_joined(decision.reason, refusals)}"
            self._tell_once(exact, round_, reason)
            return Wait(reason)
        return decision

    def _tell_once(self, asker: PodRecord | None, round_: Round, reason: str) -> None:
        """The pods of a round but `asker` were told what was missing as it formed, which they now are not any more."""
        plan = self._facts.gangs.plan(round_.key)
        if not plan.is_told:
            plan.is_told = True
            for record in round_.members:
                if record is not asker:
                    self._announcer.waiting(record, reason)

    def _start(self, ledger: Ledger, asker: PodRecord, round_: Round) -> bool:
        """All pods of the round get their places; kube-scheduler is to ask about the others, to be told of theirs.

        False if the core has another opinion by now: it is soon asked again.
        """
        if not self._facts.rounds.start(ledger, round_, asker):
            self._nudger.room_made()
            return False
        for key in {record.gang for record in round_.members}:
            self.deadlines.drop(key)
        for record in round_.members:
            self._nudger.settled(record.uid)
            if record is not asker and record.is_asked:
                self._wake(record)
        self.acceptance.begin(round_.members)
        for record in self._facts.gangs.waiting_in(self._facts.gangs.plan(round_.key).keys):
            self._nudger.appeared(record.uid)  # it waited for just this
        return True

    def watch_time(self, record: PodRecord) -> None:
        """A pod waits: tell it when its gang has waited for too long."""
        gang = self._facts.gangs.get(record.gang) if record.gang is not None else None
        if gang is None or gang.key in self.deadlines:
            return
        with suppress(UserError):
            waiting_s = gang.terms().waiting_s
            if waiting_s:
                self.deadlines.set(gang.key, waiting_s, partial(self._time_is_over, gang.key, waiting_s))

    def _time_is_over(self, key: GangKey, waiting_s: float) -> None:
        """Takes the lock."""
        with suppress(InvariantError), self._exclusive():
            gang = self._facts.gangs.get(key)
            plan = self._facts.gangs.plan(key)
            if self._facts.ledger is None or gang is None or (plan.round is None and not plan.forming):
                return
            for record in gang.in_order():
                if record.state is PodState.WAITING and not record.may_go:
                    text = f"podgroup {key} has waited for {waiting_s:g} s and could not start; it goes on waiting"
                    self._announcer.timed_out(record, text)
                    self.watch_time(record)

    def _wake(self, record: PodRecord) -> None:
        record.is_asked = False  # until kube-scheduler, which is awake then, asks
        self.ask_retry(record)

    def _is_for_scheduler(self, ledger: Ledger, record: PodRecord) -> bool:
        """Could the pod run, or is at least nothing left that the service can do for it by itself?"""
        if record.state is PodState.BINDING:
            return not record.is_writing
        if record.state is not PodState.WAITING or record.is_held:
            return False
        if record.may_go:
            return True
        try:
            if not record.is_of_dialect:
                return record.request is not None and self._try_single(ledger, record, record.request)
            step = self._facts.rounds.step(record)
            if isinstance(step, Alone):
                return step.request is None or self._try_single(ledger, record, step.request)
            if isinstance(step, Round):
                return self._try_round(ledger, record, step)
        except UserError as error:
            self._announcer.refused(record, error.message)
            return False
        self.tell_forming(record, step.reason)
        return False

    def _try_single(self, ledger: Ledger, record: PodRecord, request: PodRequest) -> bool:
        self._facts.ask_for(ledger, record, request)
        was_preempting = ledger.is_waiting_for_victims(request)
        offer = self._facts.offers.of(request, self._facts.slots(record, request))
        try:
            if ledger.has_lost_cells(request):
                ledger.decide(request, Phase.PREEMPTING, offer, commit=False)
            decision = ledger.try_waiting(request, self._facts.offers.everywhere(request))
            if not (isinstance(decision, Wait) or _allows_all(offer)):
                decision = ledger.decide(request, Phase.FILTERING, offer, commit=False)
            if isinstance(decision, Preempt) and not was_preempting and not self.policy.by_service:
                return True  # kube-scheduler is to ask whom to preempt
            if isinstance(decision, Preempt) and self.policy.by_service:
                decision = self.preemptions.carry_on(ledger, record, request, decision, offer)
        except UserError:
            return False
        if isinstance(decision, Preempt) and not was_preempting:
            self.preemptions.tell(record, decision)
        self.acceptance.watch_emptied(ledger, record, [request])
        if isinstance(decision, Wait) and not record.is_asked:
            self._announcer.waiting(record, self.reason(record, decision))
        return isinstance(decision, Bind)

    def reason(self, record: PodRecord, decision: Wait) -> str:
        """Why a pod waits, with the nodes that Kubernetes refuses it, and the devices that its VC lacks."""
        reason = _joined(decision.reason or NO_CHAIN_REASON, self._facts.offers.refusals(record))
        return self._facts.explained(record, reason)

    def _try_round(self, ledger: Ledger, record: PodRecord, round_: Round) -> bool:
        requests = [part.request for part in round_.parts]
        was_preempting = any(ledger.reserves(request) for request in requests)
        is_for_others = not was_preempting and not self.policy.by_service
        if is_for_others and isinstance(merged(self._facts.rounds.room(ledger, round_)), Preempt):
            return True  # kube-scheduler is to ask whom to preempt
        decision = self._settle(ledger, record, round_, Phase.FILTERING, is_asked=False)
        self.acceptance.watch_emptied(ledger, record, requests)
        if isinstance(decision, Wait):
            if not record.is_asked:
                self._announcer.waiting(record, decision.reason)
            return False
        if isinstance(decision, Preempt):
            if not was_preempting:
                self.preemptions.tell(record, decision)
            return is_for_others  # kube-scheduler is to ask whom to preempt
        if round_.doubted:
            return record.is_doubted
        return True  # which nodes kube-scheduler offers may have changed since it was asked

    def in_short(self, record: PodRecord) -> str:
        """The reason for kube-scheduler of a pod whose gang forms, "" for another: the same until the gang is complete.

        It writes its answer onto the pod, and tries each pod again that has changed.
        """
        if record.gang is None or not self._facts.gangs.plan(record.gang).forming:
            return ""
        return f"rejected by podgroup {record.gang}: it is not complete (the condition {CONDITION_TYPE} has more)"

    def tell_gang_soon(self, record: PodRecord) -> None:
        """kube-scheduler asked about a pod whose gang forms, and tells it; the others are to know in a moment too."""
        self.watch_time(record)
        if record.gang is None:
            return
        key, plan = record.gang, self._facts.gangs.plan(record.gang)
        if plan.forming and not plan.is_told and ("forming", key) not in self.deadlines:
            self.deadlines.set(("forming", key), TELL_S, partial(self._tell_gang, key))

    def _tell_gang(self, key: GangKey) -> None:
        """Takes the lock."""
        with suppress(InvariantError), self._exclusive():
            plan = self._facts.gangs.plan(key)
            if self._facts.ledger is not None and plan.forming and not plan.is_told:
                plan.is_told = True
                for mate in self._facts.gangs.waiting_in(plan.keys):
                    self._announcer.waiting(mate, plan.forming)

    def tell_forming(self, record: PodRecord, reason: str) -> None:
        """Tell all pods of a gang what it waits for, once for each change."""
        plan = self._facts.gangs.plan(record.gang) if record.gang is not None else None
        self.watch_time(record)
        if plan is None or not plan.forming:
            self._announcer.waiting(record, reason)
        elif not plan.is_told:
            plan.is_told = True
            for mate in self._facts.gangs.waiting_in(plan.keys):
                self._announcer.waiting(mate, reason)

    def _requests(self, record: PodRecord) -> list[PodRequest]:
        """What is asked of the core for a pod: by itself, or with its gang."""
        plan = self._facts.gangs.plan(record.gang) if record.gang is not None else None
        if plan is not None and plan.round is not None and record.uid in plan.round.uids:
            return [part.request for part in plan.round.parts]
        return [record.request] if record.request is not None else []

    def _may_make_room(self, request: PodRequest) -> bool:
        """May the service preempt for a pod without being asked about it?"""
        return self.policy.by_service and request.spec.priority > OPPORTUNISTIC_PRIORITY


def _allows_all(offer: Offer | None) -> bool:
    """Does the core say the same with this offer as without one?"""
    return offer is None or (bool(offer.nodes.all()) and not offer.rules)


def _joined(reason: str, refusals: str) -> str:
    return f"{reason}; {refusals}" if refusals else reason
