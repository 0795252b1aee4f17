"""Figures of jobs in queues as a table in Markdown, and as a plot."""

from collections.abc import Sequence

import msgspec

from hived_simulator.report import svg
from hived_simulator.report.plots import Bar, bar_plot
from hived_simulator.results import Delays

_MEAN, _P95 = "mean", "from the mean to P95"


class Figures(msgspec.Struct, frozen=True):
    """A policy's run of a trace; delays in seconds.

    large_jobs, large_delay : of jobs with 16 leaf cells or more
    utilisation : the part of all leaf-hours until the last submission that was used
    end_s : when the last job ended
    lost_hours : leaf-hours of work that had to be done again
    borrowed_hours, given_back_hours : leaf-hours of runs on borrowed cells, and of those that ended by being taken back
    over_bound : jobs that started later than their own schedule plus the grace period; None without queues
    later, later_most_s : jobs that start later than where nobody borrows, plus the grace period, and by how much at
        most; None if nobody borrows
    """

    policy: str
    jobs: int
    delay: Delays
    large_jobs: int
    large_delay: Delays
    utilisation: float
    end_s: float
    lost_hours: float
    evictions: int
    borrowed_hours: float = 0.0
    given_back_hours: float = 0.0
    over_bound: int | None = None
    later: int | None = None
    later_most_s: float | None = None


def table(figures: Sequence[Figures]) -> str:
    """A table in Markdown; delays in minutes."""
    head = (
        "Policy", "16+ GPUs: mean", "P95", "longest", "All jobs: mean", "P95", "longest", "GPUs in use",
        "GPU-h borrowed", "GPU-h lost", "Evictions", "Later than alone",
    )  # fmt: skip
    rows = [head, ("---", *["---:"] * (len(head) - 1)), *map(_row, figures)]
    first = figures[0]
    large = f"{first.large_delay.never} of {first.large_jobs:,} large"
    never = f"Never started: {first.delay.never} of {first.jobs:,} jobs, {large}. Delays are minutes."
    return "\n".join(["| " + " | ".join(row) + " |" for row in rows] + ["", never])


def _row(one: Figures) -> tuple[str, ...]:
    delays = (each for own in (one.large_delay, one.delay) for each in (own.mean, own.p95, own.max))
    later = "" if one.later is None else f"{one.later:,}"
    if one.later_most_s:
        later += f" (most {_minutes(one.later_most_s)})"
    return (
        f"`{one.policy}`", *map(_minutes, delays), f"{one.utilisation:.1%}", f"{one.borrowed_hours:,.0f}",
        f"{one.lost_hours:,.0f}", f"{one.evictions:,}", later,
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
        found.append(Bar(one.policy, note, [(_MEAN, mean), (_P95, max(0.0, p95 - mean))]))
    title = f"Delay of {figures[0].large_jobs:,} gangs of 16 GPUs and more"
    drawn = bar_plot(title, f"{title}, by policy: mean and 95th percentile.", "minutes", strokes, found)
    return svg.alone(drawn, list(strokes.items()), is_area=True)
