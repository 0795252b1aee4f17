"""`--watch` and `hived top`: answers are shown anew when they change, on terminals and in pipes, until Ctrl-C."""

import json
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from hived_cli import main
from tests.cli.terminal import LIMIT_S, Running
from tests.cli.waiting_service import GANG, REASON, WHY, WaitingService

pytestmark = pytest.mark.sample(6)

OFTEN = ("--interval", "0.2")
OTHER_SCREEN, MAIN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as running:
        yield running


def looks(service: WaitingService, count: int) -> None:
    """Wait until the service has been asked so often from now on."""
    until, before = time.monotonic() + LIMIT_S, len(service.told)
    while len(service.told) < before + count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_json_is_a_line_for_each_change_and_nothing_is_sent_twice(service: WaitingService) -> None:
    with Running("get", "jobs", "--watch", "-o", "json", *OFTEN, "--server", service.url) as command:
        command.read_until("\n")
        looks(service, 3)
        service.jobs = [replace(GANG, cause="bad")]
        command.read_until("\n", 2)
        looks(service, 2)
        assert command.interrupt() == 130
    first, second = (json.loads(line) for line in command.text.splitlines())
    assert (len(first["items"]), [job["cause"] for job in second["items"]]) == (3, ["bad"])
    assert set(service.told) == {200, 304}
    assert service.told.count(200) == 2


def test_text_in_a_pipe_follows_only_changes_of_the_service(service: WaitingService) -> None:
    with Running("get", "jobs", "--watch", *OFTEN, "--server", service.url) as command:
        command.read_until("me~train")
        looks(service, 4)
        service.jobs = []
        command.read_until("No job")
        assert command.interrupt() == 130
    assert command.text.count("JOB") == 1
    assert command.text.endswith("\n\nNo job waits or runs.\n")


def test_a_terminal_is_drawn_over_and_keeps_the_last_answer(service: WaitingService) -> None:
    with Running("get", "jobs", "--watch", *OFTEN, "--server", service.url, size=(20, 60)) as command:
        command.read_until("me~train")
        service.jobs = []
        command.read_until("No job")
        assert command.interrupt() == 130
    assert command.text.index(OTHER_SCREEN) < command.text.index(MAIN_SCREEN)
    assert command.text.split(MAIN_SCREEN)[1].strip().endswith("No job waits or runs.")


def test_the_key_q_ends_it(service: WaitingService) -> None:
    with Running("get", "nodes", "--watch", *OFTEN, "--server", service.url, size=(20, 60)) as command:
        command.read_until("dgx-3")
        command.press("q")
        assert command.wait() == 0


def test_a_terminal_is_put_back_when_the_command_is_ended(service: WaitingService) -> None:
    with Running("top", *OFTEN, "--server", service.url, size=(20, 60)) as command:
        command.read_until("vision")
        command.process.terminate()
        assert command.wait() == 143
    assert command.text.rindex(MAIN_SCREEN) > command.text.rindex(OTHER_SCREEN)


def test_more_lines_than_the_terminal_has_are_counted(service: WaitingService) -> None:
    service.jobs = [replace(GANG, name=f"podgroup/lab/gang-{number}") for number in range(50)]
    with Running("get", "jobs", "--watch", *OFTEN, "--server", service.url, size=(10, 160)) as command:
        command.read_until("... and 42 more lines")
        assert "podgroup/lab/gang-49" not in command.text


def test_a_service_that_is_away_is_asked_again(service: WaitingService) -> None:
    with Running("get", "nodes", "--bad", "--watch", "-o", "json", *OFTEN, "--server", service.url) as command:
        command.read_until("\n")
        service.is_down = True
        looks(service, 3)
        service.is_down = False
        looks(service, 2)
        assert command.interrupt() == 130
        errors = command.errors()
    assert command.text.count("\n") == 1
    assert errors == "not ready: kernels are being loaded Trying again every 0.2 s.\n"


def test_a_service_that_does_not_answer_at_first_is_an_error() -> None:
    result = CliRunner().invoke(main, ["get", "jobs", "--watch", "--server", "http://127.0.0.1:1"])
    assert (result.exit_code, "no answer from http://127.0.0.1:1" in result.stderr) == (1, True)


def test_watching_why_ends_with_the_job(service: WaitingService) -> None:
    with Running("why", "gang", "--watch", "--json", *OFTEN, "--server", service.url) as command:
        command.read_until("\n")
        service.whys[GANG.name] = replace(WHY, certificate=None)
        command.read_until("\n", 2)
        del service.whys[GANG.name]
        assert command.wait() == 0
        assert command.errors() == "podgroup/lab/gang is gone: it has ended, or was deleted\n"


def test_top_is_one_frame_where_there_is_no_terminal(service: WaitingService) -> None:
    result = CliRunner().invoke(main, ["top", "--server", service.url])
    lines = [line.rstrip() for line in result.output.splitlines()]
    assert result.exit_code == 0, result.output
    assert lines[0] == f"hived {service.url}   jobs: 1 waiting, 2 running   1 bad node"
    assert [line.split() for line in lines[2:5]] == [
        ["VC", "CHAIN", "GPUS", "IN", "USE", "LENT", "BORROWED", "BAD", "FREE", "NOW"],
        ["vision", "H100-POOL", "24", "8", "0", "0", "8", "1", "H100-NODE,", "8", "H100"],
        ["lang", "H100-POOL", "8", "0", "1", "0", "0", "8", "H100"],
    ]
    assert lines[7].startswith("dgx-3      NotReady")
    assert lines[10].startswith("podgroup/lab/gang   vision   Waiting")
    assert lines[10].endswith(REASON)


def test_top_shows_one_virtual_cluster_and_its_jobs(service: WaitingService) -> None:
    told = json.loads(CliRunner().invoke(main, ["top", "--vc", "lang", "-o", "json", "--server", service.url]).output)
    assert [one["vc"] for one in told["free_cells"]] == ["lang"]
    assert [one["name"] for one in told["jobs"]] == ["default/solo"]
    assert [one["node"] for one in told["bad_nodes"]] == ["dgx-3"]


def test_top_is_live_on_a_terminal_and_leaves_nothing_there(service: WaitingService) -> None:
    with Running("top", *OFTEN, "--server", service.url, size=(30, 100)) as command:
        command.read_until("podgroup/lab/gang")
        service.jobs = []
        command.read_until("No job waits.")
        assert command.interrupt() == 130
    assert command.text.split(MAIN_SCREEN)[1].strip() in ("", "\x1b[?25h")


@pytest.mark.parametrize(("value", "is_colored"), [("", True), ("1", False)])
def test_top_is_colored_unless_that_is_not_wished(service: WaitingService, value: str, is_colored: bool) -> None:
    with Running("top", *OFTEN, "--server", service.url, size=(30, 100), NO_COLOR=value) as command:
        command.read_until("podgroup/lab/gang")
        command.press("q")
        assert command.wait() == 0
    assert ("\x1b[33mWaiting" in command.text) == is_colored
