"""Which groups leave for a new one: those that lose least work, then the fewest, then of least priority (rule 8.13).

Whether a set of groups is enough is asked of a search for cells, and more groups are never worse. So the best set is
found by branch and bound over its most expensive members. Each answer names the cells that would be taken, and so a set
that may be smaller than the one that was asked about. The search is exact unless too many sets have to be asked about.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hived.losses import losses_of_leaves
from hived.specs import FREE_PRIORITY
from hived.state import NO_GROUP, NO_TIME, State
from hived.topology import BoolArray, IntArray

FEWEST_SETS, MOST_SETS = 24, 256
"""Sets of groups that are asked about for one decision: fewer in a large cluster, where an answer takes longer."""

FEWEST_OF_LARGE = 2
"""As FEWEST_SETS, for a group of so many leaves that each answer takes long."""

_LEAVES_ASKED = 1 << 16  # leaves of the cluster times sets
_LEAVES_WANTED = 1 << 14  # leaves of the group times sets
_NOBODY = -1

Cost = tuple[int, int, int, int]
"""Lost leaf-milliseconds, groups, the highest priority among them, leaves; compared in this order (rule 8.13).

Of nobody the priority is FREE_PRIORITY. More groups never cost less.
"""

Search = Callable[[IntArray], IntArray | None]
"""The leaves that a new group would take if it may take these, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Groups that could leave, least cost first.

    costs : shape (groups, 4), see `Cost`
    leaves : those of the first group, of the second one, and so on; group i ends before ends[i]
    elastic : shape (groups,)
    leaf_count : leaves among which the new group is placed
    """

    costs: npt.NDArray[np.int64]
    leaves: IntArray
    ends: npt.NDArray[np.int64]
    elastic: BoolArray
    leaf_count: int

    def most_sets(self, wanted: int) -> int:
        """How many sets may be asked about for one decision, for a group that wants so many leaves."""
        usual = max(FEWEST_SETS, min(MOST_SETS, _LEAVES_ASKED // self.leaf_count))
        return max(FEWEST_OF_LARGE, min(usual, _LEAVES_WANTED // wanted))

    def some(self, chosen: BoolArray) -> "Candidates":
        """Only these groups."""
        sizes = np.diff(self.ends, prepend=0)
        leaves = self.leaves[np.repeat(chosen, sizes)]
        return Candidates(self.costs[chosen], leaves, np.cumsum(sizes[chosen]), self.elastic[chosen], self.leaf_count)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The leaves that the new group takes, and the cost of their users; `gave_up` if a better set may exist.

    left : sets that may still be asked about for this decision
    """

    taken: IntArray
    cost: Cost
    gave_up: bool
    left: int


def candidates_among(
    state: State, physical: IntArray, holders: IntArray, leaves: IntArray, leaf_count: int
) -> Candidates:
    """The holders of some leaves.

    physical, holders, leaves : shape (n,); physical leaf, number of its group, and the leaf that the group would leave,
    which may be a virtual one

    If the time is unknown, all leaves count as busy for equally long. A group that only reserves its leaves loses
    nothing, and is not elastic: it waits for others to leave. Cost O(n log n), in numpy.
    """
    order = np.lexsort((leaves, holders))
    _, first, sizes = np.unique(holders[order], return_index=True, return_counts=True)
    leading = physical[order][first]
    is_waiting = state.cells.reserving[leading] != NO_GROUP  # what a leaf says of work is that of its user then
    lost = losses_of_leaves(state, leading, state.now_ms) if state.now_ms != NO_TIME else sizes
    lost = np.where(is_waiting, 0, lost)
    priorities = state.cells.priority[leading]
    costs = np.stack((lost, np.ones(len(first), np.int64), priorities, sizes), axis=1).astype(np.int64)
    by_cost = np.lexsort((leaves[order][first], costs[:, 3], costs[:, 2], costs[:, 0]))
    ends = np.cumsum(sizes[by_cost])
    places = np.repeat(first[by_cost] - ends + sizes[by_cost], sizes[by_cost]) + np.arange(len(leaves))
    elastic = ((state.cells.elastic[leading] == 1) & ~is_waiting)[by_cost]
    return Candidates(costs[by_cost], leaves[order][places], ends, elastic, leaf_count)


def choose_victims(candidates: Candidates, search: Search, most_sets: int) -> Choice | None:
    """The best set of groups that lets a new one in, elastic groups alone if these are enough (rule 15.1).

    None if not even all groups are enough. Cost: at most `most_sets` + 2 calls of `search`; without a rival set
    O(victims x log(groups)).
    """
    if len(candidates.ends) == 0:
        return None
    if candidates.elastic.any() and not candidates.elastic.all():
        elastic = candidates.some(candidates.elastic)
        taken = search(elastic.leaves)
        if taken is not None:
            return _Search(elastic, search, taken, most_sets).best()
    taken = search(candidates.leaves)
    return None if taken is None else _Search(candidates, search, taken, most_sets).best()


class _Search:
    """Branch and bound: a set is extended by its most expensive members first.

    taken : what the new group would take if all candidates left
    """

    def __init__(self, candidates: Candidates, search: Search, taken: IntArray, most_sets: int) -> None:
        self._own, self._search, self._left = candidates, search, most_sets
        self._base = int(candidates.leaves.min())
        self._owner = np.full(int(candidates.leaves.max()) - self._base + 1, _NOBODY)  # by leaf from the first one
        sizes = np.diff(candidates.ends, prepend=0)
        self._owner[candidates.leaves - self._base] = np.repeat(np.arange(len(sizes)), sizes)
        self._best, self._least = taken, self._cost(self._users(taken))

    def best(self) -> Choice:
        """The best set that was found."""
        self._extend([], len(self._own.ends))
        return Choice(self._best, self._least, self._left <= 0, self._left)

    def _extend(self, chosen: list[int], end: int) -> None:
        """Look for better sets of `chosen` and candidates before `end`; together with all of these it is enough."""
        if self._cost(chosen) >= self._least:
            return
        for place in range(self._shortest(chosen, end) - 1, end):
            if self._left <= 0 or self._cost([*chosen, place]) >= self._least:
                return
            self._extend([*chosen, place], place)

    def _shortest(self, chosen: list[int], end: int) -> int:
        """The least number n > 0 so that `chosen` and the first n candidates are enough; `end` is.

        `end` + 1 if `chosen` is enough without them: then nothing is to be added.
        """
        if chosen and self._are_enough(chosen, 0):
            return end + 1
        low, high = 0, end  # too few, enough
        while high - low > 1 and self._left > 0:
            middle = (low + high) // 2
            low, high = (low, middle) if self._are_enough(chosen, middle) else (middle, high)
        return high

    def _are_enough(self, chosen: list[int], count: int) -> bool:
        self._left -= 1
        own = self._own
        parts = [own.leaves[(own.ends[place - 1] if place else 0) : own.ends[place]] for place in chosen]
        first = own.leaves[: own.ends[count - 1]] if count else own.leaves[:0]
        taken = self._search(np.concatenate([first, *parts]) if parts else first)
        if taken is None:
            return False
        cost = self._cost(self._users(taken))
        if cost < self._least:
            self._best, self._least = taken, cost
        return True

    def _users(self, taken: IntArray) -> npt.NDArray[np.int64]:
        """The groups that would have to leave these leaves."""
        places = taken - self._base
        users = self._owner[places[(places >= 0) & (places < len(self._owner))]]
        return np.unique(users[users != _NOBODY])

    def _cost(self, places: npt.NDArray[np.int64] | list[int]) -> Cost:
        if len(places) == 0:
            return 0, 0, FREE_PRIORITY, 0
        costs = self._own.costs[places]
        lost, groups, _, leaves = costs.sum(axis=0).tolist()
        return lost, groups, int(costs[:, 2].max()), leaves
