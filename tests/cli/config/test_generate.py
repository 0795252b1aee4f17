"""`hived config generate`: from an embedded cluster, from files, and what it says of mistakes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_config.loader import load, load_text
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.programs import run_without_input

NAMES = [f"gpu-{number}" for number in range(12)]
CLUSTER = f"""\
physicalCluster:
  skuTypes:
    V100: {{gpu: 1, cpu: 8, memory: 60Gi}}
  cellTypes:
    NODE: {{childCellType: V100, childCellNumber: 8, isNodeLevel: true}}
    POOL: {{childCellType: NODE, childCellNumber: 12}}
  physicalCells: [{{cellType: POOL, cellChildren: [{", ".join(f"{{cellAddress: {name}}}" for name in NAMES)}]}}]
virtualClusters: {{}}
"""
LAYOUT = """\
machine-sku:
  gpu: {mem: 60Gi, cpu: {vcore: 9}, computing-device: {type: nvidia.com/gpu, model: K80, count: 4}}
machine-list:
- {hostname: w1, machine-type: gpu, pai-worker: "true"}
- {hostname: w2, machine-type: gpu, pai-worker: "true"}
"""
PAIRS = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\tSYS\tSYS\t0-7\t0
GPU1\tPIX\t X \tSYS\tSYS\t0-7\t0
GPU2\tSYS\tSYS\t X \tPIX\t8-15\t1
GPU3\tSYS\tSYS\tPIX\t X \t8-15\t1
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(load_text(CLUSTER, "f", environ={}).cluster) as running:
        yield running


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    path = tmp_path / "layout.yaml"
    path.write_text(LAYOUT)
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.txt"
    path.write_text(PAIRS)
    return path


def generate(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["config", "generate", *map(str, words)], input=stdin)


def test_an_embedded_cluster_becomes_a_configuration_of_its_nodes(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    path = tmp_path / "made.yaml"
    result = generate("--api-server", cluster.api_url, "--vc", "a=75%", "--vc", "b=25%", "-o", path)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"wrote {path}\n")
    made = load(path, environ={}).cluster
    assert [cell.address for cell in made.physical_cells] == NAMES
    assert made.sku_types["GPU"].cpu == 8
    assert {name: vc.virtual_cells[0].cell_count for name, vc in made.virtual_clusters.items()} == {"a": 9, "b": 3}


def test_a_layout_and_a_topology_become_nodes_with_switches(layout: Path, pairs: Path) -> None:
    result = generate("--layout", layout, "--topology", pairs, "--name", "K80=DT")
    assert result.exit_code == 0, result.stderr
    cluster = load_text(result.stdout, "f", environ={}).cluster
    assert list(cluster.cell_types) == ["DT-SWITCH", "DT-NODE"]
    assert cluster.sku_types["DT"].cpu == 2


def test_machines_can_be_known_by_their_topologies_alone(pairs: Path) -> None:
    result = generate("--offline", "--topology", f"n1={pairs}", "--topology", f"n2={pairs}", "--product", "A30")
    assert [cell.address for cell in load_text(result.stdout, "f", environ={}).cluster.physical_cells] == ["n1", "n2"]
    assert "    A30: {gpu: 1}\n" in result.stdout


@pytest.mark.parametrize("as_list", [True, False])
def test_nodes_are_read_from_standard_input(as_list: bool) -> None:
    node = {"kind": "Node", "metadata": {"name": "n0"}, "status": {"allocatable": {"nvidia.com/gpu": "2"}}}
    text = json.dumps({"kind": "List", "items": [node]} if as_list else node)
    assert "- {cellType: GPU-NODE, cellAddress: n0}" in generate("--nodes", "-", stdin=text).stdout


def test_a_resource_that_no_node_has_is_named_with_those_that_nodes_have() -> None:
    node = {"kind": "Node", "metadata": {"name": "n0"}, "status": {"allocatable": {"nvidia.com/gpu": "2"}}}
    result = generate("--nodes", "-", "--resource", "nvidia.com/gpuu", stdin=json.dumps(node))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Note: no node has nvidia.com/gpuu (--resource); nodes have nvidia.com/gpu\n")
    assert "Error: no machine with devices: " in result.stderr


def test_resources_may_be_written_with_commas() -> None:
    node = {"kind": "Node", "metadata": {"name": "n0"}, "status": {"allocatable": {"nvidia.com/gpu": "2"}}}
    result = generate("--nodes", "-", "--resource", "nvidia.com/gpu,amd.com/gpu", stdin=json.dumps(node))
    assert (result.exit_code, "cellAddress: n0" in result.stdout) == (0, True)


def test_standard_input_may_be_closed() -> None:
    result = run_without_input("config", "generate", "--nodes", "-")
    assert (result.returncode, result.stderr) == (1, "Error: --nodes -: standard input is closed\n")


def test_notes_go_to_standard_error_or_into_the_json(layout: Path) -> None:
    note = "virtual cluster b gets nothing of K80: its share is less than a node"
    words = ("--layout", layout, "--vc", "a=90%", "--vc", "b=10%")
    assert f"Note: {note}\n" in generate(*words).stderr
    answer = json.loads(generate(*words, "--format", "json").stdout)
    assert (answer["machines"], answer["notes"]) == (2, [note])
    assert load_text(answer["text"], "f", environ={}).cluster.physical_cells


def test_a_file_is_only_replaced_on_demand(layout: Path) -> None:
    result = generate("--layout", layout, "-o", layout)
    assert (result.exit_code, layout.read_text()) == (1, LAYOUT)
    assert "is there already: give --force to replace it" in result.stderr
    assert generate("--layout", layout, "-o", layout, "--force").exit_code == 0
    assert "virtualClusters:" in layout.read_text()


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        (["--offline"], 2, "expected machines by --topology NODE=FILE"),
        (["--offline", "--nodes", "-"], 2, "expected one of --layout, --nodes and --offline"),
        (["--offline", "--topology", "{pairs}"], 1, "found no name, expected NODE=FILE"),
        (["--offline", "--topology", "n-*={pairs}"], 1, "found n-*, expected NODE=FILE"),
        (["--layout", "{layout}", "--topology", "{layout}"], 1, "found no line with the columns GPU0, GPU1"),
        (["--layout", "{pairs}"], 1, "found a tab, expected spaces"),
        (["--layout", "none.yaml"], 1, "none.yaml: found no readable file"),
        (["--layout", "{layout}", "--vc", "a"], 1, "--vc 'a': expected NAME=SHARE"),
        (["--layout", "{layout}", "--name", "K80"], 1, "--name 'K80': expected PRODUCT=NAME"),
        (["--layout", "{layout}", "--reserve-cpu", "x"], 1, "--reserve-cpu 'x': expected a quantity"),
        (["--layout", "{layout}", "-l", "a in (b)"], 1, "expected KEY, !KEY, KEY=VALUE"),
        (["--nodes", "{layout}"], 1, "found something else than nodes, expected what `kubectl get nodes -o json`"),
        (["--nodes", "{pairs}"], 1, "found neither JSON nor YAML"),
        (["--nodes", "-"], 1, "found something else than nodes"),
        (["--api-server", "http://127.0.0.1:9"], 1, "127.0.0.1"),
    ],
)
def test_mistakes_are_told_in_one_message(
    words: list[str], exit_code: int, message: str, layout: Path, pairs: Path
) -> None:
    result = generate(*(word.format(layout=layout, pairs=pairs) for word in words), stdin="")
    assert (result.exit_code, message in result.stderr) == (exit_code, True), result.stderr
