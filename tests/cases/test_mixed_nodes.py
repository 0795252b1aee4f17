"""Nodes with cells of several resources: CPUs beside GPUs as OpenPAI documents it, MIG devices beside GPUs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hived_cli import main
from hived_extender.api.inspection import Inspector
from hived_extender.running import Extender
from tests.cases.played import PATHS, PREFIX, Played, played_on, pod
from tests.expecting import expect_soon
from tests.reconfiguration.cluster import EmbeddedCaseCluster

pytestmark = pytest.mark.sample(3)

MIG = "nvidia.com/mig-1g.10gb"
LOST = {"SLICE": 4}
SERVICES = """\
cluster: {common: {cluster-id: pai}}
hivedscheduler:
  config: |
    physicalCluster:
      skuTypes:
        GPU: {gpu: 1, cpu: 4, memory: 4Gi}
        CPU: {gpu: 0, cpu: 1, memory: 1Gi}
      cellTypes:
        GPU-NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
        GPU-NODE-POOL: {childCellType: GPU-NODE, childCellNumber: 2}
        CPU-NODE: {childCellType: CPU, childCellNumber: 6, isNodeLevel: true}
        CPU-NODE-POOL: {childCellType: CPU-NODE, childCellNumber: 2}
      physicalCells:
      - cellType: GPU-NODE-POOL
        cellChildren: [{cellAddress: node1}, {cellAddress: node2}]
      - cellType: CPU-NODE-POOL
        cellChildren: [{cellAddress: node1}, {cellAddress: node2}]
    virtualClusters:
      default:
        virtualCells: [{cellType: GPU-NODE-POOL.GPU-NODE, cellNumber: 2}]
      cpu:
        virtualCells: [{cellType: CPU-NODE-POOL.CPU-NODE, cellNumber: 2}]
"""
SLICES = f"""\
rules: 2
physicalCluster:
  skuTypes:
    A100: {{gpu: 1, cpu: 4, memory: 4Gi}}
    SLICE: {{gpu: 1, cpu: 1, memory: 1Gi, resource: {MIG}}}
  cellTypes:
    A100-NODE: {{childCellType: A100, childCellNumber: 2, isNodeLevel: true}}
    SLICE-NODE: {{childCellType: SLICE, childCellNumber: 7, isNodeLevel: true}}
  physicalCells:
  - {{cellType: A100-NODE, cellAddress: a1}}
  - {{cellType: SLICE-NODE, cellAddress: a1}}
virtualClusters:
  default:
    virtualCells: [{{cellType: A100-NODE, cellNumber: 1}}, {{cellType: SLICE-NODE, cellNumber: 1}}]
"""


def asking(name: str, cells: int, leaf_type: str, vc: str, *, priority: int = 1, cpu: int = 0) -> dict[str, Any]:
    """A pod in HiveD's own words, as an OpenPAI task is."""
    spec = {"virtualCluster": vc, "priority": priority, "leafCellNumber": cells}
    spec |= {"leafCellType": leaf_type} if leaf_type else {}
    limits = {f"{PREFIX}pod-scheduling-enable": 1}
    notes = {f"{PREFIX}pod-scheduling-spec": json.dumps(spec)}
    return pod(name, 0, annotations=notes, requests=limits | ({"cpu": cpu} if cpu else {}))


def cells_of(played: Played, name: str) -> tuple[str, str, str]:
    """The node, the chain and the leaf cells of a pod."""
    info = json.loads(notes_of(played, name)[f"{PREFIX}pod-bind-info"])
    return info["node"], info["cellChain"], ",".join(map(str, info["leafCellIsolation"]))


def notes_of(played: Played, name: str) -> dict[str, str]:
    notes: dict[str, str] = played.pods()[name]["metadata"]["annotations"]
    return notes


def in_use(played: Played) -> dict[str, int]:
    """How many leaf cells of each chain are in use."""
    return used(played.running.extender)


def used(service: Extender | EmbeddedCaseCluster) -> dict[str, int]:
    tops = Inspector(service.url).physical_cluster()
    return {top.cell_type: sum(leaf.cell_state == "Used" for leaf in top.leaves()) for top in tops}


def validate(folder: Path, text: str) -> tuple[int, str]:
    file = folder / "services-configuration.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["config", "validate", str(file)])
    return result.exit_code, result.output


@pytest.mark.parametrize("text", [SERVICES, SERVICES.replace("gpu: 0, ", ""), SLICES])
def test_the_file_is_sound(tmp_path: Path, text: str) -> None:
    exit_code, output = validate(tmp_path, text)
    assert (exit_code, "mistake" in output) == (0, False)


def test_a_second_chain_of_gpus_on_the_node_is_refused_with_its_line_and_what_to_do(tmp_path: Path) -> None:
    exit_code, output = validate(tmp_path, SERVICES.replace("gpu: 0", "gpu: 1"))
    assert exit_code == 1
    assert "services-configuration.yaml:17:" in output
    assert "device 0 of node 'node1' given twice (first on line 15)" in output
    assert "gpu: 0" in output


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    with played_on(tmp_path, SERVICES) as running:
        yield running


def test_jobs_of_both_run_on_each_node_within_their_own_cells(played: Played) -> None:
    played.create(*(asking(f"g{number}", 2, "GPU", "default") for number in (1, 2)))
    played.create(*(asking(f"c{number}", 6, "CPU", "cpu") for number in (1, 2)))
    played.expect_running("g1", "g2", "c1", "c2")
    for names, chain, devices in (("g1", "g2"), "GPU-NODE-POOL", "0,1"), (("c1", "c2"), "CPU-NODE-POOL", "0,1,2,3,4,5"):
        places = [cells_of(played, name) for name in names]
        assert {node for node, _, _ in places} == {"node1", "node2"}
        assert {place[1:] for place in places} == {(chain, devices)}
    assert in_use(played) == {"GPU-NODE-POOL": 4, "CPU-NODE-POOL": 12}


def test_a_pod_of_cpu_cells_sees_no_devices_of_another_pod(tmp_path: Path) -> None:
    """Neither if it names no type, nor if it asks for a GPU that its cells are not."""
    with played_on(tmp_path, SERVICES, has_webhook=True) as played:
        untyped, other = asking("untyped", 1, "", "cpu"), asking("other", 2, "CPU", "cpu")
        other["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2
        played.create(asking("g", 2, "GPU", "default"), untyped, other)
        played.expect_running("g", "untyped", "other")
        assert {cells_of(played, name)[1] for name in ("untyped", "other")} == {"CPU-NODE-POOL"}
        devices = [notes_of(played, name)[f"{PREFIX}pod-leaf-cell-isolation"] for name in ("g", "untyped", "other")]
        assert devices == ["0,1", "void", "void"]


def with_limits(made: dict[str, Any], **more: int) -> dict[str, Any]:
    """The pod with a limit of devices besides."""
    made["spec"]["containers"][0]["resources"]["limits"] |= more
    return made


@pytest.mark.parametrize(
    ("made", "devices", "words"),
    [
        (("p", 1, "CPU", "cpu"), 2, "asks for nvidia.com/gpu, but leafCellType means CPU, which is no device"),
        (("p", 1, "H100", "cpu"), 2, "there is no leaf cell type H100; VC cpu has CPU"),
        (("p", 1, "GPU", "default"), 2, "asks for 2 nvidia.com/gpu, and its leafCellNumber 1 gives it 1"),
        (("p", 1, "", "cpu"), 2, "asks for 2 nvidia.com/gpu, and its leafCellNumber 1 gives it 1"),
    ],
)
def test_a_pod_takes_no_devices_beyond_its_cells_past_their_owner(
    played: Played, made: Any, devices: int, words: str
) -> None:
    played.create(with_limits(asking(*made), **{"nvidia.com/gpu": devices}))
    expect_soon(lambda: words in played.why("p").sentence)
    played.create(with_limits(asking("g1", 2, "GPU", "default"), **{"nvidia.com/gpu": 2}))
    played.create(with_limits(asking("g2", 2, "GPU", "default"), **{"nvidia.com/gpu": 2}))
    played.expect_running("g1", "g2")
    assert "p" not in played.running_pods()


def test_no_cells_of_another_resource_are_named_as_what_helps(played: Played) -> None:
    waits = pod("three", 2, vc="default", priority=-1)
    played.create(asking("g1", 2, "GPU", "default"), asking("g2", 2, "GPU", "default"))
    played.expect_running("g1", "g2")
    played.create(waits)
    assert not [one for one in played.helps("three") if one.startswith("leafType")]


def test_the_cells_of_a_job_that_ends_are_free_in_its_own_chain_alone(played: Played) -> None:
    played.create(asking("g", 1, "GPU", "default"), asking("c", 4, "CPU", "cpu"))
    played.expect_running("g", "c")
    assert in_use(played) == {"GPU-NODE-POOL": 1, "CPU-NODE-POOL": 4}, "each has its cells in its own chain"
    played.delete("c")
    expect_soon(lambda: in_use(played)["CPU-NODE-POOL"] == 0)
    assert in_use(played)["GPU-NODE-POOL"] == 1, "the other job keeps its GPU"


def test_a_bad_node_is_bad_in_both_chains(played: Played) -> None:
    played.patch_node("node1", {"spec": {"unschedulable": True}})
    expect_soon(lambda: [node.node for node in played.inspector.nodes(is_bad=True)] == ["node1"])
    assert {
        (top.cell_type, node.cell_address.rpartition("/")[2], node.cell_healthiness)
        for top in played.inspector.physical_cluster()
        for node in top.nodes()
    } == {
        (chain, node, "Bad" if node == "node1" else "Healthy")
        for chain in ("GPU-NODE-POOL", "CPU-NODE-POOL")
        for node in ("node1", "node2")
    }
    played.create(asking("g", 2, "GPU", "default"), asking("c", 6, "CPU", "cpu"))
    played.expect_running("g", "c")
    assert set(played.running_pods().values()) == {"node2"}


def test_a_borrower_of_gpus_has_the_cpus_of_its_cells_beside_cpu_cells(played: Played) -> None:
    """A GPU's share of the node's 14 CPUs is 4, a CPU cell's is 1; a pod that may have either gets that for less."""
    played.create(asking("fair", 1, "GPU", "cpu", priority=-1, cpu=4))
    played.create(asking("greedy", 1, "CPU", "default", priority=-1, cpu=2))
    played.create(asking("any", 1, "", "default", priority=-1, cpu=2))
    played.expect_running("fair")
    for name in ("greedy", "any"):
        assert " come with at most 1 CPU" in played.why(name).sentence


def test_nodes_are_listed_with_the_cells_of_both(played: Played) -> None:
    played.create(asking("g", 2, "GPU", "default"), asking("c", 3, "CPU", "cpu"))
    played.expect_running("g", "c")
    result = CliRunner().invoke(main, ["get", "nodes", "--server", played.running.extender.url])
    row = next(line for line in result.output.splitlines() if line.startswith(played.running_pods()["g"]))
    assert "6 CPU, 2 GPU" in row
    first, other = (node.by_type for node in played.inspector.nodes())
    assert {name: counts.cells for name, counts in first.items()} == {"CPU": 6, "GPU": 2}
    assert sorted(node["GPU"].free for node in (first, other)) == [0, 2]
    assert sorted(node["CPU"].free for node in (first, other)) == [3, 6]


def test_what_a_waiting_job_asks_for_is_said_in_the_words_of_its_own_cells(played: Played) -> None:
    played.create(asking("c", 6, "CPU", "cpu"), asking("d", 6, "CPU", "cpu"), asking("e", 4, "CPU", "cpu"))
    played.create(asking("g", 2, "GPU", "default"), asking("h", 2, "GPU", "default"), asking("i", 1, "GPU", "default"))
    played.expect_running("c", "d", "g", "h")
    assert "4 CPU" in played.why("e").sentence
    assert "1 GPU" in played.why("i").sentence


def test_groups_are_found_again_after_a_restart_in_the_chain_that_they_had() -> None:
    text = yaml.safe_load(SERVICES)["hivedscheduler"]["config"]
    with EmbeddedCaseCluster(text, text) as cluster:
        wanted = [asking("c", 5, "CPU", "cpu"), asking("g", 1, "GPU", "default"), asking("h", 2, "GPU", "default")]
        for one in wanted:
            cluster.kube.create(PATHS["Pod"].format("default"), one)
        expect_soon(lambda: used(cluster) == {"GPU-NODE-POOL": 3, "CPU-NODE-POOL": 5})
        before = Inspector(cluster.url).physical_cluster()
        cluster.restart()
        expect_soon(lambda: used(cluster) == {"GPU-NODE-POOL": 3, "CPU-NODE-POOL": 5})
        assert Inspector(cluster.url).physical_cluster() == before


@pytest.fixture
def sliced(tmp_path: Path) -> Iterator[Played]:
    with played_on(tmp_path, SLICES, has_webhook=True) as running:
        yield running


def slices(name: str, count: int, resource: str) -> dict[str, Any]:
    return pod(name, 0, requests={resource: count})


def test_pods_that_ask_for_gpus_and_for_mig_devices_share_a_node(sliced: Played) -> None:
    sliced.create(slices("gpu", 2, "nvidia.com/gpu"), slices("slice", 7, MIG))
    sliced.expect_running("gpu", "slice")
    assert cells_of(sliced, "gpu") == ("a1", "A100-NODE", "0,1")
    assert cells_of(sliced, "slice") == ("a1", "SLICE-NODE", "0,1,2,3,4,5,6")
    limits = sliced.pods()["slice"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits[MIG] in (7, "7")
    sliced.create(slices("another", 1, MIG))
    assert "in use by" in sliced.why("another").sentence


def test_lost_mig_devices_are_lost_to_their_own_cells_alone(sliced: Played) -> None:
    sliced.kube.patch_lists("/api/v1/nodes/a1/status", {"status": {"allocatable": {MIG: "3", "nvidia.com/gpu": "2"}}})
    expect_soon(lambda: {one.leaf_cell_type: one.lost_leaf_cells for one in sliced.inspector.lost_devices()} == LOST)
    sliced.create(slices("gpu", 2, "nvidia.com/gpu"), slices("slice", 3, MIG))
    sliced.expect_running("gpu", "slice")
    assert cells_of(sliced, "gpu") == ("a1", "A100-NODE", "0,1"), "no GPU is lost"
    assert cells_of(sliced, "slice")[:2] == ("a1", "SLICE-NODE"), "the MIG devices that are left are used"


OPENPAI_JOB = """\
protocolVersion: 2
name: train
type: job
prerequisites: [{protocolVersion: 2, name: image, type: dockerimage, uri: example/train}]
taskRoles:
  ps: {instances: 1, dockerImage: image, commands: [serve], resourcePerInstance: {gpu: 0, cpu: 1, memoryMB: 1024}}
  worker: {instances: 1, dockerImage: image, commands: [work], resourcePerInstance: {gpu: 1, cpu: 1, memoryMB: 1024}}
defaults: {virtualCluster: default}
extras: {hivedScheduler: {jobPriorityClass: prod}}
"""


@pytest.mark.parametrize("gpu_type", ["GPU", "A100"], ids=["after the CPU type", "before it"])
def test_a_task_without_gpus_is_forecast_on_the_cells_that_it_gets(tmp_path: Path, gpu_type: str) -> None:
    cpus = "cellType: GPU-NODE-POOL.GPU-NODE, cellNumber: 2}, {cellType: CPU-NODE-POOL.CPU-NODE, cellNumber: 1}"
    config = SERVICES.replace("cellType: GPU-NODE-POOL.GPU-NODE, cellNumber: 2}", cpus)
    config = config.replace("CPU-NODE, cellNumber: 2}", "CPU-NODE, cellNumber: 1}")
    config = config.replace("  GPU: {", f"  {gpu_type}: {{").replace(
        "childCellType: GPU,", f"childCellType: {gpu_type},"
    )
    with played_on(tmp_path, config) as found:
        file = tmp_path / "job.yaml"
        file.write_text(OPENPAI_JOB)
        where = ("--kubeconfig", str(found.running.cluster.hived_kubeconfig), "--server", found.running.extender.url)
        told = CliRunner().invoke(main, ["submit", str(file), "--dry-run", *where])
        assert told.exit_code == 0, told.output
        assert CliRunner().invoke(main, ["submit", str(file), *where]).exit_code == 0
        found.expect_running("train-ps-0", "train-worker-0")
        for name in ("train-ps-0", "train-worker-0"):
            node, _, cells = cells_of(found, name)
            (row,) = [line.split() for line in told.output.splitlines() if line.startswith(f"{name} ")]
            assert row == [name, "run", node, cells]
