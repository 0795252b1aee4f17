"""Kubeflow Trainer's TrainJob (trainer.kubeflow.org/v1alpha1): `spec.suspend`.

Its pods follow from a runtime, its own fields and plugins of the trainer. The trainer writes the outcome as a JobSet of
the same name, also while the TrainJob is suspended. So the roles are read there: nothing is computed a second time.

Whether its pods are ours is not known before. So every TrainJob is born held, with a mark (`marks.HELD`): one whose
pods prove not to be ours is to be let go.
"""

from dataclasses import replace

from hived_extender.job_kinds.job import Document, Job
from hived_extender.job_kinds.jobset import JOB_SET
from hived_extender.job_kinds.kind import Patch, Switch, job_of, kind_with, mark_held, root_of, state_of


def _read(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    active = sum(each.whole("active", 0) for each in root.part("status").parts("jobsStatus"))
    metadata = root.part("metadata")
    made = JOB_SET.name(metadata.text("namespace") or "default", metadata.text("name"))
    return job_of(root, [], state_of(root, switch, active), roles_in=made)


def _hold(document: Document) -> Patch:
    patch = _SWITCH.hold(document)
    return [*patch, *mark_held(root_of(document))] if patch else []


_SWITCH = Switch("trainjobs")
TRAIN_JOB = replace(kind_with(_SWITCH, "trainer.kubeflow.org", "TrainJob", ("v1alpha1",), _read), hold=_hold)
