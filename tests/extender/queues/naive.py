"""The slow, obvious version of a virtual cluster that is alone: a list, sorted anew whenever something happens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from hived.cells.copying import copy_state
from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.scheduler import handle, idle_state
from hived.values.decisions import Bind, Preempt
from hived.values.events import PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import ClusterSpec, PodRequest, PodSpec, WorkTimes
from hived_extender.jobs.quotas.tree import QuotaTree
from hived_extender.queues.policies import Policy, Rules
from hived_extender.queues.units import Unit
from tests.property.queued_quotas import is_promised, use_of_min


@dataclass(frozen=True, slots=True)
class Job:
    """A unit, when it came, how long it runs, and when it really ends, which its virtual cluster alone does not know.

    `known_s` and `run_s` are infinite for one that does not end. `lost_runs`: so many times it is preempted first,
    before a run would have been over.
    """

    unit: Unit
    came_s: float
    run_s: float
    known_s: float
    lost_runs: int = 0


@dataclass(slots=True)
class _Run:
    job: Job
    start_s: float
    number: int

    @property
    def end_s(self) -> float:
        return self.start_s + self.job.run_s if self.number >= self.job.lost_runs else inf


class Alone:
    """One virtual cluster without the others. `starts` has the first start of each job that outlasts a grace period."""

    def __init__(
        self, spec: ClusterSpec, vc: str, rules: Rules, grace_s: float = 0.0, tree: QuotaTree | None = None
    ) -> None:
        self.state = idle_state(replace(spec, virtual_clusters={vc: spec.virtual_clusters[vc]}))
        self._empty = copy_state(self.state)
        self.rules, self.tree, self.grace_s = rules, tree, grace_s
        self.policy = rules.default.policy
        self.waiting: list[Job] = []
        self.running: dict[str, _Run] = {}
        self.starts: dict[str, float] = {}
        self.log: list[tuple[float, str]] = []  # all starts
        self._leaves = own_leaves(spec, vc)
        self.reserved: tuple[str, tuple[int, ...], float | None] | None = None

    def runs(self, job: Job, since_s: float, leaves: tuple[int, ...]) -> None:
        """A job runs already, on these virtual leaves of the whole cluster."""
        here = own_leaves(self.state.spec, job.unit.vc)
        own = np.array([here[self._leaves.index(leaf)] for leaf in leaves], np.int32)
        pod = _pod(job.unit)
        found = handle(self.state, ScheduleRequested(pod, own=own))
        assert isinstance(found, Bind), found
        handle(self.state, PodAllocated(pod, found.bind_info, times=WorkTimes(since_s)))
        virtual = self.state.groups[job.unit.key].virtual
        assert virtual is not None
        assert virtual.tolist() == own.tolist()
        self.running[job.unit.key] = _Run(job, since_s, 0)

    def play(
        self, jobs: list[Job], there: Sequence[Job] = (), began_s: float = 0.0, until_s: float = inf
    ) -> dict[str, float]:
        """All jobs, from the first to the end of the last, or until then. Some are `there` when it begins."""
        self.waiting = [job for job in there if self._is_possible(job.unit)]
        self._serve(began_s)
        coming = sorted(
            (job for job in jobs if self._is_possible(job.unit)), key=lambda job: (job.came_s, job.unit.key)
        )
        while coming or self.running:
            ends = [run.end_s for run in self.running.values()]
            now = min([*ends, *(job.came_s for job in coming[:1])])
            if now > until_s:
                break
            assert now < inf, f"{list(self.running)} should have been preempted"
            # what comes at the very moment of an end finds it over
            over = [key for key, run in self.running.items() if run.end_s == now]
            for key in over:
                self._remove(key)
            if not over:
                self.waiting.append(coming.pop(0))
            self._serve(now)
        return self.starts

    def _serve(self, now: float) -> None:
        while self._pass(now):
            pass

    def _pass(self, now: float) -> bool:
        """One look at all in order, up to the first start; True if there was one, which others may fit beside."""
        first: str | None = None
        refused = set[PodSpec]()  # shapes without room; looked up only
        shut = set[str]()  # queues whose first job nobody may go past; looked up only
        for job in sorted(self.waiting, key=lambda each: (self._rank(each), each.unit.key)):
            if job.unit.queue in shut:
                continue
            if not self._is_promised(job.unit):
                if self.policy in (Policy.HIVED, Policy.BLOCK) and self._awaits_quota(job.unit):
                    shut.add(job.unit.queue)
                continue
            shape = job.unit.spec.of_group("")
            found = None if shape in refused else self._find(self.state, job.unit, now)
            if found is None:
                refused.add(shape)
                if self.policy is Policy.BLOCK:
                    shut.add(job.unit.queue)
                if self.policy is Policy.HIVED and first is None:
                    first = self._reserve(job, now)
                continue
            leaves, victims = found
            if first is not None and not self._may_pass(job, leaves, now):
                continue
            for victim in victims:
                run = self.running[victim]
                self.waiting.append(run.job)
                if self.starts[victim] == run.start_s >= now - self.grace_s:
                    del self.starts[victim]  # preempted before it would have had its cells
                self._remove(victim)
            self._start(job, now)
            return True
        if first is None:
            self.reserved = None
        return False

    def _rank(self, job: Job) -> tuple[float, ...]:
        unit, running = job.unit, self._running()
        share = 0.0 if self.tree is None else use_of_min(self.tree, unit.queue, running)
        priority = -float(unit.priority)
        return (*((priority, share) if self.policy is Policy.HIVED else (share, priority)), unit.created_s)

    def _is_possible(self, unit: Unit) -> bool:
        """Would it run if nobody else did?"""
        is_within = self.tree is None or is_promised(self.tree, unit, [])
        return is_within and self._find(self._empty, unit) is not None

    def _is_promised(self, unit: Unit) -> bool:
        """May its queue and its user have more, beside all that runs?"""
        return self._user_may(unit) and (self.tree is None or is_promised(self.tree, unit, self._running()))

    def _awaits_quota(self, unit: Unit) -> bool:
        return self.tree is not None and self._user_may(unit) and not is_promised(self.tree, unit, self._running())

    def _user_may(self, unit: Unit) -> bool:
        most = self.rules.of(unit.queue).most_running
        of_user = sum(one.user == unit.user and one.queue == unit.queue for one in self._running())
        return most is None or of_user < most

    def _running(self) -> list[Unit]:
        return [run.job.unit for run in self.running.values()]

    def _start(self, job: Job, now: float) -> None:
        pod = _pod(job.unit)
        found = handle(self.state, ScheduleRequested(pod))
        assert isinstance(found, Bind)
        handle(self.state, PodAllocated(pod, found.bind_info, times=WorkTimes(now)))
        self.waiting.remove(job)
        self.running[job.unit.key] = _Run(job, now, sum(key == job.unit.key for _, key in self.log))
        self.starts.setdefault(job.unit.key, now)
        self.log.append((now, job.unit.key))

    def _remove(self, key: str) -> None:
        handle(self.state, PodDeleted(_pod(self.running.pop(key).job.unit)))

    def _find(self, state: State, unit: Unit, now: float | None = None) -> tuple[tuple[int, ...], list[str]] | None:
        """Virtual leaves, and who has to leave for it: those that lose least work up to now."""
        decision = handle(state, ScheduleRequested(_pod(unit), now_s=now))
        if isinstance(decision, Bind):
            assert state.last_bind is not None
            assert state.last_bind.virtual is not None
            return tuple(state.last_bind.virtual.tolist()), []
        if not isinstance(decision, Preempt):
            return None
        victims = list(dict.fromkeys(uid for uids in decision.victims_by_node.values() for uid in uids))
        after = copy_state(state)
        for victim in victims:
            handle(after, PodDeleted(_pod(self.running[victim].job.unit)))
        found = self._find(after, unit)
        return None if found is None else (found[0], victims)

    def _reserve(self, job: Job, now: float) -> str | None:
        if self.reserved is not None and self.reserved[0] == job.unit.key:
            return job.unit.key
        state = copy_state(self.state)
        start: float | None = now
        for run in sorted(self.running.values(), key=lambda run: self._expected(run, now)):
            handle(state, PodDeleted(_pod(run.job.unit)))
            is_unsure, end_s, *_ = self._expected(run, now)
            start = None if is_unsure or start is None else max(start, end_s)
            found = self._find(state, job.unit)
            if found is not None and not found[1]:
                self.reserved = (job.unit.key, found[0], start)
                return job.unit.key
        return None

    def _expected(self, run: _Run, now: float) -> tuple[bool, float, float, str]:
        """Is the end unsure; when it is; and the order of equals."""
        if run.job.unit.limit_s is not None:
            return (False, max(run.start_s + run.job.unit.limit_s, now), run.start_s, run.job.unit.key)
        return (True, 0.0, run.start_s, run.job.unit.key)

    def _may_pass(self, job: Job, leaves: tuple[int, ...], now: float) -> bool:
        assert self.reserved is not None
        _, reserved, start = self.reserved
        if job.unit.limit_s is not None and start is not None and now + job.unit.limit_s <= start:
            return True
        return not np.isin(leaves, reserved).any()


def own_leaves(spec: ClusterSpec, vc: str) -> list[int]:
    """The virtual leaf cells of a virtual cluster, ascending, in the same order whether others are there or not."""
    topology = idle_state(spec).topology
    arrays = topology.arrays
    is_own = (arrays.vc == topology.vc_index[vc]) & (arrays.first_child == NO_CELL)
    found: list[int] = np.flatnonzero(is_own).tolist()
    return found


def _pod(unit: Unit) -> PodRequest:
    return PodRequest(unit.key, unit.key, "", replace(unit.spec.of_group(unit.key, True), lazy_preemption=False))
