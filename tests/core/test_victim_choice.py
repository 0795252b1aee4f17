"""The best set of victims, against every set."""

from itertools import combinations
from random import Random

import numpy as np
import pytest

from hived.topology import IntArray
from hived.victim_choice import Candidate, choose_victims


def candidates(source: Random, count: int) -> list[Candidate]:
    """Groups with one leaf each, which is their number; least cost first."""
    found = []
    for number in range(count):
        cost = (source.choice([0, 1, 2, 3, 5, 8, 13]), 1, source.randint(0, 2), source.randint(1, 3))
        found.append(Candidate(number, cost, np.array([number], np.int32), source.random() < 0.2))
    return sorted(found, key=lambda each: (each.cost, each.number))


def needs(source: Random, count: int) -> list[set[int]]:
    """A few sets of groups, any of which is enough."""
    return [set(source.sample(range(count), source.randint(1, 4))) for _ in range(source.randint(1, 6))]


def least(found: list[Candidate], enough: list[set[int]]) -> tuple[int, ...]:
    costs = []
    for size in range(len(found) + 1):
        for some in combinations(found, size):
            if any(one <= {each.number for each in some} for one in enough):
                costs.append(tuple(map(sum, zip(*(each.cost for each in some), strict=True))) or (0, 0, 0, 0))
    return min(costs)


@pytest.mark.parametrize("seed", range(60))
def test_no_set_of_groups_costs_less(seed: int) -> None:
    source = Random(seed)
    found = candidates(source, 9)
    enough = needs(source, 9)
    elastic = {each.number for each in found if each.is_elastic}

    def fits(leaves: IntArray) -> bool:
        return any(one <= set(leaves.tolist()) for one in enough)

    victims = choose_victims(found, fits)
    assert victims is not None
    assert fits(victims.leaves)
    assert not victims.gave_up
    own = [each for each in found if each.is_elastic] if fits(np.array(sorted(elastic), np.int32)) else found
    assert victims.cost == least(own, enough)


def test_none_is_found_if_all_groups_together_are_not_enough() -> None:
    assert choose_victims(candidates(Random(0), 5), lambda _: False) is None
    assert choose_victims([], lambda _: False) is None


def test_a_search_that_is_cut_short_still_has_enough_victims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hived.victim_choice.MOST_SETS", 5)
    found = candidates(Random(1), 30)
    victims = choose_victims(found, lambda leaves: len(leaves) >= 12)
    assert victims is not None
    assert victims.gave_up
    assert len(victims.leaves) >= 12
