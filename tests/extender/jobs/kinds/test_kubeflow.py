"""Kubeflow's jobs: roles by their replica specs, the run policy, and their state."""

from typing import Any

import pytest

from hived_extender.jobs.job import Job, JobState
from hived_extender.jobs.kinds import table
from tests.extender.jobs.kinds.documents import MPI_1, MPI_2, PYTORCH, TENSORFLOW, condition, job_object, with_suspend


@pytest.mark.parametrize(
    ("document", "roles"),
    [
        (PYTORCH, [("master", 1), ("worker", 3)]),
        (TENSORFLOW, [("ps", 2), ("worker", 1)]),
        (MPI_1, [("launcher", 1), ("worker", 4)]),
        (MPI_2, [("launcher", 1), ("worker", 4)]),
    ],
)
def test_each_replica_type_is_a_role(document: Any, roles: list[tuple[str, int]]) -> None:
    assert [(role.name, role.count) for role in table.read(job_object(*document)).roles] == roles


def test_replicas_that_have_succeeded_need_no_cells_again() -> None:
    status = {"replicaStatuses": {"Worker": {"active": 1, "succeeded": 2}}}
    assert [role.count for role in table.read(job_object(*PYTORCH, status)).roles] == [1, 1]


def test_the_run_policy_says_queue_class_and_limit() -> None:
    job = table.read(job_object(*PYTORCH))
    assert (job.queue, job.priority_class, job.limit_s, job.min_count) == ("research", "urgent", None, None)
    assert table.read(job_object(*MPI_2)).limit_s == 3600.0


def test_an_elastic_job_starts_with_its_least_number_of_pods() -> None:
    version, kind, spec = PYTORCH
    assert table.read(job_object(version, kind, spec | {"elasticPolicy": {"minReplicas": 2}})).min_count == 2


def state(status: Any, name: str = "pytorch") -> JobState:
    """The state of a suspended job."""
    job: Job = table.read(job_object(*with_suspend(name), status))
    return job.state


@pytest.mark.parametrize("name", ["pytorch", "tensorflow", "mpi-v1", "mpi-v2beta1"])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"conditions": [condition("Created"), condition("Suspended")], "replicaStatuses": {"Worker": {}}}, "HELD"),
        ({"conditions": [condition("Suspended")], "replicaStatuses": {"Worker": {"active": 1}}}, "LEAVING"),
        ({"conditions": [condition("Suspended", "False"), condition("Running")]}, "LEAVING"),
        ({"conditions": [condition("Running", "False"), condition("Succeeded")]}, "SUCCEEDED"),
        ({"conditions": [condition("Failed")]}, "FAILED"),
    ],
)
def test_the_state_follows_from_the_status(name: str, status: Any, expected: str) -> None:
    assert state(status, name) is JobState[expected]


def test_a_job_without_a_run_policy_gets_one_at_creation() -> None:
    version, kind, spec = PYTORCH
    bare = job_object(version, kind, {key: value for key, value in spec.items() if key != "runPolicy"})
    (suspend, _) = table.hold_at_creation(bare)
    assert suspend == {"op": "add", "path": "/spec/runPolicy", "value": {"suspend": True}}
