"""Which job a pod belongs to: also by way of a job that another one has made."""

import pytest

from hived_extender.jobs.job import JobName
from hived_extender.jobs.kinds.marks import HOLD
from hived_extender.machine.stimuli import HoldState, JobsMade
from tests.extender.machine.small_jobs import SmallJobCluster, hold

INNER = JobName("batch", "Job", "ns", "inner")
OUTER = JobName("batch", "Job", "ns", "train")
IN_SET = {"jobset.sigs.k8s.io/jobset-name": "set"}


def owners(cluster: SmallJobCluster) -> list[JobName | None]:
    """The jobs of all pods."""
    with cluster.service.runner.look() as machine:
        return [record.job_object for record in machine.cache.pods]


def test_pods_of_a_job_that_another_one_has_made_get_the_cells_of_that() -> None:
    cluster = SmallJobCluster()
    cluster.held(hold(pods=1))
    cluster.tell(JobsMade({INNER: OUTER}))
    cluster.come("p", "inner")
    cluster.settle()
    assert cluster.state_of() == HoldState(1, 0, 1, 1)


def test_pods_that_were_there_before_their_maker_was_known_belong_to_it_then() -> None:
    cluster = SmallJobCluster()
    cluster.held(hold(pods=1))
    cluster.come("p", "inner")
    assert owners(cluster) == [INNER]
    cluster.tell(JobsMade({INNER: OUTER}))
    assert owners(cluster) == [OUTER]
    cluster.settle()
    assert cluster.state_of() == HoldState(1, 0, 1, 1)


def test_a_maker_is_known_until_its_last_pod_is_gone() -> None:
    cluster = SmallJobCluster()
    cluster.tell(JobsMade({INNER: OUTER}))
    pod = cluster.come("p", "inner")
    cluster.tell(JobsMade({INNER: None}))
    cluster.see(pod)
    assert owners(cluster) == [OUTER]
    cluster.service.pod_gone("uid-p")
    cluster.come("q", "inner")
    assert owners(cluster) == [INNER]


@pytest.mark.parametrize("is_known_before", [True, False])
def test_pods_belong_to_the_job_that_made_them_though_their_labels_name_another_one(is_known_before: bool) -> None:
    cluster, alone = SmallJobCluster(), JobName("batch", "Job", "ns", "set-more")
    made = [lambda: cluster.tell(JobsMade({alone: alone})), lambda: cluster.come("p", "set-more", **IN_SET)]
    for act in made if is_known_before else reversed(made):
        act()
    assert owners(cluster) == [alone]


@pytest.mark.parametrize("is_known_before", [True, False])
def test_pods_of_a_workload_of_kueue_have_its_cells_whatever_made_their_job(is_known_before: bool) -> None:
    cluster, alone = SmallJobCluster(), JobName("batch", "Job", "ns", "set-more")
    made = [
        lambda: cluster.tell(JobsMade({alone: alone})),
        lambda: cluster.come("p", "set-more", annotations={HOLD: "Workload/ns/train/uid"}, **IN_SET),
    ]
    for act in made if is_known_before else reversed(made):
        act()
    assert owners(cluster) == [JobName("kueue.x-k8s.io", "Workload", "ns", "train")]


def test_the_labels_of_a_pod_count_until_the_maker_of_its_job_is_known() -> None:
    cluster = SmallJobCluster()
    cluster.come("p", "set-workers-0", **IN_SET)
    assert owners(cluster) == [JobName("jobset.x-k8s.io", "JobSet", "ns", "set")]
