"""Random runs end when enough is done, and a history that breaks a rule is kept."""

from pathlib import Path

import pytest

from tests.driver import history_parser, kept, run_all, seeds


def test_seeds_go_on_until_enough_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    options = history_parser("tests.none", "About.", "events", 10).parse_args(["--events=5", "--seed=3"])
    done: list[int] = []
    for seed in seeds(options, lambda: 2 * len(done), lambda: "and more"):
        done.append(seed)
    assert done == [3, 4, 5]
    assert capsys.readouterr().err == "6 of 5 events, seed 5, 0 s and more\n"


def test_a_history_that_breaks_a_rule_is_written_and_named(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "seed-1.txt"
    with pytest.raises(AssertionError) as raised, kept(file, lambda place: place.write_text("history")):
        raise AssertionError("a rule")
    assert file.read_text() == "history"
    assert raised.value.__notes__ == [f"written to {file}"]


def test_results_are_in_the_order_of_the_questions() -> None:
    assert run_all(["3", "1", "2"], int, jobs=2) == [3, 1, 2]
