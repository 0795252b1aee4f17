"""The figures of bars: starts against private clusters, waits, preemptions, locality."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hived_simulator.report import bars
from hived_simulator.report.bars import Bar
from hived_simulator.report.numbers import HOUR_S, MINUTE_S, NONE, percent, short
from hived_simulator.report.parts import MAX_ROWS, Cells, Figure, Picture, Table, cut_note
from hived_simulator.report.reading import Result
from hived_simulator.report.svg import Stroke
from hived_simulator.summaries import SLIGHT_S

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
    picture = bars.plot("Starts against the private cluster", "; ".join(told), "% of guaranteed jobs", strokes, drawn)
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
    picture = bars.plot("Waits by cause", "; ".join(told), "GPU-hours waited", strokes, drawn)
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
        Picture("Evictions", bars.plot("Evictions", told, "evictions", strokes, counts)),
        Picture("GPU-hours of work undone", bars.plot("GPU-hours lost", told_lost, "GPU-hours", strokes, lost)),
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
    picture = bars.plot("Locality of gangs", "; ".join(told), "gangs", strokes, drawn)
    words = (
        "The lowest cell that holds all pods of a gang at its first start. At best that is the lowest that could hold"
        " them in an empty cluster. Quotas do not look at cells."
    )
    headers = ("Policy", ">Gangs", ">At the best level", ">Share", *(f">{name}" for name in names))
    pictures = [Picture("Gangs by the lowest cell that holds them", picture)]
    return Figure("Locality of gangs", words, pictures, list(strokes.items()), Table(headers, rows), is_area=True)
