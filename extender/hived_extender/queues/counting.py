"""Counts of queues, in one walk over all jobs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from hived_extender.kube.metrics import QueueGauges
from hived_extender.queues.book import Book, JobRecord, Step
from hived_extender.queues.units import OtherUse


class QueueCount(msgspec.Struct):
    """One queue. `oldest_s` is since when its oldest job waits, in seconds since 1970; None if none does.

    `used` is by resource, of the jobs with cells; these are `running`, and some of them `borrowed`.
    """

    vc: str
    waiting: int = 0
    running: int = 0
    borrowed: int = 0
    oldest_s: float | None = None
    used: dict[str, float] = msgspec.field(default_factory=dict)


def count(book: Book, due: Callable[[str], float | None]) -> dict[str, QueueCount]:
    """All queues that have jobs, by full name. `due` says when the turn of a job came, None for not yet.

    Cost O(jobs).
    """
    found: dict[str, QueueCount] = {}
    for entry in book.entries.values():
        unit = entry.unit
        if unit is None:
            continue
        one = found.get(unit.queue)
        if one is None:
            one = found[unit.queue] = QueueCount(unit.vc)
        if entry.step is Step.WAITING:
            one.waiting += 1
            since_s = waits_since(entry)
            one.oldest_s = since_s if one.oldest_s is None else min(one.oldest_s, since_s)
        elif entry.step.has_cells:
            one.running += 1
            one.borrowed += entry.kept.is_borrowed and due(entry.key) is None
            for name, amount in unit.request.items():
                one.used[name] = one.used.get(name, 0.0) + amount
    return found


def count_others(found: Mapping[str, QueueCount], others: Iterable[OtherUse]) -> None:
    """Add the use of quotas by pods of no queue."""
    for other in others:
        if (one := found.get(other.queue)) is not None:
            one.running += other.jobs
            for name, amount in other.request.items():
                one.used[name] = one.used.get(name, 0.0) + amount


class Ordered(Protocol):
    """The order of units; `queues.Queues` has it."""

    def due(self, key: str) -> float | None:
        """When the turn of a unit came, None if it has not."""

    def shares(self) -> Mapping[str, float]:
        """The share of each queue that has units."""


def gauges(book: Book, queues: Ordered, now: float) -> QueueGauges:
    """The same as Prometheus reads it: a job that has borrowed its cells is not among those that run."""
    found = count(book, queues.due)
    jobs: dict[tuple[str, str], int] = {}
    for name, one in sorted(found.items()):
        jobs[name, "waiting"] = one.waiting
        jobs[name, "running"] = one.running - one.borrowed
        jobs[name, "borrowed"] = one.borrowed
    waits = {(name,): max(0.0, now - (now if one.oldest_s is None else one.oldest_s)) for name, one in found.items()}
    return QueueGauges(jobs, waits, {(name,): share for name, share in queues.shares().items()})


def waits_since(entry: JobRecord) -> float:
    """Since when a job waits: its creation, or its last call back. It is the same after a restart."""
    return entry.kept.since_s or entry.job.created_s or entry.since_s
