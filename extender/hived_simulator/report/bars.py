"""Plots of bars: one for each policy, its parts side by side; words stand above the bar, so that they fit a phone."""

from collections.abc import Sequence
from typing import NamedTuple

from hived_simulator.report import svg
from hived_simulator.report.numbers import short, steps
from hived_simulator.report.svg import Stroke

WIDTH = 400.0
LONG = 1e6
"""Numbers from there on are so long that few of them fit below a plot."""
ROW, THICK, TOP, BOTTOM = 36.0, 16.0, 6.0, 34.0


class Bar(NamedTuple):
    """One bar: words on the left and right above it, and (name, value) of its parts."""

    label: str
    note: str
    parts: Sequence[tuple[str, float]]


def plot(title: str, description: str, unit: str, strokes: dict[str, Stroke], bars: Sequence[Bar]) -> str:
    """A picture of some bars; `strokes` has a colour for each part, by name."""
    highest = max((sum(value for _, value in bar.parts) for bar in bars), default=0.0)
    marks = steps(highest, 5 if highest < LONG else 2)
    bottom, right = TOP + ROW * len(bars), WIDTH - 16

    def x_of(value: float) -> float:
        return right * value / marks[-1]

    parts = []
    for number, mark in enumerate(marks):
        parts.append(svg.rule(x_of(mark), TOP, x_of(mark), bottom + 4))
        anchor, shift = ("start", 0) if not number else ("middle", 0) if number < len(marks) - 1 else ("end", 14)
        parts.append(svg.text(x_of(mark) + shift, bottom + 16, short(mark), anchor))
    parts.append(svg.text(right + 14, bottom + 30, unit, "end"))
    for number, bar in enumerate(bars):
        top = TOP + ROW * number
        parts += [svg.text(0, top + 12, bar.label), svg.text(right, top + 12, bar.note, "end")]
        at = 0.0
        for name, value in bar.parts:
            if value > 0:
                words = f"{bar.label}, {name}: {short(value)} {unit}"
                parts.append(svg.box(x_of(at), top + 16, max(0.5, x_of(value)), THICK, strokes[name], words))
            at += value
    return svg.drawing(WIDTH, bottom + BOTTOM, title, description, parts)
