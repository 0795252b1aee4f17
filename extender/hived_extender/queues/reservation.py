"""A start that is reserved for the first unit of a virtual cluster that does not fit, and what may go past it.

The own schedule is played forward on a copy: running units end in the order in which they are expected to, until the
first unit fits. The virtual leaves that it gets there are reserved. Others may start now only beside these leaves, or
if by their declared limit they end before the reserved start, and that start is certain.

Why the first unit starts: the leaves stay reserved as long as it is the first, and nobody new gets them for longer than
until the reserved start. So it starts once those have ended that run on them, at the latest.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from hived.cells.state import State
from hived.cells.topology import IntArray
from hived.scenario import Asked, Scenario
from hived.values.events import PodDeleted
from hived_extender.queues.own_schedule import OwnRun, OwnSchedule, stand_in
from hived_extender.queues.units import Unit

Learned = Callable[[str, int, float], tuple[float, float] | None]
"""How many seconds more a job of this virtual cluster runs that has had so many leaf cells for so many seconds.

Median and 90th percentile of jobs like it; None if nothing is known.
"""


class Certainty(StrEnum):
    """How sure a moment is."""

    CERTAIN = "certain"  # nothing but time is missing
    BOUNDED = "bounded"  # at the latest, by declared limits
    ESTIMATED = "estimated"  # by earlier runs; only ever shown
    UNKNOWN = "unknown"


_ORDER = [Certainty.CERTAIN, Certainty.BOUNDED, Certainty.ESTIMATED, Certainty.UNKNOWN]


@dataclass(frozen=True, slots=True)
class Expected:
    """When something ends or starts; `at_s` is None if nobody knows. `late_s` is that of 9 of 10 cases."""

    at_s: float | None
    certainty: Certainty
    late_s: float | None = None

    @property
    def is_sure(self) -> bool:
        """Is it no later than this?"""
        return self.certainty in (Certainty.CERTAIN, Certainty.BOUNDED)


@dataclass(slots=True)
class Reservation:
    """The leaves that are reserved for the first unit, and when it starts there."""

    key: str
    start: Expected
    leaves: IntArray = field(repr=False)
    passed: set[int] = field(default_factory=set)  # kinds that may not go past it; looked up, never iterated

    def allows(self, leaves: IntArray, limit_s: float | None, now: float) -> bool:
        """May another unit start on these leaves now?"""
        start_s = self.start.at_s if self.start.is_sure else None
        if limit_s is not None and start_s is not None and now + limit_s <= start_s:
            return True
        return not np.isin(leaves, self.leaves, assume_unique=True).any()


def expected_end(run: OwnRun, now: float, learned: Learned | None = None, started_s: float | None = None) -> Expected:
    """When a unit ends in its own schedule. `started_s` is its last real start, None if that is still to come.

    A declared limit counts from its due moment, as it would in its virtual cluster alone: what others do elsewhere, and
    how long they take to leave, must not decide who goes past whom. Nothing is decided by moments that were `learned`:
    they are not the same for two replicas, or after a restart.
    """
    if run.end_s is not None:
        return Expected(run.end_s, Certainty.CERTAIN)
    if run.unit.limit_s is not None:
        return Expected(max(run.due_s + run.unit.limit_s, now), Certainty.BOUNDED)
    since = max(run.due_s, now if started_s is None else started_s)
    left_s = learned(run.unit.vc, run.unit.leaf_count, max(now - since, 0.0)) if learned is not None else None
    if left_s is None:
        return Expected(None, Certainty.UNKNOWN)
    return Expected(now + left_s[0], Certainty.ESTIMATED, now + left_s[1])


def declared_end(run: OwnRun, now: float) -> Expected:
    """When a unit ends in its own schedule, as its virtual cluster alone would know it at this moment.

    One that ran ahead may have ended really, and is still to end there. Alone nobody knows that yet: else the first
    unit would have other cells reserved, and others would go past it.
    """
    if run.unit.limit_s is None:
        return Expected(None, Certainty.UNKNOWN)
    return Expected(max(run.due_s + run.unit.limit_s, now), Certainty.BOUNDED)


def reserve(own: OwnSchedule, unit: Unit, ends: Iterable[tuple[OwnRun, Expected]]) -> Reservation | None:
    """The reserved start of a unit that does not fit; None if it would not fit an empty virtual cluster either.

    `ends` are the running units of its virtual cluster. If others have to end as well, which are of no queue, nobody
    knows when it starts. Cost O(units) and a search, log(units) times; and a copy of the cells.
    """
    order = sorted(ends, key=_by_end)
    low, high = 0, len(order)  # it does not fit once `low` have ended
    gone = [PodDeleted(stand_in(run.unit)) for run, _ in order]
    if not _binds_without(own.state, unit, gone):
        placed = own.find_alone(unit)
        return None if placed is None else Reservation(unit.key, Expected(None, Certainty.UNKNOWN), placed.leaves)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _binds_without(own.state, unit, gone[:middle]) else (middle, high)
    placed = own.find_without(unit, (run.unit for run, _ in order[:high]))
    return None if placed is None else Reservation(unit.key, latest(end for _, end in order[:high]), placed.leaves)


def latest(ends: Iterable[Expected]) -> Expected:
    """When all of these have come: as sure as the least sure of them, and certain if there are none."""
    found = list(ends)
    certainty = max((end.certainty for end in found), key=_ORDER.index, default=Certainty.CERTAIN)
    times = [end.at_s for end in found if end.at_s is not None]
    if certainty is Certainty.UNKNOWN:
        return Expected(None, certainty)
    late = [end.late_s or end.at_s or 0.0 for end in found] if certainty is Certainty.ESTIMATED else []
    return Expected(max(times, default=None), certainty, max(late, default=None))


def _by_end(each: tuple[OwnRun, Expected]) -> tuple[int, float, float, str]:
    """Sure ends first: nobody knows of the others whether they come at all."""
    run, end = each
    return (0 if end.is_sure else _ORDER.index(end.certainty), end.at_s or 0.0, run.due_s, run.unit.key)


def _binds_without(state: State, unit: Unit, gone: Sequence[PodDeleted]) -> bool:
    """Has it room, without victims, once these have gone? Nothing changes."""
    return Scenario(state).places([Asked(stand_in(unit))], gone) is not None
