"""Job objects suspended and resumed by the calls that queues make, each beside its own controller.

No Ray runs in the pods, so a RayJob comes as far as its submission.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import JOBSET, KUBERAY, MPI_OPERATOR, TRAINER, TRAINING_OPERATOR
from tests.e2e.controllers.queued import COUNT, COURSE, named, owners_of_pods, take_its_course
from tests.e2e.controllers.racks import GPU, SCHEDULER, Racks, container, template
from tests.e2e.controllers.test_trainer import RUNTIME, training_runtime
from tests.e2e.plane import ControlPlane

RAY = "ray.io/v1"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def controllers(plane: ControlPlane, podgroup_kinds: None, request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """Controllers at work, TrainJobs' with a runtime; gives the kinds of their objects."""
    wanted, kinds = request.param
    with ExitStack() as stack:
        for each in wanted:
            stack.enter_context(installed(plane, each))
        if TRAINER in wanted:
            stack.enter_context(training_runtime(plane))
        yield kinds


@pytest.fixture
def racks(shared_racks: Racks, controllers: tuple[str, ...]) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield shared_racks
    shared_racks.clean((*controllers, "jobs.batch"))


def batch_job() -> Json:
    """A Job of Kubernetes."""
    made = template()
    made["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": COUNT, "completions": COUNT, "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}


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
    spec = {"runtimeRef": {"name": RUNTIME}, "trainer": trainer}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}


def ray_cluster() -> Json:
    """A RayCluster of a head and a worker, each on a whole node."""
    workers = {"groupName": "gpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    spec = {
        "rayVersion": "2.52.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template(name="ray-head")},
        "workerGroupSpecs": [{**workers, "rayStartParams": {}, "template": template(name="ray-worker")}],
    }
    return {"apiVersion": RAY, "kind": "RayCluster", "spec": spec}


def ray_job() -> Json:
    """A RayJob with a cluster of its own."""
    own = ray_cluster()["spec"]
    spec = {"entrypoint": "python train.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": own}
    return {"apiVersion": RAY, "kind": "RayJob", "spec": spec}


def mpi_job() -> Json:
    """A launcher with one device, and a worker on a whole node; of version v2beta1, without gangs of its operator."""
    roles = {
        "Launcher": {"replicas": 1, "template": template(1, name="launcher")},
        "Worker": {"replicas": 1, "template": template(name="worker")},
    }
    spec = {"slotsPerWorker": 4, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "spec": spec}


TRAINING = (
    (JOBSET, TRAINER, TRAINING_OPERATOR),
    ("trainjobs.trainer.kubeflow.org", "jobsets.jobset.x-k8s.io", "pytorchjobs.kubeflow.org"),
)
OF_RAY = (KUBERAY,), ("rayjobs.ray.io", "rayclusters.ray.io")
OF_MPI = (MPI_OPERATOR,), ("mpijobs.kubeflow.org",)
MADE: dict[Callable[[], Json], tuple[Any, tuple[Json, ...]]] = {
    batch_job: (TRAINING, ()),
    job_set: (TRAINING, ()),
    pytorch_job: (TRAINING, ()),
    train_job: (TRAINING, ({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"},)),
    ray_cluster: (OF_RAY, ()),
    ray_job: (OF_RAY, ({"apiVersion": RAY, "kind": "RayCluster"}, {"apiVersion": "batch/v1", "kind": "Job"})),
    mpi_job: (OF_MPI, ()),
}
"""By the function that makes an object: its controllers and their kinds, and the objects between it and its pods."""

each_kind = pytest.mark.parametrize(
    ("make", "controllers"),
    [pytest.param(make, given, id=make.__name__) for make, (given, _) in MADE.items()],
    indirect=["controllers"],
)


@each_kind
def test_a_job_is_created_suspended_resumed_and_suspended_again(racks: Racks, make: Callable[[], Json]) -> None:
    assert take_its_course(racks, named(make())) == COURSE


@each_kind
def test_its_pods_belong_to_it(racks: Racks, make: Callable[[], Json]) -> None:
    document = named(make())
    assert owners_of_pods(racks, document, MADE[make][1]) == [f"{document['kind']}/train"]
