"""JobSet (jobset.x-k8s.io/v1alpha2): `spec.suspend`. Its Jobs follow it, so none of them has a turn of its own.

Its status counts Jobs. Which pods of a Job that runs have succeeded, only the Job says.

With exclusive placement its controller annotates pods with their Job; the templates of roles have that here already.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from hived_extender.jobs.dialects import jobset as exclusive
from hived_extender.jobs.job import Document, Job, JobState, Role
from hived_extender.jobs.kinds.batch import pods_at_once
from hived_extender.jobs.kinds.kind import Part, Switch, job_of, kind_with, role_of, root_of, state_of

_JOBS = "replicatedJobsStatus"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"


class Child(msgspec.Struct, frozen=True):
    """A Job that a JobSet has made. `spared` of the pods that it has at once have ended, and come no more."""

    role: str
    spared: int
    has_succeeded: bool


def child_of(document: Document, job: Job) -> Child:
    """The Job in a document, as its JobSet needs it. Raises UserError."""
    root = root_of(document)
    spec, status = root.part("spec"), root.part("status")
    spared = pods_at_once(spec) - pods_at_once(spec, status)
    role = root.part("metadata").texts("labels").get(REPLICATED_JOB, "")
    return Child(role, spared, job.state is JobState.SUCCEEDED)


def roles_of(spec: Part, status: Part, own: Mapping[str, str], children: Iterable[Child] = ()) -> list[Role]:
    """Pods of the Jobs that have not succeeded yet, without those that come no more; of all of them, if no Job is left.

    `own` are the annotations of the JobSet. Of `children` the JobSet may not have heard yet.
    """
    children = list(children)
    done = {each.text("name"): each.whole("succeeded", 0) for each in status.parts(_JOBS)}
    jobs = [(each.text("name"), each.whole("replicas", 1), each) for each in spec.parts("replicatedJobs")]
    left = [max(count - done.get(name, 0), 0) for name, count, _ in jobs]
    counts = left if any(left) else [count for _, count, _ in jobs]
    roles = []
    for (name, _, part), count in zip(jobs, counts, strict=True):
        job_spec = part.part("template").part("spec")
        width = pods_at_once(job_spec)
        succeeded = sum(each.has_succeeded for each in children if each.role == name)
        spared = sum(each.spared for each in children if each.role == name and not each.has_succeeded)
        spared += max(succeeded - done.get(name, 0), 0) * width
        role = role_of(job_spec, name, max(count * width - spared, min(count * width, 1)))
        roles.append(_placed(role, count, {**own, **part.part("template").part("metadata").texts("annotations")}))
    return roles


def _placed(role: Role, replicas: int, said: Mapping[str, str]) -> Role:
    """The role with the annotations that its leaders will have, where each of its Jobs has a domain for itself."""
    if exclusive.TOPOLOGY not in said or exclusive.BY_NODE_SELECTOR in said:
        return role
    marks = {
        exclusive.TOPOLOGY: said[exclusive.TOPOLOGY],
        exclusive.REPLICATED_JOB: role.name,
        exclusive.REPLICAS: str(replicas),
        exclusive.JOB_INDEX: "0",
        exclusive.COMPLETION_INDEX: exclusive.LEADER,
    }
    metadata = role.template.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), **marks}
    return replace(role, template={**role.template, "metadata": {**metadata, "annotations": annotations}})


def read_with(document: Document, children: Iterable[Child]) -> Job:
    """The job of a JobSet that has made these Jobs. Raises UserError."""
    return _read(_SWITCH, document, children)


def _read(switch: Switch, document: Document, children: Iterable[Child] = ()) -> Job:
    root = root_of(document)
    spec, status = root.part("spec"), root.part("status")
    active = sum(each.whole("active", 0) for each in status.parts(_JOBS))
    limits = [
        each.part("template").part("spec").seconds("activeDeadlineSeconds") for each in spec.parts("replicatedJobs")
    ]
    limit_s = max((each for each in limits if each), default=None) if all(limits) else None
    roles = roles_of(spec, status, root.part("metadata").texts("annotations"), children)
    return job_of(root, roles, state_of(root, switch, active, "Completed", _JOBS), limit_s=limit_s)


_SWITCH = Switch("jobsets")
JOB_SET = kind_with(_SWITCH, "jobset.x-k8s.io", "JobSet", ("v1alpha2",), _read)
