"""ElasticJob: its replica specs, and its state by the status of either release."""

from typing import Any

import pytest

from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds import table
from tests.extender.jobs.kinds.documents import ELASTIC, job_object, with_suspend


def test_each_replica_type_is_a_role() -> None:
    assert [(role.name, role.count) for role in table.read(job_object(*ELASTIC)).roles] == [("worker", 4)]


@pytest.mark.parametrize("is_nested", [False, True])
def test_replicas_that_have_succeeded_need_no_cells_again(is_nested: bool) -> None:
    status = {"replicaStatuses": {"worker": {"active": 1, "succeeded": 3}}}
    job = table.read(job_object(*ELASTIC, {"phase": "Running", **({"status": status} if is_nested else status)}))
    assert [role.count for role in job.roles] == [1]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"phase": "Suspended"}, "HELD"),
        ({"phase": "Running", "replicaStatuses": {"worker": {"active": 4}}}, "LEAVING"),
        ({"phase": "Running", "status": {"replicaStatuses": {"worker": {"pending": 1}}}}, "LEAVING"),
        ({"phase": "Succeeded"}, "SUCCEEDED"),
        ({"phase": "Failed"}, "FAILED"),
    ],
)
def test_its_state_follows_from_its_status(status: Any, state: str) -> None:
    assert table.read(job_object(*with_suspend("elasticjob"), status)).state is JobState[state]
