"""Jobs of any trace that `hived trace` reads, at a load that is asked for.

Arrivals are stretched or pressed, durations stay. Of a long trace the first MOST_JOBS jobs are taken, and of many
tenants those with the most GPU-hours; the others are one VC together. `hived trace sample` cuts other parts.
"""

from collections import Counter
from functools import cache
from typing import NamedTuple

from hived_simulator.traces.jobs import Trace
from hived_simulator.traces.reading import read_trace
from tests.quality.jobs import GPUS, Job, quotas_by_work, that_fit
from tests.quality.large import NODES

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
