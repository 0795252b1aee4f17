"""Kinds that keep so many pods of each template: what their stand-in controllers make, and make anew."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from hived_extender.kube.client import KubeClient
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.job_controllers import JobControllers
from tests.expecting import expect_soon
from tests.lab.embedded.helpers import api_server

POD: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
STATEFUL = "/apis/apps/v1/namespaces/{}/statefulsets"
GROUPS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets"
CLUSTERS, RAY_JOBS = "/apis/ray.io/v1/namespaces/{}/rayclusters", "/apis/ray.io/v1/namespaces/{}/rayjobs"
CLUSTER = {
    "headGroupSpec": {"template": POD},
    "workerGroupSpecs": [{"groupName": "gpu", "replicas": 2, "template": POD}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server with controllers; tests play the kubelet."""
    with api_server() as running:
        running.spawn(JobControllers(running.registry).run)
        yield running


class Objects:
    """The objects of a namespace."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace

    def create(self, path: str, spec: dict[str, Any], name: str = "x") -> None:
        self.kube.create(path.format(self.namespace), {"metadata": {"name": name}, "spec": spec})

    def status(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kube.get(f"{path.format(self.namespace)}/x").get("status", {})
        return found

    def change(self, path: str, spec: dict[str, Any]) -> None:
        self.kube.patch(f"{path.format(self.namespace)}/x", {"spec": spec})

    def pods(self) -> dict[str, dict[str, Any]]:
        listed = self.kube.list_objects(f"/api/v1/namespaces/{self.namespace}/pods", dict).items
        return {pod["metadata"]["name"]: pod for pod in listed if "deletionTimestamp" not in pod["metadata"]}

    def expect(self, *names: str) -> None:
        expect_soon(lambda: sorted(self.pods()) == sorted(names))

    def turn(self, phase: str, *names: str) -> None:
        for name in names:
            path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
            self.kube.patch(path, {"status": {"phase": phase}})


@pytest.fixture
def objects(server: ApiServer, namespace: str) -> Iterator[Objects]:
    with closing(KubeClient.connect(server.url)) as kube:
        yield Objects(kube, namespace)


def test_a_stateful_set_has_one_pod_after_the_other_and_makes_a_lost_one_anew(objects: Objects) -> None:
    objects.create(STATEFUL, {"replicas": 2, "template": POD})
    objects.expect("x-0")
    objects.turn("Running", "x-0")
    objects.expect("x-0", "x-1")
    objects.turn("Running", "x-1")
    expect_soon(lambda: objects.status(STATEFUL).get("readyReplicas") == 2)
    before = objects.pods()["x-0"]["metadata"]["uid"]
    objects.turn("Failed", "x-0")
    expect_soon(lambda: objects.pods().get("x-0", {}).get("metadata", {}).get("uid", before) != before)
    objects.turn("Running", "x-0")
    objects.change(STATEFUL, {"replicas": 1})
    objects.expect("x-0")
    objects.kube.delete(f"{STATEFUL.format(objects.namespace)}/x")
    objects.expect()


def test_pods_of_a_parallel_stateful_set_come_together(objects: Objects) -> None:
    objects.create(STATEFUL, {"replicas": 2, "template": POD, "podManagementPolicy": "Parallel"})
    objects.expect("x-0", "x-1")


def test_a_group_of_leader_and_workers_goes_and_comes_as_a_whole(objects: Objects) -> None:
    objects.create(GROUPS, {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": POD}})
    objects.expect("x-0", "x-0-1", "x-1", "x-1-1")
    pods = objects.pods()
    env = {one["name"]: one["value"] for one in pods["x-1-1"]["spec"]["containers"][0]["env"]}
    assert env["LWS_LEADER_ADDRESS"] == f"x-1.x.{objects.namespace}"
    assert (env["LWS_GROUP_SIZE"], env["LWS_WORKER_INDEX"]) == ("2", "1")
    objects.turn("Running", *pods)
    expect_soon(lambda: objects.status(GROUPS).get("readyReplicas") == 2)
    objects.turn("Failed", "x-1")
    expect_soon(lambda: is_new(objects, pods, "x-1") and is_new(objects, pods, "x-1-1"))
    assert not is_new(objects, pods, "x-0")


def is_new(objects: Objects, before: dict[str, dict[str, Any]], name: str) -> bool:
    pod = objects.pods().get(name)
    return pod is not None and pod["metadata"]["uid"] != before[name]["metadata"]["uid"]


def test_a_ray_cluster_that_is_suspended_has_no_pods(objects: Objects) -> None:
    objects.create(CLUSTERS, CLUSTER)
    objects.expect("x-head", "x-gpu-0", "x-gpu-1")
    objects.turn("Running", *objects.pods())
    expect_soon(lambda: objects.status(CLUSTERS).get("state") == "ready")
    objects.change(CLUSTERS, {"suspend": True})
    objects.expect()
    expect_soon(lambda: objects.status(CLUSTERS).get("state") == "suspended")


@pytest.mark.parametrize(("phase", "status"), [("Succeeded", "Complete"), ("Failed", "Failed")])
def test_a_ray_job_ends_as_its_submitter(phase: str, status: str, objects: Objects) -> None:
    objects.create(RAY_JOBS, {"rayClusterSpec": CLUSTER, "suspend": True, "shutdownAfterJobFinishes": True})
    expect_soon(lambda: objects.status(RAY_JOBS).get("jobDeploymentStatus") == "Suspended")
    objects.change(RAY_JOBS, {"suspend": False})
    objects.expect("x-head", "x-gpu-0", "x-gpu-1")
    objects.turn("Running", *objects.pods())
    objects.expect("x-head", "x-gpu-0", "x-gpu-1", "x-submitter")
    objects.turn(phase, "x-submitter")
    expect_soon(lambda: objects.status(RAY_JOBS).get("jobDeploymentStatus") == status)
    objects.expect("x-submitter")


def test_a_ray_job_ends_at_its_limit(objects: Objects) -> None:
    objects.create(RAY_JOBS, {"rayClusterSpec": CLUSTER, "activeDeadlineSeconds": 1})
    expect_soon(lambda: objects.status(RAY_JOBS).get("reason") == "DeadlineExceeded")
    objects.expect()


REPLICAS, DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/replicasets", "/apis/apps/v1/namespaces/{}/deployments"
SERVICES = "/apis/ray.io/v1/namespaces/{}/rayservices"
TRAIN_JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"


def count_is(objects: Objects, count: int) -> None:
    expect_soon(lambda: len(objects.pods()) == count)


def test_a_replica_set_keeps_so_many_pods(objects: Objects) -> None:
    objects.create(REPLICAS, {"replicas": 2, "template": POD})
    count_is(objects, 2)
    first = next(iter(objects.pods().values()))["metadata"]
    objects.turn("Failed", first["name"])
    expect_soon(
        lambda: objects.pods().get(first["name"], {}).get("metadata", {}).get("uid") not in (None, first["uid"])
    )
    objects.change(REPLICAS, {"replicas": 1})
    count_is(objects, 1)


def test_a_deployment_keeps_one_replica_set_which_goes_with_its_template(objects: Objects) -> None:
    objects.create(DEPLOYMENTS, {"replicas": 2, "template": POD})
    count_is(objects, 2)
    before = {pod["metadata"]["uid"] for pod in objects.pods().values()}
    objects.change(DEPLOYMENTS, {"replicas": 3})
    count_is(objects, 3)
    assert before < {pod["metadata"]["uid"] for pod in objects.pods().values()}
    objects.turn("Running", *objects.pods())
    expect_soon(lambda: objects.status(DEPLOYMENTS).get("readyReplicas") == 3)
    objects.change(DEPLOYMENTS, {"template": {"spec": {"containers": [{"name": "main", "image": "y"}]}}})
    expect_soon(lambda: {pod["spec"]["containers"][0]["image"] for pod in objects.pods().values()} == {"y"})
    count_is(objects, 3)
    objects.kube.delete(f"{DEPLOYMENTS.format(objects.namespace)}/x")
    count_is(objects, 0)
    assert objects.kube.get(REPLICAS.format(objects.namespace))["items"] == []


def test_a_ray_service_has_a_ray_cluster_which_goes_with_it(objects: Objects) -> None:
    objects.create(SERVICES, {"rayClusterConfig": CLUSTER})
    count_is(objects, 3)
    objects.turn("Running", *objects.pods())
    expect_soon(lambda: objects.status(SERVICES).get("serviceStatus") == "Running")
    objects.kube.delete(f"{SERVICES.format(objects.namespace)}/x")
    count_is(objects, 0)


def test_a_train_job_is_suspended_and_ends_with_its_job_set(objects: Objects) -> None:
    trainer = {"numNodes": 2, "image": "y", "resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}}}
    objects.create(TRAIN_JOBS, {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, "suspend": True})
    expect_soon(lambda: objects.kube.get(JOB_SETS.format(objects.namespace))["items"])
    count_is(objects, 0)
    objects.change(TRAIN_JOBS, {"suspend": False})
    count_is(objects, 2)
    assert {pod["spec"]["containers"][0]["image"] for pod in objects.pods().values()} == {"y"}
    objects.turn("Succeeded", *objects.pods())
    expect_soon(lambda: conditions(objects, TRAIN_JOBS)["Complete"] == "True")
    assert conditions(objects, TRAIN_JOBS)["Suspended"] == "False"


def conditions(objects: Objects, path: str) -> dict[str, str]:
    return {"Complete": "", **{one["type"]: one["status"] for one in objects.status(path).get("conditions", ())}}
