"""The table of forecasts, and the bounds that a run misses."""

import math
from collections.abc import Sequence

from tests.forecasts.cases import Figures

LEAST_HOLDS, MOST_HOLDS = 85.0, 95.0
"""Percent of the estimated cases in which a job starts by the later moment."""

_COLUMNS = {
    "jobs": "Jobs", "cases": "Cases", "certain": "Certain", "bounded": "Bounded", "estimated": "Estimated",
    "unknown": "Unknown", "likely_holds": "P50 holds, %", "by_holds": "P90 holds, %",
    "certain_broken": "Certain broken", "bounded_broken": "Bounded broken", "bounded_passed": "Bounded, passed",
    "bounded_holds": "Bounded holds, %",
    "median_wait": "Wait, min", "median_error": "Error of P50, min", "median_by": "P90, min",
}  # fmt: skip


def table(results: Sequence[tuple[str, Figures]]) -> str:
    """The figures of runs by name, as Markdown."""
    heads = ["Run", *_COLUMNS.values()]
    rows = [[name, *(_text(getattr(found, column)) for column in _COLUMNS)] for name, found in results]
    lines = ["| " + " | ".join(row) + " |" for row in [heads, ["---", *("---:" for _ in _COLUMNS)], *rows]]
    return "\n".join(lines)


def misses(name: str, found: Figures) -> list[str]:
    """Each bound that a run misses, in words."""
    missed = []
    if not math.isnan(found.by_holds) and not LEAST_HOLDS <= found.by_holds <= MOST_HOLDS:
        missed.append(f"{name}: P90 holds in {found.by_holds} %, expected {LEAST_HOLDS:g} to {MOST_HOLDS:g}")
    for kind, count in (("certain", found.certain_broken), ("bounded", found.bounded_broken)):
        if count:
            missed.append(f"{name}: {count} {kind} forecasts were broken, expected none")
    return missed


def as_json(found: Figures) -> dict[str, float | None]:
    """The figures of a run for scripts; None for shares and medians of nothing."""
    return {name: None if math.isnan(figure) else figure for name, figure in found._asdict().items()}


def _text(figure: float) -> str:
    if math.isnan(figure):
        return "-"
    return f"{figure:,}"
