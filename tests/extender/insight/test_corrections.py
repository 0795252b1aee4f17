"""Earlier forecasts correct later ones, so that these hold as often as they say."""

from math import exp
from pathlib import Path
from random import Random

import pytest

from hived_extender.insight.past import (
    FIRST_FACTORS,
    LEAST,
    LEAST_FACTOR,
    LONG_WINDOW,
    STEP,
    WINDOW,
    Corrections,
    Factors,
    Outcome,
)
from hived_extender.insight.store import Store


def outcome(
    actual_s: float, vc: str = "A", likely_s: float = 940.0, by_s: float = 1940.0, *, is_opportunistic: bool = False
) -> Outcome:
    """With the offset, forecasts of 1,000 s and 2,000 s."""
    return Outcome(vc, is_opportunistic, likely_s, by_s, actual_s)


def of(corrections: Corrections, vc: str = "A", *waiting: Outcome, is_opportunistic: bool = False) -> Factors:
    return corrections.at(waiting).of(vc, is_opportunistic)


def test_without_outcomes_the_first_factors_count() -> None:
    corrections = Corrections()
    corrections.add([outcome(5000.0)] * (LEAST - 1))
    assert of(corrections) == FIRST_FACTORS


def near(likely: float, by: float) -> tuple[object, float]:
    """Factors of which the likely one is within two steps."""
    return pytest.approx(likely, rel=exp(2 * STEP) - 1), by


def test_forecasts_that_were_too_early_make_later_ones_later() -> None:
    corrections = Corrections()
    corrections.add([outcome(3940.0)] * 40)
    assert of(corrections) == near(4.0, 2.0)
    assert of(corrections).corrected(940.0, 2940.0) == near(3940.0, 5880.0)


def test_the_likely_moment_is_never_behind_the_later_one() -> None:
    assert Factors(10.0, 1.0).corrected(900.0, 1000.0) == (1000.0, 1000.0)


def test_a_lucky_spell_makes_the_likely_moment_earlier_and_not_the_later_one() -> None:
    corrections = Corrections()
    corrections.add([outcome(440.0)] * (LONG_WINDOW - 1))
    assert of(corrections) == near(0.5, 1.0)


def test_a_long_time_of_luck_makes_the_later_moment_earlier_by_half_of_the_way() -> None:
    corrections = Corrections()
    corrections.add([outcome(1220.0)] * LONG_WINDOW)
    assert of(corrections).by == pytest.approx(0.8)
    corrections.add([outcome(0.0)] * LONG_WINDOW)
    assert of(corrections).by == LEAST_FACTOR


def test_a_virtual_cluster_without_outcomes_has_the_factors_of_all_guaranteed_jobs() -> None:
    corrections = Corrections()
    corrections.add([outcome(3940.0)] * 40)
    assert of(corrections, "B") == of(corrections)
    corrections.add([outcome(1940.0, "B")] * LEAST)
    assert of(corrections, "B") == near(2.0, 1.0)


def test_opportunistic_jobs_of_all_virtual_clusters_are_compared_with_each_other() -> None:
    corrections = Corrections()
    corrections.add([outcome(1940.0)] * 40)
    corrections.add([outcome(9940.0, "B", is_opportunistic=True)] * 40)
    assert of(corrections, is_opportunistic=True).by == 5.0
    assert of(corrections, "B").by == 1.0


def test_forecasts_that_have_failed_count_before_the_job_starts() -> None:
    corrections = Corrections()
    corrections.add([outcome(940.0)] * 40)
    assert of(corrections).by == 1.0
    assert of(corrections, "A", *[outcome(9940.0)] * 10).by == 5.0


def test_jobs_that_still_wait_are_not_taken_for_short_waits() -> None:
    corrections = Corrections()
    corrections.add([outcome(940.0)] * 36)
    corrections.add([outcome(3940.0)] * 4)
    assert of(corrections).by == 2.0  # with so few, the one to come counts
    corrections.add([outcome(940.0)] * 20)
    assert of(corrections).by == 1.0
    assert of(corrections, "A", *[outcome(1440.0)] * 40).by == 2.0  # of those left, most have waited for long


def test_nine_of_ten_hold_whatever_a_play_is_worth() -> None:
    source = Random(7)
    corrections = Corrections()
    held = 0
    for number in range(1200):
        actual_s = 1000 * source.lognormvariate(0.5, 1.0)
        held += number >= 200 and actual_s <= 1000.0 * of(corrections).by
        corrections.add([Outcome("A", False, 500.0, 1000.0, actual_s)])
    assert 850 <= held <= 950


@pytest.mark.parametrize("count", [3000, pytest.param(12_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("spell", [1, 20])
def test_half_hold_whatever_a_play_is_worth_and_however_jobs_fare_alike(spell: int, count: int) -> None:
    source = Random(7)
    corrections = Corrections()
    held, fortune = list[bool](), 0.0
    for number in range(count):
        fortune = source.gauss(0.0, 1.0) if number % spell == 0 else fortune
        actual_s = 1e5 * exp(-1.0 + fortune + source.gauss(0.0, 0.3))
        if number >= 400 and number % 7 == 0:
            held.append(actual_s <= of(corrections).corrected(1e5, 9e5)[0])
        corrections.add([Outcome("A", False, 1e5, 9e5, actual_s)])
    assert 0.45 <= sum(held) / len(held) <= 0.55


def test_outcomes_survive_a_restart_and_are_bounded(tmp_path: Path) -> None:
    store = Store(tmp_path / "past.db")
    Corrections(store).add([outcome(3940.0)] * (WINDOW + 50))
    assert of(Corrections(Store(tmp_path / "past.db"))) == near(4.0, 2.0)


def test_rows_that_are_none_of_ours_are_skipped(tmp_path: Path) -> None:
    store = Store(tmp_path / "past.db")
    Corrections(store).add([outcome(3940.0)] * WINDOW)
    columns = "(vc, is_opportunistic, likely_s, by_s, actual_s)"
    store.write(f"INSERT INTO outcomes {columns} VALUES (?, ?, ?, ?, ?)", [("A", 0, "soon", 1.0, 1.0)] * WINDOW)
    assert of(Corrections(store)) == near(4.0, 2.0)
