"""The figures of lines: delays, GPUs in use and free cells over time."""

from collections.abc import Sequence

import numpy as np

from hived_simulator.report import lines
from hived_simulator.report.lines import Line
from hived_simulator.report.numbers import MINUTE_S, percent, short, span, without
from hived_simulator.report.parts import MAX_ROWS, Figure, Picture, Table, cut_note, strokes_of, summary_table
from hived_simulator.report.reading import Result
from hived_simulator.report.svg import Stroke
from hived_simulator.summaries import Summary

MAX_PLOTS = 12
"""So many virtual clusters, and cell types, have plots of their own."""
MAX_LINES = 16
"""So many policies have lines; tables have all."""
MOST = 0.95
_TAIL = "Plots end with 95 % of the work; series.csv has the rest."


def _legend(results: Sequence[Result]) -> list[tuple[str, Stroke]]:
    return list(strokes_of(results).items())[:MAX_LINES]


def _delay_lines(results: Sequence[Result], vc: str | None) -> list[Line]:
    found = []
    for label, stroke in _legend(results):
        jobs = next(result.jobs for result in results if result.label == label)
        chosen = jobs.is_guaranteed if vc is None else jobs.is_guaranteed & (jobs.vc == vc)
        if chosen.any():
            delay_s = jobs.delay_s[chosen]
            found.append(Line(label, stroke, *lines.distribution(delay_s[~np.isnan(delay_s)], int(chosen.sum()))))
    return found


def _longest_s(results: Sequence[Result]) -> float:
    return max((result.total.delay.max for result in results), default=0.0)


def delays(results: Sequence[Result]) -> Figure:
    """The distribution of delays, all virtual clusters together."""
    told = "; ".join(
        f"{result.label}: half within {span(result.total.delay.p50)}, 95 % within {span(result.total.delay.p95)}"
        for result in results
    )
    picture = lines.plot(
        "Delays of guaranteed jobs", f"Share of jobs by the longest delay. {told}.",
        lines.delay_axis(_longest_s(results)), lines.value_axis(100, "% of jobs that wait no longer"),
        _delay_lines(results, None), is_stepped=True,
    )  # fmt: skip
    words = (
        "From submission to start, of guaranteed jobs. A line further to the left and above is better. A job that never"
        " starts is in no mean and no percentile; the line of its policy ends below 100 %."
    )
    headers = ("Policy", ">Mean, min", ">Never started", ">Median", ">95 %", ">Longest")
    table = Table(headers, [row[:6] for row in summary_table(results).rows])
    return Figure("Delays", words, [Picture("All virtual clusters", picture)], _legend(results), table)


def _vcs(results: Sequence[Result]) -> list[str]:
    """Virtual clusters with guaranteed jobs, those whose jobs wait most in sum first."""
    waited: dict[str, float] = {}
    for result in results:
        for row in result.rows[1:]:
            if row.jobs > row.opportunistic_jobs:
                waited[row.vc] = max(waited.get(row.vc, 0.0), row.delay.mean * row.jobs)
    return sorted(waited, key=lambda vc: (-waited[vc], vc))


def delays_by_vc(results: Sequence[Result]) -> Figure | None:
    """The distribution of delays of each virtual cluster."""
    vcs = _vcs(results)
    if len(vcs) < 2:
        return None
    by_vc = {(result.label, row.vc): row for result in results for row in result.rows}
    pictures = []
    across, up = lines.delay_axis(_longest_s(results)), lines.value_axis(100, "% of jobs")
    for vc in vcs[:MAX_PLOTS]:
        own = [(result.label, by_vc[result.label, vc]) for result in results if (result.label, vc) in by_vc]
        told = "; ".join(f"{label}: mean {span(row.delay.mean)}{without(row.delay.never)}" for label, row in own)
        svg = lines.plot(f"Delays of {vc}", told, across, up, _delay_lines(results, vc), is_stepped=True)
        pictures.append(Picture(f"{vc}: {short(own[0][1].jobs)} jobs, {short(own[0][1].leaf_cells)} GPUs", svg))
    rows = [
        (vc, result.label, short(row.jobs), short(row.leaf_cells), *_minutes(row), percent(row.utilisation))
        for vc in vcs
        for result in results
        if (row := by_vc.get((result.label, vc))) is not None
    ]
    headers = (
        "Virtual cluster",
        "Policy",
        ">Jobs",
        ">GPUs promised",
        ">Mean delay, min",
        ">Never started",
        ">95 %",
        ">Longest",
        ">In use",
    )
    words = "Virtual clusters whose jobs wait most come first."
    if len(vcs) > MAX_PLOTS:
        words += f" Plots are of the first {MAX_PLOTS} of {len(vcs)}."
    table = Table(headers, rows[:MAX_ROWS], cut_note(len(rows)))
    return Figure("Delays by virtual cluster", words, pictures, _legend(results), table)


def _minutes(row: Summary) -> tuple[str, str, str, str]:
    mean, p95, longest = (short(round(value / MINUTE_S, 1)) for value in (row.delay.mean, row.delay.p95, row.delay.max))
    return mean, row.never_told, p95, longest


def use(results: Sequence[Result]) -> Figure:
    """GPUs in use, and lent ones, over time."""
    pictures = [_over_time(results, "used", "GPUs in use")]
    if any(result.series["lent"].any() for result in results):
        pictures.append(_over_time(results, "lent", "GPUs lent to opportunistic runs"))
    headers = ("Policy", ">In use until the last submission", ">Of that lent", ">Highest use")
    rows = [
        (
            result.label, percent(result.total.utilisation), percent(result.total.lent_share),
            percent(float((result.series["used"] / np.maximum(result.series["leaf_cells"], 1)).max(initial=0.0))),
        )
        for result in results
    ]  # fmt: skip
    words = f"Of all GPUs of the cluster. Each point is the mean of a stretch of time. {_TAIL}"
    return Figure("Use", words, pictures, _legend(results), Table(headers, rows))


def _over_time(results: Sequence[Result], column: str, caption: str) -> Picture:
    drawn, told = [], []
    for label, stroke in _legend(results):
        result = next(each for each in results if each.label == label)
        at_s, counts = _shown(result, column)
        part = 100 * counts / max(1.0, float(result.series["leaf_cells"].max(initial=0.0)))
        drawn.append(Line(label, stroke, at_s, part))
        told.append(f"{label}: at most {short(round(float(part.max(initial=0.0)), 1))} %")
    return Picture(caption, _time_plot(caption, "; ".join(told), "% of GPUs", drawn))


def _shown(result: Result, column: str) -> tuple[np.ndarray, np.ndarray]:
    """A series without the tail after MOST of the work, when a few long jobs run on; all submissions are in it."""
    used, at_s = result.series["used"], result.series["at_s"]
    done = np.cumsum(used)
    count = int((done < MOST * done[-1]).sum()) + 1 if len(done) else 0
    until = at_s <= max(float(at_s[min(count, len(at_s)) - 1]) if count else 0.0, result.submitted_until_s)
    return lines.over_time(at_s[until], result.series[column][until])


def _time_plot(caption: str, told: str, unit: str, drawn: Sequence[Line]) -> str:
    last_s = max((float(line.x[-1]) for line in drawn if len(line.x)), default=0.0)
    highest = max((float(line.y.max(initial=0.0)) for line in drawn), default=0.0)
    return lines.plot(caption, told, lines.time_axis(last_s), lines.value_axis(highest, unit), drawn)


def free_cells(results: Sequence[Result]) -> Figure | None:
    """Whole free cells of each type over time."""
    names = dict.fromkeys(name for result in results for name in result.series if name.startswith("free_"))
    types = list(names)[:MAX_PLOTS]
    pictures, rows = [], []
    for column in types:
        name, drawn, told = column.removeprefix("free_"), [], []
        for label, stroke in _legend(results):
            result = next(each for each in results if each.label == label)
            if column in result.series:
                drawn.append(Line(label, stroke, *_shown(result, column)))
                told.append(f"{label}: {short(float(result.series[column].min(initial=np.inf)))} at least")
        pictures.append(Picture(f"Free cells of type {name}", _time_plot(name, "; ".join(told), "cells", drawn)))
        for result in results:
            values = result.series.get(column)
            if values is not None and len(values):
                rows.append((name, result.label, *(short(round(float(each), 1)) for each in _range(values))))
    if not types:
        return None
    words = (
        "A cell is free if all of it is idle, healthy and not reserved. The more large cells stay free, the larger the"
        f" jobs that find room. {_TAIL}"
    )
    table = Table(("Cell type", "Policy", ">Fewest", ">Mean", ">Most"), rows)
    return Figure("Free cells", words, pictures, _legend(results), table)


def _range(values: np.ndarray) -> tuple[float, float, float]:
    return float(values.min()), float(values.mean()), float(values.max())
