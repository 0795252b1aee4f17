"""Carries out what is to become of job objects: lets them go, and calls them back, on a few threads.

Lets jobs go that hived holds, where queues are off: they would wait for a turn that never comes.

A job that its author created suspended stays so, as do those of `hived hold`, and those that their owner has suspended.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from hived.values.errors import UserError
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.job import Job, JobState
from hived_extender.jobs.kinds import gangs, gates, table
from hived_extender.jobs.kinds.kind import Verb, Write
from hived_extender.jobs.kinds.marks import is_marked_held
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import Backoff
from hived_extender.machine.pods import PodName
from hived_extender.queues import entries
from hived_extender.queues.book import Action, Change
from hived_extender.queues.entries import Kept, written
from hived_extender.queues.watched import Seen

log = logging.getLogger(__name__)

THREADS = 8


class JobCaller:
    """See the module. `answer` is called with each action and its error, "" if there is none, on any thread.

    `pods_of` gives the pods of a job of a kind whose pods have gates.
    """

    def __init__(
        self, kube: KubeClient, prover: Prover, pods_of: Callable[[Action], list[PodName]],
        answer: Callable[[Action, str], None],
    ) -> None:  # fmt: skip
        self._kube, self._prover = kube, prover
        self._pods_of = pods_of
        self._answer = answer
        self._pool = ThreadPoolExecutor(THREADS, "jobs")

    def call(self, action: Action, may_write: Callable[[], bool]) -> None:
        """Have an action carried out; it is answered once."""
        self._pool.submit(self._carry_out, action, may_write)

    def close(self) -> None:
        """Wait for the calls under way; others are not begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _carry_out(self, action: Action, may_write: Callable[[], bool]) -> None:
        error = ""
        try:
            for write in self._writes(action):
                if not may_write():
                    raise UserError("this replica does not lead any more", 503)
                self._write(write)
        except (KubeError, UserError) as refusal:
            error = str(refusal)
            log.warning("a job is not written", extra={"fields": {"job": str(action.job), "reason": error}})
        except Exception as bug:
            error = f"{type(bug).__name__}: {bug}"
            log.exception("a job cannot be written")
        self._answer(action, error)

    def _writes(self, action: Action) -> list[Write]:
        """All calls of an action, in their order."""
        job = action.job
        annotations = written(action.kept, job.uid, self._prover)
        if job.kind == gangs.KIND:
            return self._gang_writes(action, annotations)
        kind = table.find_kind(job.api_version, job.kind)
        has_gates = kind is not None and kind.has_gates
        pods = self._pods_of(action) if has_gates else []
        match action.change:
            case Change.LET_GO:
                lifted = [gates.remove_gate(pod.namespace, pod.name, pod.uid) for pod in pods]
                return [*table.resume(job, annotations), *lifted]
            case Change.CALL_BACK:
                removed = [gates.delete_pod(pod.namespace, pod.name, pod.uid) for pod in pods]
                return [*table.suspend(job, annotations), *removed]
            case Change.KEEP:
                return list(table.annotate(job, annotations))

    def _gang_writes(self, action: Action, annotations: dict[str, str]) -> list[Write]:
        """The same for a gang of plain pods: its state is on each pod, and goes with it."""
        pods = [(pod.namespace, pod.name, pod.uid) for pod in self._pods_of(action)]
        match action.change:
            case Change.LET_GO:
                return [gangs.remove_gate(*pod, action.job, annotations) for pod in pods]
            case Change.CALL_BACK:
                return [gates.delete_pod(*pod) for pod in pods]
            case Change.KEEP:
                return [gangs.annotate(*pod, annotations) for pod in pods]

    def _write(self, write: Write) -> None:
        try:
            match write.verb:
                case Verb.PATCH:
                    self._kube.patch(write.path, write.body)
                case Verb.PATCH_LISTS:
                    self._kube.patch_lists(write.path, write.body)
                case Verb.CREATE:
                    self._kube.create(write.path, write.body)
                case Verb.DELETE:
                    self._kube.delete(write.path, uid=write.uid)
        except KubeError as error:
            is_done = write.verb is Verb.CREATE and error.reason == "AlreadyExists"
            if not is_done and not (write.may_be_missing and error.is_not_found):
                raise


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
            state = entries.read(job.annotations, job.ref.uid, self._prover)
            if is_let_go(job, state):
                found.append(Action(job.ref, Change.LET_GO, state.followed_by(is_let_go=True, since_s=now)))
                if len(found) == limit:
                    break
        return found

    def answered(self, action: Action, error: str, now: float) -> None:
        """A call was carried out, or refused."""
        backoff = self._refused.pop(action.job.key, None) or Backoff()
        if error:
            backoff.failed(now)
            self._refused[action.job.key] = backoff
