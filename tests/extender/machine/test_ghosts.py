"""An opportunistic affinity group takes no cells before all of its pods exist (rule 26.14)."""

from typing import Any

import pytest

from tests.extender.machine.small_cluster import NODES, Json, SmallCluster, spec_text

GHOSTS = (
    "affinity group ns:g is opportunistic and has 1 of its 4 pods: it waits for the others, 2 minutes after the newest "
    "one at most"
)


def member(pods: int = 4, priority: int = -1, group: str = "g") -> str:
    return spec_text("a", leaf_cells=4, group=group, pods=pods, priority=priority)


def waits(result: Any) -> str:
    (text,) = result["FailedNodes"].values()
    return str(text)


def test_one_pod_of_an_opportunistic_group_takes_no_cells_for_ghosts() -> None:
    cluster = SmallCluster()
    assert GHOSTS in waits(cluster.filter(cluster.create("g-0", member())))
    assert cluster.groups() == {}
    for number in range(4):  # an honest tenant has all of the cluster
        cluster.place(f"honest-{number}", spec_text("b", priority=-1))


def test_it_starts_with_its_last_pod() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member()) for number in range(3)]
    for pod in pods:
        assert "of its 4 pods" in waits(cluster.filter(pod))
    pods.append(cluster.create("g-3", member()))
    nodes = {cluster.filter(pod)["NodeNames"][0] for pod in reversed(pods)}
    assert len(nodes) == 4


def test_its_first_pods_are_woken_when_the_last_one_exists() -> None:
    """Else kube-scheduler may leave them alone for minutes, and the gang runs in part."""
    cluster = SmallCluster()
    first = cluster.create("g-0", member(2))
    assert "of its 2 pods" in waits(cluster.filter(first))
    last = cluster.create("g-1", member(2))
    cluster.bind(last, cluster.filter(last)["NodeNames"][0])
    cluster.until(lambda: any(path.endswith("/pods/g-0") for path, _ in cluster.kube.patches))


def test_a_member_that_leaves_before_the_start_does_not_count() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member(2)) for number in range(2)]
    pods[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.see(pods[0])
    assert "has 1 of its 2 pods" in waits(cluster.filter(pods[1]))


def test_members_that_a_gate_holds_do_not_count() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member(2)) for number in range(2)]
    pods[0]["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    cluster.see(pods[0])
    assert "has 1 of its 2 pods" in waits(cluster.filter(pods[1]))


def test_small_members_do_not_stand_for_large_ones() -> None:
    cluster = SmallCluster()
    members = [{"podNumber": 1, "leafCellNumber": 1}, {"podNumber": 3, "leafCellNumber": 4}]
    group = {"name": "g", "members": members}
    pods = [
        cluster.create(f"g-{number}", spec_text(leaf_cells=1, priority=-1, affinityGroup=group)) for number in range(4)
    ]
    assert "has 1 of its 4 pods" in waits(cluster.filter(pods[0]))


def test_a_member_that_others_gate_does_not_count_until_it_may_start() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member(2)) for number in range(2)]
    pods[0]["spec"]["schedulingGates"] = [{"name": "example.com/never"}]
    cluster.see(pods[0])
    assert "has 1 of its 2 pods" in waits(cluster.filter(pods[1]))
    del pods[0]["spec"]["schedulingGates"]
    cluster.see(pods[0])
    assert len({cluster.filter(pod)["NodeNames"][0] for pod in reversed(pods)}) == 2


def test_a_member_that_comes_again_joins_its_running_group() -> None:
    cluster = SmallCluster()
    pods: list[Json] = [cluster.create(f"g-{number}", member(2)) for number in range(2)]
    for pod in pods:
        cluster.bind(pod, cluster.filter(pod)["NodeNames"][0])
        cluster.see(pod)
    cluster.delete(pods[0])
    assert cluster.filter(cluster.create("g-new", member(2)))["NodeNames"]


@pytest.mark.parametrize("priority", [0, 5])
def test_a_guaranteed_group_takes_cells_of_its_own_virtual_cluster_with_its_first_pod(priority: int) -> None:
    cluster = SmallCluster()
    assert cluster.filter(cluster.create("g-0", member(2, priority)))["NodeNames"]


def test_a_group_of_one_pod_waits_for_nobody() -> None:
    cluster = SmallCluster()
    assert cluster.filter(cluster.create("g-0", member(1)))["NodeNames"]


# ---- mates that do not come


def test_after_two_minutes_the_pods_that_exist_start_together() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member(3)) for number in range(2)]
    assert "has 2 of its 3 pods" in waits(cluster.filter(pods[0]))
    cluster.pass_time(119)
    assert "has 2 of its 3 pods" in waits(cluster.filter(pods[1]))
    cluster.pass_time(2)
    assert len({cluster.filter(pod)["NodeNames"][0] for pod in pods}) == 2
    (group,) = cluster.groups().values()
    assert len(group["physicalPlacement"]) == 2  # and no cells for a ghost


def test_they_wait_for_room_for_all_of_them() -> None:
    cluster = SmallCluster()
    placed = [cluster.place(f"other-{number}", spec_text("b", priority=-1, leaf_cells=4)) for number in range(3)]
    pods = [cluster.create(f"g-{number}", member(3)) for number in range(2)]
    assert "has 2 of its 3 pods" in waits(cluster.filter(pods[0]))
    cluster.pass_time(121)
    assert "of its 3 pods" not in waits(cluster.filter(pods[0]))
    assert "FailedNodes" in cluster.filter(pods[1])
    cluster.delete(placed[0][0])
    assert len({cluster.filter(pod)["NodeNames"][0] for pod in pods}) == 2


def test_each_new_pod_begins_the_two_minutes_anew() -> None:
    cluster = SmallCluster()
    first = cluster.create("g-0", member())
    assert GHOSTS in waits(cluster.filter(first))
    cluster.pass_time(100)
    second = cluster.create("g-1", member())
    cluster.pass_time(100)
    assert "has 2 of its 4 pods" in waits(cluster.filter(second))
    cluster.pass_time(21)
    assert cluster.filter(first)["NodeNames"] != cluster.filter(second)["NodeNames"]


def test_a_pod_that_comes_before_the_start_in_part_is_waited_for_with_the_others() -> None:
    cluster = SmallCluster()
    for number in range(4):
        cluster.place(f"other-{number}", spec_text("b", priority=-1, leaf_cells=4))
    pods = [cluster.create("g-0", member(3))]
    waits(cluster.filter(pods[0]))
    cluster.pass_time(121)
    assert "of its 3 pods" not in waits(cluster.filter(pods[0]))
    pods.append(cluster.create("g-1", member(3)))
    assert "has 2 of its 3 pods" in waits(cluster.filter(pods[0]))


def test_a_pod_that_comes_after_the_start_in_part_starts_by_itself() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member(3)) for number in range(2)]
    waits(cluster.filter(pods[0]))
    cluster.pass_time(121)
    for pod in pods:
        cluster.bind(pod, cluster.filter(pod)["NodeNames"][0])
        cluster.see(pod)
    late = cluster.create("g-2", member(3))
    cluster.bind(late, cluster.filter(late)["NodeNames"][0])
    cluster.see(late)
    assert len(cluster.groups()) == 2
    before = cluster.snapshot()
    cluster.lead()
    assert cluster.snapshot() == before


def test_the_rest_of_a_gang_whose_first_pods_ended_under_another_leader_starts() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member(3)) for number in range(3)]
    cluster.bind(pods[2], cluster.filter(pods[2])["NodeNames"][0])
    cluster.see(pods[2])
    cluster.service.follow("another leads")
    pods[2]["status"]["phase"] = "Succeeded"
    cluster.see(pods[2])
    cluster.delete(pods[2])
    cluster.lead()
    assert "has 2 of its 3 pods" in waits(cluster.filter(pods[0]))
    cluster.pass_time(121)
    assert len({cluster.filter(pod)["NodeNames"][0] for pod in pods[:2]}) == 2


def test_a_group_that_started_in_part_stays_whole_if_its_binding_is_undone() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member(3)) for number in range(2)]
    waits(cluster.filter(pods[0]))
    cluster.pass_time(121)
    for pod in pods:
        assert cluster.filter(pod)["NodeNames"]
    cluster.service.follow("another leads")
    cluster.lead()
    placed = [cluster.place(f"other-{number}", spec_text("b", priority=-1, leaf_cells=4))[0] for number in range(3)]
    for pod in pods:
        assert "FailedNodes" in cluster.filter(pod), "one node is free, and the two start together"
    cluster.delete(placed[0])
    assert len({cluster.filter(pod)["NodeNames"][0] for pod in pods}) == 2


def test_a_pod_whose_node_was_refused_keeps_its_place_in_a_group_that_started_in_part() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"g-{number}", member(3)) for number in range(2)]
    waits(cluster.filter(pods[0]))
    cluster.pass_time(121)
    (first,) = cluster.filter(pods[0])["NodeNames"]
    others = [name for name in NODES if name != first]
    assert cluster.filter(pods[0], others)["NodeNames"] != [first]
    assert cluster.filter(pods[1])["NodeNames"]
    assert len(cluster.groups()) == 1


def test_a_pod_that_comes_while_another_replica_leads_is_waited_for_too() -> None:
    cluster = SmallCluster()
    for number in range(4):
        cluster.place(f"other-{number}", spec_text("b", priority=-1, leaf_cells=4))
    pods = [cluster.create(f"g-{number}", member(4)) for number in range(2)]
    waits(cluster.filter(pods[0]))
    cluster.pass_time(121)
    assert "of its 4 pods" not in waits(cluster.filter(pods[0]))
    cluster.service.follow("another leads")
    pods.append(cluster.create("g-2", member(4)))
    cluster.lead()
    for pod in pods:
        assert "has 3 of its 4 pods" in waits(cluster.filter(pod))


def test_a_part_that_loses_a_pod_before_its_start_tells_the_count_of_the_group_and_starts_without_it() -> None:
    cluster = SmallCluster()
    placed = [cluster.place(f"other-{number}", spec_text("b", priority=-1, leaf_cells=4))[0] for number in range(4)]
    pods = [cluster.create(f"g-{number}", member()) for number in range(3)]
    waits(cluster.filter(pods[0]))
    cluster.pass_time(121)
    assert "of its 4 pods" not in waits(cluster.filter(pods[0])), "the three ask for cells"
    cluster.delete(pods.pop())
    assert "has 2 of its 4 pods" in waits(cluster.filter(pods[0]))
    cluster.pass_time(121)
    for other in placed[:2]:
        cluster.delete(other)
    assert len({cluster.filter(pod)["NodeNames"][0] for pod in pods}) == 2
