"""A victim must help: the pod starts then by all of Kubernetes' rules, or all stay (rules 27.2 to 27.6, 27.8)."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import msgspec
import pytest

from hived_extender.jobs.wire import Node
from tests.extender.machine.small_cluster import to_pod
from tests.extender.machine.small_rooms import ROOM, ZONE, SmallRooms

Rooms = Callable[..., SmallRooms]


@pytest.fixture
def rooms() -> Iterator[Rooms]:
    made: list[SmallRooms] = []

    def make(*args: Any, **options: Any) -> SmallRooms:
        made.append(SmallRooms(*args, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.service.close()


def apart(**labels: str) -> dict[str, Any]:
    """Required anti-affinity to pods with these labels, by node."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def greedily(rooms: Rooms) -> SmallRooms:
    """A node of which an opportunistic pod with one GPU has 7 of 8 CPUs, from before borrowers had shares."""
    cluster = rooms(1)
    cluster.service.machine.cache.nodes.keep_shares(False)
    cluster.start("lent", 1, vc="b", priority=-1, needs={"cpu": "7"})
    cluster.service.machine.cache.nodes.keep_shares(True)
    return cluster


@pytest.mark.parametrize("rules", ["2", "hived"])
@pytest.mark.parametrize(
    ("resource", "much"),
    [
        ("cpu", "6"),
        ("memory", "24Gi"),
        ("ephemeral-storage", "80Gi"),
        ("hugepages-2Mi", "3Gi"),
        ("example.com/fpga", "2"),
    ],
)
def test_the_pod_leaves_that_has_what_the_preemptor_lacks(rooms: Rooms, resource: str, much: str, rules: str) -> None:
    cluster = rooms(2, rules=rules, room={**ROOM, "hugepages-2Mi": "4Gi"})
    for number in range(2):
        cluster.start(f"hog-{number}", 2, needs={resource: much})
    for number in range(2):
        cluster.start(f"low-{number}", 2)
    cluster.pod("high", 2, priority=5, needs={resource: much})
    left = cluster.settle()
    assert len(left) == 1
    assert left <= {"hog-0", "hog-1"}
    assert "high" in cluster.running()


def test_all_pods_of_a_node_leave_that_the_preemptor_must_not_be_beside(rooms: Rooms) -> None:
    cluster = rooms(2)
    for number in range(4):
        cluster.start(f"low-{number}", 2, labels={"app": "low"})
    cluster.pod("high", 2, priority=5, affinity=apart(app="low"))
    assert len(cluster.settle()) == 2
    assert "high" in cluster.running()


def test_the_pod_leaves_that_must_not_be_beside_the_preemptor(rooms: Rooms) -> None:
    cluster = rooms(1)
    cluster.start("shy", 1, affinity=apart(app="high"))
    cluster.start("low", 3)
    cluster.pod("high", 1, priority=5, labels={"app": "high"})
    assert cluster.settle() == {"shy"}
    assert "high" in cluster.running()


def test_the_pod_leaves_that_has_the_host_port(rooms: Rooms) -> None:
    cluster, ports = rooms(1), [{"hostPort": 8080}]
    cluster.start("low", 3)
    cluster.start("port", 1, ports=ports)
    cluster.pod("high", 1, priority=5, ports=ports)
    assert cluster.settle() == {"port"}
    assert "high" in cluster.running()


def test_nobody_leaves_where_a_pod_of_higher_priority_holds_the_cpu(rooms: Rooms) -> None:
    cluster = rooms(1)
    cluster.start("above", 2, priority=9, needs={"cpu": "6"})
    cluster.start("low", 2)
    cluster.pod("high", 2, priority=5, needs={"cpu": "6"})
    assert cluster.settle() == set()


def test_a_foreign_pod_of_lower_kubernetes_priority_leaves_where_it_holds_the_cpu(rooms: Rooms) -> None:
    cluster = rooms(1)
    cluster.start("low", 4)
    cluster.pod("foreign", is_foreign=True, node="n0", needs={"cpu": "6"}, rank=1)
    cluster.pod("high", 4, priority=5, needs={"cpu": "6"}, rank=10)
    assert cluster.settle() == {"foreign", "low"}
    assert "high" in cluster.running()


@pytest.mark.parametrize(("tenants", "left"), [({"ns"}, {"foreign", "low"}), ({"other"}, set())])
def test_foreign_pods_leave_where_hived_may_evict_alone(rooms: Rooms, tenants: set[str], left: set[str]) -> None:
    cluster = rooms(1, tenants=frozenset(tenants))
    cluster.start("low", 4)
    cluster.pod("foreign", is_foreign=True, node="n0", needs={"cpu": "6"}, rank=1)
    cluster.pod("high", 4, priority=5, needs={"cpu": "6"}, rank=10)
    assert cluster.settle() == left


@pytest.mark.parametrize("standing", [{"rank": 10}, {"rank": 1, "is_static": True}])
def test_nobody_leaves_for_the_sake_of_a_foreign_pod_that_stays(rooms: Rooms, standing: dict[str, Any]) -> None:
    cluster = rooms(1)
    is_static = standing.pop("is_static", False)
    cluster.start("low", 4)
    foreign = cluster.pod("foreign", is_foreign=True, needs={"cpu": "6"}, **standing)
    if is_static:
        foreign["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
    foreign["spec"]["nodeName"] = "n0"
    cluster.kube.touch(foreign)
    cluster.see(foreign)
    cluster.pod("high", 4, priority=5, needs={"cpu": "6"}, rank=10)
    assert cluster.settle() == set()


def test_lent_work_leaves_that_holds_none_of_the_cells_but_the_cpu(rooms: Rooms) -> None:
    cluster = greedily(rooms)
    cluster.pod("owner", 2, needs={"cpu": "2"})
    assert cluster.settle() == {"lent"}
    assert "owner" in cluster.running()


def lend(cluster: SmallRooms, name: str, **more: Any) -> None:
    """An opportunistic pod without cells on n0, of a higher Kubernetes priority than owners have."""
    notes = {"hivedscheduler.microsoft.com/priority": "-1"}
    cluster.pod(name, is_foreign=True, node="n0", annotations=notes, schedulerName="hived", rank=7, **more)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    "much",
    [
        {"needs": {"ephemeral-storage": "80Gi"}},
        {"needs": {"memory": "30Gi"}},
        {"needs": {"example.com/fpga": "2"}},
        {"ports": [{"hostPort": 8080}]},
    ],
    ids=["storage", "memory", "other", "port"],
)
def test_opportunistic_pods_without_cells_leave_that_have_what_an_owner_needs(
    rooms: Rooms, much: dict[str, Any], is_restarted: bool
) -> None:
    cluster = rooms(1)
    lend(cluster, "lent", **much)
    lend(cluster, "beside", needs={"cpu": "1"})
    if is_restarted:
        cluster.service.follow("")
        cluster.lead()
    cluster.pod("owner", 2, **much)
    assert cluster.settle() == {"lent"}
    assert "owner" in cluster.running()


def test_they_stay_where_hived_may_not_evict(rooms: Rooms) -> None:
    cluster = rooms(1, tenants=frozenset({"other"}))
    lend(cluster, "lent", needs={"cpu": "7"})
    cluster.pod("owner", 2, needs={"cpu": "7"})
    assert cluster.settle() == set()


def test_they_stay_for_an_opportunistic_pod(rooms: Rooms) -> None:
    cluster = rooms(1)
    lend(cluster, "lent", needs={"cpu": "7"})
    cluster.pod("other", 2, priority=-1, vc="b", needs={"cpu": "3"})
    assert cluster.settle() == set()


def test_a_dry_run_names_opportunistic_pods_without_cells(rooms: Rooms) -> None:
    cluster = rooms(1)
    lend(cluster, "lent", needs={"cpu": "7"})
    assert foreseen(cluster, "owner", 2, needs={"cpu": "7"}) == ("preempt", {"lent": 1})


def test_the_cheapest_set_leaves_of_several_nodes(rooms: Rooms) -> None:
    cluster = rooms(2)
    cluster.start("big", 4, needs={"cpu": "6"})
    for number in range(2):
        cluster.start(f"low-{number}", 2, needs={"cpu": "3"})
    cluster.pod("high", 1, priority=5, needs={"cpu": "5"})
    assert len(cluster.settle()) == 1
    assert "high" in cluster.running()


def test_a_gang_starts_once_the_pods_left_that_hold_its_cpu(rooms: Rooms) -> None:
    cluster = rooms(2)
    for number in range(2):
        cluster.start(f"hog-{number}", 2, needs={"cpu": "6"})
    for number in range(2):
        cluster.start(f"low-{number}", 2)
    for number in range(2):
        cluster.pod(f"high-{number}", 2, priority=5, needs={"cpu": "6"}, group="g", pods=2)
    assert cluster.settle() == {"hog-0", "hog-1"}
    assert {"high-0", "high-1"} <= cluster.running().keys()


def test_nobody_leaves_for_a_gang_of_which_one_pod_would_be_refused(rooms: Rooms) -> None:
    cluster = rooms(2)
    cluster.start("above", 2, priority=9, needs={"cpu": "6"})
    for number in range(3):
        cluster.start(f"low-{number}", 2)
    for number in range(2):
        cluster.pod(f"high-{number}", 2, priority=5, needs={"cpu": "6"}, group="g", pods=2)
    assert cluster.settle() == set()


def test_victims_are_spared_once_the_preemptor_is_gone(rooms: Rooms) -> None:
    cluster = greedily(rooms)
    owner = cluster.pod("owner", 2, needs={"cpu": "2"})
    cluster.delete(owner)
    assert cluster.settle() == set()
    cluster.pod("again", 3, needs={"cpu": "1"})
    cluster.settle()
    assert "again" in cluster.running()


def test_the_cells_stay_reserved_while_the_holder_of_the_cpu_leaves(rooms: Rooms) -> None:
    cluster = greedily(rooms)
    cluster.pod("owner", 3, needs={"cpu": "2"})
    cluster.pass_time(3)
    rival = cluster.pod("rival", 3)
    assert not cluster.run(rival)
    cluster.pass_time(60)  # kube-scheduler never asks about the owner meanwhile
    cluster.settle()
    assert "owner" in cluster.running()
    assert "rival" not in cluster.running()


def foreseen(cluster: SmallRooms, name: str, gpus: int, **more: Any) -> tuple[str, dict[str, int]]:
    """The outcome if a pod were created now, and the pods that would leave, by job; and what really comes of it."""
    pod = cluster.pod(name, gpus, **more)
    cluster.delete(pod)
    before = cluster.snapshot()
    (found,) = cluster.service.what_if([to_pod(pod)])
    assert cluster.snapshot() == before
    assert not cluster.kube.leaving
    cluster.pod(name, gpus, **more, uid="another")
    left = cluster.settle()
    said = {one.name.removeprefix("ns/"): one.pods for one in found.victims}
    assert set(said) == left
    assert (name in cluster.running()) == (found.outcome in {"bind", "preempt"})
    return found.outcome, said


def test_a_dry_run_names_the_pods_that_have_what_is_lacking(rooms: Rooms) -> None:
    cluster = rooms(1)
    cluster.start("hog", 2, needs={"cpu": "6"})
    cluster.start("low", 2)
    assert foreseen(cluster, "high", 2, priority=5, needs={"cpu": "6"}) == ("preempt", {"hog": 1})


def test_a_dry_run_names_all_that_the_pod_must_not_be_beside(rooms: Rooms) -> None:
    cluster = rooms(1)
    for number in range(2):
        cluster.start(f"low-{number}", 1, labels={"app": "low"})
    found = foreseen(cluster, "high", 1, priority=5, affinity=apart(app="low"))
    assert found == ("preempt", {"low-0": 1, "low-1": 1})


def test_a_dry_run_names_pods_of_others_that_kube_scheduler_displaces(rooms: Rooms) -> None:
    cluster = rooms(1)
    cluster.start("low", 4)
    cluster.pod("foreign", is_foreign=True, node="n0", needs={"cpu": "6"}, rank=1)
    found = foreseen(cluster, "high", 4, priority=5, needs={"cpu": "6"}, rank=10)
    assert found == ("preempt", {"foreign": 1, "low": 1})


def test_a_dry_run_says_that_nobody_would_leave_in_vain(rooms: Rooms) -> None:
    cluster = rooms(1)
    cluster.start("above", 2, priority=9, needs={"cpu": "6"})
    cluster.start("low", 2)
    assert foreseen(cluster, "high", 2, priority=5, needs={"cpu": "6"}) == ("wait", {})


def test_a_dry_run_of_a_pod_that_preempts_nobody_names_nobody(rooms: Rooms) -> None:
    cluster = rooms(1)
    cluster.start("low", 4)
    assert foreseen(cluster, "high", 2, priority=5, preemptionPolicy="Never") == ("wait", {})


def test_a_cordoned_node_is_not_cleared(rooms: Rooms) -> None:
    cluster = rooms(2)
    for number in range(2):
        cluster.start(f"low-{number}", 4)
    cordoned = msgspec.convert(
        {
            "metadata": {"name": "n0", "uid": "node-n0", "labels": {"kubernetes.io/hostname": "n0"}},
            "spec": {"unschedulable": True},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": dict(ROOM)},
        },
        Node,
    )
    cluster.nodes["n0"] = cordoned
    cluster.service.node_seen(cordoned)
    outcome, left = foreseen(cluster, "high", 2, priority=5)
    assert outcome == "preempt"
    assert list(left) == [name for name, node in (("low-0", "n0"), ("low-1", "n1")) if node == "n1"]


def test_skew_over_zones_says_who_leaves(rooms: Rooms) -> None:
    cluster = rooms(2, labels={"n0": {"zone": "a"}, "n1": {"zone": "b"}})
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    cluster.start("x-0", 1, labels={"app": "x"}, priority=9, nodeSelector={"zone": "a"})
    cluster.start("low-a", 3, nodeSelector={"zone": "a"})
    cluster.start("low-b", 4, nodeSelector={"zone": "b"})
    found = foreseen(cluster, "x-1", 1, priority=5, labels={"app": "x"}, topologySpreadConstraints=[spread])
    assert found == ("preempt", {"low-b": 1})


ZONES = {"n0": {ZONE: "east"}, "n1": {ZONE: "west"}}


@pytest.mark.parametrize("zone", ["north", "east"])
def test_nobody_leaves_a_node_that_cannot_have_the_volume_of_the_preemptor(rooms: Rooms, zone: str) -> None:
    cluster = rooms(2, labels=ZONES)
    cluster.start_on("n0", "high", 4, priority=9)
    for number in range(2):
        cluster.start_on("n1", f"low-{number}", 2)
    cluster.pod("claims", 2, priority=5, volume_zone=zone)
    assert cluster.settle() == set()
    assert "claims" not in cluster.running()


def test_a_pod_leaves_the_node_that_can_have_the_volume_of_the_preemptor(rooms: Rooms) -> None:
    cluster = rooms(2, labels=ZONES)
    for node in ("n0", "n1"):
        for number in range(2):
            cluster.start_on(node, f"low-{node}-{number}", 2)
    cluster.pod("claims", 2, priority=5, volume_zone="west")
    assert [name[:6] for name in cluster.settle()] == ["low-n1"]
    assert cluster.running()["claims"] == "n1"


def gang(cluster: SmallRooms, *needs: dict[str, str], **more: Any) -> None:
    """A gang of a pod of 1 GPU and one of 3, with what each needs besides."""
    for size, need in zip((1, 3), needs, strict=True):
        cluster.pod(f"g-{size}", size, group="g", members=[(1, 1), (1, 3)], priority=5, needs=need, **more)


def test_the_pod_leaves_that_has_the_cpu_which_the_larger_member_lacks(rooms: Rooms) -> None:
    cluster = rooms(2)
    cluster.start_on("n0", "hog", 1, needs={"cpu": "6"})
    cluster.start_on("n0", "low", 1)
    cluster.start_on("n1", "high", 3, priority=9)
    gang(cluster, {"cpu": "1"}, {"cpu": "6"})
    assert cluster.settle() == {"hog"}
    assert cluster.running()["g-3"] == "n0"
    assert "g-1" in cluster.running()


def test_nobody_leaves_for_a_gang_of_which_the_larger_member_would_be_refused(rooms: Rooms) -> None:
    cluster = rooms(2)
    for node in ("n0", "n1"):
        cluster.start_on(node, f"high-{node}", 1, priority=9, needs={"cpu": "6"})
        cluster.start_on(node, f"low-{node}", 1)
    gang(cluster, {"cpu": "1"}, {"cpu": "6"})
    assert cluster.settle() == set()


def test_a_foreign_pod_leaves_that_has_the_host_port_which_one_member_needs(rooms: Rooms) -> None:
    cluster = rooms(2)
    for node in ("n0", "n1"):
        cluster.pod(f"foreign-{node}", is_foreign=True, node=node, rank=0, ports=[{"hostPort": 8080}])
    cluster.start_on("n0", "low", 3)
    cluster.pod("g-1", 1, group="g", members=[(1, 1), (1, 3)], priority=5, rank=10)
    cluster.pod("g-3", 3, group="g", members=[(1, 1), (1, 3)], priority=5, rank=10, ports=[{"hostPort": 8080}])
    assert cluster.settle() == {"foreign-n1"}
    assert cluster.running()["g-3"] == "n1"


def test_each_pod_of_a_gang_gets_the_place_that_was_made_for_it_whichever_asks_first(rooms: Rooms) -> None:
    cluster = rooms(2, labels=ZONES)
    cluster.start_on("n0", "hog", 3, needs={"cpu": "6"})
    cluster.start_on("n1", "low", 3)
    cluster.pod("g-1", 1, group="g", members=[(1, 1), (1, 2)], priority=5, needs={"cpu": "6"}, labels={"app": "red"})
    cluster.pod(
        "g-2",
        2,
        group="g",
        members=[(1, 1), (1, 2)],
        priority=5,
        affinity=apart(app="red"),
        nodeSelector={ZONE: "west"},
    )
    cluster.settle(6)
    running = cluster.running()
    assert (running.get("g-1"), running.get("g-2")) == ("n0", "n1")


def test_one_pod_leaves_where_its_cells_are_enough_for_the_preemptor(rooms: Rooms) -> None:
    cluster = rooms(1)
    cluster.start("small", 1, needs={"cpu": "1"})
    cluster.start("large", 3, needs={"cpu": "6"})
    cluster.pod("high", 2, priority=5, needs={"cpu": "6"})
    assert cluster.settle() == {"large"}
    assert "high" in cluster.running()


def test_a_lent_pod_stays_beside_the_preemptor_where_there_is_room_for_both(rooms: Rooms) -> None:
    cluster = rooms(1)
    cluster.start("own", 3, needs={"cpu": "6"})
    cluster.start("lent", 1, priority=-1)
    cluster.pod("high", 2, priority=5, needs={"cpu": "6"})
    assert cluster.settle() == {"own"}
    assert "high" in cluster.running()


def crowded_by_labels(rooms: Rooms) -> SmallRooms:
    """n0 has room, and a pod that keeps blue pods away; n1 and n2 are full. kube-scheduler asked about a blue pod."""
    cluster = rooms(3)
    cluster.start_on("n0", "shy", 1, priority=9, affinity=apart(app="blue"))
    for node in ("n1", "n2"):
        cluster.start_on(node, f"low-{node}", 4)
    blue = cluster.pod("blue", 2, labels={"app": "blue"}, vc="b", priority=-1)
    assert not cluster.run(blue)
    cluster.delete(blue)
    return cluster


@pytest.mark.parametrize("labels", [{}, {"app": "red"}])
def test_nobody_leaves_for_a_pod_that_others_do_not_keep_away_as_they_kept_one_that_asked_before(
    rooms: Rooms, labels: dict[str, str]
) -> None:
    cluster = crowded_by_labels(rooms)
    cluster.pod("high", 2, priority=5, labels=labels)
    assert cluster.settle() == set()
    assert cluster.running()["high"] == "n0"


def test_one_leaves_for_a_pod_that_others_keep_away_from_idle_cells(rooms: Rooms) -> None:
    cluster = crowded_by_labels(rooms)
    cluster.pod("high", 2, priority=5, labels={"app": "blue"})
    assert len(cluster.settle()) == 1
    assert cluster.running()["high"] in {"n1", "n2"}


def test_nobody_leaves_for_a_gang_whose_pods_have_room_on_different_nodes(rooms: Rooms) -> None:
    cluster = rooms(3)
    cluster.start_on("n0", "shy", 3, priority=9, affinity=apart(app="blue"))
    cluster.start_on("n1", "alone", 1, affinity=apart(app="red"))
    cluster.start_on("n2", "lent", 2, priority=-1)
    sizes: dict[str, Any] = {"group": "w", "members": [(1, 1), (1, 2)], "priority": 5}
    cluster.pod("w0", 1, labels={"app": "blue"}, needs={"cpu": "6"}, **sizes)
    cluster.pod("w1", 2, labels={"app": "red"}, **sizes)
    assert cluster.settle() == set()
    assert {"w0", "w1"} <= set(cluster.running())


def test_a_pod_starts_once_those_have_left_who_leave_already(rooms: Rooms) -> None:
    cluster = rooms(2)
    cluster.start_on("n0", "above", 2, priority=9, needs={"cpu": "6"})
    hog = cluster.pod("foreign", is_foreign=True, node="n0", needs={"cpu": "2"}, rank=1)
    cluster.start_on("n1", "full", 4, priority=9)
    hog["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    hog["metadata"]["deletionGracePeriodSeconds"] = 30
    cluster.kube.touch(hog)
    cluster.see(hog)
    cluster.pod("high", 2, priority=5, needs={"cpu": "2"}, rank=10)
    assert cluster.settle(2) == set()
    cluster.delete(hog)
    assert cluster.settle() == set()
    assert cluster.running()["high"] == "n0"


@pytest.mark.parametrize("order", [*permutations(("w0", "w1", "w2"))])
@pytest.mark.parametrize("are_in_the_way", [False, True])
def test_pods_of_one_size_leave_the_slot_to_a_mate_that_can_use_no_other(
    rooms: Rooms, order: tuple[str, ...], are_in_the_way: bool
) -> None:
    cluster = rooms(3, labels={"n0": {ZONE: "east"}, "n1": {ZONE: "west"}, "n2": {ZONE: "east"}})
    for node in cluster.names:
        cluster.start_on(node, f"above-{node}", 2, priority=9)
        if are_in_the_way:
            cluster.start_on(node, f"low-{node}", 2)
    selectors = {"w0": {}, "w1": {ZONE: "west"}, "w2": {}}
    pods = {
        name: cluster.pod(name, 2, priority=5, group="g", pods=3, nodeSelector=selector)
        for name, selector in selectors.items()
    }
    cluster.pass_time(3)
    for _, name in cluster.kube.leaving:
        cluster.delete(cluster.kube.pods[name])
    cluster.kube.leaving.clear()
    for name in order:
        cluster.run(pods[name])
    assert cluster.settle() == set()
    assert cluster.running()["w1"] == "n1"
    assert {"w0", "w2"} <= set(cluster.running())
