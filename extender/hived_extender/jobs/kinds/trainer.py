"""Kubeflow Trainer's TrainJob (trainer.kubeflow.org/v1alpha1): `spec.suspend`.

Its pods follow from a runtime, its own fields and plugins of the trainer. The trainer writes the outcome as a JobSet of
the same name, also while the TrainJob is suspended. So the roles are read there: nothing is computed a second time.

Whether its pods are ours is not known before. So every TrainJob is born held, and its mark says that hived
did so: one whose pods prove not to be ours is to be let go.
"""

from hived_extender.jobs.job import Document, Job
from hived_extender.jobs.kinds.jobset import JOB_SET
from hived_extender.jobs.kinds.kind import Switch, job_of, kind_with, root_of, state_of

_JOBS = "jobsStatus"


def _read(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    active = sum(each.whole("active", 0) for each in root.part("status").parts(_JOBS))
    metadata = root.part("metadata")
    made = JOB_SET.name(metadata.text("namespace") or "default", metadata.text("name"))
    return job_of(root, [], state_of(root, switch, active, started=_JOBS), roles_in=made)


TRAIN_JOB = kind_with(Switch("trainjobs"), "trainer.kubeflow.org", "TrainJob", ("v1alpha1",), _read)
