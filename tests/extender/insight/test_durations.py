"""How long jobs run: curves that know of jobs that still run, and a past that survives restarts and is bounded."""

from pathlib import Path

import pytest

from hived_extender.insight import past as learned
from hived_extender.insight.past import LEAST_ALIKE, LEAST_ENDS, LONGEST_S, Curve, Durations, Ended
from hived_extender.insight.store import Store

HOUR = 3600.0


def quarters(curve: Curve, elapsed_s: float = 0.0) -> list[float]:
    return [curve.remaining(elapsed_s, draw) for draw in (0.125, 0.375, 0.625, 0.875)]


def test_without_anybody_who_still_runs_draws_are_the_durations_themselves() -> None:
    assert quarters(Curve([4.0, 1.0, 3.0, 2.0], [])) == [1.0, 2.0, 3.0, 4.0]


def test_a_group_that_has_run_for_a_while_is_compared_with_those_that_ran_longer() -> None:
    assert quarters(Curve([10.0, 20.0, 30.0, 40.0], []), 25.0) == [5.0, 5.0, 15.0, 15.0]


def test_groups_that_still_run_make_longer_draws() -> None:
    alone, with_runners = Curve([10.0] * 5 + [100.0] * 5, []), Curve([10.0] * 5 + [100.0] * 5, [50.0] * 10)
    assert alone.remaining(0.0, 0.45) == 10.0
    assert with_runners.remaining(0.0, 0.45) == 100.0


def test_beyond_the_longest_a_group_runs_twice_as_long_in_half_of_the_cases() -> None:
    curve = Curve([100.0], [])
    assert curve.remaining(400.0, 0.5) == 400.0
    assert curve.remaining(400.0, 1 - 1e-12) == LONGEST_S
    assert Curve([10.0], [10.0] * 9).remaining(0.0, 0.95) == pytest.approx(10 / (0.05 / 0.9))


def test_a_draw_grows_with_the_chance_and_is_never_over_at_once() -> None:
    curve = Curve([1.0, 5.0, 5.0, 60.0, 600.0], [2.0, 30.0])
    for elapsed_s in (0.0, 1.0, 5.0, 59.9, 600.0, 1e6):
        drawn = [curve.remaining(elapsed_s, (number + 0.5) / 50) for number in range(50)]
        assert drawn == sorted(drawn)
        assert drawn[0] > 0
        assert drawn[-1] <= LONGEST_S


def test_few_ends_are_no_history() -> None:
    past = Durations()
    past.add([Ended("A", 8, HOUR)] * (LEAST_ENDS - 1) + [Ended("A", 8, HOUR, is_whole=False)] * 50)
    assert past.at(()).of("A", 8) is None
    past.add([Ended("A", 8, HOUR)])
    assert past.at(()).of("A", 8) is not None
    assert past.at(()).of("B", 8) is None
    assert past.at(()).count("A") == LEAST_ENDS


def test_sizes_have_curves_of_their_own_once_they_have_enough_ends() -> None:
    past = Durations()
    past.add([Ended("A", 1, 60.0)] * LEAST_ALIKE + [Ended("A", 64, 10 * HOUR)] * (LEAST_ALIKE - 1))
    small, large = past.at(()).of("A", 1), past.at(()).of("A", 64)
    assert small is not None
    assert large is not None
    assert small.remaining(0.0, 0.9) == 60.0
    assert large.remaining(0.0, 0.1) == 60.0  # that of all sizes
    past.add([Ended("A", 65, 10 * HOUR)])
    large = past.at(()).of("A", 64)
    assert large is not None
    assert large.remaining(0.0, 0.1) == 10 * HOUR


def test_the_past_survives_a_restart(tmp_path: Path) -> None:
    past = Durations(Store(tmp_path / "past.db"))
    past.add([Ended("A", 8, float(number)) for number in range(1, 21)])
    again = Durations(Store(tmp_path / "past.db"))
    assert again.at(()).count("A") == 20
    curve = again.at(()).of("A", 8)
    assert curve is not None
    assert curve.remaining(0.0, 0.999) == 20.0


def test_the_past_of_a_cluster_and_their_number_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "MOST_ENDS", 50)
    monkeypatch.setattr(learned, "MOST_CLUSTERS", 3)
    store = Store(tmp_path / "past.db")
    past = Durations(store)
    for number in range(400):
        past.add([Ended("busy", 1, number + 1.0)])
    for vc in "abc":
        past.add([Ended(vc, 1, 1.0)])
    assert [past.at(()).count(vc) for vc in ("busy", "a", "b", "c")] == [0, 1, 1, 1]
    assert store.read("SELECT COUNT(*) FROM durations") == [(3,)]
    for number in range(400):
        past.add([Ended("a", 1, number + 1.0)])
    assert past.at(()).count("a") <= 150
    assert store.read("SELECT COUNT(*), MAX(seconds) FROM durations WHERE vc = 'a'")[0][0] <= 150


def test_rows_that_are_none_of_ours_are_skipped(tmp_path: Path) -> None:
    store = Store(tmp_path / "past.db")
    Durations(store).add([Ended("A", 1, 60.0)])
    insert = "INSERT INTO durations (vc, leaves, seconds, is_whole, ended_s) VALUES (?, ?, ?, ?, ?)"
    wrong = [(b"A", 1, 1.0, 1, 0.0), ("A", "one", 1.0, 1, 0.0), ("A", 1, float("inf"), 1, 0.0), ("A", 1, -1.0, 1, 0.0)]
    assert store.write(insert, wrong)
    again = Durations(store)
    assert again.at(()).count("A") == 1
