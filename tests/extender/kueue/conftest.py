"""An extender on an embedded cluster that has Kueue's objects, and no Kueue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hived_config.loader import load_text
from hived_extender.kube import optional_kinds
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.kueue.kueue_by_hand import KueueByHand
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
def kueue(config: Path, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[KueueByHand]:
    """Kueue, played by the test, beside a hived that leads and a scheduler."""
    monkeypatch.setattr(optional_kinds, "LOOK_INTERVAL_S", 0.2)
    kube = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        cluster.start_scheduler(extender.url)
        yield KueueByHand(kube, extender)
    kube.close()
