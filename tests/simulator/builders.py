"""Small clusters and traces for tests of the simulator."""

import random
from collections.abc import Sequence
from typing import Any

from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, VirtualCellSpec, VirtualClusterSpec
from hived_simulator.changes import Change
from hived_simulator.clusters import SimulatedCluster
from hived_simulator.loop import Loop, Manner
from hived_simulator.tasks import Task, tasks_of
from hived_simulator.traces.jobs import Job, Pods

TYPES = {
    "PAIR": CellTypeSpec("PAIR", "GPU", 2),
    "NODE": CellTypeSpec("NODE", "PAIR", 2, True),
    "RACK": CellTypeSpec("RACK", "NODE", 2),
}
NODE, RACK, PAIR = "RACK.NODE", "RACK", "RACK.NODE.PAIR"


def cluster_of(racks: int, **vcs: dict[str, int]) -> ClusterSpec:
    """Racks of 2 nodes of 4 GPUs; nodes are n0, n1 and so on; virtual clusters by their cells."""
    physical = tuple(
        PhysicalCellSpec(
            "RACK", f"rack-{rack}", "", tuple(PhysicalCellSpec("", f"n{2 * rack + node}") for node in range(2))
        )
        for rack in range(racks)
    )
    virtual = {
        name: VirtualClusterSpec(name, tuple(VirtualCellSpec(*cell) for cell in cells.items()))
        for name, cells in vcs.items()
    }
    return ClusterSpec(TYPES, physical, virtual)


def job(name: str, tenant: str, submitted_s: float, duration_s: float, *pods: tuple[int, int], **more: Any) -> Job:
    """A job; `pods` are (count, leaves)."""
    shape = tuple(Pods(*each) for each in pods)
    return Job(name, tenant, submitted_s, duration_s, shape, **more)


def tasks(jobs: Sequence[Job]) -> list[Task]:
    """The tasks of jobs whose tenants are virtual clusters."""
    return [task for number, each in enumerate(jobs) for task in tasks_of(each, number, each.tenant)]


def run(
    cluster: SimulatedCluster, jobs: Sequence[Job], changes: Sequence[Change] = (), manner: Manner | None = None
) -> list[Task]:
    """The tasks after a whole run."""
    loop = Loop(cluster, tasks(jobs), changes, manner or Manner(), 600.0)
    loop.run()
    return list(loop.tasks)


def random_jobs(seed: int, vcs: Sequence[str], count: int = 60) -> list[Job]:
    """Jobs of all kinds: single pods and gangs, elastic ones, several priorities, opportunistic ones, checkpoints."""
    source = random.Random(seed)
    jobs, at_s = [], 0.0
    for number in range(count):
        at_s += source.choice((0, 0, 60, 120, 300))
        sizes = sorted(source.sample((1, 2, 4), source.choice((1, 1, 2))))
        pods = tuple((source.randint(1, 2), size) for size in sizes)
        jobs.append(
            job(
                f"job {number}", source.choice(vcs), at_s, 60.0 * source.randint(1, 40), *pods,
                priority=source.choice((None, 0, 0, 5, -1)), is_gang=source.random() < 0.8,
                checkpoint_s=source.choice((0.0, 600.0)),
            )
        )  # fmt: skip
    return jobs


def history(task: Task) -> tuple[object, ...]:
    """All that happened to a task."""
    return (
        task.group, task.phase, task.first_s, task.ended_s, task.eviction_count, round(task.lost_s, 6),
        [round(waited_s, 6) for waited_s in task.waited_s], task.level, task.is_guaranteed_start,
    )  # fmt: skip
