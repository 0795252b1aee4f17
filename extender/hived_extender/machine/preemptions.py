"""Preemptions carried out: reserve the cells, evict their users or leave that to kube-scheduler, announce it.

The service evicts by itself (rule 27.1), as only that always completes: kube-scheduler's preemption sees one node at a
time, only pods of lower *Kubernetes* priority, and no lazy preemption. Rules 27.9 to 27.12 say how victims leave. Not
thread-safe.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import HivedError, UserError
from hived.values.events import Offer, Phase
from hived.values.specs import OPPORTUNISTIC_PRIORITY, PodRequest
from hived_config.rules import Grace, PodRules
from hived_config.settings import BorrowedResources, Budgets, PreemptBy, Settings
from hived_extender.jobs.job import parts_of, told_with_uid
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.jobs.progress import seconds_of, write_time
from hived_extender.jobs.wire import MetaPod, MetaVictims, PreemptResult
from hived_extender.kube.client import KubeError
from hived_extender.kube.clocks import Backoff
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.certificates import NEVER_PREEMPTS, NOBODY_HELPS, OTHERS_LEAVE
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core
from hived_extender.machine.effects import EvictPod, Outbox
from hived_extender.machine.notices import Reason
from hived_extender.machine.pods import PodRecord, PodState, Seen
from hived_extender.machine.retries import Wakes
from hived_extender.machine.victim_sets import Chosen, VictimSets, Wanted, Who

log = logging.getLogger(__name__)

TIMER, OVERDUE = "evict", "overdue"

AT_ONCE = 8
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0
WITH_ITS_JOB_S = 10.0
"""The time in which a pod of a queued job leaves as the job is suspended."""
LATE_S = 30.0
"""The time that a kubelet may take to end a pod beyond its grace: to kill its containers, and to say so."""

BUDGET_REFUSALS = (429, 500)
"""A budget that has no disruption left; several budgets for one pod, which the Eviction API cannot decide between."""


class PreemptionPolicy(msgspec.Struct, frozen=True):
    """The way of evictions.

    `by_service`: the service evicts, else kube-scheduler (rule 27.1). Budgets refuse for `grace_s` before a deletion
    (rule 27.10). `ceilings` limit grace periods. With `keeps_shares` borrowers get shares (rule 27.14). `tenants` are
    the namespaces in which the service may evict; None for all.
    """

    by_service: bool = True
    budgets: Budgets = Budgets.OVERRIDE
    grace_s: float = 30.0
    ceilings: Grace = Grace()
    keeps_shares: bool = True
    tenants: frozenset[str] | None = None

    @classmethod
    def of(cls, settings: Settings, rules: PodRules) -> "PreemptionPolicy":
        """The policy of a configuration."""
        by_service = settings.preempt_by is PreemptBy.SERVICE
        keeps_shares = settings.borrowed_resources is BorrowedResources.SHARE
        return cls(
            by_service,
            settings.disruption_budgets,
            settings.eviction_grace_s,
            rules.grace,
            keeps_shares,
            rules.access.tenants,
        )


class _Victim(msgspec.Struct, eq=False):
    """A pod that must leave, its preemptor, and the state of refused attempts.

    `until_s` is its expected end, in seconds since 1970; None if a budget or an error may keep it for good. One that
    `is_asked` leaves, unless the API server still refuses. It must leave while one of `requests` reserves cells, even
    if not its own. Without a `preemptor` nothing spares it: a queue decided so, for the job with the key `winner`,
    which may be another text.
    """

    record: PodRecord
    preemptor: PodRecord | None
    winner: str = ""
    until_s: float | None = None
    refused_at: float = math.inf
    backoff: Backoff = msgspec.field(default_factory=lambda: Backoff(FIRST_WAIT_S, LONGEST_WAIT_S))
    is_asked: bool = False
    requests: tuple[PodRequest, ...] = ()


class Preemptions:
    """Victims and their evictions: one evicted once is not evicted again until it is gone or spared."""

    def __init__(
        self,
        policy: PreemptionPolicy,
        cache: ClusterCache,
        outbox: Outbox,
        announcements: Announcements,
        wakes: Wakes,
    ) -> None:
        self.policy = policy
        self._cache = cache
        self._outbox = outbox
        self._announcements = announcements
        self._wakes = wakes
        self._metrics = outbox.metrics
        self._leaving: tuple[object, frozenset[str]] = None, frozenset()  # when that was so, and who had to leave
        self._victims: dict[str, _Victim] = {}
        self._ready: dict[str, None] = {}
        self._strangers: set[str] = set()  # victims that are no pods of ours
        self._under_way = 0
        self._hurried: dict[str, float] = {}  # seconds that pods have to leave, as we have told the API server
        self.sets = VictimSets(cache, lambda: self._victims, self._may_evict_in)

    def settle(
        self,
        core: Core,
        asker: PodRecord,
        wanted: Sequence[Wanted],
        found: Sequence[Bind | Preempt | Wait],
        has_cells: Callable[[], bool],
    ) -> list[Bind | Preempt | Wait]:
        """Make room for pods that start together, if that starts them; returns the decision to announce.

        found : the core's answer to each, which chooses victims by cells alone
        has_cells : would there be cells if Kubernetes offered every node, even if others had to leave?

        If the core's victims do not help, or it found none, others are chosen, or none leave (rule 27.2).
        """
        never = self.never_preempts(asker, *(mate for one in wanted for mate in one.members))
        is_barred = never and any(isinstance(one, Preempt) and not self._are_lent(one) for one in found)
        reserves = any(core.reserves(one.request) for one in wanted)
        if reserves and is_barred:
            return [Wait(NEVER_PREEMPTS) for _ in found]
        if not reserves and not all(isinstance(one, Bind) for one in found):
            enough = self.sets.enough_leaving(core, wanted, found, _who(never))
            if enough is not None and (answer := self._carry_out(core, asker, wanted, enough)) is not None:
                return answer
            are_waiting = any(isinstance(one, Wait) for one in found)
            if are_waiting or is_barred or not self.sets.help(core, wanted, found):
                there_are = has_cells if are_waiting else lambda: True
                return self._choose(core, asker, wanted, found, there_are, _who(never))
            fewer = self.sets.fewer(core, wanted, found)
            if fewer is not None and (answer := self._carry_out(core, asker, wanted, fewer)) is not None:
                return answer
        if any(isinstance(one, Wait) for one in found):
            return list(found)
        answers = [
            self.carry_on(core, asker, one.request, decision, one.offer) if isinstance(decision, Preempt) else decision
            for one, decision in zip(wanted, found, strict=True)
        ]
        self.sets.note_reserved(wanted)
        return answers

    def foresee(
        self,
        core: Core,
        wanted: Sequence[Wanted],
        found: Sequence[Bind | Preempt | Wait],
        has_cells: Callable[[], bool],
    ) -> list[Bind | Preempt | Wait]:
        """As `settle`, for hypothetical pods: nothing is evicted or reserved."""
        are_bound = all(isinstance(one, Bind) for one in found)
        if are_bound or not self.policy.by_service or any(core.reserves(one.request) for one in wanted):
            return list(found)
        are_waiting = any(isinstance(one, Wait) for one in found)
        never = self.never_preempts(*(mate for one in wanted for mate in one.members))
        is_barred = never and not all(self._are_lent(one) for one in found if isinstance(one, Preempt))
        chosen = self.sets.enough_leaving(core, wanted, found, _who(never))
        if chosen is None and not are_waiting and not is_barred and self.sets.help(core, wanted, found):
            chosen = self.sets.fewer(core, wanted, found)
        elif chosen is None and (not are_waiting or has_cells()):
            chosen = next(self.sets.find(core, wanted, _who(never)), None)
            if chosen is None and not are_waiting:
                return self._nobody_helps(core, wanted, never=never)
        if chosen is not None and self.sets.is_free(core, wanted, chosen):
            return [Bind(info) for _, info in chosen.places]
        if chosen is None or not (chosen.uids or chosen.leaving):
            return list(found)
        by_node: dict[str, list[str]] = {}
        for uid in sorted(chosen.uids | chosen.leaving):
            record, resident = self._cache.pods.get(uid), self._cache.nodes.residents.get(uid)
            node = resident.node if resident is not None else record.place.node if record is not None else ""
            by_node.setdefault(node, []).append(uid)
        victims = Preempt({node: tuple(uids) for node, uids in sorted(by_node.items())})
        return [victims for _ in found]

    def _nobody_helps(
        self, core: Core, wanted: Sequence[Wanted], *, never: bool = False
    ) -> list[Bind | Preempt | Wait]:
        if never:
            return [Wait(NEVER_PREEMPTS) for _ in wanted]
        why = self.sets.obstacle(core, wanted)
        return [Wait(f"{NOBODY_HELPS} ({why})" if why else NOBODY_HELPS) for _ in wanted]

    def never_preempts(self, *records: PodRecord) -> bool:
        """True if a pod or gang has the policy Never (rule 27.7)."""
        mates = (mate for one in records for gang in self._cache.gangs.of(one) for mate in gang.present())
        return not all(one.seen.preempts for one in (*records, *mates))

    def _are_lent(self, decision: Preempt) -> bool:
        found = map(self._cache.pods.get, decision.victims)
        return all(
            one is not None and self._is_lent(one) for one in self._cache.gangs.leaving_with(filter(None, found))
        )

    def _choose(
        self,
        core: Core,
        asker: PodRecord,
        wanted: Sequence[Wanted],
        found: Sequence[Bind | Preempt | Wait],
        has_cells: Callable[[], bool],
        who: Who,
    ) -> list[Bind | Preempt | Wait]:
        """Evict a set of victims after which all pods start, if there is one."""
        if not self.sets.is_hopeless(core, wanted, who) and has_cells():
            for chosen in self.sets.find(core, wanted, who):
                if (answer := self._carry_out(core, asker, wanted, chosen)) is not None:
                    return answer
            self.sets.gave_up(core, wanted, who)
        if any(isinstance(one, Wait) for one in found):
            return list(found)
        return self._nobody_helps(core, wanted, never=who is not Who.ANYBODY)

    def _carry_out(
        self, core: Core, asker: PodRecord, wanted: Sequence[Wanted], chosen: Chosen
    ) -> list[Bind | Preempt | Wait] | None:
        """Reserve the cells of a choice and evict its victims; None if the core refuses.

        Without victims, free cells are reserved and kube-scheduler is woken.
        """
        makes_leave = chosen.uids or chosen.leaving
        if not makes_leave and not self.sets.is_free(core, wanted, chosen):
            return [Wait(OTHERS_LEAVE) for _ in wanted]
        if not self._reserve(core, chosen):
            return None
        self.sets.note_reserved(wanted)
        if makes_leave:
            return self._evict_chosen(core, asker, chosen)
        self._wakes.ask(asker)
        return [Bind(info) for _, info in chosen.places]

    def _reserve(self, core: Core, chosen: Chosen) -> bool:
        """Reserve the cells of a choice; False, and nothing is reserved, if the core refuses."""
        reserved: list[PodRequest] = []
        try:
            for request, info in chosen.places:
                core.reserve([request], info, may_be_free=True)
                reserved.append(request)
        except UserError as error:
            log.debug("cells not reserved", extra={"fields": {"reason": error.message}})
            for request in reserved:
                core.delete(request)
            return False
        return True

    def _evict_chosen(self, core: Core, asker: PodRecord, chosen: Chosen) -> list[Bind | Preempt | Wait]:
        requests = tuple(request for request, _ in chosen.places)
        residents, by_node, records = self._cache.nodes.residents, dict[str, list[str]](), self._records(chosen)
        for record in records:
            resident = residents.get(record.uid)
            by_node.setdefault(record.place.node if resident is None else resident.node, []).append(record.uid)
            if record.uid not in self._victims:
                self._add(record, asker, requests)
                self._announcements.evicting(record, _winner_of(record, asker))
        fields = {"pod": asker.key, "victims": [record.key for record in records]}
        log.info("victims chosen by Kubernetes' rules", extra={"fields": fields})
        self._send_due()
        victims = Preempt({node: tuple(uids) for node, uids in sorted(by_node.items())})
        return [victims for _ in requests]

    def _records(self, chosen: Chosen) -> list[PodRecord]:
        """The pods of a choice under way, other schedulers' included."""
        residents = self._cache.nodes.residents
        records = [
            record for record in map(self._cache.pods.get, sorted(chosen.uids | chosen.leaving)) if record is not None
        ]
        for name in chosen.strangers:
            resident = residents.get(name.uid)
            grace_s = resident.standing.grace_s if resident is not None and resident.standing is not None else 0.0
            residents.yield_place(name.uid)
            if self._cache.pods.get(name.uid) is None:
                records.append(PodRecord(name.uid, name.name, name.namespace, PodState.BOUND, Seen(grace_s=grace_s)))
                self._strangers.add(name.uid)
        return records

    def is_clearing(self, request: PodRequest) -> bool:
        """True if pods still leave that hold no cells, or others than those reserved for a request."""
        name = request.spec.group.name
        return any(name == one.spec.group.name for victim in self._victims.values() for one in victim.requests)

    def look(self) -> None:
        """Forget other schedulers' victims that are gone."""
        for uid in [uid for uid in self._strangers if self._cache.nodes.residents.get(uid) is None]:
            self.gone(uid)
            self._announcements.forget(uid)

    def carry_on(
        self, core: Core, record: PodRecord, request: PodRequest, found: Preempt, offer: Offer | None
    ) -> Bind | Preempt | Wait:
        """Reserve the cells found in use, unless reserved before, and evict their users.

        Returns the decision to announce. New gang mates of earlier victims become victims too.
        """
        now: Bind | Preempt | Wait = found
        if not core.is_waiting_for_victims(request):
            now = core.decide(request, Phase.PREEMPTING, offer, commit=False)
        if isinstance(now, Preempt):
            self.evict(core, record, now)
        elif isinstance(now, Bind):
            # No event will tell kube-scheduler so.
            self._wakes.ask(record)
        return now

    def evict(self, core: Core, preemptor: PodRecord, decision: Preempt) -> None:
        """Evict all victims, and pods that cannot go on without them or without victims of others."""
        found = [record for record in map(self._cache.pods.get, decision.victims) if record is not None]
        for key in dict.fromkeys(record.gang for record in found if record.gang is not None):
            found += self._victims_in(core, key)
        self._ask(self._cache.gangs.leaving_with(found), preemptor)

    def evict_for(self, records: Iterable[PodRecord], winner: str) -> None:
        """Evict these pods, and pods that cannot go on without them, for a job without pods."""
        for record in self._cache.gangs.leaving_with(records):
            known = self._victims.get(record.uid)
            if known is None:
                named = told_with_uid(winner, record.namespace) or "others"
                self._announcements.say(record, Reason.PREEMPTED, f"its cells are needed by {named}")
                self._add(record, None, winner=winner)
            else:
                known.preemptor, known.winner = None, winner
                if not known.is_asked and known.refused_at == math.inf:
                    self._outbox.timers.drop((TIMER, record.uid))
                    self._ready[record.uid] = None
        self._send_due()

    def clear_for(self, core: Core, wanted: Wanted, winner: str) -> bool:
        """Evict opportunistic pods without cells for a job without pods, if it has room then.

        False if that does not help. The queue asks again once they are gone.
        """
        if not self.policy.by_service or self.sets.is_hopeless(core, [wanted], Who.LENT_WITHOUT_CELLS):
            return False
        if self.sets.are_leaving(core, [wanted]):
            return True
        chosen = next(self.sets.find(core, [wanted], Who.LENT_WITHOUT_CELLS), None)
        if chosen is None:
            self.sets.gave_up(core, [wanted], Who.LENT_WITHOUT_CELLS)
            return False
        self.evict_for(self._records(chosen), winner)
        return True

    def tell(self, record: PodRecord, decision: Preempt) -> dict[str, str]:
        """Announce the victims; returns them by node."""
        reasons = {
            node: f"node(s) with pods to preempt: {', '.join(self._key(uid) for uid in victims)}{self._until(victims)}"
            for node, victims in decision.victims_by_node.items()
        }
        text = "; ".join(f"{node}: {reason}" for node, reason in reasons.items())
        self._announcements.say(record, Reason.PREEMPTING, text)
        return reasons

    def left_to_scheduler(self, preemptor: PodRecord, uids: Iterable[str]) -> None:
        """kube-scheduler evicts these pods: the queues of their jobs are to suspend these (rule 32.14)."""
        for record in filter(None, map(self._cache.pods.get, uids)):
            self._cache.jobs.preempted(record, preemptor.claimant)

    def must_leave(self, record: PodRecord) -> bool:
        """False if a pod stays, as the reservation for which it was to leave has ended (rule 27.9)."""
        victim = self._victims.get(record.uid)
        if victim is None:
            return self._is_victim(record)
        if victim.preemptor is None or victim.is_asked or self._has_to_leave(victim):
            return True
        self._spared(record.uid)
        return False

    def has_evicted(self, uid: str) -> bool:
        """True if the pod's eviction was sent and not refused. A watch may show its end before the answer."""
        victim = self._victims.get(uid)
        return victim is not None and victim.is_asked

    def preempted_for(self, uid: str) -> tuple[str, str, int | None]:
        """The job that preempts a pod, its namespace and priority; "" if none does, or kube-scheduler evicts."""
        victim = self._victims.get(uid)
        if victim is None:
            return "", "", None
        if victim.preemptor is not None:
            return victim.preemptor.shown_job, victim.preemptor.namespace, victim.preemptor.claim[1]
        parts = parts_of(victim.winner)
        return ("/".join(parts[:-1]), parts[1], None) if parts else ("", "", None)

    def gone_by(self, record: PodRecord, at_s: float) -> float:
        """The latest end of a pod if it must leave, in seconds since 1970.

        A victim not yet evicted is evicted at `at_s`. Infinite if unknown: a budget or an error may keep it.
        """
        end_s = self._end_of(record.uid)
        if end_s is None and record.uid not in self._victims:
            end_s = self._latest_end(record, at_s)
        return math.inf if end_s is None else end_s

    def grace_s(self, record: PodRecord) -> float:
        """The seconds that a pod has to leave (rule 27.11)."""
        return min(record.seen.grace_s, self._ceiling_s(record))

    def own_grace(self, record: PodRecord) -> int | None:
        """The grace period for a pod's deletion, None if it may have its own."""
        return None if record.seen.grace_s <= self._ceiling_s(record) else int(self._ceiling_s(record))

    def left_to_kubelet(self, record: PodRecord, *, is_new: bool = False) -> None:
        """Time a bound pod that is being deleted, by any client (rule 27.11).

        It starts now if the deletion `is_new` to us, whatever the clocks say.
        """
        is_victim = record.uid in self._victims
        leaves_s = seconds_of(record.seen.leaves_at)
        if leaves_s is None or not (is_victim or self._is_lent(record)):
            return
        ceiling_s = float(self._ceiling_s(record))
        if record.seen.leaving_s > ceiling_s and self._hurried.get(record.uid) != ceiling_s:
            self._hurried[record.uid] = ceiling_s
            self._under_way += 1
            self._outbox.send(EvictPod(record.named, by_force=True, grace_s=int(ceiling_s)))
        if (OVERDUE, record.uid) not in self._outbox.timers:
            asked_s = self._outbox.now.wall if is_new else leaves_s - record.seen.leaving_s
            left_s = asked_s + ceiling_s - self._outbox.now.wall
            self._outbox.wake_in((OVERDUE, record.uid), min(max(left_s, 0.0), ceiling_s) + LATE_S)

    def is_overdue(self, _: str, uid: str) -> None:
        """Delete a pod's object at once after its time to leave, if its cells are wanted (rule 27.12)."""
        record, core = self._cache.pods.get(uid), self._cache.core
        if record is None or core is None or not record.seen.is_leaving:
            return
        if record.seen.leaving_s > self._ceiling_s(record) and uid not in self._hurried:  # that was refused
            self.left_to_kubelet(record)
            return
        is_needed = uid in self._victims or (record.request is not None and core.is_victim(record.request))
        if is_needed and record.place.node in self._cache.nodes.healthy:
            log.warning("victim deleted at once", extra={"fields": {"pod": record.key, "node": record.place.node}})
            self._under_way += 1
            self._outbox.send(EvictPod(record.named, by_force=True, grace_s=0))
        self._outbox.wake_in((OVERDUE, uid), LATE_S)

    def _may_evict_in(self, namespace: str) -> bool:
        return self.policy.tenants is None or namespace in self.policy.tenants

    def _is_lent(self, record: PodRecord) -> bool:
        if record.uid in self._strangers:
            return False
        core = self._cache.core
        group = core.state.groups.get(record.request.spec.group.name) if core is not None and record.request else None
        return record.claim[1] == OPPORTUNISTIC_PRIORITY if group is None else group.virtual is None

    def _ceiling_s(self, record: PodRecord) -> int:
        return self.policy.ceilings.ceiling_s(record.claim[0], is_lent=self._is_lent(record))

    def gone(self, uid: str) -> None:
        """A pod has left."""
        self._hurried.pop(uid, None)
        self._outbox.timers.drop((OVERDUE, uid))
        self._spared(uid)

    def _spared(self, uid: str) -> None:
        self._victims.pop(uid, None)
        self._strangers.discard(uid)
        self._ready.pop(uid, None)
        self._outbox.timers.drop((TIMER, uid))

    def forget_all(self) -> None:
        """Spare all victims at the end of a term."""
        for uid in [*self._victims, *self._hurried]:
            self.gone(uid)

    def time_came(self, _: str, uid: str) -> None:
        """Evict a victim that has not left with its job, or that a refusal kept; one that leaves needs no eviction."""
        victim = self._victims[uid]
        if not (victim.record.seen.is_leaving and self._has_to_leave(victim)):
            self._ready[uid] = None
            self._send_due()

    def wrote(self, effect: EvictPod, error: HivedError | None, *, is_current: bool) -> None:
        """Take the result of an eviction, of this term or another."""
        self._under_way -= 1
        if error is not None and self._hurried.pop(effect.pod.uid, None) is not None:
            self._outbox.wake_in((OVERDUE, effect.pod.uid), LONGEST_WAIT_S)
        victim = self._victims.get(effect.pod.uid) if is_current else None
        if error is None:
            how = "deleted" if effect.by_force else "evicted"
            self._metrics.evictions.labels(how).inc()
            log.info("victim asked to leave", extra={"fields": {"pod": effect.pod.key, "how": how}})
        elif victim is not None and isinstance(error, KubeError) and error.is_not_found:
            victim.is_asked = False  # it was gone before, of which a watch will tell
        elif victim is not None:
            self._try_again(victim, error)
        self._send_due()

    def _ask(self, records: Iterable[PodRecord], preemptor: PodRecord) -> None:
        for record in records:
            if record.uid not in self._victims:
                self._add(record, preemptor)
                self._announcements.evicting(record, _winner_of(record, preemptor))
        self._send_due()

    def _add(
        self,
        record: PodRecord,
        preemptor: PodRecord | None,
        requests: tuple[PodRequest, ...] = (),
        *,
        winner: str = "",
    ) -> None:
        """A pod must leave: one of a queued job as the job is suspended (rule 32.14), since an eviction may fail it."""
        at_s = self._outbox.now.wall
        if preemptor is not None and self._cache.jobs.preempted(record, preemptor.claimant):
            self._outbox.wake_in((TIMER, record.uid), WITH_ITS_JOB_S)
            at_s += WITH_ITS_JOB_S
        else:
            self._ready[record.uid] = None
        until_s = self._latest_end(record, at_s)
        self._victims[record.uid] = _Victim(record, preemptor, winner, until_s, requests=requests)
        if record.seen.is_leaving and record.seen.leaving_s <= self._ceiling_s(record):
            self.left_to_kubelet(record)  # no change of the pod will tell that its time is bounded now

    def _send_due(self) -> None:
        while self._ready and self._under_way < AT_ONCE:
            uid = next(iter(self._ready))
            del self._ready[uid]
            victim = self._victims[uid]
            if victim.preemptor is not None and not self._has_to_leave(victim):
                self._spared(uid)
                continue
            waited_s = self._outbox.now.at - victim.refused_at
            by_force = self.policy.budgets is Budgets.OVERRIDE and waited_s >= self.policy.grace_s
            self._under_way += 1
            victim.is_asked = True
            self._outbox.send(EvictPod(victim.record.named, by_force, grace_s=self.own_grace(victim.record)))

    def _try_again(self, victim: _Victim, error: HivedError) -> None:
        victim.is_asked = False
        if isinstance(error, KubeError) and error.status in BUDGET_REFUSALS:
            victim.refused_at = min(victim.refused_at, self._outbox.now.at)
        else:
            victim.until_s = None  # nobody knows how long the API server fails
        self._metrics.evictions.labels("refused").inc()
        fields = {"pod": victim.record.key, "reason": str(error), "wait_s": victim.backoff.failed()}
        log.warning("victim not evicted", extra={"fields": fields})
        if victim.preemptor is not None:
            text = f"{victim.record.key} cannot be evicted: {error}"
            self._announcements.say(victim.preemptor, Reason.PREEMPTION_BLOCKED, text)
        self._outbox.wake_in((TIMER, victim.record.uid), victim.backoff.wait_s)

    def _has_to_leave(self, victim: _Victim) -> bool:
        """False if a reservation has ended, which spares its victims (rule 27.9)."""
        core, uid = self._cache.core, victim.record.uid
        is_there = uid in self._strangers or self._cache.pods.get(uid) is victim.record
        if core is not None and is_there and any(core.reserves(request) for request in victim.requests):
            return True
        return self._is_victim(victim.record)

    def _is_victim(self, record: PodRecord) -> bool:
        """True if a pod must leave, for its own cells or with pods that it cannot go on without."""
        core, gangs = self._cache.core, self._cache.gangs
        if core is None or self._cache.pods.get(record.uid) is not record:
            return False
        if record.request is not None and core.is_victim(record.request):
            return True
        if record.gang is None:
            return False
        moment = (core, core.change_count, gangs.change_count, record.gang)
        if moment != self._leaving[0]:
            victims = self._victims_in(core, record.gang)
            self._leaving = moment, frozenset(one.uid for one in gangs.leaving_with(victims))
        return record.uid in self._leaving[1]

    def _victims_in(self, core: Core, key: GangKey) -> list[PodRecord]:
        mates = self._cache.gangs.placed_with(key)
        return [one for one in mates if one.request is not None and core.is_victim(one.request)]

    def _latest_end(self, record: PodRecord, at_s: float) -> float | None:
        """The latest end of a pod evicted from `at_s` on: its grace period, our patience and the last retry.

        Assumes prompt answers of API server and kubelet. None if unknown.
        """
        if not self.policy.by_service or self.policy.budgets is not Budgets.OVERRIDE:
            return None
        return at_s + self._longest_refused_s + self.grace_s(record)

    @property
    def _longest_refused_s(self) -> float:
        return self.policy.grace_s + LONGEST_WAIT_S

    def _until(self, victims: Iterable[str]) -> str:
        """The expected end of the last of these pods, if no other budget refuses; "" if any is unknown."""
        ends = [self._expected_end(uid) for uid in victims]
        if not ends or None in ends:
            return ""
        return f"; gone by about {write_time(math.ceil(round(max(filter(None, ends)), 3)))[11:19]}"

    def _expected_end(self, uid: str) -> float | None:
        """As `_end_of`, without time for refusals until a budget refuses: most never do."""
        victim, record, end_s = self._victims.get(uid), self._cache.pods.get(uid), self._end_of(uid)
        is_leaving = record is not None and record.seen.is_leaving
        if end_s is None or victim is None or is_leaving or victim.refused_at < math.inf:
            return end_s
        return end_s - self._longest_refused_s

    def _end_of(self, uid: str) -> float | None:
        """The end of a pod by its deletion if begun, else by its eviction."""
        victim, record = self._victims.get(uid), self._cache.pods.get(uid)
        until_s = victim.until_s if victim is not None else None
        leaves_s = seconds_of(record.seen.leaves_at) if record is not None else None
        if record is None or leaves_s is None:
            return until_s
        if victim is None and not self._is_lent(record):
            return leaves_s
        return min(leaves_s, leaves_s - record.seen.leaving_s + self._ceiling_s(record))

    def _key(self, uid: str) -> str:
        victim = self._victims.get(uid)
        record = self._cache.pods.get(uid) or (victim.record if victim is not None else None)
        return record.key if record is not None else uid


def _who(never: bool) -> Who:
    """The possible victims: lent ones alone if the asker `never` preempts."""
    return Who.LENT if never else Who.ANYBODY


def pick_victims(record: PodRecord, decision: Preempt, candidates: list[str]) -> PreemptResult:
    """The victims on the first candidate with any; an entry without victims would fail the whole attempt."""
    for node in candidates:
        victims = decision.victims_by_node.get(node)
        if victims:
            return PreemptResult({node: MetaVictims([MetaPod(uid) for uid in victims])})
    fields = {"pod": record.key, "victims": sorted(decision.victims_by_node), "candidates": candidates}
    log.warning("no candidate has victims: do the pods' Kubernetes priorities agree?", extra={"fields": fields})
    return PreemptResult({})


def _winner_of(victim: PodRecord, preemptor: PodRecord) -> str:
    """The job for which a pod has to leave, as readers of the pod may know it: of another namespace without names."""
    (vc, priority), own = preemptor.claim, victim.claim[1]
    if preemptor.namespace != victim.namespace:
        owner = f"virtual cluster {vc}" if vc else "another namespace"
        return f"a job of {owner} (priority {priority}, this job has {own}; pod uid {preemptor.uid})"
    user = f" of {preemptor.user}" if preemptor.user else ""
    return f"{preemptor.shown_job}{user} (priority {priority}, this job has {own})"
