"""Assigns the pods of a group to rows: the complete search over the rows of `capacity`, with backtracking.

Only the final places of pods count. So pods that are alike (one size, the same nodes, one part in every rule) are one
class. The class with the fewest places is placed next. If a pod of a class fails in a row, the rest of that branch puts
none of the class there, nor in like rows. Rows without victims come first, then open rows, then rows that split least
and are fullest.

Pods that are alike in size and in their part in rules are of one *kind*: a row has room for as many of each of them.
`PodRoom` keeps upper bounds on the room of each kind, and a branch ends as soon as one is too low. `Budget` and `Tries`
limit the search of a decision (rules 12.8, 19.7).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hived.cells.topology import BoolArray, IntArray, LongArray
from hived.complete.capacity import Capacity, Opening
from hived.complete.offers import keeps_rules
from hived.complete.pod_classes import Kind, PodClass, may_pack
from hived.hived_rules.matching import can_share
from hived.values.events import Limit, Offer, Spread

MOST_TRIED = 1024
"""So many times a pod is taken back from where it was tried, for one decision; an ordinary one needs that never.

As many domains of pods that belong together are tried in vain."""

MOST_IN_A_SEARCH = 256
"""The same for one of the searches of a decision, so that an easier one may follow."""


@dataclass(slots=True)
class Budget:
    """The failed choices of each kind in a decision, and a mark if a search was given up for it (rule 12.8)."""

    most: int
    count: int = 0
    end: int = 0
    gave_up: bool = False

    def start(self) -> None:
        """Begin another search."""
        self.end = min(self.count + MOST_IN_A_SEARCH, self.most)

    def are_over(self) -> bool:
        """True if this search is to be given up."""
        self.gave_up |= self.count >= self.end
        return self.count >= self.end


class Tries:
    """The tries of one decision, at most so many of each kind."""

    def __init__(self, most: int = MOST_TRIED) -> None:
        self.most = most
        self.pods = Budget(most)  # places of pods
        self.domains = Budget(most)  # domains of `Together` rules, each tried with all that follows
        self._parts: list[Tries] = []

    def fewer(self, most: int) -> "Tries":
        """A budget of so many tries for a slower part of the decision.

        if it is used up, this one counts as given up.
        """
        part = Tries(min(most, self.most))
        self._parts.append(part)
        return part

    @property
    def gave_up(self) -> bool:
        """True if any search of the decision was given up."""
        return self.given_up_after > 0

    @property
    def given_up_after(self) -> int:
        """The number of tries after which a search was given up, 0 if none was."""
        own = self.most if self.pods.gave_up or self.domains.gave_up else 0
        return max([own, *(part.given_up_after for part in self._parts)])


MOST_SPREAD = (1 << 20) - 1
"""Pods in a domain saturate here, also in the keys of `assignment`."""

_NONE_LEFT = 1 << 62  # in place of the room to spare of pods that all have a place


class PodRoom:
    """The room for the pods of each class, beside the placed ones.

    left : how many pods of each class have no place yet
    """

    def __init__(self, capacity: Capacity, classes: list[PodClass], offer: Offer, allowed: BoolArray) -> None:
        """Prepare a search. allowed : shape (classes, rows)."""
        self._capacity, self._classes, self._allowed = capacity, classes, allowed
        self.limits = [LimitRoom(rule, capacity.node) for rule in offer.rules if isinstance(rule, Limit)]
        self.spreads = [SpreadCount(rule, capacity.node) for rule in offer.rules if isinstance(rule, Spread)]
        self.left = [len(alike.slots) for alike in classes]
        self._wanted = sum(alike.size * len(alike.slots) for alike in classes)  # leaves of pods that have no place yet
        self._kinds: dict[Kind, list[int]] = {}
        for number, alike in enumerate(classes):
            self._kinds.setdefault(alike[:3], []).append(number)
        self._masks = {kind: allowed[own].astype(np.int64) for kind, own in self._kinds.items()}
        self._unions = {kind: np.asarray(allowed[own].any(axis=0)) for kind, own in self._kinds.items()}
        self._anywhere = allowed.any(axis=0)
        # of each kind, kept while only the rows change where pods are put
        self._known_fits: dict[Kind, LongArray] = {}
        self._known_sums: dict[Kind, LongArray] = {}
        self._known_most: dict[Kind, int] = {}  # in rows that are to be opened
        self._known_leaves: tuple[int, int] | None = None  # in open rows, in rows that are to be opened

    def count(self, number: int, row: int, change: int, *, is_open: bool) -> None:
        """Record that a pod of a class was put into a row, or taken from it if `change` is -1, after the capacity did.

        is_open : the row was open before
        """
        self.left[number] -= change
        self._wanted -= change * self._classes[number].size
        if not is_open or self.limits or self.spreads:
            for known in (self._known_fits, self._known_sums, self._known_most):
                known.clear()
            self._known_leaves = None
            return
        free = int(self._capacity.room[row] - self._capacity.demand[row])
        for kind, fits in self._known_fits.items():
            more = free // kind[0] - fits[row]
            fits[row] += more
            if more and kind in self._known_sums:
                self._known_sums[kind][:-1] += more * self._masks[kind][:, row]
                self._known_sums[kind][-1] += more * self._unions[kind][row]
        if self._known_leaves is not None:
            in_open_rows, to_open = self._known_leaves
            self._known_leaves = in_open_rows - change * self._classes[number].size, to_open

    def next_class(self) -> int | None:
        """The class that has least room to spare; none if all pods are placed, or some cannot be."""
        best, least = None, 0
        if len(self._kinds) > 1 and not self._have_leaves():
            return None
        for kind, own in self._kinds.items():
            left = [self.left[number] for number in own]
            if not any(left):
                continue
            fits = self.fits(self._classes[own[0]])
            *sums, in_open_rows = self._sums(kind, fits).tolist()
            room = [had - wanted if wanted else _NONE_LEFT for had, wanted in zip(sums, left, strict=True)]
            fewest = min(room)
            if fewest < 0 or not self._may_fit(kind, fits, in_open_rows, sum(left)):
                return None
            if len(own) > 1 and not can_share(np.array(left), self._allowed[own], fits):
                return None
            if best is None or fewest < least:
                best, least = own[room.index(fewest)], fewest
        return best

    def _have_leaves(self) -> bool:
        """True if the rows that any of the pods may use have as many leaves as all of them want."""
        if self._known_leaves is None:
            capacity = self._capacity
            leaves = np.where(self._anywhere & capacity.reachable(), capacity.room - capacity.demand, 0)
            self._known_leaves = int(leaves[capacity.is_open].sum()), capacity.most_to_open(leaves)
        return sum(self._known_leaves) >= self._wanted

    def _sums(self, kind: Kind, fits: LongArray) -> LongArray:
        """Sum the room for more pods of each class of a kind by itself; last, of all of them in open rows."""
        known = self._known_sums.get(kind)
        if known is None:  # whole numbers: no threads of a BLAS
            in_open_rows = int(fits[self._unions[kind] & self._capacity.is_open].sum())
            known = self._known_sums[kind] = np.append(self._masks[kind] @ fits, in_open_rows)
        return known

    def _may_fit(self, kind: Kind, fits: LongArray, in_open_rows: int, wanted: int) -> bool:
        """True if so many pods of one kind may fit, by bounds on the room left by each rule and each opening."""
        if in_open_rows >= wanted and not self.limits:
            return True
        fits = fits * self._unions[kind]
        if in_open_rows < wanted:
            if kind not in self._known_most:
                self._known_most[kind] = self._capacity.most_to_open(fits)
            if in_open_rows + self._known_most[kind] < wanted:
                return False
        for limit, weight in zip(self.limits, kind[1], strict=True):
            if weight:
                sums = np.bincount(limit.domain[fits > 0], fits[fits > 0], len(limit.room))
                if np.minimum(sums, np.maximum(limit.room, 0) // weight).sum() < wanted:
                    return False
        return True

    def fits(self, alike: PodClass) -> LongArray:
        """Count the pods of a kind that each row still has room for by itself."""
        known = self._known_fits.get(alike[:3])
        if known is None:
            known = self._known_fits[alike[:3]] = self._count_fits(alike)
        return known

    def _count_fits(self, alike: PodClass) -> LongArray:
        capacity = self._capacity
        fits = np.where(capacity.reachable(), (capacity.room - capacity.demand) // alike.size, 0)
        for limit, weight in zip(self.limits, alike.weights, strict=True):
            if weight:
                fits = np.minimum(fits, (np.maximum(limit.room, 0) // weight)[limit.domain])
        counted = sum(left for left, other in zip(self.left, self._classes, strict=True) if other.counts)
        for spread, counts in zip(self.spreads, alike.counts, strict=True):
            if counts:
                fits[~spread.may_take(counted)] = 0
        return fits


class LimitRoom:
    """A `Limit` in the course of a search; rows without a domain have one behind the last, without room."""

    def __init__(self, rule: Limit, nodes: IntArray) -> None:
        self.domain = rule.domain[nodes]
        self.room = np.append(rule.room.astype(np.int64), 0)


class SpreadCount:
    """A `Spread` in the course of a search, which asks only where pods are in the end.

    Rows without a domain have one behind the last, which is full.
    """

    def __init__(self, rule: Spread, nodes: IntArray) -> None:
        self.domain = rule.domain[nodes]
        self.present = np.append(rule.present.astype(np.int64), MOST_SPREAD)
        self.placed = np.zeros(len(self.present), np.int64)
        self._skew = rule.max_skew

    def may_take(self, left: int) -> BoolArray:
        """The rows that a counted pod may go to, if all `left` of them could make up for the difference.

        At the end the fullest domain that has pods of the group may exceed the emptiest by the skew. Cost O(rows), and
        a sweep of the domains for each different number of pods in one.
        """
        fullest = int(self.present[self.placed > 0].max(initial=0))
        after = np.maximum(self.present + 1, fullest)
        is_open = np.zeros(len(after), np.bool_)
        for most in np.unique(after[:-1]).tolist():
            missing = int(np.maximum(most - self._skew - self.present, 0).sum())
            own = after == most
            is_open[own] = missing - (self.present[own] < most - self._skew) <= left - 1
        is_open[-1] = False
        return is_open[self.domain]


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
    """One placed pod of the search: its class, its place, and the places closed to that class from then on."""

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

        allowed, direct : shape (classes, rows); the rows that will do, and the subset without victims
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

        proves : first try to prove that pods of several sizes do not fit

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
        """True if it is proved that the pods have no place, wherever the pods placed so far are."""
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
        """The place of the next pod of a class: the first row by preference that is not forbidden."""
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
        """The rows that differ from one in their number alone: same parent, room, pods that may use them, domains."""
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
