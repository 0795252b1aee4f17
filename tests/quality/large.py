"""Large clusters and their jobs: 312 nodes of 8 GPUs in 13 rows of 3 racks, shared by VCs.

Jobs are random ones at a load, two weeks of Philly where the shared folder has them, or any trace that `hived trace`
reads, at a load that is asked for. Arrivals are stretched or pressed, durations stay. Of a long trace the first
MOST_JOBS jobs are taken, and of many tenants those with the most GPU-hours; the others are one VC together.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from random import Random
from typing import NamedTuple

from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, Rules, VirtualCellSpec, VirtualClusterSpec
from hived_simulator.traces.jobs import Trace
from hived_simulator.traces.reading import read_trace
from tests.places import SHARED
from tests.quality.plain import OPPORTUNISTIC

ROWS, RACKS_PER_ROW, NODES_PER_RACK, GPUS = 13, 3, 8, 8
NODES = ROWS * RACKS_PER_ROW * NODES_PER_RACK
_TYPES = (
    CellTypeSpec("ROW", "RACK", RACKS_PER_ROW),
    CellTypeSpec("RACK", "NODE", NODES_PER_RACK),
    CellTypeSpec("NODE", "PAIR", GPUS // 2, is_node_level=True),
    CellTypeSpec("PAIR", "GPU", 2),
)
_PATHS = {"row": "ROW", "rack": "ROW.RACK", "node": "ROW.RACK.NODE"}
_NODES = {"row": RACKS_PER_ROW * NODES_PER_RACK, "rack": NODES_PER_RACK, "node": 1}

# VC -> cells; each kind promises the whole cluster
PROMISES: dict[str, dict[str, dict[str, int]]] = {
    "N": {"a": {"node": 96}, "b": {"node": 72}, "c": {"node": 64}, "d": {"node": 48}, "e": {"node": 32}},
    "R": {
        "a": {"rack": 10, "node": 16}, "b": {"rack": 8, "node": 8}, "c": {"rack": 6, "node": 16},
        "d": {"rack": 4, "node": 16}, "e": {"rack": 3, "node": 8},
    },
    "P": {
        "a": {"row": 3, "rack": 2, "node": 8}, "b": {"row": 2, "rack": 2, "node": 8},
        "c": {"row": 1, "rack": 3, "node": 16}, "d": {"row": 1, "rack": 2, "node": 8}, "e": {"rack": 2, "node": 16},
    },
}  # fmt: skip


def large_cluster(
    promises: dict[str, dict[str, int]], rules: Rules, topology: bool = False, spares: bool = False
) -> ClusterSpec:
    """The cluster with these promises: VC -> kind of cell (row, rack, node) -> number."""
    names = [PhysicalCellSpec(address=f"n{i:03}") for i in range(NODES)]
    racks = [PhysicalCellSpec(children=tuple(names[i : i + NODES_PER_RACK])) for i in range(0, NODES, NODES_PER_RACK)]
    rows = tuple(
        PhysicalCellSpec("ROW", children=tuple(racks[i : i + RACKS_PER_ROW]))
        for i in range(0, len(racks), RACKS_PER_ROW)
    )
    vcs = {
        name: VirtualClusterSpec(
            name,
            tuple(VirtualCellSpec(_PATHS[kind], count) for kind, count in cells.items() if count),
            packs_by_topology=topology,
            spares=spares,
        )
        for name, cells in promises.items()
    }
    return ClusterSpec({each.name: each for each in _TYPES}, rows, vcs, rules=rules)


def node_quotas(promises: dict[str, dict[str, int]]) -> dict[str, int]:
    """VC -> nodes that it is promised, in cells of any kind."""
    return {vc: sum(_NODES[kind] * count for kind, count in cells.items()) for vc, cells in promises.items()}


def with_surplus(promises: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The same promises without the last VC, so that its cells are nobody's."""
    return dict(list(promises.items())[:-1])


def as_racks(nodes: dict[str, int]) -> dict[str, dict[str, int]]:
    """Node quotas as whole racks and loose nodes."""
    return {vc: {"rack": count // NODES_PER_RACK, "node": count % NODES_PER_RACK} for vc, count in nodes.items()}


PHILLY = SHARED / "data" / "philly.csv.gz"
Sizes = tuple[tuple[tuple[int, ...], int], ...]  # of the pods of a job, and how many such jobs there are
SIZES: Sizes = (
    ((1,), 30), ((2,), 12), ((4,), 13), ((8,), 15), ((4,) * 2, 3), ((4,) * 4, 3), ((8,) * 2, 8), ((8,) * 4, 8),
    ((8,) * 8, 5), ((8,) * 16, 3),
)  # fmt: skip
MIXED_SIZES: Sizes = (
    ((1,), 25), ((2,), 10), ((4,), 10), ((8,), 12), ((1, 8), 8), ((2, 4), 8), ((4, 8, 8), 8), ((1, 1, 4, 8), 6),
    ((2,) * 3 + (8,) * 4, 5), ((4,) * 4 + (8,) * 8, 3),
)  # fmt: skip
MEDIAN_S, MEAN_S = 3600.0, 3600.0 * 1.6487  # of log-normal durations with sigma 1


@dataclass(frozen=True, slots=True)
class Job:
    """A job: times in seconds; `sizes` are the leaves of its pods."""

    name: str
    vc: str
    submitted: float
    duration: float
    sizes: tuple[int, ...]
    priority: int = 0

    @property
    def leaf_count(self) -> int:
        """Leaves of all pods."""
        return sum(self.sizes)


def random_jobs(
    quotas: dict[str, int], load: float, opportunistic: float, count: int, seed: int, kinds: Sizes = SIZES
) -> list[Job]:  # fmt: skip
    """Jobs in order of submission, which ask for a load of what the VCs are promised, as a share of 1.

    quotas : VC -> leaves
    opportunistic : share of the jobs that are opportunistic
    """
    random = Random(f"jobs {load} {opportunistic} {seed}")
    total = sum(quotas.values())
    mean_leaves = sum(sum(sizes) * weight for sizes, weight in kinds) / sum(weight for _, weight in kinds)
    gap = mean_leaves * MEAN_S / (load * total)
    now, jobs = 0.0, []
    sizes, weights = zip(*kinds, strict=True)
    for number in range(count):
        now += random.expovariate(1 / gap)
        vc = random.choices(list(quotas), list(quotas.values()))[0]
        wanted = random.choices(sizes, weights)[0]
        duration = MEDIAN_S * min(20.0, random.lognormvariate(0, 1))
        priority = OPPORTUNISTIC if random.random() < opportunistic else 0
        jobs.append(Job(f"j{number}", vc, now, duration, wanted, priority))
    return jobs


def philly_jobs(days: float = 1.5, first: str = "2017-10-16", last: str = "2017-10-29") -> list[Job]:
    """The jobs of Philly submitted on these days, both included, with their arrivals pressed into `days` days.

    Durations stay as they are. A job of n GPUs has n // 8 pods of 8, and one of the remainder.
    """
    trace = read_trace(PHILLY)
    begin, end = (datetime.fromisoformat(f"{day}T00:00:00Z").timestamp() for day in (first, last))
    since, slower = begin - (trace.start or 0.0), days / ((end - begin) / 86_400 + 1)
    chosen = [job for job in _jobs(trace) if 0 <= job.submitted - since < end - begin + 86_400]
    return [
        replace(job, name=f"j{number}", submitted=(job.submitted - since) * slower, duration=max(1.0, job.duration))
        for number, job in enumerate(chosen)
    ]


def quotas_by_work(jobs: list[Job], node_count: int) -> dict[str, int]:
    """Nodes of each VC in proportion to the GPU-hours of its jobs, at least one: VC -> nodes."""
    work: dict[str, float] = defaultdict(float)
    for job in jobs:
        work[job.vc] += job.leaf_count * job.duration
    total = sum(work.values())
    shares = {vc: work[vc] / total * node_count for vc in sorted(work)}
    nodes = {vc: max(1, int(share)) for vc, share in shares.items()}
    for vc in sorted(shares, key=lambda vc: (int(shares[vc]) - shares[vc], vc)):
        if sum(nodes.values()) < node_count:
            nodes[vc] += 1
    while sum(nodes.values()) > node_count:
        nodes[max(nodes, key=lambda vc: (nodes[vc], vc))] -= 1
    return nodes


def that_fit(jobs: list[Job], nodes: dict[str, int]) -> list[Job]:
    """The jobs that their VC could ever run: others would end a first-come queue."""
    return [job for job in jobs if len(job.sizes) <= nodes.get(job.vc, 0)]


MOST_JOBS = 20_000
MOST_VCS = 40
OTHERS = "others"
NOBODY = "default"  # of jobs whose trace names no tenant


class Workload(NamedTuple):
    """Jobs that fit into their VC, nodes of each VC, and what was left out or joined, in words."""

    jobs: list[Job]
    nodes: dict[str, int]
    notes: tuple[str, ...]


@cache
def trace_workload(path: str, load: float) -> Workload:
    """The jobs of a trace with the arrivals of this load: their GPU-seconds, as a share of those that there are.

    All of them are guaranteed, whatever the trace says. Raises UserError for a file that is no trace.
    """
    trace = read_trace(path)
    notes = []
    jobs = _jobs(trace)[:MOST_JOBS]
    if len(jobs) < len(trace.jobs):
        notes.append(f"{len(jobs):,} of {len(trace.jobs):,} jobs, the first ones whose pods fit on a node")
    vc_of = _vcs(jobs)
    if OTHERS in vc_of.values():
        notes.append(f"the smallest {sum(vc == OTHERS for vc in vc_of.values())} tenants are one VC")
    work = sum(job.leaf_count * job.duration for job in jobs)
    span = max(1e-9, jobs[-1].submitted - jobs[0].submitted)
    slower = work / (load * NODES * GPUS) / span
    jobs = [
        Job(f"j{number}", vc_of[job.vc], (job.submitted - jobs[0].submitted) * slower, job.duration, job.sizes)
        for number, job in enumerate(jobs)
    ]
    nodes = quotas_by_work(jobs, NODES)
    fitting = that_fit(jobs, nodes)
    if len(fitting) < len(jobs):
        notes.append(f"{len(jobs) - len(fitting):,} jobs are larger than their VC, and left out")
    return Workload(fitting, nodes, tuple(notes))


def _jobs(trace: Trace) -> list[Job]:
    """The jobs whose pods fit on a node, in order of submission."""
    return [
        Job(
            "", job.tenant or NOBODY, job.submitted_s, job.duration_s,
            tuple(pods.leaf_count for pods in job.pods for _ in range(pods.count)),
        )
        for job in trace.jobs
        if all(pods.leaf_count <= GPUS for pods in job.pods)
    ]  # fmt: skip


def _vcs(jobs: list[Job]) -> dict[str, str]:
    """The VC of each tenant."""
    work: Counter[str] = Counter()
    for job in jobs:
        work[job.vc] += round(job.leaf_count * job.duration)
    ordered = sorted(work, key=lambda tenant: (-work[tenant], tenant))
    own = ordered if len(ordered) <= MOST_VCS else ordered[: MOST_VCS - 1]
    return {tenant: tenant if tenant in own else OTHERS for tenant in ordered}
