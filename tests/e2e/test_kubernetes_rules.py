"""kube-scheduler's refusal is final: taints, missing devices, those of others, volumes, rules between mates."""

import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from hived_extender.kube.client import PODS, KubeClient, KubeError, pod_path
from tests.e2e.cluster import RealCluster
from tests.e2e.machines import node_path
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import create
from tests.expecting import expect_soon

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
NODE_NAMES = [f"n{number}" for number in range(8)]
RACKS = (NODE_NAMES[:4], NODE_NAMES[4:])
HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Two racks of four nodes of eight GPUs, all of them VC default's."""
    document = {
        "physicalCluster": {
            "skuTypes": {"GPU": {"gpu": 1, "cpu": 1, "memory": "8Gi"}},
            "cellTypes": {
                "NODE": {"childCellType": "GPU", "childCellNumber": 8, "isNodeLevel": True},
                "RACK": {"childCellType": "NODE", "childCellNumber": 4},
            },
            "physicalCells": [
                {
                    "cellType": "RACK",
                    "cellAddress": f"rack-{number}",
                    "cellChildren": [{"cellAddress": n} for n in rack],
                }
                for number, rack in enumerate(RACKS)
            ],
        },
        "virtualClusters": {"default": {"virtualCells": [{"cellType": "RACK", "cellNumber": 2}]}},
    }
    file: Path = tmp_path_factory.mktemp("rules") / "hivedscheduler.yaml"
    file.write_text(yaml.safe_dump(document))
    with RealCluster(plane, file) as running:
        yield running


@pytest.fixture
def kube(cluster: RealCluster) -> Iterator[KubeClient]:
    """The API server of a cluster without pods, whose nodes are as they were."""
    yield cluster.kube
    expect_soon(lambda: _are_deleted(cluster.kube))
    for name in NODE_NAMES:
        cluster.kube.patch(node_path(name), {"spec": {"taints": None}})
        set_devices(cluster.kube, name, 8)


def _are_deleted(kube: KubeClient) -> bool:
    """Delete all pods; True if there are none. A deletion may cross a binding, and is asked for again."""
    pods = kube.list_objects(PODS, dict[str, Any]).items
    for pod in pods:
        with suppress(KubeError):
            kube.delete_pod(pod["metadata"]["namespace"], pod["metadata"]["name"], grace_period_s=0)
    return not pods


def taint(kube: KubeClient, *names: str) -> None:
    """Taint nodes, and wait until kube-scheduler has heard of the last one."""
    for name in names:
        kube.patch(node_path(name), {"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}})
    expect_soon(lambda: refuses_a_probe(kube, names[-1]))


def refuses_a_probe(kube: KubeClient, node: str) -> bool:
    """Does kube-scheduler keep a pod without devices off a node?"""
    create(kube, [gpu_pod("probe", 0, nodeSelector={HOSTNAME: node})])

    def decided() -> str:
        pod = kube.get(pod_path("default", "probe"))
        told = next((one for one in pod["status"].get("conditions") or () if one["type"] == "PodScheduled"), {})
        return str(pod["spec"].get("nodeName") or told.get("message") or "")

    found = expect_soon(decided)
    kube.delete_pod("default", "probe", grace_period_s=0)
    return found != node


def set_devices(kube: KubeClient, name: str, count: int) -> None:
    kube.patch(f"{node_path(name)}/status", {"status": {"allocatable": {GPU: str(count)}}})


def gpu_pod(name: str, gpus: int, *, gang: int = 0, labels: Json | None = None, **spec: Any) -> Json:
    """A pod that asks for GPUs as any pod does; `gang` is how many start together."""
    notes = {"gang.scheduling.koordinator.sh/name": "gang", "gang.scheduling.koordinator.sh/min-available": str(gang)}
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {
        "metadata": {"name": name, "annotations": notes if gang else {}, "labels": labels or {}},
        "spec": {
            "schedulerName": "hived",
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **spec,
        },
    }


def places(kube: KubeClient) -> dict[str, str]:
    """The node of each pod that has one."""
    found = kube.list_objects(PODS, dict[str, Any]).items
    return {one["metadata"]["name"]: one["spec"]["nodeName"] for one in found if one["spec"].get("nodeName")}


def run(kube: KubeClient, *pods: Json) -> dict[str, str]:
    """Create pods and wait until all have nodes; which these are."""
    create(kube, pods)
    names = {pod["metadata"]["name"] for pod in pods}
    expect_soon(lambda: names <= places(kube).keys())
    return {name: node for name, node in places(kube).items() if name in names}


def reason(kube: KubeClient, name: str) -> str:
    """The message of the pod's condition about its cells."""
    conditions = kube.get(pod_path("default", name))["status"].get("conditions") or ()
    return next((one["message"] for one in conditions if one["type"].endswith("CellsAllocated")), "")


def assert_waits(kube: KubeClient, name: str, *words: str) -> None:
    """The pod is told to wait, in these words, and stays so for a while."""
    expect_soon(lambda: all(word in reason(kube, name) for word in words))
    assert name not in places(kube)


@pytest.mark.parametrize("gang", [0, 4], ids=["singles", "gang"])
def test_pods_stay_off_tainted_nodes_and_find_all_others(kube: KubeClient, gang: int) -> None:
    tainted = [*RACKS[0][:2], *RACKS[1][:2]]
    taint(kube, *tainted)
    found = run(kube, *(gpu_pod(f"p{number}", 8, gang=gang) for number in range(4)))
    assert sorted(found.values()) == sorted(set(NODE_NAMES) - set(tainted))
    create(kube, [gpu_pod("fifth", 8)])
    assert_waits(kube, "fifth", "untolerated taint")
    for name in tainted[:1]:
        kube.patch(node_path(name), {"spec": {"taints": None}})
    expect_soon(lambda: places(kube).get("fifth") == tainted[0])


def test_a_pod_that_tolerates_a_taint_may_use_the_node(kube: KubeClient) -> None:
    taint(kube, *NODE_NAMES[1:])
    # One after the other: the tolerant pod may take any node, and so the only one that is left for the plain pod.
    assert run(kube, gpu_pod("plain", 8)) == {"plain": "n0"}
    assert run(kube, gpu_pod("hardy", 8, tolerations=[{"operator": "Exists"}]))["hardy"] != "n0"


def test_devices_that_a_node_lacks_are_given_to_nobody(kube: KubeClient) -> None:
    for name in NODE_NAMES[:4]:
        set_devices(kube, name, 7)
    for name in NODE_NAMES[4:7]:
        set_devices(kube, name, 0)
    assert run(kube, gpu_pod("whole", 8)) == {"whole": "n7"}
    parts = run(kube, *(gpu_pod(f"part-{number}", 4) for number in range(4)))
    assert set(parts.values()) <= set(NODE_NAMES[:4])
    create(kube, [gpu_pod("other", 8)])
    assert_waits(kube, "other")
    set_devices(kube, "n4", 8)
    expect_soon(lambda: places(kube).get("other") == "n4")


def test_devices_that_pods_of_others_use_are_given_to_nobody(kube: KubeClient) -> None:
    for number, name in enumerate(NODE_NAMES[:7]):
        create(kube, [gpu_pod(f"foreign-{number}", 1, schedulerName="default-scheduler", nodeName=name)])
    assert run(kube, gpu_pod("whole", 8)) == {"whole": "n7"}
    parts = run(kube, *(gpu_pod(f"part-{number}", 4) for number in range(7)))
    assert Counter(parts.values()) == Counter(NODE_NAMES[:7])
    create(kube, [gpu_pod("next", 8)])
    assert_waits(kube, "next")
    victim = next(name for name, node in parts.items() if node == "n3")
    kube.delete_pod("default", victim, grace_period_s=0)
    kube.delete_pod("default", "foreign-3", grace_period_s=0)
    expect_soon(lambda: places(kube).get("next") == "n3")


def test_a_pod_with_a_preset_node_occupies_its_devices(kube: KubeClient) -> None:
    create(kube, [gpu_pod("preset", 8, nodeName="n0")])
    found = run(kube, *(gpu_pod(f"p{number}", 8) for number in range(7)))
    assert sorted(found.values()) == NODE_NAMES[1:]


def test_a_pod_is_bound_where_its_volume_is(kube: KubeClient, cluster: RealCluster) -> None:
    storage = {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["n6"]}]}]
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "local": {"path": "/data"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }  # fmt: skip
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }  # fmt: skip
    claims, classes = "/api/v1/namespaces/default/persistentvolumeclaims", "/apis/storage.k8s.io/v1/storageclasses"
    try:
        kube.create(classes, storage)
        kube.create("/api/v1/persistentvolumes", volume)
        kube.create(claims, claim)
        expect_soon(lambda: kube.get("/api/v1/persistentvolumes/disk")["status"].get("phase") == "Available")
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        assert run(kube, gpu_pod("reader", 8, volumes=volumes)) == {"reader": "n6"}
        expect_soon(lambda: kube.get(f"{claims}/data")["status"].get("phase") == "Bound")
    finally:
        for path in (
            f"{claims}/data",
            "/api/v1/persistentvolumes/disk",
            f"{classes}/local",
        ):
            with suppress(KubeError):
                kube.delete(path)


RULES: dict[str, Json] = {
    "anti-affinity": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"job": "apart"}}}
                ]
            }
        }
    },
    "spread": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": HOSTNAME,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"job": "apart"}},
            }
        ]
    },
    "host ports": {
        "containers": [
            {
                "name": "main",
                "image": "none",
                "resources": {"limits": {GPU: "4"}},
                "ports": [{"containerPort": 7000, "hostPort": 7000}],
            }
        ]
    },
}


@pytest.mark.parametrize("gang", [0, 4], ids=["singles", "gang"])
@pytest.mark.parametrize("rule", RULES)
def test_pods_that_have_to_be_apart_are(kube: KubeClient, rule: str, gang: int) -> None:
    pods = [gpu_pod(f"p{number}", 4, gang=gang, labels={"job": "apart"}, **RULES[rule]) for number in range(4)]
    found = run(kube, *pods)
    assert len(set(found.values())) == 4


def test_nothing_of_all_this_is_bound_by_force(kube: KubeClient, cluster: RealCluster) -> None:
    run(kube, *(gpu_pod(f"p{number}", 2, gang=8) for number in range(8)))
    with urllib.request.urlopen(f"{cluster.url}/metrics", timeout=5) as answer:
        assert "hived_forced_bindings_total 0.0" in answer.read().decode()


def test_a_gang_that_is_created_anew_starts_whole(kube: KubeClient) -> None:
    pods = {f"p{number}": gpu_pod(f"p{number}", 8, gang=3, terminationGracePeriodSeconds=5) for number in range(3)}
    run(kube, *pods.values())
    for name in pods:
        kube.delete_pod("default", name)
    expect_soon(lambda: not places(kube))

    def all_run() -> bool:
        """kwok ends a pod by its name, and may be late: then it ends the new one."""
        there = {one["metadata"]["name"] for one in kube.list_objects(PODS, dict[str, Any]).items}
        create(kube, [pod for name, pod in pods.items() if name not in there])
        return pods.keys() <= places(kube).keys()

    expect_soon(all_run)
    assert len(set(places(kube).values())) == len(pods), "each has a node of its own"
