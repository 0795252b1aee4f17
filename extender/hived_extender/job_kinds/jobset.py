"""JobSet (jobset.x-k8s.io/v1alpha2): `spec.suspend`. Its Jobs follow it, so none of them has a turn of its own.

With exclusive placement its controller annotates pods with their Job; the templates of roles have that here already.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from hived_extender.job_kinds.batch import pods_at_once
from hived_extender.job_kinds.job import Document, Job, Role
from hived_extender.job_kinds.kind import Switch, job_of, kind_with, role_of, root_of, state_of
from hived_extender.job_kinds.parts import Part
from hived_extender.pods.dialects import jobset as exclusive


def roles_of(spec: Part, status: Part, own: Mapping[str, str]) -> list[Role]:
    """Pods of the Jobs that have not succeeded yet; of all of them, if none is left. `own` are the annotations of the
    JobSet.
    """
    done = {each.text("name"): each.whole("succeeded", 0) for each in status.parts("replicatedJobsStatus")}
    jobs = [(each.text("name"), each.whole("replicas", 1), each) for each in spec.parts("replicatedJobs")]
    left = [max(count - done.get(name, 0), 0) for name, count, _ in jobs]
    counts = left if any(left) else [count for _, count, _ in jobs]
    roles = []
    for (name, _, part), count in zip(jobs, counts, strict=True):
        job_spec = part.part("template").part("spec")
        role = role_of(job_spec, name, count * pods_at_once(job_spec))
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


def _read(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    spec, status = root.part("spec"), root.part("status")
    active = sum(each.whole("active", 0) for each in status.parts("replicatedJobsStatus"))
    limits = [
        each.part("template").part("spec").seconds("activeDeadlineSeconds") for each in spec.parts("replicatedJobs")
    ]
    limit_s = max((each for each in limits if each), default=None) if all(limits) else None
    roles = roles_of(spec, status, root.part("metadata").texts("annotations"))
    return job_of(root, roles, state_of(root, switch, active, "Completed"), limit_s=limit_s)


JOB_SET = kind_with(Switch("jobsets"), "jobset.x-k8s.io", "JobSet", ("v1alpha2",), _read)
