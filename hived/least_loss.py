"""Whom to evict: the cells to clear so that the least work is lost (rule 8.13).

A group leaves as a whole, so it counts once however many of its cells are cleared. The cost of clearing some cells is
compared in this order: the lost work, the number of groups, the highest priority among them; the least is best.

`choose_cells` takes `count` of some candidates, each a set of leaves of its own, such as nodes for the pods of a gang.
Candidates whose groups use no other candidate are *apart*: their costs add up, so the cheapest ones are best. The
search decides about the other ones. It branches on one candidate, with it first, and follows two rules:

- A candidate whose groups leave anyway is taken: it costs nothing more.
- Once all choices with a candidate have been seen, those that clear all of its groups are not looked at any more: with
  it in place of another candidate they would not cost more.

A branch ends if a bound is no better than the best choice so far. The bound shares the loss of each group among the
candidates that it uses, or among those still to be chosen, if fewer. Such shares never add up to more than the loss.
A budget of steps ends the search; the answer says so, and is the best choice until then.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hived.blocks import Block
from hived.jit import entry_kernel, kernel
from hived.losses import losses_of_leaves
from hived.specs import FREE_PRIORITY
from hived.state import NO_GROUP, State
from hived.topology import NO_CELL, IntArray, LongArray

BUDGET = 1 << 19
"""Steps of a search, each a look at a group of a candidate: about a millisecond in machine code."""

_OPEN, _CHOSEN, _BANNED = range(3)  # values of `Clearing.choice`
_TRIED, _FORCED, _EXCLUDED = range(3)  # values of `Clearing.kind`
_LEFT, _LOSS, _GROUPS, _DEPTH, _STEPS, _BEST_LOSS, _BEST_GROUPS, _BEST_PRIORITY, _BEST_LEFT, _NUMBERS = range(10)
_NOTHING = 1 << 62  # as the best loss: no choice so far
_SHARE = 720720  # a group is so many parts, which up to 16 candidates share without a remainder


class Cost(NamedTuple):
    """The cost of clearing cells, comparable. `priority` is the highest of the groups, FREE_PRIORITY without any."""

    loss_ms: int  # leaf-milliseconds
    group_count: int
    priority: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidates to clear, by index, ascending. `is_best`: the search was not ended by its budget."""

    candidates: tuple[int, ...]
    cost: Cost
    is_best: bool


class Clearing(Block):
    """One search. `c` is a candidate, `u` a group (a dense number of its own), `a` a place in `apart`."""

    first: IntArray  # users[first[c] : first[c + 1]] are the groups of c, each once
    users: IntArray
    loss: LongArray  # per u, leaf-milliseconds
    priority: IntArray  # per u
    shared: IntArray  # candidates that share a group with another one
    loss_apart: LongArray  # of the a cheapest candidates apart, shape (apart + 1,)
    groups_apart: LongArray  # likewise
    priority_apart: LongArray  # likewise, the highest
    least_groups: LongArray  # _SHARE x groups of the a candidates apart with the fewest groups, shape (apart + 1,)
    choice: IntArray  # per c
    cover: IntArray  # per u: chosen candidates that it uses
    degree: IntArray  # per u: scratch
    weight: LongArray  # per place in `shared`: scratch
    stack: IntArray  # what was decided, in order; shape (shared,)
    kind: IntArray  # why, likewise
    best: IntArray  # per c: 1 if chosen in the best choice so far, as far as it is shared
    numbers: LongArray  # shape (_NUMBERS,)


def cost_of_clearing(state: State, leaves: IntArray, now_ms: int) -> Cost:
    """What it costs to clear these physical leaves at `now_ms`, NO_TIME if unknown. Cost O(leaves), in numpy.

    Leaves may be NO_CELL, or named more than once.
    """
    held = leaves[leaves != NO_CELL]
    held = held[state.cells.using[held] != NO_GROUP]
    _, one = np.unique(state.cells.using[held], return_index=True)
    one = held[one]
    losses = losses_of_leaves(state, one, now_ms)
    return Cost(int(losses.sum()), len(one), int(_priorities(state, one).max(initial=FREE_PRIORITY)))


def choose_cells(
    state: State, candidates: IntArray, count: int, now_ms: int, budget: int = BUDGET
) -> Choice | None:  # fmt: skip
    """Take `count` of some candidates, so that clearing them costs least. None if there are fewer of them.

    Parameters
    ----------
    candidates : physical leaves of each candidate, shape (candidates, leaves); NO_CELL fills a row up. No leaf is in
        two rows. All of them may be taken: which groups must not leave, or cannot, is the caller's to know
    now_ms : the time of the request (`State.now_ms`), NO_TIME if it is unknown; then the fewest groups leave
    budget : steps that the search may take; the answer says whether they were enough

    Deterministic. Cost O(leaves log leaves), in numpy, and the search if groups share candidates.
    """
    if count > len(candidates):
        return None
    using = np.where(candidates == NO_CELL, NO_GROUP, state.cells.using[candidates])
    rows, columns = np.nonzero(using != NO_GROUP)
    numbers, one, user = np.unique(using[rows, columns], return_index=True, return_inverse=True)
    leaf = candidates[rows[one], columns[one]]
    pairs = np.unique(rows * max(len(numbers), 1) + user)
    row, user = pairs // max(len(numbers), 1), pairs % max(len(numbers), 1)
    losses, priorities = losses_of_leaves(state, leaf, now_ms), _priorities(state, leaf)
    return choose_least(row, user.astype(np.int32), losses, priorities, len(candidates), count, budget)


def choose_least(
    row: npt.NDArray[np.int64], user: IntArray, loss: LongArray, priority: IntArray, candidate_count: int, count: int,
    budget: int = BUDGET,
) -> Choice:  # fmt: skip
    """`choose_cells` for pairs of a candidate and a group that uses it, each pair once, by ascending candidate.

    row, user : shape (pairs,); loss (leaf-milliseconds) and priority : shape (groups,)
    """
    is_shared = np.zeros(candidate_count, np.bool_)
    is_shared[row[np.bincount(user, minlength=len(loss))[user] > 1]] = True
    own_loss = np.zeros(candidate_count, np.int64)
    np.add.at(own_loss, row, loss[user])
    own_groups = np.bincount(row, minlength=candidate_count)
    own_priority = np.full(candidate_count, FREE_PRIORITY, np.int64)
    np.maximum.at(own_priority, row, priority[user])
    apart = np.flatnonzero(~is_shared)
    apart = apart[np.lexsort((own_priority[apart], own_groups[apart], own_loss[apart]))]
    shared = np.flatnonzero(is_shared).astype(np.int32)
    numbers = np.zeros(_NUMBERS, np.int64)
    numbers[_LEFT], numbers[_STEPS], numbers[_BEST_LOSS] = count, budget, _NOTHING
    search = Clearing(
        first=np.concatenate(([0], np.cumsum(own_groups))).astype(np.int32), users=user, loss=loss, priority=priority,
        shared=shared, loss_apart=_sums(own_loss[apart]), groups_apart=_sums(own_groups[apart]),
        priority_apart=np.maximum.accumulate(np.concatenate(([FREE_PRIORITY], own_priority[apart]))),
        least_groups=_SHARE * _sums(np.sort(own_groups[apart])), choice=np.zeros(candidate_count, np.int32),
        cover=np.zeros(len(loss), np.int32), degree=np.zeros(len(loss), np.int32),
        weight=np.zeros(len(shared), np.int64), stack=np.zeros(len(shared), np.int32),
        kind=np.zeros(len(shared), np.int32), best=np.zeros(candidate_count, np.int32), numbers=numbers,
    )  # fmt: skip
    search_least(search)
    taken = np.concatenate((np.flatnonzero(search.best), apart[: numbers[_BEST_LEFT]]))
    cost = Cost(int(numbers[_BEST_LOSS]), int(numbers[_BEST_GROUPS]), int(numbers[_BEST_PRIORITY]))
    return Choice(tuple(np.sort(taken).tolist()), cost, bool(numbers[_STEPS] >= 0))


def _sums(values: npt.NDArray[np.int64]) -> LongArray:
    return np.concatenate(([0], np.cumsum(values))).astype(np.int64)


def _priorities(state: State, leaves: IntArray) -> IntArray:
    """The priority at which each leaf is used."""
    return state.cells.priority[leaves]


@entry_kernel
def search_least(s: Clearing) -> None:
    """Find the best choice: `best`, and the numbers of it. `numbers[_STEPS]` is negative if the budget ended that."""
    while True:
        candidate = NO_CELL
        if _take_free(s):
            _compare(s)
            candidate = _next(s)
        if s.numbers[_STEPS] < 0 and s.numbers[_BEST_LOSS] != _NOTHING:
            return
        if candidate != NO_CELL:
            _decide(s, candidate, _TRIED)
        elif not _go_back(s):
            return


@kernel
def _decide(s: Clearing, candidate: int, kind: int) -> None:
    """Choose a candidate, or ban one that is EXCLUDED. Cost O(its groups)."""
    depth = s.numbers[_DEPTH]
    s.stack[depth], s.kind[depth] = candidate, kind
    s.numbers[_DEPTH] = depth + 1
    if kind == _EXCLUDED:
        s.choice[candidate] = _BANNED
        return
    s.choice[candidate] = _CHOSEN
    s.numbers[_LEFT] -= 1
    for user in s.users[s.first[candidate] : s.first[candidate + 1]]:
        if s.cover[user] == 0:
            s.numbers[_LOSS] += s.loss[user]
            s.numbers[_GROUPS] += 1
        s.cover[user] += 1


@kernel
def _undo(s: Clearing) -> None:
    """Take the last decision back."""
    depth = s.numbers[_DEPTH] - 1
    s.numbers[_DEPTH] = depth
    candidate = s.stack[depth]
    was_chosen = s.choice[candidate] == _CHOSEN
    s.choice[candidate] = _OPEN
    if not was_chosen:
        return
    s.numbers[_LEFT] += 1
    for user in s.users[s.first[candidate] : s.first[candidate + 1]]:
        s.cover[user] -= 1
        if s.cover[user] == 0:
            s.numbers[_LOSS] -= s.loss[user]
            s.numbers[_GROUPS] -= 1


@kernel
def _go_back(s: Clearing) -> bool:
    """Exclude the candidate that was tried last, with all that use its groups; false if there is none."""
    while s.numbers[_DEPTH] > 0:
        depth = s.numbers[_DEPTH] - 1
        candidate, was_tried = s.stack[depth], s.kind[depth] == _TRIED
        _undo(s)
        if was_tried:
            begin, end = s.first[candidate], s.first[candidate + 1]
            for user in s.users[begin:end]:
                s.degree[user] = -1
            for other in s.shared:
                found = 0
                for user in s.users[s.first[other] : s.first[other + 1]]:
                    found += int(s.degree[user] == -1)
                if found == end - begin and s.choice[other] == _OPEN:
                    _decide(s, other, _EXCLUDED)
            for user in s.users[begin:end]:
                s.degree[user] = 0
            s.numbers[_STEPS] -= len(s.users)
            return True
    return False


@kernel
def _take_free(s: Clearing) -> bool:
    """Choose candidates whose groups leave anyway; false if one of them is excluded, so that all this was seen."""
    for candidate in s.shared:
        if s.choice[candidate] == _CHOSEN:
            continue
        is_covered = True
        for user in s.users[s.first[candidate] : s.first[candidate + 1]]:
            s.numbers[_STEPS] -= 1
            if s.cover[user] == 0:
                is_covered = False
                break
        if is_covered and s.choice[candidate] == _BANNED:
            return False
        if is_covered and s.numbers[_LEFT] > 0:
            _decide(s, candidate, _FORCED)
    return True


@kernel
def _highest(s: Clearing) -> int:
    """The highest priority of a group that leaves. Cost O(groups)."""
    highest = FREE_PRIORITY
    for user in range(len(s.cover)):
        if s.cover[user] > 0:
            highest = max(highest, s.priority[user])
    return highest


@kernel
def _is_better(s: Clearing, loss: int, groups: int, priority: int) -> bool:
    """Is a cost less than that of the best choice so far?"""
    if loss != s.numbers[_BEST_LOSS]:
        return bool(loss < s.numbers[_BEST_LOSS])
    if groups != s.numbers[_BEST_GROUPS]:
        return bool(groups < s.numbers[_BEST_GROUPS])
    return bool(priority < s.numbers[_BEST_PRIORITY])


@kernel
def _compare(s: Clearing) -> None:
    """Fill the choice up with candidates apart, if there are enough, and keep it if it is better than the best."""
    left = s.numbers[_LEFT]
    if left >= len(s.loss_apart):
        return
    loss, groups = s.numbers[_LOSS] + s.loss_apart[left], s.numbers[_GROUPS] + s.groups_apart[left]
    if loss > s.numbers[_BEST_LOSS]:
        return
    priority = max(_highest(s), s.priority_apart[left])
    if _is_better(s, loss, groups, priority):
        s.numbers[_BEST_LOSS], s.numbers[_BEST_GROUPS], s.numbers[_BEST_PRIORITY] = loss, groups, priority
        s.numbers[_BEST_LEFT] = left
        for candidate in s.shared:
            s.best[candidate] = int(s.choice[candidate] == _CHOSEN)


@kernel
def _next(s: Clearing) -> int:
    """The open candidate with the least share of losses, NO_CELL if no choice that goes on from here can be better."""
    if s.numbers[_LEFT] == 0:
        return NO_CELL
    least = _weigh(s, False)
    loss = s.numbers[_LOSS] + _least_sum(s, s.loss_apart)
    if loss > s.numbers[_BEST_LOSS]:
        return NO_CELL
    if loss == s.numbers[_BEST_LOSS]:
        _weigh(s, True)
        parts = _least_sum(s, s.least_groups)
        groups = s.numbers[_GROUPS] + (parts + _SHARE - 1) // _SHARE
        if not _is_better(s, loss, groups, _highest(s)):
            return NO_CELL
    return least


@kernel
def _weigh(s: Clearing, by_groups: bool) -> int:
    """Set `weight` to each open candidate's share of what its groups lose, or of their number, in parts of _SHARE.

    Other candidates weigh _NOTHING. Returns the first with the least weight, NO_CELL if none is open.
    """
    s.numbers[_STEPS] -= len(s.users) + len(s.shared)
    s.degree[:] = 0
    for candidate in s.shared:
        if s.choice[candidate] == _OPEN:
            for user in s.users[s.first[candidate] : s.first[candidate + 1]]:
                s.degree[user] += 1
    least, least_weight = NO_CELL, np.int64(_NOTHING)
    for place, candidate in enumerate(s.shared):
        s.weight[place] = _NOTHING
        if s.choice[candidate] == _OPEN:
            weight = np.int64(0)
            for user in s.users[s.first[candidate] : s.first[candidate + 1]]:
                if s.cover[user] == 0:
                    amount = np.int64(_SHARE) if by_groups else s.loss[user]
                    weight += amount // min(np.int64(s.degree[user]), s.numbers[_LEFT])
            s.weight[place] = weight
            if weight < least_weight:
                least, least_weight = candidate, weight
    s.degree[:] = 0
    return least


@kernel
def _least_sum(s: Clearing, sums_apart: LongArray) -> int:
    """The least sum of `weight` of some candidates and a value apart of the others, together as many as are left.

    sums_apart : of the a least values, ascending; shape (apart + 1,). _NOTHING if there are too few candidates.
    """
    weights = np.sort(s.weight)
    total, apart, place = np.int64(0), 0, 0
    for _ in range(s.numbers[_LEFT]):
        value = np.int64(_NOTHING)
        if apart + 1 < len(sums_apart):
            value = sums_apart[apart + 1] - sums_apart[apart]
        if place < len(weights) and weights[place] < value:
            value = weights[place]
            place += 1
        else:
            apart += 1
        if value == _NOTHING:
            return _NOTHING
        total += value
    return int(total)
