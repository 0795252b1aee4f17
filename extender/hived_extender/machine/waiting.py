"""Tries waiting pods on the core: preempt for those that need it, wake those that could run."""

import dataclasses
import logging
from collections.abc import Sequence

from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Offer, Phase
from hived.values.specs import OPPORTUNISTIC_PRIORITY, PodRequest
from hived_extender.machine.acceptance import Acceptance
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core, Refused
from hived_extender.machine.explaining import Explaining
from hived_extender.machine.gang_notices import GangNotices
from hived_extender.machine.gangs.plans import Round, listed
from hived_extender.machine.gangs.rounds import Alone, merged
from hived_extender.machine.kept_cells import KeptCells
from hived_extender.machine.notices import Reason
from hived_extender.machine.pods import PodRecord, PodState
from hived_extender.machine.preemptions import Preemptions
from hived_extender.machine.retries import Retries
from hived_extender.machine.victim_sets import Wanted

NO_CHAIN_REASON = "no cell chain could be tried"
ROOM_REASON = "there is room now, the pod will be tried again"

log = logging.getLogger(__name__)


class WaitingPods:
    """Tries waiting pods and rounds, and makes room for them."""

    def __init__(
        self,
        cache: ClusterCache,
        gang_notices: GangNotices,
        preemptions: Preemptions,
        acceptance: Acceptance,
        announcements: Announcements,
        retries: Retries,
        kept: KeptCells,
        explaining: Explaining,
    ) -> None:
        self._cache = cache
        self._preemptions = preemptions
        self._acceptance = acceptance
        self._announcements = announcements
        self._retries = retries
        self._wakes = gang_notices.wakes
        self.gang_notices = gang_notices
        self.kept = kept
        self.explaining = explaining

    def try_some(self) -> None:
        """Try the next few pods: preempt for some, wake those that could run.

        Others may take a woken pod's place before kube-scheduler asks. If the service must make room then, it is tried
        again. Cost: a decision for all equal requests and for each gang, and one for each preempting pod.
        """
        self._retries.tried(self.try_these(self._retries.take_slice()))

    def try_these(self, uids: Sequence[str]) -> list[str]:
        """Try these pods; returns those that could run, or for which the service makes room.

        Pods that start together are tried once, with the first of them.
        """
        core, fitting, done = self._cache.core, list[str](), set[str]()
        for uid in uids:
            record = self._cache.pods.get(uid)
            if core is None or record is None or uid in done:
                continue
            if record.gang is not None and record.state is PodState.WAITING and not self.kept.chooses(record):
                self._cache.rounds.choose(core, record.gang)
            round_ = self._round_of(record)
            mates = round_.members if round_ is not None else (record,)
            self._retries.add_alike(one.uid for one in mates)
            done.update(one.uid for one in mates)
            for one in self._could_run(core, record, mates):
                if any(self._may_make_room(request) for request in self._requests(one)):
                    fitting.append(one.uid)
                if one.is_asked:
                    self._wake(one)
                else:
                    self._announcements.take_back(one.uid)
        return fitting

    def ask_round(self, core: Core, asker: PodRecord, round_: Round, phase: Phase) -> Bind | Preempt | Wait | None:
        """Start a round about whose pod kube-scheduler asks, or make room for it if the service evicts.

        Returns the decision to announce. None: it has started, and none of its pods takes cells.
        """
        if (leaving := self.kept.refusal(asker, None)) is not None:
            return leaving
        if (over := self.kept.over_quota(core, asker, round_)) is not None:
            return Wait(self._reason_of_round(round_, over))
        self.kept.give_to_gang(core, round_)
        self._prepare(asker, round_)
        if phase is Phase.FILTERING and round_.doubted and (self.kept.are_for(asker) or self._has_room(core, round_)):
            return self._wait_for_doubted(round_)
        if phase is Phase.FILTERING and self.kept.start(core, round_, asker):
            self._has_started(asker, round_)
            return Bind(asker.place.info) if asker.place.info is not None else None
        decision = self._settle(core, asker, round_, phase)
        if isinstance(decision, Refused):
            return dataclasses.replace(decision, reason=self._reason_of_round(round_, decision))
        if isinstance(decision, Wait):
            return Wait(self._reason_of_round(round_, decision))
        if isinstance(decision, Preempt) or phase is Phase.PREEMPTING:
            return decision
        return decision if self._start(core, asker, round_) else Wait(ROOM_REASON)

    def _prepare(self, record: PodRecord, round_: Round) -> None:
        self.gang_notices.watch_time(record)
        for one in round_.members:
            if one.request is not None:
                self._cache.bound.release(one)  # it was asked about by itself before, when its gang had started once

    def _has_room(self, core: Core, round_: Round) -> bool:
        """True if a round could start if every node were offered."""
        return all(isinstance(one, Bind) for one in self._cache.rounds.room(core, round_))

    def _wait_for_doubted(self, round_: Round) -> Wait:
        """Wait for kube-scheduler to find nodes for some pods of a round that has room."""
        for record in round_.doubted:
            if record.is_asked:
                self._wake(record)
        names = listed([record.name for record in round_.doubted])
        return Wait(f"{round_.name} has room; kube-scheduler has found no node yet for {names} (see the events there)")

    def _settle(
        self, core: Core, asker: PodRecord, round_: Round, phase: Phase, *, is_asked: bool = True
    ) -> Bind | Preempt | Wait | None:
        """The core's answer to a round, after its victims are evicted, if the service evicts.

        `is_asked`: kube-scheduler asks about `asker` now.
        """
        exact, rounds = asker if is_asked else None, self._cache.rounds
        found = rounds.decide(core, round_, phase, exact=exact)
        requests = [part.request for part in round_.parts]
        is_emptied = any(isinstance(one, Wait) and one.is_emptied for one in found)
        if is_emptied and is_asked and self._acceptance.emptied.are_refused(core, asker, requests):
            found = rounds.decide(core, round_, phase, exact=exact)
        if self._preemptions.policy.by_service and not all(isinstance(one, Bind) for one in found):
            wanted = [Wanted(part.request, part.slots, rounds.offer(part, exact=exact)) for part in round_.parts]
            found = self._preemptions.settle(
                core, asker, wanted, found, lambda: not any(isinstance(one, Wait) for one in rounds.room(core, round_))
            )
            rounds.note_reserved(core, round_)
        decision = merged(found)
        if isinstance(decision, Wait):
            self.gang_notices.tell_refused(exact, round_, self._told_of_round(asker, round_, decision))
        return decision

    def _reason_of_round(self, round_: Round, decision: Wait) -> str:
        """The core's reason why a round waits."""
        return f"{round_.name} ({len(round_.members)} pods start together): {decision.reason}"

    def _told_of_round(self, record: PodRecord, round_: Round, decision: Wait) -> str:
        """The reason why a round waits, as one of its pods shows it."""
        return self.told(record, dataclasses.replace(decision, reason=self._reason_of_round(round_, decision)))

    def _start(self, core: Core, asker: PodRecord, round_: Round) -> bool:
        """Place all pods of the round; kube-scheduler is woken for the others.

        False if the core decides otherwise by now: it is soon asked again.
        """
        if not self._cache.rounds.start(core, round_, asker):
            self._retries.room_made()
            return False
        self._has_started(asker, round_)
        return True

    def _has_started(self, asker: PodRecord, round_: Round) -> None:
        self.gang_notices.started(record.gang for record in round_.members)
        for record in round_.members:
            self._retries.settled(record.uid)
            if record is not asker and record.is_asked:
                self._wake(record)
        self._acceptance.begin(round_.members)
        for record in self._cache.gangs.waiting_in(self._cache.gangs.plan(round_.key).keys):
            self._retries.appeared(record.uid)  # it waited for just this

    def _wake(self, record: PodRecord) -> None:
        record.is_asked = False  # until kube-scheduler, which is awake then, asks
        self._wakes.ask(record)

    def _could_run(self, core: Core, record: PodRecord, mates: Sequence[PodRecord]) -> Sequence[PodRecord]:
        """The pods of these that could run, or for which the service can do nothing more."""
        if record.state is PodState.WAITING and self.kept.are_for(record):
            return mates
        if record.state is PodState.WAITING and self.kept.refusal(record, record.request) is not None:
            return ()
        if record.state is not PodState.WAITING:
            is_unbound = record.state is PodState.BINDING and not record.writing.count
            return mates if is_unbound or record.state is PodState.CLEARED else ()
        try:
            if not record.is_of_dialect:
                return mates if record.request is not None and self._try_single(core, record, record.request) else ()
            step = self._cache.rounds.step(record)
            if isinstance(step, Alone):
                return mates if step.request is None or self._try_single(core, record, step.request) else ()
            if isinstance(step, Round):
                return self._try_round(core, record, step)
        except UserError as error:
            for one in mates:
                self._announcements.say(one, Reason.INVALID_SPEC, error.message)
            return ()
        self.gang_notices.tell_forming(record, step.reason)
        return ()

    def _try_single(self, core: Core, record: PodRecord, request: PodRequest) -> bool:
        if missing := self._cache.missing_members(request):
            if not record.is_asked:
                self._announcements.say(record, Reason.WAITING, missing)
            return False
        if (over := self.kept.over_quota(core, record, request)) is not None:
            if not record.is_asked:
                self._announcements.say(record, Reason.WAITING, self.told(record, over))
            return False
        self._cache.bound.ask_for(core, record, request)
        was_preempting = core.is_waiting_for_victims(request)
        offer = self._cache.offers.of(request, self._cache.slots(record, request))
        try:
            if core.has_lost_cells(request):
                core.decide(request, Phase.PREEMPTING, offer, commit=False)
            decision = core.try_waiting(request, self._cache.offers.everywhere(request))
            if not (isinstance(decision, Wait) or _allows_all(offer)):
                decision = core.decide(request, Phase.FILTERING, offer, commit=False)
            if isinstance(decision, Preempt) and not was_preempting and not self._preemptions.policy.by_service:
                return True  # kube-scheduler is to ask whom to preempt
            if self._preemptions.policy.by_service:
                slots = self._cache.slots(record, request)
                decision = self.make_room(core, record, Wanted(request, slots, offer), decision)
        except UserError:
            return False
        if isinstance(decision, Preempt) and not was_preempting:
            self._preemptions.tell(record, decision)
        self._acceptance.emptied.watch(core, record, [request])
        if isinstance(decision, Wait) and not record.is_asked:
            self._announcements.say(record, Reason.WAITING, self.told(record, decision))
        return isinstance(decision, Bind)

    def make_room(
        self, core: Core, record: PodRecord, wanted: Wanted, decision: Bind | Preempt | Wait
    ) -> Bind | Preempt | Wait:
        """Preempt for a pod that starts by itself, if it starts then; returns the decision to announce.

        A refusal stands if every node is offered, or if there would be no cells even then.
        """
        if isinstance(decision, Bind):
            return decision
        if isinstance(decision, Wait) and (not isinstance(decision, Refused) or _allows_all(wanted.offer)):
            return decision
        everywhere = self._cache.offers.everywhere(wanted.request)

        def has_cells() -> bool:
            return not isinstance(core.try_waiting(wanted.request, everywhere), Wait)

        (found,) = self._preemptions.settle(core, record, [wanted], [decision], has_cells)
        return found

    def told(self, record: PodRecord, decision: Wait) -> str:
        """The reason why a pod waits, for users: the causes of a refusal, or the message of its wait.

        A message has the nodes that Kubernetes refuses; both have the devices that its VC lacks.
        """
        refusals = self._cache.offers.refusals(record)
        text = _joined(decision.reason or NO_CHAIN_REASON, refusals)
        if isinstance(decision, Refused):
            return self.explaining.told(record, self._requests(record), decision, text, refusals)
        return self._cache.explained(record, text)

    def _try_round(self, core: Core, record: PodRecord, round_: Round) -> Sequence[PodRecord]:
        requests = [part.request for part in round_.parts]
        if (over := self.kept.over_quota(core, record, round_)) is not None:
            for one in round_.members:
                if not one.is_asked:
                    self._announcements.say(one, Reason.WAITING, self._told_of_round(one, round_, over))
            return ()
        was_preempting = any(core.reserves(request) for request in requests)
        is_for_others = not was_preempting and not self._preemptions.policy.by_service
        if is_for_others and isinstance(merged(self._cache.rounds.room(core, round_)), Preempt):
            return round_.members  # kube-scheduler is to ask whom to preempt
        self._prepare(record, round_)
        decision = self._settle(core, record, round_, Phase.FILTERING, is_asked=False)
        for one in round_.members:
            self._acceptance.emptied.watch(core, one, requests)
            if isinstance(decision, Wait) and not one.is_asked:
                self._announcements.say(one, Reason.WAITING, self._told_of_round(one, round_, decision))
            elif isinstance(decision, Preempt) and (is_for_others or (one is record and not was_preempting)):
                self._preemptions.tell(one, decision)
        if isinstance(decision, Wait) or (isinstance(decision, Preempt) and not is_for_others):
            return ()
        if isinstance(decision, Preempt):
            return round_.members  # kube-scheduler is to ask whom to preempt
        # Which nodes kube-scheduler offers may have changed since it was asked.
        return round_.doubted or round_.members

    def _round_of(self, record: PodRecord) -> Round | None:
        round_ = self._cache.gangs.plan(record.gang).round if record.gang is not None else None
        return round_ if round_ is not None and record.uid in round_.uids else None

    def _requests(self, record: PodRecord) -> list[PodRequest]:
        """The requests to the core for a pod: its own, or its gang's."""
        if (round_ := self._round_of(record)) is not None:
            return [part.request for part in round_.parts]
        return [record.request] if record.request is not None else []

    def _may_make_room(self, request: PodRequest) -> bool:
        """True if the service may preempt for a pod without a question about it."""
        return self._preemptions.policy.by_service and request.spec.priority > OPPORTUNISTIC_PRIORITY


def _allows_all(offer: Offer | None) -> bool:
    """True if the core answers the same with this offer as without one."""
    return offer is None or (bool(offer.nodes.all()) and not offer.rules)


def _joined(reason: str, refusals: str) -> str:
    return f"{reason}; {refusals}" if refusals else reason
