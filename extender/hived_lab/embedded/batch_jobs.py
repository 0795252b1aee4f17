"""Kubernetes' controller of Jobs as a function: from a Job and its pods to what it needs now, and its status.

A pod has a finalizer until its end has been counted, so an end counts once. A pod that the controller deletes itself,
since its Job is suspended or has too many, loses the finalizer first and counts as nothing. Failures delay new pods,
each twice as long as the one before, as in Kubernetes but ten times quicker.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hived_extender.api.inspection import parse_time
from hived_extender.kube.clocks import timestamp
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import turn_condition
from hived_lab.embedded.apiserver.store import Revision

FINALIZER = "batch.kubernetes.io/job-tracking"
CONTROLLER = "kubernetes.io/job-controller"
BACKOFF_S, LONGEST_BACKOFF_S = 1.0, 60.0
_INDEX = "batch.kubernetes.io/job-completion-index"
_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_PHASES = ("Pending", "Unknown", "Running")
_ENDS = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
"""The last condition of a Job, by the one that it has while pods of it still leave."""
_OVER = (*_ENDS.values(), "Completed", "Succeeded")
"""The last conditions of jobs of any kind."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures of a Job since its last success, and when failed pods were first seen, by uid; seconds of the loop."""

    failures: int = 0
    last_s: float = 0.0
    seen_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Step:
    """The next step of a job of any kind.

    Attributes
    ----------
    status : its new status
    memory : to be given to the next step
    made, changed : pods, of a JobSet Jobs, to create and to store changed
    deleted : those to delete; `dropped` among them count as nothing, so they lose the finalizer first
    counted : pods whose finalizer goes, once the status is stored
    beside : objects of another kind that go with the job, to create
    again_s : when to look again though nothing has changed, in seconds from now; None for never
    """

    status: Body
    memory: Any = None
    made: list[Body] = field(default_factory=list)
    changed: list[Body] = field(default_factory=list)
    deleted: list[Body] = field(default_factory=list)
    dropped: list[Body] = field(default_factory=list)
    counted: list[Body] = field(default_factory=list)
    beside: list[Body] = field(default_factory=list)
    again_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Pod:
    """A pod as its Job sees it; `index` is None in a Job without indexes, and of a pod that has none of its range."""

    body: Body
    uid: str
    index: int | None
    failures: int
    phase: str
    is_leaving: bool
    is_ready: bool
    is_tracked: bool

    @property
    def is_active(self) -> bool:
        return not (self.is_over or self.is_leaving)

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def progress(self) -> tuple[bool, int, bool]:
        """Orders active pods by how far they have come."""
        phase = _PHASES.index(self.phase) if self.phase in _PHASES else 0
        return bool(self.body["spec"].get("nodeName")), phase, self.is_ready


def is_over(job: Body) -> bool:
    """True if a job of any kind has ended for good."""
    return any(condition(job.get("status", {}), kind) for kind in _OVER)


def expiry_s(job: Body, now_s: float) -> float | None:
    """Return in how many seconds a job that has ended is to be deleted, None for never; `now_s` is since 1970."""
    ttl_s = job.get("spec", {}).get("ttlSecondsAfterFinished")
    ends = [one for kind in _OVER if (one := condition(job.get("status", {}), kind))]
    ended = parse_time(ends[0]["lastTransitionTime"]) if ends else None
    return None if ttl_s is None or ended is None else max(0.0, ended.timestamp() + ttl_s - now_s)


def next_step(job: Revision, pods: Iterable[Revision], backoff: Backoff | None, *, loop_s: float, now_s: float) -> Step:
    """Return what a Job needs; `loop_s` is a monotonic clock, `now_s` is in seconds since 1970."""
    if is_over(job.body):
        return Step(job.body["status"], backoff)
    spec = job.body["spec"]
    wanted = spec["selector"].get("matchLabels", {}).items()
    own = [_read(pod.body, spec) for pod in pods if wanted <= pod.view.metadata.labels.items()]
    return _Look(job.body, own, backoff or Backoff(), loop_s, now_s).step()


class _Look:
    """One look at a Job."""

    def __init__(self, job: Body, pods: list[_Pod], backoff: Backoff, loop_s: float, now_s: float) -> None:
        self._job, self._pods, self._loop_s = job, pods, loop_s
        self._spec: Mapping[str, Any] = job["spec"]
        self._status: Body = dict(job.get("status", {}))
        self._is_indexed = self._spec["completionMode"] == "Indexed"
        self._per_index: int | None = self._spec.get("backoffLimitPerIndex")
        self._is_patient = self._spec["podReplacementPolicy"] == "Failed"
        self._completions: int | None = self._spec.get("completions")
        counts = [pod for pod in pods if pod.is_tracked and (pod.index is not None or not self._is_indexed)]
        self._succeeded = [pod for pod in counts if pod.phase == "Succeeded"]
        self._failed = [pod for pod in counts if self._has_failed(pod)]
        self._active = [pod for pod in pods if pod.is_active]
        self._now_s = now_s
        self._done = _indexes(self._status.get("completedIndexes", ""), self._completions or 0)
        self._lost = _indexes(self._status.get("failedIndexes", ""), self._completions or 0)
        self._held: dict[int, _Pod] = {}  # failed pods that are kept until they are replaced, by index
        self._step = Step(self._status, self._next_backoff(backoff))

    def step(self) -> Step:
        if "startTime" not in self._status and not self._spec["suspend"]:
            self._status["startTime"] = timestamp()
        end = self._end()
        if end is None:
            active, ready = self._manage()
            end = self._success(active)
        else:
            self._step.deleted = [pod.body for pod in self._active]
            active = ready = 0
        leaving = sum(pod.is_leaving and not pod.is_over for pod in self._pods) + len(self._step.deleted)
        if end is None:
            self._tell_suspended()
        self._count(end)
        self._status |= {"ready": ready, "terminating": leaving, "uncountedTerminatedPods": {}}
        self._set("active", active)
        if end is not None:
            self._finish(*end, leaving)
        return self._step

    # -- the end of a Job ------------------------------------------------------------------------

    def _end(self) -> tuple[str, str, str] | None:
        """Return why a Job ends now, but for its success: the interim condition, its reason and message."""
        if self._is_indexed:
            self._done |= {pod.index for pod in self._succeeded if pod.index is not None}
        for kind in _ENDS:
            if known := condition(self._status, kind):
                return kind, known["reason"], known["message"]
        failures = self._status.get("failed", 0) + len(self._failed)
        if failures > self._spec["backoffLimit"]:
            return "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        left_s = self._deadline_s()
        if left_s is not None and left_s <= 0:
            return "FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline"
        self._look_again(left_s)
        return self._index_failure() if self._per_index is not None else None

    def _index_failure(self) -> tuple[str, str, str] | None:
        assert self._per_index is not None
        self._lost |= {pod.index for pod in self._failed if pod.index is not None and pod.failures >= self._per_index}
        most = self._spec.get("maxFailedIndexes")
        if most is not None and len(self._lost) > most:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return "FailureTarget", "MaxFailedIndexesExceeded", message
        if self._lost and len(self._lost) + len(self._done) >= (self._completions or 0):
            return "FailureTarget", "FailedIndexes", "Job has failed indexes"
        taken = self._done | self._lost | {pod.index for pod in self._active if pod.index is not None}
        for pod in sorted(self._failed, key=lambda pod: pod.failures):
            if pod.index is not None and pod.index not in taken:
                self._held[pod.index] = pod
        return None

    def _success(self, active: int) -> tuple[str, str, str] | None:
        done = self._done_count()
        if active or (done < self._completions if self._completions is not None else not done):
            return None
        return "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"

    def _finish(self, kind: str, reason: str, message: str, leaving: int) -> None:
        self._add_condition(kind, "True", reason, message)
        if not leaving:
            self._add_condition(_ENDS[kind], "True", reason, message)
            if kind == "SuccessCriteriaMet":
                self._status["completionTime"] = timestamp()

    def _deadline_s(self) -> float | None:
        limit_s = self._spec.get("activeDeadlineSeconds")
        started = parse_time(self._status.get("startTime", ""))
        if limit_s is None or started is None or self._spec["suspend"]:
            return None
        return float(started.timestamp() + limit_s - self._now_s)

    # -- its pods --------------------------------------------------------------------------------

    def _manage(self) -> tuple[int, int]:
        """Delete what is too much, or else make what is missing; returns how many are active and ready then."""
        wanted = self._wanted()
        surplus = self._surplus(len(self._active) - wanted)
        if surplus:
            self._step.deleted = self._step.dropped = [pod.body for pod in surplus]
        elif not self._spec["suspend"]:
            self._make(wanted)
        left = [pod for pod in self._active if pod not in surplus]
        return len(left) + len(self._step.made), sum(pod.is_ready for pod in left)

    def _wanted(self) -> int:
        """Return the number of pods that are to be active."""
        if self._spec["suspend"]:
            return 0
        done = self._done_count()
        if self._completions is None:
            return len(self._active) if done else int(self._spec["parallelism"])
        return int(max(0, min(self._completions - done, self._spec["parallelism"])))

    def _surplus(self, count: int) -> list[_Pod]:
        """Return at least `count` active pods: second ones of an index, then the least advanced, newest first."""
        oldest_first = sorted(self._active, key=lambda pod: pod.body["metadata"]["creationTimestamp"])
        most_first = sorted(oldest_first, key=lambda pod: pod.progress, reverse=True)
        kept: dict[int | None, _Pod] = {}
        for pod in most_first if self._is_indexed else ():
            if pod.index is not None:
                kept.setdefault(pod.index, pod)
        wrong = [pod for pod in self._active if kept.get(pod.index) is not pod] if self._is_indexed else []
        rest = [pod for pod in reversed(most_first) if pod not in wrong]
        return wrong + rest[: max(0, count - len(wrong))]

    def _make(self, wanted: int) -> None:
        leaving = [pod for pod in self._pods if pod.is_leaving and not pod.is_over] if self._is_patient else []
        missing = wanted - len(self._active) - len(leaving)
        if missing <= 0:
            return
        if self._per_index is None and (wait_s := self._wait_s(self._step.memory.failures, self._step.memory.last_s)):
            self._look_again(wait_s)
        elif self._is_indexed:
            busy = {pod.index for pod in (*self._active, *leaving)} | self._done | self._lost
            free = [index for index in range(self._completions or 0) if index not in busy][:missing]
            self._step.made = [
                _manifest(self._job, index, self._failures_of(index)) for index in self._ready_indexes(free)
            ]
        else:
            self._step.made = [_manifest(self._job, None, None) for _ in range(missing)]

    def _ready_indexes(self, indexes: Sequence[int]) -> Iterator[int]:
        for index in indexes:
            pod = self._held.pop(index, None)
            wait_s = self._wait_s(pod.failures + 1, self._step.memory.seen_s[pod.uid]) if pod is not None else 0.0
            if pod is not None and wait_s:
                self._held[index] = pod
                self._look_again(wait_s)
            else:
                yield index

    def _failures_of(self, index: int) -> int | None:
        if self._per_index is None:
            return None
        return max((pod.failures + 1 for pod in self._failed if pod.index == index), default=0)

    # -- counting --------------------------------------------------------------------------------

    def _count(self, end: tuple[str, str, str] | None) -> None:
        """Count the ends of pods; with the Job's failure all that it still had are failures too."""
        dropped = {pod["metadata"]["uid"] for pod in self._step.dropped}
        held = {pod.uid for pod in self._held.values()}
        succeeded = failed = 0
        for pod in self._pods:
            has_failed = self._has_failed(pod)
            is_counted = end is not None or pod.phase == "Succeeded" or (has_failed and pod.uid not in held)
            if not pod.is_tracked or not is_counted or pod.uid in dropped:
                continue
            self._step.counted.append(pod.body)
            if pod.phase == "Succeeded":
                succeeded += 1
            elif (has_failed or (end and end[0] == "FailureTarget")) and (
                pod.index is not None or not self._is_indexed
            ):
                failed += 1
        if self._is_indexed:
            self._set("completedIndexes", _written(self._done))
            if self._per_index is not None:
                self._status["failedIndexes"] = _written(self._lost)
        self._set("succeeded", len(self._done) if self._is_indexed else self._status.get("succeeded", 0) + succeeded)
        self._set("failed", self._status.get("failed", 0) + failed)

    def _done_count(self) -> int:
        return len(self._done) if self._is_indexed else self._status.get("succeeded", 0) + len(self._succeeded)

    def _has_failed(self, pod: _Pod) -> bool:
        return pod.phase == "Failed" or (not self._is_patient and pod.is_leaving and pod.phase != "Succeeded")

    def _set(self, name: str, value: int | str) -> None:
        """Say so in the status, which leaves out what is 0 or empty."""
        if value:
            self._status[name] = value
        else:
            self._status.pop(name, None)

    # -- time ------------------------------------------------------------------------------------

    def _next_backoff(self, backoff: Backoff) -> Backoff:
        seen_s = {pod.uid: backoff.seen_s.get(pod.uid, self._loop_s) for pod in self._failed}
        fresh = len(seen_s.keys() - backoff.seen_s.keys())
        if self._succeeded and not fresh:
            return Backoff(seen_s=seen_s)
        if fresh:
            return Backoff((0 if self._succeeded else backoff.failures) + fresh, self._loop_s, seen_s)
        return replace(backoff, seen_s=seen_s)

    def _wait_s(self, failures: int, since_s: float) -> float:
        if not failures:
            return 0.0
        return max(0.0, since_s + min(BACKOFF_S * 2.0 ** min(failures - 1, 16), LONGEST_BACKOFF_S) - self._loop_s)

    def _look_again(self, wait_s: float | None) -> None:
        if wait_s is not None:
            again_s = self._step.again_s
            self._step.again_s = wait_s if again_s is None else min(again_s, wait_s)

    # -- conditions ------------------------------------------------------------------------------

    def _tell_suspended(self) -> None:
        if self._spec["suspend"]:
            if self._add_condition("Suspended", "True", "JobSuspended", "Job suspended"):
                self._status.pop("startTime", None)
        elif condition(self._status, "Suspended"):
            self._add_condition("Suspended", "False", "JobResumed", "Job resumed")
            self._status["startTime"] = timestamp()

    def _add_condition(self, kind: str, value: str, reason: str, message: str) -> bool:
        turned = turn_condition(self._status, kind, value, reason, message, lastProbeTime=timestamp())
        is_new = turned is not self._status
        self._status = self._step.status = turned
        return is_new


def condition(status: Mapping[str, Any], kind: str) -> Body | None:
    """A condition that holds."""
    found = (one for one in status.get("conditions", ()) if one["type"] == kind and one["status"] == "True")
    return next(found, None)


def _read(body: Body, spec: Mapping[str, Any]) -> _Pod:
    metadata, status = body["metadata"], body.get("status", {})
    annotations = metadata.get("annotations", {})
    index = number(annotations.get(_INDEX, ""))
    is_in_range = spec["completionMode"] == "Indexed" and index is not None and index < spec.get("completions", 0)
    return _Pod(
        body,
        metadata["uid"],
        index if is_in_range else None,
        number(annotations.get(_FAILURES, "")) or 0,
        status.get("phase", "Pending"),
        "deletionTimestamp" in metadata,
        any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ())),
        FINALIZER in metadata.get("finalizers", ()),
    )


def number(text: str) -> int | None:
    """The number that a label or an annotation says, None if it says none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None


def _manifest(job: Body, index: int | None, failures: int | None) -> Body:
    """A new pod of a Job, of this index; `failures` is how many of the index have failed."""
    template, name = job["spec"]["template"], job["metadata"]["name"]
    told, spec = template.get("metadata", {}), dict(template["spec"])
    metadata = {key: told[key] for key in ("labels", "annotations") if key in told}
    metadata["generateName"] = f"{name}-" if index is None else f"{name}-{index}-"
    metadata["namespace"] = job["metadata"]["namespace"]
    metadata["finalizers"] = [*told.get("finalizers", ()), FINALIZER]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}
    metadata["ownerReferences"] = [{**owner, "blockOwnerDeletion": True}]
    if index is not None:
        noted = {_INDEX: str(index)}
        metadata["labels"] = {**metadata.get("labels", {}), **noted}
        counted = noted if failures is None else {**noted, _FAILURES: str(failures)}
        metadata["annotations"] = {**metadata.get("annotations", {}), **counted}
        spec["hostname"] = f"{name}-{index}"
        for part in ("containers", "initContainers"):
            if part in spec:
                spec[part] = [_with_index(container) for container in spec[part]]
    return {"metadata": metadata, "spec": spec}


def _with_index(container: Body) -> Body:
    known = container.get("env", [])
    if any(one.get("name") == _INDEX_VARIABLE for one in known):
        return container
    path = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{_INDEX}']"}}
    return {**container, "env": [*known, {"name": _INDEX_VARIABLE, "valueFrom": path}]}


def _indexes(text: str, end: int) -> set[int]:
    """The indexes below `end` that a text such as 1,3-5 names."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first) + 1, end)))
    return found


def _written(indexes: Iterable[int]) -> str:
    """The text that names these indexes: 1,3-5 and, for two in a row, 7,8."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
