"""Deleting jobs: their pods, and their records with all that belongs to them."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from hived.values.errors import UserError
from hived_extender.api.queues import QueuedJob
from hived_extender.jobs.annotations import SCHEDULING_SPEC, pod_request
from hived_extender.jobs.kinds.kind import path_of
from hived_extender.jobs.kinds.table import find_kind
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_jobs.openpai import JOB_NAME, USER_NAME
from hived_jobs.records import NAME_PREFIX, JobPod, Record, belongs, find_record
from hived_jobs.submission import JOB

Told = Callable[[str], None]

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Deletion:
    """Pods and records to delete together, or the `owners` of pods, which go with them: path and uid by name.

    `makers` are controllers that would create pods again, as kubectl calls them, with how many of the pods each has.
    """

    pods: tuple[JobPod, ...]
    records: tuple[Record, ...]
    makers: tuple[tuple[str, int], ...] = ()
    owners: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def pod_names(self) -> list[str]:
        """NAMESPACE/NAME of each pod."""
        return [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in self.pods]

    @property
    def record_names(self) -> list[str]:
        """NAMESPACE/NAME of each job whose record goes, and the names of owners."""
        return [*self.owners, *(f"{record.namespace}/{record.name}" for record in self.records)]


def of_job(kube: KubeClient, namespace: str, name: str) -> Deletion | None:
    """A submitted job, with all its pods; None if there is no record of it. Raises KubeError."""
    record = find_record(kube, namespace, name)
    return None if record is None else Deletion(tuple(_pods_of(kube, record)), (record,))


def of_openpai_job(kube: KubeClient, namespace: str, name: str) -> Deletion | None:
    """The pods of an OpenPAI job, which has no record: they have its name as a label. None if there are none.

    Raises KubeError, and UserError if several users have such a job.
    """
    if not _LABEL.fullmatch(name):
        return None
    pods = [pod for pod in _labelled(kube, namespace, JOB_NAME, name) if SCHEDULING_SPEC in _annotations(pod)]
    users = sorted({(pod.metadata.labels or {}).get(USER_NAME, "") for pod in pods})
    if len(users) > 1:
        raise UserError(
            f"job {namespace}/{name} is of several users, {', '.join(users)}: name one of its groups or pods"
        )
    return Deletion(tuple(pods), (), _makers(pods, set())) if pods else None


def of_queued_job(kube: KubeClient, job: QueuedJob) -> Deletion | None:
    """The object of a job that waits or runs in a queue; None if it has none, as a gang of plain pods. KubeError."""
    kind_name, namespace, name = job.name.split("/")
    kind = find_kind(job.api_version, kind_name)
    if kind is None:
        return None
    path = path_of(job.api_version, kind.plural, namespace, name)
    return Deletion((), (), owners={job.name: (path, kube.get(path)["metadata"]["uid"])})


def of_single_pod(kube: KubeClient, namespace: str, name: str) -> Deletion | None:
    """A pod whose own scheduling spec says that it starts alone; None if there is no such pod. Raises KubeError."""
    pod = _find_pod(kube, namespace, name)
    if pod is None or SCHEDULING_SPEC not in _annotations(pod):
        return None
    try:
        request = pod_request(pod.metadata.uid, name, namespace, _annotations(pod))
    except UserError:
        return None  # the service knows how to call it
    is_single = sum(member.pod_count for member in request.spec.group.members) == 1
    return of_pods(kube, [f"{namespace}/{name}"]) if is_single else None


def of_pods(kube: KubeClient, names: Iterable[str]) -> Deletion:
    """The pods of these names, NAMESPACE/NAME, that are there, and the records of jobs of which no pod would be left.

    Raises KubeError. Cost: a request per pod, and one per job.
    """
    pods = [pod for name in names if (pod := _find_pod(kube, *name.split("/", 1))) is not None]
    uids = {pod.metadata.uid for pod in pods}
    jobs = dict.fromkeys((pod.metadata.namespace, label) for pod in pods if (label := _job(pod)))
    records = []
    for namespace, job in jobs:
        record = find_record(kube, namespace, job)
        if record is not None and {pod.metadata.uid for pod in _pods_of(kube, record)} <= uids:
            records.append(record)
    kept = {record.uid for record in records}
    return Deletion(tuple(pods), tuple(records), _makers(pods, kept))


def carry_out(kube: KubeClient, deletion: Deletion, tell: Told) -> None:
    """Delete the records first, so that no controller creates pods again, then the pods; `tell` gets a line for each.

    These very objects are deleted, no later ones of their names. Raises UserError that says how much was deleted before
    the API server refused.
    """
    done = 0
    objects = [(f"job/{record.name}", record.path, record.uid) for record in deletion.records]
    objects += [
        (f"pod/{pod.metadata.name}", pod_path(pod.metadata.namespace, pod.metadata.name), pod.metadata.uid)
        for pod in deletion.pods
    ]
    objects += [(name, *owner) for name, owner in deletion.owners.items()]
    for what, path, uid in objects:
        try:
            kube.delete(path, uid=uid, with_dependents=what in deletion.owners)
        except KubeError as error:
            if not error.is_not_found and not error.is_conflict:
                raise UserError(f"{what}: {error}; {done} of {len(objects)} were deleted", error.status) from error
            tell(f"{what} was gone already")
            continue
        done += 1
        tell(f"{what} deleted")


def _pods_of(kube: KubeClient, record: Record) -> list[JobPod]:
    """All pods of a job, by name."""
    return [pod for pod in _labelled(kube, record.namespace, JOB, record.name) if belongs(pod, record)]


def _labelled(kube: KubeClient, namespace: str, label: str, value: str) -> list[JobPod]:
    """The pods with a label, by name."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    found = kube.list_objects(path, JobPod, label_selector=f"{label}={value}").items
    return sorted(found, key=lambda pod: pod.metadata.name)


def _find_pod(kube: KubeClient, namespace: str, name: str) -> JobPod | None:
    try:
        return kube.get(pod_path(namespace, name), JobPod)
    except KubeError as error:
        if not error.is_not_found:
            raise
        return None


def _annotations(pod: JobPod) -> dict[str, str]:
    return pod.metadata.annotations or {}


def _job(pod: JobPod) -> str:
    return (pod.metadata.labels or {}).get(JOB, "")


def _makers(pods: Iterable[JobPod], going: set[str]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(maker for pod in pods if (maker := _maker(pod, going))).items())


def _maker(pod: JobPod, going: set[str]) -> str:
    """Return the controller that would create a pod again, as kubectl calls it; "" for none."""
    for owner in pod.metadata.owners or ():
        is_job = owner.kind == "ConfigMap" and owner.name.startswith(NAME_PREFIX)
        if (owner.controller or is_job) and owner.uid not in going:
            return f"-n {pod.metadata.namespace} {owner.kind.lower()} {owner.name}"
    return ""
