"""Queues of jobs with objects: the life of each job, and the calls that are to be made on its object.

    waiting --cells are held--> starting --its pods have them--> running --> over
       ^                           |                                |
       +-- all its pods are gone --+-------- leaving <--------------+   (its cells go to others, or were lost)

A job has one record, `JobRecord`, from its first watch event to its end. A fact about it is taken in once, by a method
of `QueuedJobs`. Nothing here calls the API server, reads a clock or starts a thread.
"""

import logging
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.values.specs import MIN_GUARANTEED_PRIORITY, ClusterSpec, PodSpec
from hived_extender.jobs.job import Job, JobRef, JobState, masked
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.marks import is_marked_held
from hived_extender.jobs.starts import StartWait
from hived_extender.kube.clocks import Backoff
from hived_extender.machine.stimuli import HoldState
from hived_extender.queues.own_schedule import Learned
from hived_extender.queues.queues import Queues
from hived_extender.queues.table import IN_TIME, USUAL, Entry, Kept, Life, Pace, Place
from hived_extender.queues.units import GROWN, LATE, Unit

log = logging.getLogger(__name__)

REFUSED_S = 4.0
"""The wait after the third refusal in a row: a job that cannot be suspended loses its pods then."""

LEAVE_S = 60.0
"""So long a controller has to delete the pods of a job that it suspended; hived does it then."""


class Change(Enum):
    """A write onto a job object, together with its state."""

    RESUME = "resume"
    SUSPEND = "suspend"
    NOTE = "note"  # the state alone


class Action(msgspec.Struct, frozen=True):
    """A call on one job object. One that `is_release` removes its author's words about its start as well."""

    job: JobRef
    change: Change
    kept: Kept
    is_release: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class JobRecord(Entry):
    """A job with an object: what became of it in the queues, and what is to be written onto it.

    Attributes
    ----------
    kept : the state that its object has, or is about to have
    asks : what it asks for now; None if it is in no queue, and `problem` says why
    spec : what it asks for, if that could be read although it is in no queue
    vc : the virtual cluster that it asked for when that could be read last
    too_large_for : the queue in which it can never run, as no cluster like this one has cells for it; "" for others
    evicted_for : the key of the job that its cells went to, as far as this term knows; `kept` has it `masked`
    since_s : when its life changed last
    lacks_since_s : since when cells are held for pods that have not come; None if none are
    wanted, written : the next write, and the one that is under way
    is_released : the next write removes its author's words about its start
    """

    job: Job
    kept: Kept
    asks: Unit | None = None
    problem: str = ""
    spec: PodSpec | None = None
    vc: str = ""
    too_large_for: str = ""
    evicted_for: str = ""
    since_s: float = 0.0
    progress: HoldState | None = None
    lacks_since_s: float | None = None
    wanted: Change | None = None
    written: Action | None = None
    is_released: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    refusal: str = ""

    @property
    def may_not_start(self) -> bool:
        """Is it to be in no turn, by the word of a person?"""
        return self.kept.is_on_hold or self.start_wait is not None

    @property
    def is_suspended(self) -> bool:
        """Is its object suspended, by all that was written onto it?"""
        return self.job.state is JobState.HELD and self.is_written

    @property
    def is_written(self) -> bool:
        """Is all of its state on its object?"""
        return self.wanted is None and self.written is None

    @property
    def key(self) -> str:
        """As units have it."""
        return self.job.ref.key


class QueuedJobs(Queues):
    """Queues of jobs with objects. `entries` are by key, in the order in which jobs were seen first.

    A job has `start_s` seconds from when it was resumed until a pod of it has a node.
    """

    def __init__(
        self, spec: ClusterSpec, learned: Learned | None = None, pace: Pace = USUAL, *, start_s: float = math.inf
    ) -> None:
        """As `Queues`."""
        super().__init__(spec, learned, pace)
        self._start_s = start_s
        self.entries: dict[str, JobRecord] = {}
        self._leaving: dict[str, None] = {}
        self._todo: dict[str, None] = {}  # keys with something to be written
        self._over_now: list[JobRecord] = []
        self._changed: dict[str, None] = {}  # keys
        self._late_at: dict[str, float] = {}  # jobs for whose pods cells are held, and when these are late

    def queue_of(self, key: str) -> str:
        """The queue of a job, "" if it is in none."""
        unit = self.entries[key].asks
        return unit.queue if unit is not None else ""

    def leaf_count_of(self, key: str) -> float:
        """The leaf cells that a queue counts of a job: none in no queue, any number of one that is over."""
        entry = self.entries.get(key)
        if entry is None:
            return math.inf
        return 0 if entry.asks is None else entry.kept.leaf_count or entry.asks.leaf_count

    # Facts

    def job_seen(
        self, job: Job, unit: Unit | None, kept: Kept, now: float, problem: str = "", *, has_cells: bool = False,
        is_first: bool = False,
    ) -> None:  # fmt: skip
        """A job looks like this now. `kept` is the state on it; `problem` says why it is no unit.

        `has_cells`: pods of it have cells; asked for new jobs, and those that are to leave. One that `is_first`, seen
        when these turns begin, is left alone then if hived never suspended it: it ran before there were queues.
        """
        key = job.ref.key
        self._changed[key] = None
        entry = self.entries.get(key)
        if job.state.is_over:
            if entry is not None:
                self._over_now.append(entry)
                entry.job = replace(job, roles=())
            self._over(key, now)
        elif entry is None:
            entry = JobRecord(job=replace(job, roles=()), kept=kept, asks=unit, problem=problem, since_s=now)
            self._new(entry, now, has_cells=has_cells, was_there=is_first and has_cells and not kept.version)
        elif kept.version >= entry.kept.version or _is_suspended_late(entry, job, kept):
            if kept.version < entry.kept.version:
                entry.kept = replace(entry.kept, is_resumed=False)
            elif kept.version > entry.kept.version and not kept.is_resumed:
                entry.kept = kept  # the last call of an earlier term has suspended it, and not its owner
            elif kept.version > entry.kept.version and not entry.life.has_cells:  # it has resumed it, which is undone:
                entry.kept = replace(entry.kept, version=kept.version + 1)  # whoever reads both sees which came last
            self._again(entry, replace(job, roles=()), unit, problem, now, has_cells=has_cells)
        elif entry.wanted is None and entry.written is None:
            self._want(entry, Change.NOTE)  # its state was taken off; news count again once it is there

    def job_gone(self, job: JobRef) -> None:
        """A job was deleted."""
        self._over(job.key, None)

    def progressed(self, states: Mapping[str, HoldState], now: float) -> dict[str, str]:
        """Return how far the pods of jobs with cells have come.

        Returns the keys of jobs that lost theirs, with "", and of those that have had no pod with a node for too long,
        with `LATE`: or, on lent cells, too few pods for the cells that are held. A gang that does not come back has its
        pods, and they are not made anew.
        """
        back: dict[str, str] = {}
        for key, state in states.items():
            entry = self.entries.get(key)
            self._late_at.pop(key, None)
            if entry is None or not entry.life.has_cells:
                continue
            if entry.progress != state:
                entry.progress, self._changed[key] = state, None
            if not state.held_count:
                entry.lacks_since_s = None
            elif entry.lacks_since_s is None:
                entry.lacks_since_s = now
            if state.is_lost:
                back[key] = ""
            elif entry.life is Life.STARTING and state.placed_count and not state.held_count:
                entry.life, self._changed[key] = Life.RUNNING, None
                if entry.kept.late != IN_TIME:
                    self.keep(key, late=IN_TIME)
                    self.late(key, IN_TIME)
            elif (since_s := _lacking_since(entry, state)) is not None:
                if self._is_late(entry, since_s, now):
                    back[key] = LATE
                else:
                    self._late_at[key] = since_s + self._start_s
        return back

    def overdue(self, now: float) -> list[str]:
        """The jobs whose pods are late by now: `progressed` says so. Cost O(jobs for whose pods cells are held)."""
        return [key for key, at_s in self._late_at.items() if at_s <= now]

    def requeue(self, key: str, now: float) -> None:
        """Requeue a job that was to leave and has no pods with cells any more (rules 29.3, 32.5)."""
        entry = self.entries[key]
        self.evicted(key, now)
        entry.life, entry.since_s, entry.progress, entry.lacks_since_s = Life.WAITING, now, None, None
        self._changed[key] = None
        if entry.asks is not None:
            self.changed(entry.asks)

    def pods_are_gated(self, key: str) -> None:
        """Pods of a job wait at its gate. They came after it was resumed: it is resumed once more."""
        entry = self.entries.get(key)
        if entry is not None and entry.life.has_cells and entry.written is None and entry.wanted is None:
            self._want(entry, Change.RESUME)

    def wrote(self, action: Action, error: str, now: float) -> None:
        """A call was carried out, or refused."""
        entry = self.entries.get(action.job.key)
        if entry is None or entry.written is not action:
            return
        entry.written, entry.refusal = None, error
        self._changed[entry.key] = None
        if error:
            entry.backoff.failed(now)
        else:
            entry.backoff.succeeded()
        if error:
            entry.wanted = entry.wanted or action.change
            entry.is_released = entry.is_released or action.is_release
        if entry.wanted is not None:
            self._todo[entry.key] = None

    def _is_late(self, entry: JobRecord, since_s: float, now: float) -> bool:
        may_take_time = not entry.job.comes_back or (entry.asks is not None and entry.asks.may_take_time)
        return not may_take_time and now >= since_s + self._start_s

    # Decisions

    def resume(self, key: str, now: float, *, is_borrowed: bool) -> None:
        """Cells are held for a unit, perhaps for fewer of its pods: its job is resumed."""
        self.started(key, now, is_borrowed=is_borrowed)
        entry = self.entries[key]
        kept = entry.kept.followed_by(
            is_resumed=True, leaf_count=entry.unit.leaf_count, is_borrowed=is_borrowed, since_s=now, ran_since_s=0.0,
            entitled_s=self.entitled_since(key),
            attempts=entry.kept.attempts + 1, evicted_for="", promised_s=entry.promised_s,
        )  # fmt: skip
        self._go_to(entry, entry.life, kept, Change.RESUME, now)  # the same turn may have told it to leave

    def suspend(self, key: str, winner: str, now: float, since_s: float | None = None) -> None:
        """A job is suspended: its cells are gone, perhaps to another one. An earlier term decided it at `since_s`."""
        entry = self.entries[key]
        self.leaving(key, winner, entry.kept.since_s, now if since_s is None else None)
        late = entry.kept.late
        if winner == LATE:
            late = late.after(now, self._start_s)
            self.late(key, late)
        entry.evicted_for = winner
        evicted_for = masked(winner, entry.job.ref.namespace)  # owners read it
        kept = entry.kept.followed_by(
            is_resumed=False,
            since_s=since_s or now,
            ran_since_s=entry.start_s,
            evicted_for=evicted_for,
            late=late,
            returned=entry.returned,
        )
        self._go_to(entry, Life.LEAVING, kept, Change.SUSPEND, now)

    def own(self, key: str) -> None:
        """A unit owns the cells that it had borrowed."""
        self.keep(key, is_borrowed=False, entitled_s=self.entitled_since(key))

    def move(self, key: str, to: Place) -> None:
        """Give a job another place in its queue: see `moved`. Raises UserError."""
        self.keep(key, place=self.moved(key, to))

    def correct_borrowed(self, key: str, *, is_borrowed: bool) -> None:
        """The pods of a job that an earlier term started are on borrowed cells, or are not, other than it was noted."""
        self.keep(key, is_borrowed=is_borrowed)
        self.runs_borrowed(key, is_borrowed=is_borrowed)

    def keep(self, key: str, **changes: Any) -> None:
        """Write another state onto a job, such as its place."""
        entry = self.entries[key]
        entry.kept = entry.kept.followed_by(**changes)
        self._want(entry, entry.wanted or Change.NOTE)

    def shrink(self, unit: Unit, own: tuple[int, ...] = ()) -> None:
        """A job has given cells back, see `shrunk`: if it asks for more again, it waits for its turn."""
        self.shrunk(unit, own)
        if self.entries[unit.key].kept.leaf_count > unit.leaf_count:
            self.keep(unit.key, leaf_count=unit.leaf_count)

    def hold(self, key: str, *, is_held: bool, is_now: bool = False) -> None:
        """Hold a job, or have it take its turn again even if its owner suspended it, and write that onto it.

        Its author's words about its start are removed by the same call if it `is_now`.
        """
        entry = self.entries[key]
        if is_now:
            entry.is_released, entry.start_wait = True, None
        self.keep(key, is_held=is_held, is_suspended=entry.kept.is_suspended and is_held)
        self.held(key, entry.may_not_start)

    def wait(self, key: str, wait: StartWait | None) -> None:
        """The author of a job does not let it start yet, as this says, or does by now.

        Words that are about to be removed do not count.
        """
        entry = self.entries.get(key)
        if entry is None or entry.start_wait == wait:
            return
        if wait is not None and (entry.is_released or (entry.written is not None and entry.written.is_release)):
            return
        entry.start_wait, self._changed[key] = wait, None
        self.held(key, entry.may_not_start)

    def take_actions(self, now: float, limit: int) -> list[Action]:
        """The next calls, at most so many; each is answered by `wrote`. One at a time for each job."""
        due: list[Action] = []
        for key in list(self._todo):
            entry = self.entries.get(key)
            if entry is None or entry.wanted is None:
                del self._todo[key]
            elif entry.written is None and entry.backoff.at_s <= now and len(due) < limit:
                entry.written = Action(entry.job.ref, entry.wanted, entry.kept, entry.is_released)
                entry.wanted, entry.is_released = None, False
                self._changed[key] = None
                del self._todo[key]
                due.append(entry.written)
        return due

    def still_leaving(self, now: float) -> list[tuple[JobRecord, bool]]:
        """The jobs that are to leave. Has that failed: is the call refused, or does the controller not heed it?"""
        found = {key: self.entries.get(key) for key in self._leaving}
        there = {key: one for key, one in found.items() if one is not None and one.life is Life.LEAVING}
        self._leaving = dict.fromkeys(there)
        return [(one, one.backoff.wait_s >= REFUSED_S or now >= one.since_s + LEAVE_S) for one in there.values()]

    def take_changed(self, limit: int = sys.maxsize) -> list[str]:
        """The keys of so many jobs that have changed, or are gone, since they were taken; in the order of changes."""
        changed = list(islice(self._changed, limit))
        for key in changed:
            del self._changed[key]
        return changed

    def take_over(self) -> list[JobRecord]:
        """The jobs that have ended since the last call, as they were last."""
        over, self._over_now = self._over_now, []
        return over

    # Steps

    def _new(self, entry: JobRecord, now: float, *, has_cells: bool, was_there: bool) -> None:
        key, unit = entry.key, entry.asks
        self.entries[key] = entry
        self._take_owners_word(entry)
        kept = entry.kept
        if unit is None:
            self._release(entry, is_marked=is_marked_held(entry.job.annotations))
            return
        is_fresh = has_cells or not self._is_late(entry, kept.since_s, now)
        may_run = was_there or (kept.is_resumed and is_fresh and not _has_grown(entry, unit))
        is_running = entry.job.state is JobState.RESUMED and may_run
        self.arrived(unit, kept, runs_since_s=(kept.since_s or now) if is_running else None, entry=entry)
        if is_running:
            entry.life, entry.since_s = (Life.RUNNING if has_cells else Life.STARTING), kept.since_s or now
        elif entry.job.state is not JobState.HELD or has_cells:
            self.started(key, kept.ran_since_s or now, is_borrowed=True)
            self.suspend(key, kept.evicted_for, now, kept.since_s if kept.evicted_for else None)
        elif kept.is_resumed:
            self.keep(key, is_resumed=False)  # not hived suspended it

    def _again(
        self, entry: JobRecord, job: Job, unit: Unit | None, problem: str, now: float, *, has_cells: bool
    ) -> None:
        had, entry.job, entry.problem = entry.asks, job, problem
        if had is None and unit is not None:  # as if it had just come, with the state of when it was a unit
            entry.asks, entry.life = unit, Life.WAITING
            self._new(entry, now, has_cells=has_cells, was_there=False)
            return
        if unit != had:
            self._asks_for(entry, unit, now)
        if entry.asks is None:
            self._release(entry, is_marked=had is not None or is_marked_held(job.annotations))
            return
        if entry.life is Life.LEAVING and job.state is JobState.HELD and not has_cells:
            self.requeue(entry.key, now)
        elif entry.life in (Life.WAITING, Life.LEAVING) and job.state is JobState.RESUMED:
            if entry.kept.is_suspended:
                self.keep(entry.key, is_suspended=False)
                self.held(entry.key, entry.may_not_start)
            self._want(entry, Change.SUSPEND)  # not hived resumed it
        elif entry.life.has_cells and job.state in (JobState.HELD, JobState.LEAVING):
            self._take_owners_word(entry)
            self.held(entry.key, entry.may_not_start)
            self.suspend(entry.key, "", now)  # not hived suspended it
        elif entry.life.has_cells and (_has_grown(entry, entry.asks) or (had is not None and had.vc != entry.asks.vc)):
            self.suspend(entry.key, GROWN, now)

    def _take_owners_word(self, entry: JobRecord) -> None:
        """Note that the owner of a job has suspended or resumed it (rule 32.7): hived writes both in one call."""
        if entry.job.state is JobState.RESUMED:
            entry.kept = replace(entry.kept, is_suspended=False)
        elif entry.kept.is_resumed and table.has_switch(entry.job.ref):
            entry.kept = replace(entry.kept, is_suspended=True)

    def _release(self, entry: JobRecord, *, is_marked: bool) -> None:
        """Resume a job that is in no queue, if hived holds it: it was marked at its creation, or has been a unit."""
        if is_marked and not entry.problem and entry.job.state is JobState.HELD and entry.written is None:
            self._want(entry, Change.RESUME)

    def _asks_for(self, entry: JobRecord, unit: Unit | None, now: float) -> None:
        entry.asks = unit
        if unit is not None:
            self.changed(unit)
        elif entry.life is Life.WAITING:
            self.removed(entry.key)
        else:
            self.ended(entry.key, now, goes_on=True)

    def _over(self, key: str, ended_s: float | None) -> None:
        """A job has ended then, or None: it was deleted before."""
        entry = self.entries.pop(key, None)
        self._changed[key] = None
        self._todo.pop(key, None)
        if entry is None or entry.asks is None:
            return
        if entry.life is Life.WAITING or ended_s is None:
            self.removed(key)
        else:
            self.ended(key, ended_s)

    def _go_to(self, entry: JobRecord, life: Life, kept: Kept, change: Change, now: float) -> None:
        entry.life, entry.kept, entry.since_s, entry.progress, entry.lacks_since_s = life, kept, now, None, None
        if life is Life.LEAVING:
            self._leaving[entry.key] = None
        self._want(entry, change)

    def _want(self, entry: JobRecord, change: Change) -> None:
        entry.wanted = change
        self._todo[entry.key] = self._changed[entry.key] = None


def is_resumed_by_owner(entry: JobRecord, job: Job, kept: Kept) -> bool:
    """Has the owner of a job resumed it, which is yet to get cells? `kept` is the state on it now."""
    is_back = entry.life in (Life.WAITING, Life.LEAVING) and job.state is JobState.RESUMED
    return is_back and kept.version >= entry.kept.version and table.has_switch(job.ref)


def _is_suspended_late(entry: JobRecord, job: Job, kept: Kept) -> bool:
    """Has a call of an earlier term suspended a job that was resumed and has cells? Its state says so, and no owner."""
    is_suspended = entry.job.state is JobState.RESUMED and job.state in (JobState.HELD, JobState.LEAVING)
    is_older = 0 < kept.version < entry.kept.version and not kept.is_resumed
    return is_suspended and is_older and entry.life.has_cells and entry.is_written


def _lacking_since(entry: JobRecord, state: HoldState) -> float | None:
    """Since when cells are held for pods that should come soon (rule 32.6); None if none are."""
    if entry.life is Life.STARTING and not state.placed_count:
        return entry.since_s
    is_lent = entry.kept.is_borrowed or (entry.asks is not None and entry.asks.priority < MIN_GUARANTEED_PRIORITY)
    return entry.lacks_since_s if is_lent else None


def _has_grown(entry: JobRecord, unit: Unit) -> bool:
    """Does a job ask for more cells than were held when it was resumed (rule 32.8)?"""
    return not entry.job.grows and 0 < entry.kept.leaf_count < unit.leaf_count
