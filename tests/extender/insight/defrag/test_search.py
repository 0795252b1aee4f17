"""The search without a solver: as good as trying everything, and the same every time (rule 28.3)."""

from random import Random

import pytest

from hived_extender.insight.defrag.search import solve
from tests.extender.insight.defrag.brute_force import best_of, check_solution
from tests.extender.insight.defrag.random_puzzles import random_puzzle
from tests.property.examples import examples


@pytest.mark.sample(30)
@pytest.mark.parametrize("seed", range(examples(600)))
def test_search_finds_what_trying_everything_finds(seed: int) -> None:
    puzzle = random_puzzle(Random(seed))
    found = solve(puzzle)
    met, cost = best_of(puzzle)
    assert (sum(found.met), found.cost) == (met, cost)
    assert found.is_optimal
    check_solution(puzzle, found.moved, found.bins, found.met)


@pytest.mark.parametrize("steps", [1, 20, 60, 200])
def test_bounds_hold_whatever_the_budget(steps: int) -> None:
    gaps = 0
    for seed in range(40):
        puzzle = random_puzzle(Random(seed))
        found = solve(puzzle, steps)
        met, cost = best_of(puzzle)
        check_solution(puzzle, found.moved, found.bins, found.met)
        assert sum(found.met) <= met <= found.bound_met
        if sum(found.met) == met:
            assert found.bound_cost <= cost <= found.cost
        gaps += not found.is_optimal
    assert gaps > 0 or steps > 20


def test_the_search_gives_the_same_every_time() -> None:
    puzzle = random_puzzle(Random(11), most_movers=12)
    assert solve(puzzle, 500) == solve(puzzle, 500)
