"""CP-SAT: as good as trying everything, also where it gets no help from the search."""

from random import Random

import pytest

pytest.importorskip("ortools", reason="the extra `opt` is not installed")

from hived_extender.defrag.cp_sat import solve, solve_alone
from tests.extender.defrag.brute_force import best_of, check_solution
from tests.extender.defrag.random_puzzles import random_puzzle
from tests.property.examples import examples


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(examples(200)))
def test_cp_sat_finds_what_trying_everything_finds(seed: int) -> None:
    puzzle = random_puzzle(Random(seed))
    found = solve_alone(puzzle)
    assert (sum(found.met), found.cost) == best_of(puzzle)
    assert found.is_optimal
    check_solution(puzzle, found.moved, found.bins, found.met)


def test_cp_sat_gives_the_same_every_time() -> None:
    puzzle = random_puzzle(Random(7), most_movers=12)
    assert solve_alone(puzzle) == solve_alone(puzzle)
    assert solve(puzzle) == solve(puzzle)
