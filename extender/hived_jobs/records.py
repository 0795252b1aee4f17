"""Jobs as the cluster keeps them: a ConfigMap with the job's document, the submitter's wishes, and its state; its pods.

The record stands in for the object of the job's own controller: the job's pods can be made again from it. Everything
made for the job names it as its owner, so that all of it goes when the ConfigMap is deleted.
"""

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.job import typed
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.wire import LabelledMetadata, PodMetadata, PodStatus
from hived_extender.kube.answers import is_older
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import Reflector, mirrored
from hived_jobs.documents import stored_document
from hived_jobs.kinds import plan_document
from hived_jobs.policies import Phase, TaskPod
from hived_jobs.submission import (
    JOB,
    JOB_NAME,
    OF_USER,
    USER_NAME,
    Manifest,
    PlannedJob,
    RoleSize,
    Submission,
    called,
)

KIND = marks.SUBMITTED_KIND
"""Label of a ConfigMap that is a record, and of no other."""

NAME_PREFIX = marks.RECORD

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


class Wishes(msgspec.Struct, rename="camel", omit_defaults=True):
    """The submitter's wishes beside the file."""

    user: str
    virtual_cluster: str | None = None
    priority: int | None = None
    scheduler_name: str | None = None
    sizes: dict[str, RoleSize] = {}
    names_user: bool = False
    leaf_cell_type: str | None = None


class JobState(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """The state of a job.

    `retries` counts how often pods were started again by its policies, and `pod_retries` how often each pod was by a
    policy that limits that. `going` has the pods that have to go before they are made again, with the uid of each that
    was there.
    """

    phase: Phase
    reason: str = ""
    retries: int = 0
    going: dict[str, str] = {}
    pod_retries: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a job. `uid`, `version` and `labels` are those of its ConfigMap."""

    namespace: str
    name: str
    kind: str
    document: str
    wishes: Wishes
    state: JobState
    uid: str = ""
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path of its record."""
        return record_path(self.namespace, self.name)

    @property
    def full_name(self) -> str:
        """The name that no other job of its namespace has: of an OpenPAI job, its user's and its own."""
        return called(self.name, self.labels)

    @property
    def owner(self) -> Manifest:
        """The owner reference of everything made for the job."""
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": NAME_PREFIX + self.name, "uid": self.uid}

    def plan(self) -> PlannedJob:
        """Return the job, as when it was submitted. Raises UserError if its document has become unusable."""
        wishes = self.wishes
        submission = Submission(
            wishes.user, wishes.virtual_cluster, wishes.priority, wishes.scheduler_name, None, self.namespace,
            wishes.sizes, wishes.names_user, wishes.leaf_cell_type,
        )  # fmt: skip
        return plan_document(
            stored_document(self.document, f"ConfigMap {self.namespace}/{NAME_PREFIX}{self.name}"), submission
        )

    def write(self, kube: KubeClient, state: JobState) -> "Record":
        """Put another state in its place. Raises KubeError, a conflict if another writer was faster."""
        return parse_record(kube.replace(self.path, _manifest(replace(self, state=state))))


def record_of(job: PlannedJob, submission: Submission, phase: Phase) -> Record:
    """The record of a new job. A queue that is a virtual cluster is one of the wishes: configurations change."""
    vc = job.virtual_cluster or None
    wishes = Wishes(
        submission.user, vc, submission.priority, submission.scheduler_name, dict(job.sizes), job.names_user,
        submission.leaf_cell_type,
    )  # fmt: skip
    document = msgspec.json.encode(job.document).decode()
    return Record(job.namespace, job.name, job.kind, document, wishes, JobState(phase), labels=job.labels)


def create_record(kube: KubeClient, record: Record) -> Record:
    """Keep a new job. Raises UserError if there is one of this name."""
    collection = record.path.rsplit("/", 1)[0]
    try:
        return parse_record(kube.create(collection, _manifest(record)))
    except KubeError as error:
        if not error.is_conflict:
            raise UserError(f"job {record.namespace}/{record.name}: {error}", error.status) from error
        raise UserError(exists(find_record(kube, record.namespace, record.name) or record), error.status) from error


def exists(known: Record) -> str:
    """Return why a job that is there already is not submitted, and what to do instead."""
    where, phase = typed(known.full_name, known.namespace), known.state.phase
    start = f"it is {phase.value.lower()}, start it: hived release {where}; else " if phase.is_resumable else ""
    return (
        f"job {known.full_name} exists already in namespace {known.namespace}; {start}rename the new one, or delete "
        f"the old one with all its pods: hived delete {where}"
    )


def read_record(kube: KubeClient, namespace: str, name: str) -> Record:
    """The record of a job. Raises UserError if there is none, KubeError if the API server does not say."""
    found = find_record(kube, namespace, name)
    if found is None:
        raise UserError(f"no job {name} in namespace {namespace}; `hived get jobs` lists all", 404)
    return found


def read_named(kube: KubeClient, namespace: str, name: str) -> Record:
    """See `find_named`; raises UserError, too, if there is none."""
    return find_named(kube, namespace, name) or read_record(kube, namespace, name)


def find_named(kube: KubeClient, namespace: str, name: str) -> Record | None:
    """The record of a job by a name that people use, of an OpenPAI job `NAME` or `USER~NAME`; None if there is none.

    Raises UserError if jobs of several users have the name, KubeError if the API server does not say.
    """
    user, is_full, short = name.rpartition(OF_USER)
    exact = None if is_full else find_record(kube, namespace, name)
    if exact is not None and JOB_NAME not in exact.labels:
        return exact
    labels = {JOB_NAME: short, USER_NAME: user} if is_full else {JOB_NAME: short}
    if not all(map(_LABEL.fullmatch, labels.values())):
        return exact
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"
    selector = ",".join((KIND, *(f"{label}={value}" for label, value in labels.items())))
    listed = kube.list_objects(path, dict, label_selector=selector).items
    found = {record.uid: record for one in (exact, *map(_record_in, listed)) if (record := one) is not None}
    if len(found) > 1:
        names = ", ".join(sorted(record.full_name for record in found.values()))
        raise UserError(f"jobs of several users are named {name} in namespace {namespace}: name one of {names}", 409)
    return next(iter(found.values()), None)


def find_record(kube: KubeClient, namespace: str, name: str) -> Record | None:
    """The record of a job, None if there is none. Raises KubeError if the API server does not say."""
    try:
        return parse_record(kube.get(record_path(namespace, name)))
    except KubeError as error:
        if not error.is_not_found:
            raise
        return None


def parse_record(manifest: Mapping[str, object]) -> Record:
    """A record from its ConfigMap. Raises UserError if it is none."""
    try:
        one = msgspec.convert(manifest, _ConfigMap)
        labels, data = one.metadata.labels or {}, one.data
        if not one.metadata.uid:  # the pods of a job are known by it
            raise KeyError("metadata.uid")
        return Record(
            one.metadata.namespace,
            labels[JOB],
            labels[KIND],
            data["job.json"],
            msgspec.json.decode(data["submission.json"], type=Wishes),
            msgspec.json.decode(data["state.json"], type=JobState),
            one.metadata.uid,
            one.metadata.version,
            labels,
        )
    except (KeyError, msgspec.MsgspecError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"a ConfigMap is no record of a job: {what}; do not edit these, delete it") from error


def record_path(namespace: str, name: str) -> str:
    """The path of a job's record."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(NAME_PREFIX + name, safe='')}"


class _ConfigMap(msgspec.Struct):
    metadata: LabelledMetadata
    data: dict[str, str]


def _manifest(record: Record) -> Manifest:
    metadata: Manifest = {
        "name": NAME_PREFIX + record.name,
        "namespace": record.namespace,
        "labels": {**record.labels, JOB: record.name, KIND: record.kind},
    }
    if record.version:
        metadata["resourceVersion"] = record.version
    texts = {"submission.json": record.wishes, "state.json": record.state}
    data = {"job.json": record.document} | {key: msgspec.json.encode(part).decode() for key, part in texts.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


log = logging.getLogger(__name__)

_JOIN_S = 2.0

Key = tuple[str, str]
"""Namespace and name of a job."""


class JobPod(msgspec.Struct):
    """A pod, as far as its job is concerned."""

    metadata: PodMetadata
    status: PodStatus | None = None


class JobCache:
    """Follows records and pods, from `start` to `stop`; in all namespaces unless `namespaces` has just one."""

    def __init__(self, kube: KubeClient, namespaces: Collection[str]) -> None:
        # Guards what follows; never held during a call.
        self._changed = threading.Condition()
        self._records: dict[Key, Record] = {}
        self._pods: dict[Key, dict[str, JobPod]] = {}
        self._ended: dict[Key, Record] = {}
        self._due: dict[Key, None] = {}
        self._is_stopping = False
        where = "/api/v1" if len(namespaces) != 1 else f"/api/v1/namespaces/{quote(next(iter(namespaces)), safe='')}"
        metrics, config_maps = Metrics(), f"{where}/configmaps"
        pods = mirrored(f"{where}/pods", JobPod, _pod_key, self._pod_keys, self._pod_seen, self._pod_gone)
        records = mirrored(config_maps, dict, _record_key, lambda: self._records, self._record_seen, self._record_gone)
        self._reflectors: list[Reflector[Any]] = [Reflector(kube, pods, metrics), Reflector(kube, records, metrics)]
        self._lists = [reflector.relist() for reflector in self._reflectors]

    def start(self) -> None:
        """Begin to follow."""
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        """Report nothing more; all waits end."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        for reflector, listed in zip(self._reflectors, self._lists, strict=True):
            reflector.stop()
            listed.set()

    def join(self) -> None:
        """Wait for the end after `stop`."""
        for reflector in self._reflectors:
            reflector.join(_JOIN_S)

    def wait(self, is_enough: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until a question about what is known is answered with yes, until a stop, or a time-out."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or is_enough(), timeout_s)

    def take_due(self) -> list[Key] | None:
        """The jobs of which something has changed, waiting until there is one; None at a stop.

        No job is handled before all pods and records have been listed: a pod that is not known yet would count as gone.
        """
        for listed in self._lists:
            listed.wait()
        with self._changed:
            self._changed.notify_all()  # whoever waits for a job that is gone learns that all are known
            self._changed.wait_for(lambda: self._is_stopping or bool(self._due))
            keys = list(self._due)
            self._due.clear()
            return None if self._is_stopping else keys

    def put_back(self, keys: Iterable[Key]) -> None:
        """Have these jobs looked at again."""
        with self._changed:
            self._due.update(dict.fromkeys(keys))

    def record(self, key: Key) -> Record | None:
        """The record of a job, None if there is none."""
        return self._records.get(key)

    def is_gone(self, key: Key) -> bool:
        """True if a job has no record, as far as is known; one created since may come by the watch."""
        return all(listed.is_set() for listed in self._lists) and key not in self._records

    def pods(self, record: Record) -> dict[str, TaskPod]:
        """The pods of a job, by name."""
        with self._changed:
            pods = dict(self._pods.get((record.namespace, record.name), {}))
        return {name: as_seen(pod) for name, pod in pods.items() if belongs(pod, record)}

    def take_ended(self, key: Key) -> Record | None:
        """The record of a job that was deleted since this was asked for the last time."""
        return self._ended.pop(key, None)

    def put_ended(self, record: Record) -> None:
        """Have this answered by `take_ended` once more."""
        self._ended.setdefault((record.namespace, record.name), record)

    def take(self, record: Record) -> None:
        """Take in a record that was just written, unless a later one is known."""
        key = (record.namespace, record.name)
        with self._changed:
            known = self._records.get(key)
            if known is None or known.uid != record.uid or is_older(known.version, record.version):
                self._records[key] = record
                self._note(key)

    def _record_seen(self, config_map: Manifest) -> None:
        if (record := _record_in(config_map)) is not None:
            self.take(record)

    def _record_gone(self, key: Key) -> None:
        with self._changed:
            if (record := self._records.pop(key, None)) is not None:
                self._ended[key] = record
                self._note(key)

    def _pod_keys(self) -> list[tuple[Key, str]]:
        return [(key, name) for key, pods in self._pods.items() for name in pods]

    def _pod_seen(self, pod: JobPod) -> None:
        key, name = _pod_key(pod)
        if key[1]:
            with self._changed:
                self._pods.setdefault(key, {})[name] = pod
                self._note(key)

    def _pod_gone(self, pod: tuple[Key, str]) -> None:
        key, name = pod
        with self._changed:
            if self._pods.get(key, {}).pop(name, None) is not None:
                self._note(key)
                if not self._pods[key]:
                    del self._pods[key]

    def _note(self, key: Key) -> None:
        self._due[key] = None
        self._changed.notify_all()


def _pod_key(pod: JobPod) -> tuple[Key, str]:
    """Namespace and job of a pod, "" for a pod of no job, and its name."""
    metadata = pod.metadata
    return (metadata.namespace, (metadata.labels or {}).get(JOB, "")), metadata.name


def _record_key(config_map: Manifest) -> Key:
    """Namespace and name of the job whose record a ConfigMap is; no name for another ConfigMap, as of a job's own."""
    metadata = config_map["metadata"]
    labels = metadata.get("labels") or {}
    return metadata["namespace"], labels.get(JOB, "") if KIND in labels else ""


def _record_in(config_map: Manifest) -> Record | None:
    """The record that a ConfigMap is; None if it is none, or unusable, which the log says."""
    if KIND not in (config_map["metadata"].get("labels") or {}):
        return None
    try:
        return parse_record(config_map)
    except UserError as error:
        log.error("%s", error)
        return None


def read_pod(kube: KubeClient, record: Record, name: str) -> TaskPod | None:
    """A pod of a job as the API server has it, None if there is none. Raises KubeError."""
    try:
        pod = kube.get(pod_path(record.namespace, name), JobPod)
    except KubeError as error:
        if not error.is_not_found:
            raise
        return None
    return as_seen(pod) if belongs(pod, record) else None


def belongs(pod: JobPod, record: Record) -> bool:
    """True if a pod was made for this very job, not for an earlier one of its name, nor by others."""
    return any(owner.uid == record.uid for owner in pod.metadata.owners or ())


def as_seen(pod: JobPod) -> TaskPod:
    """A pod as policies see it."""
    status = pod.status or PodStatus()
    codes = [
        one.state.terminated.exit_code
        for one in status.containers or ()
        if one.state is not None and one.state.terminated is not None
    ]
    metadata = pod.metadata
    return TaskPod(
        metadata.name,
        metadata.uid,
        status.phase or "Pending",
        max(codes, default=0),
        metadata.deletion_timestamp is not None,
    )
