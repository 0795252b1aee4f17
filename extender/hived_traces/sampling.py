"""Parts of a trace: by time, by tenant, or some of its jobs by chance. The notes say what was done."""

from collections.abc import Collection
from datetime import UTC, datetime
from random import Random

import msgspec

from hived.errors import UserError
from hived_traces.formats.own import rebased
from hived_traces.jobs import Job, Trace


def between(trace: Trace, since: float | None, until: float | None) -> Trace:
    """The jobs submitted from `since` on and before `until`, both in seconds since the trace's start.

    Raises UserError if there are none.
    """
    first = 0.0 if since is None else since
    jobs = [job for job in trace.jobs if job.submitted_s >= first and (until is None or job.submitted_s < until)]
    return _part(trace, jobs, f"of {len(trace.jobs)} jobs those submitted from {_when(trace, first)}" + (
        "" if until is None else f" to {_when(trace, until)}"
    ))  # fmt: skip


def first_part(trace: Trace, span_s: float) -> Trace:
    """The jobs of the first `span_s` seconds, counted from the first submission."""
    jobs = [job for job in trace.jobs if job.submitted_s < span_s]
    return _part(trace, jobs, f"of {len(trace.jobs)} jobs those of the first {span_s:.10g} s")


def still_running(trace: Trace, since: float) -> Trace:
    """The jobs that run or wait after `since` (seconds since 1970), as far as the trace tells; all without dates.

    Raises UserError if there are none.
    """
    start = trace.start
    if start is None:
        return trace
    jobs = [
        job
        for job in trace.jobs
        if start + (job.submitted_s if job.started_s is None else job.started_s) + job.duration_s > since
    ]
    return _part(trace, jobs, f"of {len(trace.jobs)} jobs those that ran after {_when(trace, since - start)}")


def of_tenants(trace: Trace, tenants: Collection[str]) -> Trace:
    """The jobs of some tenants. Raises UserError for a tenant that has none."""
    known = {job.tenant for job in trace.jobs}
    if unknown := sorted(set(tenants) - known):
        there = ", ".join(repr(each) for each in sorted(known)[:20])
        raise UserError(f"{trace.name}: no job is of tenant {unknown[0]!r}; there are {there}")
    jobs = [job for job in trace.jobs if job.tenant in tenants]
    return _part(trace, jobs, f"of {len(trace.jobs)} jobs those of tenants {', '.join(sorted(tenants))}")


def some(trace: Trace, count: int, seed: int = 0) -> Trace:
    """`count` jobs by chance, each as likely as any other; the same seed always gives the same jobs.

    The load falls as the number of jobs does. Raises UserError if the trace has not so many.
    """
    if count > len(trace.jobs):
        raise UserError(f"{trace.name}: has {len(trace.jobs)} jobs, {count} are wanted")
    draw = Random(seed).random
    order = sorted((draw(), number) for number in range(len(trace.jobs)))
    chosen = sorted(number for _, number in order[:count])
    jobs = [trace.jobs[number] for number in chosen]
    return _part(trace, jobs, f"of {len(trace.jobs)} jobs {count} by chance, seed {seed}")


def _part(trace: Trace, jobs: list[Job], note: str) -> Trace:
    if not jobs:
        raise UserError(f"{trace.name}: no job is left; {note}")
    return rebased(msgspec.structs.replace(trace, jobs=tuple(jobs), notes=(*trace.notes, f"sample: {note}")))


def _when(trace: Trace, seconds: float) -> str:
    """A moment of a trace as a date, or as seconds where the trace has none."""
    if trace.start is None:
        return f"{seconds:.10g} s"
    return datetime.fromtimestamp(trace.start + seconds, UTC).isoformat(" ")
