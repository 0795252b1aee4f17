"""Cells held for jobs that wait in a queue, until their pods come: a job is let go only once its whole gang has cells.

`HoldAsked` takes cells by a stand-in (`held.py`). Nobody else can take them for free; who has a guarantee may take
cells of opportunistic jobs back. When a pod of the job asks, it takes a slot of its size on a node that kube-scheduler
offers. If it offers none of them, the cells are held no longer, and the pod is placed like any other. Holds are not
written down: a new leader knows bound pods alone, and the queue asks again. Not thread-safe.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hived.decisions import Bind, Wait
from hived.errors import UserError
from hived.events import Offer, Phase
from hived.groups import bind_info_of_slot, member_slots, virtual_leaves
from hived.specs import OPPORTUNISTIC_PRIORITY, PodRequest
from hived_extender.job_kinds.job import JobName
from hived_extender.service.cluster_cache import ClusterCache
from hived_extender.service.core import Core
from hived_extender.service.gangs.plans import Round
from hived_extender.service.gangs.rounds import single_request
from hived_extender.service.held import Held, Taker
from hived_extender.service.held_jobs import HeldJobs
from hived_extender.service.pods import PodRecord, PodState
from hived_extender.service.preemptions import Preemptions
from hived_extender.service.reclaiming import least_prefix
from hived_extender.service.retries import Retries
from hived_extender.service.stand_ins import sizes_of, stand_in_name
from hived_extender.service.stimuli import (
    GroupsEvicted,
    HoldAsked,
    HoldDropped,
    HoldsLookedAt,
    HoldState,
    JobsBarred,
    Victims,
    VictimsAsked,
)

log = logging.getLogger(__name__)

NEEDS_VICTIMS = "others have to leave first"


@dataclass(frozen=True, slots=True)
class HeldBind(Bind):
    """Cells are held. `virtual` are the virtual leaves of those that no pod has yet, none if borrowed."""

    virtual: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NeedsVictims(Wait):
    """There would be room if others left. Nothing is held, and nobody has been asked to leave."""


class Holds:
    """See the module."""

    def __init__(self, cache: ClusterCache, preemptions: Preemptions, retries: Retries) -> None:
        self._cache, self._preemptions, self._retries = cache, preemptions, retries
        self._jobs = HeldJobs(cache)
        self._number = 0

    def handlers(self) -> dict[type[Any], Callable[[Any], Any]]:
        """The handler of each stimulus about held cells."""
        return {
            HoldAsked: self.ask,
            VictimsAsked: self.victims,
            GroupsEvicted: self.evict,
            HoldDropped: lambda one: self.drop(one.key),
            HoldsLookedAt: lambda one: self.states(),
            JobsBarred: self.bar,
        }

    # Questions of queues

    def ask(self, asked: HoldAsked) -> Bind | Wait:
        """Hold cells for a job. Raises UserError for a request that can never be met, or where nobody leads."""
        hold = asked.hold
        core, held = self._core, self._jobs.by_key.get(hold.key)
        if held is not None and not held.is_lost and held.answer is not None:
            return held.answer
        earlier = self._jobs.of(hold.job.job_name)
        if earlier is not None and earlier is not held:
            self.drop(earlier.hold.key)
        self._number += 1
        held = Held(hold, stand_in_name(self._number, hold.key))
        if not asked.first and not asked.later:
            return self._take(core, held)
        return self._take_beside(core, held, asked)

    def _take_beside(self, core: Core, held: Held, asked: HoldAsked) -> Bind | Wait:
        """Take cells that leave room for others who come first, and if possible for those who come later."""
        first, both = (
            self._jobs.claims(core, asked.leaving, holds) for holds in (asked.first, asked.first + asked.later)
        )
        found = self._take(core, held)
        if isinstance(found, Bind):
            if both.can_be_met(core):
                return found
            self._withdraw(core, held)
        if held.hold.spec.priority > OPPORTUNISTIC_PRIORITY:
            request = self._jobs.asked(core, held)
            planned = None if request is None else first.place_after(core, request)
            if request is not None and planned is not None:
                if held.decide(core, request, planned):
                    if first.can_be_met(core):
                        return self._answer_held(core, held, planned)
                    held.release(core)
                if held.take(core, request.pod, planned):
                    return self._answer_held(core, held, planned)
            if isinstance(found, Bind):
                again = self._take(core, held)
                if not isinstance(again, Bind) or first.can_be_met(core):
                    return again
                self._withdraw(core, held)
        return Wait(found.reason if isinstance(found, Wait) else "its cells are for jobs that come first")

    def _withdraw(self, core: Core, held: Held) -> None:
        """Hold nothing, as if it had not been asked."""
        held.release(core)
        held.answer = None
        if not self._jobs.placed(held.hold.job.job_name):
            self.drop(held.hold.key)

    def victims(self, wanted: VictimsAsked) -> Victims | None:
        """The jobs and groups that would have to leave for a hold, at the least; None if all of them are not enough."""
        core, present = self._core, self._jobs.by_key.get(wanted.hold.key)
        asked = self._jobs.asked(core, Held(wanted.hold, stand_in_name(0, wanted.hold.key)))
        if asked is None or (present is not None and present.stand_in is not None):
            return Victims(())
        claims = self._jobs.claims(core, wanted.leaving, wanted.first)
        jobs = {job: self._jobs.pods_of(job) for job in wanted.candidates}
        groups = {} if wanted.spares_others else self._jobs.opportunistic(core)
        leaving = least_prefix(
            [*jobs.values(), *groups.values()],
            lambda gone: claims.with_others_gone(core, asked, [pod for pods in gone for pod in pods]),
        )
        if leaving is None:
            return None
        chosen = {id(pods) for pods in leaving}
        return Victims(
            tuple(job for job, pods in jobs.items() if id(pods) in chosen),
            tuple(name for name, pods in groups.items() if id(pods) in chosen),
        )

    def evict(self, evicted: GroupsEvicted) -> None:
        """Have all pods of these groups leave."""
        core, pods = self._core, self._cache.pods
        uids = dict.fromkeys(uid for group in evicted.groups for uid in core.holders(group))
        self._preemptions.evict_for([one for one in map(pods.get, uids) if one is not None], evicted.winner)

    def drop(self, key: str) -> None:
        """Give back what is held for a job; its pods that wait ask at their own priority again."""
        held = self._jobs.pop(key)
        if held is not None:
            if self._cache.core is not None:
                held.release(self._cache.core)
            self._run_at(held.hold.job.job_name, None)

    def bar(self, change: JobsBarred) -> None:
        """Hold some jobs back, and others no longer."""
        self._cache.jobs.bar(change.barred)
        for record in self._cache.jobs.free(change.freed):
            self._retries.appeared(record.uid)

    def states(self) -> dict[str, HoldState]:
        """How far the pods of each held job have come."""
        return {key: self._state_of(held) for key, held in self._jobs.by_key.items()}

    # Questions of pods

    def bar_of(self, record: PodRecord) -> str:
        """Why a pod waits for its queue, "" if it does not."""
        return self._cache.jobs.bar_of(record)

    def is_held_for(self, record: PodRecord) -> bool:
        """Are cells held that a waiting pod could have?"""
        held = self._of(record)
        return held is not None and held.stand_in is not None

    def answer(
        self, core: Core, record: PodRecord, request: PodRequest, offer: Offer | None, *, commit: bool
    ) -> Bind | None:
        """The cells that are held for a pod's group, which it has from now on; None if it has to look for others.

        Without `commit` it does not take them.
        """
        held = self._of(record)
        if held is None or held.answer is None or core.has_group(request.spec.group.name):
            return None
        if record.uid in held.given:
            self._lose(core, held, "kube-scheduler does not offer the node that a pod was given")
            return None
        if not held.has_room_for(request):
            return None
        if not commit:
            return held.answer
        request = self._as_held(held, record, request)
        count = len(sizes_of(request.spec.group.members))
        if not self._give(core, held, [(request, _rows(offer, count))]):
            return None
        record.request, held.given[record.uid] = request, record
        slot = member_slots(request.spec.group.members, request.spec.leaf_cell_count).start
        return Bind(bind_info_of_slot(core.state, core.state.groups[request.spec.group.name], slot))

    def start(self, core: Core, round_: Round, asker: PodRecord) -> bool:
        """Pods that start together take what is held for them, all at once; False if they have to look for others.

        Pods of several jobs, or of one whose cells are not all held, do not get held cells in this way: these are given
        back, and can be found like any others.
        """
        members = [record for part in round_.parts for record in part.members]
        found = {id(held): held for record in members if (held := self._of(record)) is not None and held.stand_in}
        if not found:
            return False
        held = next(iter(found.values()))
        if len(found) > 1 or any(self._of(record) is not held for record in members):
            for one in found.values():
                self._lose(core, one, "its pods start together with others")
            return False
        takers: list[Taker] = []
        for part in round_.parts:
            rows = _rows(self._cache.rounds.offer(part, exact=asker), len(part.slots))
            pods = zip(part.members, rows, strict=False)
            takers += [(self._as_held(held, record, single_request(record)), [row]) for record, row in pods]
        if not self._give(core, held, takers):
            return False
        for record, (request, _) in zip(members, takers, strict=True):
            held.given[record.uid] = record
            self._cache.pods.place(record, request, core.bind_info_of(request.spec.group.name))
        return True

    # Events

    def look(self) -> None:
        """Give up what is not whole any more, or was given to pods that wait again."""
        core = self._cache.core
        if core is None or not self._jobs.by_key:
            return
        for held in [one for one in self._jobs.by_key.values() if not one.is_lost]:
            for uid, record in list(held.given.items()):
                if record.state.has_node and self._cache.pods.get(uid) is record:
                    if record.state is PodState.BOUND:
                        del held.given[uid]
                    continue
                del held.given[uid]
                self._lose(core, held, "a pod has lost the cells that it was given")
            if not held.is_lost and not held.is_whole(core):
                self._lose(core, held, "its cells are needed by others, or bad")

    def forget_all(self) -> None:
        """The term is over, and with it all that was held."""
        self._jobs.clear()
        self._cache.jobs.forget_all()

    def lose_all(self) -> None:
        """The state is another one, and has no stand-ins: the queue has to ask again."""
        for held in self._jobs.by_key.values():
            held.stand_in, held.is_lost = None, True
            held.given.clear()

    # Inside

    @property
    def _core(self) -> Core:
        if self._cache.core is None:
            raise UserError("this replica does not lead", 503)
        return self._cache.core

    def _of(self, record: PodRecord) -> Held | None:
        """The hold of a pod's job, None if nothing is held for it any more."""
        held = self._jobs.of(record.job_object)
        return None if held is None or held.is_lost else held

    def _take(self, core: Core, held: Held) -> Bind | Wait:
        asked = self._jobs.asked(core, held)
        if asked is None:
            self._keep(held)
            held.answer = HeldBind(held.place_of_all(core, self._jobs.placed(held.hold.job.job_name)))
            return held.answer
        found = core.decide(asked.pod, Phase.FILTERING, asked.offer, commit=True, own=asked.own)
        if not isinstance(found, Bind):
            if self._jobs.placed(held.hold.job.job_name):  # what runs of it, runs at this priority
                self._keep(held)
                held.is_lost = True
            return found if isinstance(found, Wait) else NeedsVictims(NEEDS_VICTIMS)
        held.stand_in = asked.pod
        return self._answer_held(core, held, found)

    def _answer_held(self, core: Core, held: Held, found: Bind) -> Bind:
        self._keep(held)
        info = held.place_of_all(core, self._jobs.placed(held.hold.job.job_name))
        held.answer = HeldBind(info, found.lazily_preempted, (), found.gave_up, virtual_leaves(core.state, held.name))
        log.info("cells held", extra={"fields": {"job": held.hold.key, "pods": len(held.sizes)}})
        return held.answer

    def _keep(self, held: Held) -> None:
        held.is_lost = False
        self._cache.jobs.free([held.hold.job.job_name])
        self._jobs.put(held)
        self._run_at(held.hold.job.job_name, held.hold.spec.priority)

    def _run_at(self, job: JobName, priority: int | None) -> None:
        """Pods of a job that wait ask at another priority, and are tried."""
        changed = self._cache.jobs.run_at(job, priority)
        for record in (one for one in changed if not one.state.has_node):
            self._cache.bound.release(record)
            if record.gang is not None:
                self._cache.gang_changed(record.gang, False)
            elif not record.is_of_dialect and record.reading is not None:
                self._cache.take_note(record, record.reading)
        for record in self._cache.jobs.pods_of(job):
            if record.state is PodState.WAITING:
                self._retries.appeared(record.uid)

    def _give(self, core: Core, held: Held, takers: Sequence[Taker]) -> bool:
        if held.give(core, takers):
            return True
        self._lose(core, held, "there are no slots on nodes that kube-scheduler offers")
        return False

    def _lose(self, core: Core, held: Held, why: str) -> None:
        held.release(core)
        held.is_lost, held.answer = True, None
        log.warning("cells are held no longer", extra={"fields": {"job": held.hold.key, "reason": why}})

    def _as_held(self, held: Held, record: PodRecord, request: PodRequest) -> PodRequest:
        """A pod of a dialect may be preempted lazily only if all of its job may."""
        if not record.is_of_dialect:
            return request
        spec = replace(request.spec, lazy_preemption=held.hold.spec.lazy_preemption)
        return replace(request, spec=spec)

    def _state_of(self, held: Held) -> HoldState:
        placed = self._jobs.placed(held.hold.job.job_name)
        bound = [one for one in placed if one.state is PodState.BOUND]
        count = len(sizes_of(held.hold.spec.group.members))
        return HoldState(count, len(held.sizes), len(placed), len(bound), held.is_lost)


def _rows(offer: Offer | None, count: int) -> list[Any]:
    """The nodes of each slot."""
    return [None] * count if offer is None else [offer.nodes[slot] for slot in range(count)]
