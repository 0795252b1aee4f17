"""Bipartite matching: who gets what, so that everybody gets something, the first in preference order (rule 7.8).

Plain Kuhn's algorithm with breadth-first augmenting paths; nothing here knows cells.
"""

import numpy as np

from hived.jit import kernel
from hived.topology import NO_CELL, IntArray


@kernel
def reassign(fits: IntArray, start: int, match: IntArray, owner: IntArray, fixed: IntArray) -> bool:
    """Find a candidate for wish `start` by an augmenting path that leaves fixed candidates alone; breadth first.

    fits : shape (wishes, candidates); match, owner : who has whom, NO_CELL for nobody; changed on success
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

    Cost O(wishes x candidates) if every candidate fits, at worst O(wishes^2 x candidates^2).
    """
    wishes, candidates = fits.shape
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
