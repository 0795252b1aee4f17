"""What over-quota work loses on promises of nodes, racks and rows, in the simulator.

136 nodes of 8 GPUs in 17 rows of two racks, and 15 virtual clusters (VCs). N promises nodes, R the same nodes as racks
and loose nodes, P as rows, racks and loose nodes. The jobs are drawn: bursts of single pods, and gangs of 16 to 128
GPUs. The same seed gives the same jobs on any machine. docs/quality.md has the figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, Rules, VirtualCellSpec, VirtualClusterSpec
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Loop, Manner
from hived_simulator.tasks import Task, tasks_of
from hived_simulator.traces.jobs import Job, Pods
from tests.quality.small import Figures

ROWS, RACKS, NODES, GPUS = 17, 2, 4, 8
VC_NODES = (20, 18, 15, 13, 11, 10, 9, 8, 7, 6, 5, 5, 4, 3, 2)
VC_DEMAND = (1.3, 0.5, 1.6, 0.7, 1.0, 0.4, 1.4, 1.0, 0.6, 1.8, 0.5, 1.2, 0.8, 1.5, 0.7)
"""Of each VC, its work as a multiple of its share of the nodes; some are over their quota most of the time."""

HOUR_S = 3600.0
_SMALL = (1, 1, 1, 1, 1, 2, 2, 4, 8)
_LARGE = (16, 16, 16, 24, 32, 32, 64, 128)
_LARGE_SHARE = 0.06


@dataclass(frozen=True, slots=True)
class Lost:
    """What over-quota runs lost: GPU-hours, evictions, the most of one job; and what was useful.

    delay_h : mean hours from submission to the end, without the job's duration
    """

    lost_hours: float
    useful_hours: float
    evictions: int
    most_evictions: int
    delay_h: float


def lending_cluster(
    cells: str, nodes: Sequence[int] = VC_NODES, rows: int = ROWS, rules: Rules = Rules.BETTER
) -> ClusterSpec:  # fmt: skip
    """The cluster with promises N, R or P; `nodes` are those of each VC."""
    types = (
        CellTypeSpec("ROW", "RACK", RACKS),
        CellTypeSpec("RACK", "NODE", NODES),
        CellTypeSpec("NODE", "GPU", GPUS, True),
    )
    names = iter(range(rows * RACKS * NODES))
    tops = tuple(
        PhysicalCellSpec(
            "ROW", f"row{row}", children=tuple(
                PhysicalCellSpec(children=tuple(PhysicalCellSpec(address=f"n{next(names)}") for _ in range(NODES)))
                for _ in range(RACKS)
            ),
        )
        for row in range(rows)
    )  # fmt: skip
    vcs = {f"vc{number}": _promises(cells, count) for number, count in enumerate(nodes)}
    return ClusterSpec(
        {each.name: each for each in types}, tops,
        {name: VirtualClusterSpec(name, own) for name, own in vcs.items()}, rules=rules,
    )  # fmt: skip


def _promises(cells: str, count: int) -> tuple[VirtualCellSpec, ...]:
    if cells == "N":
        return (VirtualCellSpec("ROW.RACK.NODE", count),)
    rows, rest = divmod(count, RACKS * NODES) if cells == "P" else (0, count)
    racks, loose = divmod(rest, NODES)
    every = (("ROW", rows), ("ROW.RACK", racks), ("ROW.RACK.NODE", loose))
    return tuple(VirtualCellSpec(kind, own) for kind, own in every if own > 0)


def drawn_tasks(load: float, jobs: int, seed: int, nodes: Sequence[int] = VC_NODES) -> list[Task]:
    """So many jobs, in bursts by VC, whose work is `load` times the GPU-hours that the cluster has meanwhile."""
    random = Random(f"lending {seed}")
    demand = [count * VC_DEMAND[number] for number, count in enumerate(nodes)]
    drawn: list[tuple[float, int, int, float]] = []
    at_s = 0.0
    while len(drawn) < jobs:
        vc = random.choices(range(len(nodes)), weights=demand)[0]
        at_s += random.expovariate(1.0)
        for _ in range(min(jobs - len(drawn), 1 + int(random.paretovariate(1.2)), 60)):
            large = [size for size in _LARGE if size <= nodes[vc] * GPUS]
            is_large = bool(large) and random.random() < _LARGE_SHARE
            size = random.choice(large if is_large else _SMALL)
            duration_s = min(7 * 24 * HOUR_S, max(60.0, random.lognormvariate(8.3, 1.6)))
            drawn.append((at_s + random.random() * 0.5, vc, size, duration_s))
    drawn.sort()
    work = sum(size * duration_s for _, _, size, duration_s in drawn)
    slower = work / (load * sum(nodes) * GPUS) / drawn[-1][0]
    tasks: list[Task] = []
    for number, (submitted_s, vc, size, duration_s) in enumerate(drawn):
        pods = Pods(1, size) if size <= GPUS else Pods(size // GPUS, GPUS)
        job = Job(f"j{number}", f"vc{vc}", submitted_s * slower, duration_s, (pods,), is_gang=True, priority=0)
        tasks += tasks_of(job, number, f"vc{vc}")
    return tasks


def over_quota(
    rules: Rules, cells: str, load: float, jobs: int, seed: int, nodes: Sequence[int] = VC_NODES, rows: int = ROWS
) -> Lost:  # fmt: skip
    """Run the drawn jobs, which run on idle cells of others while their own VC has no room."""
    tasks = drawn_tasks(load, jobs, seed, nodes)
    cluster = HivedCluster(lending_cluster(cells, nodes, rows, rules))
    loop = Loop(cluster, tasks, (), Manner(lends_over_quota=True), HOUR_S)
    loop.run()
    ended = [task for task in tasks if task.ended_s >= 0]
    return Lost(
        round(sum(task.lost_s * task.shape.leaf_count for task in tasks) / HOUR_S, 1),
        round(sum(task.duration_s * task.shape.leaf_count for task in ended) / HOUR_S),
        sum(task.eviction_count for task in tasks),
        max(task.eviction_count for task in tasks),
        round(sum(task.ended_s - task.submitted_s - task.duration_s for task in ended) / len(ended) / HOUR_S, 3),
    )


def lending(rules: Rules, cells: str, load: float, jobs: int, draws: int) -> Figures:
    """The figures of `over_quota`, added up over so many seeds; the most of one job, and the mean delay."""
    found = [over_quota(rules, cells, load, jobs, seed) for seed in range(1, draws + 1)]
    return {
        "lost": round(sum(each.lost_hours for each in found), 1),
        "useful": round(sum(each.useful_hours for each in found)),
        "evictions": sum(each.evictions for each in found),
        "most_evictions": max(each.most_evictions for each in found),
        "delay": round(sum(each.delay_h for each in found) / draws, 3),
    }
