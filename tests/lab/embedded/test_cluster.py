"""The embedded cluster as a whole: its life, and the real extender scheduling it."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from hived.values.errors import UserError
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from hived_config.loader import load_cluster
from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import NODES, KubeClient, KubeError
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.embedded.nodes import READY
from hived_lab.start import Embedded, start_embedded
from tests.expecting import PATIENCE_S, expect_soon
from tests.lab.embedded.helpers import Http, fail_node, pod, recover_node

pytestmark = pytest.mark.sample(6)

SPEC = ClusterSpec({"NODE": CellTypeSpec("NODE", "GPU", 4, True)}, (PhysicalCellSpec("NODE", "node-a"),), {})


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_a_node_that_somebody_has_created_is_kept_when_it_comes_to_be_configured() -> None:
    cells = *SPEC.physical_cells, PhysicalCellSpec("NODE", "node-b"), PhysicalCellSpec("NODE", "node-c")
    with EmbeddedCluster(SPEC) as cluster:
        kube = KubeClient.connect(cluster.api_url)
        made = kube.create(NODES, {"metadata": {"name": "node-b"}, "status": {"capacity": {"nvidia.com/gpu": "4"}}})
        cluster.add_machines(ClusterSpec(SPEC.cell_types, cells, {}))
        uids = {node["metadata"]["name"]: node["metadata"]["uid"] for node in kube.list_objects(NODES, dict).items}
        kube.close()
    assert uids.keys() == {"node-a", "node-b", "node-c"}
    assert uids["node-b"] == made["metadata"]["uid"]


def test_a_cluster_is_ready_when_it_has_started_and_gone_when_it_has_stopped() -> None:
    before = threads()
    with EmbeddedCluster(SPEC) as cluster:
        kube = KubeClient.connect(kubeconfig=str(cluster.kubeconfig))
        (node,) = kube.list_objects(NODES, dict).items
        assert {one["type"]: one["status"] for one in node["status"]["conditions"]}["Ready"] == "True"
        kubeconfig = cluster.kubeconfig
    with pytest.raises(KubeError):
        kube.get(f"{NODES}/node-a")
    assert not kubeconfig.exists()
    expect_soon(lambda: threads() <= before)


def test_a_kubeconfig_can_be_written_where_it_is_wanted(tmp_path: Path) -> None:
    wanted = tmp_path / "config"
    with EmbeddedCluster(SPEC, kubeconfig_path=wanted) as cluster:
        written = yaml.safe_load(wanted.read_text())
        assert written["clusters"][0]["cluster"]["server"] == cluster.api_url
        assert cluster.kubeconfig == wanted
    assert wanted.exists()


def test_a_kubeconfig_that_cannot_be_written_is_a_user_error(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(SPEC, kubeconfig_path=tmp_path / "nowhere" / "config")
    with pytest.raises(UserError, match="cannot write the kubeconfig"):
        cluster.start()
    cluster.stop()


def test_a_port_that_is_taken_is_a_user_error() -> None:
    with EmbeddedCluster(SPEC) as cluster, pytest.raises(UserError, match="cannot listen on"):
        EmbeddedCluster(SPEC, api_port=int(cluster.api_url.rpartition(":")[2]))


def test_stopping_twice_or_without_a_start_is_harmless() -> None:
    before = threads()
    cluster = EmbeddedCluster(SPEC)
    cluster.stop()
    cluster.stop()
    assert threads() == before


def test_an_address_that_is_no_extender_is_a_user_error() -> None:
    with EmbeddedCluster(SPEC) as cluster, pytest.raises(UserError, match="http://HOST:PORT"):
        cluster.start_scheduler("ftp://somewhere")


def test_a_node_fails_and_recovers_on_demand() -> None:
    with EmbeddedCluster(SPEC) as cluster:
        kube = KubeClient.connect(cluster.api_url)

        def ready() -> str:
            conditions = kube.get(f"{NODES}/node-a")["status"]["conditions"]
            return str(next(one["status"] for one in conditions if one["type"] == "Ready"))

        fail_node(cluster, "node-a")
        expect_soon(lambda: ready() == "False")
        recover_node(cluster, "node-a")
        expect_soon(lambda: ready() == "True")
        with pytest.raises(KubeError):
            fail_node(cluster, "nobody")


CONFIG = """
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: node-a}
  - {cellType: NODE, cellAddress: node-b}
virtualClusters:
  vision:
    virtualCells:
    - {cellType: NODE, cellNumber: 2}
"""
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Embedded]:
    """Two nodes of two GPUs, the real extender, the scheduler loop."""
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(CONFIG)
    assert load_cluster(config).virtual_clusters
    with start_embedded(config) as embedded:
        yield embedded


@pytest.fixture
def http(running: Embedded) -> Http:
    """A client of its API server."""
    client = Http(int(running.cluster.api_url.rpartition(":")[2]))
    for value in (1, 2):
        body = {"metadata": {"name": f"priority-{value}"}, "value": value}
        client.ok("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    return client


def submit(http: Http, gang: str, pod_count: int, leaf_cell_count: int, priority: int = 1) -> list[str]:
    """Create a gang and return the names of its pods."""
    names = [f"{gang}-{number}" for number in range(pod_count)]
    spec = {
        "virtualCluster": "vision",
        "priority": priority,
        "leafCellNumber": leaf_cell_count,
        "affinityGroup": {"name": gang, "members": [{"podNumber": pod_count, "leafCellNumber": leaf_cell_count}]},
    }
    for name in names:
        annotations = {SCHEDULING_SPEC: json.dumps(spec)}
        body = pod(name, limits={ENABLE_LIMIT: 1}, annotations=annotations, priorityClassName=f"priority-{priority}")
        http.ok("POST", PODS, body)
    return names


def phases(http: Http, names: list[str]) -> list[str]:
    found: dict[str, Any] = {item["metadata"]["name"]: item for item in http.ok("GET", PODS)["items"]}
    return [found[name]["status"]["phase"] if name in found else "gone" for name in names]


def test_a_gang_runs_on_the_devices_that_the_extender_chose(http: Http) -> None:
    names = submit(http, "gang", 2, 1)
    expect_soon(lambda: phases(http, names) == ["Running"] * 2)
    bound = [http.ok("GET", f"{PODS}/{name}") for name in names]
    assert len({one["spec"]["nodeName"] for one in bound}) == 1
    assert sorted(one["metadata"]["annotations"][LEAF_CELL_ISOLATION] for one in bound) == ["0", "1"]


def test_the_official_client_reads_the_nodes_and_events_of_the_cluster(running: Embedded, http: Http) -> None:
    submit(http, "too-large", 3, 2)
    with client.ApiClient(client.Configuration(host=running.cluster.api_url)) as api:
        core = client.CoreV1Api(api)
        assert [node.metadata.name for node in core.list_node().items] == ["node-a", "node-b"]
        assert core.read_node("node-a").status.node_info.operating_system == "linux"
        expect_soon(lambda: bool(core.list_namespaced_event("default").items))
        found = client.EventsV1Api(api).list_event_for_all_namespaces().items
        assert {event.regarding.kind for event in found} == {"Pod"}
        assert all(event.event_time for event in found)


def test_a_cluster_ends_without_waiting_for_its_watches(running: Embedded) -> None:
    started = time.monotonic()
    running.cluster.stop_scheduler()
    assert time.monotonic() - started < PATIENCE_S / 2


def test_an_annotation_that_makes_no_sense_keeps_a_node_from_being_ready(running: Embedded, http: Http) -> None:
    kube = KubeClient.connect(running.cluster.api_url)
    kube.patch(f"{NODES}/node-a", {"metadata": {"annotations": {READY: "bogus"}}})
    expect_soon(lambda: http.ok("GET", f"{NODES}/node-a")["status"]["conditions"][-1]["status"] == "False")
    message = http.ok("GET", f"{NODES}/node-a")["status"]["conditions"][-1]["message"]
    assert message == f"the annotation {READY} is 'bogus', expected true, false or unknown"
