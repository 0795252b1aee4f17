"""`hived config set-vc`, `move` and `remove-vc`: on files in place, and on the configuration of a service."""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.cli.config.config_service import TEXT, Service, hit, openpai, serving

MOVED = (
    TEXT.replace("cellNumber: 2", "cellNumber: 1") + "  b:\n    virtualCells:\n    - {cellType: NODE, cellNumber: 1}\n"
)


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(Service([TEXT + "  b:\n"])) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.yaml"
    path.write_text(TEXT + "  b:\n")
    return path


def config(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["config", *map(str, words)])


def test_a_file_is_edited_in_place_after_its_difference_is_shown(file: Path) -> None:
    file.chmod(0o640)
    result = config("move", "1", "NODE", "from", "a", "to", "b", "-f", file, "--yes")
    assert result.exit_code == 0, result.output
    assert file.read_text() == MOVED
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["f.yaml"]
    lines = [line for line in result.output.splitlines() if line.startswith(("-    ", "+    "))]
    assert lines == [
        "-    - {cellType: NODE, cellNumber: 2}",
        "+    - {cellType: NODE, cellNumber: 1}",
        "+    virtualCells:",
        "+    - {cellType: NODE, cellNumber: 1}",
    ]
    assert result.output.endswith(f"{file}: written\n")


def test_a_dry_run_writes_nothing(file: Path) -> None:
    result = config("set-vc", "b", "GPU=0", "NODE=0", "-f", file, "--dry-run")
    assert (result.exit_code, result.output) == (0, f"{file}: nothing changes\n")
    assert "+    - {cellType: NODE, cellNumber: 1}" in config("set-vc", "a", "NODE=1", "-f", file, "--dry-run").output
    assert file.read_text() == TEXT + "  b:\n"


def test_nobody_is_asked_where_nobody_can_answer(file: Path) -> None:
    result = config("remove-vc", "b", "-f", file)
    assert result.exit_code == 1
    assert "cannot ask, as standard input is no terminal; give --yes" in result.stderr
    assert file.read_text() == TEXT + "  b:\n"


def test_a_folder_of_openpai_is_edited_and_its_byte_order_mark_stays(tmp_path: Path) -> None:
    path = tmp_path / "services-configuration.yaml"
    path.write_bytes(codecs.BOM_UTF8 + openpai(TEXT + "  b:\n").encode())
    assert config("remove-vc", "b", "-f", tmp_path, "--yes").exit_code == 0
    assert path.read_bytes() == codecs.BOM_UTF8 + openpai(TEXT).encode()


def test_scripts_get_json_of_a_file(file: Path) -> None:
    result = config("set-vc", "c", "NODE=0", "NODE.GPU=0", "-f", file, "--format", "json", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    result = config("set-vc", "a", "NODE=1", "-f", file, "--format", "json", "--yes")
    assert json.loads(result.stdout) == {"file": str(file), "changed": True, "written": True}
    assert "+    - {cellType: NODE, cellNumber: 1}" in result.stderr


def test_the_configuration_of_the_service_is_edited_and_pushed(service: Service) -> None:
    words = ["move", "1", "NODE", "from", "a", "to", "b", "--server", service.address, "--yes"]
    result = config(*words)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("version 2 is in force\n")
    assert service.texts[-1] == MOVED
    (pushed,) = service.pushes
    assert (pushed["baseVersion"], pushed["message"]) == (1, "move 1 NODE from a to b")


def test_the_message_is_what_the_history_gets(service: Service) -> None:
    config("set-vc", "b", "GPU=0", "NODE=0", "--server", service.address, "--yes")
    assert service.pushes == []
    config("remove-vc", "b", "--server", service.address, "--yes", "--message", "has ended")
    assert (service.pushes[0]["message"], service.texts[-1]) == ("has ended", TEXT)


def test_a_dry_run_shows_the_plan_and_pushes_nothing(service: Service) -> None:
    service.affected = [[hit("ns/train")]]
    result = config("set-vc", "a", "NODE=1", "--dry-run", "--server", service.address)
    assert result.exit_code == 2
    assert "ns/train" in result.output
    assert service.pushes == []


def test_an_edit_that_cannot_be_is_refused_before_anything_is_sent(service: Service) -> None:
    result = config("move", "3", "NODE", "from", "a", "to", "b", "--server", service.address, "--yes")
    assert result.exit_code == 1
    assert "3 NODE cells were to move from a, which is promised 2 of them" in result.stderr
    assert service.requests == []


@pytest.mark.parametrize(
    "words",
    [
        ["set-vc", "a"],
        ["set-vc", "a", "NODE"],
        ["set-vc", "a", "NODE=-1"],
        ["set-vc", "a", "NODE=1", "NODE=2"],
        ["move", "0", "NODE", "from", "a", "to", "b"],
        ["move", "1", "NODE", "a", "b"],
        ["move", "1", "NODE", "to", "a", "from", "b"],
    ],
)
def test_wrong_usage_does_not_say_that_work_is_affected(words: list[str]) -> None:
    result = config(*words)
    assert (result.exit_code, "Usage: " in result.stderr) == (1, True)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = config("remove-vc", "a", "-f", tmp_path / "none.yaml", "--yes")
    assert result.exit_code == 1
    assert "none.yaml: found no readable file" in result.stderr


def test_a_new_name_is_told_as_it_may_be_a_typing_error(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(TEXT.replace("cellNumber: 2", "cellNumber: 1") + "  training:\n")
    assert config("set-vc", "tarining", "NODE=1", "-f", path, "--dry-run").stderr == (
        "tarining is a new virtual cluster (did you mean training?)\n"
    )
    assert config("set-vc", "training", "NODE=1", "-f", path, "--dry-run").stderr == ""


def test_what_does_not_fit_in_is_told_of_the_edit_that_was_made(file: Path) -> None:
    result = config("set-vc", "b", "NODE=90", "-f", file, "--yes")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: set-vc b NODE=90 does not fit in:\n")
    assert "expected at most the 2 that there are" in result.stderr
    assert file.read_text() == TEXT + "  b:\n"


@pytest.mark.parametrize("option", [("--message", "x"), ("--cluster-id", "x"), ("--allow-downgrade",)])
def test_what_is_for_pushes_is_refused_for_a_file(file: Path, option: tuple[str, ...]) -> None:
    result = config("move", "1", "NODE", "from", "a", "to", "b", "-f", file, "--yes", *option)
    assert (result.exit_code, "-f edits a file" in result.stderr) == (1, True)


def test_a_new_virtual_cluster_that_nobody_may_use_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("access: namespaces\n" + TEXT.replace("  a:\n", "  a:\n    namespaces: [labs]\n") + "  b:\n")
    config("move", "1", "NODE", "from", "a", "to", "b", "-f", path, "--yes")
    config("set-vc", "b", "NODE=0", "-f", path, "--yes")
    result = config("set-vc", "c", "NODE=1", "-f", path, "--yes")
    assert "virtualClusters.c: found no namespace, expected at least one under namespaces" in result.stderr
    assert "no namespace may use c yet: write namespaces: [NAMESPACE] below virtualClusters.c" in result.stderr
    assert "virtualClusters.b" not in result.stderr
