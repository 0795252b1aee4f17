"""`hived service`: the lines that scripts of paictl have around a push."""

import pytest
from click.testing import CliRunner

from hived_cli import main
from tests.cli.config.config_service import Service, serving

SERVED = "hivedscheduler: runs, with version 1 of its configuration in force\n"
GOES_ON = "hivedscheduler: goes on, as hived config push needs no stop; jobs are placed meanwhile\n"
OTHER = "rest-server: no service of hived's, nothing was done with it\n"


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["-n", "rest-server", "hivedscheduler"], OTHER + GOES_ON),
        (["-n", "rest-server", "-n", "hivedscheduler"], OTHER + GOES_ON),
        (["-n", "rest-server"], OTHER),
        ([], GOES_ON),
    ],
)
def test_nothing_is_stopped(words: list[str], output: str) -> None:
    result = CliRunner().invoke(main, ["service", "stop", *words])
    assert (result.exit_code, result.output) == (0, output)


def test_a_start_tells_what_is_in_force() -> None:
    with serving(Service()) as service:
        command = ["service", "start", "-n", "rest-server", "hivedscheduler", "--server", service.address]
        result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.output) == (0, OTHER + SERVED)


def test_a_service_that_does_not_answer_has_not_started() -> None:
    result = CliRunner().invoke(main, ["service", "start", "--server", "http://127.0.0.1:1"])
    assert (result.exit_code, "127.0.0.1:1" in result.stderr) == (1, True)


def test_a_misspelt_name_is_told() -> None:
    result = CliRunner().invoke(main, ["service", "stop", "-n", "hivedschedular"])
    assert result.exit_code == 1
    assert result.stderr == "Error: no service hivedschedular; did you mean hivedscheduler?\n"
