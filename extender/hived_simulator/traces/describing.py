"""A description of a trace: its span, jobs by tenant and size, durations, waits, and the load that it puts on GPUs."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from math import ceil

import msgspec

from hived_simulator.traces.changing import load, span_s
from hived_simulator.traces.jobs import Job, Trace, most_at_once

PERCENTILES = (5, 25, 50, 75, 90, 95, 99, 100)


class SizeRow(msgspec.Struct, frozen=True):
    """Jobs of one number of GPUs."""

    gpus: int
    jobs: int
    gpu_hours: float


class TenantRow(msgspec.Struct, frozen=True):
    """Jobs of one tenant; `sizes` has their number by GPUs, `share` is of all GPU-hours."""

    tenant: str
    jobs: int
    users: int
    gpu_hours: float
    share: float
    sizes: dict[str, int]


class Spread(msgspec.Struct, frozen=True):
    """Seconds of many jobs: the mean, and percentiles by their number."""

    mean: float
    percentiles: dict[str, float]


class Description(msgspec.Struct, frozen=True):
    """A trace in numbers.

    start, end : ISO 8601 of the first and the last submission, "" if the trace tells no date
    span_s : seconds between them
    gangs : jobs of several pods
    most_gpus_at_once : if every job started when it was submitted
    waits : between submission and start in the trace's own cluster, None if it tells no starts
    load : see `changing.load`, None if the number of GPUs is not given
    """

    name: str
    format: str
    start: str
    end: str
    span_s: float
    jobs: int
    gangs: int
    opportunistic: int
    gpu_hours: float
    most_gpus_at_once: int
    durations: Spread
    waits: Spread | None
    gpus: int | None
    load: float | None
    leaf_types: dict[str, int]
    tenants: tuple[TenantRow, ...]
    sizes: tuple[SizeRow, ...]
    notes: tuple[str, ...]


def describe(trace: Trace, name_of_format: str = "", gpus: int = 0) -> Description:
    """The trace in numbers; with `gpus` also its load on so many. Raises UserError if a load makes no sense."""
    jobs = trace.jobs
    waits = [job.started_s - job.submitted_s for job in jobs if job.started_s is not None]
    types: dict[str, int] = defaultdict(int)
    for job in jobs:
        types[job.leaf_type] += 1
    return Description(
        name=trace.name,
        format=name_of_format,
        start=_iso(trace.date(0.0)),
        end=_iso(trace.date(jobs[-1].submitted_s)),
        span_s=span_s(trace),
        jobs=len(jobs),
        gangs=sum(sum(pods.count for pods in job.pods) > 1 for job in jobs),
        opportunistic=sum(job.priority == -1 for job in jobs),
        gpu_hours=round(sum(map(_gpu_hours, jobs)), 3),
        most_gpus_at_once=most_at_once(
            (job.submitted_s, job.submitted_s + job.duration_s, job.leaf_count) for job in jobs
        ),
        durations=_spread([job.duration_s for job in jobs]),
        waits=_spread(waits) if waits else None,
        gpus=gpus or None,
        load=round(load(trace, gpus), 4) if gpus else None,
        leaf_types={each: types[each] for each in sorted(types) if each},
        tenants=_tenants(jobs),
        sizes=_sizes(jobs),
        notes=trace.notes,
    )


def _gpu_hours(job: Job) -> float:
    return job.leaf_count * job.duration_s / 3600


def _iso(date: datetime | None) -> str:
    return "" if date is None else date.isoformat()


def _spread(seconds: list[float]) -> Spread:
    """By nearest rank: each percentile is one of the values."""
    ordered = sorted(seconds)
    ranks = {str(each): ordered[max(0, ceil(each * len(ordered) / 100) - 1)] for each in PERCENTILES}
    return Spread(round(sum(ordered) / len(ordered), 3), {each: round(value, 3) for each, value in ranks.items()})


def _tenants(jobs: Sequence[Job]) -> tuple[TenantRow, ...]:
    """Ordered by GPU-hours, the largest first."""
    by_tenant: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_tenant[job.tenant].append(job)
    all_hours = sum(map(_gpu_hours, jobs))
    rows = []
    for tenant, own in by_tenant.items():
        hours = sum(map(_gpu_hours, own))
        sizes: dict[int, int] = defaultdict(int)
        for job in own:
            sizes[job.leaf_count] += 1
        by_size = {str(each): sizes[each] for each in sorted(sizes)}
        users = len({job.user for job in own if job.user})
        rows.append(TenantRow(tenant, len(own), users, round(hours, 3), round(hours / all_hours, 4), by_size))
    return tuple(sorted(rows, key=lambda row: (-row.gpu_hours, row.tenant)))


def _sizes(jobs: Sequence[Job]) -> tuple[SizeRow, ...]:
    counts: dict[int, int] = defaultdict(int)
    hours: dict[int, float] = defaultdict(float)
    for job in jobs:
        counts[job.leaf_count] += 1
        hours[job.leaf_count] += _gpu_hours(job)
    return tuple(SizeRow(each, counts[each], round(hours[each], 3)) for each in sorted(counts))
