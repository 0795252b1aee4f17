"""Which groups leave for a new one: those that lose least work, then fewest groups, then lowest priority (rule 18.9).

Whether a set of groups is enough is asked of a search for cells, and more groups are never worse. So the search for the
best set is a branch and bound over its most expensive members, and exact unless too many sets have to be tried.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from hived.losses import losses_of_leaves
from hived.specs import OPPORTUNISTIC_PRIORITY
from hived.state import NO_TIME, State
from hived.topology import IntArray

MOST_SETS = 256
"""So many sets of victims are tried for one decision."""

Cost = tuple[int, int, int, int]
"""Lost leaf-milliseconds, groups, sum of priorities, leaves. Costs of sets add up, and are compared in this order."""

_NOTHING: Cost = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A group that could leave: what that would cost, and the leaves that it would leave."""

    number: int
    cost: Cost
    leaves: IntArray
    is_elastic: bool


@dataclass(frozen=True, slots=True, eq=False)
class Victims:
    """The leaves that a best set of groups leaves, and what that costs; `gave_up` if a better set may exist."""

    leaves: IntArray
    cost: Cost
    gave_up: bool


def candidates_among(state: State, physical: IntArray, holders: IntArray, leaves: IntArray) -> list[Candidate]:
    """The holders of some leaves, least cost first.

    physical, holders, leaves : shape (n,); physical leaf, number of its group, and the leaf that the group would leave,
    which may be a virtual one

    Without the time, all leaves count as busy for equally long. Cost O(n log n), in numpy, and O(groups).
    """
    if len(leaves) == 0:
        return []
    losses = losses_of_leaves(state, physical, state.now_ms)
    order = np.argsort(holders, kind="stable")
    numbers, first = np.unique(holders[order], return_index=True)
    parts = np.split(leaves[order], first[1:])
    found = []
    for number, own, loss in zip(numbers.tolist(), parts, losses[order][first].tolist(), strict=True):
        group = state.group_by_number[number]
        priority = OPPORTUNISTIC_PRIORITY if group.virtual is None else group.spec.priority
        lost = loss if state.now_ms != NO_TIME else len(group.physical)
        cost = (lost, 1, priority - OPPORTUNISTIC_PRIORITY, len(own))
        found.append(Candidate(number, cost, own, group.spec.elastic))
    return sorted(found, key=lambda each: (each.cost, each.number))


def choose_victims(candidates: list[Candidate], fits: Callable[[IntArray], bool]) -> Victims | None:
    """The best set of groups that lets a new one in, elastic groups alone if these are enough (rule 15.1).

    candidates : least cost first; fits : is it enough if these leaves are left?

    None if not even all groups are enough. Cost: at most MOST_SETS calls of `fits`; without a rival set
    O(victims x log(groups)).
    """
    elastic = [each for each in candidates if each.is_elastic]
    if elastic and fits(_leaves_of(elastic)):
        return _Search(elastic, fits).best()
    return _Search(candidates, fits).best() if fits(_leaves_of(candidates)) else None


def _leaves_of(candidates: list[Candidate]) -> IntArray:
    return np.concatenate([each.leaves for each in candidates]) if candidates else np.zeros(0, np.int32)


def _sum(one: Cost, other: Cost) -> Cost:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


class _Search:
    """Branch and bound: a set is extended by its most expensive members first.

    All candidates together are known to be enough.
    """

    def __init__(self, candidates: list[Candidate], fits: Callable[[IntArray], bool]) -> None:
        self._candidates, self._fits = candidates, fits
        self._tried = 0
        self._best: list[Candidate] = candidates
        self._least: Cost | None = None

    def best(self) -> Victims:
        """The best set that was found."""
        self._extend([], _NOTHING, len(self._candidates))
        cost = reduce(_sum, (each.cost for each in self._best), _NOTHING)
        return Victims(_leaves_of(self._best), cost, self._tried > MOST_SETS)

    def _extend(self, chosen: list[Candidate], cost: Cost, end: int) -> None:
        """Find the best set of `chosen` and candidates before `end`; together with all of these it is enough."""
        shortest = self._shortest(chosen, end)
        if shortest == 0:
            self._best, self._least = chosen, cost
            return
        for place in range(shortest - 1, end):
            more = self._candidates[place]
            total = _sum(cost, more.cost)
            if self._is_over() or (self._least is not None and total >= self._least):
                return
            self._extend([*chosen, more], total, place)

    def _shortest(self, chosen: list[Candidate], end: int) -> int:
        """The least number n so that `chosen` and the first n candidates are enough; `end` is."""
        if self._are_enough(chosen, 0):
            return 0
        low, high = 0, end  # too few, enough
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._are_enough(chosen, middle) else (middle, high)
        return high

    def _are_enough(self, chosen: list[Candidate], count: int) -> bool:
        self._tried += 1
        return self._fits(_leaves_of([*self._candidates[:count], *chosen]))

    def _is_over(self) -> bool:
        return self._tried > MOST_SETS and self._least is not None
