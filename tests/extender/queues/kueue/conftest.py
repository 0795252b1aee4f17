"""An extender on an embedded cluster that has Kueue's objects, and no Kueue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hived_config.loader import load_text
from hived_extender.kube.client import KubeClient
from hived_extender.running import Extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.queues.kueue.kueue_by_hand import KueueByHand
from tests.extender.replica import DEADLINE_S, start

CONFIG = """\
rules: 2
physicalCluster:
  skuTypes: {A100: {gpu: 1, cpu: 8, memory: 64Gi, nodeLabels: {gpu.model: a100}}}
  cellTypes: {NODE: {childCellType: A100, childCellNumber: 4, isNodeLevel: true}}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
  - {cellType: NODE, cellAddress: n1}
  - {cellType: NODE, cellAddress: n2}
virtualClusters:
  research: {virtualCells: [{cellType: NODE, cellNumber: 2}]}
  default: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
"""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(load_text(CONFIG, "kueue.yaml", environ={}).cluster) as cluster:
        yield cluster


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hivedscheduler.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def extender(config: Path, cluster: EmbeddedCluster) -> Iterator[Extender]:
    """A hived that leads, and a scheduler that asks it."""
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        cluster.start_scheduler(extender.url)
        yield extender
        cluster.stop_scheduler()


@pytest.fixture
def api(cluster: EmbeddedCluster) -> Iterator[KueueByHand]:
    """Kueue's part, and no hived."""
    kube = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
    yield KueueByHand(kube)
    kube.close()


@pytest.fixture
def kueue(extender: Extender, api: KueueByHand) -> KueueByHand:
    """Kueue's part, beside a hived that leads."""
    return api
