"""The cause why nothing is possible, where a first search found less than a later one."""

from random import Random

import msgspec

from hived_extender.defrag.causes import SEARCH, UNCONFIRMED
from hived_extender.defrag.planner import NOTHING_POSSIBLE, PLAN, Solver, Task, plan
from hived_extender.defrag.puzzle import Puzzle, Solution
from hived_extender.defrag.search import solve
from hived_extender.defrag.wants import read_wants
from tests.extender.defrag.random_states import Fragmented, random_state


def task_of(found: Fragmented, solver: Solver) -> Task:
    """All groups may be moved."""
    return Task(found.cluster, found.inputs, "a", read_wants(["1xNODE"]), frozenset("ab"), solve=solver)


def movable() -> Fragmented:
    """A cluster with room for a node once groups have been moved, among them guaranteed ones."""
    for seed in range(200):
        found = random_state(Random(seed))
        made = plan(task_of(found, solve))
        if made.outcome == PLAN and any(move.is_guaranteed for move in made.moves):
            return found
    raise AssertionError("there is none")


def nothing(puzzle: Puzzle) -> Solution:
    """The end of a search that was cut short at once."""
    return Solution((0,) * len(puzzle.kinds), (), {}, 0, sum(kind.count for kind in puzzle.kinds), 0)


def stays(puzzle: Puzzle) -> Solution:
    """A solution that the core cannot confirm: groups that move come back to their old places."""
    found = solve(puzzle)
    bins = {number: tuple(bin_ for bin_, _ in puzzle.movers[number].pods) for number in found.bins}
    return msgspec.structs.replace(found, bins=bins)


def in_turn(*solvers: Solver) -> Solver:
    """The first solver for the first puzzle, and so on; the last one for all others."""
    left = list(solvers)

    def solver(puzzle: Puzzle) -> Solution:
        return (left.pop(0) if len(left) > 1 else left[0])(puzzle)

    return solver


def test_a_search_cut_short_names_no_group_that_would_have_to_allow_it() -> None:
    made = plan(task_of(movable(), in_turn(nothing, solve)))
    assert (made.outcome, made.cause) == (NOTHING_POSSIBLE, SEARCH)
    assert "cut short" in made.reason


def test_an_arrangement_that_the_core_did_not_confirm_stays_the_cause() -> None:
    made = plan(task_of(movable(), in_turn(stays, nothing, nothing, solve)))
    assert (made.outcome, made.cause) == (NOTHING_POSSIBLE, UNCONFIRMED)
    assert "does not confirm" in made.reason
