"""Queues at work beside the controllers of KubeRay and of JobSets: jobs wait, start, and are called back."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_extender.jobs.job import JobState
from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import JOBSET, KUBERAY
from tests.e2e.controllers.queued import named, read, runs
from tests.e2e.controllers.racks import RACK, Racks, running_racks, template
from tests.e2e.controllers.test_queued_kinds import job_set, ray_cluster, ray_job
from tests.e2e.plane import ControlPlane

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
PRIORITY = "hivedscheduler.microsoft.com/priority"
NODES = 4
"""Of the virtual cluster."""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def queues(plane: ControlPlane, podgroup_kinds: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    """Racks whose jobs wait in queues, and the controllers."""
    with (
        installed(plane, JOBSET),
        installed(plane, KUBERAY),
        running_racks(plane, tmp_path_factory.mktemp("racks"), rules=2, queues={"enabled": True}) as racks,
    ):
        yield racks


@pytest.fixture
def racks(queues: Racks) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield queues
    queues.clean(("rayjobs.ray.io", "rayclusters.ray.io", "jobsets.jobset.x-k8s.io", "jobs.batch"))


def held(document: Json, **annotations: str) -> Json:
    """The object as its author creates it suspended."""
    made = named(document)
    made["metadata"]["annotations"] = annotations
    return {**made, "spec": made["spec"] | {"suspend": True}}


def urgent(pods: int) -> Json:
    """A Job on so many nodes that goes before all others."""
    made = template(annotations={PRIORITY: "100"})
    made["spec"]["restartPolicy"] = "Never"
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "urgent"}, "spec": spec}


@pytest.mark.parametrize("make", [ray_cluster, ray_job, job_set], ids=lambda make: make.__name__)
def test_a_job_waits_for_its_turn_and_comes_back_after_one_of_higher_priority(racks: Racks, make: Any) -> None:
    racks.block("one", "two", "three")
    document = held(make())
    racks.create(document)
    racks.until(lambda: read(racks, document).state is JobState.HELD, "it to be held")
    assert racks.bound_while_waiting("train", 0) == []
    racks.unblock("one", "two", "three")
    racks.until(lambda: runs(racks), "its pods to run")
    racks.create(urgent(NODES))
    racks.until(lambda: len(racks.bound("urgent")) == NODES, "the urgent job to run")
    racks.until(lambda: read(racks, document).state is JobState.HELD, "the other one to be held again")
    assert racks.pods("train") == []
    racks.delete("job", "urgent")
    racks.until(lambda: runs(racks), "it to run again")
    assert racks.faults() == []


def test_a_job_set_of_one_job_with_exclusive_placement_starts_in_the_rack_that_was_held(racks: Racks) -> None:
    document = held(job_set(), **{EXCLUSIVE: RACK})
    racks.create(document)
    racks.until(lambda: runs(racks), "its pods to run")
    assert len(racks.racks_of("train")) == 1
    assert racks.faults() == []


def test_one_whose_jobs_ask_for_a_domain_each_waits_until_it_is_in_no_queue(racks: Racks) -> None:
    made = job_set()
    made["spec"]["replicatedJobs"][0]["replicas"] = 2
    racks.create(held(made, **{EXCLUSIVE: RACK}))
    assert racks.bound_while_waiting("train", 0) == []
    off = {"hivedscheduler.microsoft.com/queue": "off"}
    racks.patch("jobset", "train", {"metadata": {"annotations": off}, "spec": {"suspend": False}})
    racks.until(lambda: len(racks.bound("train")) == NODES, "its pods to run")
    assert len(racks.racks_of("train")) == 2
    assert racks.faults() == []
