"""RayJob and RayCluster: head, hosts of worker groups and submitter, and when KubeRay suspends them."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.job import JobName, JobState
from hived_extender.jobs.kinds import table
from tests.extender.jobs.kinds.documents import (
    RAY_CLUSTER,
    RAY_JOB,
    condition,
    job_object,
    owner,
    template,
    with_suspend,
)

GROUPS = [("head", 1), ("small", 2), ("slices", 8)]


def job_with(**spec: Any) -> Any:
    """A RayJob with other fields."""
    version, kind, own = RAY_JOB
    return job_object(version, kind, own | spec)


def test_a_cluster_has_a_head_and_the_hosts_of_each_replica() -> None:
    assert [(role.name, role.count) for role in table.read(job_object(*RAY_CLUSTER)).roles] == GROUPS


def test_a_job_has_its_submitter_besides() -> None:
    job = table.read(job_object(*RAY_JOB))
    assert [(role.name, role.count) for role in job.roles] == [*GROUPS, ("submitter", 1)]
    assert job.limit_s == 7200.0


def test_no_pod_submits_a_job_over_http() -> None:
    assert [role.name for role in table.read(job_with(submissionMode="HTTPMode")).roles] == ["head", "small", "slices"]


def test_a_job_on_a_cluster_of_somebody_else_has_no_roles_and_is_not_held() -> None:
    document = job_object("ray.io/v1", "RayJob", {"clusterSelector": {"ray.io/cluster": "shared"}})
    assert table.read(document).roles == ()
    assert table.hold_at_creation(document) == []


def test_a_job_whose_cluster_outlives_it_cannot_be_born_held() -> None:
    with pytest.raises(UserError, match=r"^RayJob team/train: .* set spec\.shutdownAfterJobFinishes to true$"):
        table.hold_at_creation(job_with(shutdownAfterJobFinishes=False))


@pytest.mark.parametrize(
    ("group", "count"),
    [
        ({"replicas": 3, "minReplicas": 1, "maxReplicas": 2}, 2),
        ({"minReplicas": 2}, 2),
        ({"replicas": 0}, 0),
        ({"replicas": 2, "suspend": True}, 0),
        ({"replicas": 2, "numOfHosts": 0}, 2),
    ],
)
def test_a_worker_group_counts_as_kuberay_counts_it(group: Any, count: int) -> None:
    spec = {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": [{"template": template(), **group}]}
    roles = table.read(job_object("ray.io/v1", "RayCluster", spec)).roles
    assert sum(role.count for role in roles if role.name != "head") == count


@pytest.mark.parametrize(
    ("is_suspended", "deployment", "job", "state"),
    [
        (True, "", "", "HELD"),
        (True, "Suspended", "", "HELD"),
        (True, "Suspending", "RUNNING", "LEAVING"),
        (True, "Running", "RUNNING", "LEAVING"),
        (False, "Suspended", "", "LET_GO"),
        (False, "Complete", "SUCCEEDED", "SUCCEEDED"),
        (False, "Complete", "FAILED", "FAILED"),
        (False, "Complete", "STOPPED", "FAILED"),
        (False, "Failed", "FAILED", "FAILED"),
        (False, "Retrying", "FAILED", "LET_GO"),
    ],
)
def test_the_state_of_a_job_follows_from_its_status(is_suspended: bool, deployment: str, job: str, state: str) -> None:
    status = {"jobDeploymentStatus": deployment, "jobStatus": job}
    assert table.read(job_object(*with_suspend("rayjob", is_suspended), status)).state is JobState[state]


SUSPENDED, RESUMED = condition("RayClusterSuspended"), condition("RayClusterSuspended", "False")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "HELD"),
        ({"observedGeneration": 1}, "LEAVING"),  # its pods are not all ready yet
        ({"state": "suspended", "observedGeneration": 2}, "HELD"),
        ({"state": "ready", "observedGeneration": 1}, "LEAVING"),
        ({"state": "suspended", "observedGeneration": 2, "conditions": [SUSPENDED]}, "HELD"),
        ({"state": "suspended", "observedGeneration": 3, "conditions": [RESUMED]}, "LEAVING"),  # it was resumed since
    ],
)
def test_the_state_of_a_cluster_follows_from_its_status(status: Any, state: str) -> None:
    assert table.read(job_object(*with_suspend("raycluster"), status)).state is JobState[state]


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
def test_a_cluster_of_a_job_or_a_service_has_no_turn_of_its_own(kind: str) -> None:
    document = job_object(*RAY_CLUSTER, ownerReferences=[owner("ray.io/v1", kind, "owner")])
    assert table.read(document).manager == JobName("ray.io", kind, "team", "owner")
