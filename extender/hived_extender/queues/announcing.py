"""Events at job objects in Kube Queue's words: a job waits in a queue, leaves it, or is suspended, and why it waits.

A gang of plain pods has no object, so its events are at its pods.

Turns note events, and the controller writes a few at a time outside of its lock. Events are rate-limited for each job
as for pods: a message that repeats, or finds no token, is not written. Of too many jobs the one that was silent for
longest is forgotten.
"""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from hived_extender.jobs.job import JobRef, told_with_uid
from hived_extender.jobs.kinds.gangs import KIND as GANG
from hived_extender.kube.client import KubeError
from hived_extender.kube.events import BURST, NORMAL, RESERVE, WARNING, EventRecorder, PodRef, Tokens
from hived_extender.queues.reasons import DEQUEUED, ENQUEUED, EVICTED, INSUFFICIENT, REFUSED, SUSPENDED, UPGRADED

log = logging.getLogger(__name__)

MOST_JOBS, MOST_NOTES = 16_384, 8
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


class JobEvents:
    """Notes and writes events. Thread-safe; one thread writes. `pods_of` gives the pods of a gang."""

    def __init__(self, recorder: EventRecorder, pods_of: Callable[[JobRef], Sequence[PodRef]]) -> None:
        self._recorder, self._pods_of = recorder, pods_of
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, _Of] = OrderedDict()
        self._due: dict[str, None] = {}

    def enqueued(self, job: JobRef, queue: str, age_s: float, now: float, warning: str = "") -> None:
        """A job has come into a queue, perhaps with a warning; nothing is said of an old one."""
        if age_s < NEW_S:
            self._note(job, ENQUEUED, f"waits in queue {queue}{warning and f'; {warning}'}", now)

    def refused(self, job: JobRef, problem: str, now: float) -> None:
        """A job is in no queue, or will never start, until this is put right."""
        self._note(job, REFUSED, problem, now, reserve=RESERVE)

    def dequeued(self, job: JobRef, queue: str, now: float, *, is_borrowed: bool) -> None:
        """Cells for all pods of a job are held, perhaps again after it was suspended."""
        cells = "idle cells, which may be taken back" if is_borrowed else "cells of its virtual cluster"
        with self._lock:
            known = self._jobs.get(job.key)
            again = "; it runs again after it was called back" if known is not None and known.was_evicted else ""
            if known is not None:
                known.was_evicted = False
            self._note_locked(job, DEQUEUED, f"leaves queue {queue}: its whole gang has {cells}{again}", now, 0.0)

    def upgraded(self, job: JobRef, now: float) -> None:
        """A job that ran on borrowed cells is due, and they are its own now."""
        self._note(job, UPGRADED, "its turn has come: the cells that it runs on are its virtual cluster's now", now)

    def evicted(self, job: JobRef, queue: str, winner: str, now: float, notice: str = "") -> None:
        """A job is suspended. `winner` is the key of the one that gets its cells, or other words; "" for none.

        `notice` says until when it rests.
        """
        why = f"its cells go to {told_with_uid(winner, job.namespace)}" if winner else "it has no cells any more"
        with self._lock:
            self._note_locked(
                job, EVICTED, f"{why}; it waits again in queue {queue}{notice and f', and {notice}'}", now, 0.0
            )
            self._jobs[job.key].was_evicted = True

    def suspended(self, job: JobRef, queue: str, now: float) -> None:
        """A job gives its cells back, as its owner has suspended it."""
        self._note(job, EVICTED, f"{SUSPENDED}; its cells go back to queue {queue}", now)

    def insufficient(self, job: JobRef, text: str, now: float) -> None:
        """A quota refuses the first job of a queue, in Kube Queue's words."""
        self._note(job, INSUFFICIENT, text, now, reserve=RESERVE)

    def gone(self, key: str) -> None:
        """A job is gone or over: nothing more is said of it."""
        with self._lock:
            self._jobs.pop(key, None)
            self._due.pop(key, None)

    def write(self, limit: int, may_write: Callable[[], bool]) -> int:
        """Write at most so many events, those that wait longest first; returns how many. Raises nothing.

        That of a gang counts once for each of its pods, and is not cut.
        """
        count = 0
        while count < limit and may_write() and (taken := self._take()) is not None:
            job, reason, message = taken
            is_gang = job.kind == GANG
            about = "Pod" if is_gang else f"{job.api_version}/{job.kind}"
            for each in islice(self._pods_of(job), MOST_PODS) if is_gang else (job,):
                count += 1
                self._record(each, reason, message, about)
        return count

    def _record(self, about: PodRef, reason: str, message: str, kind: str) -> None:
        times = 0 if reason == ENQUEUED else 1  # an earlier leader may have said so
        try:
            self._recorder.record(about, _TYPES.get(reason, NORMAL), reason, message, times=times, about=kind)
        except KubeError as error:
            fields = {"namespace": about.namespace, "name": about.name, "reason": str(error)}
            log.warning("event not written", extra={"fields": fields})

    def _take(self) -> tuple[JobRef, str, str] | None:
        with self._lock:
            key = next(iter(self._due), None)
            if key is None:
                return None
            del self._due[key]
            found = self._jobs[key]
            reason, message = found.notes.popleft()
            if found.notes:
                self._due[key] = None
            return found.job, reason, message

    def _note(self, job: JobRef, reason: str, message: str, now: float, reserve: float = 0.0) -> None:
        with self._lock:
            self._note_locked(job, reason, message, now, reserve)

    def _note_locked(self, job: JobRef, reason: str, message: str, now: float, reserve: float) -> None:
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
