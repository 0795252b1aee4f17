"""Bipartite matching with breadth-first augmenting paths: every wish gets a candidate of its own.

`match_first` is Kuhn's algorithm, and gives the first matching in preference order (rule 7.8). `can_share` tests if
takers of several units can share places of limited room. Nothing here knows cells.
"""

import numpy as np

from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray
from hived.kernels.jit import kernel


@kernel
def reassign(fits: IntArray, start: int, match: IntArray, owner: IntArray, fixed: IntArray) -> bool:
    """Find a candidate for wish `start` by an augmenting path that leaves fixed candidates alone; breadth first.

    fits : shape (wishes, candidates); match, owner : the pairs from either side, NO_CELL for none; changed on success
    """
    wishes, candidates = fits.shape
    reached_from = np.full(candidates, NO_CELL, np.int32)
    queue = np.empty(wishes, np.int32)
    queue[0] = start
    head, tail = 0, 1
    while head < tail:
        wish = queue[head]
        head += 1
        for candidate in range(candidates):
            if fits[wish, candidate] == 0 or fixed[candidate] == 1 or reached_from[candidate] != NO_CELL:
                continue
            reached_from[candidate] = wish
            if owner[candidate] != NO_CELL:
                queue[tail] = owner[candidate]
                tail += 1
                continue
            taken = candidate
            while True:
                wish = reached_from[taken]
                previous = match[wish]
                match[wish] = taken
                owner[taken] = wish
                if wish == start:
                    return True
                taken = previous
    return False


@kernel
def match_first(fits: IntArray, match: IntArray) -> bool:
    """The lexicographically first complete assignment of wishes to candidates, if there is one (rule 7.8).

    fits : shape (wishes, candidates), candidates in order of preference; match : out, shape (wishes,)

    Cost O(wishes x candidates) if no wish has to move, or if too few candidates fit any wish. At worst
    O(wishes^2 x candidates^2).
    """
    wishes, candidates = fits.shape
    useful = 0
    for candidate in range(candidates):
        for wish in range(wishes):
            if fits[wish, candidate] == 1:
                useful += 1
                break
    if useful < wishes:
        return False
    if _match_greedily(fits, match):
        return True
    owner = np.full(candidates, NO_CELL, np.int32)
    fixed = np.zeros(candidates, np.int32)
    match[:] = NO_CELL
    for wish in range(wishes):
        if not reassign(fits, wish, match, owner, fixed):
            return False
    for wish in range(wishes):
        for candidate in range(candidates):
            if fits[wish, candidate] == 0 or fixed[candidate] == 1:
                continue
            if match[wish] != candidate and not _move(fits, wish, candidate, match, owner, fixed):
                continue
            fixed[candidate] = 1
            break
    return True


@kernel
def _match_greedily(fits: IntArray, match: IntArray) -> bool:
    """Give each wish its first candidate that is left; that is the first matching of all if every wish gets one."""
    wishes, candidates = fits.shape
    taken = np.zeros(candidates, np.int32)
    for wish in range(wishes):
        candidate = 0
        while candidate < candidates and (fits[wish, candidate] == 0 or taken[candidate] == 1):
            candidate += 1
        if candidate == candidates:
            return False
        taken[candidate] = 1
        match[wish] = candidate
    return True


@kernel
def _move(fits: IntArray, wish: int, candidate: int, match: IntArray, owner: IntArray, fixed: IntArray) -> bool:
    """Give `candidate` to `wish` if the others can still all be served; else change nothing."""
    before, displaced = match[wish], owner[candidate]
    owner[before] = NO_CELL
    match[wish], owner[candidate] = candidate, wish
    if displaced == NO_CELL:
        return True
    match[displaced] = NO_CELL
    fixed[candidate] = 1
    if reassign(fits, displaced, match, owner, fixed):
        return True
    fixed[candidate] = 0
    match[displaced], owner[candidate] = candidate, displaced
    match[wish], owner[before] = before, wish
    return False


def can_share(wanted: LongArray, may_use: BoolArray, room: LongArray) -> bool:
    """True if each taker can get `wanted` units of room, all of them in places that it may use.

    wanted : shape (takers,); may_use : shape (takers, places); room : shape (places,)

    Takers that could have all they want after all others are left out first, which are most as a rule. Cost
    O(takers x places), and for the others at worst O(units^2 x places), in plain Python.
    """
    had = may_use @ room
    tight = np.flatnonzero(wanted > 0)
    while True:
        keeps = had[tight] < wanted[tight].sum()
        if keeps.all():
            break
        tight = tight[keeps]
    if (had[tight] < wanted[tight]).any():
        return False
    places = {taker: np.flatnonzero(may_use[taker] & (room > 0)).tolist() for taker in tight.tolist()}
    spare = room.tolist()
    takers: dict[int, list[int]] = {place: [] for own in places.values() for place in own}
    return all(_take_one(taker, places, spare, takers) for taker in tight.tolist() for _ in range(int(wanted[taker])))


def _take_one(
    taker: int, places: dict[int, list[int]], spare: list[int], takers: dict[int, list[int]]
) -> bool:  # fmt: skip
    """Give a taker one unit, moving others if necessary; false, with nothing changed, if that fails.

    spare : free units of each place; takers : the holders of the others
    """
    reached: dict[int, int] = {}  # place -> who would take a unit there
    left: dict[int, int] = {}  # who would move on -> from where
    queue = [taker]
    for one in queue:
        for place in places[one]:
            if place in reached:
                continue
            reached[place] = one
            if spare[place] > 0:
                spare[place] -= 1
                _move_on(taker, place, reached, left, takers)
                return True
            for other in takers[place]:
                if other != taker and other not in left:
                    left[other] = place
                    queue.append(other)
    return False


def _move_on(
    taker: int, place: int, reached: dict[int, int], left: dict[int, int], takers: dict[int, list[int]]
) -> None:  # fmt: skip
    """Move each taker on the way from a taker to a place with a spare unit by one place."""
    while True:
        one = reached[place]
        takers[place].append(one)
        if one == taker:
            return
        place = left[one]
        takers[place].remove(one)
