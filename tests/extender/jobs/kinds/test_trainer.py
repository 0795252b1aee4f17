"""TrainJob: its roles are those of the JobSet that the trainer makes for it."""

from typing import Any

import pytest

from hived_extender.jobs.job import JobName, JobState
from hived_extender.jobs.kinds import marks, table
from tests.extender.jobs.kinds.documents import JOB_SET, TRAIN, condition, job_object, owner, with_suspend

MADE = job_object(*JOB_SET, ownerReferences=[owner("trainer.kubeflow.org/v1alpha1", "TrainJob")])


def test_it_names_the_job_set_that_will_have_its_roles() -> None:
    job = table.read(job_object(*TRAIN))
    assert (job.roles, job.roles_in) == ((), JobName("jobset.x-k8s.io", "JobSet", "team", "train"))


def test_it_has_the_roles_of_its_job_set() -> None:
    assert table.read(job_object(*TRAIN), MADE).roles == table.read(MADE).roles != ()


def test_its_job_set_has_no_turn_of_its_own() -> None:
    assert table.read(MADE).manager == JobName("trainer.kubeflow.org", "TrainJob", "team", "train")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"conditions": [condition("Suspended")]}, "HELD"),
        ({"conditions": [condition("Suspended")], "jobsStatus": [{"name": "node", "active": 1}]}, "LEAVING"),
        ({"conditions": [condition("Suspended", "False")]}, "LEAVING"),
        ({"jobsStatus": [{"name": "node", "active": 0}]}, "LEAVING"),
        (None, "HELD"),
        ({"conditions": [condition("Complete")]}, "SUCCEEDED"),
        ({"conditions": [condition("Failed")]}, "FAILED"),
    ],
)
def test_its_state_follows_from_its_status(status: Any, state: str) -> None:
    assert table.read(job_object(*with_suspend("trainjob"), status)).state is JobState[state]


def test_it_is_born_with_a_mark_that_says_who_holds_it() -> None:
    paths = [operation["path"] for operation in table.hold_at_creation(job_object(*TRAIN))]
    assert paths == ["/spec/suspend", "/metadata/annotations"]
    assert table.hold_at_creation(job_object(*TRAIN))[1]["value"] == {marks.HELD: "true"}
