"""Starts that the author of a job asks for: a moment, and jobs that have to end first (rules 24.15 to 24.18).

Both are annotations of the job, or of the pods of a gang, so they outlive every process. Whoever follows jobs judges
them by the jobs that it has seen. The job is suspended, or gated, until both say yes, and they mean nothing after that.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.job import Job, JobName, JobState, typed
from hived_extender.jobs.kinds import gangs, marks, table
from hived_extender.jobs.progress import read_time, write_time

MOST_AWAITED = 100
"""Jobs that one job waits for."""

Condition = Literal["afterok", "afterany"]
_CONDITIONS: Mapping[str, Condition] = {"afterok": "afterok", "afterany": "afterany"}

NO_WORDS: Mapping[str, None] = {marks.BEGIN: None, marks.AFTER: None}
"""Annotations that remove an author's word about the start."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")


class Awaited(msgspec.Struct, frozen=True):
    """A job of the same namespace that has to end first, in success if `afterok`. With a uid only that very one."""

    condition: Condition
    group: str
    kind: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        """As the annotation has it."""
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        return f"{self.condition}:{kind}/{self.name}" + f"/{self.uid}" * bool(self.uid)

    def job_name(self, namespace: str) -> JobName:
        """The job, for one of this namespace."""
        return JobName(self.group, self.kind, namespace, self.name)


class Start(msgspec.Struct, frozen=True):
    """The earliest start of a job: `begin_s`, in seconds since 1970, and the end of all of `after`."""

    begin_s: float | None = None
    after: tuple[Awaited, ...] = ()


class StartWait(msgspec.Struct, frozen=True):
    """The reason why a job may not start yet: before `begin_s`, or until others end; `is_never`: nothing will let it.

    `left` are the jobs that it still waits for.
    """

    sentence: str
    begin_s: float | None = None
    is_never: bool = False
    left: tuple[Awaited, ...] = ()


class Jobs(Protocol):
    """The jobs that are followed."""

    def job_of(self, name: JobName, /) -> Job | None:
        """A job that is there."""

    def maker_of(self, name: JobName, /) -> JobName | None:
        """The job that made this one, which is not followed by itself therefore."""

    def end_of(self, name: JobName, uid: str, /) -> JobState | None:
        """Return how a job ended that is gone, None if that is not known."""

    def unseen(self, name: JobName, uid: str, /) -> str:
        """Return why a job that is not there may yet be, as a clause of a sentence; "" if it is known to be gone."""


def is_timed(annotations: Mapping[str, str]) -> bool:
    """Does an author say when a job may start?"""
    return marks.BEGIN in annotations or marks.AFTER in annotations


def is_early(annotations: Mapping[str, str], now_s: float) -> bool:
    """Does an author not let a job start yet, as far as its annotations alone say?"""
    try:
        start = read_start(annotations)
    except UserError:
        return True
    return bool(start.after) or (start.begin_s is not None and now_s < start.begin_s)


def read_start(annotations: Mapping[str, str]) -> Start:
    """The word of its author. Raises UserError, which names the annotation."""
    begin, after = annotations.get(marks.BEGIN), annotations.get(marks.AFTER)
    try:
        begin_s = None if begin is None else read_time(begin)
    except UserError as error:
        raise UserError(f"annotation {marks.BEGIN}: {error.message}") from None
    parts = [part.strip() for part in (after or "").split(",") if part.strip()]
    if len(parts) > MOST_AWAITED:
        raise UserError(f"annotation {marks.AFTER}: found {len(parts)} jobs, expected at most {MOST_AWAITED}")
    return Start(begin_s, tuple(map(_awaited, parts)))


def _awaited(text: str) -> Awaited:
    word, _, rest = text.partition(":")
    parts = rest.split("/")
    if word not in _CONDITIONS or len(parts) not in (2, 3) or not all(map(_WORD.fullmatch, parts)):
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise UserError(
            f"annotation {marks.AFTER}: found {shown!r}, expected afterok:KIND.GROUP/NAME/UID or afterany:..., such as "
            "afterok:Job.batch/prepare"
        )
    kind, _, group = parts[0].partition(".")
    return Awaited(_CONDITIONS[word], group, kind, *parts[1:])


def written_after(after: Iterable[Awaited]) -> str | None:
    """The annotation of what a job still waits for (rule 24.18); None without any, which removes it."""
    return ",".join(map(str, after)) or None


def wait_of(job: Job, now_s: float, jobs: Jobs, never: dict[JobName, bool] | None = None) -> StartWait | None:
    """Return why a job may not start yet by the word of its author (rule 24.15); None if it may.

    `never` keeps which jobs never start, for those who ask about many jobs at one moment: all of them cost O(jobs, and
    jobs that these wait for).
    """
    mine = typed(job.ref.name, job.ref.namespace)
    try:
        start = read_start(job.annotations)
    except UserError as error:
        text = f"{error.message}; it starts once that is corrected or removed, or by hived release {mine} --now"
        return StartWait(text, is_never=True)
    never = {} if never is None else never
    left = [one for one in start.after if not _has_ended_well(one, job, jobs)]
    for one in left:
        if why := _never(one, job, jobs, never):
            remedy = f"hived release {mine} --now starts it all the same"
            return StartWait(
                f"waits for {one.kind} {one.name}, {why}: it never starts; {remedy}", is_never=True, left=start.after
            )
    is_early = start.begin_s is not None and now_s < start.begin_s
    if left:
        later = f", and begins at {write_time(start.begin_s)} at the earliest" if start.begin_s and is_early else ""
        return StartWait(f"waits until {_ends_wanted(left, job, jobs)}{later}", left=tuple(left))
    if start.begin_s is not None and is_early:
        return StartWait(f"begins at {write_time(start.begin_s)}, as its author says", start.begin_s)
    return None


_NAMED = 3
"""Jobs that a sentence names."""


def _ends_wanted(left: Sequence[Awaited], job: Job, jobs: Jobs) -> str:
    """The jobs that one waits for, and the end of each that it wants: those of one condition together."""
    shown, parts = left[:_NAMED], []
    for condition, end in (("afterok", "succeeded"), ("afterany", "ended")):
        names = [_named(one, job, jobs) for one in shown if one.condition == condition]
        more = sum(one.condition == condition for one in left) - len(names)
        names += [f"{more} more"] * bool(more)
        if names:
            parts.append(f"{' and '.join(names)} {'has' if len(names) == 1 and more <= 1 else 'have'} {end}")
    return ", and ".join(parts)


def _named(one: Awaited, job: Job, jobs: Jobs) -> str:
    """A job that is waited for, with a clause if it is not seen."""
    why = "" if is_seen(one, job, jobs) else jobs.unseen(one.job_name(job.ref.namespace), one.uid)
    return f"{one.kind} {one.name}" + f", {why}," * bool(why)


def _has_ended_well(one: Awaited, job: Job, jobs: Jobs) -> bool:
    """Has a job ended as the one that waits for it wants it (rule 24.16)?"""
    state = _end_of(one, job, jobs)
    return state is JobState.SUCCEEDED or (state is not None and one.condition == "afterany")


def is_seen(one: Awaited, job: Job, jobs: Jobs) -> bool:
    """Is the job that another one waits for among those that are followed, or was it until its end?"""
    name = one.job_name(job.ref.namespace)
    found = jobs.job_of(name)
    return (found is not None and one.uid in ("", found.ref.uid)) or jobs.end_of(name, one.uid) is not None


def _end_of(one: Awaited, job: Job, jobs: Jobs) -> JobState | None:
    """Return how a job has ended; one that is gone and of which nothing is known has failed, as far as others can tell.

    A job that is not seen has not ended by that: the watch of its kind may be behind (rule 24.16).
    """
    name = one.job_name(job.ref.namespace)
    found = jobs.job_of(name)
    if found is not None and one.uid in ("", found.ref.uid):
        return found.state if found.state.is_over else None
    if not one.uid:
        return None
    return jobs.end_of(name, one.uid) or (None if jobs.unseen(name, one.uid) else JobState.FAILED)


def _never(one: Awaited, job: Job, jobs: Jobs, never: dict[JobName, bool]) -> str:
    """Return why a job that is waited for will never end as it should (rule 24.17), "" if it may."""
    name = one.job_name(job.ref.namespace)
    if (why := _lost(one, job, jobs)) or not _never_starts(name, jobs, never):
        return why
    waits_for_it = name == job.ref.job_name or job.ref.job_name in (_ahead(name, jobs) or ())
    return "which waits for it" if waits_for_it else "which never starts itself"


def _lost(one: Awaited, job: Job, jobs: Jobs) -> str:
    """The same, without a look at the jobs for which that one waits."""
    if _end_of(one, job, jobs) is not None:
        return "which has failed" if is_seen(one, job, jobs) else "which was deleted before it was seen to succeed"
    if is_seen(one, job, jobs):
        return ""
    if not _may_be_followed(one):
        return "of a kind that hived does not follow"
    maker = jobs.maker_of(one.job_name(job.ref.namespace))
    return "" if maker is None else f"which {maker.kind} {maker.name} has made: name that one"


def _may_be_followed(one: Awaited) -> bool:
    return (one.group, one.kind) == ("", gangs.KIND) or table.kind_called(one.group, one.kind) is not None


def _never_starts(name: JobName, jobs: Jobs, never: dict[JobName, bool]) -> bool:
    """Does a job wait, perhaps through others, for one that never ends as it should, or in a circle?

    What is found of jobs on the way goes into `never`. They may be many, so this does not recurse.
    """
    way: dict[JobName, Iterator[JobName]] = {}  # each waits for the next one
    one: JobName | None = name
    while True:
        if one is None:
            never[way.popitem()[0]] = False
        elif one in way or one not in never:
            ahead = None if one in way else _ahead(one, jobs)
            if ahead is None:
                never.update(dict.fromkeys((*way, one), True))
                return True
            way[one] = iter(ahead)
        elif never[one]:
            never.update(dict.fromkeys(way, True))
            return True
        if not way:
            return False
        one = next(way[next(reversed(way))], None)


def _ahead(name: JobName, jobs: Jobs) -> list[JobName] | None:
    """The jobs that one still waits for by its author's word; None if it never starts, whatever becomes of them."""
    job = jobs.job_of(name)
    if job is None or job.state is not JobState.HELD or not is_timed(job.annotations):
        return []
    try:
        left = [one for one in read_start(job.annotations).after if not _has_ended_well(one, job, jobs)]
    except UserError:
        return None
    is_lost = any(_lost(one, job, jobs) for one in left)
    return None if is_lost else [one.job_name(job.ref.namespace) for one in left]
