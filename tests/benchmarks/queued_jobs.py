"""A turn of the queues with 50,000 jobs, by hand:

    python -m tests.benchmarks.queued_jobs --nodes 1024 16384

Prints the median and the worst time of a turn after an arrival, and after an end whose cells others get, and the memory
that the queued jobs take. The room is the service's own, without pods, sockets and threads: the longest question is how
long others wait for its lock.
"""

import argparse
import gc
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any, cast

from hived.values.specs import (
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
from hived_extender.http.server import tune_process
from hived_extender.jobs.job import JobRef
from hived_extender.kube.client import KubeClient
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.service import Service
from hived_extender.machine.stimuli import HoldDropped
from hived_extender.queues import policies
from hived_extender.queues.live_room import LiveRoom
from hived_extender.queues.queues import Queues
from hived_extender.queues.units import Start, Stop, Unit
from tests.extender.machine.by_hand import ByHand
from tests.extender.machine.small_cluster import FakeKube, node

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


def service(spec: ClusterSpec) -> Service:
    """One that leads and knows all nodes, without sockets and threads."""
    made = Service(spec, cast(KubeClient, FakeKube()), run=ByHand, preemption=PreemptionPolicy())
    made.sync_nodes([node(each.address) for rack in spec.physical_cells for each in rack.children])
    made.lead(lambda: True)
    return made


class Served:
    """The room that a service has. `longest_ms` is its longest answer since the last turn began."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._service = service(spec)
        self._jobs: dict[str, tuple[JobRef, tuple[()]]] = {}
        self._room = LiveRoom(self._service.runner, self._jobs, {})
        self.longest_ms = 0.0

    def come(self, new: Unit) -> Unit:
        """A job is known."""
        name = new.key.split("/")[2]
        self._jobs[new.key] = JobRef("batch/v1", "Job", "default", name, f"uid-{name}"), ()
        return new

    def release(self, key: str) -> None:
        """The pods of a job are gone."""
        self._service.runner.handle(HoldDropped(key))

    def hold(self, *asked: Any) -> Any:
        """See `room.Room`."""
        return self._timed(self._room.hold, *asked)

    def victims(self, *asked: Any) -> Any:
        """See `room.Room`."""
        return self._timed(self._room.victims, *asked)

    def _timed(self, ask: Callable[..., Any], *asked: Any) -> Any:
        start = time.perf_counter()
        found = ask(*asked)
        self.longest_ms = max(self.longest_ms, (time.perf_counter() - start) * 1000)
        return found


def memory_mb() -> float:
    """The most that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def show(queues: Queues) -> None:
    """The order of all queues."""
    for name in queues.queues():
        queues.order(name)


def timed(act: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Milliseconds by a clock."""
    start = clock()
    act()
    return (clock() - start) * 1000


def measure(node_count: int, job_count: int) -> None:
    """One line of results for each kind of turn."""
    spec = cluster(node_count)
    live, queues = Served(spec), Queues(spec)
    queues.told_rules(policies.Rules(default=policies.QueueRules(borrows=True)))
    clock, running = [0.0], dict[str, None]()

    parts = list[float]()

    def turn() -> None:
        clock[0] += 1
        parts.append(timed(part))
        while queues.is_cut:
            parts.append(timed(part))

    def part() -> None:
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
            queues.arrived(live.come(unit(filling)))
            filling += 1
        turn()
    gc.collect()
    before = memory_mb()
    for number in range(filling, filling + job_count):
        queues.arrived(live.come(unit(number)))
    live.longest_ms = 0.0
    parts.clear()
    first = timed(turn)
    after, most, longest, count = memory_mb(), max(parts), live.longest_ms, len(parts)
    arrivals, ends = [], []
    for number in range(filling + job_count, filling + job_count + 60):
        queues.arrived(live.come(unit(number)))
        arrivals.append(timed(turn))
        key = list(running)[number * 37 % len(running)]
        del running[key]
        live.release(key)
        queues.ended(key, clock[0])
        ends.append(timed(turn))
    shown = timed(lambda: show(queues))
    print(
        f"{node_count} nodes, {job_count} waiting, {len(running)} running: first turn {first:.0f} ms"
        f" in {count} parts (most {most:.0f}, of a question {longest:.0f}),"
        f" after an arrival {statistics.median(arrivals):.1f} ms (most {max(arrivals):.0f}),"
        f" after an end {statistics.median(ends):.1f} ms (most {max(ends):.0f}),"
        f" whole order {shown:.0f} ms, memory {after - before:.0f} MB more",
        flush=True,
    )


def measure_each(measure: Callable[[int, int], None], *node_counts: int) -> None:
    """Measure each size, those of the command line or these, in a process like the service's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=node_counts)
    parser.add_argument("--jobs", type=int, default=50_000)
    given = parser.parse_args()
    tune_process()
    for node_count in given.nodes:
        measure(node_count, given.jobs)


if __name__ == "__main__":
    measure_each(measure, 1024, 16384)
