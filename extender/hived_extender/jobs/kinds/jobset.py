"""JobSet (jobset.x-k8s.io/v1alpha2): `spec.suspend`. Its Jobs follow it, so none of them queues by itself.

Its status counts Jobs. Only a running Job knows which of its pods have succeeded.

With exclusive placement each of its Jobs has a domain of nodes for itself, such as a rack. Its webhook lets the pods of
a Job be created only when the first of them, its leader, has a node. So a gang of such pods never exists as a whole
before some of it runs. The controller annotates pods with their Job; the templates of roles have that here already. The
gang itself comes from keys of other dialects.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from hived_extender.jobs.document import Part, count, name
from hived_extender.jobs.job import Document, Job, JobState, PodTally, Role
from hived_extender.jobs.kinds.batch import pods_at_once
from hived_extender.jobs.kinds.description import JobPart, level
from hived_extender.jobs.kinds.kind import (
    ANNOTATIONS,
    EITHER,
    Dialect,
    Source,
    Switch,
    ignores,
    job_of,
    kind_with,
    reads,
    role_of,
    root_of,
    state_of,
)
from hived_extender.jobs.wire import Owner, Pod

TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
BY_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
"""With this annotation nothing waits for leaders: the nodes of each Job have labels beforehand."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
LEADER = "0"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICAS = "jobset.sigs.k8s.io/replicatedjob-replicas"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_JOBS = "replicatedJobsStatus"


def part_of(pod: Pod) -> JobPart | None:
    """The pod's part in a JobSet with exclusive placement (rule 23.10), None if it has none. Raises UserError."""
    if TOPOLOGY not in pod.annotations or BY_NODE_SELECTOR in pod.annotations:
        return None
    said = Part("annotation ", pod.annotations)
    topology, replicated_job = said.read(TOPOLOGY, level), said.read(REPLICATED_JOB, name)
    replicas, job_index = said.read(REPLICAS, count), said.read(JOB_INDEX, name)
    if topology is None or replicated_job is None or replicas is None or job_index is None:
        return None  # not the JobSet's pod: its webhook ignores it too
    is_leader = pod.annotations.get(COMPLETION_INDEX) == LEADER
    return JobPart(topology, replicated_job, job_index, replicas, is_leader)


class Child(msgspec.Struct, frozen=True):
    """A Job that a JobSet has made. `spared` of the pods that it runs at once have ended for good."""

    role: str
    spared: int
    has_succeeded: bool


def child_of(document: Document, job: Job) -> Child:
    """A Job as its JobSet needs it. Raises UserError."""
    root = root_of(document)
    spec, status = root.part("spec"), root.part("status")
    spared = pods_at_once(spec) - pods_at_once(spec, status)
    role = root.part("metadata").texts("labels").get(REPLICATED_JOB, "")
    return Child(role, spared, job.state is JobState.SUCCEEDED)


def roles_of(spec: Part, status: Part, own: Mapping[str, str], children: Iterable[Child] = ()) -> list[Role]:
    """The pods of Jobs that have not succeeded yet, without pods that have ended for good; all if no Job is left.

    `own` are the annotations of the JobSet. Its status may not count all of `children` yet.
    """
    children = list(children)
    done = {each.text("name"): each.whole("succeeded", 0) for each in status.parts(_JOBS)}
    jobs = [(each.text("name"), each.whole("replicas", 1), each) for each in spec.parts("replicatedJobs")]
    left = [max(replicas - done.get(role, 0), 0) for role, replicas, _ in jobs]
    counts = left if any(left) else [replicas for _, replicas, _ in jobs]
    roles = []
    for (key, _, part), replicas in zip(jobs, counts, strict=True):
        job_spec = part.part("template").part("spec")
        width = pods_at_once(job_spec)
        succeeded = sum(each.has_succeeded for each in children if each.role == key)
        spared = sum(each.spared for each in children if each.role == key and not each.has_succeeded)
        spared += max(succeeded - done.get(key, 0), 0) * width
        role = role_of(job_spec, key, max(replicas * width - spared, min(replicas * width, 1)))
        roles.append(_placed(role, replicas, {**own, **part.part("template").part("metadata").texts("annotations")}))
    return roles


def _placed(role: Role, replicas: int, said: Mapping[str, str]) -> Role:
    """The role with the annotations that its leaders will have, where each of its Jobs has a domain for itself."""
    if TOPOLOGY not in said or BY_NODE_SELECTOR in said:
        return role
    marks = {
        TOPOLOGY: said[TOPOLOGY],
        REPLICATED_JOB: role.name,
        REPLICAS: str(replicas),
        JOB_INDEX: "0",
        COMPLETION_INDEX: LEADER,
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
    wanted = sum(
        each.whole("replicas", 1) * pods_at_once(each.part("template").part("spec"))
        for each in spec.parts("replicatedJobs")
    )
    tally = PodTally(wanted, max(wanted - sum(role.count for role in roles), 0))
    return job_of(root, roles, state_of(root, switch, active, "Completed", _JOBS), limit_s=limit_s, tally=tally)


def _job_of_pod(labels: Mapping[str, str], owner: Owner) -> str:
    job_set = labels.get(JOB_SET_LABEL, "")
    return job_set if job_set and owner.name.startswith(f"{job_set}-") else ""


_SWITCH = Switch("jobsets")
JOB_SET = kind_with(_SWITCH, "jobset.x-k8s.io", "JobSet", ("v1alpha2",), _read, {"Job": _job_of_pod})
SOURCE = Source(
    jobs=(JOB_SET,),
    dialects=(
        Dialect(
            "JobSet",
            (
                *reads(ANNOTATIONS, TOPOLOGY, BY_NODE_SELECTOR, COMPLETION_INDEX, REPLICATED_JOB, REPLICAS, JOB_INDEX),
                *ignores(
                    EITHER,
                    "names that its controller gives",
                    JOB_SET_LABEL,
                    "jobset.sigs.k8s.io/jobset-uid",
                    "jobset.sigs.k8s.io/global-replicas",
                    "jobset.sigs.k8s.io/job-global-index",
                    "jobset.sigs.k8s.io/job-key",
                    "jobset.sigs.k8s.io/job-group-index",
                    "jobset.sigs.k8s.io/group-name",
                    "jobset.sigs.k8s.io/group-replicas",
                    "jobset.sigs.k8s.io/coordinator",
                    "alpha.jobset.sigs.k8s.io/namespaced-job",
                ),
            ),
        ),
    ),
)
