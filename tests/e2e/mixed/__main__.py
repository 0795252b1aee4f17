"""`python -m tests.e2e.mixed --minutes 20 --seed N`: a long run; the exit code is 1 if it finds a mistake."""

import argparse
import sys
import tempfile
from pathlib import Path

from hived_extender.warm import compile_kernels
from tests.e2e.mixed.run import run
from tests.e2e.plane import ControlPlane
from tests.e2e.tools import VERSIONS, find

BREAK_GAP_S = 60.0
"""Twice as long as waits do not count after each break."""


def main() -> int:
    """Run, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.mixed")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--version", choices=VERSIONS, default=VERSIONS[0])
    arguments = parser.parse_args()
    compile_kernels()
    with ControlPlane(find(arguments.version), f"mixed-{arguments.seed}") as plane, tempfile.TemporaryDirectory() as to:
        outcome = run(plane, Path(to), arguments.seed, arguments.minutes * 60, BREAK_GAP_S)
    for what, count in sorted(outcome.counts.items()):
        print(f"{count:6} {what}")
    print(f"{len(outcome.broken):6} broken: {', '.join(outcome.broken)}")
    mistakes = outcome.mistakes()
    print(f"{len(mistakes):6} mistakes", *mistakes, sep="\n")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
