"""Events at job objects in Kube Queue's words: a job waits in a queue, leaves it, or is suspended, and why it waits.

A gang of plain pods has no object, so its events are at its pods.

Turns note events; a few at a time are written off the lock of the machine. Events are rate-limited for each job as for
pods: a message that repeats, or finds no token, is not written. Of too many jobs the one that was silent for
longest is forgotten.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from hived_extender.jobs.job import JobRef, parts_of, told_with_uid
from hived_extender.jobs.kinds.gangs import KIND as GANG
from hived_extender.jobs.needs import JobLoss
from hived_extender.jobs.outcomes import EvictionName
from hived_extender.kube.client import KubeError
from hived_extender.kube.events import BURST, NORMAL, RESERVE, WARNING, EventRecorder, PodRef, Tokens
from hived_extender.queues.reasons import DEQUEUED, ENQUEUED, EVICTED, INSUFFICIENT, REFUSED, SUSPENDED, UPGRADED

log = logging.getLogger(__name__)

MOST_JOBS, MOST_NOTES = 16_384, 8
MOST_LOSSES = 4096
MOST_PODS = 64
"""Pods of a gang that have its events: the first ones that became known."""

NEW_S = 60.0
"""A job that is older was told that it waits, perhaps by another replica."""

_TYPES = {EVICTED: WARNING, REFUSED: WARNING}


class _Of(msgspec.Struct):
    """The notes about one job, and its tokens. One that `was_evicted` has not run since."""

    job: JobRef
    tokens: Tokens
    notes: deque[tuple[str, str]]
    last: tuple[str, str] = ("", "")
    was_evicted: bool = False


class JobEvent(msgspec.Struct, frozen=True):
    """An event at a job, or at the pods of a gang, which are objects of this kind."""

    about: tuple[PodRef, ...]
    kind: str
    reason: str
    message: str


def write_events(recorder: EventRecorder, events: Iterable[JobEvent], may_write: Callable[[], bool]) -> None:
    """Write events for as long as this replica leads. Raises nothing."""
    for event in events:
        for each in event.about if may_write() else ():
            times = 0 if event.reason == ENQUEUED else 1  # an earlier leader may have said so
            event_type = _TYPES.get(event.reason, NORMAL)
            try:
                recorder.record(each, event_type, event.reason, event.message, times=times, about=event.kind)
            except KubeError as error:
                fields = {"namespace": each.namespace, "name": each.name, "reason": str(error)}
                log.warning("event not written", extra={"fields": fields})


class JobEvents:
    """Notes events. Not thread-safe."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Of] = OrderedDict()
        self._due: dict[str, None] = {}
        self._losses: deque[JobLoss] = deque(maxlen=MOST_LOSSES)
        self._loss_count = 0

    @property
    def has_due(self) -> bool:
        """True if an event is to be written."""
        return bool(self._due)

    @property
    def losses(self) -> tuple[JobLoss, ...]:
        """The latest jobs whose cells went to others, oldest first."""
        return tuple(self._losses)

    def lost(self, job: JobRef, winner: str, priority: int | None, now: float, *, is_borrowed: bool) -> None:
        """The cells of a job go to the job with the key `winner`; nothing is noted of other words."""
        parts = parts_of(winner)
        if parts:
            self._loss_count += 1
            why: EvictionName = "reclaim" if is_borrowed else "priority"
            loss = JobLoss(self._loss_count, job, now, why, "/".join(parts[:-1]), parts[1], priority)
            self._losses.append(loss)

    def enqueued(self, job: JobRef, queue: str, age_s: float, now: float, warning: str = "") -> None:
        """A job has come into a queue, perhaps with a warning; nothing is said of an old one."""
        if age_s < NEW_S:
            self._note(job, ENQUEUED, f"waits in queue {queue}{warning and f'; {warning}'}", now)

    def refused(self, job: JobRef, problem: str, now: float) -> None:
        """A job is in no queue, or will never start, until this is put right."""
        self._note(job, REFUSED, problem, now, reserve=RESERVE)

    def dequeued(self, job: JobRef, queue: str, now: float, *, is_borrowed: bool) -> None:
        """Cells for all pods of a job are held, perhaps again after it was suspended."""
        cells = "idle cells, which may be reclaimed" if is_borrowed else "cells of its virtual cluster"
        known = self._jobs.get(job.key)
        again = "; it runs again after it was suspended" if known is not None and known.was_evicted else ""
        if known is not None:
            known.was_evicted = False
        self._note(job, DEQUEUED, f"leaves queue {queue}: its whole gang has {cells}{again}", now)

    def upgraded(self, job: JobRef, now: float) -> None:
        """A borrower is entitled, and its cells are its own now."""
        self._note(job, UPGRADED, "its turn has come: the cells that it runs on are its virtual cluster's now", now)

    def evicted(self, job: JobRef, queue: str, winner: str, now: float, notice: str = "") -> None:
        """A job is suspended. `winner` is the key of the one that gets its cells, or other words; "" for none.

        `notice` says until when it rests.
        """
        why = f"its cells go to {told_with_uid(winner, job.namespace)}" if winner else "it has no cells any more"
        rests = notice and f", and {notice}"
        self._note(job, EVICTED, f"{why}; it waits again in queue {queue}{rests}", now)
        self._jobs[job.key].was_evicted = True

    def suspended(self, job: JobRef, queue: str, now: float) -> None:
        """A job gives its cells back, as its owner has suspended it."""
        self._note(job, EVICTED, f"{SUSPENDED}; its cells go back to queue {queue}", now)

    def insufficient(self, job: JobRef, text: str, now: float) -> None:
        """A quota refuses the first job of a queue, in Kube Queue's words."""
        self._note(job, INSUFFICIENT, text, now, reserve=RESERVE)

    def gone(self, key: str) -> None:
        """A job is gone or over: nothing more is said of it."""
        self._jobs.pop(key, None)
        self._due.pop(key, None)

    def take(self, limit: int, pods_of: Callable[[JobRef], Sequence[PodRef]]) -> list[JobEvent]:
        """Take so many events, those that wait longest first. One of a gang counts once for each of its pods."""
        found, count = list[JobEvent](), 0
        while count < limit and self._due:
            of_job = self._jobs[key := next(iter(self._due))]
            del self._due[key]
            reason, message = of_job.notes.popleft()
            if of_job.notes:
                self._due[key] = None
            job = of_job.job
            about = tuple(pods_of(job)[:MOST_PODS]) if job.kind == GANG else (job,)
            kind = "Pod" if job.kind == GANG else f"{job.api_version}/{job.kind}"
            found.append(JobEvent(about, kind, reason, message))
            count += len(about)
        return found

    def _note(self, job: JobRef, reason: str, message: str, now: float, reserve: float = 0.0) -> None:
        found = self._jobs.get(job.key)
        if found is None:
            found = self._jobs[job.key] = _Of(job, Tokens(BURST, now), deque(maxlen=MOST_NOTES))
            if len(self._jobs) > MOST_JOBS:
                self._due.pop(self._jobs.popitem(last=False)[0], None)
        self._jobs.move_to_end(job.key)
        if found.last == (reason, message) or now < found.tokens.due_at(reserve):
            return
        found.tokens.take(now)
        found.last = reason, message
        found.notes.append((reason, message))
        self._due.setdefault(job.key)
