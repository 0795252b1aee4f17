"""A job as the cluster keeps it: a ConfigMap with the job's document, the submitter's wishes, and where it stands.

It stands in for the object of the job's own controller: the job's pods can be made again from it. Everything made for
the job names it as its owner, so that all of it goes when the ConfigMap is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

import msgspec

from hived.errors import UserError
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.pods.annotations import PREFIX
from hived_jobs.documents import stored_document
from hived_jobs.kinds import plan_document
from hived_jobs.policies import Phase
from hived_jobs.roles import JOB
from hived_jobs.submission import Manifest, PlannedJob, Submission

KIND = PREFIX + "job-kind"
"""Label of a ConfigMap that is a record, and of nothing else."""

NAME_PREFIX = "hived-job-"


class Wishes(msgspec.Struct, rename="camel", omit_defaults=True):
    """The submitter's wishes beside the file."""

    user: str
    virtual_cluster: str | None = None
    priority: int | None = None
    scheduler_name: str | None = None


class JobState(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Where a job stands.

    `retries` counts how often pods were started again by its policies. `going` has the pods that have to go before
    they are made again, with the uid of each that was there.
    """

    phase: Phase
    reason: str = ""
    retries: int = 0
    going: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Record:
    """A record, read or to be written. `uid` and `version` are those of its ConfigMap."""

    namespace: str
    name: str
    kind: str
    document: str
    wishes: Wishes
    state: JobState
    uid: str = ""
    version: str = ""

    @property
    def path(self) -> str:
        """Where it is kept."""
        return record_path(self.namespace, self.name)

    @property
    def owner(self) -> Manifest:
        """How what belongs to it names it."""
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": NAME_PREFIX + self.name, "uid": self.uid}

    def plan(self) -> PlannedJob:
        """The job, as when it was submitted. Raises UserError if somebody has made the document unusable."""
        wishes = self.wishes
        submission = Submission(
            wishes.user, wishes.virtual_cluster, wishes.priority, wishes.scheduler_name, None, self.namespace
        )
        return plan_document(
            stored_document(self.document, f"ConfigMap {self.namespace}/{NAME_PREFIX}{self.name}"), submission
        )

    def write(self, kube: KubeClient, state: JobState) -> "Record":
        """Put another state in its place. Raises KubeError, a conflict if somebody else was faster."""
        return parse_record(kube.replace(self.path, _manifest(replace(self, state=state))))


def record_of(job: PlannedJob, submission: Submission, phase: Phase) -> Record:
    """The record of a new job. A queue that is a virtual cluster is one of the wishes: configurations change."""
    vc = job.virtual_cluster or None
    wishes = Wishes(submission.user, vc, submission.priority, submission.scheduler_name)
    document = msgspec.json.encode(job.document).decode()
    return Record(job.namespace, job.name, job.kind, document, wishes, JobState(phase))


def create_record(kube: KubeClient, record: Record) -> Record:
    """Keep a new job. Raises UserError if there is one of this name."""
    collection = record.path.rsplit("/", 1)[0]
    try:
        return parse_record(kube.create(collection, _manifest(record)))
    except KubeError as error:
        if not error.is_conflict:
            raise UserError(f"job {record.namespace}/{record.name}: {error}", error.status) from error
        raise UserError(
            f"job {record.name} exists already in namespace {record.namespace}; rename the new one, or delete the old "
            f"one with all its pods: hived delete {record.name} -n {record.namespace}",
            error.status,
        ) from error


def read_record(kube: KubeClient, namespace: str, name: str) -> Record:
    """The record of a job. Raises UserError if there is none, KubeError if the API server does not say."""
    found = find_record(kube, namespace, name)
    if found is None:
        raise UserError(
            f"no job {name} in namespace {namespace}: no ConfigMap {NAME_PREFIX}{name}; jobs are listed by "
            f"kubectl get configmaps -A -l {KIND}",
            404,
        )
    return found


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
        labels, data = one.metadata.labels, one.data
        return Record(
            one.metadata.namespace,
            labels[JOB],
            labels[KIND],
            data["job.json"],
            msgspec.json.decode(data["submission.json"], type=Wishes),
            msgspec.json.decode(data["state.json"], type=JobState),
            one.metadata.uid,
            one.metadata.resource_version,
        )
    except (KeyError, msgspec.MsgspecError) as error:
        raise UserError(f"a ConfigMap is no record of a job: {error!r}; do not edit these, delete it") from error


def record_path(namespace: str, name: str) -> str:
    """The path of a job's record."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(NAME_PREFIX + name, safe='')}"


class _Metadata(msgspec.Struct, rename="camel"):
    namespace: str
    labels: dict[str, str]
    uid: str
    resource_version: str


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str]


def _manifest(record: Record) -> Manifest:
    metadata: Manifest = {
        "name": NAME_PREFIX + record.name,
        "namespace": record.namespace,
        "labels": {JOB: record.name, KIND: record.kind},
    }
    if record.version:
        metadata["resourceVersion"] = record.version
    texts = {"submission.json": record.wishes, "state.json": record.state}
    data = {"job.json": record.document} | {key: msgspec.json.encode(part).decode() for key, part in texts.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
