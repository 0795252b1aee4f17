"""DLRover's ElasticJob (elastic.iml.github.io/v1alpha1): `spec.suspend`."""

from hived_extender.job_kinds.job import Document, Job, JobState
from hived_extender.job_kinds.kind import Switch, job_of, kind_with, role_of, root_of

_STATES = {"Succeeded": JobState.SUCCEEDED, "Failed": JobState.FAILED}


def _read(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    spec, status = root.part("spec"), root.part("status")
    roles = [role_of(each, name, each.whole("replicas", 1)) for name, each in spec.members("replicaSpecs").items()]
    state = _STATES.get(status.text("phase"), JobState.LET_GO)
    if not state.is_over and switch.is_on(root):
        inner = status.part("status") if "status" in status else status  # releases differ
        pods = inner.members("replicaStatuses").values()
        is_quiet = not any(each.whole("active", 0) + each.whole("pending", 0) for each in pods)
        state = JobState.HELD if is_quiet else JobState.LEAVING
    return job_of(root, roles, state)


ELASTIC_JOB = kind_with(Switch("elasticjobs"), "elastic.iml.github.io", "ElasticJob", ("v1alpha1",), _read)
