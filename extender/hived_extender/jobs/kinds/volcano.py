"""Volcano's Job (batch.volcano.sh/v1alpha1), which has no `suspend`.

Its controller copies the annotations of a job onto the PodGroup, and makes no pods before somebody lets that in: hived
does, unless it is marked as held. A job that runs is aborted by a Command, and resumed by another. Volcano counts each
resumption as a retry, so a job is born held by the mark alone, and can be called back `maxRetry` - 1 times.

Commands have an effect in one phase only, so one too many has none.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hived_extender.jobs.dialects import volcano
from hived_extender.jobs.job import Document, Job, JobRef, JobState
from hived_extender.jobs.kinds.kind import (
    Kind,
    Part,
    Patch,
    Verb,
    Write,
    job_of,
    left_of,
    mark_held,
    merge,
    path_of,
    role_of,
    root_of,
)
from hived_extender.jobs.kinds.marks import HELD, SUSPEND

ABORT, RESUME = "AbortJob", "ResumeJob"
_BUS = "bus.volcano.sh/v1alpha1"
_PODGROUPS = f"{volcano.KIND.group}/{volcano.KIND.versions[0]}"
_ENDS = {
    "Completed": JobState.SUCCEEDED,
    "Failed": JobState.FAILED,
    "Terminated": JobState.FAILED,
}
_QUIET = ("", "Pending", "Aborted")


def _read(document: Document) -> Job:
    root = root_of(document)
    spec = root.part("spec")
    tasks = {each.text("name") or f"default{index}": each for index, each in enumerate(spec.parts("tasks"))}
    phases = root.part("status").members("taskStatusCount")
    done = {name: each.part("phase").whole("Succeeded", 0) for name, each in phases.items()}
    counts = left_of({name: each.whole("replicas", 1) for name, each in tasks.items()}, done)
    roles = [
        replace(role_of(each, name, counts[name]), least=min(each.whole("minAvailable", counts[name]), counts[name]))
        for name, each in tasks.items()
    ]
    return job_of(
        root,
        roles,
        _state(root),
        priority_class=spec.text("priorityClassName"),
        min_count=spec.whole("minAvailable", 0) or None,
        queue=spec.text("queue"),
        scheduler=spec.text("schedulerName") or volcano.SCHEDULER,
    )


def _state(root: Part) -> JobState:
    status = root.part("status")
    phase = status.part("state").text("phase")
    if phase in _ENDS:
        return _ENDS[phase]
    is_aborted = phase in ("Aborted", "Aborting")
    if not is_aborted and root.part("metadata").texts("annotations").get(HELD) != "true":
        return JobState.LET_GO
    pods = sum(status.whole(key, 0) for key in ("pending", "running", "terminating", "unknown"))
    return JobState.HELD if phase in _QUIET and not pods else JobState.LEAVING


def _suspend(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    return (merge(job, "jobs", {}, {**annotations, HELD: "true"}, version), _command(job, ABORT))


def _resume(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    """The mark goes first from the job, of which a later PodGroup is a copy, then from the PodGroup that is there."""
    let_in = [
        Write(
            Verb.PATCH,
            path_of(_PODGROUPS, volcano.KIND.plural, job.namespace, name),
            {"metadata": {"annotations": {HELD: None}}},
            may_be_missing=True,
        )
        for name in (f"{job.name}-{job.uid}", job.name)
    ]
    marks = {SUSPEND: None, **annotations, HELD: None}
    return (merge(job, "jobs", {}, marks, version), *let_in, _command(job, RESUME))


def _command(job: JobRef, action: str) -> Write:
    target: dict[str, Any] = {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }
    metadata = {
        "generateName": f"{job.name}-{action.lower()}-",
        "namespace": job.namespace,
        "ownerReferences": [target],
    }
    body = {"apiVersion": _BUS, "kind": "Command", "metadata": metadata, "action": action, "target": target}
    return Write(Verb.CREATE, path_of(_BUS, "commands", job.namespace), body)


def _hold(document: Document) -> Patch:
    return mark_held(root_of(document))


VOLCANO_JOB = Kind("batch.volcano.sh", "Job", "jobs", ("v1alpha1",), _read, _suspend, _resume, _hold)
