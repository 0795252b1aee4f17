"""Jobs of pods: which job a pod belongs to, which jobs a queue holds, and the priority of their pods.

A job that a queue admits on borrowed cells is opportunistic, whatever its pods say, from its first hold until the queue
drops it. Not thread-safe.
"""

from collections.abc import Iterable, Mapping

from hived_extender.jobs.job import WORKLOAD, JobName, JobRef
from hived_extender.jobs.kinds.gangs import gang_of
from hived_extender.jobs.kinds.marks import user_said
from hived_extender.jobs.kinds.table import job_of_pod, record_of, shown_owner, unit_of, workload_of
from hived_extender.jobs.wire import Owner, Pod
from hived_extender.machine.pods import PodRecord


class Jobs:
    """Pods by job, with the queue and the priority of each."""

    def __init__(self) -> None:
        self._priorities: dict[JobName, tuple[JobRef, int]] = {}
        self._pods: dict[JobName, dict[str, PodRecord]] = {}
        self._barred: dict[JobName, str] = {}
        self._makers: dict[JobName, JobName] = {}
        self._ended: dict[JobName, None] = {}  # jobs with a maker that are gone, while pods may be left
        self._placed: dict[JobName, None] = {}
        self._changed: dict[JobName, None] = {}
        self._reclaimed: dict[str, None] = {}  # by uid
        self._preempted: dict[JobName, dict[PodRecord, str]] = {}  # pods of queued jobs, each with its winner's key

    def seen(self, record: PodRecord, pod: Pod) -> None:
        """Take in a pod with its labels, annotations, owners and gates."""
        namespace = pod.metadata.namespace
        record.maker = self.maker_of(pod)
        record.shown_owner = shown_owner(pod.labels, pod.metadata.owners or (), namespace)
        record.made_from = record_of(pod.labels, pod.metadata.owners or ())
        record.user = user_said(pod.labels, pod.annotations)
        job = workload_of(pod.annotations, namespace) or record.maker or gang_of(pod)
        self._belongs(record, None if job is None else unit_of(job, self._makers))

    def maker_of(self, pod: Pod) -> JobName | None:
        """The outermost job object that made a pod, of the kinds that hived follows; None without one."""
        namespace, owners = pod.metadata.namespace, pod.metadata.owners or ()
        made = (name for each in owners if each.controller and (name := _name_of(each, namespace)) in self._makers)
        maker = next(made, None) or job_of_pod(pod.labels, owners, namespace)  # labels count until the maker is known
        return None if maker is None else unit_of(maker, self._makers)

    @property
    def makers(self) -> Mapping[JobName, JobName]:
        """The makers of jobs, as far as they are known."""
        return self._makers

    def made(self, makers: Mapping[JobName, JobName | None]) -> list[PodRecord]:
        """Set the makers of these jobs, or remove them. Returns the pods whose job changed."""
        moved = []
        for job, maker in makers.items():
            if maker is None:
                self._ended[job] = None
                continue
            self._ended.pop(job, None)
            self._makers[job] = maker
            for record in self.pods_of(job) if maker != job else self._owned_by(job):
                record.maker = unit_of(job, self._makers)
                if record.job_object is None or record.job_object.kind != WORKLOAD:  # which has the cells of its pods
                    self._belongs(record, record.maker)
                    moved.append(record)
        self._forget_makers()
        return moved

    def reclaim(self, job: JobRef) -> None:
        """The pods that a job has now are to leave for others, which a queue has decided."""
        self._reclaimed.update((record.uid, None) for record in self.pods_of(job) if record.state.has_node)

    def is_reclaimed(self, uid: str) -> bool:
        """Does a pod leave for others since its job was reclaimed?"""
        return uid in self._reclaimed

    def preempted(self, record: PodRecord, winner: str) -> bool:
        """Note that pods of no queue take the cells of a pod.

        False if no queue would suspend its job (rule 32.14), as it has none, or its pods are not made anew.
        """
        is_made_once = record.unit is not None and record.seen.owner is None
        if record.job_object is None or not record.is_queued or is_made_once:
            return False
        self._preempted.setdefault(record.job_object, {})[record] = winner
        self.note(record.job_object)
        return True

    def take_preempted(self) -> dict[JobName, dict[PodRecord, str]]:
        """The pods that were noted since the last call by their jobs, with the keys of their winners."""
        preempted, self._preempted = self._preempted, {}
        return preempted

    def gone(self, record: PodRecord) -> None:
        """Remove a pod that is gone."""
        self._reclaimed.pop(record.uid, None)
        pods = self._pods.get(record.job_object) if record.job_object is not None else None
        if pods is not None and record.job_object is not None and pods.pop(record.uid, None) is not None and not pods:
            del self._pods[record.job_object]
            self._forget_makers()
        self.note(record.job_object)

    def note(self, job: JobName | None) -> None:
        """Note a job whose pods came, went, or have got or lost cells, or whose held cells changed."""
        if job is not None:
            self._changed[job] = None

    def take_changed(self) -> dict[JobName, None]:
        """The jobs that were noted since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def placed(self, record: PodRecord) -> None:
        """Note a newly placed pod."""
        if record.job_object is not None:
            self._placed[record.job_object] = None

    def take_placed(self) -> list[JobName]:
        """The jobs that may have more placed pods since the last call."""
        jobs = list(self._placed)
        self._placed.clear()
        return jobs

    def with_pods(self) -> list[JobName]:
        """The jobs with pods, in order of appearance."""
        return list(self._pods)

    def pods_of(self, job: JobName | JobRef) -> list[PodRecord]:
        """The pods of a job in order of appearance; by a bare name, of all jobs of the name."""
        if isinstance(job, JobName):
            return list(self._pods.get(job, {}).values())
        return [record for record in self._pods.get(job.job_name, {}).values() if is_of(record, job)]

    def bar(self, jobs: Mapping[JobName, str]) -> None:
        """Hold pods of these jobs, existing or not, until their named queue frees them."""
        self._barred.update(jobs)

    def free(self, jobs: Iterable[JobName]) -> list[PodRecord]:
        """Free pods of these jobs from their queue. Returns those that may have waited for it."""
        freed = [job for job in jobs if self._barred.pop(job, None) is not None]
        return [record for job in freed for record in self.pods_of(job)]

    def bar_of(self, record: PodRecord) -> str:
        """The queue in which a pod's job waits, "" if none."""
        return self._barred.get(record.job_object, "") if record.job_object is not None else ""

    def run_at(self, job: JobRef, priority: int | None) -> list[PodRecord]:
        """Set the priority of a job's pods; None for their own. Returns the changed pods."""
        if priority is None:
            self._priorities.pop(job.job_name, None)
        else:
            self._priorities[job.job_name] = job, priority
        changed = [record for record in self.pods_of(job) if record.runs_at != priority]
        for record in changed:
            record.runs_at = priority
        return changed

    def admitted(self) -> list[JobRef]:
        """The jobs that have the priority of their queue, as it has admitted them."""
        return [job for job, _ in self._priorities.values()]

    def forget_all(self) -> None:
        """Drop all priorities and waits of queues."""
        self._barred.clear()
        self._reclaimed.clear()
        self._preempted.clear()
        for job, _ in list(self._priorities.values()):
            self.run_at(job, None)

    def _belongs(self, record: PodRecord, job: JobName | None) -> None:
        if job != record.job_object:
            self.gone(record)
            record.job_object = job
            if record.state.has_node:
                self.placed(record)
        if job is not None:
            if record.uid not in (pods := self._pods.setdefault(job, {})):
                self.note(job)
            pods[record.uid] = record
            ref, priority = self._priorities.get(job, (None, None))
            record.runs_at = priority if ref is not None and is_of(record, ref) else None

    def _owned_by(self, job: JobName) -> list[PodRecord]:
        """The pods that a job controls, whatever their labels. Cost O(pods)."""
        records = [record for pods in self._pods.values() for record in pods.values()]
        return [one for one in records if one.seen.owner and _name_of(one.seen.owner, one.namespace) == job]

    def _forget_makers(self) -> None:
        for job in [job for job in self._ended if unit_of(job, self._makers) not in self._pods]:
            del self._ended[job]
            self._makers.pop(job, None)


def _name_of(owner: Owner, namespace: str) -> JobName:
    return JobName(owner.api_version.rpartition("/")[0], owner.kind, namespace, owner.name)


def is_of(record: PodRecord, job: JobRef) -> bool:
    """True if a pod belongs to this very job, not to an earlier or absent one of the name.

    Any author may name a job as a pod's controller; Kubernetes' own controllers compare the uid too.
    """
    owner = record.seen.owner
    is_other = owner is not None and (owner.kind, owner.name) == (job.kind, job.name) and owner.uid != job.uid
    return record.job_object == job.job_name and not is_other
