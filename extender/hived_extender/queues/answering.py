"""Answers about queues, from the turns of the present term, and the changes that users make to the order.

Walks over all jobs need no lock, and each job is described as it is then: 50,000 take seconds, and filter calls wait
for milliseconds of them. Rights are not asked for meanwhile, so callers say beforehand which namespaces may be named.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain, islice

import msgspec
from msgspec.structs import replace

from hived.cells.topology import Topology
from hived.values.errors import UserError
from hived.values.specs import PodRequest, PodSpec, count_leaves
from hived_config.selectors import Selector, matches
from hived_extender.api.names import names_of as ranks_of
from hived_extender.api.queues import HELD_LATER, NOW, QueueArgs, QueuedJob, QueueReport
from hived_extender.api.waiting import MASKED, PodCounts, Preempted, When
from hived_extender.jobs.job import JobName, JobRef, masked, parts_of, uid_of
from hived_extender.jobs.kinds import gangs
from hived_extender.jobs.kinds.marks import user_said
from hived_extender.jobs.kinds.table import resource_of
from hived_extender.jobs.needs import JobEnd, JobLoss, QueuedRun, SeenJob
from hived_extender.machine.certificates import asks_of, node_leaves_of, rfc3339, with_minimum
from hived_extender.machine.offers import Asking
from hived_extender.machine.stimuli import JobHeld, JobMoved
from hived_extender.queues.controller import QueueController, QueueCount, count, count_others, waits_since
from hived_extender.queues.explaining import Known, in_order
from hived_extender.queues.own_schedule import Expected
from hived_extender.queues.queued_jobs import JobRecord
from hived_extender.queues.reasons import (
    STARTING,
    Held,
    Impossible,
    NeverFits,
    NotYet,
    OverUserLimit,
    Reason,
    Running,
    Told,
    held_by,
    told,
)
from hived_extender.queues.records import unit_key
from hived_extender.queues.table import Life
from hived_extender.queues.turns import Turns
from hived_extender.queues.units import Unit

Seen = Collection[str] | None
"""The namespaces whose jobs a caller may see; None for all."""

CLOSE_COUNT = 3
MOST_NAMED = 8
MOST_COMPARED = 5000
"""Jobs whose names are looked through for those that are nearly the one that was given."""


def listed(turns: Turns | None) -> Iterator[JobRecord]:
    """The jobs that are in a queue, or would be but for a problem.

    A job that was taken out of its queue is neither, nor is one that has ended, though its own schedule has it still.
    """
    entries = () if turns is None else list(turns.queues.entries.values())
    return (entry for entry in entries if (entry.asks is not None or entry.problem) and entry.life is not Life.OVER)


def only(turns: Turns | None, name: str, seen: Seen) -> JobRecord | None:
    """The job of this name, of the namespaces `seen`; None if there is none. Raises UserError (409) for several."""
    found = [entry for entry in listed(turns) if name in names_of(entry) and is_seen(entry, seen)]
    if len(found) > 1:
        named = ", ".join(str(one.job.ref) for one in found[:8])
        raise UserError(f"{name} is {len(found)} jobs: {named}; give one of them", 409)
    return found[0] if found else None


def find(turns: Turns, name: str, seen: Seen) -> JobRecord:
    """The one job of this name, of the namespaces `seen`. Raises UserError (404, 409)."""
    found = only(turns, name, seen)
    if found is not None:
        return found
    entries = islice((entry for entry in listed(turns) if is_seen(entry, seen)), MOST_COMPARED)
    near = nearest(name, (each for entry in entries for each in names_of(entry)))
    hint = f"; nearest: {', '.join(near)}" if near else ""
    form = "name it Kind/namespace/name, as hived get queue has it"
    raise UserError(f"no job {name!r} is in a queue{hint}; {form}", 404)


def names_of(entry: JobRecord) -> tuple[str, ...]:
    """All names of a job, which may be asked for by each."""
    return tuple(chain.from_iterable(ranks_of(str(entry.job.ref))))


def is_seen(entry: JobRecord, seen: Seen) -> bool:
    """True if a caller who sees these namespaces may see a job."""
    return seen is None or entry.job.ref.namespace in seen


def namer(turns: Turns, seen: Seen) -> Callable[[str], str]:
    """Gives the names of jobs by their keys; other words that stand in place of a key are left as they are."""

    def name(key: str) -> str:
        entry = turns.queues.entries.get(key)
        if entry is not None:
            return str(entry.job.ref) if is_seen(entry, seen) else MASKED
        parts = parts_of(key)
        if not parts:
            return key
        return "/".join(parts[:-1]) if seen is None or parts[1] in seen else MASKED

    return name


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """A few of these names that are nearly the one that was given, nearest first."""
    return get_close_matches(name, dict.fromkeys(names), n=CLOSE_COUNT)


def near_queues(name: str, names: Sequence[str]) -> str:
    """The names of all queues, or the nearest ones of many."""
    near = nearest(name, (*names, *(each.rpartition("/")[2] for each in names)))
    whole = dict.fromkeys(full for each in near for full in names if each in (full, full.rpartition("/")[2]))
    if len(names) <= MOST_NAMED or not whole:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"there are {', '.join(names[:MOST_NAMED])}{more}"
    return f"nearest: {', '.join(list(whole)[:CLOSE_COUNT])}"


AT_ONCE = 50
"""Jobs that are described before others get the lock: a millisecond."""

WRITE_S = 10.0
"""So long a change waits until it is written. The client waits for longer."""

_STATES = {Life.STARTING: "Starting", Life.RUNNING: "Running", Life.LEAVING: "Leaving", Life.OVER: "Leaving"}
"""A job may be over by now that was there when the question was read."""


class Wanted(msgspec.Struct, frozen=True):
    """The jobs that are asked for: those of a queue, and of one of these virtual clusters and so on; without any of
    all.

    One of their names begins with `prefix`, and their labels meet the `selector`. `is_waiting`: those without cells
    alone, and others of which `has_row` is false by their full names.
    """

    queue: str = ""
    vcs: Collection[str] = ()
    users: Collection[str] = ()
    namespaces: Collection[str] = ()
    prefix: str = ""
    is_waiting: bool = False
    selector: Selector = ()
    has_row: Callable[[str], bool] = lambda name: True

    def takes(self, entry: JobRecord, seen: Seen) -> bool:
        """True for one of these. Names and users cannot be guessed: a job that is hidden has none."""
        asked = _asked(entry)
        if self.vcs and (asked is None or asked.virtual_cluster not in self.vcs):
            return False
        if (self.users or self.namespaces or self.prefix or self.selector) and not is_seen(entry, seen):
            return False
        if self.selector and not matches(self.selector, entry.job.all_labels):
            return False
        if self.users and _user(entry) not in self.users:
            return False
        if self.prefix and not any(name.startswith(self.prefix) for name in names_of(entry)):
            return False
        is_there = not self.namespaces or entry.job.ref.namespace in self.namespaces
        is_shown = not self.is_waiting or entry.life is Life.WAITING or not self.has_row(str(entry.job.ref))
        return is_there and is_shown


class Question(msgspec.Struct, frozen=True):
    """A job that waits, why, and what the core is asked for its cells; `asking` is None for one with a mistake.

    `key` is that of its unit. A `quota` of a tree has one virtual cluster alone; "" if the job is in none. It waits for
    its quota, or its user's limit, until one of `freeing` ends, or of another queue one of `freeing_elsewhere`. For one
    that may borrow, `borrowing` asks for borrowed cells.
    """

    job: QueuedJob
    reason: Reason | None
    asking: Asking | None
    limit_s: float | None
    key: str = ""
    quota: str = ""
    may_borrow: bool = False
    freeing: tuple[str, ...] = ()
    freeing_elsewhere: tuple[str, ...] = ()
    borrowing: Asking | None = None


class QueueAnswers:
    """Answers for any thread. Every method raises UserError (503) while there are no turns."""

    def __init__(self, controller: QueueController, troubles: Callable[[], Mapping[str, str]] = dict) -> None:
        """`troubles` says of jobs that run what is wrong with their cells, by full name; asked without any lock."""
        self._controller = controller
        self._troubles = troubles

    @property
    def is_enabled(self) -> bool:
        """Does the configuration in force have queues?"""
        return self._controller.queueing.is_enabled

    @property
    def has_begun(self) -> bool:
        """True while turns are taken."""
        return self._controller.turns is not None

    def went_on(self, since_s: float) -> int:
        """Return how many jobs of queues have cells that they got before a moment, in seconds since 1970.

        Cost O(jobs).
        """
        turns = self._controller.turns
        entries = () if turns is None else list(turns.queues.entries.values())
        return sum(one.life.has_cells and 0 < one.kept.since_s < since_s for one in entries)

    def queues(self) -> list[QueueReport]:
        """All queues, by name."""
        turns = self._turns()
        over, found, known = turns.use.over(), count(turns.queues), turns.known
        names = known.with_others(found)
        with self._controller.look():
            shares = turns.queues.shares(names)
        found |= {name: QueueCount(known.vcs[name]) for name in names if name not in found}
        count_others(found, turns.queues.others)
        return [
            QueueReport(
                name=name,
                vc=found[name].vc,
                policy=turns.rules.of(name).policy.value,
                waiting=found[name].waiting,
                running=found[name].running,
                borrowed=found[name].borrowed,
                share=shares[name],
                used=found[name].used,
                guaranteed=known.guaranteed(name),
                max=known.most(name),
                over=over.get(name, {}),
                oversell=known.oversell(name),
            )
            for name in names
        ]

    def namespaces(self) -> list[str]:
        """The namespaces of all jobs, ascending; none while there are no turns."""
        return sorted({entry.job.ref.namespace for entry in listed(self._controller.turns)})

    def jobs(self, queue: str = "", seen: Seen = None) -> list[QueuedJob]:
        """The jobs of a queue, or of all: those that wait in their order, then the others. UserError (404).

        Their reasons name no job of a namespace outside `seen`; the list has all jobs itself.
        """
        return self.some_jobs(Wanted(queue), seen, 0, None)[1]

    def some_jobs(
        self, wanted: Wanted, seen: Seen, start: int, count: int | None, row_of: Callable[[str], str] | None = None
    ) -> tuple[int, list[QueuedJob]]:
        """Return the number of these jobs, and `count` of them from `start`, in the order of `jobs`. UserError (404).

        The others are not described. Turns may be taken meanwhile: each job is as it was when it was described. Jobs of
        a queue with the same `row_of` their names count as one: the first of them, with the GPUs of all.
        """
        turns = self._turns()
        rows: dict[tuple[str, str], list[tuple[JobRecord, int]]] = {}
        for entry, place in self._placed(turns, wanted.queue):
            if wanted.takes(entry, seen):
                queue = entry.too_large_for if entry.asks is None else entry.asks.queue
                name = entry.key if row_of is None else row_of(str(entry.job.ref))
                rows.setdefault((name, queue), []).append((entry, place))
        over, troubles = turns.use.going_over(), self._troubles()
        chosen = list(rows.values())[start : None if count is None else start + count]
        described: list[QueuedJob] = []
        known: Known = {}
        for first in range(0, len(chosen), AT_ONCE):
            with self._controller.look():
                described += [
                    replace(
                        self._job(turns, *row[0], seen, over, known, troubles), gpus=sum(_gpus(one) for one, _ in row)
                    )
                    for row in chosen[first : first + AT_ONCE]
                ]
        return len(rows), described

    def job(self, name: str, seen: Seen = None) -> QueuedJob | None:
        """A job by its name, of the namespaces `seen`; None if it is in no queue."""
        turns = self._controller.turns
        entry, troubles = only(turns, name, seen), self._troubles() if turns is not None else {}
        if turns is None or entry is None:
            return None
        over = turns.use.going_over()
        with self._controller.look():
            return self._job(turns, entry, turns.queues.position(entry.key) or 0, seen, over, troubles=troubles)

    def first_of(self, names: Collection[str]) -> str:
        """The one of these jobs, by full name, that is first in its queue; "" if none is in one. Cost O(jobs)."""
        there = [entry for entry in listed(self._controller.turns) if str(entry.job.ref) in names]
        with self._controller.look() as turns:
            places = [math.inf if turns is None else turns.queues.position(one.key) or math.inf for one in there]
        return min(zip(places, (str(one.job.ref) for one in there), strict=True), default=(0, ""))[1]

    def named(self, name: str, seen: Seen) -> str:
        """The full name of the one job that is called so, of the namespaces `seen`. Raises UserError (404, 409)."""
        return str(find(self._turns(), name, seen).job.ref)

    def resource(self, name: str) -> dict[str, str]:
        """The object of a job, by its full name, as rights name it: see `resource_of`. Raises UserError (404)."""
        return resource_of(find(self._turns(), name, None).job.ref)

    def question(self, name: str, seen: Seen) -> Question | None:
        """A job that waits, as the live cluster would be asked for its cells; None if none waits of this name."""
        entry = only(self._controller.turns, name, seen)
        with self._controller.look() as turns:
            if (
                turns is None
                or entry is None
                or entry.life is not Life.WAITING
                or entry.key not in turns.queues.entries
            ):
                return None
            unit, queues = entry.asks, turns.queues
            job = self._job(turns, entry, queues.position(entry.key) or 0, seen)
            if unit is None:
                return Question(job, _not_yet(entry), None, None)
            reason = queues.why(entry.key)
            is_over = job.cause == "quota" and not (isinstance(reason, OverUserLimit) and reason.waits)
            entries = turns.queues.entries
            runs = [entries[key] for key in (queues.freed_by(entry.key) if is_over else ()) if key in entries]
            seen_runs = [(one.asks, str(one.job.ref)) for one in runs if is_seen(one, seen)]
            return Question(
                job, reason, turns.room.question(unit), unit.limit_s, entry.key,
                unit.queue if unit.queue != unit.vc and turns.known.vcs.get(unit.queue) else "",
                queues.may_borrow(entry.key),
                tuple(name for one, name in seen_runs if one is not None and one.queue == unit.queue),
                tuple(name for one, name in seen_runs if one is not None and one.queue != unit.queue),
                turns.room.question(unit, is_borrowed=True) if queues.may_borrow(entry.key) else None,
            )  # fmt: skip

    def runs(self, names: Collection[str]) -> dict[str, QueuedRun]:
        """The runs of those of these jobs that have cells, by full name. Cost O(jobs)."""
        turns = self._controller.turns
        entries = [] if not names or turns is None else list(turns.queues.entries.values())
        return {
            str(one.job.ref): QueuedRun(one.kept.since_s, unit.limit_s, unit.priority if one.is_borrowed else None)
            for one in entries
            if one.life.has_cells and (unit := one.asks) is not None and str(one.job.ref) in names
        }

    def object_of(self, name: JobName) -> SeenJob | None:
        """A job object as it was seen last, whatever its pods; None if there is none."""
        return self._controller.jobs.find(name)

    @property
    def are_listed(self) -> bool:
        """True once all job objects are known."""
        return self._controller.has_listed_jobs

    def ends(self) -> list[JobEnd]:
        """The latest job objects that have ended, or were deleted before, oldest first."""
        return self._controller.jobs.ends()

    def losses(self) -> Sequence[JobLoss]:
        """The latest jobs that queues have suspended for others, oldest first."""
        return self._controller.losses()

    def queue_of(self, job: JobRef) -> str:
        """The queue of a job, "" if it is in none."""
        return self._controller.queue_of(job)

    def called(self, name: str) -> list[SeenJob]:
        """The job objects of this full name, or `NAMESPACE/NAME`, whatever their pods. Cost O(jobs)."""
        return self._controller.jobs.called(name)

    def outside(self) -> list[SeenJob]:
        """The job objects with pods of ours, or that name our scheduler, that have not ended and that no queue has, and
        where queues are off those that may not start yet. Cost O(jobs).
        """
        timed = {} if self.is_enabled else {seen.job.ref: seen for seen in self._controller.not_yet()}
        found = [
            seen
            for seen in self._controller.jobs.ours()
            if (seen.need is None and not seen.problem) or not self.is_enabled
            if not seen.job.state.is_over and seen.job.ref.kind != gangs.KIND
        ]
        return [seen for seen in found if seen.job.ref not in timed] + list(timed.values())

    def after(self, key: str, ended: Collection[str], priority: int) -> tuple[bool, list[Question]]:
        """May a job start by its quota and limits once these have ended, which are full names?

        And the jobs of its queue that may before it, see `Queues.after`.
        """
        with self._controller.look() as turns:
            if turns is None or key not in turns.queues.entries:
                return False, []
            entries, queues = turns.queues.entries, turns.queues
            keys = frozenset(entry.key for entry in entries.values() if str(entry.job.ref) in ended)
            is_free, before = queues.after(key, keys, priority)
            return is_free, self._questions(turns, before)

    def quota_start(self, key: str) -> tuple[Expected, list[str], list[Question]] | None:
        """See `Queues.quota_start`; the jobs that have ended by full name, and those that start before it."""
        with self._controller.look() as turns:
            if turns is None or key not in turns.queues.entries:
                return None
            found = turns.queues.quota_start(key)
            if found is None:
                return None
            entries = turns.queues.entries
            ended = [str(entries[each].job.ref) for each in found.ended if entries[each].life.has_cells]
            return found.at, ended, self._questions(turns, found.before)

    def _questions(self, turns: Turns, keys: Sequence[str]) -> list[Question]:
        """The jobs that start one after the other before another one."""
        entries, queues = turns.queues.entries, turns.queues
        return [
            Question(
                self._job(turns, entries[each], place), None, turns.room.question(unit), unit.limit_s, each,
                may_borrow=queues.may_borrow(each),
            )
            for place, each in enumerate(keys, 1)
            if (unit := entries[each].asks) is not None and entries[each].life is Life.WAITING
        ]  # fmt: skip

    def act(self, args: QueueArgs, seen: Seen = None) -> QueuedJob:
        """Hold a job, release it, or give it another place; jobs outside of `seen` are unknown here.

        Answers once that is written onto the job, so that it outlives this process. Raises UserError (404, 409), and
        503 if it counts, but is not written yet.
        """
        turns = self._turns()
        entry = find(turns, args.job, seen)
        if entry.asks is None:
            raise UserError(f"{entry.job.ref} is in no queue: {entry.problem}", 409)
        if args.action == "move":
            to = args.to if args.to in ("front", "back") else find(turns, args.to, seen).key
            if entry.life is not Life.WAITING:
                raise UserError(f"{entry.job.ref} does not wait, so it has no place in its queue", 409)
            change: JobHeld | JobMoved = JobMoved(entry.key, to)
        else:
            is_held = args.action == "hold"
            if not is_held and turns.is_inactive(entry.job.ref):
                unit = "/".join(unit_key(entry.job.ref))
                raise UserError(f"QueueUnit {unit} says active: false; set it to true, or remove it", 409)
            change = JobHeld(entry.key, is_held, not is_held and args.to == NOW)
        entry.refusal = ""
        self._controller.change(change)
        with self._controller.look():
            found = self._job(turns, entry, turns.queues.position(entry.key) or 0, seen)
        self._wait_until_written(turns, entry)
        return found

    def _wait_until_written(self, turns: Turns, entry: JobRecord) -> None:
        """Raises UserError (503)."""

        def is_known() -> bool:
            is_left = self._controller.turns is not turns or turns.queues.entries.get(entry.key) is not entry
            return is_left or entry.is_written or (bool(entry.refusal) and entry.written is None)

        if not self._controller.wait_for(is_known, WRITE_S) or not entry.is_written:
            why = entry.refusal or "the API server has not answered, or another replica leads"
            raise UserError(
                f"{entry.job.ref}: this counts, but is not written onto it yet, and lost if hived ends before: {why}. "
                "It is tried again; hived get queue shows whether it still counts",
                503,
            )

    def _placed(self, turns: Turns, queue: str) -> list[tuple[JobRecord, int]]:
        """The jobs of a queue, or of all, with their places: those that wait in order, then the others with 0."""
        names = turns.known.with_others(turns.queues.queues())
        if queue and queue not in names:
            raise UserError(f"there is no queue {queue!r}; {near_queues(queue, names)}", 404)
        found: list[tuple[JobRecord, int]] = []
        for name in [queue] if queue else names:
            with self._controller.look():
                lines, entries = turns.queues.lines(name), turns.queues.entries
            order = [(entries.get(key), place) for place, key in enumerate(in_order(lines), 1)]
            found += [(entry, place) for entry, place in order if entry is not None]
        for entry in listed(turns):
            is_asked = not queue or queue == (entry.too_large_for if entry.asks is None else entry.asks.queue)
            if is_asked and (entry.life is not Life.WAITING or entry.asks is None):
                found.append((entry, 0))
        return found

    def _turns(self) -> Turns:
        if self._controller.turns is None:
            if self._controller.queueing.is_enabled:
                raise UserError("queues are about to begin, or another replica leads: try again in a moment", 503)
            raise UserError("queues are not enabled: see the key queues of the configuration", 503)
        return self._controller.turns

    def _job(
        self, turns: Turns, entry: JobRecord, position: int, seen: Seen = None, over: Mapping[str, str] | None = None,
        known: Known | None = None, troubles: Mapping[str, str] | None = None,
    ) -> QueuedJob:  # fmt: skip
        """`over` has the jobs that are above a quota that was lowered, with the quota; `known` as `Queues.why`."""
        unit, asked, reason = entry.asks, _asked(entry), turns.queues.why(entry.key, position, known)
        tally, waits, state = entry.job.tally, entry.life is Life.WAITING, _state(entry, reason)
        found, is_held = _told(turns, entry, reason, seen), entry.kept.is_on_hold or turns.is_inactive(entry.job.ref)
        held = HELD_LATER if is_held and not waits else ""
        trouble = (troubles or {}).get(str(entry.job.ref), "") if entry.life.has_cells else ""
        troubled = f"; {trouble}" if trouble else ""
        above = f"; above quota {over[entry.key]}, which was lowered" if over and entry.key in over else ""
        return QueuedJob(
            name=str(entry.job.ref),
            api_version="" if entry.job.ref.kind == gangs.KIND else entry.job.ref.api_version,
            namespace=entry.job.ref.namespace,
            queue=unit.queue if unit is not None else entry.too_large_for,
            vc=asked.virtual_cluster if asked is not None else "",
            user=_user(entry),
            priority=asked.priority if asked is not None else None,
            is_borrowed=entry.is_borrowed,
            position=0 if state == "Refused" else position,
            state=state,
            since=waits_since(entry) if waits else entry.since_s,
            reason=entry.problem or found.sentence + troubled + above + held,
            gpus=_gpus(entry),
            asks=_asks(asked, turns.queues.topology, unit) if asked is not None else "",
            cause=found.cause,
            when=found.when,
            preempted=_preempted(turns, entry, seen, looks=known is None),
            counts=PodCounts(wanted=tally.wanted, done=tally.done, failed=tally.failed) if waits else PodCounts(),
        )


def _gpus(entry: JobRecord) -> int:
    asked = _asked(entry)
    return count_leaves(asked.group.members) if asked is not None else 0


def _asks(spec: PodSpec, topology: Topology, unit: Unit | None) -> str:
    leaf_type = spec.leaf_cell_type
    told = asks_of([PodRequest("", "", "", spec)], leaf_type, node_leaves_of(topology, leaf_type))
    minimum = None if unit is None else unit.minimum
    return told if minimum is None else with_minimum(told, minimum.count, minimum.total)


def _told(turns: Turns, entry: JobRecord, reason: Reason | None, seen: Seen) -> Told:
    """All that is told of a job, with the one who holds it, and what its pods wait for."""
    if entry.asks is None and (not_yet := _not_yet(entry)) is not None:
        return told(not_yet, str)
    if entry.asks is None and entry.too_large_for:
        return Told(entry.problem, "never", When(kind="never"))
    if entry.asks is None:
        return Told(entry.problem, "invalid", When(kind="unknown", because="it is in no queue"))
    found, kept = told(reason, namer(turns, seen)), entry.kept
    is_inactive = turns.is_inactive(entry.job.ref)
    if isinstance(reason, Held) or (isinstance(reason, NotYet) and (kept.is_on_hold or is_inactive)):
        unit = "/".join(unit_key(entry.job.ref)) if is_inactive else ""
        why = held_by(unit, is_held=kept.is_held, is_suspended=kept.is_suspended)
        return replace(found, sentence=f"{why}; {found.sentence}" if isinstance(reason, NotYet) else why)
    if entry.life is Life.STARTING and isinstance(reason, Running):
        return replace(found, sentence=STARTING)
    return found


def _not_yet(entry: JobRecord) -> NotYet | None:
    """The moment or jobs that its author has it wait for; None if it may start."""
    wait = entry.start_wait
    return None if wait is None else NotYet(wait.sentence, wait.begin_s, wait.is_never)


def _preempted(turns: Turns, entry: JobRecord, seen: Seen, *, looks: bool) -> Preempted | None:
    """Return when a job without cells was suspended, if that was for another job.

    A winner of a namespace outside of `seen` is masked. One of another namespace that an earlier term chose has its
    uid as its name if it is gone, and unless the caller `looks`.
    """
    winner, ref = entry.kept.evicted_for, entry.job.ref
    if winner and winner == masked(entry.evicted_for, ref.namespace):
        winner = entry.evicted_for
    parts = parts_of(winner)
    uid = uid_of(winner) if parts or winner == f"job {uid_of(winner)}" else ""
    if entry.life.has_cells or not uid or uid == ref.uid:
        return None
    if not parts and looks:
        entries = turns.queues.entries.values()
        parts = next((parts_of(one.job.ref.key) for one in entries if one.job.ref.uid == uid), parts)
    namespace = parts[1] if parts else ""
    is_shown = seen is None or namespace in seen
    name = "/".join(parts[:-1]) or winner
    return Preempted(at=rfc3339(entry.kept.since_s), by=name if is_shown else MASKED, namespace=namespace * is_shown)


def _asked(entry: JobRecord) -> PodSpec | None:
    """The request of a job, None if that could not be read."""
    return entry.asks.spec if entry.asks is not None else entry.spec


def _state(entry: JobRecord, reason: Reason | None) -> str:
    if (wait := entry.start_wait) is not None and entry.life is Life.WAITING:
        return "Refused" if wait.is_never else "Held"
    if entry.asks is None:
        return "Waiting" if gangs.waits_for_pods(entry.problem) else "Refused"
    if entry.life is Life.WAITING:
        is_never = isinstance(reason, Impossible | NeverFits)
        return "Held" if isinstance(reason, Held) else "Refused" if is_never else "Waiting"
    return _STATES[entry.life]


def _user(entry: JobRecord) -> str:
    """Its user, "" if nothing says so; limits count it for its namespace then."""
    return user_said(entry.job.labels, entry.job.annotations)
