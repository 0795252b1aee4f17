"""From jobs and queues to the objects that Kube Queue's users read: only what has changed is written."""

from collections.abc import Iterable

from msgspec.structs import replace

from hived_extender.job_kinds.job import JobState, told
from hived_extender.queues.book import Book, JobRecord, Step
from hived_extender.queues.publishing import Publisher
from hived_extender.queues.queues import Queues
from hived_extender.queues.records import SHOWN_ITEMS, Phase, QueueRecord, UnitRecord, unit_name
from hived_extender.queues.words import held_by

_PHASES = {
    Step.WAITING: Phase.ENQUEUED,
    Step.STARTING: Phase.RESERVED,
    Step.RUNNING: Phase.RUNNING,
    Step.LEAVING: Phase.ENQUEUED,
}


class Records:
    """See the module."""

    def __init__(self, publisher: Publisher, quotas: Iterable[str] = ()) -> None:
        """All `quotas` of a tree have objects, other queues once they have jobs."""
        self._publisher, self._quotas = publisher, tuple(quotas)
        self._told: dict[str, UnitRecord] = {}
        self._paths: dict[str, None] = {}  # queues that have objects
        self.heads: dict[str, str] = {}  # the first job of each queue

    def update(self, book: Book, queues: Queues) -> None:
        """Have objects say what is so now. Cost: that of the jobs and queues that have changed."""
        changed, moved = book.take_changed(), dict.fromkeys((*self._quotas, *queues.take_moved()))
        for key in changed:
            if key not in book.entries and (told := self._told.pop(key, None)) is not None:
                self._publisher.forget(told)
        for entry in book.take_over():
            record = _unit_record(entry)
            if record is not None:
                phase = Phase.SUCCEEDED if entry.job.state is JobState.SUCCEEDED else Phase.FAILED
                self._publisher.want(replace(record, phase=phase, message="", running=0, pending=0), is_last=True)
                self._told.pop(entry.key, None)
        for entry in [book.entries[key] for key in changed if key in book.entries]:
            key, record = entry.key, _unit_record(entry)
            if record is not None and self._told.get(key) != record:
                self._told[key] = record
                self._publisher.want(record)
                if record.queue not in self._paths:  # all its jobs may run
                    moved[record.queue] = None
        for path in moved:
            self._paths[path] = None
            order = queues.first(path, SHOWN_ITEMS)
            self.heads.pop(path, None)
            if order:
                self.heads[path] = order[0]
            self._publisher.want(QueueRecord(path, [self._item(book, key) for key in order]))
        self._quotas = ()  # they have objects now

    def _item(self, book: Book, key: str) -> tuple[str, str, int]:
        job, unit = book.entries[key].job.ref, book.entries[key].unit
        return job.namespace, unit_name(job), 0 if unit is None else unit.priority


def _unit_record(entry: JobRecord) -> UnitRecord | None:
    unit = entry.unit
    if unit is None:
        return None
    progress = entry.progress
    phase = _PHASES[entry.step]
    if entry.step is Step.STARTING and entry.written is None and entry.wanted is None:
        phase = Phase.DEQUEUED
    return UnitRecord(
        entry.job.ref,
        unit.queue,
        unit.priority,
        {name: f"{amount:g}" for name, amount in unit.request.items()},
        phase,
        message=entry.refusal or _message(entry, unit.queue),
        is_held=entry.kept.is_aside,
        attempts=entry.kept.attempts,
        running=progress.bound_count if progress is not None else 0,
        pending=progress.slot_count - progress.bound_count if progress is not None else 0,
        evicted_for=told(entry.kept.evicted_for, entry.job.ref.namespace),
        priority_class=entry.job.priority_class,
        owner=entry.job.owner,
    )


def _message(entry: JobRecord, queue: str) -> str:
    """Why a job has no pods yet, in words that do not change with its place: each change is a call."""
    match entry.step:
        case Step.WAITING if entry.kept.is_aside:
            return held_by("", is_held=entry.kept.is_held, is_suspended=entry.kept.is_suspended)
        case Step.WAITING:
            notice = entry.kept.late.notice or entry.kept.returned.notice
            shows = f"hived get queue {queue} shows its place, and what it waits for"
            return f"waits in queue {queue}: {shows}{notice and f'; {notice}'}"
        case Step.STARTING:
            return "cells for all of its pods are held"
        case Step.LEAVING:
            return "is called back, and waits again once its pods are gone"
    return ""
