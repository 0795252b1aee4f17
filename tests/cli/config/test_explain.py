"""`hived config explain` draws a file, a folder of OpenPAI's, or what a service says it has."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.cli.config.config_service import Service, serving
from tests.places import ROOT

SAMPLES = ROOT / "config" / "samples"


def explain(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["config", "explain", *map(str, arguments)])


def test_a_chain_is_drawn_with_a_column_for_each_virtual_cluster() -> None:
    result = explain(SAMPLES / "pinned-cells.yaml")
    assert result.exit_code == 0
    assert (
        result.output
        == """\
RACK   3 top-level cells, 6 nodes, 24 GPUs
  cells: 0, 1, 2

  LEVEL   CELL TYPE       CELLS   LEAVES EACH   simulation   genomics   default   SPARE
  3       RACK                3             8           1*          .         .       .
  2        NODE (node)        6             4            .       1+1*         2       .
  1         GPU              24             1            .          .         .       .
          all leaves         24                          8          8         8       0
          share          100.0%                      33.3%      33.3%     33.3%    0.0%

  [SSSSSSSSSSSSSSSSSSSSSGGGGGGGGGGGGGGGGGGGGGGDDDDDDDDDDDDDDDDDDDDD]
  S simulation   G genomics   D default   . spare
  * pinned cell fast-network: RACK 0, pinned by simulation
  * pinned cell data-machine: NODE 1/r2n1, pinned by genomics

access: namespaces
  VIRTUAL CLUSTER   MAX PRIORITY   NAMESPACES
  simulation                1000   default, simulation
  genomics                  1000   default, genomics
  default                   1000   default
opportunistic: every namespace

rules: 2
"""
    )


def test_virtual_clusters_with_keys_of_the_better_rules_are_named(tmp_path: Path) -> None:
    text = (SAMPLES / "two-machines.yaml").read_text()
    file = tmp_path / "f.yaml"
    file.write_text(text.replace("  research:\n", "  research:\n    combine: true\n    sparing: true\n"))
    assert explain(file).output.endswith("\n\nrules: 2\n  combine: research\n  sparing: research\n")


RULES = """\
access: namespaces
opportunistic: {namespaces: [labs, {matchExpressions: [{key: team, operator: In, values: [red, blue]}]}]}
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 1, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: a}]
virtualClusters:
  one:
    maxPriority: prod
    namespaces: [labs, {name: ci, maxPriority: test}, {matchLabels: {team: red, env: x}}]
  two:
    namespaces: [{matchExpressions: [{key: old, operator: DoesNotExist}, {key: a, operator: NotIn, values: [b]}]}]
"""


def test_who_may_use_a_virtual_cluster_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "hivedscheduler.yaml"
    file.write_text(RULES)
    assert (
        explain(file).output.split("\n\n")[-1]
        == """\
access: namespaces
  VIRTUAL CLUSTER   MAX PRIORITY   NAMESPACES
  one                        100   labs, ci (up to 10), team=red and env=x
  two                       1000   !old and a notin (b)
opportunistic: labs, team in (red,blue)
"""
    )
    access = json.loads(explain(file, "--format", "json").output)["access"]
    one = access["virtualClusters"]["one"]
    assert (access["access"], one["maxPriority"]) == ("namespaces", 100)
    assert one["namespaces"][:2] == ["labs", {"name": "ci", "maxPriority": 10}]
    assert access["opportunistic"]["namespaces"][0] == "labs"


def test_a_file_without_rules_of_access_says_so_in_one_line() -> None:
    assert explain(SAMPLES / "racks.yaml").output.endswith("\n\naccess: everybody\n\nrules: 2\n")


def test_a_virtual_cluster_without_part_of_a_chain_has_no_column() -> None:
    first = explain(SAMPLES / "several-skus.yaml").output.split("\n\n4-V100")[0].split("\n\n2-V100-NODE")[0]
    assert "nothing of this chain: services" in first
    assert "services" not in first.split("LEVEL")[1].split("\n")[0]


def test_a_folder_of_openpai_stands_for_the_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "services-configuration.yaml").write_text((SAMPLES / "services-configuration.yaml").read_text())
    assert explain(tmp_path).output == explain(SAMPLES / "services-configuration.yaml").output


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    result = explain(tmp_path)
    assert result.exit_code == 1
    assert "has no configuration: expected services-configuration.yaml" in result.stderr


def test_the_queue_of_each_virtual_cluster_is_named_where_jobs_wait(tmp_path: Path) -> None:
    text = (SAMPLES / "two-machines.yaml").read_text()
    queue = "{borrow: true, weight: 2, maxRunningPerUser: 3, maxWaitingPerUser: 9}"
    file = tmp_path / "f.yaml"
    for is_enabled in ("false", "true"):
        head = f"queues: {{enabled: {is_enabled}, halfLifeMinutes: 90}}\n"
        file.write_text(head + text.replace("  research:\n", f"  research:\n    queue: {queue}\n"))
        assert ("queues: policy" in explain(file).output) is (is_enabled == "true")
    drawn = explain(file).output.splitlines()
    at = drawn.index("queues: policy hived, past use counts half after 90 minutes")
    said = "borrows idle cells by weight 2, at most 3 running per user, at most 9 waiting per user"
    assert f"  research: {said}" in drawn[at + 1 :]
    assert any(line.endswith(": does not borrow") for line in drawn[at + 1 :])
    queues = json.loads(explain(file, "--format", "json").output)["queues"]
    assert (queues["enabled"], queues["virtualClusters"]["research"]["maxRunningPerUser"]) == (True, 3)


def test_scripts_get_json() -> None:
    answer = json.loads(explain(SAMPLES / "racks.yaml", "--format", "json").output)
    (chain,) = answer["chains"]
    assert answer["rules"] == 2
    assert (chain["chain"], chain["nodes"], chain["leafCells"]) == ("A100-RACK", 16, 128)
    assert chain["levels"][1] == {
        "level": 4,
        "cellType": "A100-NODE",
        "cells": 16,
        "leafCellsEach": 8,
        "isNodeLevel": True,
        "virtualCells": {"training": 2},
        "pinnedCells": {},
        "spare": 0,
    }
    assert chain["virtualClusters"]["training"] == {"leafCells": 80, "share": 0.625}


def test_many_virtual_clusters_are_drawn_in_blocks_of_100_columns(tmp_path: Path) -> None:
    cells = ", ".join(f"{{cellType: NODE, cellAddress: n{i}}}" for i in range(40))
    vcs = "".join(f"  team-{i:02}: {{virtualCells: [{{cellType: NODE, cellNumber: 1}}]}}\n" for i in range(30))
    file = tmp_path / "f.yaml"
    file.write_text(
        "physicalCluster:\n  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}\n"
        f"  physicalCells: [{cells}]\nvirtualClusters:\n{vcs}"
        "  SPARE: {virtualCells: [{cellType: NODE, cellNumber: 1}]}\n"
    )
    output = explain(file).output
    assert max(map(len, output.splitlines())) <= 100
    titles = [title for line in output.splitlines() if "LEVEL" in line for title in line.split()[6:]]
    assert titles == [*(f"team-{i:02}" for i in range(30)), "SPARE", "SPARE"]


def test_the_running_service_is_asked_where_no_file_is_given() -> None:
    with serving(Service([(SAMPLES / "racks.yaml").read_text()])) as service:
        result = explain("--server", service.address)
    assert (result.exit_code, result.output) == (0, explain(SAMPLES / "racks.yaml").output)


def test_a_file_with_mistakes_is_refused_with_all_of_them(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text((SAMPLES / "racks.yaml").read_text().replace("cellNumber: 8", "cellNumber: 9"))
    result = explain(file)
    assert result.exit_code == 1
    assert "65 A100-SWITCH cells of chain A100-RACK promised (training 40, research 16, notebooks 9)" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("racks", [4096])
def test_16_384_nodes_are_drawn_at_once(tmp_path: Path, racks: int) -> None:
    cells = "".join(
        f"  - cellType: RACK\n    cellChildren: [{', '.join(f'{{cellAddress: n{4 * i + j}}}' for j in range(4))}]\n"
        for i in range(racks)
    )
    file = tmp_path / "f.yaml"
    file.write_text(
        "physicalCluster:\n  cellTypes:\n    NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}\n"
        f"    RACK: {{childCellType: NODE, childCellNumber: 4}}\n  physicalCells:\n{cells}"
        "virtualClusters:\n  a: {virtualCells: [{cellType: RACK.NODE, cellNumber: 9}]}\n"
    )
    start = time.thread_time()
    result = explain(file)
    assert "RACK   4,096 top-level cells, 16,384 nodes, 131,072 GPUs" in result.output
    assert "cells: 0, 1, 2, ... 4095" in result.output
    assert time.thread_time() - start < 10
