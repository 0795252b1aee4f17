"""Plots of lines: distributions of delays, and counts over time, with few points whatever the number of jobs."""

from collections.abc import Sequence
from itertools import pairwise
from math import log10
from typing import NamedTuple

import numpy as np

from hived_simulator.report import svg
from hived_simulator.report.numbers import DAY_S, HOUR_S, MINUTE_S, short, steps
from hived_simulator.report.svg import Stroke

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


def plot(
    title: str, description: str, across: Axis, up: Axis, lines: Sequence[Line], *, is_stepped: bool = False
) -> str:
    """A picture of some lines; those that come later lie above."""
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
