"""Other shapes for virtual clusters: the same leaf cells, in cells that hold the gangs that occur.

A gang is of the lowest level of which one cell has as many leaf cells as the gang. A virtual cluster gets as many cells
of that level as gangs of it ran at once in a replay. They are made of lower cells that it has; other lower ones stay. A
shape stays as it is if another one would make the jobs of its virtual cluster wait longer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hived_config.promises import CellTypePlace
from hived_simulator.outcomes import Outcome
from hived_simulator.sizes import BudgetError, Sizes, Table

SLIGHT_S = 1.0
"""A mean delay that grows by less has not grown."""


class Need(NamedTuple):
    """The jobs of one level: how many, how many of them ran at once, and their part of all leaf-seconds."""

    jobs: int
    at_once: int
    share: float


class Reshape(NamedTuple):
    """`parts` cells of one type become `cells` of a higher one, because of `need`."""

    vc: str
    lower: CellTypePlace
    parts: int
    upper: CellTypePlace
    cells: int
    need: Need


class Shaped(NamedTuple):
    """Another table, the changes that lead to it, and whether all virtual clusters were looked at."""

    table: Table
    changes: tuple[Reshape, ...]
    is_complete: bool


def reshaped(sizes: Sizes) -> Shaped:
    """The shapes that hold the gangs that occur. Cost: replays of each virtual cluster's jobs, `sizes.most` at most."""
    table: Table = sizes.present
    changes: list[Reshape] = []
    try:
        for vc in sizes.present:
            if not sizes.has_jobs(vc):
                continue
            outcomes = sizes.delay(vc, sizes.present[vc]).outcomes
            for chain in sizes.chains:
                for depth in range(sizes.chains[chain].leaf_depth):
                    table, change = _raised(sizes, table, vc, (chain, depth), outcomes)
                    if change is not None:
                        changes.append(change)
    except BudgetError:
        return Shaped(table, tuple(changes), False)
    return Shaped(table, tuple(changes), True)


def needs(sizes: Sizes, place: CellTypePlace, outcomes: Sequence[Outcome]) -> Need:
    """The jobs whose level this is, by their runs. Cost O(jobs log jobs)."""
    chain, depth = place
    leaf_counts = sizes.chains[chain].leaf_counts
    below, own = leaf_counts[depth + 1], leaf_counts[depth]
    found = [one for one in outcomes if below < one.leaf_count <= own and one.started_s is not None]
    moments = sorted(
        moment
        for one in found
        if one.started_s is not None and one.ended_s is not None
        for moment in ((one.started_s, 1), (one.ended_s, -1))
    )
    moments.sort(key=lambda moment: (moment[0], moment[1]))  # of one moment, ends come first
    running = most = 0
    for _, change in moments:
        running += change
        most = max(most, running)
    used = sum(map(_leaf_seconds, outcomes))
    return Need(len(found), most, sum(map(_leaf_seconds, found)) / used if used else 0.0)


def _leaf_seconds(one: Outcome) -> float:
    return 0.0 if one.started_s is None or one.ended_s is None else one.leaf_count * (one.ended_s - one.started_s)


def _raised(
    sizes: Sizes, table: Table, vc: str, upper: CellTypePlace, outcomes: Sequence[Outcome]
) -> tuple[Table, Reshape | None]:
    """The table with more cells of a type for a virtual cluster, if it lacks them and has lower ones for them."""
    need = needs(sizes, upper, outcomes)
    counts = table[vc]
    chain, depth = upper
    below = ((chain, each) for each in range(depth + 1, sizes.chains[chain].leaf_depth + 1))
    lower = next((place for place in below if counts.get(place, 0)), None)
    if lower is None or not need.jobs:
        return table, None
    ratio = sizes.leaves(upper) // sizes.leaves(lower)
    most = min(need.at_once - counts.get(upper, 0), counts[lower] // ratio)
    now_s = sizes.delay(vc, counts).mean_s
    for cells in range(most, 0, -1):
        after = {**counts, lower: counts[lower] - cells * ratio, upper: counts.get(upper, 0) + cells}
        other = {**table, vc: after}
        if sizes.fits(other) and sizes.delay(vc, after).mean_s < now_s + SLIGHT_S:
            return other, Reshape(vc, lower, cells * ratio, upper, cells, need)
    return table, None
