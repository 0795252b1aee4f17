"""Gangs of plain pods, put together from pods as the watch tells of them, and handed over like jobs with an object.

Pods of other kinds cost a look at their gates. A gang is read when it is looked at, not with each of its pods.
"""

import logging
import threading
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.job_kinds import gangs
from hived_extender.job_kinds.job import Document, Job, JobName, JobState
from hived_extender.kube.versions import is_older
from hived_extender.pods.wire import Pod
from hived_extender.queues.watched import WatchedJobs

log = logging.getLogger(__name__)

AGAIN_S = 5.0
"""A gang that waits for pods, or for its object, is read again after so long."""

COMES_BACK_S = 60.0
"""After so long without pods a gang that was called back does not come back any more."""


class WatchedGangs:
    """See the module. For any thread; `look` hands over to `jobs` what has changed."""

    def __init__(self, jobs: WatchedJobs, wake: Callable[[], None], clock: Callable[[], float]) -> None:
        self._jobs, self._wake, self._clock = jobs, wake, clock
        self._lock = threading.Lock()
        self._pods: dict[JobName, dict[str, Document]] = {}
        self._gangs: dict[str, JobName] = {}  # by the uid of the pod
        self._changed: dict[JobName, None] = {}
        self._known: dict[JobName, Job] = {}
        self._called_back: dict[JobName, float] = {}  # until when they may have no pods
        self._read_at = 0.0

    # Told by the watch of pods

    def listed(self, pods: Iterable[Pod]) -> None:
        """These are all pods."""
        there = {pod.metadata.uid: None for pod in pods}
        with self._lock:
            gone = [uid for uid in self._gangs if uid not in there]
        for uid in gone:
            self.gone(uid)

    def seen(self, pod: Pod) -> None:
        """A pod looks like this now."""
        gang, uid = gangs.gang_of(pod), pod.metadata.uid
        before = self._gangs.get(uid)
        if gang is None and before is None:
            return
        if gang is None or gang != before:
            self.gone(uid)
        if gang is not None:
            self._keep(gang, uid, pod)

    def gone(self, uid: str) -> None:
        """A pod was deleted."""
        with self._lock:
            gang = self._gangs.pop(uid, None)
            if gang is None:
                return
            pods = self._pods[gang]
            del pods[uid]
            if not pods:
                del self._pods[gang]
            self._changed[gang] = None
        self._wake()

    # For the desk

    def called_back(self, gang: JobName) -> None:
        """The pods of a gang are being deleted, so that they come back with the gate."""
        with self._lock:
            self._called_back[gang] = self._clock() + COMES_BACK_S

    def look(self) -> None:
        """Hand over the gangs that have changed. Cost O(their pods)."""
        now = self._clock()
        with self._lock:
            changed, self._changed = self._changed, {}
            for gang in [each for each, until in self._called_back.items() if until <= now]:
                del self._called_back[gang]
                changed[gang] = None
            if now >= self._read_at + AGAIN_S:
                self._read_at = now
                changed |= dict.fromkeys(gang for gang in self._pods if self._jobs.has_problem(gang))
            found = {gang: list(self._pods.get(gang, {}).values()) for gang in changed}
            waits = {gang for gang in changed if gang in self._called_back}
        for gang, pods in found.items():
            self._hand_over(gang, pods, is_awaited=gang in waits)

    def _keep(self, gang: JobName, uid: str, pod: Pod) -> None:
        document = {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(pod)}
        with self._lock:
            pods = self._pods.setdefault(gang, {})
            known = pods.get(uid)
            if known is not None and is_older(pod.metadata.version, known["metadata"]["resourceVersion"]):
                return
            self._gangs[uid], pods[uid] = gang, document
            self._changed[gang] = None
        self._wake()

    def _hand_over(self, gang: JobName, pods: list[Document], *, is_awaited: bool) -> None:
        try:
            job = gangs.read(gang, pods) if pods else None
        except UserError as error:
            log.warning("a gang cannot be read", extra={"fields": {"reason": error.message}})
            return
        job = self._as_known(gang, job, is_awaited=is_awaited)
        if job is None:
            self._known.pop(gang, None)
            self._jobs.forget(gang)
        else:
            self._jobs.keep(gang, job)

    def _as_known(self, gang: JobName, job: Job | None, *, is_awaited: bool) -> Job | None:
        """The gang with the place that it had; while it comes back, with the pods that it had as well."""
        known = self._known.get(gang)
        if known is not None and (job is None or job.ref == known.ref):
            if job is not None:
                job = replace(job, created_s=min(job.created_s, known.created_s))
            is_whole = job is not None and job.state is JobState.HELD and len(job.roles) >= len(known.roles)
            if is_awaited and not is_whole:
                return replace(known, state=JobState.HELD if job is None else job.state)
        if job is not None and job.comes_back:
            self._known[gang] = job
        with self._lock:
            self._called_back.pop(gang, None)
        return job
