"""Pods that an earlier leader evicted make room, and no others leave for the same pod (rule 27.5)."""

from dataclasses import replace

import pytest

from hived.values.specs import Rules
from hived_extender.machine.preemptions import LATE_S
from tests.extender.machine.small_cluster import Json, cluster_spec, spec_text
from tests.extender.machine.test_grace import LENT_S, PREEMPTED_S, Slow

HALVES = ("v00", "w", "v1", "x", "y", "v01")
"""VC a has v1 on a node of its own, and v00 and v01 on another; w, x and y borrow the rest."""


def _halves(rules: Rules = Rules.HIVED) -> Slow:
    cluster = Slow(spec=replace(cluster_spec(), rules=rules))
    cluster.pass_time(5 * 3600.0)
    for name in HALVES:
        is_whole, is_lent = name in {"v1", "x"}, name in {"w", "x", "y"}
        cluster.runs(name, leaf_cells=4 if is_whole else 2, priority=-1 if is_lent else 0)
    return cluster


def _asked(cluster: Slow) -> set[str]:
    return {name for _, name, _ in cluster.asked}


def _let_leave(cluster: Slow) -> set[str]:
    """All that were told to leave begin to, slowly."""
    names = _asked(cluster)
    for name in names:
        cluster.leaves(cluster.kube.pods[name], LENT_S)
    cluster.by_hand.settle()
    return names


def _take_over(cluster: Slow) -> None:
    cluster.service.follow("another leads")
    cluster.lead()
    cluster.by_hand.settle()


def _ask(cluster: Slow, pod: Json) -> None:
    cluster.filter(pod)
    cluster.by_hand.settle()


@pytest.mark.parametrize("rules", [Rules.HIVED, Rules.BETTER])
@pytest.mark.parametrize("leaf_cells", [1, 2, 4])
def test_a_new_leader_names_no_more_victims_while_the_first_leave(leaf_cells: int, rules: Rules) -> None:
    cluster = _halves(rules)
    pod = cluster.need(leaf_cells=leaf_cells, priority=5)
    victims = _let_leave(cluster)
    for _ in range(3):
        _take_over(cluster)
        _ask(cluster, pod)
        cluster.pass_time(10.0)
    assert _asked(cluster) == victims


@pytest.mark.parametrize("leaf_cells", [2, 4])
def test_a_pod_that_may_use_any_node_has_no_more_victims_either(leaf_cells: int) -> None:
    cluster = _halves()
    pod = cluster.need(leaf_cells=leaf_cells, priority=5, ignoreK8sSuggestedNodes=True)
    victims = _let_leave(cluster)
    _take_over(cluster)
    _ask(cluster, pod)
    assert _asked(cluster) == victims


def test_the_pod_starts_once_they_have_left() -> None:
    cluster = _halves()
    pod = cluster.need(priority=5)
    (victim,) = _let_leave(cluster)
    node = cluster.kube.pods[victim]["spec"]["nodeName"]
    _take_over(cluster)
    _ask(cluster, pod)
    cluster.delete(cluster.kube.pods[victim])
    assert cluster.filter(pod)["NodeNames"] == [node]


def test_nobody_else_is_given_the_cells_meanwhile() -> None:
    cluster = _halves()
    pod = cluster.need(priority=5)
    (victim,) = _let_leave(cluster)
    _take_over(cluster)
    _ask(cluster, pod)
    cluster.delete(cluster.kube.pods[victim])
    other = cluster.create("other", spec_text(priority=-1))
    assert not cluster.filter(other).get("NodeNames")
    assert cluster.filter(pod)["NodeNames"]


def test_a_victim_that_never_leaves_is_deleted_at_once_by_the_new_leader_too() -> None:
    cluster = _halves()
    pod = cluster.need(priority=5)
    (victim,) = _let_leave(cluster)
    _take_over(cluster)
    _ask(cluster, pod)
    cluster.pass_time(PREEMPTED_S + LATE_S + 1)
    assert ("delete", victim, 0) in cluster.asked
    assert _asked(cluster) == {victim}


def test_others_leave_where_those_who_leave_are_not_enough() -> None:
    cluster = _halves()
    cluster.leaves(cluster.kube.pods["v00"], LENT_S)
    cluster.need(priority=5)
    assert _asked(cluster) - {"v00"}


def test_a_second_pod_does_not_count_on_the_victims_of_the_first() -> None:
    cluster = _halves()
    first = cluster.need("p", priority=5)
    victims = _let_leave(cluster)
    _take_over(cluster)
    _ask(cluster, first)
    assert _asked(cluster) == victims
    cluster.need("q", priority=5)
    assert _asked(cluster) == {"v1", "v00", "v01"}


def test_two_pods_keep_their_victims_whichever_asks_first() -> None:
    for turned in (False, True):
        cluster = _halves()
        pods = [cluster.need(name, leaf_cells=2, priority=5) for name in ("p", "q")]
        victims = _let_leave(cluster)
        _take_over(cluster)
        for pod in pods[:: -1 if turned else 1]:
            _ask(cluster, pod)
        assert _asked(cluster) == victims


def test_a_pod_of_the_same_priority_that_leaves_is_nobodys_victim() -> None:
    """It has the right to its cells until it is gone."""
    cluster = _halves()
    mine = cluster.kube.pods["v1"]
    cluster.leaves(mine, LENT_S)
    pod = cluster.create("p", spec_text(priority=0))
    _ask(cluster, pod)
    assert _asked(cluster) == set()
    cluster.delete(mine)
    assert cluster.filter(pod)["NodeNames"]


@pytest.mark.parametrize("rules", [Rules.HIVED, Rules.BETTER])
def test_a_pod_that_its_owner_deletes_makes_room_without_more_victims(rules: Rules) -> None:
    cluster = _halves(rules)
    cluster.leaves(cluster.kube.pods["v1"], LENT_S)
    cluster.need(priority=5)
    assert _asked(cluster) <= {"v1"}
