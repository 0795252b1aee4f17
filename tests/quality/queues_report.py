"""Figures of jobs in queues as a table in Markdown, and as a plot."""

from collections.abc import Sequence

import msgspec

from hived_simulator.report import bars, svg
from hived_simulator.summaries import Delays

_MEAN, _P95 = "mean", "from the mean to P95"


class Figures(msgspec.Struct, frozen=True):
    """A policy's run of a trace; delays in seconds.

    large_jobs, large_delay : of jobs with 16 leaf cells or more
    utilisation : the part of all leaf-hours until the last submission that was used
    end_s : when the last job ended
    borrowed_hours, given_back_hours : leaf-hours of runs on borrowed cells, and of those that ended by being taken back
    lost_hours : leaf-hours of work that had to be done again
    over_bound : jobs that started later than their own schedule plus the grace period
    later, later_most_s : jobs that start later than where nobody borrows, plus the grace period; by how much at most
    """

    policy: str
    jobs: int
    delay: Delays
    large_jobs: int
    large_delay: Delays
    utilisation: float
    end_s: float
    borrowed_hours: float
    given_back_hours: float
    lost_hours: float
    evictions: int
    over_bound: int
    later: int = 0
    later_most_s: float = 0.0


def table(figures: Sequence[Figures]) -> str:
    """A table in Markdown; delays in minutes."""
    head = (
        "Policy", "Mean, min", "P50", "P95", "Large: mean, min", "P50", "P95", "GPUs in use", "GPU-h borrowed",
        "given back", "lost", "Evictions", "Over the bound", "Later than alone",
    )  # fmt: skip
    rows = [head, ("---", *["---:"] * (len(head) - 1)), *map(_row, figures)]
    first = figures[0]
    large = f"{first.large_delay.never} of {first.large_jobs:,} large"
    never = f"Never started: {first.delay.never} of {first.jobs:,} jobs, {large}."
    return "\n".join(["| " + " | ".join(row) + " |" for row in rows] + ["", never])


def _row(one: Figures) -> tuple[str, ...]:
    delays = [each for own in (one.delay, one.large_delay) for each in (own.mean, own.p50, own.p95)]
    hours = (one.borrowed_hours, one.given_back_hours, one.lost_hours)
    later = f"{one.later:,}" + (f" (most {_minutes(one.later_most_s)} min)" if one.later else "")
    return (
        f"`{one.policy}`", *map(_minutes, delays), f"{one.utilisation:.1%}", *(f"{each:,.0f}" for each in hours),
        f"{one.evictions:,}", f"{one.over_bound:,}", later,
    )  # fmt: skip


def _minutes(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:,.0f}" if minutes >= 100 else f"{minutes:.1f}"


def picture(figures: Sequence[Figures]) -> str:
    """Mean and P95 of large gangs' delays, as a file of SVG."""
    strokes = {_MEAN: svg.Stroke(0), _P95: svg.Stroke(1)}
    found = []
    for one in figures:
        mean, p95 = one.large_delay.mean / 60, one.large_delay.p95 / 60
        note = f"mean {_minutes(one.large_delay.mean)}, P95 {_minutes(one.large_delay.p95)}"
        found.append(bars.Bar(one.policy, note, [(_MEAN, mean), (_P95, max(0.0, p95 - mean))]))
    title = f"Delay of {figures[0].large_jobs:,} gangs of 16 GPUs and more"
    drawn = bars.plot(title, f"{title}, by policy: mean and 95th percentile.", "minutes", strokes, found)
    return svg.alone(drawn, list(strokes.items()), is_area=True)
