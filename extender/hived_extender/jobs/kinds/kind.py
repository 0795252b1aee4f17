"""A kind of job object as the table has it, and the parts that most kinds share.

Reading JSON of somebody else: a mapping that knows its place, so that a mistake is said with place and finding.

Calls on the API server as values. The shell of queues carries them out, in their order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.annotations import MAX_COUNT
from hived_extender.jobs.job import Document, Job, JobName, JobRef, JobState, Role
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.progress import seconds_of

_SHOWN = 40
"""Characters of a value that a message repeats."""


class Part:
    """A mapping at `place`, such as "Job default/train: spec"; one that is absent or null reads as empty.

    A place with a colon at its end is that of the whole object.

    All of its methods raise UserError with the place, the finding and the expectation.
    """

    def __init__(self, value: object, place: str) -> None:
        self.place = place
        if value is not None and not isinstance(value, dict):
            raise self.mistake("", value, "an object")
        self._values: Mapping[str, Any] = value or {}

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def text(self, key: str) -> str:
        """The text at `key`, "" if absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.mistake(key, value, "a text")
        return value or ""

    def flag(self, key: str) -> bool:
        """The truth at `key`, False if absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.mistake(key, value, "true or false")
        return bool(value)

    def whole(self, key: str, default: int) -> int:
        """The whole number at `key`, from 0 to 2**31 - 1."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
            raise self.mistake(key, value, f"a whole number from 0 to {MAX_COUNT}")
        return value

    def seconds(self, key: str) -> float | None:
        """The same in seconds, None if absent or 0."""
        return float(self.whole(key, 0)) or None

    def part(self, key: str) -> "Part":
        """The mapping at `key`."""
        return Part(self._values.get(key), self._at(key))

    def parts(self, key: str) -> list["Part"]:
        """The list of mappings at `key`, none of them absent."""
        value = self._values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.mistake(key, value, "a list")
        return [self._given(each, f"{self._at(key)}[{index}]") for index, each in enumerate(value)]

    def members(self, key: str) -> dict[str, "Part"]:
        """The mapping of names to mappings at `key`, none of them absent."""
        part = self.part(key)
        return {name: part._given(value, part._at(name)) for name, value in part._values.items()}

    def texts(self, key: str) -> dict[str, str]:
        """The mapping of names to texts at `key`."""
        part = self.part(key)
        return {name: part.text(name) for name in part._values}

    def plain(self, key: str) -> dict[str, Any]:
        """The mapping at `key` as it is."""
        return dict(self.part(key)._values)

    def mistake(self, key: str, found: object, expected: str) -> UserError:
        """The error that names this place."""
        return UserError(f"{self._at(key)}: found {_shown(found)}, expected {expected}")

    def _given(self, value: object, place: str) -> "Part":
        if not isinstance(value, dict):
            raise UserError(f"{place}: found {_shown(value)}, expected an object")
        return Part(value, place)

    def _at(self, key: str) -> str:
        link = " " if self.place.endswith(":") else "."
        return f"{self.place}{link}{_shortened(key)}" if key else self.place.removesuffix(":")


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) > 10**_SHOWN:  # Python refuses to print some
        return "a number of many digits"
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


class Verb(Enum):
    """The way of a call; `KubeClient` has a method for each."""

    PATCH = "patch"  # JSON merge patch
    PATCH_LISTS = "patch lists"  # strategic merge patch
    CREATE = "create"
    DELETE = "delete"


class Write(msgspec.Struct, frozen=True):
    """One call. Carried out twice it has the effect of once.

    `path` is the object's, for CREATE the collection's. `uid` is the object's: a later one of the same name is left
    alone (PATCH has it in its body as well). `may_be_missing`: that the object is not there is as good as success.
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
    """Merge `spec` and annotations (None removes one) into a job object, in one call.

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


@dataclass(frozen=True)
class Kind:
    """A kind of job object. It is an `OptionalKind` of `kube.watch`.

    Attributes
    ----------
    versions : those that are read, the best first; all have the same fields
    read : raises UserError
    suspend, resume : idempotent
    hold : operations that let a job be born held, none if it is; raises UserError if that cannot be
    has_gates : its pods are created at once, with a gate, which has to be lifted from each; see `gates`
    has_switch : a field of the object suspends it, so its owner can do that, too
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

    @property
    def api_versions(self) -> tuple[str, ...]:
        """As objects have them."""
        return tuple(f"{self.group}/{version}" if self.group else version for version in self.versions)

    def name(self, namespace: str, name: str) -> JobName:
        """A job of this kind."""
        return JobName(self.group, self.kind, namespace, name)


@dataclass(frozen=True)
class Switch:
    """The field of a job object that suspends it, a truth at `path`; see `Kind`."""

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
        """One merge patch, which takes the marks of being held away as well."""
        return (
            merge(job, self.plural, self._spec(False), {marks.SUSPEND: None, **annotations, marks.HELD: None}, version),
        )

    def hold(self, document: Document) -> Patch:
        """Adds the field, the objects that it is in, and the mark by which hived knows that it was not the author."""
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
    switch: Switch, group: str, kind: str, versions: tuple[str, ...], read: Callable[[Switch, Document], Job]
) -> Kind:
    """A kind whose objects have a field that suspends them."""
    return Kind(
        group, kind, switch.plural, versions, partial(read, switch), switch.suspend, switch.resume, switch.hold,
        has_switch=True,
    )  # fmt: skip


def root_of(document: Document) -> Part:
    """The object, at a place that messages can name."""
    root = Part(document, "the job object")
    metadata = root.part("metadata")
    name = metadata.text("name") or metadata.text("generateName")
    root.place = f"{root.text('kind')} {metadata.text('namespace') or 'default'}/{name}:"
    return root


def mark_held(root: Part) -> Patch:
    """Operations that add the mark to an object."""
    metadata = root.part("metadata")
    annotations = metadata.texts("annotations")
    if annotations.get(marks.HELD) == "true":
        return []
    return [{"op": "add", "path": "/metadata/annotations", "value": {**annotations, marks.HELD: "true"}}]


def job_of(root: Part, roles: Iterable[Role], state: JobState, **fields: Any) -> Job:
    """The parts of a job that all kinds have. Roles without pods are left out."""
    metadata = root.part("metadata")
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
        tuple(role for role in roles if role.count),
        state,
        **fields,
    )


def role_of(part: Part, name: str, count: int) -> Role:
    """A role whose template is at `template`. Raises UserError if it is none, as far as it is read here."""
    template = part.part("template")
    template.part("metadata")
    template.part("spec").parts("containers")
    return Role(name, count, part.plain("template"))


def left_of(counts: Mapping[str, int], done: Mapping[str, int]) -> dict[str, int]:
    """The pods of each role that are still needed, where so many have succeeded and are not made anew.

    All of them if none is: the job is about to end.
    """
    left = {name: max(count - done.get(name, 0), 0) for name, count in counts.items()}
    return left if any(left.values()) else dict(counts)


def is_true(status: Part, *kinds: str) -> bool:
    """Is one of these conditions true?"""
    return any(each.text("type") in kinds and each.text("status") == "True" for each in status.parts("conditions"))


def state_of(
    root: Part, switch: Switch, active: int, succeeded: str = "Complete", started: str = "startTime"
) -> JobState:
    """The state of a job with the conditions `succeeded`, Failed and Suspended, and so many pods by its status.

    A controller that has not yet heard of the suspension has Suspended false, or a start without it: pods of such a job
    may be about to be created. `started` is the field of the status that is there after a start.
    """
    status = root.part("status")
    if is_true(status, succeeded):
        return JobState.SUCCEEDED
    if is_true(status, "Failed"):
        return JobState.FAILED
    if not switch.is_on(root):
        return JobState.LET_GO
    heard = [each.text("status") == "True" for each in status.parts("conditions") if each.text("type") == "Suspended"]
    is_quiet = all(heard) if heard else started not in status
    return JobState.HELD if is_quiet and not active else JobState.LEAVING
