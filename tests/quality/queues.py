"""Large gangs with and without backfill, in queues, on a trace: `python -m tests.quality.queues --trace FILE`.

Each policy runs the whole trace by `rules: 2` in virtual time. Progress goes to stderr, tables go to stdout. The same
commit prints the same figures on any machine, however many processes take part. docs/queues-measured.md explains them.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path
from time import monotonic

import msgspec
from msgspec.structs import replace

from hived.errors import UserError
from hived.specs import Rules
from hived_simulator.changes import parse_duration
from hived_simulator.loop import Loop
from hived_simulator.plan import Options, Plan, make_plan
from hived_simulator.queued import QueuedLoop
from hived_simulator.results import HOUR_S, SLIGHT_S, Outcome, delays, outcomes
from tests.places import ROOT
from tests.process_count import process_count
from tests.quality.queues_report import Figures, picture, table

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
    runs = run_all(plan, given.jobs)
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


def run_all(plan: Plan, process_limit: int) -> dict[str, Run]:
    """The runs of all policies by name, in any number of processes."""
    if process_limit == 1:
        return {name: run(plan, name) for name in POLICIES}
    with ProcessPoolExecutor(process_limit) as pool:
        return dict(zip(POLICIES, pool.map(partial(run, plan), POLICIES), strict=True))


def run(plan: Plan, name: str) -> Run:
    """One policy's run of the trace."""
    planned = "hived" if name == NO_QUEUES else name.replace(":", "-")
    policy = next(policy for policy in plan.policies if policy.name == planned)
    loop, began = plan.loop(policy, plan.trace), monotonic()
    while not loop.is_over:
        loop.step()
    loop.finish()
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
    parser = argparse.ArgumentParser(prog="python -m tests.quality.queues", description=(__doc__ or "").splitlines()[0])
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
