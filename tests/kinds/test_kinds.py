"""Every kind and shape of job is created, listed, explained, held, ended and deleted on the embedded cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hived_cli import main
from hived_extender.jobs.asks import PRIORITY, VIRTUAL_CLUSTER
from hived_extender.jobs.kinds.marks import USER
from hived_extender.kube.client import PODS, KubeClient
from hived_jobs.submission import SCHEDULER
from hived_lab.start import start_embedded
from tests.expecting import expect_soon
from tests.kinds.played import Played, Table
from tests.kinds.table import ROWS, Json

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
OTHER = "  other: {namespaces: [default], virtualCells: [{cellType: NODE, cellNumber: 39}]}\n"
QUEUES = "queues: {enabled: true}\n"


SUBMITTED = [row for row in ROWS if "submit" in row.ways]
LATER = {"suspended": "it is suspended"}
"""Rows without pods, and why."""


@pytest.fixture(scope="module")
def made_pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Sequence[Json]]]:
    """The pods of each row, which was submitted with a virtual cluster, a priority and a user."""
    folder = tmp_path_factory.mktemp("words")
    file = folder / "cluster.yaml"
    file.write_text(CONFIGURATION.replace("cellNumber: 40}]}", "cellNumber: 1}]}\n" + OTHER))
    found: dict[str, Sequence[Json]] = {}
    with start_embedded(file) as running, closing(KubeClient.connect(running.cluster.api_url)) as kube:

        def has_all() -> bool:
            pods = kube.list_objects(PODS, dict[str, Any]).items
            for row in SUBMITTED:
                found[row.name] = [one for one in pods if one["metadata"]["name"].startswith(f"{row.name}-x")]
            return all(found[row.name] or row.name in LATER for row in SUBMITTED)

        for row in SUBMITTED:
            job = folder / f"{row.name}.yaml"
            job.write_text(yaml.safe_dump_all(row.make(f"{row.name}-x")))
            where = ["--api-server", running.cluster.api_url, "--server", running.extender.url]
            said = ["--vc", "other", "--priority", "5", "--user", "me"]
            result = CliRunner().invoke(main, ["submit", str(job), *where, *said])
            assert result.exit_code == 0, result.output
        expect_soon(has_all)
        yield found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [row.name for row in SUBMITTED if row.name not in LATER])
def test_what_the_submitter_says_arrives_at_the_pods(made_pods: Mapping[str, Sequence[Json]], name: str) -> None:
    told = [each["metadata"]["annotations"] for each in made_pods[name] if each["spec"]["schedulerName"] == SCHEDULER]
    wanted = {USER: "me"} | ({} if name == "own" else {VIRTUAL_CLUSTER: "other", PRIORITY: "5"})
    assert [{key: one.get(key) for key in wanted} for one in told] == [wanted] * len(told)


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
