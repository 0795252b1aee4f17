"""Matching against brute force: every permutation in lexicographic order, every way to share."""

import itertools
import random

import numpy as np
import pytest

from hived.cells.topology import IntArray
from hived.hived_rules.matching import can_share, match_first
from tests.core.callable_kernels import callable_kernel

match_first = callable_kernel(match_first)


def first_complete_assignment(fits: IntArray) -> list[int] | None:
    """The first permutation in which everybody fits."""
    wishes, candidates = fits.shape
    for assignment in itertools.permutations(range(candidates), wishes):
        if all(fits[wish, candidate] for wish, candidate in enumerate(assignment)):
            return list(assignment)
    return None


def found(fits: IntArray) -> list[int] | None:
    match = np.full(len(fits), 99, np.int32)
    return match.tolist() if match_first(fits, match) else None


@pytest.mark.parametrize("percent", [20, 50, 80, 100])
def test_the_match_is_the_first_permutation_that_fits(percent: int) -> None:
    source = random.Random(percent)
    for _ in range(150):
        wishes, candidates = source.randint(1, 5), source.randint(1, 6)
        rows = [[int(source.randint(1, 100) <= percent) for _ in range(candidates)] for _ in range(wishes)]
        fits = np.array(rows, np.int32)
        assert found(fits) == first_complete_assignment(fits), rows


def test_one_late_wish_moves_a_long_row_of_earlier_ones() -> None:
    """Wish i fits i and i + 1, the last one only 0: plain backtracking would try 2^199 combinations."""
    count = 200
    fits = np.zeros((count, count), np.int32)
    for wish in range(count - 1):
        fits[wish, wish] = fits[wish, wish + 1] = 1
    fits[count - 1, 0] = 1
    assert found(fits) == [*range(1, count), 0]


def try_all(wanted: list[int], may_use: list[list[bool]], room: list[int]) -> bool:
    """One unit after the other, in every place."""
    if not any(wanted):
        return True
    taker = next(number for number, count in enumerate(wanted) if count)
    rest = [count - (number == taker) for number, count in enumerate(wanted)]
    return any(
        may_use[taker][place]
        and room[place] > 0
        and try_all(rest, may_use, [units - (number == place) for number, units in enumerate(room)])
        for place in range(len(room))
    )


@pytest.mark.parametrize("seed", range(60))
def test_takers_share_if_some_way_of_all_ways_lets_them(seed: int) -> None:
    source = random.Random(seed)
    takers, places = source.randint(1, 4), source.randint(1, 4)
    wanted = [source.choice([0, 1, 1, 2]) for _ in range(takers)]
    may_use = [[source.random() < 0.5 for _ in range(places)] for _ in range(takers)]
    room = [source.choice([0, 1, 1, 2]) for _ in range(places)]
    found = can_share(np.array(wanted), np.array(may_use), np.array(room))
    assert found == try_all(wanted, may_use, room)
