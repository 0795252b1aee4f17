"""Sums over jobs of one virtual cluster, user, namespace or queue: what they used, and what of it was lost."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from hived_extender.api.waiting import MASKED, WAITING_STATES, Job, JobState

LOST: tuple[JobState, ...] = ("Failed", "Preempted", "Evicted")
"""Jobs that have ended so lost what they computed since their last checkpoint, if they wrote any."""

NOBODY = "(none)"
"""The row of jobs without a user or queue."""

OWNERS: Mapping[str, Callable[[Job], str]] = {
    "vc": lambda job: job.vc,
    "user": lambda job: job.user,
    "namespace": lambda job: job.namespace,
    "queue": lambda job: job.used.queue if job.used is not None else job.queue,
}
"""By what jobs are put together."""


class Usage(msgspec.Struct, kw_only=True):
    """The use of one owner within a time.

    Attributes
    ----------
    gpu_hours : leaf cells times hours of its jobs
    lost_gpu_hours : of these, those of jobs that failed, or were preempted or evicted and do not run again
    share : its part of all GPU-hours in the answer, in percent
    jobs : those of its jobs that had cells
    gpus : leaf cells that its jobs have now
    """

    name: str
    gpu_hours: float = 0.0
    share: float = 0.0
    lost_gpu_hours: float = 0.0
    jobs: int = 0
    gpus: int = 0


def usage_of(jobs: Iterable[Job], by: str, now: datetime, since_s: float) -> list[Usage]:
    """The use of each owner since so many seconds, the largest first. Jobs are present ones and those that have ended.

    A job counts at most its leaf cells times the time for which it was there: one that began earlier counts in part.
    """
    found: dict[str, Usage] = {}
    for job in jobs:
        if (used := _hours(job, now, since_s)) is None:
            continue
        hours, gpus = used
        owner = OWNERS[by](job) or (MASKED if job.name == MASKED else NOBODY)
        one = found.setdefault(owner, Usage(name=owner))
        one.gpu_hours += hours
        one.lost_gpu_hours += hours if _is_lost(job) else 0.0
        one.jobs += 1
        one.gpus += gpus
    total = sum(one.gpu_hours for one in found.values())
    for one in found.values():
        one.share = round(100 * one.gpu_hours / total, 1) if total else 0.0
        one.gpu_hours, one.lost_gpu_hours = round(one.gpu_hours, 3), round(one.lost_gpu_hours, 3)
    return sorted(found.values(), key=lambda one: (-one.gpu_hours, one.name))


def _hours(job: Job, now: datetime, since_s: float) -> tuple[float, int] | None:
    """The GPU-hours of a job within a time, and its leaf cells now; None if it had no cells."""
    if job.ended is not None:
        if not job.ended.gpus:
            return None
        there_s = (datetime.fromisoformat(job.ended.at) - (now - timedelta(seconds=since_s))).total_seconds()
        return min(job.ended.gpu_hours, job.ended.gpus * max(there_s, 0.0) / 3600), 0
    if job.used is None:
        return None
    most = job.used.gpus * since_s / 3600 if job.used.gpus else job.used.gpu_hours
    return min(job.used.gpu_hours, most), job.used.gpus


def _is_lost(job: Job) -> bool:
    return job.state in LOST or (job.state in WAITING_STATES and job.preempted is not None)
