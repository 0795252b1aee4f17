"""A gang that is not strict keeps its places where kube-scheduler refuses that of one pod (rule 26.7)."""

import pytest

from hived_extender.machine.acceptance import MOST_KEPT_S, START_S
from tests.extender.machine.small_cluster import NODES
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator


def waiting(mode: str | None, **more: str) -> SmallGangCluster:
    """Two pods of which w-0 has been asked about and is held back for w-1, which is about to be refused."""
    cluster = SmallGangCluster()
    modes = {} if mode is None else {"mode": mode}
    for name in ("w-0", "w-1"):
        cluster.pod(name, 4, koordinator("train", 2, **modes, **more))
    assert "NodeNames" in cluster.filter(cluster.kube.pods["w-0"])
    assert set(cluster.decided()) == {"w-0", "w-1"}
    return cluster


def refuse(cluster: SmallGangCluster, name: str) -> None:
    """kube-scheduler offers the pod no node: the first time it could be that it has one alone."""
    for _ in range(2):
        cluster.filter(cluster.kube.pods[name], ["elsewhere"])


@pytest.mark.parametrize(("mode", "left"), [("NonStrict", {"w-0"}), ("Strict", set()), (None, set())])
def test_a_refused_place_costs_the_mates_theirs_only_if_the_gang_is_strict(mode: str | None, left: set[str]) -> None:
    cluster = waiting(mode)
    refuse(cluster, "w-1")
    assert set(cluster.decided()) == left
    assert cluster.kube.bind_calls == []


@pytest.mark.parametrize("mode", ["NonStrict", "Strict"])
def test_another_pod_gets_the_cells_meanwhile_only_if_the_gang_is_strict(mode: str) -> None:
    cluster = waiting(mode)
    node = cluster.decided()["w-0"]
    refuse(cluster, "w-1")
    cluster.pod("other", 4)
    found = cluster.filter(cluster.kube.pods["other"], [node])
    assert ("NodeNames" in found) is (mode == "Strict")


def test_the_refused_pod_gets_another_place_and_both_are_bound_together() -> None:
    cluster = waiting("NonStrict")
    kept, refused = cluster.decided()["w-0"], cluster.decided()["w-1"]
    refuse(cluster, "w-1")
    assert cluster.service.hold_of("uid-w-0") is not None
    found = cluster.filter(cluster.kube.pods["w-1"], [node for node in NODES if node not in (kept, refused)])
    cluster.filter(cluster.kube.pods["w-1"], [node for node in NODES if node not in (kept, refused)])
    assert found["NodeNames"][0] not in (kept, refused)
    cluster.start("w-0", "w-1")
    assert cluster.decided()["w-0"] == kept


def test_none_is_bound_while_the_refused_one_has_no_place() -> None:
    cluster = waiting("NonStrict")
    refuse(cluster, "w-1")
    for _ in range(3):
        cluster.filter(cluster.kube.pods["w-0"])
        assert cluster.service.hold_of("uid-w-0") is not None
        cluster.pass_time(START_S)
    assert cluster.kube.bind_calls == []


@pytest.mark.parametrize(
    ("waiting_time", "lasts_s"), [("100s", 100.0), ("2h", MOST_KEPT_S), (None, MOST_KEPT_S)], ids=["100s", "2h", "none"]
)
def test_the_places_are_kept_for_the_waiting_time_and_no_longer_than_ten_minutes(
    waiting_time: str | None, lasts_s: float
) -> None:
    cluster = waiting("NonStrict", **({} if waiting_time is None else {"waiting_time": waiting_time}))
    refuse(cluster, "w-1")
    cluster.pass_time(lasts_s - 1)
    assert set(cluster.decided()) == {"w-0"}
    cluster.pass_time(2)
    assert cluster.decided() == {}
    assert cluster.kube.bind_calls == []


@pytest.mark.parametrize(("mode", "left"), [("NonStrict", {"w-0"}), ("Strict", set())])
def test_a_pod_that_is_not_asked_about_in_time_costs_the_others_nothing(mode: str, left: set[str]) -> None:
    cluster = waiting(mode)
    cluster.pass_time(START_S + 1)
    assert set(cluster.decided()) == left


def test_one_strict_gang_among_those_that_start_together_is_enough() -> None:
    cluster = SmallGangCluster()
    groups = '["ns/a", "ns/b"]'
    cluster.pod("a-0", 4, koordinator("a", 1, mode="NonStrict", groups=groups))
    cluster.pod("b-0", 4, koordinator("b", 1, mode="Strict", groups=groups))
    cluster.filter(cluster.kube.pods["a-0"])
    assert set(cluster.decided()) == {"a-0", "b-0"}
    refuse(cluster, "b-0")
    assert cluster.decided() == {}


def test_a_pod_that_is_deleted_lets_the_others_wait_again() -> None:
    cluster = waiting("NonStrict")
    cluster.delete(cluster.kube.pods["w-1"])
    assert cluster.decided() == {}
