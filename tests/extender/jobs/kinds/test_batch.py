"""batch/v1 Job: pods at a time, and its state by its own status."""

from typing import Any

import pytest

from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds import table
from tests.extender.jobs.kinds.documents import CREATED, condition, job_object, job_spec


def job(status: dict[str, Any] | None = None, **spec: Any) -> Any:
    """A Job as it is read."""
    return table.read(job_object("batch/v1", "Job", {"template": {}} | spec, status))


@pytest.mark.parametrize(
    ("spec", "status", "count"),
    [
        ({}, {}, 1),
        ({"parallelism": 4}, {}, 4),
        ({"parallelism": 4, "completions": 10}, {}, 4),
        ({"parallelism": 4, "completions": 2}, {}, 2),
        ({"parallelism": 4, "completions": 10}, {"succeeded": 8}, 2),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 4}, 1),
        ({"parallelism": 4}, {"failed": 1, "active": 3}, 4),
        ({"parallelism": 4}, {"succeeded": 1, "active": 3}, 3),
        ({"parallelism": 4}, {"succeeded": 4}, 1),
        ({"parallelism": 4, "completions": 4}, {"failedIndexes": "0,2-3"}, 1),
        ({"parallelism": 4, "completions": 6}, {"succeeded": 2, "failedIndexes": "1"}, 3),
        ({"parallelism": 4, "completions": 4}, {"failedIndexes": "x-"}, 4),
    ],
)
def test_it_has_as_many_pods_at_a_time_as_are_left(spec: Any, status: Any, count: int) -> None:
    assert [role.count for role in job(status, **spec).roles] == [count]


def test_a_job_without_parallelism_has_no_pods() -> None:
    assert job(parallelism=0).roles == ()


def test_the_template_is_that_of_the_object() -> None:
    spec = job_spec()
    assert table.read(job_object("batch/v1", "Job", spec)).roles[0].template == spec["template"]


def test_its_deadline_is_its_limit() -> None:
    assert job(activeDeadlineSeconds=600).limit_s == 600.0


@pytest.mark.parametrize(
    ("is_suspended", "status", "state"),
    [
        (True, {}, JobState.HELD),
        (True, {"conditions": [condition("Suspended")]}, JobState.HELD),
        (True, {"active": 2, "startTime": CREATED}, JobState.LEAVING),
        (True, {"conditions": [condition("Suspended")], "terminating": 1}, JobState.LEAVING),
        (True, {"conditions": [condition("Suspended", "False")], "startTime": CREATED}, JobState.LEAVING),
        (True, {"startTime": CREATED}, JobState.LEAVING),
        (False, {"conditions": [condition("Suspended", "False")], "active": 4}, JobState.LET_GO),
        (False, {"conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}, JobState.SUCCEEDED),
        (True, {"conditions": [condition("Complete")]}, JobState.SUCCEEDED),
        (False, {"conditions": [condition("FailureTarget"), condition("Failed")]}, JobState.FAILED),
        (False, {"conditions": [condition("Failed", "False")]}, JobState.LET_GO),
    ],
)
def test_its_state_follows_from_its_status(is_suspended: bool, status: Any, state: JobState) -> None:
    assert job(status, suspend=is_suspended).state is state
