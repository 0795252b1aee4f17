"""Two runs side by side, with confidence: the same trace, its durations drawn again from those of like jobs."""

import random
from collections.abc import Callable, Mapping, Sequence
from math import sqrt

import msgspec

from hived_simulator.summaries import Summary
from hived_simulator.traces.jobs import Trace

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
