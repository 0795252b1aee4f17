"""`COMMAND FILE` and `COMMAND -f FILE` mean the same, for all commands that read a configuration."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.cli.config.config_service import LESS, TEXT, Service

JOBS = "job,tenant,submitted_s,duration_s,gpus\nx,a,0,600,4\n"


def config(service: Service, *words: object) -> Result:
    server = [] if words[0] in ("validate", "suggest") else ["--server", service.address]
    return CliRunner().invoke(main, ["config", *map(str, words), *server])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


@pytest.mark.parametrize("form", [[], ["-f"]])
@pytest.mark.parametrize("command", ["validate", "plan", "diff", "explain", "suggest", "push"])
def test_a_file_is_named_in_either_form(
    service: Service, less: Path, trace: Path, command: str, form: list[str]
) -> None:
    more = {"push": ["--yes"], "suggest": ["--trace", trace, "--goal", "delay"]}.get(command, [])
    result = config(service, command, *form, less, *more)
    assert result.exit_code == (1 if command == "diff" else 0), result.output
    assert service.texts == ([TEXT, LESS] if command == "push" else [TEXT])


@pytest.mark.parametrize("command", ["validate", "plan", "diff", "explain", "push"])
def test_a_folder_stands_for_the_file_in_it(service: Service, tmp_path: Path, command: str) -> None:
    (tmp_path / "hivedscheduler.yaml").write_text(LESS)
    result = config(service, command, "-f", tmp_path, *(["--yes"] if command == "push" else []))
    assert result.exit_code == (1 if command == "diff" else 0), result.output


@pytest.mark.parametrize("command", ["plan", "diff", "explain", "push"])
def test_two_files_are_one_too_many(service: Service, less: Path, command: str) -> None:
    result = config(service, command, less, "-f", less)
    assert (result.exit_code != 0, "expected one configuration, found" in result.stderr) == (True, True)
    assert service.texts == [TEXT]


def test_validate_takes_both_forms_at_once_and_wants_one(service: Service, less: Path) -> None:
    assert config(service, "validate", less, "-f", less, "-f", less).stdout.count("valid, cell chains") == 3
    result = config(service, "validate")
    assert (result.exit_code, "expected the file of a configuration" in result.stderr) == (2, True)
