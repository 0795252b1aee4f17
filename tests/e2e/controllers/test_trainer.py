"""TrainJobs of Kubeflow's Trainer, which makes JobSets and PodGroups of scheduler-plugins of them."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import JOBSET, TRAINER
from tests.e2e.controllers.site import GPU, SCHEDULER, Site
from tests.e2e.plane import ControlPlane
from tests.e2e.tools import controller_source

RUNTIME = "torch-distributed"
SHIPPED = "manifests/base/runtimes/torch_distributed.yaml"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def controller(plane: ControlPlane, podgroup_kinds: None) -> Iterator[None]:
    """The controllers of JobSets and of TrainJobs, and the latter's own runtime, for gangs of our scheduler."""
    with installed(plane, JOBSET), installed(plane, TRAINER):
        runtime = yaml.safe_load((controller_source(TRAINER.module) / SHIPPED).read_text())
        runtime["spec"]["podGroupPolicy"] = {"coscheduling": {"scheduleTimeoutSeconds": 120}}
        (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        job["template"]["spec"]["backoffLimit"] = 0
        job["template"]["spec"]["template"]["spec"] |= {"schedulerName": SCHEDULER, "restartPolicy": "Never"}
        plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump(runtime))
        yield
        plane.kubectl("delete", "clustertrainingruntime", RUNTIME)


@pytest.fixture
def site(shared_site: Site, controller: None) -> Iterator[Site]:
    """A site without jobs, before and after."""
    yield shared_site
    shared_site.clean(("trainjobs.trainer.kubeflow.org",))


def train_job(nodes: int, **spec: Any) -> Json:
    """A TrainJob on so many whole nodes."""
    trainer = {"numNodes": nodes, "resourcesPerNode": {"limits": {GPU: "4"}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train"},
        "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": trainer, **spec},
    }


def test_the_nodes_of_a_train_job_start_whole_or_not_at_all(site: Site) -> None:
    site.block("rival-1", "rival-2")
    site.create(train_job(3))
    assert site.bound_while_waiting("train-", 3) == []
    site.unblock("rival-1")
    site.await_whole("train-", 3)


def test_a_suspended_train_job_has_no_cells_until_it_is_resumed(site: Site) -> None:
    site.create(train_job(3, suspend=True))
    site.until(lambda: site.plane.kubectl("get", "jobsets", "-o", "name").stdout, "its JobSet")
    assert not site.pods("train-")
    site.patch("trainjob", "train", {"spec": {"suspend": False}})
    site.await_whole("train-", 3)
    site.patch("trainjob", "train", {"spec": {"suspend": True}})
    site.until(lambda: not site.observer.present() and not site.used(), "all cells to be free")
    site.patch("trainjob", "train", {"spec": {"suspend": False}})
    site.await_whole("train-", 3)


def test_a_train_job_that_fails_frees_its_cells(site: Site) -> None:
    site.create(train_job(3))
    site.fail(site.await_whole("train-", 3)[1].name)
    site.until(lambda: not site.used(), "all cells to be free")
    text = "jsonpath={.status.conditions[?(@.type=='Failed')].status}"
    site.until(lambda: site.plane.kubectl("get", "trainjob", "train", "-o", text).stdout == "True", "the failure")
    assert not site.used()
