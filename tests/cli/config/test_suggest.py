"""`hived config suggest`: a proposal that is a sound configuration, with its effect, the same every time."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_config.loader import load_text

NOW = """\
# kept
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellAddress: r1, cellChildren: [{cellAddress: n1}, {cellAddress: n2}]}
  - {cellType: RACK, cellAddress: r2, cellChildren: [{cellAddress: n3}, {cellAddress: n4}]}
virtualClusters:
  a: {virtualCells: [{cellType: RACK.NODE, cellNumber: 3}]}  # too many
  b: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]}
"""
JOBS = "job,tenant,submitted_s,duration_s,gpus\nx,a,0,600,4\ny,b,0,600,4\nz,b,0,600,4\nw,b,900,600,8\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("now.yaml").write_text(NOW)
    Path("jobs.csv").write_text(JOBS)
    return tmp_path


def suggest(*words: str) -> Result:
    return CliRunner().invoke(main, ["config", "suggest", "--trace", "jobs.csv", *words])


def test_a_proposal_explains_itself_and_shows_its_effect(folder: Path) -> None:
    result = suggest("--goal", "delay", "--config", "now.yaml")
    assert result.exit_code == 0, result.output
    assert "b gets 1 RACK.NODE of a: the 3 jobs of b wait" in result.stdout
    assert "and 0 never start instead of 1, and the only job of a waits 0 s on average instead of 0 s." in result.stdout
    assert "-  a: {virtualCells: [{cellType: RACK.NODE, cellNumber: 3}]}  # too many" in result.stdout
    assert "+  a: {virtualCells: [{cellType: RACK.NODE, cellNumber: 2}]}  # too many" in result.stdout
    assert Path("now.yaml").read_text() == NOW


def test_the_file_is_sound_and_json_has_all_of_it(folder: Path) -> None:
    words = ["--goal", "delay", "--config", "now.yaml", "-o", "next.yaml", "--json"]
    first, second = suggest(*words).stdout, suggest(*words).stdout
    assert first == second
    found = json.loads(first)
    assert found["text"] == Path("next.yaml").read_text()
    assert found["cells"] == {"a": [{"RACK.NODE": 3}, {"RACK.NODE": 2}], "b": [{"RACK.NODE": 1}, {"RACK.NODE": 2}]}
    assert found["never"] == {"b": [1, 0]}
    assert load_text(found["text"], "next.yaml").cluster.virtual_clusters["b"].virtual_cells[0].cell_count == 2


def test_promises_above_nodes_are_named_and_promises_of_nodes_are_not(folder: Path) -> None:
    note = "Cells above nodes are promised to b (RACK). Work that borrows idle cells loses far more there"
    assert "Cells above" not in suggest("now.yaml", "--goal", "delay").stdout
    nodes = "b: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]}"
    Path("now.yaml").write_text(
        NOW.replace("cellNumber: 3", "cellNumber: 2").replace(nodes, nodes.replace(".NODE", ""))
    )
    assert note in suggest("now.yaml", "--goal", "delay").stdout
    assert note in json.loads(suggest("now.yaml", "--goal", "delay", "--json").stdout)["notes"][0]


def test_a_written_proposal_says_how_it_is_pushed_and_nothing_better_shows_no_difference(folder: Path) -> None:
    assert (
        "hived config push next.yaml --certify jobs.csv"
        in suggest("now.yaml", "--goal", "delay", "-o", "next.yaml").stdout
    )
    again = suggest("next.yaml", "--goal", "delay").stdout
    assert ("nothing better was found" in again, again.endswith("\n\n")) == (True, False)


def test_few_nodes_are_one_rack_unless_somebody_says_otherwise(folder: Path) -> None:
    assert suggest("--goal", "delay", "--nodes", "4").exit_code == 0


def test_a_new_cluster_is_divided(folder: Path) -> None:
    result = suggest("--goal", "shapes", "--nodes", "4", "--gpus", "4", "--rack", "2")
    assert result.exit_code == 0, result.output
    assert "2 RACK.NODE of b become 1 RACK: 1 job fits into one" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--goal", "delay"], "expected either FILE (or --config FILE), or --nodes N"),
        (["--goal", "delay", "--config", "now.yaml", "--nodes", "3"], "expected either FILE (or --config FILE)"),
        (
            ["--goal", "delay", "now.yaml", "--config", "now.yaml"],
            "expected one configuration, found FILE and --config",
        ),
        (["--goal", "delay", "--config", "now.yaml", "-o", "none/next.yaml"], "there is no folder none"),
        (["--goal", "delay", "--config", "jobs.csv"], "jobs.csv"),
        (["--goal", "fair", "--config", "now.yaml", "--tenants", "a=c"], "has no virtual cluster 'c'"),
    ],
)
def test_mistakes_are_told(folder: Path, words: list[str], message: str) -> None:
    result = suggest(*words)
    assert (result.exit_code != 0, message in result.stderr) == (True, True), result.output


def test_shares_are_a_configuration_at_once_that_the_trace_can_run_on(folder: Path) -> None:
    result = suggest("--goal", "share", "--nodes", "4", "--gpus", "4", "--rack", "2", "-o", "next.yaml")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[1:3] == [["a", "1", "1", "1", "4", "0"], ["b", "1", "3", "3", "12", "0"]]
    assert load_text(Path("next.yaml").read_text(), "next.yaml").cluster.virtual_clusters["b"].virtual_cells
    words = ["simulate", "--config", "next.yaml", "--trace", "jobs.csv", "--out", "results"]
    assert CliRunner().invoke(main, words).exit_code == 0


def test_tenants_that_share_a_virtual_cluster_are_told_how_to_say_so(folder: Path) -> None:
    words = ["--goal", "share", "--nodes", "4", "--gpus", "4", "--rack", "2", "--vcs", "1"]
    result = suggest(*words, "-o", "next.yaml")
    assert "--tenants '*=others'" in result.stdout
    found = json.loads(suggest(*words, "--json").stdout)
    assert found["text"] == Path("next.yaml").read_text()
    assert [(one["vc"], one["tenants"], one["leaf_cells"]) for one in found["vcs"]] == [("others", 2, 16)]


@pytest.mark.parametrize("words", [["--goal", "share"], ["--goal", "delay", "--vcs", "2"]])
def test_shares_are_of_new_configurations_only(folder: Path, words: list[str]) -> None:
    result = suggest(*words, "--config", "now.yaml")
    assert result.exit_code == 2
    assert "expected --nodes N, not a file" in result.stderr
