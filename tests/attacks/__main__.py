"""Attacks on hived at length, for a person to run before a release: `python -m tests.attacks`.

Exit codes: 0 where hived stood firm, 1 if anything was let in, faulted or missed a target, 3 if an attack did not run.
"""

import argparse
import dataclasses
import json
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.attacks.attack import LEAST_TIMED_SCALE, Attack, Latency, Outcome, Run
from tests.attacks.table import ATTACKS
from tests.driver import names_of, new_parser, run_program
from tests.e2e.tools import ToolsMissing

EXAMPLES = """\
examples:
  python -m tests.attacks                                    all attacks, about half an hour
  python -m tests.attacks --list
  python -m tests.attacks --only requests,strangers --seed 7
  python -m tests.attacks --scale 0.1 --json attacks.json    a tenth of all counts and durations
"""
FAILED, NOT_RUN = 1, 3
COLUMNS = ("attack", "tried", "refused", "let in", "faults", "p50 alone", "p99 alone", "p99 beside", "ratio", "seconds")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for and print a table; returns the exit code."""
    options = _options(arguments)
    if options.list:
        for attack in ATTACKS:
            print(f"{attack.name:12} {attack.about}")
        return 0
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="hived-attacks-") as folder:
        for attack in options.only:
            run = Run(options.seed, options.scale, Path(options.logs or folder) / attack.name)
            run.folder.mkdir(parents=True, exist_ok=True)
            run.say(f"{attack.name}: {attack.about}")
            outcomes[attack.name] = _carried_out(attack, run)
    print("\n".join(_table(outcomes)))
    if options.json:
        document = {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()}
        settings = {"seed": options.seed, "scale": options.scale}
        options.json.write_text(json.dumps(settings | {"attacks": document}, indent=1))
    if any(outcome.has_failed for outcome in outcomes.values()):
        return FAILED
    return NOT_RUN if any(outcome.not_run for outcome in outcomes.values()) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    by_name = {attack.name: attack for attack in ATTACKS}
    parser = new_parser("tests.attacks", __doc__, EXAMPLES)
    parser.add_argument(
        "--only", type=names_of("attack", by_name), metavar="NAME,...", default=tuple(by_name),
        help="these attacks; default: all",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="of everything that is random (default: 1)")
    parser.add_argument(
        "--scale", type=float, default=1.0,
        help=f"part of all counts and durations (default: 1); time and memory are judged from {LEAST_TIMED_SCALE}",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the attacks and end")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there too")
    parser.add_argument("--logs", metavar="FOLDER", type=Path, help="keep the logs of all processes there")
    options = parser.parse_args(arguments)
    if not 0 < options.scale <= 1:
        parser.error("--scale has to be above 0 and at most 1")
    options.only = [by_name[name] for name in options.only]
    return options


def _carried_out(attack: Attack, run: Run) -> Outcome:
    began = time.monotonic()
    try:
        outcome = attack.run(run)
    except ToolsMissing as missing:
        outcome = Outcome(not_run=str(missing))
    except Exception as error:
        traceback.print_exc()
        outcome = Outcome(faults=[f"the attack broke off: {type(error).__name__} {error}"])
    outcome.seconds = time.monotonic() - began
    return outcome


def _table(outcomes: dict[str, Outcome]) -> list[str]:
    rows = [COLUMNS, *(_row(name, outcome) for name, outcome in outcomes.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in
             enumerate(zip(row, widths, strict=True))) for row in rows]  # fmt: skip
    for name, outcome in outcomes.items():
        lines += [f"{name}: {note}" for note in outcome.notes]
        lines += [f"{name}: DID NOT RUN: {outcome.not_run}"] if outcome.not_run else []
        lines += [f"{name}: LET IN: {each}" for each in outcome.let_in]
        lines += [f"{name}: FAULT: {each}" for each in outcome.faults]
        lines += [f"{name}: TARGET MISSED: {each}" for each in outcome.missed]
    return lines


def _row(name: str, outcome: Outcome) -> tuple[str, ...]:
    ratio = "-" if outcome.ratio is None else f"{outcome.ratio:.1f}"
    counts = (outcome.tried, outcome.refused, len(outcome.let_in), len(outcome.faults))
    latencies = (_ms(outcome.alone, "p50"), _ms(outcome.alone, "p99"), _ms(outcome.beside, "p99"))
    return (name, *map(str, counts), *latencies, ratio, f"{outcome.seconds:.0f}")


def _ms(latency: Latency | None, which: str) -> str:
    return "-" if latency is None else f"{getattr(latency, which):.1f} ms"


if __name__ == "__main__":
    run_program(main)
