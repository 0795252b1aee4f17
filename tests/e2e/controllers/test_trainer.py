"""TrainJobs of Kubeflow's Trainer, which makes JobSets and PodGroups of scheduler-plugins of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import JOBSET, TRAINER
from tests.e2e.controllers.racks import GPU, SCHEDULER, Racks
from tests.e2e.plane import ControlPlane
from tests.e2e.tools import controller_source

RUNTIME = "torch-distributed"
SHIPPED = "manifests/base/runtimes/torch_distributed.yaml"

Json = dict[str, Any]


@contextmanager
def training_runtime(plane: ControlPlane, policy: Json | None = None, **of_job: Any) -> Iterator[None]:
    """The runtime that the project ships, for our scheduler; `of_job` are more keys of its job."""
    runtime = yaml.safe_load((controller_source(TRAINER.name, TRAINER.module) / SHIPPED).read_text())
    if policy is not None:
        runtime["spec"]["podGroupPolicy"] = policy
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"] |= of_job
    job["template"]["spec"]["template"]["spec"] |= {"schedulerName": SCHEDULER, "restartPolicy": "Never"}
    plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump(runtime))
    yield
    plane.kubectl("delete", "clustertrainingruntime", RUNTIME)


@pytest.fixture(scope="module")
def controller(plane: ControlPlane, podgroup_kinds: None) -> Iterator[None]:
    """The controllers of JobSets and of TrainJobs, and the latter's own runtime, for gangs of our scheduler."""
    gangs = {"coscheduling": {"scheduleTimeoutSeconds": 120}}
    with installed(plane, JOBSET), installed(plane, TRAINER), training_runtime(plane, gangs, backoffLimit=0):
        yield


@pytest.fixture
def racks(shared_racks: Racks, controller: None) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield shared_racks
    shared_racks.clean(("trainjobs.trainer.kubeflow.org",))


def train_job(nodes: int, **spec: Any) -> Json:
    """A TrainJob on so many whole nodes."""
    trainer = {"numNodes": nodes, "resourcesPerNode": {"limits": {GPU: "4"}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train"},
        "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": trainer, **spec},
    }


def test_the_nodes_of_a_train_job_start_whole_or_not_at_all(racks: Racks) -> None:
    racks.block("rival-1", "rival-2")
    racks.create(train_job(3))
    assert racks.bound_while_waiting("train-", 3) == []
    racks.unblock("rival-1")
    racks.await_whole("train-", 3)


def test_a_suspended_train_job_has_no_cells_until_it_is_resumed(racks: Racks) -> None:
    racks.create(train_job(3, suspend=True))
    racks.until(lambda: racks.plane.kubectl("get", "jobsets", "-o", "name").stdout, "its JobSet")
    assert not racks.pods("train-")
    racks.patch("trainjob", "train", {"spec": {"suspend": False}})
    racks.await_whole("train-", 3)
    racks.patch("trainjob", "train", {"spec": {"suspend": True}})
    racks.until(lambda: not racks.observer.present() and not racks.used(), "all cells to be free")
    racks.patch("trainjob", "train", {"spec": {"suspend": False}})
    racks.await_whole("train-", 3)


def test_a_train_job_that_fails_frees_its_cells(racks: Racks) -> None:
    racks.create(train_job(3))
    racks.fail(racks.await_whole("train-", 3)[1].name)
    racks.until(lambda: not racks.used(), "all cells to be free")
    text = "jsonpath={.status.conditions[?(@.type=='Failed')].status}"
    racks.until(lambda: racks.plane.kubectl("get", "trainjob", "train", "-o", text).stdout == "True", "the failure")
    assert not racks.used()
