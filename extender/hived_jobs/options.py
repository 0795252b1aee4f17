"""Options of a submitter beside the file: a run limit, an array, a moment to begin, jobs to wait for.

Each is written into the document of a job before it is planned, where its kind has a place for it. A kind that has none
is refused with a remedy. The service reads the words about the start from the job's annotations (rule 24.15).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hived.values.errors import UserError
from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds import gates, marks, table
from hived_extender.jobs.kinds.kind import Kind, path_of
from hived_extender.jobs.kinds.kubeflow import REPLICA_SPECS
from hived_extender.jobs.progress import (
    EXPECTED_DURATION,
    read_whole_duration,
    write_time,
)
from hived_extender.jobs.starts import MOST_AWAITED, Awaited, Condition, written_after
from hived_extender.kube.client import KubeClient, KubeError
from hived_jobs.documents import Document
from hived_jobs.kinds import makes_no_pods
from hived_jobs.moments import read_moment
from hived_jobs.moments import told as told_moment
from hived_jobs.objects import SERVICES, Place, template_places
from hived_jobs.served import Served

MOST_INDEXES = 100_000
"""Of an Indexed Job, as Kubernetes has it."""

FIRST, STEP = "HIVED_ARRAY_FIRST", "HIVED_ARRAY_STEP"
"""Variables of pods of an array that does not count from 0 by 1."""


@dataclass(frozen=True, slots=True)
class Array:
    """`count` indexes: `first`, `first + step` and so on; at most `limit` of them at a time."""

    count: int
    first: int = 0
    step: int = 1
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a submission; None and empty leave it to the file. Moments are in seconds since 1970."""

    limit_s: int | None = None
    array: Array | None = None
    begin_s: float | None = None
    after: tuple[tuple[Condition, str], ...] = ()

    @property
    def is_timed(self) -> bool:
        """Is the job to be held at first?"""
        return self.begin_s is not None or bool(self.after)


# ---- as they are written


def read_limit(text: str) -> int:
    """Seconds of `--time`. Raises UserError."""
    try:
        return read_whole_duration(text)
    except UserError as error:
        raise UserError(f"--time: {error.message}") from None


_ARRAY = re.compile(
    r"(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9})(?::(?P<step>[0-9]{1,9}))?)?(?:%(?P<limit>[0-9]{1,9}))?", re.ASCII
)


def read_array(text: str) -> Array:
    """An array: `10` has 0 to 9, `1-10` and `0-20:5` their ends too, and `%4` lets 4 run. Raises UserError."""
    found = _ARRAY.fullmatch(text)
    if found is None:
        raise UserError(
            f"--array {text}: expected N, A-B, A-B:STEP, and %LIMIT behind it, such as 10, 1-10 or 0-20:5%2"
        )
    first, limit = int(found["first"]), None if found["limit"] is None else int(found["limit"])
    array = Array(first, limit=limit)
    if found["last"] is not None:
        last, step = int(found["last"]), int(found["step"] or 1)
        if last < first or step < 1:
            raise UserError(f"--array {text}: expected a first index up to the last one, and a step of at least 1")
        array = Array((last - first) // step + 1, first, step, limit)
    if not 1 <= array.count <= MOST_INDEXES:
        raise UserError(f"--array {text}: found {array.count:,} indexes, expected 1 to {MOST_INDEXES:,}")
    if limit == 0:
        raise UserError(f"--array {text}: with %0 none would ever run; expected at least %1")
    return array


def read_begin(text: str, now_s: float) -> float | None:
    """The moment of `--begin`, None for now; see `read_moment`. Raises UserError."""
    try:
        found = read_moment(text, now_s)
    except UserError as error:
        raise UserError(f"--begin: {error.message}") from None
    if found is None:
        return None
    if found <= now_s:
        raise UserError(f"--begin {text}: that has passed, it is {told_moment(now_s)}; leave --begin out")
    if not write_time(found):
        raise UserError(f"--begin {text}: that is after the year 9999")
    return math.ceil(found)


def read_after(text: str) -> tuple[tuple[Condition, str], ...]:
    """The jobs of `--after`, with what is wanted of each: `a,b`, `afterok:a:b`, `afterany:c`. Raises UserError."""
    found: list[tuple[Condition, str]] = []
    for part in text.split(","):
        word, colon, rest = part.strip().partition(":")
        if colon and word not in ("afterok", "afterany"):
            raise UserError(f"--after {part}: found {word!r}, expected afterok (it succeeded) or afterany (it ended)")
        condition: Condition = "afterany" if word == "afterany" and colon else "afterok"
        names = rest.split(":") if colon else [word]
        if not all(names):
            raise UserError(f"--after {text}: expected the names of jobs, such as prepare or afterany:load:prepare")
        found += [(condition, name) for name in names]
    if len(found) > MOST_AWAITED:
        raise UserError(f"--after: found {len(found)} jobs, expected at most {MOST_AWAITED}")
    return tuple(dict.fromkeys(found))


# ---- written into a document


def write_options(
    document: Document, options: Options, served: Served | None, awaited: Sequence[Awaited] = ()
) -> list[str]:
    """Write the options into the document of a job; returns sentences for its submitter. Raises UserError, KubeError.

    An object that is no job, such as a Service beside it, stays as it is.
    """
    value = document.value()
    assert isinstance(value, dict), "its kind has been read"
    version, kind = str(value.get("apiVersion", "")), str(value.get("kind", ""))
    if not version:
        if options.array is not None or options.limit_s is not None or options.is_timed:
            raise document.section().refuse(
                "", "an OpenPAI job takes none of --time, --array, --begin and --after: write a Job (batch/v1) for them"
            )
        return []
    places = template_places(value)
    followed = table.find_kind(version, kind)
    if not places and followed is None:
        return []  # see `is_job`
    job = _Job(document, value, version, kind, places, followed, makes_no_pods(version, kind, served))
    told = []
    if options.array is not None:
        told += job.write_array(options.array)
    if options.limit_s is not None:
        told += [f"run limit {timedelta(seconds=options.limit_s)} (hours:minutes:seconds)"]
        told += job.write_limit(options.limit_s)
    if options.is_timed:
        told += job.hold(options.begin_s, awaited)
    return told


def is_job(document: Document) -> bool:
    """Has a document pods, or is it of a kind that hived follows?"""
    value = document.value()
    assert isinstance(value, dict), "its kind has been read"
    version = value.get("apiVersion")
    return not version or bool(template_places(value)) or table.find_kind(version, value.get("kind")) is not None


_SPECS: Mapping[tuple[str, str], Place] = {
    ("batch", "Job"): ("spec",),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec"),
}
"""The place of a JobSpec of Kubernetes."""

_LIMITS: Mapping[tuple[str, str], Place] = {
    **_SPECS,
    ("ray.io", "RayJob"): ("spec",),
    **{("kubeflow.org", kind): ("spec", "runPolicy") for kind in REPLICA_SPECS},
    ("", "Pod"): ("spec",),
}
"""The place of `activeDeadlineSeconds` of a whole job."""

_GATED = {("", "Pod"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"), ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")}
"""Kinds out of the table whose pods are plain ones: a gate on each holds them."""

_DEADLINE = "activeDeadlineSeconds"


@dataclass(frozen=True, slots=True)
class _Job:
    """A document with a job. Of one that `is_object` the cluster's controller makes the pods."""

    document: Document
    value: dict[str, Any]
    version: str
    kind: str
    places: Sequence[Place]
    followed: Kind | None
    is_object: bool

    @property
    def _key(self) -> tuple[str, str]:
        return self.version.rpartition("/")[0], self.kind

    def write_array(self, array: Array) -> list[str]:
        place = _SPECS.get(self._key)
        if place is None:
            raise self._refuse(f"a {self.kind} has no array: write its template into a Job (batch/v1)")
        wanted = {
            "completions": array.count,
            "parallelism": min(array.limit or array.count, array.count),
            "completionMode": "Indexed",
        }
        for key, value in wanted.items():
            self.document.put((*place, key), value)
        if (array.first, array.step) == (0, 1):
            return [f"array of {array.count}: JOB_COMPLETION_INDEX is 0 to {array.count - 1}"]
        for each in self.places:
            spec = _at(self.value, each)["spec"]
            for at, container in enumerate(spec["containers"]):
                env = [*(container.get("env") or ()), *_env({FIRST: array.first, STEP: array.step})]
                self.document.put((*each, "spec", "containers", at, "env"), env)
        last = array.first + (array.count - 1) * array.step
        return [
            f"array of {array.count}, {array.first} to {last}: each pod computes its own from JOB_COMPLETION_INDEX, as "
            f"$(({FIRST} + {STEP} * JOB_COMPLETION_INDEX))"
        ]

    def write_limit(self, limit_s: int) -> list[str]:
        if self._key in SERVICES or (self.followed is not None and self.followed.serves):
            raise self._refuse(f"a {self.kind} does not end, so it has no run limit: leave --time out")
        if self._key == ("jobset.x-k8s.io", "JobSet") and self.is_object:
            for at, _ in enumerate(self.document.section().section("spec").sections("replicatedJobs")):
                self.document.put(("spec", "replicatedJobs", at, "template", "spec", _DEADLINE), limit_s)
            return []
        place = _LIMITS.get(self._key)
        if place is not None and (self.is_object or self.kind == "Pod"):
            self.document.put((*place, _DEADLINE), limit_s)
            return []
        if not self.is_object or self.version.startswith("batch.volcano.sh/"):
            for each in self.places:
                self.document.put((*each, "spec", _DEADLINE), limit_s)
            return ["--time ends each of its pods, which may be made anew as its policies say"]
        for each in ((), *self.places):
            self.document.put((*each, "metadata", "annotations", EXPECTED_DURATION), f"{limit_s}s")
        return [f"--time is told to hived, and nothing ends a {self.kind} after it"]

    def hold(self, begin_s: float | None, awaited: Sequence[Awaited]) -> list[str]:
        said = {marks.AFTER: written_after(awaited), marks.BEGIN: None if begin_s is None else write_time(begin_s)}
        words = {key: text for key, text in said.items() if text is not None}
        told = [] if begin_s is None else [f"begins at {told_moment(begin_s)} at the earliest"]
        told += [f"waits for {one.kind} {one.name} ({one.condition})" for one in awaited]
        if self.is_object and self.followed is not None:
            self._hold_object(self.followed, words)
        elif not self.is_object or self._key in _GATED:
            for each in self.places:
                self._annotate(each, words)
                known = _at(self.value, each)["spec"].get("schedulingGates") or []
                if all(one.get("name") != gates.GATE for one in known):
                    self.document.put((*each, "spec", "schedulingGates"), [*known, {"name": gates.GATE}])
        else:
            remedy = "give it a schedule of that time" if self.kind == "CronJob" else "submit it at that time"
            raise self._refuse(f"hived cannot hold a {self.kind} back: {remedy}")
        return told

    def _hold_object(self, kind: Kind, words: Mapping[str, str]) -> None:
        if not kind.has_switch and not kind.has_gates:
            raise self._refuse(f"a {self.kind} has no field that holds it back: submit it at that time")
        for operation in kind.hold(self.value):
            *place, last = str(operation["path"]).strip("/").split("/")
            value = operation["value"]
            if last == "-":
                value = [*_at(self.value, tuple(place)), value]
                self.document.put(tuple(place), value)
            elif place != ["metadata"]:
                self.document.put((*place, last), value)
        if kind.has_switch and not _is_on(self.document, kind):
            raise self._refuse("hived cannot hold it back, as it runs on what exists already: submit it at that time")
        self._annotate((), {**words, marks.HELD: "true"})

    def _annotate(self, place: Place, words: Mapping[str, str]) -> None:
        for key, text in words.items():
            self.document.put((*place, "metadata", "annotations", key), text)

    def _refuse(self, message: str) -> UserError:
        return self.document.section().refuse("kind", message)


def _is_on(document: Document, kind: Kind) -> bool:
    value = document.value()
    assert isinstance(value, dict)
    return not kind.hold(value)


def _at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def _env(variables: Mapping[str, object]) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in variables.items()]


# ---- the jobs of --after


def find_awaited(
    kube: KubeClient, served: Served, after: Sequence[tuple[Condition, str]], namespace: str
) -> tuple[Awaited, ...]:
    """The jobs that `--after` names, of this namespace.

    Raises UserError for a job that is not there, that never ends, that has failed although it has to succeed, or that
    is in another namespace; KubeError if the API server does not say.
    """
    return tuple(_find(kube, served, condition, name, namespace) for condition, name in after)


def _find(kube: KubeClient, served: Served, condition: Condition, name: str, namespace: str) -> Awaited:
    parts = name.split("/")
    wanted_kind = parts[0].lower() if len(parts) == 3 else ""
    short = parts[-1]
    if len(parts) > 3 or (len(parts) == 2 and parts[0].lower() in {kind.kind.lower() for kind in table.KINDS}):
        wanted_kind, parts = parts[0].lower(), [namespace, short]
    where = parts[-2] if len(parts) > 1 else namespace
    if where != namespace:
        raise UserError(
            f"--after {name}: it is in namespace {where}, and a job of {namespace} waits for jobs of {namespace} alone"
        )
    there: list[tuple[Kind, str, dict[str, Any]]] = []
    for kind in table.KINDS:
        if wanted_kind in ("", kind.kind.lower()):
            for version in kind.api_versions:
                if served.find(version, kind.kind) is not None:
                    one = _get(kube, path_of(version, kind.plural, namespace, short), name)
                    there += [(kind, version, one)] if one is not None else []
                    break
    if not there:
        raise UserError(
            f"--after {name}: there is no job object {short} in namespace {namespace} that hived could wait for; "
            f"see kubectl get jobs -n {namespace}"
        )
    if len(there) > 1:
        kinds = ", ".join(f"{kind.kind}/{short}" for kind, _, _ in there)
        raise UserError(f"--after {name}: several jobs are called so: {kinds}; write one of these")
    kind, version, one = there[0]
    job = table.read({"apiVersion": version, "kind": kind.kind, **one})
    if kind.serves:
        raise UserError(f"--after {name}: a {kind.kind} does not end, so nothing can wait for that")
    if job.manager is not None:
        raise UserError(f"--after {name}: {job.manager.kind} {job.manager.name} has made it; name that one")
    if job.state is JobState.FAILED and condition == "afterok":
        raise UserError(f"--after {name}: it has failed, so a job that waits for its success would never start")
    return Awaited(condition, kind.group, kind.kind, short, job.ref.uid)


def _get(kube: KubeClient, path: str, name: str) -> dict[str, Any] | None:
    try:
        return kube.get(path)
    except KubeError as error:
        if error.is_not_found:
            return None
        if error.status == 403:
            raise UserError(f"--after {name}: you may not read it: {error}", 403) from error
        raise
