"""Kubeflow Trainer's TrainJob (trainer.kubeflow.org/v1alpha1): `spec.suspend`.

Its pods follow from a runtime, its own fields and plugins of the trainer. The trainer writes the outcome as a JobSet of
the same name, even for a suspended TrainJob. The roles are read from this JobSet.

Until then it is unknown whether its pods are ours. So every TrainJob is created held, with the mark that hived did it,
and resumed if its pods are not ours.
"""

from hived_extender.jobs.job import Document, Job
from hived_extender.jobs.kinds.jobset import JOB_SET
from hived_extender.jobs.kinds.kind import Source, Switch, job_of, kind_with, root_of, state_of

_JOBS = "jobsStatus"


def _read(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    active = sum(each.whole("active", 0) for each in root.part("status").parts(_JOBS))
    metadata = root.part("metadata")
    made = JOB_SET.name(metadata.text("namespace") or "default", metadata.text("name"))
    limit_s = root.part("spec").seconds("activeDeadlineSeconds")
    return job_of(root, [], state_of(root, switch, active, started=_JOBS), limit_s=limit_s, roles_in=made)


TRAIN_JOB = kind_with(Switch("trainjobs"), "trainer.kubeflow.org", "TrainJob", ("v1alpha1",), _read)
SOURCE = Source(jobs=(TRAIN_JOB,))
