"""Sharing by augmenting paths equals what trying everything finds."""

from random import Random

import numpy as np
import pytest

from hived.sharing import can_share


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
    source = Random(seed)
    takers, places = source.randint(1, 4), source.randint(1, 4)
    wanted = [source.choice([0, 1, 1, 2]) for _ in range(takers)]
    may_use = [[source.random() < 0.5 for _ in range(places)] for _ in range(takers)]
    room = [source.choice([0, 1, 1, 2]) for _ in range(places)]
    found = can_share(np.array(wanted), np.array(may_use), np.array(room))
    assert found == try_all(wanted, may_use, room)
