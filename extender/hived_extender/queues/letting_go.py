"""Lets jobs go that hived holds, where queues are off: they would wait for a turn that never comes.

A job that its author created suspended stays so, as do those of `hived hold`, and those that their owner has suspended.
"""

from collections.abc import Iterable

from hived_extender.job_kinds.job import Job, JobState
from hived_extender.job_kinds.marks import is_marked_held
from hived_extender.kube.refused_writes import Backoff
from hived_extender.pods.proofs import Prover
from hived_extender.queues import kept
from hived_extender.queues.book import Action, Change
from hived_extender.queues.kept import Kept
from hived_extender.queues.watched import Seen


def is_let_go(job: Job, state: Kept) -> bool:
    """Is a job that waits let go where queues are off?"""
    was_called_back = state.since_s > 0 and not state.is_let_go
    return not state.is_aside and (was_called_back or is_marked_held(job.annotations))


class LettingGo:
    """See the module. A call that was refused is made again, later each time. Not thread-safe."""

    def __init__(self, prover: Prover) -> None:
        self._prover = prover
        self._refused: dict[str, Backoff] = {}  # by key

    def due(self, jobs: Iterable[Seen], now: float, limit: int) -> list[Action]:
        """The calls that are due, at most so many. Cost O(jobs)."""
        found: list[Action] = []
        for seen in jobs:
            job = seen.job
            refused = self._refused.get(job.ref.key)
            if job.state is not JobState.HELD or (refused is not None and refused.at_s > now):
                continue
            state = kept.read(job.annotations, job.ref.uid, self._prover)
            if is_let_go(job, state):
                found.append(Action(job.ref, Change.LET_GO, state.followed_by(is_let_go=True, since_s=now)))
                if len(found) == limit:
                    break
        return found

    def answered(self, action: Action, error: str, now: float) -> None:
        """A call was carried out, or refused."""
        backoff = self._refused.pop(action.job.key, None) or Backoff()
        if error:
            backoff.wrote(now, refused=True)
            self._refused[action.job.key] = backoff
