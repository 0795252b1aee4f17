"""Do forecasts hold? `python -m tests.forecasts`, or `make forecast`.

Progress goes to stderr, the table or JSON to stdout. docs/forecast.md explains it. Exit code 1: a bound is missed.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from time import monotonic

from tests.forecasts.cases import QUICK, RUNS, Figures, Run, figures
from tests.forecasts.report import as_json, misses, table
from tests.process_count import process_count
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
            print(f"without {PHILLY}: left out {', '.join(left_out)}", file=sys.stderr)
        runs = [each for each in runs if not each.needs_philly]
    results = [(each, found) for each, found in zip(runs, _measured(runs, options.jobs), strict=True)]
    missed = [] if options.quick else [miss for each, found in results for miss in misses(each.name, found)]
    if options.json:
        measured = {each.name: as_json(found) for each, found in results}
        print(json.dumps({"measured": measured, "missed": missed}, indent=1))
    else:
        print(table([(each.name, found) for each, found in results]))
        print("\n" + ("\n".join(missed) if missed else "no bound is missed"))
    return 1 if missed else 0


def _measured(runs: Sequence[Run], jobs: int) -> list[Figures]:
    """In the order given, however many processes take part."""
    found: dict[int, Figures] = {}
    started = monotonic()
    for number, own in _run_all(runs, jobs):
        found[number] = own
        print(
            f"{monotonic() - started:6.0f} s  {len(found)}/{len(runs)}  {runs[number].name}",
            file=sys.stderr,
            flush=True,
        )
    return [found[number] for number in range(len(runs))]


def _run_all(runs: Sequence[Run], jobs: int) -> Iterator[tuple[int, Figures]]:
    if jobs == 1:
        yield from (_run(number, each) for number, each in enumerate(runs))
        return
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_run, number, each) for number, each in enumerate(runs)]):
            yield done.result()


def _run(number: int, asked: Run) -> tuple[int, Figures]:
    count, cases = asked.play(_teller(asked.name))
    return number, figures(count, cases)


def _teller(name: str) -> Callable[[float], None]:
    """Says now and then how far a run has come."""
    last_s = monotonic()

    def tell(share: float) -> None:
        nonlocal last_s
        if monotonic() - last_s >= TELL_EVERY_S:
            last_s = monotonic()
            print(f"          {name}: {share:.0%} of the jobs submitted", file=sys.stderr, flush=True)

    return tell


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.forecasts", description=(__doc__ or "").splitlines()[0], epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "--only", type=_names, default=(), metavar="RUNS",
        help=f"runs, with commas, of {', '.join(each.name for each in RUNS)} [default: all]",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a small run, in seconds, which no bound is asked of")
    parser.add_argument(
        "--jobs", type=process_count, default=2, help="processes; figures do not depend on it [default: 2]"
    )
    parser.add_argument("--json", action="store_true", help="print figures as JSON instead of a table")
    return parser.parse_args(arguments)


def _names(text: str) -> tuple[str, ...]:
    names, known = tuple(text.split(",")), [each.name for each in RUNS]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no run; runs are {', '.join(known)}")
    return names


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
