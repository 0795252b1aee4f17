"""Creating what was planned, in the order in which Kubernetes needs it."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.job import JobState as ObjectState
from hived_extender.jobs.job import typed
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.kinds.kind import Kind, path_of
from hived_extender.jobs.kinds.table import KINDS, find_kind, has_switch, read
from hived_extender.jobs.outcomes import DONE
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_extender.kube_rules.resource_rules import Fault, pod_faults
from hived_jobs.kinds import as_stored, has_all
from hived_jobs.objects import template_places, value_at
from hived_jobs.policies import Phase, TaskPod
from hived_jobs.records import JobPod, JobState, Record, create_record, exists, find_record, read_pod, record_of
from hived_jobs.served import Served
from hived_jobs.submission import JOB, USER_NAME, Manifest, PlannedJob, PlannedPod, Submission, priority_classes


def refuse_resources(job: PlannedJob) -> None:
    """Raise UserError, with file and line, for the first pod whose resources no API server takes.

    A pod that cannot be read is for the API server to refuse.
    """
    for pod in job.pods:
        if faults := _faults(pod.manifest):
            told = "; ".join(f"{fault.field}: {fault.message}" for fault in faults)
            raise UserError(f"{_place_of(job, faults[0])}pod {pod.name} is invalid: {told}", 422)


def _faults(manifest: Manifest) -> list[Fault]:
    read = _read(manifest)
    return [] if read is None else list(dict.fromkeys(pod_faults(read)))


def _place_of(job: PlannedJob, fault: Fault) -> str:
    """The "FILE:LINE: " of a fault in the first pod template that has it, "" if the file has none."""
    if job.source is None:
        return ""
    written = job.source.value()
    for place in template_places(written):
        if fault in _faults({"metadata": {}, "spec": value_at(written, place)["spec"]}):
            path = "".join(f"[{step}]" if isinstance(step, int) else f"{step}." for step in place)
            return job.source.place_of(path.replace(".[", "[").replace("][", "].[") + fault.field)
    return ""


def _read(manifest: Manifest) -> Pod | None:
    try:
        return msgspec.convert(manifest, Pod)
    except (ValueError, RecursionError):
        return None


PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

ADMISSION_S = 10.0
"""For the admission of pods to hear of a new PriorityClass: it reads them from a watch, each API server its own."""

LEAVING_S = 60.0
"""For the pods of an aborted job to end; Kubernetes gives them 30 s unless they say otherwise."""

CHECK_S = 0.1

_NO_CLASS = "no PriorityClass with name"
"""In the refusal of a pod by an API server's admission."""

_IRREGULAR_PLURALS = {
    "Endpoints": "endpoints", "Ingress": "ingresses", "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
}  # fmt: skip


@dataclass(slots=True)
class Created:
    """The outcome: objects as stored, known ones by kind and name, counts of kinds unknown to the cluster by plural.

    `jobs` are those that were created, under the names that they have.
    """

    pods: list[Manifest] = field(default_factory=list)
    others: list[Manifest] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    jobs: list[PlannedJob] = field(default_factory=list)


def create_jobs(kube: KubeClient, submission: Submission, jobs: Sequence[PlannedJob]) -> Created:
    """Create the priority classes that are missing, then job by job its record, what its pods need, and its pods.

    A pod that names a namespace of its own goes there. A suspended job is only recorded, or is an object that says so.
    Raises UserError if two of them have one name, or the API server refuses an object, before anything is created; and
    for other refusals. Then, and when it is interrupted, everything created before is deleted again, because a gang
    that lacks a member would hold its cells and wait.
    """
    refuse_equal_names(submission.namespace, jobs)
    creation = _Creation(kube, submission.namespace)
    with creation:
        if len(jobs) > 1:
            for job in jobs:
                creation.check(job)
        records = []
        for each in jobs:
            job, record = creation.keep(each, submission) if each.document is not None else (each, None)
            creation.created.jobs.append(job)
            if record is not None:
                records.append(record)
            if job.is_object or not job.is_suspended:
                creation.start(job, record)
        for record in records:
            if record.state.phase is Phase.CREATING:
                record.write(kube, JobState(Phase.PENDING))
    return creation.created


def check_objects(kube: KubeClient, namespace: str, jobs: Iterable[PlannedJob]) -> None:
    """Raise UserError, with file and line, for the first object that the API server would not take; creates none."""
    creation = _Creation(kube, namespace)
    with creation:
        for job in jobs:
            creation.check(job)


def resume_job(kube: KubeClient, record: Record) -> Created:
    """Create the pods of a job that was suspended or aborted, but those that have succeeded.

    Other pods of an aborted job are deleted first: each would be a reason to abort the job again. Raises UserError for
    a job that is neither, and for what the API server refuses; then the job stands as before.
    """
    if not record.state.phase.is_resumable:
        raise UserError(
            f"job {record.full_name} is {record.state.phase.value}: only a suspended or aborted job can be resumed"
        )
    job = replace(record.plan(), is_suspended=False)
    creation = _Creation(kube, record.namespace)
    claimed = record.write(kube, JobState(Phase.CREATING))
    try:
        with creation:
            creation.start(job, claimed, succeeded=_clear(kube, claimed, job))
            claimed.write(kube, JobState(Phase.PENDING))
    except BaseException:
        claimed.write(kube, record.state)
        raise
    return creation.created


def _clear(kube: KubeClient, record: Record, job: PlannedJob) -> set[str]:
    """Delete a job's pods, wait until they are gone, and return the names of pods that have succeeded and stay."""
    until, succeeded, left = time.monotonic() + LEAVING_S, set[str](), [pod.name for pod in job.first_pods()]
    while True:
        seen = [pod for name in left if (pod := read_pod(kube, record, name)) is not None]
        succeeded |= {pod.name for pod in seen if pod.phase == "Succeeded"}
        going = [pod for pod in seen if pod.name not in succeeded]
        if not going:
            return succeeded
        if time.monotonic() > until:
            raise UserError(
                f"pod {going[0].name} is still being deleted; resume job {record.full_name} when it is gone", 409
            )
        delete_pods(kube, record, going)
        left = [pod.name for pod in going]
        time.sleep(CHECK_S)


def delete_pods(kube: KubeClient, record: Record, pods: Iterable[TaskPod]) -> None:
    """Delete pods of a job, these very ones, unless they are leaving already. Raises KubeError."""
    for pod in pods:
        if pod.is_leaving:
            continue
        try:
            kube.delete_pod(record.namespace, pod.name, uid=pod.uid)
        except KubeError as error:
            if not error.is_not_found and not error.is_conflict:
                raise


def mark_done(kube: KubeClient, record: Record, pods: Iterable[TaskPod]) -> None:
    """Say of pods that they are deleted because their job is complete, as far as the API server lets us."""
    for pod in pods:
        with suppress(KubeError):
            kube.patch(pod_path(record.namespace, pod.name), {"metadata": {"uid": pod.uid, "labels": {DONE: "true"}}})


def create_again(kube: KubeClient, record: Record, pods: Iterable[PlannedPod]) -> None:
    """Create pods of a job that are gone; one that is there stays. Raises KubeError."""
    for pod in pods:
        try:
            kube.create(collection_of(record.namespace, pod.manifest), _owned(pod.manifest, record))
        except KubeError as error:
            if not error.is_conflict:
                raise


class _Creation:
    """Creates one thing after another, and deletes all of them again if an exception ends it."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.created = Created()
        self._kube = kube
        self._namespace = namespace
        self._served = Served(kube)
        self._undo: list[tuple[str, str, str]] = []  # (path, uid, what messages call it)
        self._classes: set[str] = set()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        text = self._take_back()
        if isinstance(error, KubeError):
            raise UserError(f"{error}{text}", error.status) from error
        if isinstance(error, UserError):
            raise UserError(error.message + text, error.code) from error

    def keep(self, job: PlannedJob, submission: Submission) -> tuple[PlannedJob, Record]:
        """Keep a job's record. One of whose name another user has a job gets the user's name into its own."""
        phase = Phase.SUSPENDED if job.is_suspended else Phase.CREATING
        try:
            kept = create_record(self._kube, record_of(job, submission, phase))
        except UserError as error:
            apart = apart_from_others(self._kube, job)
            if error.code != HTTPStatus.CONFLICT or apart is job:
                raise
            job, kept = apart, create_record(self._kube, record_of(apart, submission, phase))
        self._undo.append((kept.path, kept.uid, ""))
        return job, kept

    def check(self, job: PlannedJob) -> None:
        """Ask the API server whether it would take the objects of a job, which a suspended one does not need yet.

        What is there already is judged later, and so is an object whose namespace this very file may create, and a
        pod whose PriorityClass it will.
        """
        pods = [pod.manifest for pod in job.own_pods()]
        for each in (*job.objects, *pods) if job.document is None else ():
            try:
                if (collection := self._collection(each)) is not None:
                    self._kube.create(collection, each, dry_run=True, is_strict=True)
            except KubeError as error:
                if not error.is_conflict and not error.is_not_found and _NO_CLASS not in error.message:
                    told = job.located(f"{_what(each)}: {error}; nothing was created")
                    raise UserError(told, error.status) from error

    def start(self, job: PlannedJob, record: Record | None, succeeded: Collection[str] = ()) -> None:
        """Create everything that a job is made of, but pods that have `succeeded`."""
        for priority_class in priority_classes(job.pods):
            self._create_class(priority_class)
        for each in job.objects:
            self._create_object(job, _owned(each, record))
        for pod in job.own_pods():
            if pod.name not in succeeded:
                self._create_pod(job, pod, _owned(pod.manifest, record))

    def _create_class(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        if name in self._classes:
            return
        self._classes.add(name)
        try:
            self._kube.create(PRIORITY_CLASSES, manifest)
        except KubeError as error:
            if not error.is_conflict:
                raise

    def _create_object(self, job: PlannedJob, manifest: Manifest) -> None:
        """A job, or something beside the pods: left out if the cluster has no such kind, used again if the job left it
        before.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        what, collection = _what(manifest), self._collection(manifest)
        if collection is None:
            self.created.left_out[_plural(kind)] += 1
            return
        try:
            stored = self._kube.create(collection, manifest, is_strict=True)
        except KubeError as error:
            if not error.is_conflict:
                raise UserError(job.located(f"{what}: {error}"), error.status) from error
            where = f" in namespace {metadata['namespace']}" if "namespace" in metadata else ""
            if job.is_object:
                way = "delete it or rename the new one, or change it: kubectl apply"
                raise UserError(f"{what} exists already{where}; {way}", 409) from error
            path = f"{collection}/{quote(metadata['name'], safe='')}"
            known, owner = self._kube.get(path), (metadata.get("labels") or {}).get(JOB)
            if owner is None:
                if not has_all(known, as_stored(manifest)):
                    way = "use kubectl apply for it, or leave it out of the file"
                    raise UserError(f"{what} exists already{where}, and is another; {way}", 409) from error
                self.created.unchanged.append(what)
                return
            if (known["metadata"].get("labels") or {}).get(JOB) != owner:
                raise UserError(f"{what} exists already{where}, and is not this job's", 409) from error
            if kind not in ("ConfigMap", "Secret"):
                return
            stored = self._kube.replace(path, manifest)
        self._remember(collection, stored, "")
        self.created.others.append(stored)

    def _collection(self, manifest: Manifest) -> str | None:
        """Return the collection where an object is created; None if the cluster has no such kind."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        if self._served.find(version, kind) is None:
            return None
        return self._served.path(version, kind, manifest["metadata"].get("namespace", self._namespace))

    def _create_pod(self, job: PlannedJob, pod: PlannedPod, manifest: Manifest) -> None:
        where, name = manifest["metadata"].get("namespace", self._namespace), pod.name
        collection = collection_of(self._namespace, manifest)
        try:
            stored = self._admitted(collection, pod, manifest, is_strict=job.document is None)
        except KubeError as error:
            reason = job.located(f"pod {where}/{name}: {error}")
            if error.is_conflict:
                reason = _exists(where, name)
            if error.status == 403 and _NO_CLASS in error.message:
                reason += "; create it (kubectl create priorityclass NAME --value=N), or give --priority"
            if error.status == 0:
                reason += f"; it may have been created all the same: look for it with kubectl get pod -n {where} {name}"
            raise UserError(reason, error.status) from error
        self._remember(collection, stored, f"{where}/{name}")
        self.created.pods.append(stored)

    def _admitted(self, collection: str, pod: PlannedPod, manifest: Manifest, *, is_strict: bool) -> Manifest:
        until = time.monotonic() + ADMISSION_S
        while True:
            try:
                return self._kube.create(collection, manifest, is_strict=is_strict)
            except KubeError as error:
                missing = f"{_NO_CLASS} {pod.priority_class_name} "
                if error.status != 403 or missing not in error.message or time.monotonic() > until:
                    raise
            time.sleep(CHECK_S)

    def _remember(self, collection: str, stored: Mapping[str, Manifest], pod: str) -> None:
        metadata = stored["metadata"]
        self._undo.append((f"{collection}/{quote(metadata['name'], safe='')}", metadata["uid"], pod))

    def _take_back(self) -> str:
        """Delete everything again; what the message about the failure has to say of it."""
        left, pods = [], 0
        for path, uid, pod in reversed(self._undo):
            pods += bool(pod)
            try:
                self._kube.delete(path, uid=uid)
            except KubeError as error:
                if not error.is_not_found:
                    left.append(pod or path)
        if left:
            return f"; created before and not deleted again: {', '.join(left)}"
        if not pods:
            return ""
        which = "pod created before it was" if pods == 1 else f"{pods} pods created before it were"
        return f"; the {which} deleted again"


def _what(manifest: Manifest) -> str:
    return f"{manifest['kind'].lower()}/{manifest['metadata']['name']}"


def collection_of(namespace: str, manifest: Manifest) -> str:
    """The path where objects of this kind are created; `namespace` is for one that names none."""
    version = manifest["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if manifest["kind"] == "PriorityClass":
        return PRIORITY_CLASSES
    where = quote(manifest["metadata"].get("namespace", namespace), safe="")
    return f"{base}/namespaces/{where}/{_plural(manifest['kind'])}"


def _plural(kind: str) -> str:
    return _IRREGULAR_PLURALS.get(kind) or f"{kind.lower()}s"


def _owned(manifest: Manifest, record: Record | None) -> Manifest:
    if record is None:
        return manifest
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [record.owner]}}


def apart_from_others(kube: KubeClient, job: PlannedJob) -> PlannedJob:
    """The job, with its user's name in its own if a job of another user has the plain one. Raises KubeError."""
    if job.apart is None:
        return job
    known = find_record(kube, job.namespace, job.name)
    return job if known is None or known.wishes.user == job.labels.get(USER_NAME) else job.apart()


def refuse_equal_names(namespace: str, jobs: Sequence[PlannedJob]) -> None:
    """Raise UserError if two pods, or two objects of a kind, have one name; `namespace` is for those that name none."""
    made = [pod.manifest for job in jobs if not job.is_object for pod in job.pods]
    names = Counter(
        (each["kind"], each["metadata"].get("namespace", namespace), each["metadata"]["name"])
        for each in (*made, *(each for job in jobs if job.document is None for each in job.objects))
    )
    for (kind, where, name), count in names.items():
        if count > 1:
            what = "pods" if kind == "Pod" else f"objects of kind {kind}"
            raise UserError(f"{count} {what} are named {name} in namespace {where}; nothing was created")
    objects = {(job.namespace, job.name) for job in jobs if job.is_object}  # of several kinds, perhaps
    records = Counter([*objects, *((job.namespace, job.name) for job in jobs if job.document is not None)])
    for (where, name), count in records.items():
        if count > 1:
            raise UserError(f"{count} jobs are named {name} in namespace {where}; nothing was created")


def refuse_known_names(kube: KubeClient, namespace: str, jobs: Sequence[PlannedJob]) -> None:
    """Raise UserError if the cluster has a pod, or a job's record, of one of these names; KubeError if it does not say.

    `namespace` is for pods that name none. Cost: a list of the pods of each namespace, and a request per job.
    """
    for job in jobs:
        record = find_record(kube, job.namespace, job.name) if job.document is not None else None
        if record is not None:
            raise UserError(exists(record))
    known: dict[str, set[str]] = {}
    for pod in (pod for job in jobs for pod in job.own_pods()):
        where = pod.manifest["metadata"].get("namespace", namespace)
        if where not in known:
            found = kube.list_objects(f"/api/v1/namespaces/{quote(where, safe='')}/pods", JobPod).items
            known[where] = {each.metadata.name for each in found}
        if pod.name in known[where]:
            raise UserError(_exists(where, pod.name))


def refuse_names_of_objects(
    kube: KubeClient, namespace: str, jobs: Sequence[PlannedJob], *, has_queues: bool = False
) -> None:
    """Raise UserError if the cluster has a job object of the same name: commands could not tell them apart.

    Of a job that is an object itself they know the kind, so it may have the name of one of another kind. `namespace` is
    for jobs that name none. `has_queues`: suspended jobs may wait in one. Raises KubeError as `find_object`. Cost: a
    request per job and kind.
    """
    for job in jobs:
        own = find_kind(job.objects[-1]["apiVersion"], job.kind) if job.is_object else None
        kinds = KINDS if not job.is_object else () if own is None else (own,)
        where = job.namespace or namespace
        if job.name and (found := find_object(kube, where, job.name, kinds)) is not None:
            what = f"{found['kind']} {job.name} ({found['apiVersion']})"
            raise UserError(
                f"{what} exists already in namespace {where}; delete it or rename the job, or change it: kubectl apply"
                f"{_start_of(found, has_queues=has_queues)}"
            )


def _start_of(found: Manifest, *, has_queues: bool) -> str:
    """The way to start a job object that is suspended, "" for another one."""
    with suppress(UserError):
        job = read(found)
        if job.state is ObjectState.HELD and has_queues and marks.may_queue(job.labels, job.annotations):
            named = f"{job.ref.name} -n {job.ref.namespace}"
            return f"; it is suspended, and starts when its turn in its queue comes: hived why {named}"
        if job.state in (ObjectState.HELD, ObjectState.LEAVING) and has_switch(job.ref):
            return f"; it is suspended, start it: hived release {typed(job.ref.name, job.ref.namespace)}"
    return ""


def find_object(kube: KubeClient, namespace: str, name: str, kinds: Sequence[Kind] = KINDS) -> Manifest | None:
    """The first job object of a name and of one of these kinds, None without one.

    Kinds that the cluster does not have, or does not show, are skipped. Raises KubeError if it does not answer. Cost: a
    request per kind.
    """
    for kind, version in [(one, version) for one in kinds for version in one.api_versions]:
        try:
            return {
                **kube.get(path_of(version, kind.plural, namespace, name)),
                "apiVersion": version,
                "kind": kind.kind,
            }
        except KubeError as error:
            if error.status not in (403, 404):
                raise
    return None


def _exists(namespace: str, pod: str) -> str:
    return f"pod {pod} exists already in namespace {namespace}; delete it or rename the job"
