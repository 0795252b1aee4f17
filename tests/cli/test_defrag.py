"""`hived defrag`: plans as text and JSON, carried out by a service and followed."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_cli.defrag import draw, tell
from hived_extender.api.defrag import (
    AutomaticMoves,
    DefragPlan,
    InputGroup,
    InputJob,
    InputPlace,
    InputPod,
    Inputs,
    LastLook,
    Move,
    MoveState,
    MovingReport,
    PlannedPod,
    WantedOutcome,
)
from hived_extender.http.change_rights import ConfigPushes
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.shim import LateApp, Shim
from hived_extender.reconfiguration.stores import FileStore
from tests.extender.insight.defrag.halves import Halves
from tests.extender.stored_config import configurations_of

CONFIGURATION = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 4}
  physicalCells:
  - cellType: RACK
    cellChildren: [{cellAddress: n0}, {cellAddress: n1}, {cellAddress: n2}, {cellAddress: n3}]
virtualClusters:
  research:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 4}]
"""

HOUR_S = 3600.0
NOW = 500_000.0


def group(name: str, node: str, cells: tuple[int, ...], hours: float | None = None, **more: Any) -> InputGroup:
    """A group of one pod that began to run so many hours ago."""
    spec = {"virtualCluster": "research", "priority": 0, "leafCellNumber": len(cells)}
    members = [{"podNumber": 1, "leafCellNumber": len(cells)}]
    return InputGroup(
        spec=spec | {"affinityGroup": {"name": name, "members": members}},
        chain="RACK",
        places=[[InputPlace(node, cells, ("NODE",) * len(cells))]],
        pods=[InputPod(f"uid-{name}", "team", name, node, cells)],
        started_at=None if hours is None else NOW - hours * HOUR_S,
        **({"may_move": True} | more),
    )


def half_used(**more: Any) -> Inputs:
    """A group of two GPUs on each node; those on the first nodes run longest."""
    groups = [group(f"team/g{i}", f"n{i}", (0, 1), hours=4.0 - i) for i in range(4)]
    return Inputs(at=NOW, configuration=CONFIGURATION, **({"groups": groups} | more))


def write_inputs(folder: Path, inputs: Inputs) -> Path:
    """The file, as `--state` takes it."""
    file = folder / "inputs.json"
    file.write_bytes(msgspec.json.encode(inputs))
    return file


def run(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["defrag", "plan", "--state", str(file), *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_inputs(tmp_path, half_used())


def test_the_group_that_loses_least_is_moved(file: Path) -> None:
    result = run(file, "--vc", "research", "--want", "1xNODE")
    assert result.exit_code == 0
    assert result.stdout == (
        "1 move makes room for 1 of 1 wanted in virtual cluster research, 0 had room before; 2.00 GPU-hours are lost.\n"
        "\n"
        "STEP   GROUP     USE          FROM     TO       GPU-H LOST\n"
        "   1   team/g3   guaranteed   n3:0-1   n2:2-3         2.00\n"
        "\n"
        "WANTED          AT       PREEMPTS\n"
        "1xNODE   room   n3:0-3\n"
        "\n"
        "The plan is optimal (search).\n"
    )


def test_a_plan_as_json_has_the_moves_in_order(file: Path) -> None:
    result = run(file, "--vc", "research", "--want", "2xNODE", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer == json.loads(run(file, "--vc", "research", "--want", "2xNODE", "--format", "json").stdout)
    assert [move["group"] for move in answer["moves"]] == ["team/g2", "team/g3"]
    assert answer["lostGpuHours"] == 6.0
    assert answer["isOptimal"] is True


def test_two_runs_print_the_same_bytes(file: Path) -> None:
    arguments = ("--vc", "research", "--want", "2xNODE", "--json")
    assert run(file, *arguments).stdout == run(file, *arguments).stdout


def test_the_exit_code_is_4_where_nothing_is_needed(file: Path) -> None:
    result = run(file, "--vc", "research", "--want", "4x2")
    assert result.exit_code == 4
    assert result.stdout == "Nothing is needed: virtual cluster research has room for all 1 wanted.\n"


def test_the_exit_code_is_3_where_nobody_may_be_moved(tmp_path: Path) -> None:
    groups = [group(f"team/g{i}", f"n{i}", (0, 1), may_move=False) for i in range(4)]
    result = run(write_inputs(tmp_path, half_used(groups=groups)), "--vc", "research", "--want", "1xNODE")
    assert result.exit_code == 3
    assert result.stdout == (
        "Nothing is possible: virtual cluster research has room for 0 of 1 wanted.\n"
        "no group of research may be moved; there would be room if team/g0 could be moved. Owners allow it by the "
        'annotation hivedscheduler.microsoft.com/may-move: "true" on each pod, the configuration by movable: true for '
        "the virtual cluster\n"
    )


def test_groups_are_named_that_would_have_to_be_moved_too(tmp_path: Path) -> None:
    cells = ((0,), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3))
    groups = [group(f"team/g{i}", f"n{i}", cells[i], may_move=i == 2) for i in range(4)]
    result = run(write_inputs(tmp_path, half_used(groups=groups)), "--vc", "research", "--want", "1xNODE", "--json")
    assert result.exit_code == 3
    answer = json.loads(result.stdout)
    assert answer["cause"] == "not allowed"
    assert answer["reason"].startswith(
        "the groups that may be moved are not enough; there would be room if team/g0 could be moved. Owners allow it"
    )


def test_it_is_said_where_no_permission_would_help(tmp_path: Path) -> None:
    groups = [group(f"team/g{i}", f"n{i}", (0, 1, 2), may_move=False) for i in range(4)]
    result = run(write_inputs(tmp_path, half_used(groups=groups)), "--vc", "research", "--want", "1xNODE", "--json")
    assert result.exit_code == 3
    answer = json.loads(result.stdout)
    assert answer["cause"] == "no arrangement"
    assert answer["reason"] == "wherever the groups of research were moved, the healthy cells have no room"


def test_moving_adds_no_leaf_cells(tmp_path: Path) -> None:
    groups = [group(f"team/g{i}", f"n{i}", (0, 1, 2)) for i in range(3)]
    groups.append(group("team/g3", "n3", (0, 1, 2, 3)))
    result = run(write_inputs(tmp_path, half_used(groups=groups)), "--vc", "research", "--want", "1xNODE", "--json")
    assert result.exit_code == 3
    answer = json.loads(result.stdout)
    assert answer["cause"] == "too few cells"
    assert answer["reason"] == (
        "1 of those wanted would take 4 GPUs of chain RACK, and research has 3 healthy that no "
        "guaranteed group of it uses: moving groups adds none"
    )


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (("--max-gpu-hours", "1.5"), "2.00 GPU-hours would be lost, at most 1.5 may be"),
        (("--max-gpu-hours", "0"), "2.00 GPU-hours would be lost, at most 0 may be"),
    ],
)
def test_a_plan_beyond_a_limit_is_none(file: Path, limit: tuple[str, ...], reason: str) -> None:
    result = run(file, "--vc", "research", "--want", "1xNODE", *limit)
    assert result.exit_code == 3
    assert reason in result.stdout


def test_groups_are_limited_too(file: Path) -> None:
    result = run(file, "--vc", "research", "--want", "2xNODE", "--max-groups", "1")
    assert result.exit_code == 3
    assert "2 groups would be moved, at most 1 may be" in result.stdout


def test_a_job_that_waits_is_what_is_wanted(tmp_path: Path) -> None:
    spec = {"virtualCluster": "research", "priority": 0, "leafCellNumber": 4}
    job = InputJob("team/train", ["team/train"], [spec | {"affinityGroup": {"name": "team/train", "members": [
        {"podNumber": 1, "leafCellNumber": 4}]}}])  # fmt: skip
    file = write_inputs(tmp_path, half_used(waiting=[job]))
    result = run(file, "--job", "team/train")
    assert result.exit_code == 0
    assert "team/train   room   n3:0-3" in result.stdout
    refused = run(file, "--job", "team/other")
    assert refused.exit_code == 1
    assert "no job team/other waits for cells; there are team/train" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--vc", "research", "--want", "NODE"), "--want 'NODE': expected COUNTxCELLTYPE"),
        (("--vc", "research", "--want", "0xNODE"), "--want '0xNODE': expected COUNTxCELLTYPE"),
        (("--vc", "research", "--want", "5000xNODE"), "at most 4096 cells can be wanted"),
        (("--vc", "research", "--want", "1xRACK"), "virtual cluster research is promised no RACK"),
        (("--vc", "other", "--want", "1xNODE"), "there is no virtual cluster other; there are research"),
    ],
)
def test_a_mistake_is_explained(file: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run(file, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--want", "1xNODE"), ("--want", "1xNODE", "--job", "team/train")])
def test_a_wrong_command_line_has_exit_code_2(file: Path, arguments: tuple[str, ...]) -> None:
    assert run(file, *arguments).exit_code == 2


def test_a_file_that_is_no_file_of_inputs_is_named(tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text('{"at": "now"}')
    result = run(file, "--vc", "research", "--want", "1xNODE")
    assert result.exit_code == 1
    assert (
        f"{file}: Expected `float`, got `str` - at `$.at`; expected the JSON of GET /v1/inspect/inputs" in result.stderr
    )


def test_a_pod_outside_its_group_is_named(tmp_path: Path) -> None:
    broken = group("team/g0", "n0", (0, 1))
    broken.pods[0] = type(broken.pods[0])("uid", "team", "g0", "n3", (0, 1))
    result = run(write_inputs(tmp_path, half_used(groups=[broken])), "--vc", "research", "--want", "1xNODE")
    assert result.exit_code == 1
    assert "pod team/g0 is not at a place of its affinity group team/g0" in result.stderr


def test_bad_nodes_have_no_room(tmp_path: Path) -> None:
    result = run(write_inputs(tmp_path, half_used(bad_nodes=["n2"])), "--vc", "research", "--want", "1xNODE", "--json")
    assert result.exit_code == 0
    (move,) = json.loads(result.stdout)["moves"]
    assert move["becomes"][0]["node"] in ("n0", "n1")


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
        assert "no group was moved: groups are being moved already" in again.stderr
        served.carry_on()
        status = served.run("status")
        assert status.stdout.startswith("done; 1 of 1 group of a moved")
        followed = served.run("apply", "-", text=made.stdout)
        assert followed.exit_code == 1
        assert "no group was moved: the plan does not hold any more" in followed.stderr


def test_moves_are_stopped(tmp_path: Path) -> None:
    with serving() as served:
        made = served.run("plan", "--vc", "a", "--want", "1xNODE", "--json").stdout
        served.run("apply", "-", "--no-wait", text=made)
        stopped = served.run("stop")
        assert stopped.exit_code == 0
        assert stopped.stdout.startswith("stopped: a caller stopped it; 0 of 1 group of a moved")
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
    assert idle.run("status").stdout == "No group has been moved since this replica began to lead.\n"


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
        assert "this service does not authenticate callers" in result.stderr
        assert served.evicted() is None


PLAN = DefragPlan(
    outcome="plan",
    vc="a",
    solver="search",
    wanted=[
        WantedOutcome(shape="1xNODE", is_met=True, places=[PlannedPod("n0", (0, 1, 2, 3))], preempts=["lent"]),
        WantedOutcome(shape="1xNODE", is_met=False),
    ],
    moves=[
        Move(
            step=1, group="guest", vc="b", priority=-1, is_guaranteed=False, was=[PlannedPod("n1", (0, 2, 3))],
            becomes=[], lost_gpu_hours=1.5,
        )
    ],
    gap_gpu_hours=1.0,
    gap_wanted=1,
)  # fmt: skip


def test_a_gap_is_said_in_words() -> None:
    assert draw(PLAN).splitlines()[-1] == (
        "The plan may not be optimal (search): a better one could meet 1 more or lose 1.00 GPU-hours less at most."
    )


def test_an_opportunistic_group_without_a_place_waits() -> None:
    assert "guest   opportunistic   n1:0,2-3   waits         1.50" in click.unstyle(draw(PLAN))


def test_what_gets_no_room_is_shown() -> None:
    assert "1xNODE   no room" in click.unstyle(draw(PLAN))


def test_a_stop_is_told_with_its_reason_and_each_group() -> None:
    moves = [MoveState(1, "ns:a", "done"), MoveState(2, "ns:b", "given up")]
    report = MovingReport(state="stopped", who="ann", vc="v", reason="ns:b has not left in 60 s", moves=moves)
    assert tell(report) == (
        "stopped: ns:b has not left in 60 s; 1 of 2 groups of v moved for ann\n"
        "  step 1: ns:a done\n"
        "  step 2: ns:b given up"
    )


def test_budgets_are_shown_with_the_last_look() -> None:
    look = LastLook(1_000_000_000.0, "over budget", "ns:big", "2.00 GPU-hours would be lost")
    limited = AutomaticMoves(vc="a", max_gpu_hours=4.0, left_gpu_hours=1.5, max_groups=6, left_groups=4, last_look=look)
    fresh = AutomaticMoves(vc="b", max_gpu_hours=1.0, left_gpu_hours=1.0)
    assert click.unstyle(tell(MovingReport(automatic=[limited, fresh]))) == (
        "No group has been moved since this replica began to lead.\n"
        "\n"
        "BY ITSELF   GPU-H LEFT THIS HOUR   GROUPS LEFT   LOOKED AT              JOB      OUTCOME\n"
        "a                      1.50 of 4        4 of 6   2001-09-09T01:46:40Z   ns:big   over budget\n"
        "b                      1.00 of 1             -   -                      -        -\n"
        "a: 2.00 GPU-hours would be lost"
    )
