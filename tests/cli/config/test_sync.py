"""`hived config sync`: a file, or the service's configuration, follows the nodes of a cluster."""

import json
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.cli.config.config_service import TEXT, Service, hit, openpai
from tests.expecting import expect_soon
from tests.programs import hived


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    return write_nodes(tmp_path / "nodes.json", "n0", "n2")


def write_nodes(path: Path, *names: str) -> Path:
    status = {"allocatable": {"nvidia.com/gpu": "4"}}
    path.write_text(json.dumps({"items": [{"metadata": {"name": name}, "status": status} for name in names]}))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hivedscheduler.yaml"
    path.write_text(TEXT)
    return path


def sync(*words: object) -> Result:
    return CliRunner().invoke(main, ["config", "sync", *map(str, words)])


def test_a_file_is_changed_and_the_difference_is_shown(file: Path, nodes: Path) -> None:
    file.chmod(0o640)
    result = sync("-f", file, "--nodes", nodes, "--yes")
    assert result.exit_code == 0, result.stderr
    assert file.read_text() == TEXT.replace("n1", "n2")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [line for line in result.stdout.splitlines() if line.startswith(("-  ", "+  ", "n"))] == [
        "-  - {cellType: NODE, cellAddress: n1}",
        "+  - {cellType: NODE, cellAddress: n2}",
        "n2 takes the place of n1 (NODE)",
    ]
    assert sync("-f", file, "--nodes", nodes).stdout == f"{file}: all nodes are up to date\n"
    assert sorted(path.name for path in file.parent.iterdir()) == ["hivedscheduler.yaml", "nodes.json"]


def test_a_folder_of_openpai_is_one_too(tmp_path: Path, nodes: Path) -> None:
    path = tmp_path / "services-configuration.yaml"
    path.write_text(openpai(TEXT))
    assert sync("-f", tmp_path, "--nodes", nodes, "--yes").exit_code == 0
    assert path.read_text() == openpai(TEXT.replace("n1", "n2"))


def test_a_dry_run_changes_nothing_and_says_so_by_its_exit_code(file: Path, nodes: Path) -> None:
    result = sync("-f", file, "--nodes", nodes, "--dry-run", "--format", "json")
    assert (result.exit_code, file.read_text()) == (2, TEXT)
    assert json.loads(result.stdout) == {
        "changed": True,
        "changes": ["n2 takes the place of n1 (NODE)"],
        "notes": [],
    }
    write_nodes(nodes, "n0", "n1")
    assert sync("-f", file, "--nodes", nodes, "--dry-run").exit_code == 0


def test_room_for_nodes_to_come_can_be_asked_for(file: Path, nodes: Path) -> None:
    result = sync("-f", file, "--nodes", nodes, "--max", "NODE=3", "--yes")
    assert result.stdout.endswith("a new NODE for 1 placeholder\n")
    assert "  - {cellType: NODE, cellAddress: placeholder-node-1}\n" in file.read_text()


def test_what_is_in_force_in_the_service_is_pushed_anew(service: Service, nodes: Path) -> None:
    result = sync("--server", service.address, "--nodes", nodes, "--yes")
    assert result.exit_code == 0, result.stderr
    assert service.texts[-1] == TEXT.replace("n1", "n2")
    (sent,) = service.pushes
    assert (sent["baseVersion"], sent["message"]) == (1, "sync of nodes: n2 takes the place of n1 (NODE)")
    assert result.stdout.endswith("version 2 is in force\n")
    again = sync("--server", service.address, "--nodes", nodes, "--yes")
    assert (again.stdout, len(service.pushes)) == ("version 2: all nodes are up to date\n", 1)


def test_who_is_affected_is_shown_before_anything_is_pushed(service: Service, nodes: Path) -> None:
    service.affected = [[hit("train")]]
    result = sync("--server", service.address, "--nodes", nodes)
    assert result.exit_code == 1
    assert "train" in result.stdout
    assert "nothing was pushed: cannot ask" in result.stderr
    assert service.pushes == []


def test_a_dry_run_against_the_service_sends_nothing(service: Service, nodes: Path) -> None:
    assert sync("--server", service.address, "--nodes", nodes, "--dry-run").exit_code == 2
    assert service.requests == []


def test_json_has_the_answer_of_the_service_alone(service: Service, nodes: Path) -> None:
    result = sync("--server", service.address, "--nodes", nodes, "--yes", "--format", "json")
    assert json.loads(result.stdout)["version"] == 2


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        (["--max", "NODE"], 1, "--max 'NODE': expected TYPE=N, as in V100-NODE=32"),
        (["--max", "RACK=3"], 1, "no cell type 'RACK' at node level: expected one of NODE"),
    ],
)
def test_mistakes_are_told(words: list[str], exit_code: int, message: str, file: Path, nodes: Path) -> None:
    result = sync("-f", file, "--nodes", nodes, *words)
    assert (result.exit_code, file.read_text()) == (exit_code, TEXT)
    assert message in result.stderr


def test_nothing_is_written_if_nobody_can_be_asked(file: Path, nodes: Path) -> None:
    result = sync("-f", file, "--nodes", nodes)
    assert (result.exit_code, file.read_text()) == (1, TEXT)
    assert "nothing was written: cannot ask" in result.stderr


def test_watching_needs_a_yes() -> None:
    result = sync("--watch", "5")
    assert result.exit_code == 1
    assert "expected --yes" in result.stderr


@pytest.mark.long
def test_a_watch_follows_nodes_until_it_is_told_to_stop(file: Path, nodes: Path) -> None:
    words = ("config", "sync", "-f", str(file), "--nodes", str(nodes), "--watch", "1", "--yes")
    with hived(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        expect_soon(lambda: "n2" in file.read_text())
        nodes.write_text("{")
        assert process.stderr is not None
        assert "found neither JSON nor YAML" in process.stderr.readline()
        write_nodes(nodes, "n0", "n2", "n3")
        expect_soon(lambda: "n3" in file.read_text())
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "up to date" not in output
