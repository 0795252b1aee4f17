"""Carrying preemptions out: reserve the cells, make their users leave or let kube-scheduler do so, tell everybody.

Not thread-safe: the service calls everything under its lock.
"""

import logging
from collections.abc import Callable

from hived.decisions import Bind, Preempt, Wait
from hived.events import Offer, Phase
from hived.specs import PodRequest
from hived_extender.pods.dialects.description import GangKey
from hived_extender.pods.wire import MetaPod, MetaVictims, PreemptResult
from hived_extender.service.gangs.table import Gangs
from hived_extender.service.ledger import Ledger
from hived_extender.service.pods import PodRecord, PodTable
from hived_extender.service.writes.announcer import Announcer
from hived_extender.service.writes.evictor import Evictor

log = logging.getLogger(__name__)


class Preemptions:
    """`wake` asks kube-scheduler to try a pod again; it is called when nothing is in the way of one any more."""

    def __init__(
        self, pods: PodTable, gangs: Gangs, evictor: Evictor, announcer: Announcer, wake: Callable[[PodRecord], None]
    ) -> None:
        self._pods = pods
        self._gangs = gangs
        self._evictor = evictor
        self._announcer = announcer
        self._wake = wake
        self._leaving: tuple[object, frozenset[str]] = None, frozenset()  # when that was so, and who had to leave

    def carry_on(
        self, ledger: Ledger, record: PodRecord, request: PodRequest, found: Preempt, offer: Offer | None
    ) -> Bind | Preempt | Wait:
        """Reserve the cells that were found in use, unless that was done before, and make their users leave.

        Returns what is to be said of the pod now. Victims may have got company since they were first asked: pods of
        their gang that were bound later.
        """
        now: Bind | Preempt | Wait = found
        if not ledger.is_waiting_for_victims(request):
            now = ledger.decide(request, Phase.PREEMPTING, offer, commit=False)
        if isinstance(now, Preempt):
            self.evict(ledger, record, now)
        elif isinstance(now, Bind):
            # No event will tell kube-scheduler so.
            self._wake(record)
        return now

    def evict(self, ledger: Ledger, preemptor: PodRecord, decision: Preempt) -> None:
        """Make all victims leave, and with them what cannot go on without them and without victims of others."""
        named = (self._pods.get(uid) for uids in decision.victims_by_node.values() for uid in uids)
        found = [record for record in named if record is not None]
        for key in dict.fromkeys(record.gang for record in found if record.gang is not None):
            found += self._victims_in(ledger, key)
        victims = self._gangs.leaving_with(found)
        for victim in self._evictor.evict(victims, preemptor):
            self._announcer.evicting(victim, preemptor)

    def is_victim(self, ledger: Ledger, record: PodRecord) -> bool:
        """Does a pod have to leave, for its own cells or for those of others without which it cannot go on?"""
        if record.request is not None and ledger.is_victim(record.request):
            return True
        if record.gang is None:
            return False
        moment = (ledger, ledger.change_count, self._gangs.change_count, record.gang)
        if moment != self._leaving[0]:
            victims = self._victims_in(ledger, record.gang)
            self._leaving = moment, frozenset(one.uid for one in self._gangs.leaving_with(victims))
        return record.uid in self._leaving[1]

    def tell(self, record: PodRecord, decision: Preempt) -> dict[str, str]:
        """Tell people which pods have to leave; returns the same by node."""
        reasons = {
            node: "node(s) with pods to preempt: " + ", ".join(self._key(uid) for uid in victims)
            for node, victims in decision.victims_by_node.items()
        }
        self._announcer.preempting(record, "; ".join(f"{node}: {reason}" for node, reason in reasons.items()))
        return reasons

    def _victims_in(self, ledger: Ledger, key: GangKey) -> list[PodRecord]:
        mates = self._gangs.placed_with(key)
        return [one for one in mates if one.request is not None and ledger.is_victim(one.request)]

    def _key(self, uid: str) -> str:
        record = self._pods.get(uid)
        return record.key if record is not None else uid


def pick_victims(record: PodRecord, decision: Preempt, candidates: list[str]) -> PreemptResult:
    """Victims on the first candidate that has any; an entry without victims would fail the whole attempt."""
    for node in candidates:
        victims = decision.victims_by_node.get(node)
        if victims:
            return PreemptResult({node: MetaVictims([MetaPod(uid) for uid in victims])})
    fields = {"pod": record.key, "victims": sorted(decision.victims_by_node), "candidates": candidates}
    log.warning("no candidate has victims: do the pods' Kubernetes priorities agree?", extra={"fields": fields})
    return PreemptResult({})
