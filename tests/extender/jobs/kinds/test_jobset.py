"""JobSet: the Jobs that are left, and its state."""

from collections.abc import Iterable
from typing import Any

import pytest

from hived_extender.jobs.job import Job, JobState
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.jobset import REPLICATED_JOB, Child, child_of
from tests.extender.jobs.kinds.documents import JOB_SET, condition, job_object, job_spec


def job_set(status: Any = None, is_suspended: bool = False, children: Iterable[Child] = ()) -> Job:
    """A JobSet of a driver without devices and two Jobs of four workers."""
    version, kind, spec = JOB_SET
    document = job_object(version, kind, {**spec, "suspend": is_suspended}, status)
    return table.read(document, children=tuple(children))


def child(pods: int = 4, completions: int | None = 4, role: str = "workers", **status: Any) -> Child:
    """A Job of a JobSet."""
    spec = job_spec(pods)
    if completions is not None:
        spec["completions"] = completions
    else:
        spec.pop("completions", None)
    document = job_object("batch/v1", "Job", spec, status, labels={REPLICATED_JOB: role})
    return child_of(document, table.read(document))


COMPLETE = [condition("Complete")]


def of(name: str, **counts: int) -> dict[str, Any]:
    """The status of one of its replicatedJobs."""
    return {"name": name, "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0} | counts


def test_each_replicated_job_is_a_role_with_the_pods_of_all_its_jobs() -> None:
    assert [(role.name, role.count) for role in job_set().roles] == [("driver", 1), ("workers", 8)]


def test_jobs_that_have_succeeded_need_no_pods_again() -> None:
    status = {"replicatedJobsStatus": [of("driver"), of("workers", succeeded=1)]}
    assert [(role.name, role.count) for role in job_set(status).roles] == [("driver", 1), ("workers", 4)]


def workers(status: Any, *children: Child) -> int:
    """The pods of the workers."""
    return {role.name: role.count for role in job_set(status, children=children).roles}["workers"]


RUNS = {"replicatedJobsStatus": [of("driver", active=1), of("workers", active=2)]}


@pytest.mark.parametrize(
    ("children", "count"),
    [
        ([child()], 8),
        ([child(succeeded=3, active=1)], 5),
        ([child(succeeded=3, active=1), child(succeeded=2, active=2)], 3),
        ([child(succeeded=4, active=0)], 5),  # its Job is about to be complete
        ([child(succeeded=4, conditions=COMPLETE)], 4),  # before the JobSet says so
        ([child(completions=10, succeeded=6, active=4)], 8),  # others come
        ([child(completions=10, succeeded=7, active=3)], 7),
        ([child(completions=None, succeeded=1, active=2)], 6),  # it makes no pods any more
        ([child(failedIndexes="1,3", active=2)], 6),
        ([child(role="driver", pods=1, completions=1, succeeded=1)], 8),
        ([child(role="other", succeeded=3)], 8),
        ([child(succeeded=4, conditions=COMPLETE), child(succeeded=4, conditions=COMPLETE)], 1),
    ],
)
def test_pods_of_a_job_that_come_no_more_are_not_needed(children: list[Child], count: int) -> None:
    assert workers(RUNS, *children) == count


def test_a_job_that_the_set_counts_is_not_left_out_twice() -> None:
    status = {"replicatedJobsStatus": [of("driver", active=1), of("workers", active=1, succeeded=1)]}
    done = child(succeeded=4, conditions=COMPLETE)
    assert workers(status, done, child(succeeded=2, active=2)) == 2


def test_a_set_that_has_succeeded_keeps_its_roles() -> None:
    status = {"replicatedJobsStatus": [of("driver", succeeded=1), of("workers", succeeded=2)]}
    assert [role.count for role in job_set(status).roles] == [1, 8]


def test_its_limit_is_that_of_its_longest_job_if_each_has_one() -> None:
    def limit(*limits: int | None) -> float | None:
        jobs = [
            {"name": f"j{number}", "template": {"spec": job_spec(1, activeDeadlineSeconds=each)}}
            for number, each in enumerate(limits)
        ]
        return table.read(job_object("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})).limit_s

    assert limit(60, 90) == 90.0
    assert limit(60, None) is None


@pytest.mark.parametrize(
    ("is_suspended", "status", "state"),
    [
        (True, {"conditions": [condition("Suspended")], "replicatedJobsStatus": [of("workers", suspended=2)]}, "HELD"),
        (True, {"conditions": [condition("Suspended")], "replicatedJobsStatus": [of("workers", active=2)]}, "LEAVING"),
        (True, {"conditions": [condition("Suspended", "False")]}, "LEAVING"),
        (True, {"replicatedJobsStatus": [of("workers")]}, "LEAVING"),  # its Jobs are there and have no pods yet
        (True, None, "HELD"),
        (False, {"conditions": [condition("Completed")], "terminalState": "Completed"}, "SUCCEEDED"),
        (False, {"conditions": [condition("Failed")], "terminalState": "Failed"}, "FAILED"),
    ],
)
def test_its_state_follows_from_its_status(is_suspended: bool, status: Any, state: str) -> None:
    assert job_set(status, is_suspended).state is JobState[state]
