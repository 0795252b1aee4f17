"""Other sizes for virtual clusters: cells move from one to another, or come from those that nobody is promised.

The search goes from large steps to small ones, and takes the best step each time. It is deterministic: its bound is a
number of replays, and of equal steps the first in the order of the file is taken.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from hived_config.promises import CellTypePlace
from hived_simulator.sizes import BudgetError, Sizes, Table

SMOOTHING_S = 60.0
"""Added to both delays of a ratio: a delay of a second instead of none is no tenfold."""

FIRST_STEP = 8
"""The first step is this part of all cells of a type."""

SLIGHT = 1e-9


class Goal(StrEnum):
    """The goal of a search."""

    DELAY = "delay"
    FAIR = "fair"
    SHAPES = "shapes"


class Step(NamedTuple):
    """`number` cells of a type go from one virtual cluster, or from nobody (""), to another one."""

    number: int
    place: CellTypePlace
    source: str
    target: str


class Found(NamedTuple):
    """A better table, the steps to it, and whether the search came to its own end."""

    table: Table
    steps: tuple[Step, ...]
    is_complete: bool


def resized(sizes: Sizes, goal: Goal) -> Found:
    """The best table that steps lead to. Cost: at most `sizes.most` replays of one virtual cluster's jobs."""
    table, steps = sizes.present, list[Step]()
    try:
        score = _score(sizes, table, goal)
        for size in _sizes(sizes):
            while True:
                better = _best(sizes, table, goal, size)
                if better is None or not better[0] < score:
                    break
                score, step = better
                table = applied(table, step)
                steps.append(step)
    except BudgetError:
        return Found(table, tuple(_joined(steps)), False)
    return Found(table, tuple(_joined(steps)), True)


def applied(table: Table, step: Step) -> Table:
    """The table after a step."""
    after = {vc: dict(counts) for vc, counts in table.items()}
    if step.source:
        after[step.source][step.place] -= step.number
    after[step.target][step.place] = after[step.target].get(step.place, 0) + step.number
    return after


def _sizes(sizes: Sizes) -> list[int]:
    """Steps in cells, falling to 1."""
    most = max((count for counts in sizes.present.values() for count in counts.values()), default=1)
    step, found = max(1, most // FIRST_STEP), []
    while step:
        found.append(step)
        step //= 2
    return found


def _best(sizes: Sizes, table: Table, goal: Goal, size: int) -> tuple[tuple[float, ...], Step] | None:
    """The step of a size with the best score; None if there is none."""
    best: tuple[tuple[float, ...], Step] | None = None
    for step in _steps(sizes, table, size):
        after = applied(table, step)
        if not step.source and not sizes.fits(after):
            continue
        score = _score(sizes, after, goal)
        if best is None or score < best[0]:
            best = score, step
    return best


def _steps(sizes: Sizes, table: Table, size: int) -> Iterator[Step]:
    """Steps that may help: to virtual clusters whose jobs wait, from those that keep a cell."""
    targets = [vc for vc in table if sizes.delay(vc, table[vc]).total_s > SLIGHT]
    places = sorted({place for counts in table.values() for place, count in counts.items() if count})
    for place in places:
        sources = [vc for vc, counts in table.items() if counts.get(place, 0) >= size and sum(counts.values()) > size]
        for target in targets:
            if not any(table[target].get(each, 0) for each in places if each[0] == place[0]):
                continue  # it has no cell of this chain, and so no jobs that would run there
            for source in ("", *sources):
                if source != target:
                    yield Step(size, place, source, target)


def _score(sizes: Sizes, table: Table, goal: Goal) -> tuple[float, ...]:
    """The lower the better, rounded so that sums of seconds compare alike everywhere."""
    delays = {vc: sizes.delay(vc, counts) for vc, counts in table.items()}
    if goal is Goal.DELAY:
        return (round(sum(each.total_s for each in delays.values()), 3),)
    ratios = [
        (each.mean_s + SMOOTHING_S) / (sizes.delay(vc, sizes.present[vc]).mean_s + SMOOTHING_S)
        for vc, each in delays.items()
        if each.jobs
    ]
    never = sum(each.never for each in delays.values())
    return (never, *sorted((round(ratio, 6) for ratio in ratios), reverse=True))


def _joined(steps: list[Step]) -> Iterator[Step]:
    """Steps between the same two of the same type as one, in the order of their first; opposite ones cancel out."""
    sums: dict[tuple[CellTypePlace, str, str], int] = {}
    for step in steps:
        back = (step.place, step.target, step.source)
        if back in sums:
            sums[back] -= step.number
        else:
            key = (step.place, step.source, step.target)
            sums[key] = sums.get(key, 0) + step.number
    for (place, source, target), count in sums.items():
        if count > 0:
            yield Step(count, place, source, target)
        elif count < 0:
            yield Step(-count, place, target, source)
