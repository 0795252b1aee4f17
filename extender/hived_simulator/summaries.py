"""Figures of a run: for each virtual cluster, and for all together."""

from collections.abc import Iterable, Sequence
from math import ceil

import msgspec

from hived.specs import OPPORTUNISTIC_PRIORITY
from hived_simulator.outcomes import HOUR_S, Excess, JobKind, Outcome

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
