"""Parts of a page: tables, pictures and figures as values, and the table of all policies."""

from collections.abc import Sequence
from typing import NamedTuple

from hived_simulator.report.numbers import MINUTE_S, NONE, percent, short
from hived_simulator.report.reading import Result
from hived_simulator.report.svg import Stroke

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
