"""The oracle itself: its short cuts equal the rules they stand for, and its invariants notice broken states."""

import itertools
import random
from collections.abc import Callable

import pytest

from hived.values.errors import InvariantError
from hived.values.events import NodeHealthChanged, PodAllocated, ScheduleRequested
from hived.values.specs import (
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PodRequest,
    PodSpec,
)
from tests.core.builders import quota, tree_cluster
from tests.core.naive import NaiveScheduler
from tests.core.naive.cluster import Cluster
from tests.core.naive.mapping import is_matchable
from tests.core.naive.model import Cell
from tests.core.naive.placement import Attempt, choose_leaves


def racks() -> ClusterSpec:
    """Two racks of two nodes of two switches of two GPUs; VC A has two nodes, VC B a rack."""
    vcs = quota("A", {"RACK.NODE": 2}), quota("B", {"RACK": 1})
    return tree_cluster({"RACK": 2, "NODE": 2, "SWITCH": 2}, *vcs, tops=2)


def pod(name: str, vc: str, gpus: int, priority: int = 0) -> PodRequest:
    group = GroupSpec(f"ns/{name}", (MemberSpec(1, gpus),))
    return PodRequest(name, name, "ns", PodSpec(vc, priority, gpus, group))


def busy() -> NaiveScheduler:
    """A scheduler with guaranteed and opportunistic pods and a bad node."""
    scheduler = NaiveScheduler(racks())
    for node in scheduler.node_names:
        scheduler.handle(NodeHealthChanged(node, True))
    for request in (pod("a", "A", 3), pod("b", "B", 4), pod("o", "A", 2, -1)):
        decision = scheduler.handle(ScheduleRequested(request))
        scheduler.handle(PodAllocated(request, decision.bind_info))
    scheduler.handle(NodeHealthChanged("n3", False))
    scheduler.check()
    return scheduler


def common_level(leaves: tuple[Cell, ...]) -> int:
    """The level of the lowest common ancestor."""
    return next(cell.level for cell in leaves[0].up() if all(cell in leaf.up() for leaf in leaves))


@pytest.mark.parametrize("seed", range(20))
def test_the_leaf_cells_chosen_are_the_first_best_of_all_combinations(seed: int) -> None:
    rng = random.Random(seed)
    node = Cluster(racks()).chains["RACK"].tops[0].children[0]
    for leaf in node.leaves:
        leaf.leaf_priority = rng.choice([-2, -2, 0, 1, 5])
    candidates = [leaf for leaf in node.leaves if leaf.priority == -2]
    candidates += [leaf for leaf in node.leaves if -2 < leaf.priority < 5]
    for count in range(1, len(candidates) + 1):
        best = min(itertools.combinations(candidates, count), key=common_level)
        assert choose_leaves(node, count, Attempt(5), set()) == list(best)


@pytest.mark.parametrize("seed", range(20))
def test_rows_can_be_matched_if_some_permutation_matches_them(seed: int) -> None:
    rng = random.Random(seed)
    cells = list("abcd")
    rows = [[cell for cell in cells if rng.random() < 0.4] for _ in range(3)]
    possible = any(
        all(cell in row for cell, row in zip(chosen, rows, strict=True)) for chosen in itertools.permutations(cells, 3)
    )
    assert is_matchable(rows) == possible


def leaf_of(cluster: Cluster, state: str) -> Cell:
    return next(c for c in cluster.physical_cells() if c.level == 1 and c.state == state and c.is_healthy)


def lose_binding(cluster: Cluster) -> None:
    leaf_of(cluster, "Used").bound.bound = None


def lose_user(cluster: Cluster) -> None:
    leaf_of(cluster, "Used").using = None


def use_twice(cluster: Cluster) -> None:
    group = cluster.groups["ns/a"]
    group.physical[3][0][0] = group.physical[3][0][1]


def list_twice(cluster: Cluster) -> None:
    free = cluster.free["RACK"]
    level = next(level for level in free if free[level])
    free[level].append(free[level][0])


def miscount(cluster: Cluster) -> None:
    cluster.left["RACK"][1] += 1


def forget_bad_cell(cluster: Cluster) -> None:
    next(cell for cell in cluster.physical_cells() if not cell.is_healthy and cell.level == 2).is_healthy = True


def overpromise(cluster: Cluster) -> None:
    roots = cluster.vcs["A"].preassigned
    roots.extend([roots[-1]] * 3)


def forget_pods(cluster: Cluster) -> None:
    cluster.groups["ns/o"].allocated[2][0] = None


@pytest.mark.parametrize(
    "damage",
    [lose_binding, lose_user, use_twice, list_twice, miscount, forget_bad_cell, overpromise, forget_pods],
    ids=lambda damage: damage.__name__,
)
def test_the_invariants_notice(damage: Callable[[Cluster], None]) -> None:
    scheduler = busy()
    damage(scheduler.cluster)
    with pytest.raises(InvariantError):
        scheduler.check()


def test_restoring_brings_back_everything_but_the_order_of_the_views() -> None:
    scheduler = busy()
    cluster = scheduler.cluster
    before = scheduler.snapshot()
    lists = {level: list(cells) for level, cells in cluster.free["RACK"].items()}
    saved = cluster.save()
    for group in list(cluster.groups.values()):
        for leaf, _ in group.leaf_pairs():
            leaf.using = None
            cluster.release_leaf(leaf)
            cluster.set_state(leaf, "Free")
    cluster.groups.clear()
    assert scheduler.snapshot() != before
    cluster.restore(saved)
    assert scheduler.snapshot() == before
    assert cluster.free["RACK"] == lists
    scheduler.check()
