"""RayClusters and RayJobs held back and let go by the calls that queues make, beside KubeRay's operator.

No Ray runs in the pods, so a RayJob comes as far as its submission.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import KUBERAY
from tests.e2e.controllers.queued import COURSE, named, owners_of_pods, take_its_course
from tests.e2e.controllers.racks import Racks, template
from tests.e2e.plane import ControlPlane

RAY = "ray.io/v1"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, podgroup_kinds: None) -> Iterator[None]:
    """KubeRay's, without a batch scheduler."""
    with installed(plane, KUBERAY):
        yield


@pytest.fixture
def racks(shared_racks: Racks, operator: None) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield shared_racks
    shared_racks.clean(("rayjobs.ray.io", "rayclusters.ray.io", "jobs.batch"))


def cluster_spec() -> Json:
    """A head and a worker, each on a whole node."""
    workers = {"groupName": "gpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    return {
        "rayVersion": "2.52.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template(name="ray-head")},
        "workerGroupSpecs": [{**workers, "rayStartParams": {}, "template": template(name="ray-worker")}],
    }


def ray_cluster() -> Json:
    """A RayCluster."""
    return {"apiVersion": RAY, "kind": "RayCluster", "spec": cluster_spec()}


def ray_job() -> Json:
    """A RayJob with a cluster of its own."""
    spec = {"entrypoint": "python train.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster_spec()}
    return {"apiVersion": RAY, "kind": "RayJob", "spec": spec}


@pytest.mark.parametrize("make", [ray_cluster, ray_job], ids=lambda make: make.__name__)
def test_a_job_is_born_held_let_go_and_called_back(racks: Racks, make: Any) -> None:
    assert take_its_course(racks, named(make())) == COURSE


@pytest.mark.parametrize("make", [ray_cluster, ray_job], ids=lambda make: make.__name__)
def test_its_pods_belong_to_it(racks: Racks, make: Any) -> None:
    made = (
        ({"apiVersion": RAY, "kind": "RayCluster"}, {"apiVersion": "batch/v1", "kind": "Job"})
        if make is ray_job
        else ()
    )
    document = named(make())
    assert owners_of_pods(racks, document, made) == [f"{document['kind']}/train"]
