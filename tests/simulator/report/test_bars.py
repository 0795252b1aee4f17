"""Plots of bars: the numbers below them keep apart."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from hived_simulator.report.plots import Bar, bar_plot
from hived_simulator.report.svg import Stroke

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
