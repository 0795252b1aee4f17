"""`hived config plan`: exit codes, folders, mistakes, and what leaves the machine."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.machine.recording.record import Recorder
from tests.cli.config.config_service import BROKEN, LESS, TEXT, Service, hit, openpai
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, spec_text


def plan(service: Service, *words: str | Path) -> Result:
    return CliRunner().invoke(main, ["config", "plan", "--server", service.address, *map(str, words)])


def test_a_plan_that_affects_nobody_has_exit_code_0(service: Service, less: Path) -> None:
    result = plan(service, less)
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [
            "Running work: not affected (3 jobs)",
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
    assert (result.exit_code, report["groups"]["affected"]) == (2, [hit("ns/train") | {"job": "", "job_pods": 0}])


BETTER = f"rules: 2\n{CONFIG}"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder with the record of a run in which one pod waits for another."""
    folder = tmp_path / "record"
    small = SmallCluster(recorder=Recorder(folder, CONFIG, run="run"))
    small.place("one", spec_text("b"))
    small.filter(small.create("two", spec_text("b")))
    small.service.close()
    return folder


def written(folder: Path, text: str) -> Path:
    path = folder / "new.yaml"
    path.write_text(text)
    return path


SAME_PAST = [
    "Recorded past with rules 2, instead of hived",
    "  run run: 7 operations, 2 decisions compared",
    "  every decision would have been the same",
]


def test_a_plan_of_other_rules_repeats_the_record(service: Service, recorded: Path, tmp_path: Path) -> None:
    result = plan(service, written(tmp_path, BETTER), "--record", recorded)
    assert (result.exit_code, result.stderr) == (0, "")
    assert '    rules: "hived" -> 2' in result.stdout.splitlines()
    assert result.stdout.splitlines()[-3:] == SAME_PAST
    assert service.requests == []


def test_a_plan_of_other_rules_has_the_recorded_past_as_json(service: Service, recorded: Path, tmp_path: Path) -> None:
    result = plan(service, written(tmp_path, BETTER), "--record", recorded, "--format", "json")
    report = json.loads(result.stdout)
    assert report["changes"]["settings"] == [{"key": "rules", "old": "hived", "new": 2, "needsRestart": False}]
    assert report["recordedPast"] == {
        "run": "run", "oldRules": "hived", "newRules": 2, "operations": 7, "questions": 2, "decisions": [], "first": [],
        "earlier": [], "later": [], "evicted": [], "spared": [], "unfollowed": 0,
    }  # fmt: skip


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_plan_of_the_same_rules_repeats_no_decisions(
    service: Service, recorded: Path, tmp_path: Path, form: str
) -> None:
    result = plan(service, written(tmp_path, CONFIG + "  c: {}\n"), "--record", recorded, "--format", form)
    assert result.exit_code == 0
    assert "ecorded" not in result.stdout


def test_keys_of_the_better_rules_are_other_rules_too(recorded: Path, tmp_path: Path, service: Service) -> None:
    (recorded / "run.yaml").write_text(BETTER)
    sparing = written(tmp_path, BETTER.replace("  b:\n", "  b:\n    sparing: true\n"))
    result = plan(service, sparing, "--record", recorded)
    assert "Recorded past with these keys of rules 2" in result.stdout.splitlines()


def test_the_record_of_the_service_is_repeated_where_its_files_are_here(
    service: Service, recorded: Path, tmp_path: Path
) -> None:
    service.texts, service.record = [CONFIG], f"{recorded}/run"
    assert plan(service, written(tmp_path, BETTER)).stdout.splitlines()[-3:] == SAME_PAST


@pytest.mark.parametrize("record", ["", "/nowhere/run"])
def test_without_its_files_a_plan_of_other_rules_says_how_to_see_the_past(
    service: Service, tmp_path: Path, record: str
) -> None:
    service.texts, service.record = [CONFIG], record
    result = plan(service, written(tmp_path, BETTER))
    assert result.exit_code == 0
    assert "the service keeps no record on this machine: `hived config plan --record DIR FILE`" in result.stderr
    assert "Recorded past" not in result.stdout


def test_a_record_of_the_service_that_cannot_be_repeated_does_not_break_the_plan(
    service: Service, recorded: Path, tmp_path: Path
) -> None:
    service.texts, service.record = [CONFIG], f"{recorded}/run"
    (recorded / "run-0001.jsonl").write_text("{}\n")
    result = plan(service, written(tmp_path, BETTER))
    assert result.exit_code == 0
    assert "the service's record cannot be repeated here: " in result.stderr
    assert "run-0001.jsonl:1: " in result.stderr


def test_a_wrong_command_line_is_told_apart_from_work_that_is_affected() -> None:
    result = CliRunner().invoke(main, ["config", "plan"])
    assert (result.exit_code, "expected the file of a configuration: FILE, -f FILE" in result.stderr) == (1, True)


def test_every_mistake_is_listed_without_asking_the_service(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    result = plan(service, path)
    assert result.exit_code == 1
    assert [line.split(", expected")[0].removeprefix(str(tmp_path)) for line in result.stderr.splitlines()] == [
        "/broken.yaml:3: physicalCluster.cellTypes.NODE.childCellNumber: found 0",
        "/broken.yaml:6: physicalCluster.physicalCells[1].cellAdress: found unknown key 'cellAdress'",
        "/broken.yaml: 2 mistakes",
        "/broken.yaml: not checked yet, because of these mistakes: what is below cells of type NODE, and promises "
        "of it",
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
