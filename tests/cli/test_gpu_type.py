"""`hived submit --gpu-type`: the devices of a job's pods, of every kind of job file."""

import pytest
import yaml
from click.testing import CliRunner

from hived_cli import main
from hived_lab.start import start_embedded
from tests.cli.test_submit_objects import JOB, TORCH, TRAIN
from tests.job_files import ALL

WORD = "hivedscheduler.microsoft.com/leaf-cell-type"
SPEC = "hivedscheduler.microsoft.com/pod-scheduling-spec"
CLUSTER = """\
physicalCluster:
  skuTypes: {A100: {gpu: 1, cpu: 4, memory: 8Gi}, V100: {gpu: 1, cpu: 4, memory: 8Gi}}
  cellTypes:
    A100-NODE: {childCellType: A100, childCellNumber: 16, isNodeLevel: true}
    V100-NODE: {childCellType: V100, childCellNumber: 16, isNodeLevel: true}
  physicalCells:
  - {cellType: A100-NODE, cellAddress: a0}
  - {cellType: V100-NODE, cellAddress: v0}
  - {cellType: V100-NODE, cellAddress: v1, pinnedCellId: PIN}
virtualClusters:
  research:
    virtualCells: [{cellType: A100-NODE, cellNumber: 1}, {cellType: V100-NODE, cellNumber: 1}]
    pinnedCells: [{pinnedCellId: PIN}]
  product: {}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: note, annotations: %s}
spec: {containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
PAI = """\
protocolVersion: 2
name: pai
type: job
prerequisites: [{name: image, type: dockerimage, uri: x}]
taskRoles:
  worker: {instances: 1, dockerImage: image, resourcePerInstance: {gpu: 1, cpu: 4, memoryMB: 1024}, commands: [train]}
defaults: {virtualCluster: research}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    file = tmp_path_factory.mktemp("types") / "cluster.yaml"
    file.write_text(CLUSTER)
    with start_embedded(file) as running:
        yield running


@pytest.fixture
def submit(cluster, write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    where = ["--api-server", cluster.cluster.api_url, "--server", cluster.extender.url, "--vc", "research"]
    return lambda text, *options: CliRunner().invoke(main, ["submit", write(text), "--dry-run", *where, *options])


@pytest.mark.parametrize("gpu_type", ["A100", "V100"])
@pytest.mark.parametrize(
    "text",
    [
        JOB,
        TORCH,
        POD % "{}",
        POD % f"{{{WORD}: {{}}}}".replace("{}", "K80"),
        POD % f"{{{SPEC}: 'leafCellType: K80'}}",
        PAI,
        ALL["MPIJob v2"],
        ALL["JobSet"],
        ALL["Volcano Job"].replace("  priorityClassName: high\n", ""),
        ALL["Deployment"],
    ],
    ids=["Job", "PyTorchJob", "Pod", "annotated Pod", "Pod with a spec", "OpenPAI", "MPIJob", "JobSet", "Volcano Job",
         "Deployment"],
)  # fmt: skip
def test_pods_get_gpus_of_the_type_that_is_named(text, gpu_type, submit):
    result = submit(text, "--gpu-type", gpu_type)
    assert result.exit_code == 0, result.output
    placed = [line for line in result.stdout.splitlines() if "   run   " in line]
    assert placed
    assert all({"A100": "   a0   ", "V100": "   v0   "}[gpu_type] in line for line in placed), result.output


def test_a_train_job_gets_the_type_as_a_patch(submit):
    result = submit(TRAIN % "", "--gpu-type", "V100", "-o", "yaml")
    assert f"{WORD}: V100" in result.stdout, result.output
    assert yaml.safe_load(result.stdout)["spec"]["runtimePatches"]


@pytest.mark.parametrize("text", [JOB, POD % f"{{{SPEC}: 'leafCellNumber: 1'}}", PAI], ids=["Job", "Pod", "OpenPAI"])
def test_a_type_that_the_cluster_lacks_is_refused_with_those_that_it_has(text, submit):
    result = submit(text, "--gpu-type", "a100")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: GPU type a100 does not exist; the configuration has A100, V100\n",
    )


@pytest.mark.parametrize(
    "text",
    [
        POD % "{hivedscheduler.microsoft.com/pinned-cell-id: PIN}",
        POD % f"{{{SPEC}: 'pinnedCellId: PIN'}}",
        PAI + "extras: {hivedScheduler: {taskRoles: {worker: {pinnedCellId: PIN}}}}\n",
    ],
    ids=["annotation", "spec", "OpenPAI"],
)
def test_a_pinned_cell_and_a_type_exclude_each_other(text, submit):
    result = submit(text, "--gpu-type", "V100")
    assert (result.exit_code, "leave --gpu-type out" in result.stderr) == (1, True), result.output
