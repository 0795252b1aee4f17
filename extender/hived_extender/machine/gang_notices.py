"""News for the pods of a waiting gang: missing pods, and a wait that is too long. Not thread-safe."""

from collections.abc import Iterable
from contextlib import suppress

from hived.values.errors import UserError
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.jobs.kinds.table import refusal_of
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.effects import Outbox
from hived_extender.machine.gangs.plans import Plan, Round
from hived_extender.machine.notices import CONDITION_TYPE, Reason
from hived_extender.machine.pods import PodRecord, PodState
from hived_extender.machine.retries import Wakes

TELL_S = 0.5
"""The delay of news of a gang that forms to all its pods: the next pod may be on its way."""

OVER = "gang's time"
FORMING = "gang forms"
TIMERS = (OVER, FORMING)


class GangNotices:
    """Announces the wait of gangs. `wakes` has kube-scheduler ask about pods again."""

    def __init__(self, cache: ClusterCache, outbox: Outbox, announcements: Announcements, wakes: Wakes) -> None:
        self._cache = cache
        self.wakes = wakes
        self._outbox = outbox
        self._announcements = announcements
        self._awaited: dict[GangKey, float] = {}  # by gang, the waiting time that its timer was set by

    def time_came(self, kind: str, key: GangKey) -> None:
        """Announce a gang that waited too long, or has formed for long enough."""
        if self._cache.core is None:
            return
        if kind == OVER:
            self._time_is_over(key)
        else:
            plan = self._cache.gangs.plan(key)
            if plan.forming:
                self._tell_mates(key, plan.forming)

    def watch_time(self, record: PodRecord) -> None:
        """Set the timer that announces a long wait of a pod's gang."""
        gang = self._cache.gangs.get(record.gang) if record.gang is not None else None
        if gang is None or (OVER, gang.key) in self._outbox.timers:
            return
        with suppress(UserError):
            if waiting_s := gang.terms().waiting_s:
                self._awaited[gang.key] = waiting_s
                self._outbox.wake_in((OVER, gang.key), waiting_s)

    def _time_is_over(self, key: GangKey) -> None:
        gang, plan = self._cache.gangs.get(key), self._cache.gangs.plan(key)
        waited_s = self._awaited.pop(key, None)
        if gang is None or waited_s is None or (plan.round is None and not plan.forming):
            return
        with suppress(UserError):
            is_so = gang.terms().waiting_s == waited_s  # its pods may have changed what they say of it
            text = f"podgroup/{key} has waited for {waited_s:g} s and could not start; it goes on waiting"
            for record in gang.in_order():
                if not record.state.is_placed:
                    if is_so:
                        self._announcements.say(record, Reason.GANG_TIMED_OUT, text)
                    self.watch_time(record)

    def for_kube_scheduler(self, record: PodRecord, reason: str) -> str:
        """The reason for kube-scheduler, which tells it in its own event `FailedScheduling`: in the gang's dialect.

        Of a gang that forms it is the same until that is complete: kube-scheduler writes it onto the pod, and tries
        each changed pod again.
        """
        description, key = record.translation.description, record.gang
        plan = self._cache.gangs.plan(key) if key is not None else None
        record.is_told_forming = plan is not None and bool(plan.forming)
        if record.is_told_forming:
            return f"rejected by podgroup/{key}: it is not complete (the condition {CONDITION_TYPE} has more)"
        starts_alone = plan is None or plan.round is None or record.uid not in plan.round.uids
        starts_alone = starts_alone and record.state is PodState.WAITING
        return reason if description is None or starts_alone else refusal_of(description, record.name, reason)

    def tell_gang_soon(self, record: PodRecord) -> None:
        """Announce a forming gang to its other pods in a moment: kube-scheduler tells the asked pod."""
        self.watch_time(record)
        if record.gang is None:
            return
        key, plan = record.gang, self._cache.gangs.plan(record.gang)
        if plan.forming and not plan.is_told and (FORMING, key) not in self._outbox.timers:
            self._outbox.wake_in((FORMING, key), TELL_S)

    def tell_forming(self, record: PodRecord, reason: str) -> None:
        """Announce missing pods to a whole gang, once for each change."""
        self.watch_time(record)
        if record.gang is None or not self._cache.gangs.plan(record.gang).forming:
            self._announcements.say(record, Reason.WAITING, reason)
        else:
            self._tell_mates(record.gang, reason)

    def _tell_mates(self, key: GangKey, reason: str) -> None:
        plan = self._cache.gangs.plan(key)
        self._tell_once(plan, self._cache.gangs.waiting_in(plan.keys), reason)

    def tell_refused(self, asker: PodRecord | None, round_: Round, reason: str) -> None:
        """Wake kube-scheduler for the pods of a round but `asker`, whose text about missing pods is out of date.

        Its own condition then does not contradict ours.
        """
        mates = [record for record in round_.members if record is not asker]
        self._tell_once(self._cache.gangs.plan(round_.key), mates, reason)
        for record in mates:
            if record.is_told_forming and record.is_asked:
                record.is_told_forming = record.is_asked = False
                self.wakes.ask(record)

    def _tell_once(self, plan: Plan, records: Iterable[PodRecord], reason: str) -> None:
        if not plan.is_told:
            plan.is_told = True
            for record in records:
                self._announcements.say(record, Reason.WAITING, reason)

    def started(self, keys: Iterable[GangKey | None]) -> None:
        """Stop the timers of started gangs."""
        for key in set(keys):
            self._outbox.timers.drop((OVER, key))
