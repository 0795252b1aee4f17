"""One part of the measurements at one size, in a process of its own: prints its figures as JSON.

A process of its own keeps the memory of one size out of the figures of the next.
"""

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections.abc import Callable

from hived.values.specs import Rules
from hived_extender.warm import compile_kernels
from tests.benchmarks.clusters import GPUS_PER_NODE
from tests.benchmarks.measure import Measurement
from tests.benchmarks.refused_nodes import RefusedNodes
from tests.benchmarks.switching import SwitchMeasurement
from tests.benchmarks.watched import WatchedMeasurement
from tests.benchmarks.web import START_REPEATS, WebMeasurement

CLOCKS = {"wall": time.perf_counter_ns, "cpu": time.thread_time_ns}
RULES = {"hived": Rules.HIVED, "2": Rules.BETTER}
PARTS = ("core", "web", "switch", "watched", "profile")
PROFILE_LINES = 30


def progress_of(node_count: int) -> Callable[[str], None]:
    """Lines on stderr."""
    return lambda text: print(f"{node_count:>6} nodes: {text}", file=sys.stderr, flush=True)


def profile(measurement: Measurement) -> None:
    """Where the time of the mixed load goes, function by function, on stderr; kernels count as their callers."""
    measurement.start()
    profiler = cProfile.Profile()
    profiler.runcall(measurement.fill, measurement.node_count * GPUS_PER_NODE)
    pstats.Stats(profiler, stream=sys.stderr).strip_dirs().sort_stats("tottime").print_stats(PROFILE_LINES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--starts", type=int, default=START_REPEATS, help="fresh processes")
    parser.add_argument("--rules", choices=RULES, default="hived", help="of decisions")
    options = parser.parse_args()
    compile_kernels()
    progress, rules = progress_of(options.nodes), RULES[options.rules]
    summaries = {}
    if options.part == "web":
        summaries = WebMeasurement(options.nodes, options.seed, progress, options.starts, rules).run().summaries()
    elif options.part == "switch":
        summaries = SwitchMeasurement(options.nodes, options.seed, progress, rules).run().summaries()
    elif options.part == "watched":
        summaries = WatchedMeasurement(options.nodes, options.seed, progress, rules).run().summaries()
    else:
        measurement = Measurement(options.nodes, options.seed, progress, CLOCKS[options.clock], rules)
        if options.part == "core":
            summaries = measurement.run().summaries()
            refused = RefusedNodes(options.nodes, options.seed, progress, CLOCKS[options.clock], rules)
            summaries |= refused.run().summaries()
        else:
            profile(measurement)
    json.dump(summaries, sys.stdout)


if __name__ == "__main__":
    main()
