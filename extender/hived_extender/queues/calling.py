"""Carries out what is to become of job objects: lets them go, and calls them back, on a few threads."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from hived.values.errors import UserError
from hived_extender.job_kinds import gangs, gates, kinds
from hived_extender.job_kinds.writes import Verb, Write
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.pods.proofs import Prover
from hived_extender.queues.book import Action, Change
from hived_extender.queues.kept import written
from hived_extender.service.pods import PodName

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
        kind = kinds.find_kind(job.api_version, job.kind)
        has_gates = kind is not None and kind.has_gates
        pods = self._pods_of(action) if has_gates else []
        match action.change:
            case Change.LET_GO:
                lifted = [gates.lift(pod.namespace, pod.name, pod.uid) for pod in pods]
                return [*kinds.resume(job, annotations), *lifted]
            case Change.CALL_BACK:
                removed = [gates.remove(pod.namespace, pod.name, pod.uid) for pod in pods]
                return [*kinds.suspend(job, annotations), *removed]
            case Change.KEEP:
                return list(kinds.annotate(job, annotations))

    def _gang_writes(self, action: Action, annotations: dict[str, str]) -> list[Write]:
        """The same for a gang of plain pods: its state is on each pod, and goes with it."""
        pods = [(pod.namespace, pod.name, pod.uid) for pod in self._pods_of(action)]
        match action.change:
            case Change.LET_GO:
                return [gangs.lift(*pod, action.job, annotations) for pod in pods]
            case Change.CALL_BACK:
                return [gates.remove(*pod) for pod in pods]
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
