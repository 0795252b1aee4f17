"""Deleting jobs: their pods, and their records with all that belongs to them."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from hived.values.errors import UserError
from hived.values.specs import count_pods
from hived_extender.api.names import GANG, is_full
from hived_extender.api.queues import QueuedJob
from hived_extender.api.waiting import Job
from hived_extender.jobs.annotations import BIND_INFO, SCHEDULING_SPEC, pod_request
from hived_extender.jobs.kinds.kind import path_of
from hived_extender.jobs.kinds.table import find_kind, read
from hived_extender.jobs.wire import Owner, PodMetadata
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_jobs.records import NAME_PREFIX, JobPod, Record, as_seen, belongs, find_record
from hived_jobs.served import Served
from hived_jobs.submission import JOB, JOB_NAME, OF_USER, USER_NAME, full_name

Told = Callable[[str], None]

MAKERS = (
    ("batch/v1", "CronJob"),
    ("apps/v1", "Deployment"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ("ray.io/v1", "RayService"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
)
"""Kinds that outlive their pods and runs: version and kind. One that makes objects of another stands before it."""

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Deletion:
    """Pods and records to delete together, or the `owners` of pods, which go with them: path and uid by name.

    `runs` are Jobs that go with their owner. `makers` are controllers that would create pods again, as kubectl calls
    them, with how many of the pods each has.
    """

    pods: tuple[JobPod, ...]
    records: tuple[Record, ...]
    makers: tuple[tuple[str, int], ...] = ()
    runs: tuple[str, ...] = ()
    owners: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def pod_names(self) -> list[str]:
        """NAMESPACE/NAME of each pod."""
        return [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in self.pods]

    @property
    def record_names(self) -> list[str]:
        """NAMESPACE/NAME of each job whose record goes, and the names of owners."""
        return [*self.owners, *(f"{record.namespace}/{record.full_name}" for record in self.records)]


def of_record(kube: KubeClient, record: Record) -> Deletion:
    """A submitted job, with all its pods. Raises KubeError."""
    return Deletion(tuple(_pods_of(kube, record)), (record,))


def of_openpai_job(kube: KubeClient, namespace: str, name: str) -> Deletion | None:
    """The pods of an OpenPAI job without a record: they have its name as a label. None if there are none.

    Raises KubeError, and UserError if several users have such a job.
    """
    user, is_full, short = name.rpartition(OF_USER)
    if not _LABEL.fullmatch(short):
        return None
    pods = [pod for pod in _labelled(kube, namespace, JOB_NAME, short) if SCHEDULING_SPEC in _annotations(pod)]
    pods = [pod for pod in pods if not is_full or _user(pod) == user]
    users = sorted(set(map(_user, pods)))
    if len(users) > 1:
        names = ", ".join(full_name(user, name) for user in users)
        raise UserError(f"jobs of several users are named {name} in namespace {namespace}: name one of {names}", 409)
    return Deletion(tuple(pods), (), _makers(pods, set())) if pods else None


def of_object(kube: KubeClient, job: QueuedJob | Job) -> Deletion | None:
    """The object of a job, of a kind that hived follows; None for others. Raises KubeError."""
    kind_name, _, where = job.name.partition("/")
    kind = find_kind(job.api_version, kind_name)
    if kind is None:
        return None
    namespace, _, name = where.partition("/")
    path = path_of(job.api_version, kind.plural, namespace, name)
    return Deletion((), (), owners={job.name: (path, kube.get(path)["metadata"]["uid"])})


def find_maker(kube: KubeClient, namespace: str, name: str) -> tuple[str, str, str] | None:
    """Full name, path and uid of an object that makes pods or jobs again and again; None without one.

    The name may have its kind and namespace. Kinds that the caller may not read are skipped. Raises KubeError. Cost: a
    request per kind.
    """
    *before, short = name.split("/")
    kinds = {kind.lower(): (version, kind) for version, kind in MAKERS}
    asked = [kinds[before[0].lower()]] if before and before[0].lower() in kinds else list(MAKERS)
    if len(before) > 1 and len(asked) > 1:
        return None
    where = before[-1] if before and before[-1].lower() not in kinds else namespace
    for version, kind in asked:
        path = path_of(version, f"{kind.lower()}s", where, short)
        try:
            made = kube.get(path, _Made).metadata
        except KubeError as error:
            if not error.is_not_found and error.status != HTTPStatus.FORBIDDEN:
                raise
            continue
        return f"{kind}/{where}/{short}", path, made.uid
    return None


def of_found_maker(kube: KubeClient, maker: tuple[str, str, str]) -> Deletion:
    """Return the deletion of an object of `find_maker`, with the Jobs that it made and that go with it."""
    name, path, uid = maker
    jobs = f"/apis/batch/v1/namespaces/{quote(name.split('/')[1], safe='')}/jobs"
    found = kube.list_objects(jobs, _Made).items if name.startswith("CronJob/") else []
    runs = [each.metadata for each in found if any(owner.uid == uid for owner in each.metadata.owners or ())]
    return Deletion((), (), owners={name: (path, uid)}, runs=tuple(f"Job/{run.namespace}/{run.name}" for run in runs))


def of_maker(kube: KubeClient, job: Job) -> Deletion | None:
    """The object of a kind that hived does not follow, if the job is called after it: what made its first pod.

    None without one, or where one that made it is gone or may not be read. Raises KubeError.
    """
    if not is_full(job.name) or job.name.startswith(GANG):
        return None
    kind, _, name = job.name.split("/")
    pod = next((found for each in job.pods[:1] if (found := _find_pod(kube, *each.split("/", 1))) is not None), None)
    if pod is None:
        return None
    served, owner = Served(kube), _controller(pod.metadata.owners)
    while owner is not None and served.find(owner.api_version, owner.kind) is not None:
        path = f"{served.path(owner.api_version, owner.kind, job.namespace)}/{quote(owner.name, safe='')}"
        if (owner.kind, owner.name) == (kind, name):
            return Deletion((), (), owners={job.name: (path, owner.uid)})
        try:
            owner = _controller(kube.get(path, _Made).metadata.owners)
        except KubeError as error:
            if not error.is_not_found and error.status != HTTPStatus.FORBIDDEN:
                raise
            return None
    return None


def of_ended(kube: KubeClient, job: Job) -> Deletion | None:
    """Return the deletion of what an ended job left: its object, else its pods, but none that goes on; None for
    nothing.

    Raises KubeError.
    """
    try:
        found = of_object(kube, job)
        if found is not None:
            [(path, _)] = found.owners.values()
            return found if read(kube.get(path)).state.is_over else None
    except KubeError as error:
        if not error.is_not_found:
            raise
    pods = of_pods(kube, job.pods)
    return pods if pods.pods and all(as_seen(pod).is_finished for pod in pods.pods) else None


def of_single_pod(kube: KubeClient, namespace: str, name: str) -> Deletion | None:
    """A pod whose author's scheduling spec says that it starts alone; None if there is no such pod. Raises KubeError.

    The spec of a bound pod may be hived's, which says so of each pod of a gang: the service knows how it started.
    """
    pod = _find_pod(kube, namespace, name)
    if pod is None or SCHEDULING_SPEC not in _annotations(pod) or BIND_INFO in _annotations(pod):
        return None
    try:
        request = pod_request(pod.metadata.uid, name, namespace, _annotations(pod))
    except UserError:
        return None  # the service knows how to call it
    is_single = count_pods(request.spec.group.members) == 1
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
    objects = [(f"job/{record.full_name}", record.path, record.uid) for record in deletion.records]
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


class _Made(msgspec.Struct):
    """An object, as far as another one may have made it."""

    metadata: PodMetadata


def _controller(owners: Iterable[Owner] | None) -> Owner | None:
    return next((each for each in owners or () if each.controller), None)


def _find_pod(kube: KubeClient, namespace: str, name: str) -> JobPod | None:
    try:
        return kube.get(pod_path(namespace, name), JobPod)
    except KubeError as error:
        if not error.is_not_found:
            raise
        return None


def _annotations(pod: JobPod) -> dict[str, str]:
    return pod.metadata.annotations or {}


def _user(pod: JobPod) -> str:
    return (pod.metadata.labels or {}).get(USER_NAME, "")


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
