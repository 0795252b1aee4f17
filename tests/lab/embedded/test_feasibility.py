"""The rules that the scheduler loop knows without the extender."""

from typing import Any

import pytest

from hived_lab.embedded.scheduler import ClusterView, SeenNode, SeenPod, explain
from tests.lab.embedded.helpers import pod


def seen(
    name: str, *, priority: int = 0, node: str = "", status: dict[str, Any] | None = None, **fields: Any
) -> SeenPod:
    metadata = {"metadata": {"name": name, "namespace": "ns", "uid": name, **fields.pop("metadata", {})}}
    body = pod(name, priority=priority, nodeName=node, **fields)
    return SeenPod.read({**body, **metadata, "status": status or {}})


def node(name: str, ready: str = "True", labels: dict[str, str] | None = None, **spec: Any) -> SeenNode:
    body = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"cpu": "2", "pods": "9"}},
    }
    return SeenNode.read(body)


@pytest.fixture
def cluster() -> ClusterView:
    """Four nodes, of which one is cordoned and one is not ready."""
    view = ClusterView()
    nodes = [
        node("b", labels={"disk": "fast"}),
        node("a"),
        node("cordoned", unschedulable=True),
        node("down", "Unknown"),
    ]
    view.nodes = {each.name: each for each in nodes}
    return view


def reasons(cluster: ClusterView, pod: SeenPod) -> dict[str, str]:
    return {name: ", ".join(refusal.reasons) for name, refusal in cluster.refused_nodes(pod).items()}


CLOSED = {"cordoned": "node(s) were unschedulable", "down": "node(s) were not ready"}


def test_nodes_that_are_ready_and_open_are_feasible(cluster: ClusterView) -> None:
    assert reasons(cluster, seen("p")) == CLOSED


def test_a_node_selector_is_respected(cluster: ClusterView) -> None:
    refused = reasons(cluster, seen("p", nodeSelector={"disk": "fast"}))
    assert refused["a"] == "node(s) didn't match Pod's node affinity/selector"


def cpu(count: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": count}}}]}


def test_what_pods_use_is_not_there_for_others(cluster: ClusterView) -> None:
    cluster.put_pod(seen("first", node="a", **cpu("2")))
    assert reasons(cluster, seen("p", **cpu("1"))) == {**CLOSED, "a": "Insufficient cpu"}
    cluster.put_pod(seen("first", node="a", status={"phase": "Succeeded"}, **cpu("2")))
    assert reasons(cluster, seen("p", **cpu("1"))) == CLOSED


def test_a_pod_counts_from_the_moment_that_it_is_being_bound(cluster: ClusterView) -> None:
    pod = seen("first", **cpu("2"))
    cluster.put_pod(pod)
    cluster.assume(pod, "a")
    cluster.put_pod(pod)
    assert reasons(cluster, seen("p", **cpu("1")))["a"] == "Insufficient cpu"
    cluster.take_back("first")
    assert reasons(cluster, seen("p", **cpu("1"))) == CLOSED


def test_a_binding_that_failed_late_takes_nothing_back_from_a_pod_that_has_its_node(cluster: ClusterView) -> None:
    pod = seen("first", **cpu("2"))
    cluster.put_pod(pod)
    cluster.assume(pod, "a")
    cluster.put_pod(seen("first", node="a", **cpu("2")))
    cluster.take_back("first")
    assert reasons(cluster, seen("p", **cpu("1")))["a"] == "Insufficient cpu"


def test_a_pod_that_is_gone_before_it_is_bound_counts_nowhere(cluster: ClusterView) -> None:
    pod = seen("p", **cpu("2"))
    cluster.put_pod(pod)
    cluster.remove_pod("p")
    cluster.assume(pod, "a")
    assert "a" not in reasons(cluster, seen("q", **cpu("2")))
    assert cluster.preemption_candidates(seen("r", priority=1), ["a"]) == {}


def test_pods_whose_rules_look_at_others_are_known_until_they_have_a_node(cluster: ClusterView) -> None:
    terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]
    affinity = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    cluster.put_pod(seen("plain"))
    cluster.put_pod(seen("choosy", **affinity))
    assert cluster.choosy_pods() == ["choosy"]
    cluster.put_pod(seen("choosy", node="a", **affinity))
    assert cluster.choosy_pods() == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"node": "a"}, False),
        ({"status": {"phase": "Failed"}}, False),
        ({"schedulingGates": [{"name": "x"}]}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
    ],
)
def test_a_pod_is_schedulable_while_it_waits_for_a_node(fields: dict[str, Any], expected: bool) -> None:
    assert seen("p", **fields).is_schedulable is expected


def test_only_changes_besides_the_status_count() -> None:
    before = seen("p")
    assert not seen("p", status={"phase": "Pending"}).differs_besides_status(before)
    assert not seen("p", metadata={"resourceVersion": "7"}).differs_besides_status(before)
    assert seen("p", metadata={"annotations": {"a": "b"}}).differs_besides_status(before)


def test_a_node_with_lower_pods_is_a_candidate(cluster: ClusterView) -> None:
    for other in (seen("low", node="a"), seen("peer", node="a", priority=5), seen("high", node="b", priority=9)):
        cluster.put_pod(other)
    assert cluster.preemption_candidates(seen("p", priority=5), ["a", "b"]) == {"a": ["low"]}
    cluster.remove_pod("low")
    cluster.remove_pod("peer")
    assert cluster.preemption_candidates(seen("p", priority=5), ["a"]) == {}


def test_a_pod_does_not_preempt_again_while_its_victims_leave(cluster: ClusterView) -> None:
    nominated = seen("p", status={"nominatedNodeName": "a"})
    assert cluster.may_preempt(nominated)
    cluster.put_pod(seen("victim", node="a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    assert not cluster.may_preempt(nominated)
    assert cluster.may_preempt(seen("other"))


def test_a_pod_may_renounce_preemption(cluster: ClusterView) -> None:
    assert not cluster.may_preempt(seen("p", preemptionPolicy="Never"))


def test_victims_are_taken_where_it_hurts_least(cluster: ClusterView) -> None:
    for name, place, priority in (("a1", "a", 3), ("b1", "b", 1), ("b2", "b", 1), ("c1", "c", 1), ("d1", "d", 1)):
        cluster.put_pod(seen(name, node=place, priority=priority))
    where, victims = cluster.choose_victims({"a": ["a1"], "b": ["b1", "b2"], "d": ["d1"], "c": ["c1"]})
    assert (where, [victim.uid for victim in victims]) == ("c", ["c1"])


def test_victims_that_are_gone_are_left_out(cluster: ClusterView) -> None:
    cluster.put_pod(seen("a1", node="a"))
    assert [victim.uid for victim in cluster.choose_victims({"a": ["a1", "gone"]})[1]] == ["a1"]


def test_a_pod_that_moves_is_counted_once(cluster: ClusterView) -> None:
    assert cluster.put_pod(seen("p")) is None
    known = cluster.put_pod(seen("p", node="a"))
    assert known is not None
    assert known.node == ""
    assert cluster.preemption_candidates(seen("q", priority=1), ["a"]) == {"a": ["p"]}


def test_reasons_of_nodes_are_counted_and_others_stand_by_themselves() -> None:
    told = {
        "a": ["node(s) were not ready"],
        "b": ["node(s) were not ready", "too small"],
        "c": ["too small"],
        "extender": ["gang incomplete"],
    }
    text = explain(["a", "b", "c", "d"], told)
    assert text == "0/4 nodes are available: gang incomplete, 2 node(s) were not ready, 2 too small."
    assert explain([], {}) == "0/0 nodes are available."
