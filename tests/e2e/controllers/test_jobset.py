"""JobSets with their own controller: gangs, exclusive placement, restarts after failures, suspension."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_lab.embedded.nodes import STOP_SECONDS
from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import JOBSET
from tests.e2e.controllers.racks import RACK, Racks, template
from tests.e2e.plane import ControlPlane

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOB = "batch.kubernetes.io/job-name"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def controller(plane: ControlPlane) -> Iterator[None]:
    """The controller of JobSets."""
    with installed(plane, JOBSET):
        yield


@pytest.fixture
def racks(shared_racks: Racks, controller: None) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield shared_racks
    shared_racks.clean(("jobsets.jobset.x-k8s.io",))


def gang_labels(name: str, minimum: int) -> dict[str, str]:
    """The labels of coscheduling that go with any controller."""
    prefix = "pod-group.scheduling.sigs.k8s.io"
    return {f"{prefix}/name": name, f"{prefix}/min-available": str(minimum)}


def replicated(name: str, pods: int, *, jobs: int = 1, gpus: int = 4, **metadata: Any) -> Json:
    """A replicated job of so many pods each; a failed pod fails its job."""
    made = template(gpus, **metadata)
    made["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": made}
    return {"name": name, "replicas": jobs, "template": {"spec": spec}}


def job_set(name: str, *jobs: Json, annotations: Json | None = None, **spec: Any) -> Json:
    """A JobSet."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def driver_and_workers(name: str, **spec: Any) -> Json:
    """A gang of a driver with one GPU and three workers with a node each."""
    labels = gang_labels(name, 4)
    driver, workers = replicated("driver", 1, gpus=1, labels=labels), replicated("workers", 3, labels=labels)
    return job_set(name, driver, workers, **spec)


def test_a_driver_and_its_workers_start_whole_or_not_at_all(racks: Racks) -> None:
    racks.block("rival")
    racks.create(driver_and_workers("train"))
    assert racks.bound_while_waiting("train-", 4) == []
    racks.unblock("rival")
    racks.await_whole("train-", 4)


def test_a_job_set_that_restarts_after_a_failure_starts_whole_again(racks: Racks) -> None:
    document = driver_and_workers("train", failurePolicy={"maxRestarts": 2})
    for job in document["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["metadata"]["annotations"] = {STOP_SECONDS: "5"}
    racks.create(document)
    before = {one.uid for one in racks.await_whole("train-", 4)}
    racks.fail(racks.pods("train-workers-0-1")[0].name)
    racks.until(lambda: racks.pods("train-") and not before & {one.uid for one in racks.pods("train-")}, "new pods")
    after = racks.await_whole("train-", 4)
    assert {one.labels["jobset.sigs.k8s.io/restart-attempt"] for one in after} == {"1"}


def test_a_suspended_job_set_has_no_cells_until_it_is_resumed(racks: Racks) -> None:
    racks.create(driver_and_workers("train", suspend=True))
    racks.until(lambda: racks.plane.kubectl("get", "jobs", "-o", "name").stdout, "jobs to be there")
    assert not racks.pods("train-")
    racks.patch("jobset", "train", {"spec": {"suspend": False}})
    racks.await_whole("train-", 4)
    racks.patch("jobset", "train", {"spec": {"suspend": True}})
    racks.until(lambda: not racks.observer.present() and not racks.used(), "all cells to be free")
    racks.patch("jobset", "train", {"spec": {"suspend": False}})
    racks.await_whole("train-", 4)


def test_a_job_set_that_ends_frees_its_cells(racks: Racks) -> None:
    racks.create(job_set("train", replicated("workers", 2, labels=gang_labels("train", 2))))
    for one in racks.await_whole("train-", 2):
        racks.fail(one.name, code=0)
    racks.until(lambda: not racks.used(), "all cells to be free")
    text = "jsonpath={.status.terminalState}"
    racks.until(lambda: racks.plane.kubectl("get", "jobset", "train", "-o", text).stdout == "Completed", "the end")
    assert not racks.used()


@pytest.mark.parametrize("has_gang", [False, True], ids=["without a gang", "as a gang"])
def test_jobs_with_exclusive_placement_have_a_rack_each(racks: Racks, has_gang: bool) -> None:
    """The pods of a job but for the first are admitted only once that has a node."""
    labels = gang_labels("train", 4) if has_gang else {}
    workers = replicated("workers", 2, jobs=2, labels=labels)
    racks.create(job_set("train", workers, annotations={EXCLUSIVE: RACK}))
    racks.until(lambda: len(racks.bound("train-workers-")) == 4, "all pods to have nodes")
    first, second = racks.racks_of("train-workers-0-"), racks.racks_of("train-workers-1-")
    assert len(first) == len(second) == 1
    assert first != second
    assert racks.faults() == []


def test_a_job_set_with_exclusive_placement_takes_no_rack_where_another_runs(racks: Racks) -> None:
    """There is room beside the first, but not for both pods of the second job on a rack of its own."""
    racks.create(job_set("first", replicated("workers", 2, gpus=1), annotations={EXCLUSIVE: RACK}))
    racks.until(lambda: len(racks.bound("first-")) == 2, "the first job to run")
    racks.create(job_set("second", replicated("workers", 2, gpus=1), annotations={EXCLUSIVE: RACK}))
    racks.until(lambda: len(racks.bound("second-")) == 2, "the second job to run")
    assert not racks.racks_of("first-") & racks.racks_of("second-")
    racks.create(job_set("third", replicated("workers", 2, gpus=1), annotations={EXCLUSIVE: RACK}))
    assert racks.bound_while_waiting("third-", 1) == []
    racks.delete("jobset", "first")
    racks.until(lambda: len(racks.bound("third-")) == 2, "the third job to run")
    assert not racks.racks_of("second-") & racks.racks_of("third-")
    assert racks.faults() == []
