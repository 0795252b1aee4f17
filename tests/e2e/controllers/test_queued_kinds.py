"""Job objects held back and let go by the calls that queues make, each beside its own controller."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import JOBSET, TRAINER, TRAINING_OPERATOR
from tests.e2e.controllers.queued import COUNT, COURSE, named, owners_of_pods, take_its_course
from tests.e2e.controllers.racks import GPU, SCHEDULER, Racks, container, template
from tests.e2e.plane import ControlPlane
from tests.e2e.tools import controller_source

RUNTIME = "torch-distributed"
SHIPPED = "manifests/base/runtimes/torch_distributed.yaml"
JOB_SETS = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def controllers(plane: ControlPlane, podgroup_kinds: None) -> Iterator[None]:
    """The controllers of JobSets, of TrainJobs with a runtime, and of Kubeflow's jobs."""
    with installed(plane, JOBSET), installed(plane, TRAINER), installed(plane, TRAINING_OPERATOR):
        runtime = yaml.safe_load((controller_source(TRAINER.name, TRAINER.module) / SHIPPED).read_text())
        (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        job["template"]["spec"]["template"]["spec"] |= {"schedulerName": SCHEDULER, "restartPolicy": "Never"}
        plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump(runtime))
        yield
        plane.kubectl("delete", "clustertrainingruntime", RUNTIME)


@pytest.fixture
def racks(shared_racks: Racks, controllers: None) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield shared_racks
    shared_racks.clean(
        ("trainjobs.trainer.kubeflow.org", "jobsets.jobset.x-k8s.io", "pytorchjobs.kubeflow.org", "jobs.batch")
    )


def batch_job() -> Json:
    """A Job of Kubernetes."""
    made = template()
    made["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"parallelism": COUNT, "completions": COUNT, "template": made},
    }


def job_set() -> Json:
    """A JobSet of one Job."""
    workers = {"name": "workers", "replicas": 1, "template": {"spec": batch_job()["spec"]}}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [workers]}}


def pytorch_job() -> Json:
    """A PyTorchJob of a master and a worker."""
    made = {"spec": {"schedulerName": SCHEDULER, "containers": [container("pytorch")]}}
    roles = {name: {"replicas": 1, "restartPolicy": "OnFailure", "template": made} for name in ("Master", "Worker")}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": roles}}


def train_job() -> Json:
    """A TrainJob on whole nodes."""
    trainer = {"numNodes": COUNT, "resourcesPerNode": {"limits": {GPU: "4"}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": trainer},
    }


@pytest.mark.parametrize("make", [batch_job, job_set, pytorch_job, train_job], ids=lambda make: make.__name__)
def test_a_job_is_born_held_let_go_and_called_back(racks: Racks, make: Any) -> None:
    assert take_its_course(racks, named(make())) == COURSE


@pytest.mark.parametrize("make", [batch_job, job_set, pytorch_job, train_job], ids=lambda make: make.__name__)
def test_its_pods_belong_to_it(racks: Racks, make: Any) -> None:
    document = named(make())
    assert owners_of_pods(racks, document, (JOB_SETS,) if make is train_job else ()) == [f"{document['kind']}/train"]
