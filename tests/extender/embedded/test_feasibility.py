"""What the scheduler loop knows without the extender."""

from typing import Any

import pytest

from hived_extender.embedded.apiserver.models import Node, view_of
from hived_extender.embedded.feasibility import ClusterView, SeenPod, explain

from .helpers import pod


def seen(
    name: str, *, priority: int = 0, node: str = "", status: dict[str, Any] | None = None, **fields: Any
) -> SeenPod:
    metadata = {"metadata": {"name": name, "namespace": "ns", "uid": name, **fields.pop("metadata", {})}}
    body = pod(name, priority=priority, nodeName=node, **fields)
    return SeenPod.read({**body, **metadata, "status": status or {}})


def node(ready: str = "True", labels: dict[str, str] | None = None, **spec: Any) -> Node:
    body = {
        "metadata": {"labels": labels or {}},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    return view_of(body, Node)


@pytest.fixture
def cluster() -> ClusterView:
    """Four nodes, of which one is cordoned and one is not ready."""
    view = ClusterView()
    view.nodes = {
        "b": node(labels={"disk": "fast"}),
        "a": node(),
        "cordoned": node(unschedulable=True),
        "down": node("Unknown"),
    }
    return view


def test_nodes_that_are_ready_and_open_are_feasible(cluster: ClusterView) -> None:
    assert cluster.feasible_nodes(seen("p")) == (
        ["a", "b"],
        {"cordoned": "node(s) were unschedulable", "down": "node(s) were not ready"},
    )


def test_a_node_selector_is_respected(cluster: ClusterView) -> None:
    feasible, refused = cluster.feasible_nodes(seen("p", nodeSelector={"disk": "fast"}))
    assert feasible == ["b"]
    assert refused["a"] == "node(s) didn't match Pod's node affinity/selector"


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


def test_every_occupied_node_is_a_candidate_with_its_lower_pods(cluster: ClusterView) -> None:
    for other in (seen("low", node="a"), seen("peer", node="a", priority=5), seen("high", node="b", priority=9)):
        cluster.put_pod(other)
    assert cluster.preemption_candidates(seen("p", priority=5), ["a", "b"]) == {"a": ["low"], "b": []}
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
    reasons = {
        "a": "node(s) were not ready",
        "b": "node(s) were not ready",
        "c": "too small",
        "extender": "gang incomplete",
    }
    text = explain(4, reasons, ["a", "b", "c", "d"])
    assert text == "0/4 nodes are available: gang incomplete, 1 too small, 2 node(s) were not ready."
    assert explain(0, {}, []) == "0/0 nodes are available."
