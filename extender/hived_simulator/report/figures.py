"""All figures and tables of a page: each figure has a sentence, plots, a legend and the numbers as a table."""

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from hived_config.words import counted
from hived_simulator.report.plots import (
    HOUR_S,
    MINUTE_S,
    NONE,
    Bar,
    Line,
    bar_plot,
    delay_axis,
    distribution,
    line_plot,
    over_time,
    percent,
    short,
    span,
    time_axis,
    value_axis,
    without,
)
from hived_simulator.report.reading import Result, Simulation
from hived_simulator.report.svg import Stroke
from hived_simulator.results import SLIGHT_S, Difference, Summary, differences

MAX_ROWS = 300
"""So many rows a table has at most."""

Cells = Sequence[str]


class Table(NamedTuple):
    """Column names, those of numbers with `>` before them, and rows of texts."""

    headers: Cells
    rows: Sequence[Cells]
    note: str = ""


class Picture(NamedTuple):
    """A plot with the words above it."""

    caption: str
    svg: str


class Figure(NamedTuple):
    """A part of the page. `legend` has (words, stroke); `is_area`: of areas, else of lines."""

    heading: str
    words: str
    pictures: Sequence[Picture]
    legend: Sequence[tuple[str, Stroke]]
    table: Table
    is_area: bool = False


def strokes_of(results: Sequence[Result]) -> dict[str, Stroke]:
    """A stroke for each policy, by label. Private clusters are broad, as others may cover them exactly."""
    return {result.label: Stroke(number, result.is_private) for number, result in enumerate(results)}


def summary_table(results: Sequence[Result]) -> Table:
    """One row for each policy."""
    headers = (
        "Policy", ">Mean delay, min", ">Never started", ">Median", ">95 %", ">Longest", ">Start later than private",
        ">GPUs in use", ">Of that lent", ">Evictions", ">GPU-hours lost",
    )  # fmt: skip
    rows = []
    for result in results:
        total, delay = result.total, result.total.delay
        mean, *ranks = (short(round(value / MINUTE_S, 1)) for value in (delay.mean, delay.p50, delay.p95, delay.max))
        later = NONE if total.later is None else short(total.later.count)
        rows.append(
            (
                result.label, mean, total.never_told, *ranks, later, percent(total.utilisation),
                percent(total.lent_share), short(total.evictions), short(round(total.lost_leaf_hours, 1)),
            )
        )  # fmt: skip
    return Table(headers, rows)


def cut_note(count: int) -> str:
    """A note for a table that is cut to MAX_ROWS of `count` rows; "" if it is whole."""
    return f"The first {MAX_ROWS} of {count} rows; vcs.csv has all." if count > MAX_ROWS else ""


CAUSES = {
    "behind-others": "behind others of its virtual cluster",
    "vc-full": "virtual cluster full",
    "fragmented": "room, but not together",
    "bad-hardware": "bad hardware",
    "victims-leaving": "victims leaving",
    "no-idle-cells": "no idle cells",
    "refused": "can never run",
}
CHANGES = ("earlier", "same time", "up to 60 min later", "60 to 600 min later", "over 600 min later", "not at all")


def excess(results: Sequence[Result]) -> Figure | None:
    """The sharing anomaly: starts against those in private clusters."""
    compared = [result for result in results if result.total.later is not None]
    if not compared:
        return None
    drawn, rows, told = [], [], []
    for result in compared:
        counts = _changes(result)
        total = sum(counts)
        parts = [(name, 100 * count / total if total else 0.0) for name, count in zip(CHANGES, counts, strict=True)]
        later = sum(counts[2:])
        drawn.append(Bar(result.label, f"{short(later)} of {short(total)} later", parts))
        told.append(f"{result.label}: {short(later)} of {short(total)} later, {short(counts[0])} earlier")
        rows += _excess_rows(result)
    strokes = {name: Stroke(number) for name, number in zip(CHANGES, (2, 7, 4, 1, 3, 6), strict=True)}
    picture = bar_plot("Starts against the private cluster", "; ".join(told), "% of guaranteed jobs", strokes, drawn)
    words = (
        "A guaranteed job should never start later than it would if its virtual cluster were a cluster of its own."
        " Where it does, sharing costs its owner something: the sharing anomaly. A job that starts in its private"
        " cluster only is later, too."
    )
    headers = (
        "Policy", "Virtual cluster", ">Later", ">Over 60 min", ">Over 600 min", ">Mean, min", ">Most, min", ">Earlier",
        ">Only in private", ">End later",
    )  # fmt: skip
    table = Table(headers, rows[:MAX_ROWS], cut_note(len(rows)))
    pictures = [Picture("Starts of guaranteed jobs", picture)]
    return Figure("Later than in a private cluster", words, pictures, list(strokes.items()), table, is_area=True)


def _changes(result: Result) -> list[int]:
    """Guaranteed jobs by CHANGES; jobs that start in neither cluster are left out."""
    late_s = result.jobs.excess_start_s[result.jobs.is_guaranteed]
    never = 0 if result.total.later is None else result.total.later.never
    bounds = (-np.inf, -SLIGHT_S, SLIGHT_S, HOUR_S, 10 * HOUR_S, np.inf)
    known = late_s[~np.isnan(late_s)]
    counts = [int(((known > low) & (known <= high)).sum()) for low, high in pairwise(bounds)]
    return [*counts, never]


def _excess_rows(result: Result) -> list[Cells]:
    rows: list[Cells] = []
    for row in result.rows:
        if (late := row.later) is not None:
            counts = (late.count, late.over_60_min, late.over_600_min)
            by_s = (short(round(value / MINUTE_S, 1)) for value in (late.mean_s, late.max_s))
            more = (late.earlier, late.never, late.ends)
            rows.append((result.label, row.vc, *map(short, counts), *by_s, *map(short, more)))
    return rows


def waits(results: Sequence[Result]) -> Figure | None:
    """GPU-hours waited by what jobs waited for."""
    names = list(dict.fromkeys(cause for result in results for cause in CAUSES if (result.jobs.cause == cause).any()))
    if not names:
        return None
    strokes = {CAUSES[name]: Stroke(list(CAUSES).index(name)) for name in names}
    drawn, rows, told = [], [], []
    for result in results:
        jobs, parts = result.jobs, []
        for name in names:
            own = jobs.cause == name
            hours = float(np.nansum(jobs.waited_s[own] * jobs.leaf_cells[own])) / HOUR_S
            parts.append((CAUSES[name], hours))
            rows.append((result.label, CAUSES[name], short(int(own.sum())), short(round(hours, 1))))
        total = sum(hours for _, hours in parts)
        drawn.append(Bar(result.label, f"{short(round(total))} GPU-hours", parts))
        told.append(f"{result.label}: {short(round(total))} GPU-hours")
    picture = bar_plot("Waits by cause", "; ".join(told), "GPU-hours waited", strokes, drawn)
    words = "Waiting time of each job times its GPUs, under the cause for which it waited longest."
    table = Table(("Policy", "Cause", ">Jobs", ">GPU-hours waited"), rows)
    pictures = [Picture("GPU-hours waited", picture)]
    return Figure("Waits by cause", words, pictures, list(strokes.items()), table, is_area=True)


def evictions(results: Sequence[Result]) -> Figure | None:
    """Preemptions and the work that they undid."""
    if not any(result.total.evictions for result in results):
        return None
    strokes = {"evictions": Stroke(1), "lost": Stroke(3)}
    counts = [
        Bar(result.label, short(result.total.evictions), [("evictions", float(result.total.evictions))])
        for result in results
    ]
    lost = [
        Bar(result.label, short(round(result.total.lost_leaf_hours, 1)), [("lost", result.total.lost_leaf_hours)])
        for result in results
    ]
    told = "; ".join(f"{bar.label}: {bar.note}" for bar in counts)
    told_lost = "; ".join(f"{bar.label}: {bar.note}" for bar in lost)
    pictures = [
        Picture("Evictions", bar_plot("Evictions", told, "evictions", strokes, counts)),
        Picture("GPU-hours of work undone", bar_plot("GPU-hours lost", told_lost, "GPU-hours", strokes, lost)),
    ]
    rows = [
        (
            result.label, row.vc, short(row.evictions), short(row.evicted_jobs), short(round(row.lost_leaf_hours, 1)),
            NONE if row.later is None else short(row.later.ends),
        )
        for result in results
        for row in result.rows
        if row.evictions or row.vc == result.rows[0].vc
    ]  # fmt: skip
    headers = ("Policy", "Virtual cluster", ">Evictions", ">Jobs evicted", ">GPU-hours lost", ">Jobs that end later")
    words = "Lent GPUs go back to their owners at once. An evicted job loses its work since its last checkpoint."
    return Figure("Preemptions", words, pictures, [], Table(headers, rows[:MAX_ROWS], cut_note(len(rows))))


def locality(results: Sequence[Result]) -> Figure | None:
    """The lowest cell that holds a gang, by policy."""
    if not any(result.total.gangs for result in results):
        return None
    names: dict[str, None] = {}
    for result in results:
        names |= dict.fromkeys(sorted({each for each in result.jobs.level[result.jobs.is_gang].tolist() if each}))
    strokes = {name: Stroke(number) for number, name in enumerate(names)}
    drawn, rows, told = [], [], []
    for result in results:
        levels = result.jobs.level[result.jobs.is_gang]
        parts = [(name, float((levels == name).sum())) for name in names]
        total = result.total
        best = percent(total.optimal_gangs / total.gangs) if total.gangs else NONE
        drawn.append(Bar(result.label, f"{best} at the best level", parts))
        told.append(f"{result.label}: {best} at the best level")
        counts = (total.gangs, total.optimal_gangs)
        rows.append((result.label, *map(short, counts), best, *(short(value) for _, value in parts)))
    picture = bar_plot("Locality of gangs", "; ".join(told), "gangs", strokes, drawn)
    words = (
        "The lowest cell that holds all pods of a gang at its first start. At best that is the lowest that could hold"
        " them in an empty cluster. Quotas do not look at cells."
    )
    headers = ("Policy", ">Gangs", ">At the best level", ">Share", *(f">{name}" for name in names))
    pictures = [Picture("Gangs by the lowest cell that holds them", picture)]
    return Figure("Locality of gangs", words, pictures, list(strokes.items()), Table(headers, rows), is_area=True)


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
            found.append(Line(label, stroke, *distribution(delay_s[~np.isnan(delay_s)], int(chosen.sum()))))
    return found


def _longest_s(results: Sequence[Result]) -> float:
    return max((result.total.delay.max for result in results), default=0.0)


def delays(results: Sequence[Result]) -> Figure:
    """The distribution of delays, all virtual clusters together."""
    told = "; ".join(
        f"{result.label}: half within {span(result.total.delay.p50)}, 95 % within {span(result.total.delay.p95)}"
        for result in results
    )
    picture = line_plot(
        "Delays of guaranteed jobs", f"Share of jobs by the longest delay. {told}.",
        delay_axis(_longest_s(results)), value_axis(100, "% of jobs that wait no longer"),
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
    """Virtual clusters with guaranteed jobs, by the sum of their waits, the longest first."""
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
    across, up = delay_axis(_longest_s(results)), value_axis(100, "% of jobs")
    for vc in vcs[:MAX_PLOTS]:
        own = [(result.label, by_vc[result.label, vc]) for result in results if (result.label, vc) in by_vc]
        told = "; ".join(f"{label}: mean {span(row.delay.mean)}{without(row.delay.never)}" for label, row in own)
        svg = line_plot(f"Delays of {vc}", told, across, up, _delay_lines(results, vc), is_stepped=True)
        pictures.append(Picture(f"{vc}: {counted(own[0][1].jobs, 'job')}, {counted(own[0][1].leaf_cells, 'GPU')}", svg))
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
    return over_time(at_s[until], result.series[column][until])


def _time_plot(caption: str, told: str, unit: str, drawn: Sequence[Line]) -> str:
    last_s = max((float(line.x[-1]) for line in drawn if len(line.x)), default=0.0)
    highest = max((float(line.y.max(initial=0.0)) for line in drawn), default=0.0)
    return line_plot(caption, told, time_axis(last_s), value_axis(highest, unit), drawn)


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


MAX_PAIRS = 15
_HOURS, _SHARES = ", s", {"utilisation", "lent share", "gangs at the best level"}


class Pair(NamedTuple):
    """Two policies, and the difference of each figure."""

    heading: str
    table: Table


def pairs_of(simulations: Sequence[Simulation]) -> list[Pair]:
    """Every pair, up to MAX_PAIRS, earlier ones first. Draws are compared only between runs that had the same ones."""
    numbered = [(each, result) for each in simulations for result in each.results]
    found = []
    for (one_run, one), (other_run, other) in list(combinations(numbered, 2))[:MAX_PAIRS]:
        is_same = _draws_of(one_run) == _draws_of(other_run) and len(one.draws) == len(other.draws)
        runs = {one.label: _totals(one, is_same), other.label: _totals(other, is_same)}
        count = len(runs[one.label]) - 1
        headers = ("Figure", f">{one.label}", f">{other.label}", ">Difference", ">Mean over draws", ">95 % interval")
        note = f"{count} draws of durations, the same for both." if count else "No draws of durations, so no interval."
        width = 6 if count else 4
        rows = [_row(difference)[:width] for difference in differences(runs)]
        found.append(Pair(f"{other.label} less {one.label}", Table(headers[:width], rows, note)))
    return found


def _totals(result: Result, has_draws: bool) -> list[Summary]:
    return [result.total, *(result.draws if has_draws else ())]


def _draws_of(simulation: Simulation) -> tuple[object, ...]:
    """The inputs that decide the draws of a simulation."""
    run = simulation.run
    return run.trace.file.sha256, run.options.seed, run.options.draws


def _row(found: Difference) -> Sequence[str]:
    is_time = found.figure.endswith(_HOURS)
    name = found.figure.removesuffix(_HOURS) + ", min" if is_time else found.figure

    def words(value: float | None) -> str:
        if value is None:
            return NONE
        if found.figure in _SHARES:
            return percent(value)
        return short(round(value / 60 if is_time else value, 1))

    interval = NONE if found.low is None else f"{words(found.low)} to {words(found.high)}"
    return name, words(found.first), words(found.second), words(found.difference), words(found.mean), interval


def figures_of(results: Sequence[Result]) -> list[Figure]:
    """All figures that these results have something for."""
    found = [
        delays(results), delays_by_vc(results), excess(results), use(results), free_cells(results), waits(results),
        evictions(results), locality(results),
    ]  # fmt: skip
    return [figure for figure in found if figure is not None]
