"""`hived serve --sync-nodes` on an embedded cluster: nodes come and go, and the configuration follows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.answers import Listing
from hived_extender.kube.client import NODES, KubeClient
from hived_extender.reconfiguration.change import nodes_in_use
from hived_extender.reconfiguration.node_sync import AUTHOR, NodeSync, NodeSyncing
from hived_lab.start import Embedded, start_embedded
from tests.extender.machine.small_cluster import wait_until

pytestmark = pytest.mark.sample(3)

CONFIG = """\
physicalCluster:
  skuTypes:
    GPU: {gpu: 1, cpu: 4, memory: 8Gi}
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - cellType: RACK
    cellChildren: [{cellAddress: n0}, {cellAddress: placeholder-1}]  # one to come
virtualClusters:
  a:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 2}]
"""


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    with start_embedded(file) as running:
        yield running


@pytest.fixture
def kube(embedded: Embedded) -> Iterator[KubeClient]:
    client = KubeClient.connect(embedded.cluster.api_url)
    yield client
    client.close()


def sync_of(embedded: Embedded, kube: KubeClient, **at_least: int) -> NodeSync:
    extender = embedded.extender
    return NodeSync(extender.service, extender.configurations, kube, NodeSyncing(1, at_least=at_least))


def add_node(kube: KubeClient, name: str) -> None:
    capacity = {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2", "pods": "10", ENABLE_LIMIT: "100"}
    status = {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2099-01-01T00:00:00Z"}],
    }
    kube.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})


def add_pod(kube: KubeClient, name: str) -> Any:
    spec = {
        "schedulerName": "hived",
        "containers": [{"name": "m", "image": "none", "resources": {"limits": {ENABLE_LIMIT: "1"}}}],
    }
    notes = {SCHEDULING_SPEC: "{virtualCluster: a, leafCellNumber: 2}"}
    metadata = {"name": name, "namespace": "default", "annotations": notes}
    return kube.create(
        "/api/v1/namespaces/default/pods",
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    )


def test_a_new_node_takes_the_place_that_was_kept_for_it_and_gets_work(embedded: Embedded, kube: KubeClient) -> None:
    sync = sync_of(embedded, kube)
    configurations = embedded.extender.configurations
    assert not sync.sync()
    for number in range(2):
        add_pod(kube, f"p{number}")
    add_node(kube, "new")
    assert sync.sync()
    version = configurations.in_force
    assert (version.version, version.who) == (2, AUTHOR)
    assert "new" in version.why
    assert version.text == CONFIG.replace("placeholder-1", "new")
    assert not sync.sync()

    def nodes() -> set[str]:
        pods = kube.get("/api/v1/namespaces/default/pods")["items"]
        return {pod["spec"].get("nodeName", "") for pod in pods}

    wait_until(lambda: nodes() == {"n0", "new"})


class Without:
    """The nodes of an API server, but for one that is gone."""

    def __init__(self, kube: KubeClient, gone: str) -> None:
        self._kube = kube
        self._gone = gone

    def list_objects(self, path: str, item_type: type[dict[str, Any]]) -> Listing[dict[str, Any]]:
        found = self._kube.list_objects(path, item_type)
        return replace(found, items=[node for node in found.items if node["metadata"]["name"] != self._gone])


def test_the_place_of_a_node_that_is_gone_is_not_given_away_while_work_counts_there(
    embedded: Embedded, kube: KubeClient
) -> None:
    add_pod(kube, "p")
    wait_until(lambda: nodes_in_use(embedded.extender.service) == {"n0"})
    add_node(kube, "x1")
    add_node(kube, "y1")
    extender = embedded.extender
    sync = NodeSync(extender.service, extender.configurations, Without(kube, "n0"), NodeSyncing(1))
    assert sync.sync()
    addresses = re.findall("cellAddress: ([^ ,}]+)", extender.configurations.in_force.text.split("virtualClusters")[0])
    assert {"n0", "x1", "y1"} <= set(addresses)


def test_there_are_places_for_nodes_to_come(embedded: Embedded, kube: KubeClient) -> None:
    assert sync_of(embedded, kube, NODE=6).sync()
    text = embedded.extender.configurations.in_force.text
    assert len(re.findall(r"placeholder-node-\d-\d", text)) == 4


def test_it_looks_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    with start_embedded(file, syncing=NodeSyncing(0.05)) as running:
        kube = KubeClient.connect(running.cluster.api_url)
        add_node(kube, "new")
        wait_until(lambda: running.extender.configurations.in_force.version == 2)
        assert "new" in running.extender.configurations.in_force.text
        kube.close()
