"""Every kind and shape of job is created, listed, explained, held, ended and deleted on the embedded cluster."""

from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from hived_extender.kube.client import KubeClient
from hived_lab.start import start_embedded
from tests.kinds.played import Played, Table
from tests.kinds.table import ROWS

NODES = ", ".join(f"{{cellType: NODE, cellAddress: n{number}}}" for number in range(40))
CONFIGURATION = f"""\
rules: 2
physicalCluster:
  skuTypes: {{GPU: {{gpu: 1, cpu: 8, memory: 32Gi}}}}
  cellTypes: {{NODE: {{childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}}}
  physicalCells: [{NODES}]
virtualClusters:
  default: {{namespaces: [default], virtualCells: [{{cellType: NODE, cellNumber: 40}}]}}
"""
QUEUES = "queues: {enabled: true}\n"


@pytest.fixture(scope="module", params=["", QUEUES], ids=["no queues", "queues"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Played]]:
    """All jobs after all steps, on one cluster without queues, and on one with them."""
    folder = tmp_path_factory.mktemp("kinds")
    file = folder / "cluster.yaml"
    file.write_text(request.param + CONFIGURATION)
    has_queues = bool(request.param)
    with (
        pytest.MonkeyPatch.context() as patch,
        start_embedded(file, has_webhook=has_queues) as running,
        closing(KubeClient.connect(kubeconfig=str(running.cluster.hived_kubeconfig))) as kube,
    ):
        patch.setattr("hived_cli.helpers.names.AGAIN_S", 0.0)
        service, api = ("--server", running.extender.url), ("--api-server", running.cluster.api_url)
        table = Table(kube, folder, service=service, api=api, has_queues=has_queues)
        yield {str(each): each for each in table.play(ROWS)}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [f"{row.name}-{way}" for row in ROWS for way in row.ways])
def test_a_job_is_known_from_its_creation_to_its_end(played: Mapping[str, Played], name: str) -> None:
    assert (played[name].skipped, played[name].wrong) == ("", {})
