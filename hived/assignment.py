"""Which pod of a group goes where: the complete search over the rows of `capacity`, pod by pod, with backtracking.

Only the final places of pods count. So pods that are alike (one size, the same nodes, one part in every rule) are one
class. The class that has least to choose from is placed next. If a pod of a class fails in a row, the rest of that
branch puts none of the class there, nor in like rows. A branch ends as soon as a bound on the pods that fit is too low.
Rows come first that need nobody to leave, are open, split least, and are fullest.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hived.capacity import Capacity, Opening
from hived.events import Offer
from hived.offers import keeps_rules
from hived.packing_bounds import may_pack
from hived.pod_classes import PodClass
from hived.pod_room import MOST_SPREAD, PodRoom
from hived.topology import BoolArray, IntArray, LongArray
from hived.tries import Budget

_NEVER = np.int64(1) << 62
_VICTIM, _SPREAD, _LEVEL, _SPLIT = 61, 41, 34, 28  # bits of a key, which leaves the lowest for how much stays free
_OF_BAD = 1 << (_LEVEL - _SPLIT - 1)  # cells without lost leaves are opened first, whatever is split for them
_MOST_FREE = (1 << _SPLIT) - 1


class Place(NamedTuple):
    """A row, and the level of the preassigned cell that is taken for it, 0 if it was open."""

    row: int
    level: int


@dataclass(slots=True)
class _Step:
    """One pod of the search: its class, where it is, and where no pods of that class go any more."""

    alike: int
    place: Place | None = None
    opening: Opening | None = None
    forbidden: list[tuple[int, npt.NDArray[np.intp]]] = field(default_factory=list)


class Assignment:
    """One search: rows for the pods of each class, or none."""

    def __init__(
        self, capacity: Capacity, classes: list[PodClass], offer: Offer, allowed: BoolArray, direct: BoolArray,
        tries: Budget,
    ) -> None:  # fmt: skip
        """Prepare a search.

        allowed, direct : shape (classes, rows); the rows that will do, and the subset where nobody has to leave
        """
        self._capacity, self._classes, self._offer, self._tries = capacity, classes, offer, tries
        self._allowed, self._direct = allowed, direct
        self._room = PodRoom(capacity, classes, offer, allowed)
        self._limits, self._spreads = self._room.limits, self._room.spreads
        self._forbidden = np.zeros((capacity.shape.top + 1, *allowed.shape), np.bool_)
        self._known_keys: dict[int, LongArray] = {}  # of each class, kept while only the rows change where pods are put
        self._open_rows: npt.NDArray[np.intp] | None = None  # kept until a cell is opened or closed
        self._likeness: npt.NDArray[np.int64] | None = None
        self._steps: list[_Step] = []

    def find(self, *, proves: bool = False) -> list[Place] | None:
        """A place for each slot, None if there is none or the tries are over; `capacity` then holds the places.

        proves : shall pods of several sizes be proved not to fit, if that can be, before anything else is tried?

        Cost O((pods + tries) x kinds of pods x rows).
        """
        self._tries.start()
        proves = proves and len({alike.size for alike in self._classes}) > 1
        while True:
            number = self._room.next_class()
            if proves and number is None and any(self._room.left):
                proves = False
                if self._cannot_fit():
                    return None
            if number is None and not any(self._room.left):
                found = self._by_slot()
                if keeps_rules(self._offer.rules, self._capacity.node[[place.row for place in found]]):
                    return found
            if number is not None:
                self._steps.append(_Step(number))
            if not self._go_on():
                return None

    def _go_on(self) -> bool:
        """Place the last pod, or the last one before it that has another place; false when all has been tried."""
        while self._steps:
            step = self._steps[-1]
            if step.place is not None:
                self._take_back(step)
            place = None if step.forbidden and self._tries.are_over() else self._best_place(step.alike)
            if place is not None:
                self._put(step, place)
                return True
            for level, rows in step.forbidden:
                self._forbidden[level, step.alike, rows] = False
            self._steps.pop()
        return False

    def _put(self, step: _Step, place: Place) -> None:
        step.place = place
        if place.level:
            step.opening = self._capacity.open_cell(place.level, self._capacity.place_above(place.row, place.level))
        self._count(step, 1)

    def _cannot_fit(self) -> bool:
        """Can it be proved that the pods have no place, wherever those are that have been placed? Then none has one."""
        places = [self._lift(step) for step in reversed(self._steps)][::-1]
        if not may_pack(self._capacity, self._classes, self._allowed):
            self._steps.clear()
            return True
        for step, place in zip(self._steps, places, strict=True):
            self._put(step, place)
        return False

    def _lift(self, step: _Step) -> Place:
        """Undo a step; returns where its pod was."""
        assert step.place is not None
        place = step.place
        self._count(step, -1)
        if step.opening is not None:
            self._capacity.close_cell(step.opening)
        step.place = step.opening = None
        return place

    def _take_back(self, step: _Step) -> None:
        """Undo a step that came to nothing, and keep its class from going there, or anywhere just like it."""
        self._tries.count += 1
        row, level = self._lift(step)
        rows = self._rows_like(row)
        rows = rows[~self._forbidden[level, step.alike, rows]]
        self._forbidden[level, step.alike, rows] = True
        step.forbidden.append((level, rows))

    def _count(self, step: _Step, change: int) -> None:
        assert step.place is not None
        row, alike = step.place.row, self._classes[step.alike]
        self._capacity.demand[row] += change * alike.size
        self._room.count(step.alike, row, change, is_open=step.opening is None)
        if step.opening is not None:
            self._open_rows = None
        if step.opening is None and not self._limits and not self._spreads:
            self._follow_row(row)
        else:
            self._known_keys.clear()
        for limit, weight in zip(self._limits, alike.weights, strict=True):
            if weight:
                limit.room[limit.domain[row]] -= change * weight
        for spread, counts in zip(self._spreads, alike.counts, strict=True):
            if counts:
                spread.present[spread.domain[row]] += change
                spread.placed[spread.domain[row]] += change

    def _follow_row(self, row: int) -> None:
        """Bring the keys of one open row up to date, where no rule makes them depend on others."""
        capacity = self._capacity
        free, idle = int(capacity.room[row] - capacity.demand[row]), int(capacity.idle[row] - capacity.demand[row])
        for number, keys in self._known_keys.items():
            size = self._classes[number].size
            if self._allowed[number, row]:
                evicts = idle < size or not self._direct[number, row]
                keys[row] = min(free, _MOST_FREE) + (evicts << _VICTIM) if free >= size else _NEVER

    def _best_place(self, number: int) -> Place | None:
        """Where the next pod of a class goes: the first row by preference that is not forbidden."""
        capacity, keys = self._capacity, self._keys(number)
        best, least = None, _NEVER
        if self._open_rows is None:
            self._open_rows = np.flatnonzero(capacity.is_open)
        if len(self._open_rows):
            own = np.where(self._forbidden[0, number, self._open_rows], _NEVER, keys[self._open_rows])
            place = int(own.argmin())
            if own[place] < least:
                best, least = Place(int(self._open_rows[place]), 0), own[place]
        if least < 1 << _LEVEL:
            return best  # rows that are to be opened have higher keys
        for level in capacity.options():
            rows = capacity.rows_for(level)
            can = ~self._forbidden[level, number, rows]
            can &= capacity.spread_to_rows(level, capacity.can[level]) & ~capacity.is_open[rows]
            splits = capacity.spread_to_rows(level, capacity.splits[level])
            own = keys[rows] + (level << _LEVEL) + (splits + _OF_BAD * capacity.is_bad[rows] << _SPLIT)
            own = np.where(can, own, _NEVER)
            place = int(own.argmin())
            if own[place] < least:
                best, least = Place(rows.start + place, level), own[place]
        return best

    def _keys(self, number: int) -> LongArray:
        """A key for each row, without the part that depends on the opening for it; rows that are out, or too small for
        another pod, have no key.
        """
        known = self._known_keys.get(number)
        if known is None:
            known = self._known_keys[number] = self._make_keys(number)
        return known

    def _make_keys(self, number: int) -> LongArray:
        capacity, alike = self._capacity, self._classes[number]
        keys: LongArray = np.minimum(capacity.room - capacity.demand, _MOST_FREE)
        evicts = (capacity.idle - capacity.demand < alike.size) | ~self._direct[number]
        keys += evicts.astype(np.int64) << _VICTIM
        is_out = ~self._allowed[number] | (self._room.fits(alike) == 0)
        for spread, counts in zip(self._spreads, alike.counts, strict=True):
            if counts:
                keys += np.minimum(spread.present[spread.domain], MOST_SPREAD) << _SPREAD
        keys[is_out] = _NEVER
        return keys

    def _rows_like(self, row: int) -> npt.NDArray[np.intp]:
        """The rows that nothing tells from one but their number: same parent, room, pods that may use them, domains."""
        capacity = self._capacity
        if self._likeness is None:
            domains = [*(limit.domain for limit in self._limits), *(spread.domain for spread in self._spreads)]
            self._likeness = _find_likeness(capacity, self._allowed, self._direct, domains)
        same = (self._likeness == self._likeness[row]) & (capacity.demand == capacity.demand[row])
        same &= capacity.is_open == capacity.is_open[row]
        for limit in self._limits:
            same &= limit.room[limit.domain] == limit.room[limit.domain[row]]
        for spread in self._spreads:
            same &= spread.present[spread.domain] == spread.present[spread.domain[row]]
        return np.flatnonzero(same)

    def _by_slot(self) -> list[Place]:
        """The place of each slot; of a class, lower slots get lower rows."""
        found: list[Place] = [Place(-1, 0)] * sum(len(alike.slots) for alike in self._classes)
        for number, alike in enumerate(self._classes):
            places = sorted(step.place for step in self._steps if step.alike == number and step.place is not None)
            for slot, place in zip(alike.slots, places, strict=True):
                found[slot] = place
        return found


def _find_likeness(
    capacity: Capacity, allowed: BoolArray, direct: BoolArray, domains: list[IntArray]
) -> npt.NDArray[np.int64]:
    """A number for each row, equal for rows that are alike as long as they are used alike."""
    columns: list[npt.NDArray[np.generic]] = [capacity.parent, capacity.idle, capacity.room, capacity.evicts]
    columns += [capacity.level, *allowed, *direct, *map(_shared, domains)]
    rows = np.ascontiguousarray(np.stack([column.astype(np.int64) for column in columns], axis=1))
    _, number = np.unique(rows.view(np.dtype((np.void, rows.shape[1] * 8))).ravel(), return_inverse=True)
    return np.asarray(number, np.int64)


def _shared(domain: IntArray) -> IntArray:
    """Domains by number; all domains of a single row get the same number."""
    known = domain[domain >= 0]
    if len(known) == 0:
        return domain
    counts = np.bincount(known)
    return np.asarray(np.where((domain >= 0) & (counts[domain] == 1), -2, domain), np.int32)
