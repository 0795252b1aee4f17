"""Cells held for queued jobs until their pods come (rule 32.1).

`HoldAsked` takes cells by a stand-in (`held.py`). No other pod gets them for free; owners of a guarantee may reclaim
cells of opportunistic jobs. Pods whose hold is lost are placed like any others. Not thread-safe.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hived.life.groups import virtual_leaves
from hived.scenario import Asked
from hived.values.decisions import Bind, Wait
from hived.values.errors import UserError
from hived.values.events import Phase
from hived.values.specs import OPPORTUNISTIC_PRIORITY, PodRequest, PodSpec, sizes_of
from hived_extender.jobs.job import JobRef
from hived_extender.machine.claims import Afterwards, Claim, Stage, met
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core, Refused
from hived_extender.machine.held import Held, HeldJobs
from hived_extender.machine.held_pods import HeldPods
from hived_extender.machine.offers import Asking
from hived_extender.machine.pods import PodRecord, PodState
from hived_extender.machine.preemptions import Preemptions
from hived_extender.machine.quota_bound import QuotaBound
from hived_extender.machine.retries import Retries
from hived_extender.machine.stand_ins import guaranteed, stand_in_name
from hived_extender.machine.stimuli import (
    Claimed,
    GroupsEvicted,
    Hold,
    HoldAsked,
    HoldDropped,
    HoldShrunk,
    HoldsLookedAt,
    HoldState,
    JobsBarred,
    JobsMade,
    LentAsked,
    QuotasFollowed,
    UpgradeAsked,
    Victims,
    VictimsAsked,
)

log = logging.getLogger(__name__)

LENT_LEAVES = "opportunistic pods without cells leave first, which have what its pods need"
NEEDS_VICTIMS = "others have to leave first"


@dataclass(frozen=True, slots=True)
class HeldBind(Bind):
    """Cells are held. `virtual` are the virtual leaf cells without a pod, none if borrowed."""

    virtual: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NeedsVictims(Wait):
    """There would be room after preemption. Nothing is held or evicted."""


@dataclass(frozen=True, slots=True)
class NoCells(Wait):
    """There is no room for opportunistic work, on any node that Kubernetes could allow."""


@dataclass(frozen=True, slots=True)
class NeededByClaims(Wait):
    """There is room, but earlier claims need it. Nothing is held."""


@dataclass(frozen=True, slots=True)
class RoomMade(Wait):
    """Room was made since the first question of this walk. Nothing is held."""


class Holds:
    """Holds cells for jobs and frees them. `pods` answers the pods of held jobs."""

    def __init__(self, cache: ClusterCache, preemptions: Preemptions, retries: Retries) -> None:
        self._cache, self._preemptions, self._retries = cache, preemptions, retries
        self._jobs = HeldJobs(cache)
        self.quotas = QuotaBound(cache, self._jobs, retries)
        self.pods = HeldPods(cache, self._jobs)
        self._stage = Stage()
        self._full: dict[PodSpec, NoCells | None] = {}
        self._full_at = (0, 0)
        self._walk, self._walk_began = 0, 0  # its number, and how much had made room when it began
        self._number = 0

    def handlers(self) -> dict[type[Any], Callable[[Any], Any]]:
        """The handler of each stimulus about held cells."""
        return {
            HoldAsked: self.ask,
            UpgradeAsked: self.upgrade,
            LentAsked: lambda one: self.is_lent(one.job),
            VictimsAsked: self.victims,
            GroupsEvicted: self.evict,
            HoldDropped: lambda one: self.drop(one.key),
            HoldShrunk: lambda one: self.shrink(one.hold),
            HoldsLookedAt: lambda one: self.states(one.keys),
            JobsBarred: self.bar,
            JobsMade: self.made,
            QuotasFollowed: self.quotas.follow,
        }

    # Questions of queues

    def ask(self, asked: HoldAsked) -> Bind | Wait:
        """Hold cells for a job. Raises UserError for an impossible request, or without a term."""
        before = self._retries.change_count
        if asked.walk and asked.walk == self._walk and before != self._walk_began:
            return RoomMade("cells have come free for jobs that come first")
        found = self._ask(asked)
        if asked.walk:
            self._walk, self._walk_began = asked.walk, self._retries.change_count
        return found

    def _ask(self, asked: HoldAsked) -> Bind | Wait:
        hold = asked.hold
        core, held = self._core, self._jobs.by_key.get(hold.key)
        if held is not None and not held.is_lost and held.answer is not None and held.hold.spec == hold.spec:
            return held.answer
        earlier, is_running = self._jobs.of(hold.job.job_name), bool(self._jobs.placed(hold.job))
        refusal = self.quotas.refusal_of_hold(core, hold) if is_running and earlier in (None, held) else None
        if refusal is not None:
            return refusal  # it keeps what is held for it
        if earlier is not None and (earlier is not held or earlier.hold.spec != hold.spec):
            self.drop(earlier.hold.key)
        if asked.is_start and is_running:
            return Wait("pods of its earlier run still have cells")
        if (refusal := self.quotas.refusal_of_hold(core, hold)) is not None:
            return refusal
        self._number += 1
        held = Held(hold, stand_in_name(self._number, hold.key))
        has_looked, found = self.pods.has_looked(core), self._take(core, held)
        if has_looked and isinstance(found, Bind):
            self.pods.spared(core)  # it took free cells
        if asked.claims and isinstance(found, Bind) and not self._keeps_room(core, held, asked.claims):
            return NeededByClaims("its cells are for jobs that come first")
        if isinstance(found, Refused) and hold.spec.priority == OPPORTUNISTIC_PRIORITY:
            return self._without_rules(core, found)
        if isinstance(found, Refused) and self._clear(core, held):
            return Wait(LENT_LEAVES)
        return found

    def _clear(self, core: Core, held: Held) -> bool:
        """Evict opportunistic pods without cells whose CPU and the like the job's pods need; True if any leave."""
        wanted = self._jobs.wanted(core, held)
        return wanted is not None and self._preemptions.clear_for(core, wanted, str(held.hold.job))

    def upgrade(self, asked: UpgradeAsked) -> bool:
        """Turn a job's borrowed cells into guaranteed ones in place."""
        core, hold, held = self._core, asked.hold, self._jobs.of(asked.hold.job.job_name)
        placed = [one for one in self._jobs.placed(hold.job) if one.request is not None]
        groups = [one.request.spec.group.name for one in placed if one.request is not None]
        if held is not None and held.stand_in is not None:
            groups.append(held.name)
        requests = [guaranteed(pod, hold.spec) for pod in core.pods_of(groups)]
        if held is not None and self.quotas.refusal_of_hold(core, hold) is not None:
            return False  # it has grown beyond its quota
        if not requests or not core.upgrade(requests, np.array(hold.own, np.int32)):
            return False
        by_uid = {pod.uid: pod for pod in requests}
        if held is not None:
            held.hold = hold
            self._jobs.note(hold.job.job_name)
            if held.stand_in is not None:
                held.stand_in = by_uid[held.stand_in.uid]
        self._run_at(hold.job, hold.spec.priority)
        self._cache.bound.upgrade(core, [(one, by_uid[one.uid]) for one in placed])
        if held is not None and held.answer is not None:
            info = held.place_of_all(core, self._jobs.placed(hold.job))
            held.answer = HeldBind(info, (), (), False, virtual_leaves(core.state, held.name))
        log.info("cells upgraded", extra={"fields": {"job": hold.key, "pods": len(placed)}})
        return True

    def virtual_of(self, key: str) -> tuple[int, ...]:
        """The held virtual leaf cells of a job that have no pod yet."""
        held = self._jobs.by_key.get(key)
        return () if held is None or held.stand_in is None else virtual_leaves(self._core.state, held.name)

    def is_lent(self, job: JobRef) -> bool | None:
        """True if a job's pods run on borrowed cells; see `LentAsked`."""
        return self._core.lend_all(one.request.spec.group.name for one in self._jobs.placed(job) if one.request)

    def _without_rules(self, core: Core, refused: Refused) -> Wait:
        """True if cells are missing. Asked once for each spec until the state changes."""
        if refused.offer is None or refused.request is None:
            return NoCells(refused.reason)
        if self._full_at != (core.number, core.version):
            self._full_at = core.number, core.version
            self._full.clear()
        spec = refused.request.spec.of_group("")
        if spec not in self._full:
            (found,) = core.plan([[Asked(refused.request)]])
            answer = found if isinstance(found, UserError) else found[0]
            self._full[spec] = NoCells(answer.reason) if isinstance(answer, Wait) else None
        return self._full[spec] or refused

    def _keeps_room(self, core: Core, held: Held, claims: Sequence[Claimed]) -> bool:
        """True if earlier claims get their cells despite a hold; else it is withdrawn."""
        after = met(core, self._claims(claims))
        if all(map(all, after)):
            return True
        self._withdraw(core, held)
        return met(core, self._claims(claims)) == after and isinstance(self._take(core, held), Bind)

    def question(self, hold: Hold) -> Asking | None:
        """The question to the core about a hold; None if all its pods have cells. Changes nothing."""
        return self._jobs.asking(self._core, hold)

    def _claims(self, claimed: Sequence[Claimed]) -> list[Claim]:
        pods = dict[JobRef, list[PodRequest]]()
        return [self._claim(each, pods) for each in claimed]

    def _claim(self, claimed: Claimed, pods: dict[JobRef, list[PodRequest]]) -> Claim:
        hold = claimed.hold
        asked = self._jobs.asked(self._core, Held(hold, stand_in_name(0, hold.key)), others_leave=True)
        lent = self._jobs.on_lent_cells(self._core) if claimed.takes_lent else []
        return Claim(asked, (*self._pods_of(claimed.leaving, pods), *lent))

    def _pods_of(self, jobs: Sequence[JobRef], known: dict[JobRef, list[PodRequest]]) -> list[PodRequest]:
        """The pods of these jobs, looked up unless `known`."""
        for job in jobs:
            if job not in known:
                known[job] = self._jobs.pods_of(job)
        return [pod for job in jobs for pod in known[job]]

    def _withdraw(self, core: Core, held: Held) -> None:
        """Free the cells of a hold, as if it had not been asked."""
        held.release(core)
        held.answer, held.is_lost = None, True
        self._jobs.note(held.hold.job.job_name)
        if not self._jobs.placed(held.hold.job):
            self.drop(held.hold.key)

    def victims(self, wanted: VictimsAsked) -> Victims | None:
        """The fewest jobs and groups to preempt for a hold; None if all are not enough."""
        core, present = self._core, self._jobs.by_key.get(wanted.hold.key)
        asked = self._jobs.asked(core, Held(wanted.hold, stand_in_name(0, wanted.hold.key)), others_leave=True)
        if asked is None or (present is not None and present.stand_in is not None):
            return Victims(())
        afterwards = Afterwards(
            self._stage, core, self._claims(wanted.claims), self._pods_of(wanted.leaving, {}),
            self._jobs.allowed(core, wanted.hold, asked),
        )  # fmt: skip
        jobs = {job: self._jobs.pods_of(job) for job in wanted.candidates}
        groups = {} if wanted.spares_others else self._jobs.opportunistic(core)
        leaving = afterwards.least_leaving(asked, {**jobs, **groups})
        if leaving is None:
            return None
        return Victims(
            tuple(one for one in leaving if isinstance(one, JobRef)),
            tuple(one for one in leaving if isinstance(one, str)),
        )

    def evict(self, evicted: GroupsEvicted) -> None:
        """Evict all pods of these groups."""
        core, pods = self._core, self._cache.pods
        uids = dict.fromkeys(uid for group in evicted.groups for uid in core.holders(group))
        self._preemptions.evict_for([one for one in map(pods.get, uids) if one is not None], evicted.winner)

    def drop(self, key: str) -> None:
        """Release a job's hold; its waiting pods return to their own priority."""
        held = self._jobs.pop(key)
        if held is not None:
            if self._cache.core is not None:
                held.release(self._cache.core)
            self._run_at(held.hold.job, None)
            self._quota_freed(held)

    def shrink(self, hold: Hold) -> tuple[int, ...]:
        """Free slots that a job needs no more; see `HoldShrunk`."""
        core, held = self._core, self._jobs.by_key.get(hold.key)
        if held is None:
            return ()
        held.hold = hold
        self._quota_freed(held)
        wanted = sizes_of(hold.spec.group.members)
        for size in self.placed_sizes(hold.job):
            if size in wanted:
                wanted.remove(size)
        held.keep(core, wanted)
        if held.is_lost or held.answer is None:
            return ()
        placed = self._jobs.placed(hold.job)
        if held.stand_in is None and not placed:  # its last pods are gone, and the queue has not seen that yet
            held.answer = None
            return ()
        virtual = virtual_leaves(core.state, held.name) if held.stand_in is not None else ()
        held.answer = HeldBind(held.place_of_all(core, placed), virtual=virtual)
        return virtual

    def _quota_freed(self, held: Held) -> None:
        """Retry others, as a job may count less against its quota."""
        self._jobs.note(held.hold.job.job_name)
        if self.quotas.is_asked:
            self._retries.room_made()

    def placed_sizes(self, job: JobRef) -> list[int]:
        """The leaf cells of each placed pod of a job."""
        return [len(one.place.info.leaf_cell_indices) for one in self._jobs.placed(job) if one.place.info is not None]

    def bar(self, change: JobsBarred) -> None:
        """Hold pods of some jobs back in their queues, and free others."""
        self._cache.jobs.bar(change.barred)
        if change.reclaimed is not None:
            self._cache.jobs.reclaim(change.reclaimed)
        for record in self._cache.jobs.free(change.freed):
            self._retries.appeared(record.uid)

    def made(self, change: JobsMade) -> None:
        """Give pods of some jobs the cells of the jobs that created them."""
        moved = self._cache.jobs.made(change.makers)
        self._ask_again(moved)
        for record in moved:
            if record.state is PodState.WAITING:
                self._retries.appeared(record.uid)

    def states(self, keys: Iterable[str] | None = None) -> dict[str, HoldState]:
        """The progress of the pods of these held jobs, of all by default."""
        by_key = self._jobs.by_key
        return {key: self._state_of(by_key[key]) for key in (by_key if keys is None else keys) if key in by_key}

    def forget_all(self) -> None:
        """Drop everything at the end of a term."""
        self._jobs.clear()
        self._cache.jobs.forget_all()

    # Inside

    @property
    def _core(self) -> Core:
        if self._cache.core is None:
            raise UserError("this replica does not lead", 503)
        return self._cache.core

    def _take(self, core: Core, held: Held) -> Bind | Wait:
        asked = self._jobs.asked(core, held)
        if asked is None:
            self._keep(held)
            held.answer = HeldBind(held.place_of_all(core, self._jobs.placed(held.hold.job)))
            return held.answer
        found = core.decide(asked.pod, Phase.FILTERING, asked.offer, commit=True, own=asked.own)
        if not isinstance(found, Bind):
            if self._jobs.placed(held.hold.job):  # what runs of it, runs at this priority
                self._keep(held)
                held.is_lost = True
            return found if isinstance(found, Wait) else NeedsVictims(NEEDS_VICTIMS)
        held.stand_in = asked.pod
        return self._answer_held(core, held, found)

    def _answer_held(self, core: Core, held: Held, found: Bind) -> Bind:
        self._keep(held)
        info = held.place_of_all(core, self._jobs.placed(held.hold.job))
        held.answer = HeldBind(info, found.lazily_preempted, (), found.gave_up, virtual_leaves(core.state, held.name))
        log.info("cells held", extra={"fields": {"job": held.hold.key, "pods": len(held.sizes)}})
        return held.answer

    def _keep(self, held: Held) -> None:
        held.is_lost = False
        self._cache.jobs.free([held.hold.job.job_name])
        self._jobs.put(held)
        self._run_at(held.hold.job, held.hold.spec.priority)

    def _run_at(self, job: JobRef, priority: int | None) -> None:
        """Set the priority of a job's waiting pods, and try them."""
        self._ask_again(self._cache.jobs.run_at(job, priority))
        for record in self._cache.jobs.pods_of(job):
            if record.state is PodState.WAITING:
                self._retries.appeared(record.uid)

    def _ask_again(self, changed: Iterable[PodRecord]) -> None:
        """Read again the requests of pods without a node at their present priority."""
        for record in (one for one in changed if not one.state.has_node):
            self._cache.bound.release(record)
            if record.gang is not None:
                self._cache.gang_changed(record.gang, False)
            elif not record.is_of_dialect and record.reading is not None:
                self._cache.note_waiting(record, record.reading)

    def _state_of(self, held: Held) -> HoldState:
        placed = self._jobs.placed(held.hold.job)
        bound = [one for one in placed if one.state is PodState.BOUND]
        count = len(sizes_of(held.hold.spec.group.members))
        return HoldState(count, len(held.sizes), len(placed), len(bound), held.is_lost)
