"""Other traces of one: a part of it by time, tenant or chance, or another load. The notes say what was done.

Another load folds arrivals or makes them faster, or jobs larger. Durations stay as they are. So does what the trace
tells of its own cluster, except times of start, which mean nothing any more.
"""

from collections.abc import Collection, Iterable
from random import Random

import msgspec

from hived.values.errors import UserError
from hived_config.words import counted
from hived_simulator.traces.fields import MAX_LEAVES, packed
from hived_simulator.traces.jobs import Job, Trace
from hived_simulator.traces.own import rebased


def between(trace: Trace, since: float | None, until: float | None) -> Trace:
    """The jobs submitted from `since` on and before `until`, both in seconds since the trace's start.

    Raises UserError if there are none.
    """
    first = 0.0 if since is None else since
    jobs = [job for job in trace.jobs if job.submitted_s >= first and (until is None or job.submitted_s < until)]
    return _part(trace, jobs, f"of {counted(len(trace.jobs), 'job')} those submitted from {_when(trace, first)}" + (
        "" if until is None else f" to {_when(trace, until)}"
    ))  # fmt: skip


def first_part(trace: Trace, span_s: float) -> Trace:
    """The jobs of the first `span_s` seconds, counted from the first submission."""
    jobs = [job for job in trace.jobs if job.submitted_s < span_s]
    return _part(trace, jobs, f"of {counted(len(trace.jobs), 'job')} those of the first {span_s:.10g} s")


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
    return _part(
        trace, jobs, f"{len(jobs)} of {counted(len(trace.jobs), 'job')} ran after {_when(trace, since - start)}"
    )


def of_tenants(trace: Trace, tenants: Collection[str]) -> Trace:
    """The jobs of some tenants. Raises UserError for a tenant that has none."""
    known = {job.tenant for job in trace.jobs}
    if unknown := sorted(set(tenants) - known):
        there = ", ".join(repr(each) for each in sorted(known)[:20])
        raise UserError(f"{trace.name}: no job is of tenant {unknown[0]!r}; there are {there}")
    jobs = [job for job in trace.jobs if job.tenant in tenants]
    return _part(trace, jobs, f"of {counted(len(trace.jobs), 'job')} those of tenants {', '.join(sorted(tenants))}")


def some(trace: Trace, count: int, seed: int = 0) -> Trace:
    """`count` jobs by chance, each as likely as any other; the same seed always gives the same jobs.

    The load falls as the number of jobs does. Raises UserError if the trace has not so many.
    """
    if count > len(trace.jobs):
        raise UserError(f"{trace.name}: has {counted(len(trace.jobs), 'job')}, {count} are wanted")
    draw = Random(seed).random
    order = sorted((draw(), number) for number in range(len(trace.jobs)))
    chosen = sorted(number for _, number in order[:count])
    jobs = [trace.jobs[number] for number in chosen]
    return _part(trace, jobs, f"of {counted(len(trace.jobs), 'job')} {count} by chance, seed {seed}")


def _part(trace: Trace, jobs: list[Job], note: str) -> Trace:
    if not jobs:
        raise UserError(f"{trace.name}: no job is left; {note}")
    return rebased(msgspec.structs.replace(trace, jobs=tuple(jobs), notes=(*trace.notes, f"sample: {note}")))


def _when(trace: Trace, seconds: float) -> str:
    """A moment of a trace as a date, or as seconds where the trace has none."""
    date = trace.date(seconds)
    return f"{seconds:.10g} s" if date is None else date.isoformat(" ", "seconds")


def gpu_seconds(trace: Trace) -> float:
    """Leaf cells times seconds of all jobs."""
    return sum(job.leaf_count * job.duration_s for job in trace.jobs)


def span_s(trace: Trace) -> float:
    """Seconds from the first to the last submission."""
    return trace.jobs[-1].submitted_s - trace.jobs[0].submitted_s


def load(trace: Trace, gpus: int) -> float:
    """The demand of jobs while they arrive, as a share of what `gpus` leaf cells can do: 1.0 fills them in the mean.

    Raises UserError if all jobs arrive at once.
    """
    span = span_s(trace)
    if span <= 0:
        raise UserError(f"{trace.name}: all jobs are submitted at once, so that there is no load")
    return gpu_seconds(trace) / (span * gpus)


def fold(trace: Trace, span: float) -> Trace:
    """Lay the parts of `span` seconds above each other: arrivals are taken modulo it, to the microsecond."""
    before = span_s(trace)
    jobs = (_moved(job, _remainder(job.submitted_s, span)) for job in trace.jobs)
    return _ordered(trace, jobs, f"arrivals of {before:.10g} s folded onto {span:.10g} s, durations kept")


def _remainder(moment: float, span: float) -> float:
    found = round(moment % span, 6)
    return found if found < span else 0.0


def speed(trace: Trace, factor: float) -> Trace:
    """Let jobs arrive `factor` times as fast."""
    jobs = (_moved(job, round(job.submitted_s / factor, 6)) for job in trace.jobs)
    return _ordered(trace, jobs, f"arrivals {factor:g} times as fast, durations kept")


def to_load(trace: Trace, wanted: float, gpus: int, *, folds: bool) -> Trace:
    """Bring a trace to a load of `gpus` leaf cells, by folding or by another speed of arrivals.

    A fold can only raise the load, and meets it as nearly as the last arrival does. Raises UserError if the load is
    lower than that of the trace.
    """
    now = load(trace, gpus)
    if not folds:
        return speed(trace, wanted / now)
    if wanted < now:
        raise UserError(f"{trace.name}: has a load of {now:.3g}; a fold cannot lower it to {wanted:g}, speed can")
    return fold(trace, gpu_seconds(trace) / (wanted * gpus))


def size(trace: Trace, factor: float, node_leaf_cells: int) -> Trace:
    """Give each job `factor` times its GPUs, rounded, one at least: whole nodes, and the remainder as one pod."""

    def larger(job: Job) -> Job:
        leaves = min(max(1, round(job.leaf_count * factor)), MAX_LEAVES)
        return msgspec.structs.replace(job, pods=packed(leaves, node_leaf_cells))

    return _ordered(trace, map(larger, trace.jobs), f"GPUs of each job times {factor:g}, on nodes of {node_leaf_cells}")


def _moved(job: Job, submitted: float) -> Job:
    return msgspec.structs.replace(job, submitted_s=submitted, started_s=None)


def _ordered(trace: Trace, jobs: Iterable[Job], note: str) -> Trace:
    ordered = tuple(sorted(jobs, key=lambda job: (job.submitted_s, job.name)))
    return rebased(msgspec.structs.replace(trace, jobs=ordered, notes=(*trace.notes, f"scaled: {note}")))
