"""Chooses the groups to preempt: least lost work, then fewest groups, then lowest priority (rule 8.13).

A search for cells tells if a set of groups is enough, and a larger set is never worse. So the best set is found by
branch and bound over its most expensive members. Each answer names the cells that would be taken, and so a set that may
be smaller than the one in question. The search is exact unless it reaches its bound on sets.

Groups of a gang that depend on one of them are one candidate, with the work of all (rule 8.14). Groups that the gang
can lose are candidates of their own. A set with more of them than the gang can lose costs the whole gang.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hived.cells.state import NO_GROUP, NO_TIME, Group, GroupState, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray
from hived.life.losses import loss_of, losses_of_leaves, weighed_losses
from hived.values.specs import FREE_PRIORITY, OPPORTUNISTIC_PRIORITY, Gang

FEWEST_SETS, MOST_SETS = 24, 256
"""Sets of groups that are asked about for one decision: fewer in a large cluster, where an answer takes longer."""

FEWEST_OF_LARGE = 2
"""As FEWEST_SETS, for a group of so many leaves that each answer takes long."""

_LEAVES_ASKED = 1 << 16  # leaves of the cluster times sets
_LEAVES_WANTED = 1 << 14  # leaves of the group times sets
_NOBODY = -1

Cost = tuple[int, int, int, int]
"""Lost leaf-milliseconds, groups, the highest priority among them, leaves; compared in this order (rule 8.13).

Without groups the priority is FREE_PRIORITY. More groups never cost less.
"""

Search = Callable[[IntArray], IntArray | None]
"""The leaves that a new group would take if it may take these, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class Tie:
    """Candidates of one gang, which costs `cost` as soon as one of them cannot leave without the others.

    whole : the candidate that is the gang as a whole; _NOBODY if there is none
    limits : of these candidates, with so many pods each, at most so many pods may leave
    """

    cost: Cost
    units: frozenset[int]
    whole: int
    limits: tuple[tuple[Mapping[int, int], int], ...]

    def breaks(self, leaving: Iterable[int]) -> bool:
        """True if all leave once these do."""
        own = list(leaving)
        return self.whole in own or any(sum(pods.get(one, 0) for one in own) > spare for pods, spare in self.limits)

    def among(self, places: Mapping[int, int]) -> "Tie":
        """The same tie among fewer candidates, which have other places."""
        limits = tuple(({places[one]: n for one, n in pods.items() if one in places}, n) for pods, n in self.limits)
        return Tie(
            self.cost, frozenset(places[one] for one in self.units if one in places),
            places.get(self.whole, _NOBODY), limits,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Groups that could leave, least cost first.

    costs : shape (groups, 4), see `Cost`
    leaves : of the first group, of the second one, and so on; group i ends before ends[i]
    elastic : shape (groups,)
    leaf_count : leaves among which the new group is placed
    ties : of gangs. The leaves of one that is a candidate as a whole may belong to other candidates as well
    """

    costs: npt.NDArray[np.int64]
    leaves: IntArray
    ends: npt.NDArray[np.int64]
    elastic: BoolArray
    leaf_count: int
    ties: tuple[Tie, ...] = ()

    def most_sets(self, wanted: int) -> int:
        """The most sets tested for one decision, for a group that wants so many leaves."""
        usual = max(FEWEST_SETS, min(MOST_SETS, _LEAVES_ASKED // self.leaf_count))
        return max(FEWEST_OF_LARGE, min(usual, _LEAVES_WANTED // wanted))

    def some(self, chosen: BoolArray) -> "Candidates":
        """These groups alone."""
        sizes = np.diff(self.ends, prepend=0)
        leaves = self.leaves[np.repeat(chosen, sizes)]
        places = {one: place for place, one in enumerate(np.flatnonzero(chosen).tolist())} if self.ties else {}
        ties = tuple(tie.among(places) for tie in self.ties)
        ends = np.cumsum(sizes[chosen])
        return Candidates(self.costs[chosen], leaves, ends, self.elastic[chosen], self.leaf_count, ties)

    def leaves_of(self, places: Sequence[int], first: int) -> IntArray:
        """The leaves of some candidates, and of all before the one at `first`; each once."""
        parts = [self.leaves[(self.ends[place - 1] if place else 0) : self.ends[place]] for place in places]
        found = np.concatenate([self.leaves[: self.ends[first - 1]] if first else self.leaves[:0], *parts])
        return np.unique(found) if self.ties else found


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
    state: State, physical: IntArray, holders: IntArray, leaves: IntArray, leaf_count: int, *, are_lent: bool = False
) -> Candidates:
    """Collect the holders of some leaves.

    physical, holders, leaves : shape (n,); physical leaf, number of its group, and the leaf that the group would leave,
    which may be a virtual one

    are_lent : losses are weighed between virtual clusters (rule 8.15)

    If the time is unknown, all leaves count as busy for equally long. A group that only reserves its leaves loses
    nothing, and is not elastic: it waits for others to leave. Cost O(n log n), in numpy.
    """
    order = np.lexsort((leaves, holders))
    numbers, first, sizes = np.unique(holders[order], return_index=True, return_counts=True)
    leading = physical[order][first]
    is_waiting = state.cells.reserving[leading] != NO_GROUP  # what a leaf says of work is that of its user then
    lost = losses_of_leaves(state, leading, state.now_ms) if state.now_ms != NO_TIME else sizes
    lost = np.where(is_waiting, 0, lost)
    if are_lent and state.has_saves:
        groups = [state.group_by_number[number] for number in numbers.tolist()]
        lost = weighed_losses(state, groups, lost, state.now_ms)
    priorities = state.cells.priority[leading]
    costs = np.stack((lost, np.ones(len(first), np.int64), priorities, sizes), axis=1).astype(np.int64)
    by_cost = np.lexsort((leaves[order][first], costs[:, 3], costs[:, 2], costs[:, 0]))
    ends = np.cumsum(sizes[by_cost])
    places = np.repeat(first[by_cost] - ends + sizes[by_cost], sizes[by_cost]) + np.arange(len(leaves))
    elastic = ((state.cells.elastic[leading] == 1) & ~is_waiting)[by_cost]
    found = Candidates(costs[by_cost], leaves[order][places], ends, elastic, leaf_count)
    return found if not state.gang_of else _with_gangs(state, found, numbers[by_cost].tolist())


def _with_gangs(state: State, found: Candidates, numbers: Sequence[int]) -> Candidates:
    """Add to candidates, which have these numbers of groups, the losses of their gangs.

    Cost O(candidates + groups of their gangs) in Python.
    """
    gangs: dict[str, tuple[Gang, dict[str, int]]] = {}
    for place, number in enumerate(numbers):
        group = state.group_by_number[number]
        gang = state.gang_of.get(group.name)
        if gang is not None and group.state is not GroupState.PREEMPTING:
            gangs.setdefault(gang.name, (gang, {}))[1][group.name] = place
    if not gangs:
        return found
    costs, stays = found.costs.copy(), np.ones(len(numbers), np.bool_)
    rows, leaves, elastic, ties = list[Cost](), list[IntArray](), list[bool](), list[Tie]()
    for gang, places in gangs.values():
        own = list(places.values())
        cost, is_elastic = _cost_of_all(state, gang, found.costs, places)
        limits = tuple((_pods(state, limit.groups, places), limit.spare) for limit in gang.limits)
        bound = [one for one in own if any(pods.get(one, 0) > spare for pods, spare in limits)]
        stays[bound] = False
        costs[own, 1] = 0  # they are counted where it is known whether all leave
        whole = len(numbers) + len(rows) if bound else _NOBODY
        if bound:
            rows.append(cost)
            leaves.append(found.leaves_of(own, 0))
            elastic.append(is_elastic)
        ties.append(Tie(cost, frozenset({*own, whole} - {_NOBODY}), whole, limits))
    costs = np.concatenate((costs, np.array(rows, np.int64).reshape(-1, 4)))
    parts = [*np.split(found.leaves, found.ends[:-1]), *leaves]
    kept = [*np.flatnonzero(stays).tolist(), *range(len(numbers), len(costs))]
    kept.sort(key=lambda one: (*costs[one].tolist(), int(parts[one][0])))
    order = {one: place for place, one in enumerate(kept)}
    chosen = [parts[one] for one in kept]
    return Candidates(
        costs[kept], np.concatenate(chosen), np.cumsum([len(part) for part in chosen]),
        np.concatenate((found.elastic, np.array(elastic, np.bool_)))[kept],
        found.leaf_count, tuple(tie.among(order) for tie in ties),
    )  # fmt: skip


def _cost_of_all(
    state: State, gang: Gang, costs: npt.NDArray[np.int64], places: Mapping[str, int]
) -> tuple[Cost, bool]:
    """The cost of a whole gang, counted as one group, and if all of it is elastic."""
    groups = [group for name in gang.groups if (group := state.groups.get(name)) is not None]
    counts = [int(np.count_nonzero(group.physical != NO_CELL)) for group in groups]
    lost = [
        int(costs[places[group.name], 0]) if group.name in places
        else count if state.now_ms == NO_TIME else loss_of(group, state.now_ms)
        for group, count in zip(groups, counts, strict=True)
    ]  # fmt: skip
    priority = max(map(_priority_of, groups))
    return (sum(lost), 1, priority, sum(counts)), all(group.spec.elastic for group in groups)


def _priority_of(group: Group) -> int:
    return OPPORTUNISTIC_PRIORITY if group.virtual is None else group.spec.priority


def _pods(state: State, groups: Iterable[str], places: Mapping[str, int]) -> dict[int, int]:
    return {places[name]: len(state.groups[name].slots_of) for name in groups if name in places}


def choose_victims(candidates: Candidates, search: Search, most_sets: int) -> Choice | None:
    """Choose the best set of groups to preempt, elastic groups alone if these are enough (rule 15.1).

    None if not even all groups are enough. Cost: at most `most_sets` + 2 calls of `search`; without a rival set
    O(victims x log(groups)).
    """
    if len(candidates.ends) == 0:
        return None
    if candidates.elastic.any() and not candidates.elastic.all():
        elastic = candidates.some(candidates.elastic)
        taken = search(elastic.leaves_of((), len(elastic.ends)))
        if taken is not None:
            return _Search(elastic, search, taken, most_sets).best()
    taken = search(candidates.leaves_of((), len(candidates.ends)))
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
        owners = np.repeat(np.arange(len(sizes)), sizes)
        wholes = [tie.whole for tie in candidates.ties if tie.whole != _NOBODY]
        for own in (np.isin(owners, wholes), ~np.isin(owners, wholes)) if wholes else (slice(None),):
            self._owner[candidates.leaves[own] - self._base] = owners[own]
        self._best, self._least = taken, self._cost_with_gangs(self._users(taken))

    def best(self) -> Choice:
        """The best set found."""
        self._extend([], len(self._own.ends))
        return Choice(self._best, self._least, self._left <= 0, self._left)

    def _extend(self, chosen: list[int], end: int) -> None:
        """Search for better sets of `chosen` and candidates before `end`; together with all of these it is enough."""
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
        taken = self._search(self._own.leaves_of(chosen, count))
        if taken is None:
            return False
        cost = self._cost_with_gangs(self._users(taken))
        if cost < self._least:
            self._best, self._least = taken, cost
        return True

    def _users(self, taken: IntArray) -> npt.NDArray[np.int64]:
        """The groups that use these leaves and would have to leave."""
        places = taken - self._base
        users = self._owner[places[(places >= 0) & (places < len(self._owner))]]
        return np.unique(users[users != _NOBODY])

    def _cost_with_gangs(self, places: npt.NDArray[np.int64]) -> Cost:
        """The cost of all groups that leave if these do; never less than `_cost`."""
        if not self._own.ties:
            return self._cost(places)
        left, costs = set(places.tolist()), list[Cost]()
        for tie in self._own.ties:
            own = left & tie.units
            if own and tie.breaks(own):
                left -= own
                costs.append(tie.cost)
            elif own:
                costs.append((0, len(own), FREE_PRIORITY, 0))
        costs.append(self._cost(sorted(left)))
        lost, groups, priorities, leaves = zip(*costs, strict=True)
        return sum(lost), sum(groups), max(priorities), sum(leaves)

    def _cost(self, places: npt.NDArray[np.int64] | list[int]) -> Cost:
        if len(places) == 0:
            return 0, 0, FREE_PRIORITY, 0
        costs = self._own.costs[places]
        lost, groups, _, leaves = costs.sum(axis=0).tolist()
        return lost, groups, int(costs[:, 2].max()), leaves
