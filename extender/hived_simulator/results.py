"""Results of runs: the outcome of each job, figures of virtual clusters, differences of two runs with confidence."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from math import ceil, sqrt
from typing import NamedTuple

import msgspec

from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived_simulator.tasks import CAUSE_NAMES, NEVER, Cause, Phase, Task
from hived_simulator.traces.jobs import Trace

HOUR_S = 3600.0


class JobKind(StrEnum):
    """One pod, several that start together, or several that start one by one."""

    POD = "pod"
    GANG = "gang"
    ELASTIC = "elastic"


class Outcome(NamedTuple):
    """One job of one run. Seconds since the trace's start; None if that has not happened.

    started_s, ended_s : of its first pod, of its last pod
    delay_s : from submission to start
    stretch_s : from submission to end, without the time that it needs to run
    waited_s : all waiting, that after evictions included; of the pod that waited longest
    lost_leaf_s : leaf-seconds of work that evictions undid
    kind : whether its pods start together
    level, best_level : of the lowest cell that held all pods of a gang at its first start, and that could at best; 0 if
        it never started; of an elastic job those of its first pod
    cause : why it waited longest, by the name of `Cause`; "" if it never waited
    """

    job: int
    vc: str
    leaf_count: int
    pod_count: int
    kind: JobKind
    priority: int
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    delay_s: float | None
    stretch_s: float | None
    waited_s: float
    is_guaranteed_start: bool
    eviction_count: int
    lost_leaf_s: float
    level: int
    best_level: int
    cause: str
    reason: str


class Excess(NamedTuple):
    """By how much a job starts and ends later than in its private cluster, in seconds; below 0 if earlier.

    None where it does so in one of the two only, or in none.
    """

    start_s: float | None
    end_s: float | None


def outcomes(tasks: Sequence[Task], best_levels: Sequence[int]) -> list[Outcome]:
    """The outcome of each job, by the order of the trace. `best_levels` is by task."""
    numbered = zip(tasks, best_levels, strict=True)
    return [_outcome(list(parts)) for _, parts in groupby(numbered, key=lambda each: each[0].place[0])]


def _outcome(parts: Sequence[tuple[Task, int]]) -> Outcome:
    tasks = [task for task, _ in parts]
    first, longest = tasks[0], max(tasks, key=lambda task: sum(task.waited_s))
    starts = [task.first_s for task in tasks if task.first_s != NEVER]
    started_s = min(starts, default=None)
    is_over = all(task.phase is Phase.ENDED for task in tasks)
    ended_s = max(task.ended_s for task in tasks) if is_over else None
    waits = longest.waited_s[: Cause.REFUSED]
    refused = next((task for task in tasks if _is_refused(task)), None)
    cause = CAUSE_NAMES[Cause.REFUSED] if refused is not None else ""
    if not cause and any(waits):
        cause = CAUSE_NAMES[max(range(len(waits)), key=lambda each: waits[each])]
    return Outcome(
        job=first.place[0],
        vc=first.vc,
        leaf_count=sum(task.shape.leaf_count for task in tasks),
        pod_count=sum(count for task in tasks for count, _ in task.shape.pods),
        kind=_kind(first),
        priority=first.priority,
        submitted_s=first.submitted_s,
        started_s=started_s,
        ended_s=ended_s,
        delay_s=None if started_s is None else started_s - first.submitted_s,
        stretch_s=None if ended_s is None else max(0.0, ended_s - first.submitted_s - first.duration_s),
        waited_s=sum(waits),
        is_guaranteed_start=first.is_guaranteed_start,
        eviction_count=sum(task.eviction_count for task in tasks),
        lost_leaf_s=sum(task.lost_s * task.shape.leaf_count for task in tasks),
        level=first.level,
        best_level=parts[0][1] if starts else 0,
        cause=cause,
        reason="" if refused is None else refused.reason,
    )


def _kind(first: Task) -> JobKind:
    if first.shape.is_elastic:
        return JobKind.ELASTIC
    return JobKind.GANG if sum(count for count, _ in first.shape.pods) > 1 else JobKind.POD


def _is_refused(task: Task) -> bool:
    """True if it cannot run in its virtual cluster, and has not run elsewhere."""
    is_waiting = task.phase is Phase.WAITING and task.cause is Cause.REFUSED
    return task.phase is Phase.REFUSED or is_waiting


def excesses(found: Sequence[Outcome], private: Sequence[Outcome]) -> Iterator[Excess]:
    """By how much each job is later than in its private cluster, in the order of the trace."""
    for own, other in zip(found, private, strict=True):
        yield Excess(_later(own.started_s, other.started_s), _later(own.ended_s, other.ended_s))


def _later(own_s: float | None, other_s: float | None) -> float | None:
    return None if own_s is None or other_s is None else own_s - other_s


ALL = "all"
SLIGHT_S = 0.001
"""Starts that are nearer to each other are at the same time: sums of seconds are rounded."""


class Delays(msgspec.Struct, frozen=True):
    """Delays of guaranteed jobs in seconds: percentiles are those of the nearest rank.

    never : jobs that all these figures leave out, as they never started; of stretches, as they never ended
    """

    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    max: float = 0.0
    never: int = 0


class Later(msgspec.Struct, frozen=True):
    """Guaranteed jobs against their private clusters; the sharing anomaly.

    count : jobs that start later, and jobs that start in the private cluster only
    mean_s, max_s, over_60_min, over_600_min : by how much, and jobs that start more than so much later, of those that
        start
    never : of `count`, jobs that start in the private cluster only
    ends : jobs that end later
    """

    count: int = 0
    mean_s: float = 0.0
    max_s: float = 0.0
    over_60_min: int = 0
    over_600_min: int = 0
    never: int = 0
    earlier: int = 0
    ends: int = 0
    ends_max_s: float = 0.0


class Summary(msgspec.Struct, frozen=True):
    """One virtual cluster, or all, in one run.

    leaf_cells : promised ones at the start; of all: those of the whole cluster
    jobs, opportunistic_jobs : as submitted; never_started of both
    delay, stretch : of guaranteed jobs
    utilisation : leaf-hours used until the last submission, per promised leaf-hour until then; of all: per leaf-hour of
        the whole cluster, under private clusters, too
    lent_share : the part of these leaf-hours that ran opportunistically
    gangs : jobs of several pods that start together, and have started
    optimal_gangs : of these, in a cell of the lowest level possible
    """

    vc: str
    leaf_cells: int
    jobs: int
    opportunistic_jobs: int
    never_started: int
    delay: Delays
    stretch: Delays
    later: Later | None
    utilisation: float
    lent_share: float
    evictions: int
    evicted_jobs: int
    lost_leaf_hours: float
    gangs: int
    optimal_gangs: int

    @property
    def never_told(self) -> str:
        """Jobs that never started as text: those that `delay` leaves out, and opportunistic ones if there are any."""
        others = self.never_started - self.delay.never
        return f"{self.delay.never:,}" + (f" + {others:,} opportunistic" if others else "")


class Usage(msgspec.Struct):
    """Leaf-seconds until the last submission, `lent_s` of them opportunistic."""

    used_s: float = 0.0
    lent_s: float = 0.0


class Promises(msgspec.Struct, frozen=True):
    """Leaf cells of the cluster from `at_s` on, and promised ones by virtual cluster."""

    at_s: float
    leaf_count: int
    promised: dict[str, int]


def delays(values: Iterable[float | None]) -> Delays:
    """The figures of some delays, of which None stands for a job that has none."""
    told = list(values)
    ordered = sorted(value for value in told if value is not None)
    never = len(told) - len(ordered)
    if not ordered:
        return Delays(never=never)
    return Delays(sum(ordered) / len(ordered), _rank(ordered, 0.5), _rank(ordered, 0.95), ordered[-1], never)


def _rank(ordered: Sequence[float], part: float) -> float:
    return ordered[max(0, ceil(part * len(ordered)) - 1)]


def later(pairs: Iterable[tuple[Outcome, Excess, Outcome]]) -> Later:
    """The sharing anomaly of some jobs, each with its outcome in the private cluster."""
    starts: list[float] = []
    ends: list[float] = []
    never = earlier = 0
    for own, excess, private in pairs:
        never += own.started_s is None and private.started_s is not None
        if excess.start_s is not None and excess.start_s > SLIGHT_S:
            starts.append(excess.start_s)
        earlier += excess.start_s is not None and excess.start_s < -SLIGHT_S
        if excess.end_s is not None and excess.end_s > SLIGHT_S:
            ends.append(excess.end_s)
    return Later(
        count=len(starts) + never,
        mean_s=sum(starts) / len(starts) if starts else 0.0,
        max_s=max(starts, default=0.0),
        over_60_min=sum(late > HOUR_S for late in starts),
        over_600_min=sum(late > 10 * HOUR_S for late in starts),
        never=never,
        earlier=earlier,
        ends=len(ends),
        ends_max_s=max(ends, default=0.0),
    )


class Against(msgspec.Struct, frozen=True):
    """The private run, job by job, and the differences from it."""

    outcomes: Sequence[Outcome]
    excesses: Sequence[Excess]


class Measured(msgspec.Struct, frozen=True):
    """Beside its jobs a run tells the leaf cells that were there, ascending by time, and their use until `window_s`."""

    promises: Sequence[Promises]
    usage: dict[str, Usage]
    window_s: float

    def there_s(self, vc: str | None = None) -> float:
        """Leaf-seconds that were promised to a virtual cluster until `window_s`; without one, that the cluster had."""
        ends_s = [each.at_s for each in self.promises[1:]] + [self.window_s]
        return sum(
            (each.leaf_count if vc is None else each.promised.get(vc, 0))
            * max(0.0, min(end_s, self.window_s) - each.at_s)
            for each, end_s in zip(self.promises, ends_s, strict=True)
        )


def summaries(found: Sequence[Outcome], measured: Measured, against: Against | None) -> list[Summary]:
    """Of all jobs together, then of each virtual cluster by name."""
    first = measured.promises[0]
    named = {vc for each in measured.promises for vc in each.promised}
    by_vc: dict[str, list[Outcome]] = {vc: [] for vc in sorted({*named, *(one.vc for one in found)})}
    for one in found:
        by_vc[one.vc].append(one)
    total = Usage(
        sum(usage.used_s for usage in measured.usage.values()), sum(usage.lent_s for usage in measured.usage.values())
    )
    rows = [_summary(ALL, found, first.leaf_count, total, measured.there_s(), against)]
    for vc, own in by_vc.items():
        usage = measured.usage.get(vc, Usage())
        rows.append(_summary(vc, own, first.promised.get(vc, 0), usage, measured.there_s(vc), against))
    return rows


def _summary(
    vc: str, found: Sequence[Outcome], leaf_count: int, usage: Usage, there_s: float, against: Against | None
) -> Summary:
    guaranteed = [one for one in found if one.priority != OPPORTUNISTIC_PRIORITY]
    gangs = [one for one in found if one.kind is JobKind.GANG and one.level]
    pairs = (
        [] if against is None else [(one, against.excesses[one.job], against.outcomes[one.job]) for one in guaranteed]
    )
    return Summary(
        vc=vc,
        leaf_cells=leaf_count,
        jobs=len(found),
        opportunistic_jobs=len(found) - len(guaranteed),
        never_started=sum(one.started_s is None for one in found),
        delay=delays(one.delay_s for one in guaranteed),
        stretch=delays(one.stretch_s for one in guaranteed),
        later=None if against is None else later(pairs),
        utilisation=usage.used_s / there_s if there_s else 0.0,
        lent_share=usage.lent_s / usage.used_s if usage.used_s else 0.0,
        evictions=sum(one.eviction_count for one in found),
        evicted_jobs=sum(one.eviction_count > 0 for one in found),
        lost_leaf_hours=sum(one.lost_leaf_s for one in found) / HOUR_S,
        gangs=len(gangs),
        optimal_gangs=sum(one.level <= one.best_level for one in gangs),
    )


_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t, 97.5 %, for 1 to 30 degrees of freedom."""

FIGURES: dict[str, Callable[[Summary], float]] = {
    "mean delay, s": lambda summary: summary.delay.mean,
    "guaranteed jobs never started": lambda summary: summary.delay.never,
    "p95 delay, s": lambda summary: summary.delay.p95,
    "mean stretch, s": lambda summary: summary.stretch.mean,
    "utilisation": lambda summary: summary.utilisation,
    "lent share": lambda summary: summary.lent_share,
    "jobs later than private": lambda summary: 0.0 if summary.later is None else summary.later.count,
    "evictions": lambda summary: summary.evictions,
    "leaf-hours lost": lambda summary: summary.lost_leaf_hours,
    "gangs at the best level": lambda summary: summary.optimal_gangs / summary.gangs if summary.gangs else 0.0,
}


class Difference(msgspec.Struct, frozen=True):
    """A figure of two runs. `first` and `second` are of the trace itself.

    mean, low, high : of second - first over all draws, and the 95 % confidence interval of that mean; None without
        draws
    """

    figure: str
    first_policy: str
    second_policy: str
    first: float
    second: float
    difference: float
    draws: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None


def redrawn(trace: Trace, seed: int, number: int) -> Trace:
    """The trace with the duration of each job drawn from those of its tenant's jobs of its size, with replacement.

    Larger jobs run longer in most traces, so draws over all sizes would change the load. `number` is that of the draw,
    from 1. The same on every machine.
    """
    source = random.Random(f"durations/{seed}/{number}")
    durations: dict[tuple[str, int], list[float]] = {}
    for job in trace.jobs:
        durations.setdefault((job.tenant, job.leaf_count), []).append(job.duration_s)
    jobs = []
    for job in trace.jobs:
        like = durations[job.tenant, job.leaf_count]
        jobs.append(msgspec.structs.replace(job, duration_s=like[int(source.random() * len(like))]))
    return msgspec.structs.replace(trace, jobs=tuple(jobs))


def differences(runs: Mapping[str, Sequence[Summary]]) -> list[Difference]:
    """Every figure of every pair of policies, earlier ones first. `runs` has the totals: of the trace, of each draw."""
    names = list(runs)
    return [
        _difference(figure, first, second, runs)
        for number, first in enumerate(names)
        for second in names[number + 1 :]
        for figure in FIGURES
    ]


def _difference(figure: str, first: str, second: str, runs: Mapping[str, Sequence[Summary]]) -> Difference:
    read = FIGURES[figure]
    pairs = [(read(one), read(other)) for one, other in zip(runs[first], runs[second], strict=True)]
    drawn = [other - one for one, other in pairs[1:]]
    (before, after), interval = pairs[0], confidence(drawn)
    return Difference(figure, first, second, before, after, after - before, len(drawn), *interval)


def confidence(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """The mean of some values, and the ends of its 95 % confidence interval; that needs two values."""
    if not values:
        return None, None, None
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, None, None
    spread = sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    freedom = len(values) - 1
    factor = _T_975[freedom - 1] if freedom <= len(_T_975) else 1.96 + 2.5 / freedom
    half = factor * spread / sqrt(len(values))
    return mean, mean - half, mean + half
