"""Calls jobs on borrowed cells back for guaranteed work of no queue, such as Kueue's: a `service.lending.Lender`."""

from collections.abc import Collection, Sequence

from hived_extender.jobs.job import JobRef
from hived_extender.machine.claims import Lent
from hived_extender.machine.stimuli import Claimed, Hold
from hived_extender.queues.desk import QueueDesk


class QueueLender:
    """See the module. Every method takes the desk's lock for a walk over the jobs that run."""

    def __init__(self, desk: QueueDesk) -> None:
        self._desk = desk

    def lent(self) -> Lent:
        """See `Lender`."""
        with self._desk.lock:
            turns = self._desk.turns
            return Lent() if turns is None else turns.lent()

    def call_back(self, hold: Hold, jobs: Sequence[JobRef]) -> None:
        """See `Lender`. A job that has ended meanwhile, or has left, is left alone."""
        with self._desk.lock:
            turns = self._desk.turns
            if turns is not None:
                self._desk.outside[hold.key] = Claimed(hold, tuple(jobs))
                for job in jobs:
                    turns.give_way(job.key, hold.key)
        self._desk.wake()

    def forget_others(self, keys: Collection[str]) -> None:
        """See `Lender`."""
        outside = self._desk.outside
        if all(key in keys for key in outside):
            return
        with self._desk.lock:
            for key in [key for key in outside if key not in keys]:
                del outside[key]
            if self._desk.turns is not None:
                self._desk.turns.queues.room_made()
        self._desk.wake()
