"""The table of all kinds: a new kind is a file with a `Source`, and its line here; README.md has the rest.

Job objects: how they are read, suspended and resumed, and which of them a pod, or another job object, belongs to.
Gangs: how pods of other schedulers and job controllers describe them, in one common description. A pod with our own
annotation is not asked for one.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.jobs.job import WORKLOAD, Document, Job, JobName, JobRef
from hived_extender.jobs.kinds import (
    batch,
    coscheduling,
    dlrover,
    gates,
    jobset,
    kai,
    koordinator,
    kubeflow,
    kueue,
    marks,
    native,
    others,
    own,
    ray,
    trainer,
    volcano,
    yunikorn,
)
from hived_extender.jobs.kinds.description import AND, Description, Lookup, ObjectRef, merged
from hived_extender.jobs.kinds.jobset import Child
from hived_extender.jobs.kinds.kind import JobOfPod, Kind, Patch, Source, Use, Write, merge, root_of
from hived_extender.jobs.wire import Owner, Pod, PodSpec

SOURCES: tuple[Source, ...] = (
    batch.SOURCE,
    jobset.SOURCE,
    kubeflow.SOURCE,
    trainer.SOURCE,
    ray.SOURCE,
    coscheduling.SOURCE,
    koordinator.SOURCE,
    volcano.SOURCE,
    native.SOURCE,
    yunikorn.SOURCE,
    kueue.SOURCE,
    kai.SOURCE,
    own.SOURCE,
    dlrover.SOURCE,
    gates.SOURCE,
    others.SOURCE,
)
KINDS = tuple(kind for source in SOURCES for kind in source.jobs)
DIALECTS = tuple(dialect for source in SOURCES for dialect in source.dialects)
OBJECTS = tuple(dialect.objects for dialect in DIALECTS if dialect.objects is not None)
"""The kinds of objects that pods name as their gang."""

KEYS = frozenset[str]().union(*(dialect.keys for dialect in DIALECTS))
"""Labels and annotations that have a meaning in some dialect."""

_DESCRIBE = tuple(dialect.describe for dialect in DIALECTS if dialect.describe is not None)
_REFUSED = {
    key.name: key
    for dialect in DIALECTS
    for key in dialect.vocabulary
    if key.use is Use.REFUSED and not key.place.endswith("field")
}
_MARKS = KEYS | _REFUSED.keys()
_WAITING_S = {dialect.name: dialect.waiting_s for dialect in DIALECTS}
_REFUSALS = {dialect.name: dialect.refusal for dialect in DIALECTS}


# ---- gangs


def is_marked(pod: Pod) -> bool:
    """Has the pod a key of any dialect? Costs less than 2 us."""
    metadata, spec = pod.metadata, pod.spec
    if spec is not None and (spec.scheduling_group is not None or spec.workload_ref is not None):
        return True
    labels, annotations = metadata.labels or (), metadata.annotations or ()
    if _MARKS.isdisjoint(labels) and _MARKS.isdisjoint(annotations):
        return False
    return not (KEYS.isdisjoint(labels) and KEYS.isdisjoint(annotations)) or bool(_refusal(pod, has_gang=False))


def is_marked_by_author(pod: Pod) -> bool:
    """The same, without the keys that Volcano's controller writes onto every pod."""
    if not is_marked(pod):
        return False
    spec = pod.spec or PodSpec()
    keys = (pod.labels.keys() | pod.annotations.keys()) & KEYS - set(volcano.GROUP_NAMES)
    has_field = spec.scheduling_group is not None or spec.workload_ref is not None
    return bool(keys) or has_field or not volcano.is_made(pod) or bool(_refusal(pod, has_gang=False))


def describe(pod: Pod, objects: Lookup) -> Description | None:
    """The description of the pod by all dialects, None if it has a key of none.

    Raises UserError if two dialects disagree, a value is not valid, keys describe a gang without a name, or a pod
    without a node requires what is not built. `missing` remains only if nothing but the missing object could give the
    minimum.
    """
    if not is_marked(pod):
        return None
    said = [each for describe_by in _DESCRIBE if (each := describe_by(pod, objects)) is not None]
    said = own.override_wishes(volcano.drop_made_gang(pod, said))
    result = merged(said)
    if result is not None and result.missing and result.minimum is not None:
        result = merged(replace(each, source=None, missing=None) if each.missing else each for each in said)
    has_gang = result is not None and result.gang is not None
    why = "" if pod.node else _refusal(pod, has_gang=has_gang) or (result is not None and result.refused)
    if why:
        raise UserError(why)
    result = None if result is None else replace(result, refused=None)
    return None if result is None else _completed(pod, result, [_WAITING_S.get(each.dialect) for each in said])


def refusal_of(description: Description, pod: str, reason: str) -> str:
    """The reason why a pod's gang waits, as the scheduler says it whose dialect describes the gang; the first of them.

    As it is for a dialect that has no words for it, and for a pod without a gang.
    """
    tell = next(filter(None, (_REFUSALS.get(name) for name in description.dialect.split(AND))), None)
    if description.gang is None or tell is None:
        return reason
    return tell(description.gang, pod, description.minimum or 1, reason)


def objects_of(pod: Pod) -> frozenset[ObjectRef]:
    """The objects that the pod names, on which its description depends."""
    asked = _Asked()
    if is_marked(pod):
        for describe_by in _DESCRIBE:
            with suppress(UserError):
                describe_by(pod, asked)
    return frozenset(asked.refs)


def _refusal(pod: Pod, *, has_gang: bool) -> str:
    """Join the refusals of keys that a pod requires and hived refuses; "" if there are none."""
    places = (("annotation ", pod.metadata.annotations), ("label ", pod.metadata.labels))
    return "; ".join(
        key.refusal(place, values[name])
        for place, values in places
        if values and not _REFUSED.keys().isdisjoint(values)
        for name, key in _REFUSED.items()
        if name in values and key.requires(values[name], pod, has_gang=has_gang)
    )


class _Asked:
    """A lookup without objects that notes which were asked for."""

    def __init__(self) -> None:
        self.refs: list[ObjectRef] = []

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        self.refs.append(ObjectRef(kind, namespace, name))
        return None


def _completed(pod: Pod, said: Description, waiting_s: list[float | None]) -> Description:
    """The description with defaults. Raises UserError if it is of a gang without a name (rule 23.9)."""
    if said.gang is None:
        if said.minimum or said.total or said.groups or said.match_policy:
            raise UserError(
                f"it has settings of a gang ({said.dialect}), but names none: set label "
                f"{koordinator.GROUP_NAME}, annotation {koordinator.GANG_NAME}, or what else names one there"
            )
        return said
    return replace(
        said,
        total=None if said.total is None else max(said.total, said.minimum or 1),
        groups=None if said.groups is None else tuple(sorted({*said.groups, said.gang})),
        job_part=jobset.part_of(pod),
        waiting_s=said.waiting_s or next((each for each in waiting_s if each is not None), None),
    )


# ---- job objects


_BY_VERSION = {(version, kind.kind): kind for kind in KINDS for version in kind.api_versions}


def find_kind(api_version: object, kind: object) -> Kind | None:
    """The kind of objects with this `apiVersion` and `kind`, None if it is not in the table."""
    return _BY_VERSION.get((api_version, kind)) if isinstance(api_version, str) and isinstance(kind, str) else None


def kind_called(group: str, kind: str) -> Kind | None:
    """The kind of this group and name, as a `JobName` has them, None if it is not in the table."""
    return next((each for each in KINDS if (each.group, each.kind) == (group, kind)), None)


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
    """The job of an object. Raises UserError.

    `made` is the object that `Job.roles_in` names, if it exists; without it this job has no roles. `children` are the
    Jobs that a JobSet has made.
    """
    job = jobset.read_with(document, children) if children else kind_of(document).read(document)
    job = replace(job, manager=managed_by(document), made_by=_controller_of(document))
    if job.roles_in is None or made is None:
        return job
    inner = kind_of(made).read(made)
    return replace(job, roles=inner.roles, min_count=inner.min_count, tally=inner.tally)


def has_roles_elsewhere(job: JobName) -> bool:
    """Are the pods of a job described by an object that its controller makes?"""
    return (job.group, job.kind) == (trainer.TRAIN_JOB.group, trainer.TRAIN_JOB.kind)


def suspend(job: JobRef, annotations: Mapping[str, str | None] = {}, version: str = "") -> tuple[Write, ...]:
    """Idempotent calls that suspend a job and write these annotations onto it (None removes one).

    With `version` they are refused if the job has changed since. Raises UserError for a kind that is not in the table.
    """
    return _kind(job).suspend(job, annotations, version)


def resume(job: JobRef, annotations: Mapping[str, str | None] = {}, version: str = "") -> tuple[Write, ...]:
    """Calls that resume a job, as `suspend`. Of a kind with gates, each pod's gate has to be removed as well."""
    return _kind(job).resume(job, annotations, version)


def annotate(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    """Calls that only write annotations onto a job, as `suspend`."""
    return (merge(job, _kind(job).plural, {}, annotations, version),)


def has_switch(job: JobRef) -> bool:
    """Does a field of the object suspend it? Its owner may write that field, whatever its pods do."""
    kind = find_kind(job.api_version, job.kind)
    return kind is not None and kind.has_switch


def resource_of(job: JobRef) -> dict[str, str]:
    """A job as rights name it, `resourceAttributes` of a SubjectAccessReview without a verb. Raises UserError."""
    named = {"resource": _kind(job).plural, "namespace": job.namespace, "name": job.name}
    group = job.job_name.group
    return {"group": group, **named} if group else named


def hold_at_creation(document: Document) -> Patch:
    """Operations of a JSON patch that create a job held, none if it is.

    Raises UserError if the object is malformed, or its controller cannot suspend it.
    """
    return kind_of(document).hold(document)


def unit_of(name: JobName, managers: Mapping[JobName, JobName]) -> JobName:
    """The job that queues for this one: itself, or the outermost that made it, by `Job.manager` of each."""
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


# ---- which job a pod, or another job, belongs to


_JOBS_OF: dict[str, list[tuple[Kind, JobOfPod]]] = {
    owner: [(kind, kind.owners[owner]) for kind in reversed(KINDS) if owner in kind.owners]
    for owner in {owner for kind in KINDS for owner in kind.owners}
}
"""By the kind of a pod's owner, the functions that may know the job. Kinds further down the table come first."""

_BY_NAME = {kind.kind: kind for kind in KINDS if kind.kind not in kind.owners}
"""Kinds whose name alone tells them from others."""

_MANAGERS = {*((kind.group, kind.kind) for kind in KINDS), ("ray.io", "RayService")}
"""Kinds that suspend the objects that they make. A RayService does not queue, and its clusters do not either."""


def job_of_pod(labels: Mapping[str, str], owners: Iterable[Owner], namespace: str) -> JobName | None:
    """The job object of a pod, the outermost that its labels name (rule 24.4); None if none of the table is.

    Another one may have made that job, as `managed_by` says of its object.
    """
    owner = next((each for each in owners if each.controller), None)
    if owner is None:
        return None
    for kind, find in _JOBS_OF.get(owner.kind, ()):
        if name := find(labels, owner):
            return kind.name(namespace, name)
    own_kind = _BY_NAME.get(owner.kind)
    return None if own_kind is None else own_kind.name(namespace, owner.name)


def shown_owner(labels: Mapping[str, str], owners: Sequence[Owner], namespace: str) -> JobName | None:
    """The job of a pod for people, where hived does not follow the object that made it (rule 24.14).

    That is what `hived submit` made it of, else the controller that owns it, or what that controller was made by. A
    job of OpenPAI is called `USER~JOB`, as there, and what spark-submit made by the application's id.
    """
    owner = next((each for each in owners if each.controller), None)
    if owner is None and all(labels.get(key) for key in marks.OPENPAI):
        return JobName("", "OpenPAI", namespace, f"{labels[marks.USER_LABEL]}~{labels[marks.JOB_LABEL]}")
    if record_of(labels, owners):
        return JobName("", labels.get(marks.SUBMITTED_KIND, "Job"), namespace, labels[marks.SUBMITTED])
    if owner is not None and (maker := others.maker_of(labels, owner)) is not None:
        group, kind, made = maker
        return JobName(group, kind, namespace, made)
    if owner is None or owner.kind in _NO_JOBS:
        application = labels.get(others.SPARK_SELECTOR, "")
        return JobName("", "Spark", namespace, application) if application else None
    return JobName(owner.api_version.rpartition("/")[0], owner.kind, namespace, owner.name)


def record_of(labels: Mapping[str, str], owners: Iterable[Owner]) -> str:
    """The uid of the record from which `hived submit` made a pod; "" of others."""
    name = labels.get(marks.SUBMITTED, "")
    records = (each.uid for each in owners if (each.kind, each.name) == ("ConfigMap", marks.RECORD + name))
    return next(records, "") if name else ""


_NO_JOBS = ("Pod", "Node")
"""Kinds that own pods without being jobs of several pods."""


def names_another(job: Job) -> bool:
    """Do the labels of a Job's template name another job? Only the controller of that job may write them."""
    name = job.ref.job_name
    if (name.group, name.kind) != (batch.JOB.group, batch.JOB.kind):
        return False
    owner = Owner(name.kind, name.name, job.ref.uid, True, job.ref.api_version)
    try:
        labels = [root_of(role.template).part("metadata").texts("labels") for role in job.roles]
    except UserError:
        return False  # it has no pods, and is refused where its needs are read
    return any(job_of_pod(each, [owner], name.namespace) != name for each in labels)


def workload_of(annotations: Mapping[str, str], namespace: str) -> JobName | None:
    """Kueue's Workload of a pod, by the key of its cells, `Workload/NAMESPACE/NAME/UID`; None without one.

    Tenants may write the key, so it always means a Workload of the pod's own namespace.
    """
    parts = annotations.get(marks.HOLD, "").split("/")
    is_key = len(parts) == 4 and parts[0] == WORKLOAD
    return JobName("kueue.x-k8s.io", WORKLOAD, namespace, parts[2]) if is_key else None


def _controller_of(document: Document) -> JobName | None:
    """The object whose controller made a job object, such as a CronJob; None without one."""
    metadata = root_of(document).part("metadata")
    for owner in metadata.parts("ownerReferences"):
        if owner.flag("controller"):
            group = owner.text("apiVersion").rpartition("/")[0]
            return JobName(group, owner.text("kind"), metadata.text("namespace") or "default", owner.text("name"))
    return None


def managed_by(document: Document) -> JobName | None:
    """The job object whose controller made this one and suspends it (rule 24.3); None without one.

    Raises UserError if the owners cannot be read.
    """
    maker = _controller_of(document)
    return maker if maker is not None and (maker.group, maker.kind) in _MANAGERS else None
