"""Commands about waiting jobs, asked of a whole embedded cluster over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_lab.start import Embedded, start_embedded
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(5)

CONFIGURATION = """\
physicalCluster:
  skuTypes:
    GPU: {gpu: 1, cpu: 4, memory: 16384Mi}
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
  - {cellType: NODE, cellAddress: n1}
  - {cellType: NODE, cellAddress: n2}
virtualClusters:
  research:
    virtualCells:
    - {cellType: NODE, cellNumber: 2}
  product:
    virtualCells:
    - {cellType: NODE, cellNumber: 1}
rules: 2
"""
JOB = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: NAME}
spec:
  tasks:
  - name: worker
    replicas: PODS
    template: {spec: {containers: [{name: main, image: example/train, resources: {limits: {nvidia.com/gpu: 2}}}]}}
"""
WAITING = "research has 2 of 2 in use by train (priority "
NEVER = "it can never run: research has 2 in all"


class Cluster:
    """Runs commands against an embedded cluster."""

    def __init__(self, embedded: Embedded, folder: Path) -> None:
        self.api_server = ("--api-server", embedded.cluster.api_url)
        self.service = ("--server", embedded.extender.url)
        self._folder = folder

    def run(self, *arguments: str) -> Result:
        """A command that asks the service."""
        return CliRunner().invoke(main, [*arguments, *self.service])

    def submit(self, name: str, pods: int) -> None:
        """A gang of pods of 2 GPUs each, in research."""
        file = self._folder / f"{name}.yaml"
        file.write_text(JOB.replace("NAME", name).replace("PODS", str(pods)))
        options = ("--vc", "research", "--priority", "prod", "--unchecked", *self.api_server)
        result = self.run("submit", str(file), *options)
        assert result.exit_code == 0, result.output

    def jobs(self) -> dict[str, dict[str, Any]]:
        """All jobs by name."""
        result = self.run("get", "jobs", "-o", "json")
        assert result.exit_code == 0, result.output
        return {job["name"]: job for job in json.loads(result.output)["items"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`train` has all that research is promised, `second` waits for it, and `big` can never run."""
    folder = tmp_path_factory.mktemp("asking")
    (folder / "cluster.yaml").write_text(CONFIGURATION)
    with start_embedded(folder / "cluster.yaml") as embedded:
        cluster = Cluster(embedded, folder)
        cluster.submit("train", 2)
        expect_soon(lambda: cluster.jobs().get("Job/default/train", {}).get("state") == "Running")
        cluster.submit("second", 2)
        cluster.submit("big", 3)
        told = {"Job/default/second": "in-use", "Job/default/big": "never"}
        expect_soon(lambda: told.items() <= {name: job.get("cause") for name, job in cluster.jobs().items()}.items())
        yield cluster


@pytest.mark.parametrize("name", ["second", "default/second", "Job/default/second", "default/second-worker-1"])
def test_a_waiting_gang_is_explained_by_any_of_its_names(cluster: Cluster, name: str) -> None:
    lines = cluster.run("why", name).output.splitlines()
    assert lines[0].startswith("Job/default/second   Waiting   2 nodes of 2 GPUs each")
    assert "   research, priority 100   of " in lines[0]
    assert "   2 of 2 wait   since " in lines[0]
    assert lines[1].startswith("  needs 2 nodes of 2 GPUs each")
    assert f"; {WAITING}" in lines[1]


def test_what_is_said_to_help_does_help_when_it_is_tried(cluster: Cluster) -> None:
    told = json.loads(cluster.run("why", "second", "--json").output)
    changes = [each["change"] for each in told["certificate"]["unblock"]]
    assert "ends=Job/default/train" in changes
    for change in changes:
        result = cluster.run("why", "second", "--if", change)
        assert (result.exit_code, "would start at once" in result.output) == (0, True), result.output


@pytest.mark.parametrize(
    ("name", "change", "code"), [("second", "priority=99", 3), ("big", "pods=2x2", 3), ("second", "luck=1", 1)]
)
def test_what_does_not_help_is_told_by_the_exit_code(cluster: Cluster, name: str, change: str, code: int) -> None:
    assert cluster.run("why", name, "--if", change).exit_code == code


def test_waiting_jobs_are_listed_before_others_each_with_its_reason(cluster: Cluster) -> None:
    result = cluster.run("get", "jobs", "--vc", "research")
    rows = [line.split("   ") for line in result.output.splitlines()[1:]]
    *waiting, running = rows
    reasons = {row[0]: row[-1].strip() for row in waiting}
    assert reasons.keys() == {"Job/default/second", "Job/default/big"}
    assert reasons["Job/default/second"].startswith(WAITING)
    assert reasons["Job/default/big"] == NEVER
    assert running[0] == "Job/default/train"
    told = json.loads(cluster.run("get", "jobs", "--waiting", "-o", "json").output)["items"]
    assert {job["name"] for job in told} == reasons.keys()


def test_jobs_of_a_node_are_those_that_run_there(cluster: Cluster) -> None:
    node = cluster.jobs()["Job/default/train"]["nodes"][0]
    assert cluster.run("get", "jobs", "--node", node).output.count("Job/default/train") == 1


def test_nodes_and_free_cells_are_counted(cluster: Cluster) -> None:
    assert cluster.run("get", "nodes", "--bad").output == "No node is bad.\n"
    assert cluster.run("get", "nodes").output.count("Job/default/train") == 2
    free = json.loads(cluster.run("get", "free", "product", "-o", "json").output)
    assert {one["level"]: one.get("free", 0) for one in free if one["vc"] == "product"} == {"NODE": 1, "GPU": 2}


def test_top_has_all_of_it_in_one_frame(cluster: Cluster) -> None:
    lines = cluster.run("top").output.splitlines()
    assert lines[0].endswith("jobs: 2 waiting, 1 running   0 bad nodes")
    assert [line.split()[:3] for line in lines[3:5]] == [["product", "NODE", "2"], ["research", "NODE", "4"]]
    assert {line.split()[0] for line in lines[-2:]} == {"Job/default/second", "Job/default/big"}


def test_the_next_job_starts_once_the_first_one_is_deleted(cluster: Cluster) -> None:
    result = cluster.run("delete", "Job/default/train", "--yes", *cluster.api_server)
    assert result.exit_code == 0, result.output
    assert "Job/default/train deleted" in result.output.splitlines()
    expect_soon(lambda: cluster.jobs()["Job/default/second"]["state"] == "Running")
    assert "Job/default/train" not in cluster.jobs()
