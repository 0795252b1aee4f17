"""Kubernetes' Job (batch/v1): `spec.suspend`."""

from hived_extender.job_kinds.job import Document, Job
from hived_extender.job_kinds.kind import Switch, job_of, kind_with, role_of, root_of, state_of
from hived_extender.job_kinds.parts import Part


def pods_at_once(spec: Part, succeeded: int = 0) -> int:
    """The number of pods of a JobSpec that run at a time, where so many have succeeded already. At least one, unless
    `parallelism` is 0.
    """
    parallelism = spec.whole("parallelism", 1)
    left = max(spec.whole("completions", parallelism + succeeded) - succeeded, 1)
    return min(parallelism, left)


def _read(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    spec, status = root.part("spec"), root.part("status")
    role = role_of(spec, root.part("metadata").text("name"), pods_at_once(spec, status.whole("succeeded", 0)))
    active = status.whole("active", 0) + status.whole("terminating", 0)
    limit_s = spec.seconds("activeDeadlineSeconds")
    return job_of(root, [role], state_of(root, switch, active), limit_s=limit_s)


JOB = kind_with(Switch("jobs"), "batch", "Job", ("v1",), _read)
