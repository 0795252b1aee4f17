"""How fast it is, from 128 to 16,384 nodes: `python -m tests.benchmarks`, or `make bench`.

Progress goes to stderr, the table to stdout. docs/performance.md explains the rows. Each part of each size is measured
by a process of its own, which is called with the name of the part. So the memory of one size is not in the next.
"""

import argparse
import cProfile
import json
import os
import pstats
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hived.values.specs import Rules
from hived_extender.warm import compile_kernels
from tests.benchmarks.core import Measurement, RefusedNodes
from tests.benchmarks.load import GPUS_PER_NODE, NODES_PER_POOL, config_text
from tests.benchmarks.process import describe_machine
from tests.benchmarks.switching import SwitchMeasurement
from tests.benchmarks.table import ALL_SIZES, FileError, Other, Summary, missed, read_other, row_names, table
from tests.benchmarks.web import START_REPEATS, WatchedMeasurement, WebMeasurement
from tests.programs import HIVED

MOST_SWITCHING = 1024
"""Nodes up to which changes of the configuration are measured: with 100,000 pods that would take minutes."""

PARTS = ("core", "web", "watched", "switch", "profile")
CLOCKS = {"wall": time.perf_counter_ns, "cpu": time.thread_time_ns}
RULES = {"hived": Rules.HIVED, "2": Rules.BETTER}
PROFILE_LINES = 30
LONGEST_S, CHECK_S = 900.0, 0.02


def measure_part(options: argparse.Namespace) -> dict[str, Summary]:
    """One part at one size, in this process."""
    compile_kernels()
    [node_count] = options.nodes
    rules, clock = RULES[options.rules], CLOCKS[options.clock]

    def progress(text: str) -> None:
        print(f"{node_count:>6} nodes: {text}", file=sys.stderr, flush=True)

    if options.part == "web":
        return WebMeasurement(node_count, options.seed, progress, options.starts, rules).run().summaries()
    if options.part == "switch":
        return SwitchMeasurement(node_count, options.seed, progress, rules).run().summaries()
    if options.part == "watched":
        return WatchedMeasurement(node_count, options.seed, progress, rules).run().summaries()
    measurement = Measurement(node_count, options.seed, progress, clock, rules)
    if options.part == "profile":
        profile(measurement)
        return {}
    figures = measurement.run()
    figures.add(RefusedNodes(node_count, options.seed, progress, clock, rules).run())
    return figures.summaries()


def profile(measurement: Measurement) -> None:
    """Where the time of the mixed load goes, function by function, on stderr; kernels count as their callers."""
    measurement.start()
    profiler = cProfile.Profile()
    profiler.runcall(measurement.fill, measurement.node_count * GPUS_PER_NODE)
    pstats.Stats(profiler, stream=sys.stderr).strip_dirs().sort_stats("tottime").print_stats(PROFILE_LINES)


def measure(part: str, node_count: int, options: argparse.Namespace) -> dict[str, Summary]:
    """One part at one size, in a process of its own; exits with a message if it fails."""
    command = [sys.executable, "-m", "tests.benchmarks", "--part", part, "--nodes", str(node_count)]
    command += ["--seed", str(options.seed), "--clock", options.clock, "--starts", str(options.starts)]
    done = subprocess.run([*command, "--rules", options.rules], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"measuring {part} at {node_count} nodes failed")
    summaries: dict[str, Summary] = json.loads(done.stdout)
    return summaries


def cold(node_count: int) -> dict[str, Summary]:
    """Seconds of the first start after an installation, and of compiling all kernels from nothing."""
    with tempfile.TemporaryDirectory(prefix="hived-bench-") as folder:
        config = Path(folder, "hived.yaml")
        config.write_text(config_text(node_count))
        caches = {"HOME": folder, "XDG_CACHE_HOME": folder, "NUMBA_CACHE_DIR": str(Path(folder, "kernels"))}
        first = _timed(lambda: _start_embedded(config, os.environ | caches))
    with tempfile.TemporaryDirectory(prefix="hived-bench-") as folder:
        compiling = _timed(lambda: _warm(os.environ | {"NUMBA_CACHE_DIR": folder}))
    return {"process/first": {"value": first}, "process/compile": {"value": compiling}}


def _timed(act: Callable[[], None]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _warm(environment: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-m", "hived_extender.warm"], env=environment, check=True)


def _start_embedded(config: Path, environment: dict[str, str]) -> None:
    """Start `hived serve --embedded`, wait until it answers filter calls, and end it. Raises RuntimeError."""
    command = [*HIVED, "serve", "--embedded", str(config), "--listen", "127.0.0.1:0"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, text=True, **streams) as process:
        try:
            assert process.stdout is not None
            said = (re.match(r" +extender +(http\S+)", line) for line in process.stdout)
            url = next((found[1] for found in said if found), "")
            deadline = time.perf_counter() + LONGEST_S
            while not _is_ready(url):
                if time.perf_counter() > deadline:
                    raise RuntimeError(f"not ready after {LONGEST_S} s")
                time.sleep(CHECK_S)
        finally:
            process.terminate()
            process.communicate()


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=LONGEST_S):
            return True
    except urllib.error.HTTPError:
        return False


def _other(text: str) -> Other:
    try:
        return read_other(Path(text), describe_machine())
    except FileError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
        "--compare", type=_other, metavar="FILE",
        help="show ratios to the figures that --json wrote, or to those of another scheduler: docs/performance.md",
    )  # fmt: skip
    parser.add_argument("--rows", action="store_true", help="instead: list the names of all rows")
    parser.add_argument("--profile", action="store_true", help="instead: where the time of the mixed load goes")
    parser.add_argument("--part", choices=PARTS, help="instead: one part at one size, as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    if options.rows:
        print(row_names())
        return
    if options.part:
        json.dump(measure_part(options), sys.stdout)
        return
    sizes, other = options.nodes, options.compare
    parts = ["profile"] if options.profile else ["core"] if options.no_http else ["core", "web", "watched", "switch"]
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "seed": options.seed,
        "clock": options.clock,
        "rules": options.rules,
    }
    figures: dict[int, dict[str, Summary]] = {size: {} for size in sizes}
    if options.cold:
        figures[min(sizes)] |= cold(min(sizes))
    _warm(dict(os.environ))
    for size in sizes:
        for part in parts:
            if part != "switch" or size <= MOST_SWITCHING:
                figures[size] |= measure(part, size, options)
    if options.profile:
        return
    print("\n".join(f"{key}: {value}" for key, value in report["machine"].items()), end="\n\n")
    if other:
        name = other.name or f"commit {other.machine.get('commit', 'unknown')}"
        print(f"x: ratio to {name}, {other.clock} clock; now {options.clock}\n")
    print(table(figures, other.nodes if other else None))
    if options.json:
        names = [{"figure": row.title.strip(), "nodes": count} for row, count in missed(figures)]
        options.json.write_text(json.dumps(report | {"nodes": figures, "missed": names}, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
