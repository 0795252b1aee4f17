"""Tables of what differs between two policies, also of different folders if they ran the same draws."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from hived_simulator.differences import Difference, differences
from hived_simulator.report.numbers import NONE, percent, short
from hived_simulator.report.parts import Table
from hived_simulator.report.reading import Result, Simulation
from hived_simulator.summaries import Summary

MAX_PAIRS = 15
_HOURS, _SHARES = ", s", {"utilisation", "lent share", "gangs at the best level"}


class Pair(NamedTuple):
    """Two policies, and how all figures of the second differ from those of the first."""

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
    return run.trace.file.sha256, run.options.get("seed"), run.options.get("draws")


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
