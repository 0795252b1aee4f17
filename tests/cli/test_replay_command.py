"""`hived replay`: files in, traces out, and what is said when that does not work."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.places import ROOT

RECORDED = ROOT / "tests" / "parity" / "recorded"
SCENARIO = RECORDED / "scenarios" / "extra-m1.jsonl"
CONFIGS = RECORDED / "configs"


def invoke(*words: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, words)])


def test_a_scenario_gives_one_record_per_operation(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    result = invoke(SCENARIO, "--configs", CONFIGS, "--out", trace, "--check")
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [record["i"] for record in records] == list(range(len(SCENARIO.read_text().splitlines()) - 1))
    assert all(record["state"].keys() == {"hash", "diff"} for record in records)
    assert f"{len(records)} operations" in result.stderr


def test_a_folder_of_scenarios_gives_a_folder_of_traces(tmp_path: Path) -> None:
    folder = tmp_path / "scenarios"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_text(SCENARIO.read_text())
    result = invoke(folder, "--configs", CONFIGS, "--out", tmp_path / "traces", "--state", "none")
    assert result.exit_code == 0, result.output
    first, second = ((tmp_path / "traces" / f"{name}.jsonl").read_bytes() for name in ("a", "b"))
    assert first == second
    assert b"state" not in first


def test_an_unreadable_line_is_named_with_exit_code_1(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"op": "header"}\n{"op": "dance"}\n')
    result = invoke(bad, "--configs", CONFIGS, "--out", tmp_path / "trace.jsonl")
    assert result.exit_code == 1
    assert f"{bad}:2: " in result.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("empty", "--out", "traces"), "no *.jsonl file"),
        (("a.jsonl", "b.jsonl", "--out", "file"), "must be a folder"),
        (("a.jsonl", "sub/a.jsonl", "--out", "traces"), "same file name"),
        (("a.jsonl", "--out", "a.jsonl"), "replace its scenario"),
        (("a.jsonl", "b.jsonl", "--out", "."), "replace its scenario"),
    ],
)
def test_a_command_line_that_would_lose_something_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "sub"):
        (tmp_path / folder).mkdir()
    for file in ("a.jsonl", "b.jsonl", "sub/a.jsonl", "file"):
        (tmp_path / file).write_text(SCENARIO.read_text())
    result = invoke(*words, "--configs", CONFIGS)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert (tmp_path / "a.jsonl").read_text() == SCENARIO.read_text()
