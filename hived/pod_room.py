"""How much room the pods of a search have that are not placed yet: which class comes next, and whether to go on.

Pods that are alike in size and in their part in rules are of one *kind*: a row has room for as many of each of them.
A branch of the search ends as soon as any bound here is too low.
"""

import numpy as np

from hived.capacity import Capacity
from hived.events import Limit, Offer, Spread
from hived.matching import can_share
from hived.pod_classes import Kind, PodClass
from hived.topology import BoolArray, IntArray, LongArray

MOST_SPREAD = (1 << 20) - 1
"""Pods in a domain saturate here, also in the keys of `assignment`."""

_NONE_LEFT = 1 << 62  # in place of the room to spare of pods that all have a place


class PodRoom:
    """The room for the pods of each class, beside those that have been placed.

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
        """A pod of a class was put into a row, or taken from it if `change` is -1; the capacity knows already.

        is_open : was the row open before?
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
        """Do the rows that any of the pods may use have as many leaves as all of them want?"""
        if self._known_leaves is None:
            capacity = self._capacity
            leaves = np.where(self._anywhere & capacity.reachable(), capacity.room - capacity.demand, 0)
            self._known_leaves = int(leaves[capacity.is_open].sum()), capacity.most_to_open(leaves)
        return sum(self._known_leaves) >= self._wanted

    def _sums(self, kind: Kind, fits: LongArray) -> LongArray:
        """How many more pods of each class of a kind there is room for by itself; last, of all of them in open rows."""
        known = self._known_sums.get(kind)
        if known is None:  # whole numbers: no threads of a BLAS
            in_open_rows = int(fits[self._unions[kind] & self._capacity.is_open].sum())
            known = self._known_sums[kind] = np.append(self._masks[kind] @ fits, in_open_rows)
        return known

    def _may_fit(self, kind: Kind, fits: LongArray, in_open_rows: int, wanted: int) -> bool:
        """Could so many pods of one kind be placed, by bounds that heed the room left by each rule and each opening?"""
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
        """How many more pods of a kind each row has room for by itself."""
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
        """The rows that a counted pod may go to, if all `left` such pods could make up for the difference.

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
