"""Figures of a run: for each virtual cluster, and for all together."""

from collections.abc import Iterable, Sequence
from math import ceil

import msgspec

from hived.specs import OPPORTUNISTIC_PRIORITY
from hived_simulator.outcomes import HOUR_S, Excess, Outcome

ALL = "all"
SLIGHT_S = 0.001
"""Starts that are nearer to each other are at the same time: sums of seconds are rounded."""


class Delays(msgspec.Struct, frozen=True):
    """Delays of guaranteed jobs in seconds: percentiles are those of the nearest rank."""

    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    max: float = 0.0


class Later(msgspec.Struct, frozen=True):
    """Guaranteed jobs against their private clusters; the sharing anomaly.

    count : jobs that start later; mean_s and max_s are by how much, of these
    over_60_min, over_600_min : jobs that start more than so much later
    never : jobs that start in the private cluster only
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

    leaf_cells : promised ones at the start
    jobs, opportunistic_jobs : as submitted; never_started of both
    delay, stretch : of guaranteed jobs
    utilisation : leaf-hours used until the last submission, per promised leaf-hour until then; of all: per leaf-hour of
        the cluster
    lent_share : the part of these leaf-hours that ran opportunistically
    optimal_gangs : of `gangs` that started, those in a cell of the lowest level possible
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


class Usage(msgspec.Struct):
    """Leaf-seconds until the last submission, `lent_s` of them opportunistic."""

    used_s: float = 0.0
    lent_s: float = 0.0


def delays(values: Sequence[float]) -> Delays:
    """The figures of some delays."""
    if not values:
        return Delays()
    ordered = sorted(values)
    return Delays(sum(ordered) / len(ordered), _rank(ordered, 0.5), _rank(ordered, 0.95), ordered[-1])


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
        count=len(starts),
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
    """What a run tells beside its jobs: leaf cells promised, used until `window_s`, and of the whole cluster."""

    promised: dict[str, int]
    usage: dict[str, Usage]
    leaf_count: int
    window_s: float


def summaries(found: Sequence[Outcome], measured: Measured, against: Against | None) -> list[Summary]:
    """Of all jobs together, then of each virtual cluster by name."""
    by_vc: dict[str, list[Outcome]] = {vc: [] for vc in sorted({*measured.promised, *(one.vc for one in found)})}
    for one in found:
        by_vc[one.vc].append(one)
    total = Usage(
        sum(usage.used_s for usage in measured.usage.values()), sum(usage.lent_s for usage in measured.usage.values())
    )
    rows = [_summary(ALL, found, measured.leaf_count, total, measured.window_s, against)]
    for vc, own in by_vc.items():
        usage = measured.usage.get(vc, Usage())
        rows.append(_summary(vc, own, measured.promised.get(vc, 0), usage, measured.window_s, against))
    return rows


def _summary(
    vc: str, found: Sequence[Outcome], leaf_count: int, usage: Usage, window_s: float, against: Against | None
) -> Summary:
    guaranteed = [one for one in found if one.priority != OPPORTUNISTIC_PRIORITY]
    gangs = [one for one in found if one.is_gang and one.level]
    there_s = leaf_count * window_s
    pairs = (
        [] if against is None else [(one, against.excesses[one.job], against.outcomes[one.job]) for one in guaranteed]
    )
    return Summary(
        vc=vc,
        leaf_cells=leaf_count,
        jobs=len(found),
        opportunistic_jobs=len(found) - len(guaranteed),
        never_started=sum(one.started_s is None for one in found),
        delay=delays([one.delay_s for one in guaranteed if one.delay_s is not None]),
        stretch=delays([one.stretch_s for one in guaranteed if one.stretch_s is not None]),
        later=None if against is None else later(pairs),
        utilisation=usage.used_s / there_s if there_s else 0.0,
        lent_share=usage.lent_s / usage.used_s if usage.used_s else 0.0,
        evictions=sum(one.eviction_count for one in found),
        evicted_jobs=sum(one.eviction_count > 0 for one in found),
        lost_leaf_hours=sum(one.lost_leaf_s for one in found) / HOUR_S,
        gangs=len(gangs),
        optimal_gangs=sum(one.level <= one.best_level for one in gangs),
    )
