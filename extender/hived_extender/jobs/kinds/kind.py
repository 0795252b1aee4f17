"""A file of this folder says all that hived knows of one project: a `Source`.

Its job objects (`Kind`): how one is read, suspended and resumed; the calls on the API server are values. Its keys
(`Dialect`): how pods describe their gang by them, and what becomes of each key: read, ignored by design, or refused.

A key is refused if its value *requires* something that is not built (rule 23.8): a placement other than the required
one would be worse than none. A key that only prefers is ignored.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from hived_extender.jobs.document import SHOWN_LENGTH, Part
from hived_extender.jobs.job import Document, Job, JobName, JobRef, JobState, PodTally, Role
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.kinds.description import Description, GangKey, Lookup, ObjectKind
from hived_extender.jobs.progress import seconds_of
from hived_extender.jobs.wire import Owner, Pod

LABELS, ANNOTATIONS, EITHER = "label", "annotation", "label, annotation"


# ---- keys


class Use(Enum):
    """The treatment of a key."""

    READ = "read"
    IGNORED = "ignored"
    REFUSED = "refused"


class Key(msgspec.Struct, frozen=True):
    """A key of pods, or of objects that describe their gangs.

    `place` is a label, an annotation, or a field of an object. `note` is why it is ignored, or what it requires, after
    "it requires". `is_required` has the value, the pod, and whether the pod is in a gang.
    """

    name: str
    place: str
    use: Use
    note: str = ""
    is_required: Callable[[str, Pod, bool], bool] | None = None

    def requires(self, value: str, pod: Pod, *, has_gang: bool) -> bool:
        """Must the pod wait, since the value of this key requires what is not built?"""
        if self.use is not Use.REFUSED or not value:
            return False
        return self.is_required is None or self.is_required(value, pod, has_gang)

    def refusal(self, place: str, value: str) -> str:
        """Return why a pod waits that has this value there."""
        shown = value if len(value) <= SHOWN_LENGTH else f"{value[:SHOWN_LENGTH]}..."
        return (
            f"{place}{self.name} is {shown!r}: it requires {self.note}, which hived cannot do; "
            "the pod waits until it is removed"
        )


def reads(place: str, *names: str) -> tuple[Key, ...]:
    """Keys that a dialect reads."""
    return tuple(Key(name, place, Use.READ) for name in names)


def ignores(place: str, note: str, *names: str) -> tuple[Key, ...]:
    """Keys that are ignored by design, as `note` says."""
    return tuple(Key(name, place, Use.IGNORED, note) for name in names)


def refuses(
    place: str, note: str, *names: str, when: Callable[[str, Pod, bool], bool] | None = None
) -> tuple[Key, ...]:
    """Keys that require what is not built: always, or if `when` holds for value, pod, and its being in a gang."""
    return tuple(Key(name, place, Use.REFUSED, note, when) for name in names)


def says(*texts: str) -> Callable[[str, Pod, bool], bool]:
    """A condition of `refuses`: the value has one of these texts in it."""

    def is_said(value: str, _pod: Pod, _has_gang: bool) -> bool:
        return any(text in value for text in texts)

    return is_said


def without_gang(_value: str, _pod: Pod, has_gang: bool) -> bool:
    """A condition of `refuses`: no other dialect names the pod's gang."""
    return not has_gang


Refusal = Callable[[GangKey, str, int, str], str]
"""(gang, name of the pod that asks, minimum, reason) to a message."""


@dataclass(frozen=True)
class Dialect:
    """The words by which pods describe their gang, or wish for a place.

    Attributes
    ----------
    name : as messages and docs have it
    vocabulary : every key that its users write, also if it is not read
    describe : the description of a pod, None if it has none; UserError if the pod or its object is malformed. Without
        the function the keys are none of a gang
    keys : the labels and annotations without one of which `describe` has nothing to say
    objects : the objects that pods name as their gang
    waiting_s : the waiting time of a gang that has none itself; default none
    refusal : how its own scheduler says that a gang waits; None if it has no words for it
    """

    name: str
    vocabulary: tuple[Key, ...]
    describe: Callable[[Pod, Lookup], Description | None] | None = None
    keys: frozenset[str] = frozenset()
    objects: ObjectKind | None = None
    waiting_s: float | None = None
    refusal: Refusal | None = None


# ---- calls


class Verb(Enum):
    """The method of a call on the API server."""

    PATCH = "patch"  # JSON merge patch
    PATCH_LISTS = "patch lists"  # strategic merge patch
    CREATE = "create"
    DELETE = "delete"


class Write(msgspec.Struct, frozen=True):
    """One idempotent call on the API server.

    `path` is the object's, for CREATE the collection's. A later object of the same name, with another `uid`, is left
    alone; PATCH has the uid in its body as well. `may_be_missing`: a missing object counts as success.
    """

    verb: Verb
    path: str
    body: Mapping[str, Any] = msgspec.field(default_factory=dict)
    uid: str = ""
    may_be_missing: bool = False


def path_of(api_version: str, plural: str, namespace: str, name: str = "") -> str:
    """The path of an object, or of the collection without a name."""
    base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    path = f"{base}/namespaces/{quote(namespace, safe='')}/{plural}"
    return f"{path}/{quote(name, safe='')}" if name else path


def merge(
    job: JobRef, plural: str, spec: Mapping[str, Any], annotations: Mapping[str, str | None], version: str = ""
) -> Write:
    """Merges `spec` and annotations (None removes one) into a job object, in one call (rule 24.10).

    It is refused for a later job of the same name; with `version`, a resourceVersion, also for one that has changed.
    """
    metadata: dict[str, Any] = {"uid": job.uid} if job.uid else {}
    if annotations:
        metadata["annotations"] = dict(annotations)
    if version:
        metadata["resourceVersion"] = version
    body: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if spec:
        body["spec"] = dict(spec)
    return Write(Verb.PATCH, path_of(job.api_version, plural, job.namespace, job.name), body, job.uid)


Change = Callable[[JobRef, Mapping[str, str | None], str], tuple[Write, ...]]
"""(job, annotations to be written in the same call, resourceVersion or "") to calls."""

Patch = list[dict[str, Any]]
"""Operations of a JSON patch."""


# ---- job objects


JobOfPod = Callable[[Mapping[str, str], Owner], str]
"""(labels of a pod, its controlling owner) to the name of the job, "" if the pod belongs to none of the kind.

Tenants may write labels, so a label counts only if the owner has the kind and the name that the controller gives it.
"""


@dataclass(frozen=True)
class Kind:
    """A kind of job object. It is an `OptionalKind` of `kube.watch`.

    Attributes
    ----------
    versions : the API versions that are read, the best first; all have the same fields
    read : raises UserError
    suspend, resume : idempotent
    hold : operations that create a job suspended, none if it is; raises UserError if its controller cannot suspend it
    has_gates : its pods are created at once, with a gate that has to be removed from each; see `gates`
    has_switch : a field of the object suspends it, so its owner can do that, too
    serves : it has no end, as a Deployment
    owners : by the kind of a pod's owner, the job of this kind that made the owner; an owner of this kind is the job
        itself, unless a function is here for it
    """

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    read: Callable[[Document], Job]
    suspend: Change
    resume: Change
    hold: Callable[[Document], Patch]
    has_gates: bool = False
    has_switch: bool = False
    serves: bool = False
    owners: Mapping[str, JobOfPod] = field(default_factory=dict)

    @property
    def api_versions(self) -> tuple[str, ...]:
        """As objects have them."""
        return tuple(f"{self.group}/{version}" if self.group else version for version in self.versions)

    def name(self, namespace: str, name: str) -> JobName:
        """A job of this kind."""
        return JobName(self.group, self.kind, namespace, name)


@dataclass(frozen=True)
class Switch:
    """The field of a job object that suspends it, a boolean at `path`; see `Kind`."""

    plural: str
    path: tuple[str, ...] = ("spec", "suspend")

    def is_on(self, root: Part) -> bool:
        """Is the job suspended?"""
        for key in self.path[:-1]:
            root = root.part(key)
        return root.flag(self.path[-1])

    def suspend(self, job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
        """One merge patch."""
        return (merge(job, self.plural, self._spec(True), annotations, version),)

    def resume(self, job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
        """One merge patch, which removes the marks of a held job as well."""
        return (
            merge(job, self.plural, self._spec(False), {marks.SUSPEND: None, **annotations, marks.HELD: None}, version),
        )

    def hold(self, document: Document) -> Patch:
        """Operations that add the field, the objects around it, and the mark that hived set it and not the author."""
        root = root_of(document)
        if self.is_on(root):
            return []
        depth = next((depth for depth in range(1, len(self.path)) if not self._has(root, depth)), len(self.path))
        value: Any = True
        for key in reversed(self.path[depth:]):
            value = {key: value}
        return [{"op": "add", "path": "/" + "/".join(self.path[:depth]), "value": value}, *mark_held(root)]

    def _has(self, root: Part, depth: int) -> bool:
        for key in self.path[: depth - 1]:
            root = root.part(key)
        return self.path[depth - 1] in root

    def _spec(self, value: bool) -> Mapping[str, Any]:
        spec: Any = value
        for key in reversed(self.path[1:]):
            spec = {key: spec}
        return dict(spec)


def kind_with(
    switch: Switch,
    group: str,
    kind: str,
    versions: tuple[str, ...],
    read: Callable[[Switch, Document], Job],
    owners: Mapping[str, JobOfPod] | None = None,
) -> Kind:
    """A kind whose objects have a field that suspends them."""
    return Kind(
        group, kind, switch.plural, versions, partial(read, switch), switch.suspend, switch.resume, switch.hold,
        has_switch=True, owners=owners or {},
    )  # fmt: skip


@dataclass(frozen=True)
class Source:
    """The job objects and the dialects of one project; the table has a line for each."""

    jobs: tuple[Kind, ...] = ()
    dialects: tuple[Dialect, ...] = ()


# ---- parts that most kinds share


def root_of(document: Document) -> Part:
    """The object, at a place that messages can name."""
    root = Part("the job object: ", document)
    metadata = root.part("metadata")
    name = metadata.text("name") or metadata.text("generateName")
    return Part(f"{root.text('kind')} {metadata.text('namespace') or 'default'}/{name}: ", document)


def mark_held(root: Part) -> Patch:
    """Operations that mark an object as held."""
    metadata = root.part("metadata")
    annotations = metadata.texts("annotations")
    if annotations.get(marks.HELD) == "true":
        return []
    return [{"op": "add", "path": "/metadata/annotations", "value": {**annotations, marks.HELD: "true"}}]


def job_of(root: Part, roles: Iterable[Role], state: JobState, **fields: Any) -> Job:
    """A job with the fields that all kinds have. Roles without pods are left out."""
    metadata, roles = root.part("metadata"), tuple(role for role in roles if role.count)
    fields.setdefault("tally", PodTally(sum(role.count for role in roles)))
    ref = JobRef(
        root.text("apiVersion"),
        root.text("kind"),
        metadata.text("namespace") or "default",
        metadata.text("name") or metadata.text("generateName"),
        metadata.text("uid"),
    )
    return Job(
        ref,
        metadata.text("resourceVersion"),
        seconds_of(metadata.text("creationTimestamp")) or 0.0,
        metadata.texts("labels"),
        metadata.texts("annotations"),
        roles,
        state,
        pod_labels=_labels_in(roles[0].template) if roles else {},
        **fields,
    )


def _labels_in(template: Document) -> dict[str, str]:
    """The labels of a template. Not every kind has a schema that refuses other values than texts."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    return {key: value for key, value in labels.items() if isinstance(value, str)} if isinstance(labels, dict) else {}


def role_of(part: Part, name: str, count: int) -> Role:
    """A role of the pod template at `template`."""
    template = part.part("template")
    template.part("metadata")
    template.part("spec").parts("containers")
    return Role(name, count, part.plain("template"))


def left_of(counts: Mapping[str, int], done: Mapping[str, int]) -> dict[str, int]:
    """The pods of each role that are still needed, after `done` of them have succeeded (rule 24.1).

    With none left the job is about to end, and all count.
    """
    left = {name: max(count - done.get(name, 0), 0) for name, count in counts.items()}
    return left if any(left.values()) else dict(counts)


def _is_true(status: Part, kind: str) -> bool:
    return any(each.text("type") == kind and each.text("status") == "True" for each in status.parts("conditions"))


def state_of(
    root: Part, switch: Switch, active: int, succeeded: str = "Complete", started: str = "startTime"
) -> JobState:
    """The state of a job with conditions `succeeded`, Failed and Suspended, and `active` pods (rule 24.2).

    A controller that has not yet seen the suspension has Suspended false, or a start without it: pods of such a job
    may be about to be created. `started` is the field of the status that is there after a start.
    """
    status = root.part("status")
    if _is_true(status, succeeded):
        return JobState.SUCCEEDED
    if _is_true(status, "Failed"):
        return JobState.FAILED
    if not switch.is_on(root):
        return JobState.RESUMED
    heard = [each.text("status") == "True" for each in status.parts("conditions") if each.text("type") == "Suspended"]
    is_quiet = all(heard) if heard else started not in status
    return JobState.HELD if is_quiet and not active else JobState.LEAVING
