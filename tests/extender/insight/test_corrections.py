"""Earlier forecasts correct later ones, so that these hold as often as they say."""

from pathlib import Path
from random import Random

from hived_extender.insight.corrections import FIRST_FACTORS, LEAST, WINDOW, Corrections, Factors, Outcome
from hived_extender.insight.store import Store


def outcome(actual_s: float, vc: str = "A", likely_s: float = 940.0, by_s: float = 1940.0) -> Outcome:
    return Outcome(vc, likely_s, by_s, actual_s)


def test_without_outcomes_the_first_factors_count() -> None:
    corrections = Corrections()
    corrections.add([outcome(5000.0)] * (LEAST - 1))
    assert corrections.of("A") == FIRST_FACTORS


def test_forecasts_that_were_too_early_make_later_ones_later() -> None:
    corrections = Corrections()
    corrections.add([outcome(3940.0)] * 40)
    assert corrections.of("A") == Factors(4.0, 2.0)


def test_the_later_moment_is_never_made_earlier() -> None:
    corrections = Corrections()
    corrections.add([outcome(440.0)] * 40)
    assert corrections.of("A") == Factors(0.5, 1.0)


def test_a_virtual_cluster_without_outcomes_has_the_factors_of_all() -> None:
    corrections = Corrections()
    corrections.add([outcome(3940.0)] * 40)
    assert corrections.of("B") == corrections.of("A")
    corrections.add([outcome(1940.0, "B")] * LEAST)
    assert corrections.of("B") == Factors(2.0, 1.0)


def test_forecasts_that_have_failed_count_before_the_job_starts() -> None:
    corrections = Corrections()
    corrections.add([outcome(940.0)] * 40)
    still_waiting = [outcome(9940.0)] * 10
    assert corrections.of("A", [outcome(10.0)] * 100) == Factors(1.0, 1.0)
    assert corrections.of("A", still_waiting).by == 5.0


def test_nine_of_ten_hold_whatever_a_play_is_worth() -> None:
    source = Random(7)
    corrections = Corrections()
    held = 0
    for number in range(1200):
        actual_s = 1000 * source.lognormvariate(0.5, 1.0)
        held += number >= 200 and actual_s <= 1000.0 * corrections.of("A").by
        corrections.add([Outcome("A", 500.0, 1000.0, actual_s)])
    assert 850 <= held <= 950


def test_outcomes_survive_a_restart_and_are_bounded(tmp_path: Path) -> None:
    store = Store(tmp_path / "past.db")
    Corrections(store).add([outcome(3940.0)] * (WINDOW + 50))
    assert Corrections(Store(tmp_path / "past.db")).of("A") == Factors(4.0, 2.0)
