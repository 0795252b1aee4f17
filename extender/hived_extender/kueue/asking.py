"""Asks the service for the cells of Workloads, in order, and has borrowers leave for them.

The first Workload of a virtual cluster that finds no room has its place kept: later ones start only if it would still
have room once all have ended that had quota before it. So it starts by then, however many small ones come.
"""

import threading
from collections.abc import Callable
from typing import Any

from hived.values.decisions import Bind
from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, PodRequest, PodSpec
from hived_extender.kueue.checks import Checks
from hived_extender.machine.claims import Lender, Lent
from hived_extender.machine.core import Refused
from hived_extender.machine.explaining import Ration
from hived_extender.machine.holds import KeptForOthers
from hived_extender.machine.service import Service
from hived_extender.machine.stimuli import (
    Claimed,
    GroupsEvicted,
    Hold,
    HoldAsked,
    HoldDropped,
    HoldsLookedAt,
    Stimulus,
    Victims,
    VictimsAsked,
)

EXPLANATIONS = 5.0
"""Refusals a second that are explained; each takes milliseconds in a large cluster."""

KEPT = "there are cells, and they are kept for a Workload that had quota before it"

_Line = tuple[str, bool]
"""A virtual cluster, and whether its guaranteed or its opportunistic Workloads are meant."""

_Nodes = tuple[tuple[tuple[str, str], ...], ...]
"""The labels of nodes that pods of a gang want, such as those that Kueue has chosen."""


class Asking:
    """See the module. `lock` guards `checks`, and is never held while anybody is called."""

    def __init__(
        self,
        service: Service,
        checks: Checks,
        lock: threading.Lock,
        lender: Lender,
        clock: Callable[[], float],
    ) -> None:
        self._service, self._checks, self._lock = service, checks, lock
        self._lender, self._clock = lender, clock
        self._lent = Lent()
        self._ration = Ration(EXPLANATIONS, 2 * EXPLANATIONS)

    def ask(self) -> None:
        """Give back what is to be given back, and ask for cells; gangs that are alike get one answer if it is no.

        Raises UserError (503) where this replica does not lead.
        """
        with self._lock:
            dropped, holds = self._checks.take_dropped(), self._checks.to_ask()
        for key in dropped:
            self._put(HoldDropped(key))
        if holds:
            self._lent = self._lender.lent()
        firsts: dict[_Line, Claimed] = {}
        refusals: dict[tuple[PodSpec, _Nodes], tuple[str, bool]] = {}
        for hold in holds:
            alike = hold.spec.of_group(""), _nodes_of(hold)
            if alike in refusals:
                why, never = refusals[alike]
                with self._lock:
                    self._checks.refused(hold.key, why, never=never)
            elif (refusal := self._ask_one(hold, firsts)) is not None:
                refusals[alike] = refusal
        with self._lock:
            asking = self._checks.asking()
            is_any_held = any(entry.is_held for entry in self._checks.entries.values())
        self._lender.forget_others(asking)
        if holds or dropped or is_any_held:
            states = self._put(HoldsLookedAt())
            with self._lock:
                self._checks.progressed(states)

    def _ask_one(self, hold: Hold, firsts: dict[_Line, Claimed]) -> tuple[str, bool] | None:
        """Ask for the cells of one gang. Returns why it cannot have them, and whether it never can; None if it has."""
        line = hold.spec.virtual_cluster, hold.spec.priority >= MIN_GUARANTEED_PRIORITY
        first = (firsts[line],) if line in firsts else ()
        try:
            answer = self._put(HoldAsked(hold, (*self._claims_before(hold), *first)))
        except UserError as error:
            if error.code >= 500:
                raise
            return self._refused(hold, error.message, never=True)
        if isinstance(answer, Bind):
            with self._lock:
                self._checks.held(hold.key, [pod.node for member in answer.bind_info.members for pod in member])
            return None
        with self._lock:
            elsewhere = self._checks.look_elsewhere(hold.key)
        if elsewhere is not None:
            return self._ask_one(elsewhere, firsts)
        if isinstance(answer, KeptForOthers):
            return self._refused(hold, KEPT, never=False)
        why, never = self._explained(hold, answer.reason)
        refusal = self._refused(hold, why, never=never)
        if never:
            return refusal
        with self._lock:
            may_evict = self._checks.may_evict(hold.key, self._clock())
            if line not in firsts:
                firsts[line] = Claimed(hold, self._checks.before(hold.key), takes_lent=line[1])
        if may_evict:
            self._make_room(hold)
        return refusal

    def _claims_before(self, hold: Hold) -> tuple[Claimed, ...]:
        """The other claims that jobs leave for already."""
        return tuple(claim for claim in self._lent.claims if claim.hold.key != hold.key)

    def _refused(self, hold: Hold, why: str, *, never: bool) -> tuple[str, bool]:
        with self._lock:
            self._checks.refused(hold.key, why, never=never)
        return why, never

    def _make_room(self, hold: Hold) -> None:
        """Have borrowers leave, jobs of queues and other opportunistic pods, if that gives a gang its cells."""
        lent = self._lent
        victims: Victims | None = self._put(VictimsAsked(hold, lent.borrowers, lent.leaving, self._claims_before(hold)))
        if victims is None or not (victims.jobs or victims.groups):
            return
        if victims.jobs:
            self._lender.call_back(hold, victims.jobs)
            self._lent = self._lender.lent()
        if victims.groups:
            self._put(GroupsEvicted(victims.groups, hold.key))
        with self._lock:
            self._checks.evicts(hold.key, self._clock(), len(victims.jobs) + len(victims.groups))

    def _explained(self, hold: Hold, reason: str) -> tuple[str, bool]:
        """Why there is no room, in words for people, and whether there never can be."""
        job = hold.job
        request = PodRequest(hold.key, job.name, job.namespace, hold.spec)
        with self._service.runner.look() as machine:
            explaining, asking = machine.explaining, machine.holds.question(hold)
            offer, rules = (asking.asked.offer, asking.rules) if asking is not None else (None, "")
            found = explaining.certificate(
                [], [request], Refused(reason, request=request, offer=offer), rules, self._ration
            )
            if found is None:
                return reason, False
            told = explaining.as_told(found, job.namespace)
            return explaining.words(told.sentence, reason), told.never

    def _put(self, question: Stimulus) -> Any:
        """Ask the service, or tell it. Raises UserError (503) where this replica does not lead."""
        self._service.check_leads()
        return self._service.runner.handle(question)


def _nodes_of(hold: Hold) -> _Nodes:
    """Gangs are alike only if they are to be on the same nodes."""
    pods = {id(pod): pod for pod in hold.pods}
    selectors = [(pod.spec and pod.spec.node_selector) or {} for pod in pods.values()]
    return tuple(tuple(sorted(each.items())) for each in selectors)
