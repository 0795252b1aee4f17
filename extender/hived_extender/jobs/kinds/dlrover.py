"""DLRover's ElasticJob (elastic.iml.github.io/v1alpha1): `spec.suspend`, which its master survives."""

from hived_extender.jobs.job import Document, Job, JobState, PodTally
from hived_extender.jobs.kinds.kind import Source, Switch, job_of, kind_with, left_of, role_of, root_of

MASTER = "dlrover-master"
"""The role that every job has, in its spec or not."""

_STATES = {"Succeeded": JobState.SUCCEEDED, "Failed": JobState.FAILED}


def _read(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    spec, status = root.part("spec"), root.part("status")
    inner = status.part("status") if "status" in status else status  # releases differ
    statuses = inner.members("replicaStatuses")
    done = {name: each.whole("succeeded", 0) for name, each in statuses.items()}
    wanted = {name: each.whole("replicas", 1) for name, each in spec.members("replicaSpecs").items()}
    counts, failed = left_of(wanted, done), sum(each.whole("failed", 0) for each in statuses.values())
    roles = [role_of(each, name, counts[name]) for name, each in spec.members("replicaSpecs").items()]
    state = _STATES.get(status.text("phase"), JobState.RESUMED)
    if not state.is_over and switch.is_on(root):
        is_quiet = not any(each.whole("active", 0) + each.whole("pending", 0) for each in statuses.values())
        state = JobState.HELD if is_quiet else JobState.LEAVING
    count = sum({MASTER: 1, **wanted}.values())
    return job_of(root, roles, state, tally=PodTally(count, sum(done.values()), failed))


ELASTIC_JOB = kind_with(Switch("elasticjobs"), "elastic.iml.github.io", "ElasticJob", ("v1alpha1",), _read)
SOURCE = Source(jobs=(ELASTIC_JOB,))
