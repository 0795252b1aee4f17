"""Empty slots of running affinity groups are given back, at once or after a while (rule 26.15)."""

import pytest

from hived.scheduler import check_invariants
from hived.values.errors import UserError
from hived_extender.machine.empty_slots import LENT_S, OWN_S
from tests.extender.machine.small_cluster import Json, SmallCluster, spec_text
from tests.extender.machine.test_trust import Guarded


def member(pods: int = 4, priority: int = -1) -> str:
    return spec_text("a", leaf_cells=4, group="g", pods=pods, priority=priority)


def bind(cluster: SmallCluster, pod: Json) -> None:
    cluster.bind(pod, cluster.filter(pod)["NodeNames"][0])
    cluster.see(pod)


def running(cluster: SmallCluster, count: int = 4, priority: int = -1) -> list[Json]:
    pods = [cluster.create(f"g-{number}", member(count, priority)) for number in range(count)]
    for pod in pods:
        bind(cluster, pod)
    return pods


def end(cluster: SmallCluster, pod: Json, phase: str = "Succeeded") -> None:
    pod["status"]["phase"] = phase
    cluster.kube.touch(pod)
    cluster.see(pod)


def have_room(cluster: SmallCluster, count: int) -> list[bool]:
    """Which of so many opportunistic pods of another tenant get a node?"""
    check_invariants(cluster.state)
    return [
        "NodeNames" in cluster.filter(cluster.create(f"honest-{number}", spec_text("b", priority=-1)))
        for number in range(count)
    ]


def test_lent_cells_of_deleted_members_are_given_back_after_a_while() -> None:
    cluster = SmallCluster()
    pods = running(cluster)
    for pod in pods[1:]:
        cluster.delete(pod)
    cluster.pass_time(LENT_S - 1)
    assert have_room(cluster, 1) == [False]
    cluster.pass_time(2)
    assert have_room(cluster, 3) == [True, True, True]


def test_lent_cells_of_members_that_were_deleted_before_they_were_bound_are_given_back() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member()) for number in range(4)]
    bind(cluster, pods[0])
    for pod in pods[1:]:
        cluster.delete(pod)
    cluster.pass_time(LENT_S + 1)
    assert have_room(cluster, 3) == [True, True, True]


def test_members_that_wait_keep_lent_cells_longer_and_not_for_ever() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member()) for number in range(4)]
    bind(cluster, pods[0])
    cluster.pass_time(LENT_S + 1)
    assert have_room(cluster, 1) == [False]
    bind(cluster, pods[1])
    cluster.pass_time(OWN_S + LENT_S)
    assert have_room(cluster, 3) == [True, True, False]


@pytest.mark.parametrize("priority", [-1, 5])
def test_cells_of_succeeded_members_are_given_back_at_once(priority: int) -> None:
    cluster = SmallCluster()
    pods = running(cluster, 2, priority)
    end(cluster, pods[1])
    cluster.pass_time(0)
    assert have_room(cluster, 4) == [True, True, True, False]
    assert cluster.pod_counts()["Bound"] == 1


@pytest.mark.parametrize("phase", ["Failed", ""])
def test_cells_of_their_own_virtual_cluster_are_kept_longer_for_members_that_may_come_again(phase: str) -> None:
    cluster = SmallCluster()
    pods = running(cluster, 2, priority=5)
    end(cluster, pods[1], phase) if phase else cluster.delete(pods[1])
    cluster.pass_time(OWN_S - 1)
    assert have_room(cluster, 3) == [True, True, False]
    bind(cluster, cluster.create("g-new", member(2, priority=5)))
    cluster.pass_time(OWN_S + 1)
    assert len(cluster.groups()["ns:g"]["physicalPlacement"]) == 2


@pytest.mark.parametrize("count", [2, 3])
def test_a_member_that_comes_again_afterwards_starts_by_itself(count: int) -> None:
    cluster = SmallCluster()
    pods = running(cluster, count)
    cluster.delete(pods[0])
    cluster.pass_time(LENT_S + 1)
    bind(cluster, cluster.create("g-new", member(count)))
    with pytest.raises(UserError, match="has all its pods of 4 leaf cells"):
        cluster.filter(cluster.create("g-more", member(count)))
    cluster.pass_time(2 * OWN_S)
    assert len(have_room(cluster, 4 - count)) == 4 - count
    check_invariants(cluster.state)


@pytest.mark.parametrize("priority", [-1, 5])
@pytest.mark.parametrize("count", [2, 3])
def test_a_take_over_finds_the_cells_that_are_left(count: int, priority: int) -> None:
    if priority > 0:
        count = 2
    cluster = SmallCluster()
    pods = running(cluster, count, priority)
    end(cluster, pods[0])
    cluster.pass_time(1)
    before = cluster.groups()
    for pod in pods[1:]:
        cluster.see(pod)
    successor = SmallCluster(is_leading=False)
    successor.kube = cluster.kube
    for name in cluster.kube.pods:
        if name != "g-0":
            successor.see(cluster.kube.pods[name])
    successor.lead()
    assert successor.groups().keys() == before.keys()
    assert have_room(successor, 5 - count) == [True] * (5 - count)
    check_invariants(successor.state)


def test_a_member_of_another_size_keeps_its_own_slot() -> None:
    cluster = SmallCluster()
    members = [{"podNumber": 1, "leafCellNumber": 2}, {"podNumber": 2, "leafCellNumber": 4}]
    group = {"name": "g", "members": members}
    small = spec_text(leaf_cells=2, priority=-1, affinityGroup=group)
    large = spec_text(leaf_cells=4, priority=-1, affinityGroup=group)
    pods = [cluster.create(f"g-{n}", text) for n, text in enumerate((small, large, large))]
    for pod in pods:
        bind(cluster, pod)
    end(cluster, pods[1])
    cluster.pass_time(0)
    cluster.delete(pods[0])
    cluster.pass_time(LENT_S + 1)
    assert have_room(cluster, 4) == [True, True, True, False]


def test_a_restart_proves_the_cells_that_are_left_and_those_of_a_member_that_came_again() -> None:
    cluster = Guarded()
    pods = running(cluster, 3)
    cluster.delete(pods[0])
    cluster.pass_time(LENT_S + 1)
    bind(cluster, cluster.create("g-new", member(3)))
    cluster.pass_time(1)
    again = cluster.restarted()
    assert again.groups().keys() == {"ns:g", "ns/g-new"}
    assert len(again.groups()["ns:g"]["physicalPlacement"]) == 2
    assert have_room(again, 2) == [True, False]
