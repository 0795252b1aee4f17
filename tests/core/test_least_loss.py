"""The cells to clear with the least lost work, against every choice there is (rule 8.13)."""

from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest

from hived.events import PodProgressed
from hived.least_loss import Choice, Cost, choose_cells, choose_least, cost_of_clearing
from hived.scheduler import handle
from hived.specs import FREE_PRIORITY, Rules, WorkTimes
from hived.state import NO_TIME, State
from hived.topology import NO_CELL, IntArray
from tests.core.builders import healthy_state, leaf, pod, quota, rack_cluster, run

Users = list[list[int]]  # of each candidate


def choose(users: Users, loss: list[int], priority: list[int], count: int, budget: int = 1 << 30) -> Choice:
    row = [candidate for candidate, own in enumerate(users) for _ in own]
    user = [each for own in users for each in own]
    arrays = np.array(row, np.int64), np.array(user, np.int32)
    return choose_least(*arrays, np.array(loss, np.int64), np.array(priority, np.int32), len(users), count, budget)


def cost(users: Users, loss: list[int], priority: list[int], chosen: tuple[int, ...]) -> Cost:
    leaving = {each for candidate in chosen for each in users[candidate]}
    highest = max((priority[each] for each in leaving), default=FREE_PRIORITY)
    return Cost(sum(loss[each] for each in leaving), len(leaving), highest)


def random_users(source: Random, candidates: int, groups: int) -> Users:
    """Groups use one candidate, a few in a row, or some anywhere; few candidates are idle."""
    users: Users = [[] for _ in range(candidates)]
    for group in range(groups):
        width = source.choice([1, 1, 2, 3, candidates])
        first = source.randrange(candidates)
        spread = source.sample(range(candidates), min(width, candidates))
        row = [(first + i) % candidates for i in range(width)]
        for candidate in set(source.choice([spread, row])):
            users[candidate].append(group)
    return users


@pytest.mark.parametrize("seed", range(150))
def test_no_choice_costs_less(seed: int) -> None:
    source = Random(seed)
    candidates, groups = source.randint(1, 9), source.randint(0, 9)
    users = random_users(source, candidates, groups)
    loss = [source.choice([0, 1, 5, 7, source.randrange(10**13)]) for _ in range(groups)]
    priority = [source.choice([-1, 0, 3]) for _ in range(groups)]
    for count in range(candidates + 1):
        found = choose(users, loss, priority, count)
        assert found.is_best
        assert len(set(found.candidates)) == count
        assert cost(users, loss, priority, found.candidates) == found.cost
        least = min(cost(users, loss, priority, each) for each in combinations(range(candidates), count))
        assert found.cost == least


def test_a_group_that_leaves_anyway_is_cleared_further() -> None:
    """Two nodes of one gang cost less than two nodes with a job each."""
    found = choose([[0], [1], [2], [2]], [60, 70, 100], [0, 0, 0], 2)
    assert (found.candidates, found.cost) == ((2, 3), Cost(100, 1, 0))


def test_idle_cells_come_first() -> None:
    assert choose([[0], [], [0], []], [1], [0], 2).candidates == (1, 3)


def test_with_equal_losses_fewer_groups_leave_and_then_lower_priorities() -> None:
    assert choose([[0, 1], [2]], [4, 5, 9], [0, 0, 5], 1).candidates == (1,)
    assert choose([[0], [1], [2]], [9, 9, 9], [5, 3, 4], 2).cost == Cost(18, 2, 4)


def test_an_exhausted_budget_is_said_and_the_choice_is_whole_nevertheless() -> None:
    source = Random(1)
    users = [source.sample(range(60), 4) for _ in range(40)]
    loss = [source.randrange(1, 1000) for _ in range(60)]
    found = choose(users, loss, [0] * 60, 15, budget=2000)
    assert not found.is_best
    assert len(found.candidates) == 15
    assert cost(users, loss, [0] * 60, found.candidates) == found.cost
    assert found == choose(users, loss, [0] * 60, 15, budget=2000)


def test_more_steps_never_find_a_worse_choice() -> None:
    source = Random(2)
    users = [source.sample(range(20), 3) for _ in range(14)]
    loss = [source.randrange(1, 1000) for _ in range(20)]
    costs = [choose(users, loss, [0] * 20, 6, budget).cost for budget in (0, 500, 5_000, 1 << 30)]
    assert costs == sorted(costs, reverse=True)


def nodes_of(state: State) -> IntArray:
    """The leaves of each node, and a column of none."""
    names = state.topology.node_names
    return np.array([[leaf(state, name, 0), NO_CELL, leaf(state, name, 1)] for name in names], np.int32)


def busy() -> State:
    """n0 and n1 have one gang, n2 and n3 a pod each, n4 two, n5 none."""
    spec = replace(rack_cluster(quota("A", {"RACK": 3}), racks=3), rules=Rules.BETTER)
    state = healthy_state(spec)
    gang = [pod(f"p{i}", "gang", members=((2, 2),)) for i in range(2)]
    singles = [pod("q"), pod("r", priority=3), pod("s", members=((1, 1),)), pod("t", members=((1, 1),))]
    for one, started_s in zip((*gang, *singles), (10, 10, 20, 5, 0, 0), strict=True):
        run(state, one)
        handle(state, PodProgressed(one, WorkTimes(started_s)))
    return state


def test_the_cost_of_clearing_cells_counts_each_group_once() -> None:
    state = busy()
    gang = state.groups["gang"].physical
    single = state.groups["r"].physical
    assert cost_of_clearing(state, gang, 100_000) == Cost(4 * 90_000, 1, 0)
    assert cost_of_clearing(state, gang[:1], 100_000) == Cost(4 * 90_000, 1, 0)
    both = np.concatenate((gang, single, [NO_CELL])).astype(np.int32)
    assert cost_of_clearing(state, both, 100_000) == Cost(4 * 90_000 + 2 * 95_000, 2, 3)
    assert cost_of_clearing(state, both, NO_TIME) == Cost(0, 2, 3)
    assert cost_of_clearing(state, both[:0], 100_000) == Cost(0, 0, FREE_PRIORITY)


@pytest.mark.parametrize("count", range(7))
def test_the_nodes_to_clear_are_those_of_the_least_cost(count: int) -> None:
    state = busy()
    nodes = nodes_of(state)
    found = choose_cells(state, nodes, count, 100_000)
    assert found is not None
    assert found.cost == cost_of_clearing(state, nodes[[*found.candidates]].ravel(), 100_000)
    each = combinations(range(len(nodes)), count)
    assert found.cost == min(cost_of_clearing(state, nodes[[*one]].ravel(), 100_000) for one in each)


def test_too_few_candidates_give_no_choice() -> None:
    state = busy()
    assert choose_cells(state, nodes_of(state), 7, 100_000) is None
