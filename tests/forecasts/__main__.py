"""Do forecasts hold? `python -m tests.forecasts`, or `make forecast`.

Progress goes to stderr, the table or JSON to stdout. docs/forecast.md explains it. Exit code 1: a bound is missed.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from time import monotonic

from tests.driver import names_of, new_parser, process_count, run_all, run_program, say
from tests.forecasts.cases import QUICK, RUNS, Figures, Run, figures
from tests.forecasts.report import as_json, misses, table
from tests.quality.large import PHILLY

TELL_EVERY_S = 15.0
_EXAMPLES = """examples:
  python -m tests.forecasts --quick                      a test of seconds
  python -m tests.forecasts > forecasts.txt              all runs
  python -m tests.forecasts --only N,philly-november --json
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    options = _options(arguments)
    runs = QUICK if options.quick else [each for each in RUNS if not options.only or each.name in options.only]
    if not PHILLY.exists():
        left_out = [each.name for each in runs if each.needs_philly]
        if left_out:
            say(f"without {PHILLY}: left out {', '.join(left_out)}")
        runs = [each for each in runs if not each.needs_philly]
    results = list(zip(runs, run_all(runs, _run, options.jobs, lambda each: each.name), strict=True))
    missed = [] if options.quick else [miss for each, found in results for miss in misses(each.name, found)]
    if options.json:
        measured = {each.name: as_json(found) for each, found in results}
        print(json.dumps({"measured": measured, "missed": missed}, indent=1))
    else:
        print(table([(each.name, found) for each, found in results]))
        print("\n" + ("\n".join(missed) if missed else "no bound is missed"))
    return 1 if missed else 0


def _run(asked: Run) -> Figures:
    count, cases = asked.play(_teller(asked.name))
    return figures(count, cases)


def _teller(name: str) -> Callable[[float], None]:
    """Says now and then how far a run has come."""
    last_s = monotonic()

    def tell(share: float) -> None:
        nonlocal last_s
        if monotonic() - last_s >= TELL_EVERY_S:
            last_s = monotonic()
            say(f"          {name}: {share:.0%} of the jobs submitted")

    return tell


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser, known = new_parser("tests.forecasts", __doc__, _EXAMPLES), [each.name for each in RUNS]
    parser.add_argument(
        "--only", type=names_of("run", known), default=(), metavar="RUNS",
        help=f"runs, with commas, of {', '.join(known)} [default: all]",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a small run, in seconds, which no bound is asked of")
    parser.add_argument(
        "--jobs", type=process_count, default=2, help="processes; figures do not depend on it [default: 2]"
    )
    parser.add_argument("--json", action="store_true", help="print figures as JSON instead of a table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_program(main)
