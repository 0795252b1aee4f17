"""`hived defrag plan` with a file of inputs: text, JSON, exit codes and mistakes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.api.defrag import InputJob
from tests.cli.defrag.inputs_file import group, half_used, write_inputs


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
    assert answer["reason"] == "no arrangement of the groups of research has room, even if all of them could be moved"


def test_moving_adds_no_leaf_cells(tmp_path: Path) -> None:
    groups = [group(f"team/g{i}", f"n{i}", (0, 1, 2)) for i in range(3)]
    groups.append(group("team/g3", "n3", (0, 1, 2, 3)))
    result = run(write_inputs(tmp_path, half_used(groups=groups)), "--vc", "research", "--want", "1xNODE", "--json")
    assert result.exit_code == 3
    answer = json.loads(result.stdout)
    assert answer["cause"] == "too few cells"
    assert answer["reason"] == (
        "4 leaf cells of chain RACK are needed for 1 of those wanted, and research has 3 healthy ones that no "
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
