"""Gangs of several sizes on 12 nodes: nobody leaves if other hardware is free, and else those who lose least."""

from random import Random

import pytest

from hived.values.specs import ClusterSpec, Rules
from tests.core.builders import quota, tree_cluster
from tests.quality.dozen import DOZEN_KINDS, DOZEN_LOADS, Hardware, dozen_cluster, evictions, walk_dozen
from tests.quality.exhaustive import Wanted
from tests.quality.play import Play

NODES = 6


def cluster(promised: str = "RACK.NODE", count: int = 4, inner: str = "GPU") -> ClusterSpec:
    """Two racks of three nodes of 8 GPUs, flat or in two halves; A is promised some, B nothing."""
    below = {"NODE": 8} if inner == "GPU" else {"NODE": 2, inner: 4}
    vcs = quota("A", {promised: count}), quota("B", {"RACK.NODE": 1})
    return tree_cluster({"RACK": 3, **below}, *vcs, tops=2, rules=Rules.BETTER)


def lend(play: Play, **leaves: int) -> None:
    """Opportunistic work of so many GPUs on each node."""
    for node, count in leaves.items():
        wanted = Wanted(f"lent-{node}", "B", -1, (count,), frozenset({node}))
        assert play.ask(wanted).kind == "bind"


@pytest.mark.parametrize("sizes", [(4, 8), (1, 8), (4, 8, 8), (3, 6, 8), (3, 6, 7, 8)])
def test_the_large_pods_get_the_clean_nodes_and_small_ones_the_rest_of_lent_nodes(sizes: tuple[int, ...]) -> None:
    play = Play(cluster())
    lent = [8 - size for size in sizes if size < 8]
    lent += [8] * (NODES - len(sizes))
    lend(play, **{f"n{number}": count for number, count in enumerate(lent)})
    assert play.ask(Wanted("g", "A", 0, sizes)).kind == "bind"


def test_a_pod_gets_a_node_whose_free_half_is_whole_where_another_one_needs_any_gpus() -> None:
    play = Play(cluster(inner="HALF"))
    for node in ("n0", "n1", "n2", "n3", "n4", "n5"):
        lend(play, **{node: 4 if node == "n0" else 3 if node == "n1" else 8})
    answer = play.ask(Wanted("g", "A", 0, (4, 5)))
    assert answer.kind == "bind"


def test_roots_of_two_levels_are_chosen_together() -> None:
    spec = cluster("RACK", 1)
    play = Play(spec)
    lend(play, n0=1, n1=1)
    assert play.ask(Wanted("g", "A", 0, (8, 8, 8))).kind == "bind"


@pytest.mark.sample(1)
@pytest.mark.parametrize("load", DOZEN_LOADS)
@pytest.mark.parametrize("kind", DOZEN_KINDS)
def test_nobody_leaves_without_need_and_those_who_do_lose_least(kind: str, load: str) -> None:
    found = evictions(Rules.BETTER, kind, load, 1000, 400)
    assert found["preemptions"] > 10
    assert found["mixed_preemptions"] > 2
    assert found.get("equal", 0) == found.get("too_much", 0) == 0


def test_the_judge_finds_what_the_reference_does_without_need() -> None:
    assert evictions(Rules.HIVED, "FLAT", "plain", 0, 200)["equal"] > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", DOZEN_KINDS)
def test_the_hardware_that_the_core_chose_is_among_all_hardware(kind: str) -> None:
    for seed in range(3):
        for before, wanted, answer, _ in walk_dozen(kind, Rules.BETTER, DOZEN_LOADS["nodes"], seed, 60):
            if answer.running is not None and wanted.priority >= 0:
                gone = frozenset(victim.name for victim in answer.victims)
                assert Hardware(before, wanted, answer.running).exists(gone)


def test_clusters_are_the_same_for_a_seed() -> None:
    assert dozen_cluster("RACK", Rules.BETTER, Random(1)) == dozen_cluster("RACK", Rules.BETTER, Random(1))
