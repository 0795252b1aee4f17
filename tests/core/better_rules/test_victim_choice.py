"""The best set of victims, against every set."""

from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest

from hived.better_rules.victim_choice import (
    FEWEST_OF_LARGE,
    FEWEST_SETS,
    MOST_SETS,
    Candidates,
    Cost,
    candidates_among,
    choose_victims,
)
from hived.cells.state import NO_TIME, State
from hived.cells.topology import IntArray
from hived.life.losses import loss_of
from hived.scheduler import handle
from hived.values.decisions import Bind, Preempt
from hived.values.events import GangChanged, Phase, PodAllocated
from hived.values.specs import BindInfo, Gang, GangLimit, PodRequest, Rules, WorkTimes
from tests.core.builders import healthy_state, pod, quota, rack_cluster, request

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
    choice = choose_victims(found, lambda leaves: taken(ways, leaves), 256)
    assert choice is not None
    assert set(choice.taken.tolist()) in ways
    assert not choice.gave_up
    elastic = found.some(found.elastic)
    assert choice.cost == least(elastic if taken(ways, elastic.leaves) is not None else found, ways)


def test_the_highest_priority_counts_and_not_the_sum_of_all() -> None:
    costs = np.array([(0, 1, 1, 1), (0, 1, 3, 1), (0, 1, 4, 1), (0, 1, 5, 1)], np.int64)
    found = Candidates(costs, np.arange(4, dtype=np.int32), np.arange(1, 5), np.zeros(4, np.bool_), 4)
    choice = choose_victims(found, lambda leaves: taken([{0, 3}, {1, 2}], leaves), 256)
    assert choice is not None
    assert choice.cost == (0, 2, 4, 2)
    assert choice.taken.tolist() == [1, 2]


def test_none_is_found_if_all_groups_together_are_not_enough() -> None:
    found = candidates(Random(0))
    assert choose_victims(found, lambda _: None, 256) is None
    assert choose_victims(found.some(np.zeros(COUNT, np.bool_)), lambda leaves: leaves, 256) is None


def test_a_search_that_is_cut_short_still_names_enough_cells() -> None:
    choice = choose_victims(
        candidates(Random(1), 30), lambda leaves: np.sort(leaves)[:12] if len(leaves) >= 12 else None, 3
    )
    assert choice is not None
    assert choice.gave_up
    assert choice.left == 0
    assert len(choice.taken) == 12


def test_fewer_sets_are_asked_about_in_a_large_cluster_and_for_a_large_group() -> None:
    small = candidates(Random(0))
    assert small.most_sets(1) == MOST_SETS
    assert replace(small, leaf_count=1 << 20).most_sets(1) == FEWEST_SETS
    assert replace(small, leaf_count=1 << 20).most_sets(4096) == 4
    assert small.most_sets(1 << 30) == FEWEST_OF_LARGE


def test_a_group_that_waits_for_its_cells_loses_no_work_of_their_users() -> None:
    state = healthy_state(replace(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1), rules=Rules.BETTER))
    for number in range(2):
        lent = pod(f"lent{number}", priority=-1, elastic=True)
        handle(state, PodAllocated(lent, run_info(state, lent), (), WorkTimes(0.0)))
    assert isinstance(request(state, pod("waits"), Phase.PREEMPTING), Preempt)
    state.now_ms = 10_000
    physical = state.groups["waits"].physical
    holders = state.cells.reserving[physical]
    found = candidates_among(state, physical, holders, physical, len(physical))
    assert found.costs.tolist() == [[0, 1, 0, 2]]
    assert not found.elastic.any()


def run_info(state: State, wanted: PodRequest) -> BindInfo:
    decision = request(state, wanted)
    assert isinstance(decision, Bind)
    return decision.bind_info


def in_a_gang(source: Random, state: State, names: list[str]) -> Gang:
    """Random groups go on together; some may be missing, by one limit or two."""
    parts = [names] if source.random() < 0.5 else [names[::2], names[1::2]]
    limits = tuple(GangLimit(tuple(part), source.randint(-1, len(part))) for part in parts if part)
    gang = Gang("+".join(names), tuple(names), limits)
    handle(state, GangChanged(gang))
    return gang


@pytest.mark.sample(20)
@pytest.mark.parametrize("knows_time", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_a_choice_counts_all_who_leave_with_a_group(seed: int, *, knows_time: bool) -> None:
    spec = rack_cluster(quota("A", {"RACK.NODE": 4}), racks=4)
    source, state = Random(seed), healthy_state(replace(spec, rules=Rules.BETTER))
    names = [f"g{number}" for number in range(8)]
    for name in names:
        lent = pod(name, members=((1, source.choice([1, 1, 2])),), priority=-1)
        handle(state, PodAllocated(lent, run_info(state, lent), (), WorkTimes(float(source.randint(0, 9)))))
    source.shuffle(names)
    gangs = [in_a_gang(source, state, names[:3]), in_a_gang(source, state, names[3:6])]
    state.now_ms = 10_000 if knows_time else NO_TIME
    leaf_of = {int(leaf): name for name, group in state.groups.items() for leaf in group.physical}
    physical = np.array(sorted(leaf_of), np.int32)
    found = candidates_among(state, physical, state.cells.using[physical], physical, len(physical))
    ways = [set(source.sample(sorted(leaf_of), source.randint(1, 4))) for _ in range(source.randint(1, 6))]

    def cost(way: set[int]) -> Cost:
        leaving = {leaf_of[leaf] for leaf in way}
        broken = [gang for gang in gangs if is_broken(gang, leaving)]
        leaving = leaving.union(*(gang.groups for gang in broken))
        groups = [state.groups[name] for name in leaving]
        lost = sum(loss_of(one, 10_000) if knows_time else len(one.physical) for one in groups)
        count = len(leaving) - sum(len(gang.groups) - 1 for gang in broken)
        return lost, count, -1, sum(len(one.physical) for one in groups)

    choice = choose_victims(found, lambda leaves: taken(ways, leaves), 256)
    assert choice is not None
    assert not choice.gave_up
    assert choice.cost == cost(set(choice.taken.tolist())) == min(map(cost, ways))


def is_broken(gang: Gang, leaving: set[str]) -> bool:
    """Do all of a gang leave if these do?"""
    limits = [(leaving.intersection(limit.groups), limit.spare) for limit in gang.limits]
    return not leaving.isdisjoint(gang.groups) and any(len(own) > spare for own, spare in limits)


def test_a_gang_that_is_told_anew_or_forgotten_binds_nobody_else() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    handle(state, GangChanged(Gang("x", ("a", "b"), (GangLimit(("a", "b"), 0),))))
    handle(state, GangChanged(Gang("y", ("b", "c"), ())))
    handle(state, GangChanged(Gang("x", ("a",), ())))
    assert {name: gang.name for name, gang in state.gang_of.items()} == {"a": "x", "b": "y", "c": "y"}
    handle(state, GangChanged(Gang("y", (), ())))
    assert set(state.gang_of) == {"a"}
    assert set(state.gangs) == {"x"}
