"""Job objects held back and let go by the calls that queues make, each beside its own controller."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hived_extender.job_kinds import kinds
from hived_extender.job_kinds.job import Job, JobState
from hived_extender.job_kinds.owners import job_of
from hived_extender.job_kinds.writes import Verb, Write, path_of
from hived_extender.pods.wire import Pod
from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import JOBSET, TRAINER, TRAINING_OPERATOR
from tests.e2e.controllers.racks import GPU, SCHEDULER, Racks, container, template
from tests.e2e.plane import ControlPlane
from tests.e2e.tools import controller_source

RUNTIME = "torch-distributed"
SHIPPED = "manifests/base/runtimes/torch_distributed.yaml"
COUNT = 2
KEPT = {"example.com/kept": "yes"}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def controllers(plane: ControlPlane, podgroup_kinds: None) -> Iterator[None]:
    """The controllers of JobSets, of TrainJobs with a runtime, and of Kubeflow's jobs."""
    with installed(plane, JOBSET), installed(plane, TRAINER), installed(plane, TRAINING_OPERATOR):
        runtime = yaml.safe_load((controller_source(TRAINER.module) / SHIPPED).read_text())
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


def patched(document: Json) -> Json:
    """The object as the webhook has it stored."""
    for operation in kinds.hold_at_creation(document):
        *outer, key = operation["path"].removeprefix("/").split("/")
        target = document
        for each in outer:
            target = target[each]
        target[key] = operation["value"]
    return document


def found(racks: Racks, document: Json) -> Json:
    """The object as its controller has it now."""
    kind = kinds.kind_of(document)
    return racks.plane.kube.get(path_of(document["apiVersion"], kind.plural, "default", "train"))


def read(racks: Racks, document: Json) -> Job:
    """The job of that object."""
    return kinds.read(found(racks, document))


def carry_out(racks: Racks, writes: tuple[Write, ...]) -> None:
    """Make calls of these kinds, which are merge patches all."""
    for write in writes:
        assert write.verb is Verb.PATCH
        racks.plane.kube.patch(write.path, write.body)


@pytest.mark.parametrize("make", [batch_job, job_set, pytorch_job, train_job], ids=lambda make: make.__name__)
def test_a_job_is_born_held_let_go_and_called_back(racks: Racks, make: Any) -> None:
    document = patched({**make(), "metadata": {"name": "train", "namespace": "default"}})
    racks.create(document)
    racks.until(lambda: "status" in found(racks, document), "its controller to have seen it")
    assert read(racks, document).state is JobState.HELD
    assert racks.pods("train") == []
    carry_out(racks, kinds.resume(read(racks, document).ref, KEPT))
    racks.until(lambda: len(racks.bound("train")) == COUNT, "its pods to run")
    assert read(racks, document).state is JobState.LET_GO
    carry_out(racks, kinds.suspend(read(racks, document).ref, KEPT))
    racks.until(lambda: not racks.observer.present() and not racks.used(), "all cells to be free")
    racks.until(lambda: read(racks, document).state is JobState.HELD, "its controller to say that no pod is left")
    carry_out(racks, kinds.resume(read(racks, document).ref, KEPT))
    racks.until(lambda: len(racks.bound("train")) == COUNT, "its pods to run again")
    assert found(racks, document)["metadata"]["annotations"]["example.com/kept"] == "yes"
    assert racks.faults() == []


@pytest.mark.parametrize("make", [batch_job, job_set, pytorch_job, train_job], ids=lambda make: make.__name__)
def test_its_pods_belong_to_it(racks: Racks, make: Any) -> None:
    document = {**make(), "metadata": {"name": "train", "namespace": "default"}}
    racks.create(document)
    racks.until(lambda: len(racks.pods("train")) == COUNT, "its pods to be there")
    job = read(racks, document)
    made = (
        found(racks, {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"} | {"metadata": {}})
        if job.roles_in
        else None
    )
    assert sum(role.count for role in kinds.read(found(racks, document), made).roles) == COUNT
    manager = {} if made is None else {kinds.read(made).ref.job_name: job.ref.job_name}
    for one in racks.plane.kube.list_objects("/api/v1/namespaces/default/pods", Pod).items:
        name = job_of(one.labels, one.metadata.owners or (), "default")
        assert name is not None
        assert kinds.unit_of(name, manager) == job.ref.job_name
