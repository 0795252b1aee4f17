"""The best set of victims, against every set."""

from itertools import combinations
from random import Random

import numpy as np
import pytest

from hived.topology import IntArray
from hived.victim_choice import Candidates, Cost, choose_victims

COUNT = 9


def candidates(source: Random, count: int = COUNT) -> Candidates:
    """Groups with one leaf each, least cost first."""
    costs = sorted((source.choice([0, 1, 2, 3, 5, 8, 13]), 1, source.randint(-1, 2), 1) for _ in range(count))
    leaves = np.array(source.sample(range(100), count), np.int32)
    elastic = np.array([source.random() < 0.2 for _ in range(count)])
    return Candidates(np.array(costs, np.int64), leaves, np.arange(1, count + 1), elastic, 100)


def ways_in(source: Random, found: Candidates) -> list[set[int]]:
    """A few sets of leaves, any of which the new group can take."""
    return [set(source.sample(found.leaves.tolist(), source.randint(1, 4))) for _ in range(source.randint(1, 6))]


def taken(ways: list[set[int]], leaves: IntArray) -> IntArray | None:
    for way in ways:
        if way <= set(leaves.tolist()):
            return np.array(sorted(way), np.int32)
    return None


def least(found: Candidates, ways: list[set[int]]) -> Cost:
    costs = []
    for size in range(1, len(found.ends) + 1):
        for some in combinations(range(len(found.ends)), size):
            if taken(ways, found.leaves[list(some)]) is not None:
                rows = found.costs[list(some)]
                lost, groups, _, leaves = rows.sum(axis=0).tolist()
                costs.append((lost, groups, int(rows[:, 2].max()), leaves))
    return min(costs)


@pytest.mark.parametrize("seed", range(60))
def test_no_set_of_groups_costs_less(seed: int) -> None:
    source = Random(seed)
    found = candidates(source)
    ways = ways_in(source, found)
    choice = choose_victims(found, lambda leaves: taken(ways, leaves))
    assert choice is not None
    assert set(choice.taken.tolist()) in ways
    assert not choice.gave_up
    elastic = found.some(found.elastic)
    assert choice.cost == least(elastic if taken(ways, elastic.leaves) is not None else found, ways)


def test_the_highest_priority_counts_and_not_the_sum_of_all() -> None:
    costs = np.array([(0, 1, 1, 1), (0, 1, 3, 1), (0, 1, 4, 1), (0, 1, 5, 1)], np.int64)
    found = Candidates(costs, np.arange(4, dtype=np.int32), np.arange(1, 5), np.zeros(4, np.bool_), 4)
    choice = choose_victims(found, lambda leaves: taken([{0, 3}, {1, 2}], leaves))
    assert choice is not None
    assert choice.cost == (0, 2, 4, 2)
    assert choice.taken.tolist() == [1, 2]


def test_none_is_found_if_all_groups_together_are_not_enough() -> None:
    found = candidates(Random(0))
    assert choose_victims(found, lambda _: None) is None
    assert choose_victims(found.some(np.zeros(COUNT, np.bool_)), lambda leaves: leaves) is None


def test_a_search_that_is_cut_short_still_names_enough_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hived.victim_choice.FEWEST_SETS", 3)
    monkeypatch.setattr("hived.victim_choice.MOST_SETS", 3)
    choice = choose_victims(
        candidates(Random(1), 30), lambda leaves: np.sort(leaves)[:12] if len(leaves) >= 12 else None
    )
    assert choice is not None
    assert choice.gave_up
    assert len(choice.taken) == 12
