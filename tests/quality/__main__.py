"""How good the decisions are, by both rules: `python -m tests.quality`, or `make quality`.

Progress goes to stderr, tables or JSON to stdout. docs/quality.md explains them. Exit code 1: rules 2 miss a bound.
"""

import argparse
import json
from collections.abc import Sequence

from hived.values.errors import UserError
from hived.values.specs import Rules
from tests.driver import names_of, new_parser, process_count, run_all, run_program, say
from tests.quality.large import PHILLY, trace_workload
from tests.quality.plan import TABLES, TRACE_LOADS, TRACES, Results, Unit, misses, trace_units, units
from tests.quality.report import RULES_NAMES, bounds_text, tables

RULES = {"hived": (Rules.HIVED,), "2": (Rules.BETTER,), "both": (Rules.HIVED, Rules.BETTER)}
_EXAMPLES = """examples:
  python -m tests.quality --quick                        a test of seconds
  python -m tests.quality > quality.txt                  all of it
  python -m tests.quality --only needless,locality --rules 2
  python -m tests.quality --json > quality.json          figures for scripts
  python -m tests.quality --trace week.jsonl             the tables of a trace that you have
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    options = parse_options(arguments)
    todo = _todo(options)
    if not options.trace and not PHILLY.exists() and not options.quick:
        say(f"without {PHILLY}: tables of the Philly trace are left out")
    results = measure(todo, options.jobs)
    missed = misses(results)
    if options.json:
        print(json.dumps(as_json(results, missed), indent=1))
    else:
        print(tables(results, options.only))
        print("\n" + bounds_text(missed))
    return 1 if missed else 0


def _todo(options: argparse.Namespace) -> list[Unit]:
    """The measurements that are asked for. A file that cannot be read ends the command."""
    if not options.trace:
        return units(RULES[options.rules], options.only, options.quick)
    try:
        notes = trace_workload(options.trace, TRACE_LOADS[0]).notes
    except UserError as error:
        say(str(error))
        raise SystemExit(2) from None
    for note in notes:
        say(f"{options.trace}: {note}")
    return trace_units(RULES[options.rules], options.only, options.trace)


def measure(todo: Sequence[Unit], jobs: int) -> Results:
    """All measurements in the order given, however many processes take part; the long ones begin first."""
    order = sorted(todo, key=lambda unit: unit.measure not in {*TRACES, "private_delays"})
    found = dict(zip(order, run_all(order, Unit.run, jobs, lambda unit: unit.name), strict=True))
    return [(unit, found[unit]) for unit in todo]


def as_json(results: Results, missed: Sequence[object]) -> dict[str, object]:
    """All figures, in order, and the bounds that rules 2 miss."""
    figures = [
        {"measure": unit.measure, "rules": RULES_NAMES[unit.rules], "arguments": list(unit.arguments), "figures": own}
        for unit, own in results
    ]
    return {"measured": figures, "missed": [{name: getattr(miss, name) for name in _MISS} for miss in missed]}


_MISS = ("table", "what", "figure", "bound")


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = new_parser("tests.quality", __doc__, _EXAMPLES)
    parser.add_argument(
        "--only", type=names_of("table", TABLES), default=TABLES, metavar="TABLES",
        help=f"tables, with commas, of {', '.join(TABLES)} [default: all]",
    )  # fmt: skip
    parser.add_argument("--rules", choices=RULES, default="both", help="[default: %(default)s]")
    parser.add_argument("--quick", action="store_true", help="a little of everything, in seconds; without Philly")
    parser.add_argument(
        "--trace", metavar="FILE", help="measure this trace instead, in any format that `hived trace` reads; without "
        "completeness, which is of random states",
    )  # fmt: skip
    parser.add_argument(
        "--jobs",
        type=process_count,
        default=2,
        help="processes; figures are the same for any number [default: %(default)s]",
    )
    parser.add_argument("--json", action="store_true", help="print figures as JSON instead of tables")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_program(main)
