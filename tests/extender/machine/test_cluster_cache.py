"""Facts about pods and nodes that come late, twice or in another order than they happened."""

import random
import threading

import msgspec
import pytest

from hived_extender.jobs.annotations import BIND_INFO
from hived_extender.jobs.wire import Node, Pod
from hived_extender.machine import pods
from tests.extender.machine.small_cluster import NODES, SmallCluster, node, node_json, pod_json, spec_text, to_pod

LOST = '"preassignedCellTypes":["",'


def versioned(name: str, version: int, is_ready: bool) -> Node:
    value = node_json(name, is_ready)
    value["metadata"]["resourceVersion"] = str(version)
    return msgspec.convert(value, Node)


def pod_at(name: str, version: int) -> Pod:
    value = pod_json(name, spec_text())
    value["metadata"]["resourceVersion"] = str(version)
    return to_pod(value)


def test_a_pod_seen_late_does_not_undo_its_binding() -> None:
    cluster = SmallCluster()
    cluster.place("p")
    before = cluster.snapshot()
    cluster.service.pod_seen(pod_at("p", 1))
    assert cluster.snapshot() == before
    assert cluster.pod_counts() == {"Bound": 1}


def test_a_pod_seen_after_it_was_deleted_does_not_come_back() -> None:
    cluster = SmallCluster()
    pod, _ = cluster.place("p")
    last = to_pod(cluster.kube.pods["p"])
    cluster.delete(pod)
    empty = cluster.snapshot()
    cluster.service.pod_seen(last)
    assert (cluster.pod_counts(), cluster.snapshot()) == ({}, empty)


def test_a_deletion_told_twice_is_one() -> None:
    cluster = SmallCluster()
    pod, _ = cluster.place("p")
    cluster.delete(pod)
    cluster.place("q")
    before = cluster.snapshot()
    cluster.service.pod_gone(pod["metadata"]["uid"])
    assert cluster.snapshot() == before


def test_pods_of_others_do_not_make_us_forget_which_of_ours_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "REMEMBERED_ENDS", 8)
    cluster = SmallCluster()
    pod = cluster.create("p")
    last = to_pod(pod)
    cluster.delete(pod)
    for number in range(20):
        other = pod_json(f"other{number}")
        other["spec"]["containers"] = []
        cluster.service.pod_seen(to_pod(other))
    cluster.service.pod_seen(last)
    assert cluster.pod_counts() == {}


def test_a_list_of_a_restored_api_server_is_believed() -> None:
    cluster = SmallCluster()
    pod, _ = cluster.place("p")
    before = cluster.snapshot()
    newest = cluster.kube.pods["p"]
    cluster.delete(pod)
    newest["metadata"]["resourceVersion"] = "7"
    cluster.service.sync_pods([to_pod(newest)])
    assert cluster.pod_counts() == {"Bound": 1}
    assert cluster.snapshot() == before


def test_a_pod_of_a_restored_api_server_can_be_bound() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    pod["metadata"]["resourceVersion"] = "7"
    cluster.service.sync_pods([to_pod(pod)])
    (where,) = cluster.filter(pod)["NodeNames"]
    cluster.bind(pod, where)
    assert (pod["spec"]["nodeName"], cluster.kube.bind_calls) == (where, [("p", where)])


def test_a_node_seen_late_stays_as_it_is() -> None:
    cluster = SmallCluster()
    cluster.service.node_seen(versioned("n0", 20, is_ready=False))
    cluster.service.node_seen(versioned("n0", 10, is_ready=True))
    assert cluster.service.metrics.registry.get_sample_value("hived_bad_nodes") == 1


def test_a_node_seen_after_it_was_deleted_stays_bad() -> None:
    cluster = SmallCluster()
    cluster.service.node_gone(versioned("n0", 20, is_ready=True))
    cluster.service.node_seen(versioned("n0", 19, is_ready=True))
    assert cluster.service.metrics.registry.get_sample_value("hived_bad_nodes") == 1


def test_the_nodes_of_a_restored_api_server_are_believed() -> None:
    cluster = SmallCluster()
    cluster.service.node_seen(versioned("n0", 20, is_ready=False))
    cluster.service.sync_nodes([versioned(name, 5, is_ready=True) for name in NODES])
    assert cluster.service.metrics.registry.get_sample_value("hived_bad_nodes") == 0


def test_threads_that_tell_of_one_node_end_with_the_newest() -> None:
    cluster = SmallCluster()
    versions = list(range(1, 401))
    random.Random(1).shuffle(versions)

    def tell(some: list[int]) -> None:
        for version in some:
            cluster.service.node_seen(versioned("n0", version, is_ready=version != 400 and version % 2 == 0))

    threads = [threading.Thread(target=tell, args=(versions[number::4],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cluster.service.metrics.registry.get_sample_value("hived_bad_nodes") == 1


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(20))
def test_events_in_any_order_and_number_end_in_the_same_state(seed: int) -> None:
    """The lives of some pods, each told in order once, against all of that told at random, twice and shuffled."""
    chance = random.Random(seed)
    source = SmallCluster()
    lives: list[list[Pod]] = []
    for number in range(6):
        spec = spec_text(vc="a", leaf_cells=2) if number < 2 else spec_text(vc=chance.choice("ab"), leaf_cells=1)
        pod = source.create(f"p{number}", spec)
        seen = [to_pod(pod)]
        (where,) = source.filter(pod)["NodeNames"]
        source.bind(pod, where)
        seen.append(to_pod(pod))
        source.see(pod)
        source.kube.touch(pod)
        seen.append(to_pod(pod))
        lives.append(seen)
    ended = set(chance.sample(range(6), 2))
    for number in ended:
        source.delete(source.kube.pods[f"p{number}"])
    other = SmallCluster()
    events = [(number, pod) for number, life in enumerate(lives) for pod in life] * 2
    events += [(number, None) for number in ended]
    chance.shuffle(events)
    for number, event in events:
        if event is None:
            other.service.pod_gone(f"uid-p{number}")
        else:
            other.service.pod_seen(event)
    other.service.follow("somebody leads")
    other.lead()
    source.service.follow("somebody leads")
    source.lead()
    assert other.snapshot() == source.snapshot()


def test_a_pod_that_completed_is_not_taken_for_running_again() -> None:
    cluster = SmallCluster()
    empty = cluster.snapshot()
    pod, _ = cluster.place("p")
    running = to_pod(pod)
    pod["status"]["phase"] = "Succeeded"
    cluster.kube.touch(pod)
    cluster.see(pod)
    cluster.service.pod_seen(running)
    assert (cluster.snapshot(), cluster.pod_counts()) == (empty, {})


def test_nodes_before_pods_or_after_make_no_difference() -> None:
    first = SmallCluster(bad_nodes=NODES)
    second = SmallCluster()
    pod, _ = second.place("p")
    first.service.pod_seen(to_pod(pod))
    for name in NODES:
        first.service.node_seen(node(name))
    assert first.groups()["ns/p"]["physicalPlacement"] == second.groups()["ns/p"]["physicalPlacement"]


def lazily_preempted() -> SmallCluster:
    """VC a is full of two lazy groups; one of them has lost its place to `high`, which is bound and then gone."""
    cluster = SmallCluster()
    for name in ("low-0", "low-1"):
        cluster.place(name, spec_text(lazyPreemptionEnable=True))
    cluster.place("high", spec_text(priority=5))
    return cluster


def places(cluster: SmallCluster) -> dict[str, bool]:
    return {name: bool(status.get("virtualPlacement")) for name, status in cluster.groups().items()}


def test_a_group_that_was_preempted_lazily_is_written_down_as_such() -> None:
    cluster = lazily_preempted()
    (loser,) = (name for name, has_place in places(cluster).items() if not has_place)
    pod = cluster.kube.pods[loser.removeprefix("ns/")]
    cluster.until(lambda: LOST in pod["metadata"]["annotations"][BIND_INFO])
    others = [cluster.kube.pods[name] for name in cluster.kube.pods if f"ns/{name}" != loser]
    assert all(LOST not in other["metadata"]["annotations"][BIND_INFO] for other in others)


def test_a_rebuild_does_not_take_a_place_from_who_has_it_now() -> None:
    cluster = lazily_preempted()
    cluster.delete(cluster.kube.pods["high"])
    cluster.place("newcomer", spec_text())
    before = places(cluster)
    assert before["ns/newcomer"]
    (loser,) = (name for name, has_place in before.items() if not has_place)
    pod = cluster.kube.pods[loser.removeprefix("ns/")]
    cluster.until(lambda: LOST in pod["metadata"]["annotations"][BIND_INFO])
    rebuilt = SmallCluster(is_leading=False)
    rebuilt.service.sync_pods([to_pod(one) for one in cluster.kube.pods.values()])
    rebuilt.lead()
    assert places(rebuilt) == before


def test_a_follower_heeds_annotations_that_the_leader_writes_anew() -> None:
    cluster, follower = SmallCluster(), SmallCluster(is_leading=False)
    for name in ("low-0", "low-1"):
        follower.service.pod_seen(to_pod(cluster.place(name, spec_text(lazyPreemptionEnable=True))[0]))
    cluster.place("high", spec_text(priority=5))
    pods_now = cluster.kube.pods.values()
    cluster.until(lambda: any(LOST in pod["metadata"]["annotations"][BIND_INFO] for pod in pods_now))
    for pod in pods_now:
        follower.service.pod_seen(to_pod(pod))
    follower.lead()
    assert places(follower) == places(cluster)
