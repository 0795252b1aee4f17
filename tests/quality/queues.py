"""Large gangs with and without backfill, in queues, on a trace: `python -m tests.quality.queues --trace FILE`.

Each policy runs the whole trace by `rules: 2` in virtual time. Progress goes to stderr, tables go to stdout. The same
commit prints the same figures on any machine, however many processes take part. docs/queues-measured.md explains them.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path
from time import monotonic

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import Rules
from hived_simulator.loop import Loop
from hived_simulator.plan import Options, Plan, make_plan
from hived_simulator.queued import QueuedLoop
from hived_simulator.report import svg
from hived_simulator.report.plots import Bar, bar_plot
from hived_simulator.results import HOUR_S, SLIGHT_S, Delays, Outcome, delays, outcomes
from hived_simulator.traces.fields import parse_duration
from tests.driver import new_parser, process_count, run_all
from tests.places import ROOT

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


LARGE = 16
"""Leaf cells of a large gang, at the least."""

PHILLY = ROOT / "examples" / "philly"
NO_QUEUES = "no queues"
POLICIES = {
    NO_QUEUES: None,
    "queue-block:alone": None,
    "queue-priority:alone": None,
    "queue:alone": None,
    "queue-block": "queue-block:alone",
    "queue-priority": "queue-priority:alone",
    "queue": "queue:alone",
}
"""The policies; those that borrow each with the one that orders alike and does not."""


class Run(msgspec.Struct, frozen=True):
    """A policy's run of the trace: its figures, and when each job started, None if never."""

    figures: Figures
    started_s: list[float | None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all policies and print; returns the exit code."""
    given = parse_options(arguments)
    try:
        plan = study_of(given.config, given.trace, given.options)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    runs = dict(zip(POLICIES, run_all(list(POLICIES), partial(run, plan), given.jobs), strict=True))
    figures = [_with_later(name, runs, given.options.grace_s) for name in POLICIES]
    if given.plot is not None:
        given.plot.write_text(picture(figures))
    print(msgspec.json.encode(figures).decode() if given.json else table(figures))
    return 0


def study_of(config: Path, trace: Path, options: Options) -> Plan:
    """The plan of a study, by `rules: 2`. Raises UserError for files that cannot be used."""
    queued = tuple(name for name in POLICIES if name != NO_QUEUES)
    plan = make_plan(config, trace, replace(options, against=queued, has_backfill=True))
    return replace(plan, specs={name: with_fields(spec, rules=Rules.BETTER) for name, spec in plan.specs.items()})


def run(plan: Plan, name: str) -> Run:
    """One policy's run of the trace."""
    planned = "hived" if name == NO_QUEUES else name.replace(":", "-")
    policy = next(policy for policy in plan.policies if policy.name == planned)
    loop, began = plan.loop(policy, plan.trace), monotonic()
    loop.run()
    print(f"{name}: {monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    found = outcomes(loop.tasks, [0] * len(loop.tasks))
    return Run(_figures(name, loop, found, plan.options.grace_s), [one.started_s for one in found])


def _figures(name: str, loop: Loop, found: Sequence[Outcome], grace_s: float) -> Figures:
    used_s = sum(usage.used_s for usage in loop.usage.values())
    there_s = loop.cluster.measure().leaf_count * min(loop.window_s, loop.now.at_s)
    figures = Figures(
        policy=name,
        jobs=len(found),
        delay=delays(one.delay_s for one in found),
        large_jobs=sum(one.leaf_count >= LARGE for one in found),
        large_delay=delays(one.delay_s for one in found if one.leaf_count >= LARGE),
        utilisation=used_s / there_s if there_s else 0.0,
        end_s=max((one.ended_s for one in found if one.ended_s is not None), default=0.0),
        lost_hours=sum(one.lost_leaf_s for one in found) / HOUR_S,
        evictions=sum(one.eviction_count for one in found),
    )
    if not isinstance(loop, QueuedLoop):
        return figures
    return replace(
        figures,
        borrowed_hours=loop.borrowed_s / HOUR_S,
        given_back_hours=loop.given_back_s / HOUR_S,
        over_bound=sum(late_s > grace_s + SLIGHT_S for late_s in loop.late_s.values()),
    )


def _with_later(name: str, runs: dict[str, Run], grace_s: float) -> Figures:
    """The figures, with starts compared to the run in which nobody borrows."""
    own, alone = runs[name], POLICIES[name]
    if alone is None:
        return own.figures
    starts = zip(own.started_s, runs[alone].started_s, strict=True)
    pairs = [(start, other) for start, other in starts if other is not None]
    late = [start - other for start, other in pairs if start is not None and start > other + grace_s + SLIGHT_S]
    never = sum(start is None for start, _ in pairs)
    return replace(own.figures, later=len(late) + never, later_most_s=max(late, default=0.0))


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line; `options` are those of the simulation."""
    parser = new_parser("tests.quality.queues", __doc__)
    parser.add_argument(
        "--trace", type=Path, default=PHILLY / "trace.csv", metavar="FILE", help="[default: Philly's sample]"
    )
    parser.add_argument(
        "--config", type=Path, default=PHILLY / "hivedscheduler.yaml", metavar="FILE", help="[default: Philly's]"
    )
    parser.add_argument("--tenants", action="append", default=[], metavar="TENANT=VC", help="as in `hived simulate`")
    parser.add_argument("--grace", default="30s", metavar="TIME", help="[default: %(default)s]")
    parser.add_argument("--checkpoint", metavar="TIME", help="evicted jobs keep work up to a multiple of this")
    parser.add_argument("--limits", type=float, default=2.0, metavar="FACTOR", help="[default: %(default)s]")
    parser.add_argument("--without-limit", type=float, default=0.0, metavar="SHARE", help="[default: %(default)s]")
    parser.add_argument("--jobs", type=process_count, default=2, help="processes [default: %(default)s]")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the plot there, as SVG")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    given = parser.parse_args(arguments)
    try:
        given.options = Options(
            tenants=tuple(given.tenants),
            grace_s=parse_duration(given.grace, "--grace"),
            checkpoint_s=None if given.checkpoint is None else parse_duration(given.checkpoint, "--checkpoint"),
            limit_factor=given.limits,
            unlimited_share=given.without_limit,
            every_s=30 * 86400.0,
        )
    except UserError as error:
        parser.error(str(error))
    return given


if __name__ == "__main__":
    sys.exit(main())
