"""The table of all kinds of job objects that can wait in a queue. A new kind is a module and a line here."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.jobs.job import Document, Job, JobName, JobRef
from hived_extender.jobs.kinds import batch, dlrover, gates, jobset, kubeflow, ray, trainer, volcano
from hived_extender.jobs.kinds.jobset import Child
from hived_extender.jobs.kinds.kind import Kind, Patch, Write, merge, root_of
from hived_extender.jobs.owners import managed_by

KINDS: tuple[Kind, ...] = (
    batch.JOB,
    jobset.JOB_SET,
    kubeflow.PYTORCH_JOB,
    kubeflow.TF_JOB,
    kubeflow.MPI_JOB,
    trainer.TRAIN_JOB,
    ray.RAY_JOB,
    ray.RAY_CLUSTER,
    volcano.VOLCANO_JOB,
    dlrover.ELASTIC_JOB,
    gates.DEPLOYMENT,
)
_BY_VERSION = {(version, kind.kind): kind for kind in KINDS for version in kind.api_versions}


def find_kind(api_version: object, kind: object) -> Kind | None:
    """The kind of objects with these words, None if it is not in the table."""
    return _BY_VERSION.get((api_version, kind)) if isinstance(api_version, str) and isinstance(kind, str) else None


def kind_of(document: Document) -> Kind:
    """The kind of an object. Raises UserError if it is not in the table."""
    root = root_of(document)
    version, name = root.text("apiVersion"), root.text("kind")
    kind = find_kind(version, name)
    if kind is None:
        known = ", ".join(f"{each.kind} ({', '.join(each.api_versions)})" for each in KINDS)
        raise UserError(f"{root.place} found {name[:40]!r} of {version[:60]!r}, expected one of: {known}")
    return kind


def read(document: Document, made: Document | None = None, children: Iterable[Child] = ()) -> Job:
    """The job of an object.

    `made` is the object that `Job.roles_in` names, if it is there; without it this job has no roles. `children` are the
    Jobs that a JobSet has made. Raises UserError with place, finding and expectation.
    """
    job = jobset.read_with(document, children) if children else kind_of(document).read(document)
    job = replace(job, manager=managed_by(document))
    if job.roles_in is None or made is None:
        return job
    inner = kind_of(made).read(made)
    return replace(job, roles=inner.roles, min_count=inner.min_count)


def has_roles_elsewhere(job: JobName) -> bool:
    """Are the pods of a job written in the object that its controller makes?"""
    return (job.group, job.kind) == (trainer.TRAIN_JOB.group, trainer.TRAIN_JOB.kind)


def suspend(job: JobRef, annotations: Mapping[str, str | None] = {}, version: str = "") -> tuple[Write, ...]:
    """Calls that hold a job back again and write these annotations onto it (None removes one); idempotent.

    With `version` they are refused if the job has changed since. Raises UserError for a kind that is not in the table.
    """
    return _kind(job).suspend(job, annotations, version)


def resume(job: JobRef, annotations: Mapping[str, str | None] = {}, version: str = "") -> tuple[Write, ...]:
    """Calls that let a job go, as `suspend`. The pods of a kind with gates have them lifted besides, see `gates`."""
    return _kind(job).resume(job, annotations, version)


def annotate(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    """Calls that write annotations onto a job, and nothing else, as `suspend`."""
    return (merge(job, _kind(job).plural, {}, annotations, version),)


def has_switch(job: JobRef) -> bool:
    """Does a field of the object suspend it? Its state then is as somebody has written it, whatever its pods do."""
    kind = find_kind(job.api_version, job.kind)
    return kind is not None and kind.has_switch


def resource_of(job: JobRef) -> dict[str, str]:
    """A job as rights name it, `resourceAttributes` of a SubjectAccessReview without a verb. Raises UserError."""
    named = {"resource": _kind(job).plural, "namespace": job.namespace, "name": job.name}
    group = job.job_name.group
    return {"group": group, **named} if group else named


def hold_at_creation(document: Document) -> Patch:
    """Operations of a JSON patch by which a job is born held, none if it is.

    Raises UserError where the object is malformed, or its controller could not hold it back.
    """
    return kind_of(document).hold(document)


def unit_of(name: JobName, managers: Mapping[JobName, JobName]) -> JobName:
    """The job that has the turn for this one: itself, or the one that made it, as `Job.manager` of each says."""
    for _ in KINDS:
        if name not in managers:
            break
        name = managers[name]
    return name


def _kind(job: JobRef) -> Kind:
    kind = find_kind(job.api_version, job.kind)
    if kind is None:
        raise UserError(f"{job}: found {job.kind[:40]!r} of {job.api_version[:60]!r}, which hived cannot hold back")
    return kind
