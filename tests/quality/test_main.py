"""The command: the same figures however many processes, bounds, and wrong words."""

import json
from pathlib import Path

import pytest

from hived.values.specs import Rules
from tests.quality.__main__ import main
from tests.quality.large import large_cluster, random_jobs
from tests.quality.large_measures import drawn_delays
from tests.quality.plan import TABLES, Unit, misses, units
from tests.quality.report import bounds_text, tables
from tests.quality.small import Figures


def unit(measure: str, *arguments: bool | float | str, rules: Rules = Rules.BETTER) -> Unit:
    return Unit(measure, rules, arguments, frozenset(TABLES))


BAD: list[tuple[str, Unit, Figures]] = [
    ("guarantee", unit("guarantee", "N", "", 0.2, False, 9, 1), {"later": 1}),
    ("guarantee", unit("philly", "N", False, False, 0.0, 1.5), {"later": 1}),
    ("needless", unit("needless", "NODE", "plain", False, 0, 9), {"equal": 1}),
    ("needless", unit("evictions", "NODE", "plain", 0, 9), {"equal": 1}),
    ("needless", unit("crowd", "N", "", 0.9, 0.2, 9), {"equal": 1, "lost": 0}),
    ("locality", unit("crowd", "N", "", 0.9, 0.2, 9), {"gangs": 20, "near": 18, "lost": 0}),
    ("locality", unit("crowd", "N", "", 0.9, 0.2, 9), {"lent_gangs": 20, "lent_near": 18, "lost": 0}),
    ("needless", unit("needless", "NODE", "plain", True, 0, 9), {"any": 1}),
    ("needless", unit("crowd", "N", "sparing", 0.9, 0.2, 9), {"any": 1}),
    ("completeness", unit("false_waits", "NODE", "plain", 0, 9), {"false": 1}),
    ("lending", unit("lending", "R", 0.7, 9, 1), {"most_evictions": 6}),
]


@pytest.mark.parametrize(("table", "measured", "figures"), BAD)
def test_each_bound_is_missed_by_a_worse_figure_and_only_by_rules_2(
    table: str, measured: Unit, figures: Figures
) -> None:
    assert [miss.table for miss in misses([(measured, figures)])] == [table]
    assert not misses([(Unit(measured.measure, Rules.HIVED, measured.arguments, measured.tables), figures)])
    assert table in bounds_text(misses([(measured, figures)]))


def test_sparing_vcs_may_start_later_and_others_may_evict_for_their_own_choice() -> None:
    assert not misses([(unit("guarantee", "N", "sparing", 0.2, False, 9, 1), {"later": 1})])
    assert not misses([(unit("needless", "NODE", "plain", False, 0, 9), {"any": 1})])


@pytest.mark.parametrize("way", ["", "within ROW"])
def test_more_lost_than_by_the_reference_at_one_load_is_a_miss(way: str) -> None:
    words = ("N", way, 0.9, 0.2, 9)
    hived, better = unit("crowd", *words, rules=Rules.HIVED), unit("crowd", *words)
    assert not misses([(hived, {"lost": 5}), (better, {"lost": 5})])
    assert [miss.table for miss in misses([(hived, {"lost": 5}), (better, {"lost": 6})])] == ["saturation"]


def test_delays_are_drawn_anew_and_the_spread_of_their_means_is_told() -> None:
    spec = large_cluster({"a": {"node": 16}}, Rules.BETTER)
    jobs = random_jobs({"a": 128}, 3.0, 0.0, 24, seed=1)
    same, drawn = (drawn_delays(jobs, spec, sigma, 2) for sigma in (0.0, 0.5))
    assert same["error"] == 0 < same["mean"] == same["least"] == same["most"]
    assert drawn["error"] > 0
    assert drawn["least"] < drawn["mean"] < drawn["most"]
    text = tables([(unit("private_delays", 0.5, 2), drawn)], TABLES)
    assert "over draws of other durations" in text
    assert f"{drawn['mean']:.3g}" in text


def test_a_crash_is_a_finding_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    broken = unit("needless", "NODE", "no such load", False, 0, 9, rules=Rules.HIVED)
    assert [miss.table for miss in misses([(broken, broken.run())])] == ["crash"]
    assert "KeyError" in capsys.readouterr().err
    assert tables([(broken, broken.run())], TABLES) == ""


def test_every_table_has_measurements_or_needs_the_trace() -> None:
    for quick in (True, False):
        shown = {table for each in units((Rules.HIVED,), TABLES, quick) for table in each.tables}
        assert shown >= {"guarantee", "needless", "locality", "completeness"}


@pytest.mark.long
def test_processes_do_not_change_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--quick", "--only", "needless", "--rules", "hived", "--json"]
    outputs = []
    for jobs in ("1", "2"):
        assert main([*words, "--jobs", jobs]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["measured"][0]["figures"]


def test_tables_are_printed_for_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--only", "completeness", "--rules", "hived"]) == 0
    seen = capsys.readouterr()
    assert "Completeness" in seen.out
    assert "false_waits hived NODE plain" in seen.err
    assert tables([], TABLES) == ""


@pytest.mark.parametrize("words", [["--only", "speed"], ["--jobs", "0"], ["--rules", "3"]])
def test_wrong_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert words[1] in capsys.readouterr().err


TRACE = "job,tenant,submitted_s,duration_s,gpus\n" + "".join(
    f"j{number},{'ab'[number % 2]},{number * 60},{600 + number},{(1, 4, 16)[number % 3]}\n" for number in range(60)
)


def test_a_trace_has_the_tables_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    words = ["--trace", str(tmp_path / "jobs.csv"), "--rules", "2", "--jobs", "1"]
    assert main([*words, "--only", "fragmentation"]) == 0
    seen = capsys.readouterr()
    assert "Fragmentation inside VCs: traces" in seen.out
    assert "Saturation" not in seen.out
    assert "no bound is missed" in seen.out


def test_a_file_that_is_no_trace_ends_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit) as end:
        main(["--trace", str(tmp_path / "none.csv")])
    assert end.value.code == 2
    assert "none.csv:1" in capsys.readouterr().err
