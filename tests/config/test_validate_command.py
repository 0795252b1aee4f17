"""`hived config validate`, run as its users run it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.config.sound_file import SOUND

BAD = SOUND.replace("cellAddress: n0", "cellAdress: n0").replace("childCellNumber: 2}", "childCellNumber: 0}", 1)


def run(*arguments: str | Path) -> Result:
    """The outcome of `hived config validate` with these arguments."""
    return CliRunner().invoke(main, ["config", "validate", *map(str, arguments)])


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A file without mistakes."""
    path = tmp_path / "sound.yaml"
    path.write_text(SOUND)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A file with an unknown key and a wrong count."""
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return path


def test_a_sound_file_is_summed_up_with_exit_code_0(sound: Path) -> None:
    result = run(sound)
    assert (result.exit_code, result.output) == (0, f"{sound}: valid, cell chains NODE, RACK; 2 virtual clusters\n")


def test_every_mistake_of_every_file_is_listed_with_exit_code_1(sound: Path, bad: Path, tmp_path: Path) -> None:
    result = run(bad, sound, tmp_path / "none.yaml")
    assert result.exit_code == 1
    assert [line.split(", expected")[0].replace(str(tmp_path), "") for line in result.output.splitlines()] == [
        "/bad.yaml:3: physicalCluster.cellTypes.PAIR.childCellNumber: found 0",
        "/bad.yaml:9: physicalCluster.physicalCells[0].cellChildren[0].cellAdress: found unknown key 'cellAdress'",
        "/bad.yaml: 2 mistakes",
        "/sound.yaml: valid, cell chains NODE, RACK; 2 virtual clusters",
        "/none.yaml: found no readable file (No such file or directory)",
        "/none.yaml: 1 mistake",
    ]


def test_lenient_turns_unknown_keys_into_warnings(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(f"extra: 1\n{SOUND}")
    result = run(path, "--lenient")
    assert result.exit_code == 0
    assert result.output.startswith(f"{path}:1: warning: extra: found unknown key 'extra', expected one of ")
    assert run(path).exit_code == 1


def test_scripts_get_json(sound: Path, bad: Path) -> None:
    result = run(bad, sound, "--format", "json")
    assert result.exit_code == 1
    answer = json.loads(result.output)
    assert answer["valid"] is False
    assert [(file["file"], file["valid"], len(file["mistakes"])) for file in answer["files"]] == [
        (str(bad), False, 2),
        (str(sound), True, 0),
    ]
    assert answer["files"][0]["mistakes"][1] == {
        "line": 9,
        "path": "physicalCluster.physicalCells[0].cellChildren[0].cellAdress",
        "found": "unknown key 'cellAdress'",
        "expected": "one of cellType, cellAddress, pinnedCellId, cellChildren",
        "suggestion": "cellAddress",
    }


def test_warnings_are_apart_from_mistakes_in_json(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(f"extra: 1\n{SOUND}")
    (file,) = json.loads(run(path, "--lenient", "--format", "json").output)["files"]
    assert (file["valid"], file["mistakes"], file["warnings"][0]["path"]) == (True, [], "extra")


@pytest.mark.parametrize("arguments", [(), ("--format", "xml", "f.yaml"), ("--strict", "f.yaml")])
def test_wrong_usage_has_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_the_help_shows_examples() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "hived config validate hivedscheduler.yaml" in result.output
