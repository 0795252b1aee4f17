"""Chooses the domain to which each `Together` rule of a group keeps its pods, depth first, one rule after the other.

Pods that are kept to one domain use up their weight of every limit that has the domain as a whole. They use as many
leaves of the domain. A rule sees the room left by earlier rules, so that jobs which exclude each other go to different
domains at once. The rule with the fewest domains comes first.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hived.cells.topology import BoolArray, IntArray, LongArray
from hived.complete.assignment import Budget
from hived.complete.capacity import Capacity
from hived.complete.pod_classes import PodClass
from hived.values.events import Limit, Offer, Together


class _Rule(NamedTuple):
    """A `Together` rule: the domain of each row, and the classes that it keeps together."""

    domain: IntArray
    held: BoolArray
    bound: int  # the bound that counts the leaves of its domains


class _Bound(NamedTuple):
    """A limit, or the leaves of the domains of a rule: how much each pod of a class uses up where it is."""

    domain: IntArray
    weights: LongArray  # of each class


class _Remaining(NamedTuple):
    """The room and limits that the domains chosen so far leave."""

    allowed: BoolArray  # shape (classes, rows)
    room: list[LongArray]  # of each bound, by domain; the last is behind all domains, and empty
    is_counted: BoolArray  # shape (bounds, classes)


class Domains:
    """The search for one mask of rows."""

    def __init__(self, capacity: Capacity, classes: list[PodClass], offer: Offer, budget: Budget) -> None:
        self._capacity, self._classes, self._budget = capacity, classes, budget
        self._pods = np.array([len(alike.slots) for alike in classes])
        self._bounds: list[_Bound] = []
        self._room: list[LongArray] = []
        limits = [rule for rule in offer.rules if isinstance(rule, Limit)]
        for number, limit in enumerate(limits):
            self._add_bound(limit.domain, limit.room, [alike.weights[number] for alike in classes])
        self._limit_count = len(limits)
        self._rules: list[_Rule] = []
        for number, rule in enumerate(rule for rule in offer.rules if isinstance(rule, Together)):
            self._add_rule(rule, np.array([alike.together[number] for alike in classes]))

    @property
    def has_rules(self) -> bool:
        """True if any rule keeps pods together."""
        return bool(self._rules)

    def masks(self, allowed: BoolArray) -> Iterator[BoolArray]:
        """Masks of rows that keep to one domain for each rule, domains with most room first.

        allowed : shape (classes, rows); the rows that each class may use

        Ends early when the budget is used up. Cost of each domain that is tried O(classes of the rule x limits x rows).
        """
        if not self._rules:
            yield allowed
            return
        self._budget.start()
        left = _Remaining(allowed, self._room, np.zeros((len(self._bounds), len(self._classes)), np.bool_))
        counts = [len(self._candidates(rule, left)) for rule in self._rules]
        if min(counts):
            order = sorted(range(len(counts)), key=counts.__getitem__)
            yield from self._choose([self._rules[number] for number in order], left)

    def _add_rule(self, rule: Together, held: BoolArray) -> None:
        domain = rule.domain[self._capacity.node]
        if held.any():
            self._rules.append(_Rule(domain, held, len(self._bounds)))
            sums = np.bincount(domain[domain >= 0], self._capacity.room[domain >= 0]).astype(np.int64)
            self._add_bound(rule.domain, sums, [alike.size for alike in self._classes])

    def _add_bound(self, domain: IntArray, room: npt.NDArray[np.integer], weights: list[int]) -> None:
        self._bounds.append(_Bound(domain[self._capacity.node], np.array(weights, np.int64)))
        self._room.append(np.append(room.astype(np.int64), 0))

    def _choose(self, rules: list[_Rule], left: _Remaining) -> Iterator[BoolArray]:
        """Yield the masks with a domain for each remaining rule."""
        if not rules:
            yield left.allowed
            return
        rule, *others = rules
        for domain in self._candidates(rule, left):
            if self._budget.are_over():
                return
            more = self._keep_to(rule, domain, left)
            if more is not None:
                yield from self._choose(others, more)
            self._budget.count += 1

    def _candidates(self, rule: _Rule, left: _Remaining) -> list[int]:
        """List the domains that may have room for all pods of a rule, most leaves to spare first."""
        allowed = left.allowed[rule.held].any(axis=0) & (rule.domain >= 0)
        count = len(left.room[rule.bound]) - 1
        sums = np.bincount(rule.domain[allowed], self._capacity.room[allowed], count)
        can = np.ones(count, np.bool_)
        for number in np.flatnonzero(rule.held).tolist():
            rows = left.allowed[number] & (rule.domain >= 0)
            fits = np.bincount(rule.domain[rows], self._fits(number, left)[rows], count)
            can &= fits >= self._pods[number]
        taken = self._room[rule.bound][:-1] - left.room[rule.bound][:-1]
        order = np.argsort(taken - sums, kind="stable")
        return [int(domain) for domain in order if can[domain]]

    def _fits(self, number: int, left: _Remaining) -> LongArray:
        """Count the pods of a class that each row has room for by itself."""
        fits: LongArray = self._capacity.room // self._classes[number].size
        for bound, room in zip(self._bounds[: self._limit_count], left.room, strict=False):
            weight = bound.weights[number]
            if weight:
                fits = np.minimum(fits, (np.maximum(room, 0) // weight)[bound.domain])
        return fits

    def _keep_to(self, rule: _Rule, domain: int, left: _Remaining) -> _Remaining | None:
        """The remaining room with a rule's pods in this domain, None if that is too little."""
        allowed = left.allowed & ((rule.domain == domain) | ~rule.held[:, None])
        room, is_counted = list(left.room), left.is_counted.copy()
        own = np.flatnonzero(rule.held)
        rows = [allowed[number] for number in own]
        for place, bound in enumerate(self._bounds):
            for number, mask in zip(own.tolist(), rows, strict=True):
                used = int(bound.weights[number] * self._pods[number])
                if not used or is_counted[place, number]:
                    continue
                domains = bound.domain[mask]
                if domains[0] >= 0 and (domains == domains[0]).all():
                    room[place] = room[place].copy()
                    room[place][domains[0]] -= used
                    is_counted[place, number] = True
                    if room[place][domains[0]] < 0:
                        return None
        return _Remaining(allowed, room, is_counted)
