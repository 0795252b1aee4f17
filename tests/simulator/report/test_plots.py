"""Plots have few points, whatever the number of jobs, and say what they show."""

from itertools import pairwise
from math import log10
from xml.etree import ElementTree

import numpy as np
import pytest

from hived_simulator.report.plots import (
    MAX_POINTS,
    Bar,
    bar_plot,
    delay_axis,
    distribution,
    over_time,
    percent,
    short,
    span,
    steps,
    time_axis,
)
from hived_simulator.report.svg import Stroke


def test_a_distribution_says_how_many_wait_no_longer() -> None:
    x, y = distribution(np.array([0.0, 30.0, 600.0, 6000.0]), 5)
    assert (10**x).tolist() == pytest.approx([60, 600, 6000])
    assert y.tolist() == [40, 60, 80]


def test_a_distribution_of_many_jobs_has_few_points_and_keeps_its_ends() -> None:
    delays = np.random.default_rng(1).exponential(10_000, 100_000) + 61
    x, y = distribution(delays, len(delays))
    assert len(x) <= MAX_POINTS + 1
    assert (y[0], y[-1], x[-1]) == (0, 100, log10(delays.max()))
    for share in (0.25, 0.5, 0.9):
        near = x[np.searchsorted(y, 100 * share)]
        assert 10**near == pytest.approx(np.quantile(delays, share), rel=0.05)


def test_a_distribution_of_nothing_has_no_points() -> None:
    assert [len(each) for each in distribution(np.zeros(0), 3)] == [0, 0]


def test_a_series_keeps_its_mean() -> None:
    at_s = np.arange(0, 60_000, 60.0)
    values = np.random.default_rng(2).integers(0, 100, len(at_s)).astype(float)
    _, means = over_time(at_s, values)
    assert len(means) == MAX_POINTS
    assert means.mean() == pytest.approx(values.mean(), rel=0.02)


def test_a_short_series_stays_as_it_is() -> None:
    at_s, values = over_time(np.arange(3.0), np.array([1.0, 5.0, 2.0]))
    assert (at_s.tolist(), values.tolist()) == ([0, 1, 2], [1, 5, 2])


@pytest.mark.parametrize("longest_s", [0.0, 59.0, 3600.0, 5e5, 1e9])
def test_an_axis_of_delays_reaches_the_longest(longest_s: float) -> None:
    axis = delay_axis(longest_s)
    assert axis.first < axis.last
    assert longest_s > 1e8 or 10**axis.last >= longest_s


@pytest.mark.parametrize("last_s", [0.0, 1.0, 7200.0, 3e6])
def test_an_axis_of_time_has_marks_inside(last_s: float) -> None:
    axis = time_axis(last_s)
    assert axis.first < axis.last
    assert all(axis.first <= value <= axis.last * 1.002 for value, _ in axis.marks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (-0.0, "0"), (0.5, "0.5"), (3.456, "3.46"), (439.4, "439"), (21736, "21,736"), (-1234.5, "-1,234")],
)
def test_numbers_have_the_digits_that_matter(value: float, text: str) -> None:
    assert short(value) == text


def test_lengths_and_shares_have_units() -> None:
    assert [span(each) for each in (0, 59, 90, 7200, 129600)] == ["0 s", "59 s", "1.5 min", "2 h", "1.5 d"]
    assert percent(0.9999) == "100 %"
    assert percent(0.0004) == "0 %"


@pytest.mark.parametrize("highest", [0.0, 0.3, 1.0, 7.0, 99.9, 100.0, 12345.0])
def test_steps_are_round_and_reach_the_highest(highest: float) -> None:
    found = steps(highest)
    assert found[0] == 0
    assert found[-1] >= highest
    assert len(found) <= 7


LETTER = 6.6
"""Units that a digit is wide, at most."""


@pytest.mark.parametrize("highest", [0.0, 0.4, 7.0, 99_999.0, 999_999.0, 4_348_429.0, 990_000_001.0])
def test_numbers_of_the_axis_do_not_overlap(highest: float) -> None:
    picture = bar_plot("t", "d", "", {"one": Stroke(0)}, [Bar("", "", [("one", highest)])])
    ends = [_ends(each) for each in ElementTree.fromstring(picture).iter() if each.tag.endswith("text") and each.text]
    assert len(ends) >= 2
    assert all(left < right for (_, left), (right, _) in pairwise(ends))


def _ends(text: ElementTree.Element) -> tuple[float, float]:
    width, at = LETTER * len(text.text or ""), float(text.get("x", ""))
    left = at - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor", "start")]
    return left, left + width
