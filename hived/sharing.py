"""Can several kinds of takers share places of limited room, so that everybody gets what is wanted?

A bipartite matching with capacities by augmenting paths. Nothing here knows cells.
"""

import numpy as np

from hived.topology import BoolArray, LongArray


def can_share(wanted: LongArray, may_use: BoolArray, room: LongArray) -> bool:
    """Is there a way to give each taker `wanted` units of room, all of them in places that it may use?

    wanted : shape (takers,); may_use : shape (takers, places); room : shape (places,)

    Takers that could have all they want after everybody else are left out first, which are most as a rule. Cost
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
    """Give a taker one unit, by letting others move on if need be; false, with nothing changed, if that cannot be.

    spare : units of each place that nobody has; takers : who has the others
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
    """Let everybody on the way from a taker to a place with a spare unit move on by one."""
    while True:
        one = reached[place]
        takers[place].append(one)
        if one == taker:
            return
        place = left[one]
        takers[place].remove(one)
