"""Traces of another load: arrivals folded or faster, jobs larger or smaller. The notes say what was done.

Durations stay as they are in all of them. So does what the trace tells of its own cluster, except times of start, which
mean nothing any more.
"""

from collections.abc import Iterable

import msgspec

from hived.errors import UserError
from hived_traces.fields import MAX_LEAVES, packed
from hived_traces.formats.own import rebased
from hived_traces.jobs import Job, Trace


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
