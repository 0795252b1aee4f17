"""`hived defrag` against a service over HTTP: plan, apply, status, stop and inputs."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.http.config_pushes import ConfigPushes
from hived_extender.http.late_app import LateApp
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.shim import Shim
from hived_extender.reconfiguration.stores import FileStore
from tests.extender.defrag.halves import Halves
from tests.extender.stored_config import configurations_of


class Served(Halves):
    """Halves, with a server."""

    url = ""

    def run(self, *arguments: str, text: str | None = None) -> Result:
        return CliRunner().invoke(main, ["defrag", *arguments, "--server", self.url], input=text)


@contextmanager
def serving(*, is_private: bool = True) -> Iterator[Served]:
    served = Served()
    service = served.cluster.service
    pushes = ConfigPushes(configurations_of(service, FileStore(Path("small.yaml"))), None, is_private=is_private)
    with closing(listen("127.0.0.1:0")) as listener:
        server = HttpServer(Shim(LateApp(service, None, pushes, served.desk), service), listener)
        server.start()
        served.url = server.url
        try:
            yield served
        finally:
            server.stop()


@pytest.fixture(scope="module")
def idle() -> Iterator[Served]:
    """A service that nobody changes."""
    with serving() as served:
        yield served


def test_a_plan_is_carried_out_and_followed(tmp_path: Path) -> None:
    with serving() as served:
        made = served.run("plan", "--vc", "a", "--want", "1xNODE", "--format", "json")
        assert made.exit_code == 0
        file = tmp_path / "plan.json"
        file.write_text(made.stdout)
        begun = served.run("apply", str(file), "--no-wait", "--format", "json")
        assert begun.exit_code == 0
        assert [move["state"] for move in json.loads(begun.stdout)["moves"]] == ["leaving"]
        again = served.run("apply", str(file), "--no-wait")
        assert again.exit_code == 1
        assert "nobody was moved: groups are being moved already" in again.stderr
        served.carry_on()
        status = served.run("status")
        assert status.stdout.startswith("done; 1 of 1 groups of a moved")
        followed = served.run("apply", "-", text=made.stdout)
        assert followed.exit_code == 1
        assert "nobody was moved: the plan does not hold any more" in followed.stderr


def test_moves_are_stopped(tmp_path: Path) -> None:
    with serving() as served:
        made = served.run("plan", "--vc", "a", "--want", "1xNODE", "--json").stdout
        served.run("apply", "-", "--no-wait", text=made)
        stopped = served.run("stop")
        assert stopped.exit_code == 0
        assert stopped.stdout.startswith("stopped: somebody stopped it; 0 of 1 groups of a moved")
        again = served.run("stop")
        assert again.exit_code == 0
        assert again.stdout == "No moves are under way: there is nothing to be stopped.\n"
        assert json.loads(served.run("stop", "--json").stdout)["state"] == "none"


def test_inputs_can_be_kept_for_later(idle: Served, tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text(idle.run("inputs").stdout)
    offline = CliRunner().invoke(main, ["defrag", "plan", "--state", str(file), "--vc", "a", "--want", "1xNODE"])
    online = idle.run("plan", "--vc", "a", "--want", "1xNODE")
    assert offline.exit_code == online.exit_code == 0
    assert offline.stdout.splitlines()[2:] == online.stdout.splitlines()[2:]


def test_nobody_has_been_moved_yet(idle: Served) -> None:
    assert idle.run("status").stdout == "Nobody has been moved since this replica began to lead.\n"


def test_scripts_get_json(idle: Served, tmp_path: Path) -> None:
    assert json.loads(idle.run("status", "--json").stdout)["state"] == "none"
    assert idle.run("status", "--json").stdout == idle.run("status", "--format", "json").stdout


def test_a_plan_that_was_applied_is_told_as_json() -> None:
    with serving() as served:
        made = served.run("plan", "--vc", "a", "--want", "1xNODE", "--json").stdout
        begun = served.run("apply", "-", "--no-wait", "--json", text=made)
        assert json.loads(begun.stdout)["state"] == "moving"


def test_a_file_that_is_no_plan_is_refused(idle: Served, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("[]")
    result = idle.run("apply", str(file))
    assert result.exit_code == 1
    assert "expected what `hived defrag plan --format json` prints" in result.stderr


def test_a_plan_from_a_file_is_not_carried_out_at_once(idle: Served, tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text(idle.run("inputs").stdout)
    result = idle.run("plan", "--state", str(file), "--vc", "a", "--want", "1xNODE", "--apply")
    assert result.exit_code == 2
    assert "--apply and --state exclude each other" in result.stderr


def test_a_service_that_does_not_know_its_callers_moves_nobody() -> None:
    with serving(is_private=False) as served:
        made = served.run("plan", "--vc", "a", "--want", "1xNODE", "--json").stdout
        result = served.run("apply", "-", "--no-wait", text=made)
        assert result.exit_code == 1
        assert "this service does not ask who calls" in result.stderr
        assert served.evicted() is None
