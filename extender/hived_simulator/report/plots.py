"""Plots of bars and of lines, with few points whatever the number of jobs, and numbers as people read them.

Words stand above bars, so that they fit a phone.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import NamedTuple

import numpy as np

from hived_simulator.report import svg
from hived_simulator.report.svg import Stroke

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
NONE = "-"


def short(value: float) -> str:
    """A number with three digits that matter, and all digits before the point: 0, 0.12, 3.4, 439, 21,736."""
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 100 else max(0, 2 - floor(log10(size))) if size >= 0.001 else 6
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def percent(part: float) -> str:
    """A share as percent."""
    return f"{short(round(100 * part, 1))} %"


def span(seconds: float) -> str:
    """A length of time with its unit: 30 s, 5 min, 2 h, 3.5 d."""
    for unit, size in (("d", DAY_S), ("h", HOUR_S), ("min", MINUTE_S)):
        if abs(seconds) >= size:
            return f"{short(round(seconds / size, 1))} {unit}"
    return f"{short(round(seconds, 1))} s"


def steps(highest: float, count: int = 5) -> list[float]:
    """Round numbers from 0 on, about `count` of them; the last one is `highest` or more."""
    if highest <= 0:
        return [0.0, 1.0]
    raw = highest / count
    base = 10.0 ** floor(log10(raw))
    step = next(base * factor for factor in (1, 2, 2.5, 5, 10) if base * factor >= raw * (1 - 1e-9))
    return [step * number for number in range(ceil(highest / step - 1e-9) + 1)]


def without(never: int) -> str:
    """Return how many jobs a mean leaves out, as words behind it; "" if none."""
    return f" without {short(never)} that never start" if never else ""


BAR_WIDTH = 400.0
LONG = 1e6
"""Numbers from there on are so long that few of them fit below a plot."""
ROW, THICK, BAR_TOP, BAR_BOTTOM = 36.0, 16.0, 6.0, 34.0


class Bar(NamedTuple):
    """One bar: words on the left and right above it, and (name, value) of its parts."""

    label: str
    note: str
    parts: Sequence[tuple[str, float]]


def bar_plot(title: str, description: str, unit: str, strokes: dict[str, Stroke], bars: Sequence[Bar]) -> str:
    """A picture of some bars; `strokes` has a colour for each part, by name."""
    highest = max((sum(value for _, value in bar.parts) for bar in bars), default=0.0)
    marks = steps(highest, 5 if highest < LONG else 2)
    bottom, right = BAR_TOP + ROW * len(bars), BAR_WIDTH - 16

    def x_of(value: float) -> float:
        return right * value / marks[-1]

    parts = []
    for number, mark in enumerate(marks):
        parts.append(svg.rule(x_of(mark), BAR_TOP, x_of(mark), bottom + 4))
        anchor, shift = ("start", 0) if not number else ("middle", 0) if number < len(marks) - 1 else ("end", 14)
        parts.append(svg.text(x_of(mark) + shift, bottom + 16, short(mark), anchor))
    parts.append(svg.text(right + 14, bottom + 30, unit, "end"))
    for number, bar in enumerate(bars):
        top = BAR_TOP + ROW * number
        parts += [svg.text(0, top + 12, bar.label), svg.text(right, top + 12, bar.note, "end")]
        at = 0.0
        for name, value in bar.parts:
            if value > 0:
                words = f"{bar.label}, {name}: {short(value)} {unit}"
                parts.append(svg.box(x_of(at), top + 16, max(0.5, x_of(value)), THICK, strokes[name], words))
            at += value
    return svg.drawing(BAR_WIDTH, bottom + BAR_BOTTOM, title, description, parts)


WIDTH, HEIGHT = 400.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 42.0, 10.0, 20.0, 36.0
MAX_POINTS = 160
FIRST_S = MINUTE_S
"""Delays below it stand at the left edge."""
MARKS = (
    (MINUTE_S, "≤ 1 min"), (10 * MINUTE_S, "10 min"), (HOUR_S, "1 h"), (10 * HOUR_S, "10 h"), (4 * DAY_S, "4 d"),
    (40 * DAY_S, "40 d"), (400 * DAY_S, "400 d"), (4000 * DAY_S, "11 y"),
)  # fmt: skip


class Line(NamedTuple):
    """Points of one policy, in units of the plot."""

    label: str
    stroke: Stroke
    x: np.ndarray
    y: np.ndarray


class Axis(NamedTuple):
    """From `first` to `last`; `marks` are (value, words)."""

    first: float
    last: float
    marks: Sequence[tuple[float, str]]
    name: str


def distribution(delays_s: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A step curve: delays as log10 of seconds, and the percent of `count` jobs that waited no longer.

    At most MAX_POINTS steps, evenly by percent. Jobs that never started are in `count` alone.
    """
    ordered = np.sort(delays_s)
    if not len(ordered):
        return np.zeros(0), np.zeros(0)
    ranks = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), MAX_POINTS)).round().astype(np.int64))
    x = np.log10(np.maximum(ordered[ranks], FIRST_S))
    y = 100.0 * (ranks + 1) / count
    at_once = 100.0 * float((ordered <= FIRST_S).sum()) / count
    keep = x > log10(FIRST_S)
    return (
        np.concatenate(([log10(FIRST_S)], x[keep])),
        np.concatenate(([at_once], y[keep])),
    )


def delay_axis(longest_s: float) -> Axis:
    """An axis of log10 of seconds up to the longest delay."""
    last = next((value for value, _ in MARKS[1:] if value >= longest_s), MARKS[-1][0])
    marks = [(log10(value), words) for value, words in MARKS if value <= last]
    return Axis(log10(FIRST_S), log10(last), marks, "delay of the start")


def over_time(at_s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A series as at most MAX_POINTS points: the mean of each stretch of time."""
    if len(at_s) <= MAX_POINTS:
        return at_s, values
    edges = np.linspace(0, len(at_s), MAX_POINTS + 1).round().astype(np.int64)
    means = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
    return at_s[edges[:-1]], means


def time_axis(last_s: float) -> Axis:
    """An axis of seconds from 0 on, with words in hours or days."""
    unit, name = (
        (DAY_S, "days since the first submission")
        if last_s > 3 * DAY_S
        else (HOUR_S, "hours since the first submission")
    )
    marks = [(step * unit, short(step)) for step in steps(last_s / unit)]
    inside = [mark for mark in marks if mark[0] <= last_s * 1.001]
    return Axis(0.0, max(last_s, unit / 3600), inside, name)


def value_axis(highest: float, name: str) -> Axis:
    """An axis from 0 to a round number."""
    found = steps(highest, 4)
    return Axis(0.0, found[-1], [(step, short(step)) for step in found], name)


def line_plot(
    title: str, description: str, across: Axis, up: Axis, lines: Sequence[Line], *, is_stepped: bool = False
) -> str:
    """A picture of some lines; later ones lie above."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x_of(value: float) -> float:
        return LEFT + (right - LEFT) * (value - across.first) / (across.last - across.first)

    def y_of(value: float) -> float:
        return bottom - (bottom - TOP) * (value - up.first) / (up.last - up.first)

    parts = [svg.text(0, 11, up.name), svg.text(right, HEIGHT - 4, across.name, "end")]
    for value, words in up.marks:
        parts += [svg.rule(LEFT, y_of(value), right, y_of(value)), svg.text(LEFT - 5, y_of(value) + 4, words, "end")]
    for number, (value, words) in enumerate(across.marks):
        is_last = number == len(across.marks) - 1 and value > across.last * 0.97
        anchor = "end" if is_last else "middle" if number else "start"
        parts += [
            svg.rule(x_of(value), bottom, x_of(value), bottom + 4),
            svg.text(x_of(value), bottom + 16, words, anchor),
        ]
    for line in sorted(lines, key=lambda each: not each.stroke.is_wide):
        points = [(x_of(x), y_of(y)) for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True)]
        parts.append(svg.path(_stepped(points, right) if is_stepped else points, line.stroke, line.label))
    return svg.drawing(WIDTH, HEIGHT, title, description, parts)


def _stepped(points: Sequence[tuple[float, float]], right: float) -> list[tuple[float, float]]:
    """Each value holds until the next point; the last one to the right edge."""
    found = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        found += [(x, before), (x, y)]
    return [*found, (right, points[-1][1])] if points else []
