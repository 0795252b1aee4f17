"""Preemption where the service itself makes the victims leave (rules 27.1, 27.9)."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_extender.kube.client import KubeError
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.machine.small_cluster import (
    NODES,
    SmallCluster,
    node,
    pod_json,
    preempt_args,
    spec_text,
    tainted,
    to_pod,
)

BY_SERVICE = PreemptionPolicy(by_service=True)


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    cluster = SmallCluster(preemption=BY_SERVICE)
    yield cluster
    cluster.service.close()


def evicted(cluster: SmallCluster) -> set[str]:
    return {name for _, name in cluster.kube.leaving}


def lend_everything(cluster: SmallCluster) -> dict[str, Any]:
    """Opportunistic pods on all nodes; returns them by node."""
    return {where: pod for pod, where in (cluster.place(f"o{i}", spec_text(vc="b", priority=-1)) for i in range(4))}


def test_victims_on_all_nodes_of_a_gang_are_asked_at_once(cluster: SmallCluster) -> None:
    lend_everything(cluster)
    gang = cluster.create("g-0", spec_text(group="g", pods=2))
    reserved = set(cluster.filter(gang)["FailedNodes"])
    cluster.until(lambda: len(cluster.kube.leaving) == 2)
    assert {cluster.kube.pods[name]["spec"]["nodeName"] for name in evicted(cluster)} == reserved


def test_asking_again_evicts_nobody_twice(cluster: SmallCluster) -> None:
    lend_everything(cluster)
    for name in ("g-0", "g-1", "g-0"):
        pod = cluster.kube.pods.get(name) or cluster.create(name, spec_text(group="g", pods=2))
        cluster.filter(pod)
    cluster.until(lambda: len(cluster.kube.leaving) >= 2)
    cluster.pass_time(0.05)
    assert len(cluster.kube.leaving) == 2


def test_the_gang_runs_where_its_victims_were(cluster: SmallCluster) -> None:
    lent = lend_everything(cluster)
    gang = [cluster.create(name, spec_text(group="g", pods=2)) for name in ("g-0", "g-1")]
    reserved = set(cluster.filter(gang[0])["FailedNodes"])
    for where in reserved:
        cluster.delete(lent[where])
    assert {cluster.filter(pod)["NodeNames"][0] for pod in gang} == reserved


def test_the_preempt_verb_has_nothing_to_say_while_victims_leave(cluster: SmallCluster) -> None:
    lend_everything(cluster)
    pod = cluster.create("p")
    cluster.filter(pod)
    before = cluster.snapshot()
    assert cluster.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims == {}
    assert cluster.snapshot() == before


def test_a_pod_that_is_offered_no_node_preempts_where_no_rule_keeps_it_away(cluster: SmallCluster) -> None:
    lent = lend_everything(cluster)
    cluster.service.node_seen(tainted("n0"))
    pod = cluster.create("p")
    cluster.filter(pod, [])
    cluster.until(lambda: cluster.kube.leaving)
    assert evicted(cluster) == {lent["n1"]["metadata"]["name"]}


def test_a_reservation_that_loses_its_node_begins_anew_elsewhere(cluster: SmallCluster) -> None:
    lend_everything(cluster)
    pod = cluster.create("p")
    (lost,) = cluster.filter(pod)["FailedNodes"]
    cluster.service.node_seen(node(lost, is_ready=False))
    (found,) = cluster.filter(pod)["FailedNodes"]
    assert found != lost
    assert list(cluster.groups()["ns/p"]["physicalPlacement"]) == [found]


def test_a_reservation_that_loses_its_node_after_the_victims_left_is_not_bound_there(cluster: SmallCluster) -> None:
    lent = lend_everything(cluster)
    pod = cluster.create("p")
    (lost,) = cluster.filter(pod)["FailedNodes"]
    cluster.delete(lent[lost])
    cluster.service.node_seen(node(lost, is_ready=False))
    answer = cluster.filter(pod, [name for name in NODES if name != lost])
    assert lost not in answer["FailedNodes"]
    assert lost not in cluster.groups()["ns/p"]["physicalPlacement"]


def test_a_preemptor_that_lost_its_node_is_not_left_waiting(cluster: SmallCluster) -> None:
    lend_everything(cluster)
    pod = cluster.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    (lost,) = cluster.filter(pod)["FailedNodes"]
    cluster.service.node_seen(node(lost, is_ready=False))
    cluster.until(lambda: lost not in cluster.groups()["ns/p"]["physicalPlacement"])
    assert cluster.groups()["ns/p"]["state"] == "Preempting"


def test_victims_are_spared_when_the_preemptor_is_gone_before_they_are_evicted(cluster: SmallCluster) -> None:
    lend_everything(cluster)
    cluster.kube.refusals += [KubeError(429, "TooManyRequests", "disruption budget")]
    pod = cluster.create("p")
    cluster.filter(pod)
    cluster.until(lambda: not cluster.kube.refusals)
    cluster.delete(pod)
    cluster.pass_time(0.7)
    assert cluster.kube.leaving == []


def test_victims_are_spared_when_the_preemptor_is_being_deleted_and_something_holds_it_up(
    cluster: SmallCluster,
) -> None:
    lend_everything(cluster)
    before = cluster.snapshot()[0]
    cluster.kube.refusals += [KubeError(429, "TooManyRequests", "disruption budget")]
    pod = cluster.create("p")
    cluster.filter(pod)
    cluster.until(lambda: not cluster.kube.refusals)
    # Pods of jobs have a finalizer, and keep it until somebody finds that they will not start any more.
    pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["batch.kubernetes.io/job-tracking"]}
    cluster.kube.touch(pod)
    cluster.see(pod)
    cluster.pass_time(0.7)
    assert cluster.kube.leaving == []
    assert cluster.snapshot()[0] == before


def test_a_lazily_preempted_group_can_be_a_victim(cluster: SmallCluster) -> None:
    for name in ("low-0", "low-1"):
        cluster.place(name, spec_text(lazyPreemptionEnable=True))
    for name in ("high-0", "high-1"):
        cluster.place(name, spec_text(priority=5))
    lazy = [name for name, group in cluster.groups().items() if group.get("lazyPreemptionStatus")]
    assert set(lazy) == {"ns/low-0", "ns/low-1"}
    cluster.filter(cluster.create("p", spec_text(vc="b")))
    cluster.until(lambda: cluster.kube.leaving)
    assert evicted(cluster) < {"low-0", "low-1"}


def test_a_pod_that_joins_the_victims_later_is_asked_to_leave_too(cluster: SmallCluster) -> None:
    gang = [cluster.create(name, spec_text(group="v", pods=2)) for name in ("v-0", "v-1")]
    (where,) = cluster.filter(gang[0])["NodeNames"]
    cluster.bind(gang[0], where)
    cluster.see(gang[0])
    (reserved,) = cluster.filter(cluster.create("p", spec_text(priority=5)))["FailedNodes"]
    (other,) = cluster.filter(gang[1])["NodeNames"]
    assert (where, where) == (reserved, where) != (other, other)
    cluster.bind(gang[1], other)
    cluster.see(gang[1])
    cluster.until(lambda: evicted(cluster) == {"v-0"})
    cluster.delete(gang[0])
    cluster.until(lambda: evicted(cluster) == {"v-0", "v-1"})
    assert cluster.groups()["ns/p"]["state"] == "Preempting"


def test_a_term_that_ends_spares_victims_not_evicted_yet(cluster: SmallCluster) -> None:
    lend_everything(cluster)
    cluster.kube.refusals += [KubeError(429, "TooManyRequests", "disruption budget")]
    cluster.filter(cluster.create("p"))
    cluster.until(lambda: not cluster.kube.refusals)
    cluster.service.follow("another leads")
    cluster.pass_time(0.7)
    assert cluster.kube.leaving == []


def test_a_pod_whose_gate_is_taken_away_is_preempted_for(cluster: SmallCluster) -> None:
    lend_everything(cluster)
    pod = pod_json("gated", spec_text())
    pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    cluster.kube.add(pod)
    cluster.service.pod_seen(to_pod(pod))
    cluster.pass_time(0.2)
    assert evicted(cluster) == set()
    del pod["spec"]["schedulingGates"]
    cluster.kube.touch(pod)
    cluster.service.pod_seen(to_pod(pod))
    cluster.until(lambda: evicted(cluster))
    assert len(evicted(cluster)) == 1


def test_a_pod_that_loses_its_node_when_it_has_been_woken_is_preempted_for_anew(cluster: SmallCluster) -> None:
    lent = lend_everything(cluster)
    pod = cluster.create("p")
    (lost,) = cluster.filter(pod)["FailedNodes"]
    cluster.until(lambda: cluster.kube.leaving)
    cluster.delete(lent[lost])
    cluster.until(lambda: "/api/v1/namespaces/ns/pods/p" in [path for path, _ in cluster.kube.patches])
    # kube-scheduler finds no node for it from now on, and so never asks.
    cluster.service.node_seen(node(lost, is_ready=False))
    cluster.until(lambda: len(cluster.kube.leaving) == 2)
    assert lost not in cluster.groups()["ns/p"]["physicalPlacement"]


def test_a_pod_whose_place_is_taken_before_anybody_asks_about_it_is_preempted_for(cluster: SmallCluster) -> None:
    cluster.create("p")
    cluster.pass_time(1)  # it was tried, and there was room
    lend_everything(cluster)  # by kube-scheduler, which finds no node for the pod then
    cluster.until(lambda: cluster.kube.leaving)
    assert cluster.groups()["ns/p"]["state"] == "Preempting"


def test_a_pod_is_woken_once_until_kube_scheduler_asks_about_it(cluster: SmallCluster) -> None:
    lent = lend_everything(cluster)
    waiting = cluster.create("p", spec_text(vc="b", priority=-1))
    cluster.filter(waiting)

    def wakings() -> int:
        return sum(path.endswith("/pods/p") for path, _ in cluster.kube.patches)

    for where in ("n0", "n1"):
        cluster.delete(lent[where])
        cluster.until(wakings)
        cluster.pass_time(0.1)
    assert wakings() == 1


def test_a_pod_is_woken_for_a_node_that_is_well_again_although_it_was_not_offered(cluster: SmallCluster) -> None:
    cluster.service.node_seen(node("n3", False))
    used = [cluster.place(name, spec_text("a", leaf_cells=4))[1] for name in ("p", "q")]
    refused = cluster.filter(cluster.create("r", spec_text("b", leaf_cells=4)), used)
    assert "Kubernetes rules out" in refused["FailedNodes"]["hivedscheduler"]
    cluster.service.node_seen(node("n3", True))
    cluster.until(lambda: [path for path, _ in cluster.kube.patches if path.endswith("/pods/r")])
    assert cluster.filter(cluster.kube.pods["r"], ["n3"])["NodeNames"] == ["n3"]
