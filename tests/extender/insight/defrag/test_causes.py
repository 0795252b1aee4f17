"""The cause why nothing is possible, where a first search found less than a later one."""

from random import Random

import msgspec
import pytest

from hived.values.errors import UserError
from hived_extender.insight.defrag.planner import (
    CELLS,
    NOT_KNOWN,
    NOTHING_POSSIBLE,
    PLAN,
    SEARCH,
    UNCONFIRMED,
    Solver,
    Task,
    plan,
)
from hived_extender.insight.defrag.puzzle import Puzzle, Solution, read_wants
from hived_extender.insight.defrag.search import solve
from tests.extender.insight.defrag.random_states import Fragmented, random_state
from tests.extender.insight.defrag.subsets import can_have_room, may_move
from tests.property.examples import examples


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
    assert (made.outcome, made.cause) == (NOT_KNOWN, SEARCH)
    assert "cut short" in made.reason


def test_an_arrangement_that_the_core_did_not_confirm_stays_the_cause() -> None:
    made = plan(task_of(movable(), in_turn(stays, nothing)))
    assert (made.outcome, made.cause) == (NOT_KNOWN, UNCONFIRMED)
    assert "does not confirm" in made.reason


def test_a_plan_for_fewer_is_offered_where_the_search_for_all_is_cut_short() -> None:
    found = movable()

    def cut_short(puzzle: Puzzle) -> Solution:
        return solve(puzzle) if sum(kind.count for kind in puzzle.kinds) == 1 else nothing(puzzle)

    task = msgspec.structs.replace(task_of(found, cut_short), shapes=read_wants(["8xNODE"]))
    assert plan(msgspec.structs.replace(task, shapes=task.shapes[:1])).outcome == PLAN
    made = plan(task)
    assert (made.outcome, len(made.wanted), made.is_optimal) == (PLAN, 8, False)
    assert [one.is_met for one in made.wanted] == [True, *[False] * 7]
    assert made.reason == "of 8 wanted, 1 get room; whether more could is not known"


@pytest.mark.parametrize("part", range(4))
def test_no_is_never_said_where_moving_a_few_groups_makes_room(part: int) -> None:
    for seed in range(part, examples(100), 4):
        random = Random(seed)
        found = random_state(random)
        task = Task(found.cluster, found.inputs, "a", read_wants([random.choice(["1xNODE", "2xNODE", "1xRACK"])]))
        try:
            made = plan(task)
        except UserError:  # the virtual cluster can never have such cells
            continue
        if made.outcome == NOTHING_POSSIBLE and made.cause != CELLS:
            assert not can_have_room(task, may_move(found.inputs)), (seed, made)
