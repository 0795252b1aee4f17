"""Calls jobs back: notes it, says it, has their pods wait, and gives back what is held for them. Not thread-safe."""

import logging
from collections.abc import Callable

from hived.values.errors import UserError
from hived_extender.job_kinds.job import JobRef
from hived_extender.queues.announcing import JobEvents
from hived_extender.queues.book import Book, JobRecord
from hived_extender.queues.places import BACK
from hived_extender.queues.queues import Queues
from hived_extender.queues.units import LATE
from hived_extender.service.service import Service
from hived_extender.service.stimuli import GroupsEvicted, HoldDropped, JobsBarred, Stimulus

log = logging.getLogger(__name__)


class CallingBack:
    """See the module."""

    def __init__(
        self, service: Service, book: Book, queues: Queues, events: JobEvents, now: Callable[[], float]
    ) -> None:
        self._service, self._book, self._queues, self._events, self._now = service, book, queues, events, now

    def reclaim(self, key: str, winner: str, *, loses_turn: bool = False) -> None:
        """As `call_back`; it counts as one whose cells others are due."""
        self._service.metrics.queue_reclaimed.labels(self._book.queue_of(key)).inc()
        self.call_back(key, winner, loses_turn=loses_turn)

    def call_back(self, key: str, winner: str, *, loses_turn: bool = False) -> None:
        """A job gives its cells back: its pods are to end, and new ones get none."""
        self._book.call_back(key, winner, self._now())
        if loses_turn:
            self._queues.lost_turn(key)
        self.called_back(self._book.entries[key])

    def called_back(self, entry: JobRecord) -> None:
        """The book has noted it already, as somebody has changed the job."""
        job = entry.job.ref
        if entry.kept.is_suspended:
            self._events.suspended(job, self._book.queue_of(job.key), self._now())
        else:
            queue, notice = self._book.queue_of(job.key), entry.kept.rest_notice(self._now())
            self._events.evicted(job, queue, entry.kept.evicted_for, self._now(), notice)
        self.bar(job)
        self.put(HoldDropped(job.key))

    def lose(self, key: str, winner: str) -> None:
        """A job has lost its cells, with `LATE` as it made no pod: then those behind it go first."""
        self.call_back(key, winner, loses_turn=winner == LATE)
        if winner == LATE:
            self._book.keep(key, place=self._queues.moved(key, BACK))

    def see_off(self) -> None:
        """Jobs wait again once their pods are gone, and these are evicted where nobody else makes them leave."""
        for entry, has_failed in self._book.leaving(self._now()):
            with self._service.runner.look() as machine:
                pods = [one for one in machine.cache.jobs.pods_of(entry.job.ref) if one.state.is_placed]
            left = [one.request for one in pods if one.request is not None and not one.seen.is_leaving]
            if has_failed and left and entry.job.comes_back:
                groups = dict.fromkeys(request.spec.group.name for request in left)
                self.put(GroupsEvicted(tuple(groups), entry.kept.evicted_for))
            elif not pods and (has_failed or entry.is_held):
                self._book.left(entry.key, self._now())

    def bar(self, job: JobRef) -> None:
        """Have the pods of a job wait until its turn: its owner may have let it go."""
        entry = self._book.entries.get(job.key)
        if entry is None or entry.step.has_cells or entry.unit is None:
            self.put(JobsBarred(freed=(job.job_name,)))
        else:
            self.put(JobsBarred({job.job_name: entry.unit.queue}))

    def put(self, stimulus: Stimulus) -> None:
        """Tell the service, which may take no part in it just now."""
        try:
            self._service.runner.handle(stimulus)
        except UserError as error:
            log.info("the service does not take part", extra={"fields": {"cause": error.message}})
