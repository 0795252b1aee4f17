"""How fast it is, from 128 to 16,384 nodes: `python -m tests.benchmarks`, or `make bench`.

Progress goes to stderr, the table to stdout. docs/performance.md explains the rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.clusters import NODES_PER_POOL
from tests.benchmarks.figures import Summary
from tests.benchmarks.first_start import first_start_s
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.reference import Reference, ReferenceError, read_reference
from tests.benchmarks.report import reference_table, row_names, table, target_table
from tests.benchmarks.run import CLOCKS, RULES
from tests.benchmarks.targets import missed
from tests.benchmarks.web import START_REPEATS

ALL_SIZES = (128, 1024, 4096, 16384)
MOST_SWITCHING = 1024
"""Nodes up to which changes of the configuration are measured: with 100,000 pods that would take minutes."""


def measure(part: str, node_count: int, options: argparse.Namespace) -> dict[str, Summary]:
    """Run one part in a process of its own; exits with a message if it fails."""
    command = [sys.executable, "-m", "tests.benchmarks.run", part, "--nodes", str(node_count)]
    command += ["--seed", str(options.seed), "--clock", options.clock, "--starts", str(options.starts)]
    command += ["--rules", options.rules]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"measuring {part} at {node_count} nodes failed")
    summaries: dict[str, Summary] = json.loads(done.stdout)
    return summaries


def compile_from_nothing() -> float:
    """Seconds that it takes to compile all kernels, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="hived-bench-") as folder:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "hived_extender.warm"], env=os.environ | {"NUMBA_CACHE_DIR": folder}, check=True
        )
        return time.perf_counter() - started


def figures_of(report: dict[str, Any]) -> dict[int, dict[str, Summary]]:
    """Figures by size from what `--json` wrote."""
    return {int(count): rows for count, rows in report["nodes"].items()}


def _sizes(text: str) -> list[int]:
    sizes = sorted({int(size) for size in text.split(",") if size.strip().isdecimal()})
    if len(sizes) != text.count(",") + 1 or any(size % NODES_PER_POOL or not size for size in sizes):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of different multiples of {NODES_PER_POOL}, such as {NODES_PER_POOL},1024"
        )
    return sizes


def _new_file(text: str) -> Path:
    """Measuring takes minutes: what cannot be written is to be known before."""
    if not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {Path(text).absolute().parent}")
    return Path(text)


def _old_report(text: str) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(Path(text).read_text())
        figures = figures_of(report)
        table(figures, figures)  # whether it can be compared with
        _ = report["machine"]["commit"], report["clock"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"{text} is no file that --json wrote: {error!r}") from None
    return report


def _reference(text: str) -> Reference:
    try:
        return read_reference(Path(text), describe_machine())
    except ReferenceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.splitlines()[0])
    sizes = ",".join(map(str, ALL_SIZES))
    parser.add_argument(
        "--nodes", type=_sizes, default=sizes, help="sizes, multiples of 128, with commas [default: %(default)s]"
    )
    parser.add_argument("--rules", choices=RULES, default="hived", help="of decisions [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the load [default: %(default)s]")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall",
        help="of the core's rows; cpu counts the thread alone, for a machine that others use [default: %(default)s]",
    )  # fmt: skip
    parser.add_argument(
        "--starts", type=int, default=START_REPEATS, help="fresh processes of the service [default: %(default)s]"
    )
    parser.add_argument("--no-http", action="store_true", help="leave out the service: only the core's rows")
    parser.add_argument(
        "--cold", action="store_true", help="also compile all kernels from nothing, and start without them: minutes"
    )
    parser.add_argument("--json", type=_new_file, metavar="FILE", help="write all figures, with machine and commit")
    parser.add_argument(
        "--compare", type=_old_report, metavar="OLD.json", help="show ratios to the figures of this file"
    )
    parser.add_argument(
        "--reference", type=_reference, metavar="FILE",
        help="show ratios to another scheduler's figures, measured on this machine: docs/performance.md",
    )  # fmt: skip
    parser.add_argument("--rows", action="store_true", help="instead: list the names of all rows")
    parser.add_argument("--profile", action="store_true", help="instead: where the time of the mixed load goes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    if options.rows:
        print(row_names())
        return
    sizes, old = options.nodes, options.compare
    parts = ["profile"] if options.profile else ["core"] if options.no_http else ["core", "web", "watched", "switch"]
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "seed": options.seed,
        "clock": options.clock,
        "rules": options.rules,
    }
    figures: dict[int, dict[str, Summary]] = {size: {} for size in sizes}
    if options.cold:
        figures[min(sizes)]["process/first"] = {"value": first_start_s(min(sizes))}
        figures[min(sizes)]["process/compile"] = {"value": compile_from_nothing()}
    subprocess.run([sys.executable, "-m", "hived_extender.warm"], check=True)
    for size in sizes:
        for part in parts:
            if part == "switch" and size > MOST_SWITCHING:
                continue
            figures[size] |= measure(part, size, options)
    if options.profile:
        return
    print("\n".join(f"{key}: {value}" for key, value in report["machine"].items()), end="\n\n")
    if old:
        print(f"x: ratio to commit {old['machine']['commit']}, {old['clock']} clock; now {options.clock}\n")
    print(target_table(figures))
    if options.reference:
        print(f"reference: {options.reference.name}, measured {options.reference.measured} on this machine\n")
        print(reference_table(figures, options.reference.sizes))
    print(table(figures, figures_of(old) if old else None))
    if options.json:
        names = [{"figure": target.title.strip(), "nodes": count} for target, count in missed(figures)]
        options.json.write_text(json.dumps(report | {"nodes": figures, "missed": names}, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
