"""The program of attacks at a very low scale, so that it keeps working; `make attacks` runs it at length."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks import __main__ as program
from tests.attacks.attack import Attack, Latency, Outcome, Run
from tests.e2e.tools import ToolsMissing
from tests.places import ROOT

SHORT = ("annotations", "grace", "devices", "rights")


@pytest.mark.parametrize("names", [("devices",), pytest.param(SHORT, marks=pytest.mark.long)], ids=len)
def test_short_forms_of_attacks_find_nothing(tmp_path: Path, names: tuple[str, ...]) -> None:
    file = tmp_path / "attacks.json"
    command = [sys.executable, "-m", "tests.attacks", f"--only={','.join(names)}", "--scale=0.002", f"--json={file}"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    attacks = json.loads(file.read_text())["attacks"]
    assert tuple(attacks) == names
    assert "annotations" not in attacks or attacks["annotations"]["tried"] >= 90
    assert all(attack["tried"] and attack["refused"] for attack in attacks.values())


@pytest.fixture
def one_attack(monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """The outcome of the only attack that there is."""
    outcome = Outcome(tried=3, refused=3)
    monkeypatch.setattr(program, "ATTACKS", (Attack("only", "nothing", lambda _: outcome),))
    return outcome


def test_the_exit_code_is_0_where_nothing_was_let_in(one_attack: Outcome) -> None:
    assert program.main([]) == 0


@pytest.mark.parametrize("list_name", ["let_in", "faults", "missed"])
def test_what_went_wrong_is_printed_and_makes_the_exit_code_1(
    list_name: str, one_attack: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    getattr(one_attack, list_name).append("it went wrong")
    assert program.main([]) == 1
    assert "it went wrong" in capsys.readouterr().out


def test_an_attack_that_did_not_run_makes_the_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def need(run: Run) -> Outcome:
        raise ToolsMissing("no API server")

    monkeypatch.setattr(program, "ATTACKS", (Attack("only", "nothing", need),))
    assert program.main([]) == 3
    assert "DID NOT RUN: no API server" in capsys.readouterr().out


def test_an_attack_that_breaks_off_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_off(run: Run) -> Outcome:
        raise RuntimeError("the ground gave way")

    monkeypatch.setattr(program, "ATTACKS", (Attack("only", "nothing", break_off),))
    assert program.main([]) == 1
    assert "the ground gave way" in capsys.readouterr().out


def test_an_unknown_attack_is_an_error() -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(["--only", "nothing"])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("beside_ms", "scale", "is_missed"), [(50.0, 1.0, True), (15.0, 1.0, False), (50.0, 0.01, False)]
)
def test_a_p99_that_more_than_doubles_misses_its_target(
    beside_ms: float, scale: float, is_missed: bool, tmp_path: Path
) -> None:
    outcome = Outcome(alone=Latency(1.0, 10.0, 100), beside=Latency(1.0, beside_ms, 100))
    outcome.judge_latency(Run(1, scale, tmp_path))
    assert bool(outcome.missed) is is_missed


def test_honest_calls_that_fail_miss_their_target_at_any_scale(tmp_path: Path) -> None:
    outcome = Outcome(alone=Latency(1.0, 1.0, 100), beside=Latency(1.0, 1.0, 100, failed=1, first_failure="503"))
    outcome.judge_latency(Run(1, 0.01, tmp_path))
    assert "503" in outcome.missed[0]
