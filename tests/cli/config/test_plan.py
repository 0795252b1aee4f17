"""`hived config plan`: exit codes, folders, mistakes, and what leaves the machine."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.cli.config.config_service import BROKEN, LESS, TEXT, Service, hit, openpai


def plan(service: Service, *words: str | Path) -> Result:
    return CliRunner().invoke(main, ["config", "plan", "--server", service.address, *map(str, words)])


def test_a_plan_that_affects_nobody_has_exit_code_0(service: Service, less: Path) -> None:
    result = plan(service, less)
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [
            "Running work: not affected (3 groups)",
            "Changes against version 1",
            "  virtual clusters changed: a",
            "  guaranteed:",
            "    a, NODE: NODE 2 -> 1, GPU 8 -> 4",
        ],
    )
    assert service.texts == [TEXT]


def test_running_work_that_is_affected_has_exit_code_2(service: Service, less: Path) -> None:
    service.affected = [[hit("ns/train")]]
    result = plan(service, less)
    assert (result.exit_code, "ns/train (a, priority 5, 2 pods): a has 1 NODE" in result.output) == (2, True)


def test_a_lost_guarantee_is_no_mistake_of_the_file(service: Service, less: Path) -> None:
    service.affected, service.downgrades = [[hit("ns/train")]], True
    result = plan(service, less)
    assert result.exit_code == 2
    assert result.output.startswith("Needs --allow-downgrade\n  it takes from a running group")
    assert "ns/train" in result.output


@pytest.mark.parametrize("words", [[], ["f.yaml", "--odd"], ["f.yaml", "--record", "none"]])
def test_a_wrong_command_line_does_not_say_that_work_is_affected(service: Service, words: list[str]) -> None:
    result = plan(service, *words)
    assert (result.exit_code, "Usage: " in result.stderr) == (1, True)


def test_an_identical_file_is_called_so(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(f"# a comment\n{TEXT}")
    result = plan(service, path)
    assert (result.exit_code, result.output) == (0, "identical: nothing changes against version 1\n")


def test_json_is_the_report(service: Service, less: Path) -> None:
    service.affected = [[hit("ns/train")]]
    result = plan(service, less, "--format", "json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["groups"]["affected"]) == (2, [hit("ns/train")])


def test_a_wrong_command_line_is_told_apart_from_work_that_is_affected() -> None:
    result = CliRunner().invoke(main, ["config", "plan"])
    assert (result.exit_code, "Missing argument 'FILE|DIR'" in result.stderr) == (1, True)


def test_every_mistake_is_listed_without_asking_the_service(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    result = plan(service, path)
    assert result.exit_code == 1
    assert [line.split(", expected")[0].removeprefix(str(tmp_path)) for line in result.stderr.splitlines()] == [
        "/broken.yaml:3: physicalCluster.cellTypes.NODE.childCellNumber: found 0",
        "/broken.yaml:6: physicalCluster.physicalCells[1].cellAdress: found unknown key 'cellAdress'",
        "/broken.yaml: 2 mistakes",
    ]
    assert service.requests == []


def test_mistakes_have_the_lines_of_openpais_file(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "services-configuration.yaml"
    path.write_text(openpai(BROKEN))
    assert f"{path}:7: " in plan(service, tmp_path).stderr


def test_mistakes_are_refusals_for_scripts(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    result = plan(service, path, "--format", "json")
    report = json.loads(result.stdout)
    assert (result.exit_code, len(report["refusals"]), report["affectsRunning"]) == (1, 2, False)


@pytest.mark.parametrize("name", ["services-configuration.yaml", "service-configuration.yaml"])
def test_a_folder_of_openpai_is_read_and_only_our_part_is_sent(service: Service, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(openpai(LESS))
    (tmp_path / "layout.yaml").write_text("machine-sku: {}\n")
    assert plan(service, tmp_path).exit_code == 0
    ((_, body),) = service.requests
    assert json.loads(body) == {"text": LESS, "file": str(tmp_path / name)}
    assert b"hunter2" not in body


def test_a_folder_with_both_names_is_ambiguous(service: Service, tmp_path: Path) -> None:
    for name in ("services-configuration.yaml", "service-configuration.yaml"):
        (tmp_path / name).write_text(openpai(LESS))
    result = plan(service, tmp_path)
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {tmp_path} has services-configuration.yaml and service-configuration.yaml: expected one of them; "
        "name the file that counts\n",
    )


def test_a_folder_without_a_configuration_is_told(service: Service, tmp_path: Path) -> None:
    result = plan(service, tmp_path)
    assert (result.exit_code, "has no configuration: expected services-configuration.yaml or" in result.stderr) == (
        1,
        True,
    )


def test_a_service_without_configurations_is_told(service: Service, less: Path) -> None:
    service.address += "/elsewhere"
    result = plan(service, less)
    assert (result.exit_code, result.stderr) == (1, "Error: /elsewhere/v1/config/plan is not here\n")
