"""The search without a solver: as good as trying everything, and the same every time."""

from random import Random

import pytest

from hived_extender.defrag.search import solve
from tests.extender.defrag.brute_force import best_of, check_solution
from tests.extender.defrag.random_puzzles import random_puzzle
from tests.property.examples import examples


@pytest.mark.parametrize("seed", range(examples(600)))
def test_search_finds_what_trying_everything_finds(seed: int) -> None:
    puzzle = random_puzzle(Random(seed))
    found = solve(puzzle)
    met, cost = best_of(puzzle)
    assert (sum(found.met), found.cost) == (met, cost)
    assert found.is_optimal
    check_solution(puzzle, found.moved, found.bins, found.met)
