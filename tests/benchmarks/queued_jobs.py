"""A turn of the queues with 50,000 jobs, by hand:

    python -m tests.benchmarks.queued_jobs --nodes 1024 16384

Prints the median and the worst time of a turn after an arrival, and after an end whose cells others get, and the memory
that the queued jobs take. The room is a real core.
"""

import argparse
import gc
import resource
import statistics
import time
from collections.abc import Callable

from hived.specs import (
    CellTypeSpec,
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PhysicalCellSpec,
    PodSpec,
    Rules,
    VirtualCellSpec,
    VirtualClusterSpec,
)
from hived_extender.queues import policies
from hived_extender.queues.queues import Queues
from hived_extender.queues.units import Start, Stop, Unit
from tests.extender.queues.live import Live

RACK_NODES, NODE_GPUS, VC_COUNT = 16, 8, 8
SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8), (16, 8))


def cluster(node_count: int) -> ClusterSpec:
    """Racks of 16 nodes of 8 GPUs; eight virtual clusters share three quarters of the racks."""
    racks = node_count // RACK_NODES
    types = (CellTypeSpec("RACK", "NODE", RACK_NODES), CellTypeSpec("NODE", "GPU", NODE_GPUS, is_node_level=True))
    cells = tuple(
        PhysicalCellSpec(
            "RACK", children=tuple(PhysicalCellSpec(address=f"n{rack * RACK_NODES + i}") for i in range(RACK_NODES))
        )
        for rack in range(racks)
    )
    own = (VirtualCellSpec("RACK", racks * 3 // (4 * VC_COUNT)),)
    names = [f"vc{i}" for i in range(VC_COUNT)]
    vcs = {name: VirtualClusterSpec(name, own) for name in names}
    return ClusterSpec({each.name: each for each in types}, cells, vcs, rules=Rules.BETTER)


def unit(number: int) -> Unit:
    """One of many jobs of eight shapes, three priorities and eight virtual clusters."""
    vc, (pods, gpus) = f"vc{number % VC_COUNT}", SHAPES[number // VC_COUNT % len(SHAPES)]
    key, priority = f"Job/default/job-{number:06}/uid-{number:06}", number // 64 % 3
    spec = PodSpec(vc, priority, gpus, GroupSpec(key, (MemberSpec(pods, gpus),)))
    return Unit(key, vc, spec, float(number))


def memory_mb() -> float:
    """The most that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def show(queues: Queues) -> None:
    """The order of all queues."""
    for name in queues.queues():
        queues.order(name)


def timed(act: Callable[[], None]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1000


def measure(node_count: int, job_count: int) -> None:
    """One line of results for each kind of turn."""
    spec = cluster(node_count)
    live, queues = Live(spec), Queues(spec)
    queues.told_rules(policies.Rules(default=policies.QueueRules(borrows=True)))
    clock, running = [0.0], dict[str, None]()

    def turn() -> None:
        clock[0] += 1
        for order in queues.turn(clock[0], live):
            if isinstance(order, Stop):
                live.release(order.key)
                queues.evicted(order.key, clock[0])
                running.pop(order.key)
            elif isinstance(order, Start):
                running[order.key] = None

    filling = 0
    while filling < job_count and len(running) >= filling - 1:
        for _ in range(64):
            queues.arrived(unit(filling))
            filling += 1
        turn()
    gc.collect()
    before = memory_mb()
    for number in range(filling, filling + job_count):
        queues.arrived(unit(number))
    first = timed(turn)
    after = memory_mb()
    arrivals, ends = [], []
    for number in range(filling + job_count, filling + job_count + 60):
        queues.arrived(unit(number))
        arrivals.append(timed(turn))
        key = list(running)[number * 37 % len(running)]
        del running[key]
        live.release(key)
        queues.ended(key, clock[0])
        ends.append(timed(turn))
    shown = timed(lambda: show(queues))
    print(
        f"{node_count} nodes, {job_count} waiting, {len(running)} running: first turn {first:.0f} ms,"
        f" after an arrival {statistics.median(arrivals):.1f} ms (most {max(arrivals):.0f}),"
        f" after an end {statistics.median(ends):.1f} ms (most {max(ends):.0f}),"
        f" whole order {shown:.0f} ms, memory {after - before:.0f} MB more",
        flush=True,
    )


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--jobs", type=int, default=50_000)
    given = parser.parse_args()
    for node_count in given.nodes:
        measure(node_count, given.jobs)


if __name__ == "__main__":
    main()
