"""The queue and the view of the scheduler loop, on a clock of the test's own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hived_lab.embedded.scheduler import ClusterView, Pace, SchedulingQueue, SeenNode, SeenPod, explain
from tests.lab.embedded.helpers import pod

PACE = Pace(backoff_initial_s=1, backoff_longest_s=10, flush_s=300, settle_s=0.5)


def pop_all(queue: SchedulingQueue, now: float) -> list[str]:
    popped = []
    while (uid := queue.pop(now)) is not None:
        popped.append(uid)
    return popped


def test_higher_priority_goes_first_then_who_came_first() -> None:
    queue = SchedulingQueue(PACE)
    for uid, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("a", 9)):
        queue.add(uid, priority)
    assert pop_all(queue, 0) == ["b", "d", "a", "c"]


@pytest.mark.parametrize(
    ("steps", "due"),
    [
        ("park 0", 300),
        ("park 10", 310),
        ("park 0, wake 299", 299.5),
        ("park 0, wake 0.1", 1),
        ("wake 0, park 0", 1),
        ("wake 0, park 0, pop 1, park 1", 301),
        ("defer 0, pop 1, defer 1", 3),
        ("defer 0, pop 1, defer 1, pop 3, defer 3", 7),
        ("defer 0, pop 1, defer 1, pop 3, defer 3, pop 7, defer 7, pop 15, defer 15", 25),
    ],
)
def test_a_pod_that_was_tried_is_due_after_an_event_and_its_back_off(steps: str, due: float) -> None:
    queue = SchedulingQueue(PACE)
    queue.add("a", 0)
    assert queue.pop(0) == "a"
    for verb, now in (step.split() for step in steps.split(", ")):
        getattr(queue, verb)(*(["a"] if verb != "pop" else []), float(now))
    assert queue.next_due() == due
    assert queue.pop(due - 0.01) is None
    assert queue.pop(due) == "a"


def test_a_removed_pod_is_gone_wherever_it_was_and_may_come_again() -> None:
    queue = SchedulingQueue(PACE)
    for uid in "abcd":
        queue.add(uid, 0)
    for uid in ("a", "b"):
        assert queue.pop(0) == uid
    queue.park("a", 0)
    for uid in "abc":
        queue.remove(uid)
    queue.park("b", 0)
    queue.defer("b", 0)
    queue.add("c", 0)
    assert pop_all(queue, 1000) == ["d", "c"]
    assert ("b" in queue, len(queue)) == (False, 2)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "pop", "park", "defer", "wake", "wake_all", "time"]),
            st.sampled_from("abc"),
        )
    )
)
def test_no_pod_is_lost_or_taken_twice(steps: list[tuple[str, str]]) -> None:
    queue, now = SchedulingQueue(PACE), 0.0
    waiting: set[str] = set()
    in_flight: set[str] = set()
    for step, uid in steps:
        if step == "add":
            queue.add(uid, 0)
            waiting |= {uid} - in_flight
        elif step == "remove":
            queue.remove(uid)
            waiting.discard(uid)
            in_flight.discard(uid)
        elif step == "pop":
            popped = queue.pop(now)
            assert popped is None or popped in waiting
            waiting -= {popped}
            in_flight |= {popped} - {None}
        elif step in ("park", "defer") and uid in in_flight:
            getattr(queue, step)(uid, now)
            in_flight.remove(uid)
            waiting.add(uid)
        elif step == "wake":
            queue.wake(uid, now)
        elif step == "wake_all":
            queue.wake_all(now)
        elif step == "time":
            now += 0.7
    assert sorted(pop_all(queue, now + 1000)) == sorted(waiting)


def seen(
    name: str, *, priority: int = 0, node: str = "", status: dict[str, Any] | None = None, **fields: Any
) -> SeenPod:
    metadata = {"metadata": {"name": name, "namespace": "ns", "uid": name, **fields.pop("metadata", {})}}
    body = pod(name, priority=priority, nodeName=node, **fields)
    return SeenPod.read({**body, **metadata, "status": status or {}})


@pytest.fixture
def cluster() -> ClusterView:
    """A node with two CPUs."""
    view = ClusterView()
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "2", "pods": "9"}}
    view.nodes["a"] = SeenNode.read({"metadata": {"name": "a"}, "status": status})
    return view


TWO_CPUS = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}


def has_room(cluster: ClusterView) -> bool:
    return not cluster.refused_nodes(seen("other", **TWO_CPUS))


def test_a_pod_counts_from_the_moment_that_it_is_being_bound_to_its_end(cluster: ClusterView) -> None:
    first = seen("first", **TWO_CPUS)
    cluster.put_pod(first)
    cluster.assume(first, "a")
    cluster.put_pod(first)
    assert not has_room(cluster)
    cluster.take_back("first")
    assert has_room(cluster)
    cluster.assume(first, "a")
    cluster.put_pod(seen("first", node="a", **TWO_CPUS))
    cluster.take_back("first")  # the binding failed late: the pod has its node
    assert not has_room(cluster)
    cluster.put_pod(seen("first", node="a", status={"phase": "Succeeded"}, **TWO_CPUS))
    assert has_room(cluster)


def test_a_pod_that_is_gone_before_it_is_bound_counts_nowhere(cluster: ClusterView) -> None:
    first = seen("first", **TWO_CPUS)
    cluster.put_pod(first)
    cluster.remove_pod("first")
    cluster.assume(first, "a")
    assert has_room(cluster)
    assert cluster.preemption_candidates(seen("r", priority=1), ["a"]) == {}


def test_pods_whose_rules_look_at_others_are_known_until_they_have_a_node(cluster: ClusterView) -> None:
    terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]
    affinity = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    cluster.put_pod(seen("plain"))
    cluster.put_pod(seen("choosy", **affinity))
    assert list(cluster.choosy) == ["choosy"]
    cluster.put_pod(seen("choosy", node="a", **affinity))
    assert not cluster.choosy


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


def test_victims_are_pods_of_lower_priority_taken_where_it_hurts_least(cluster: ClusterView) -> None:
    for name, place, priority in (("a1", "a", 3), ("b1", "b", 1), ("b2", "b", 1), ("c1", "c", 1), ("d1", "d", 1)):
        cluster.put_pod(seen(name, node=place, priority=priority))
    cluster.put_pod(seen("peer", node="a", priority=5))
    assert cluster.preemption_candidates(seen("p", priority=5), ["a", "e"]) == {"a": ["a1"]}
    where, victims = cluster.choose_victims({"a": ["a1"], "b": ["b1", "b2"], "d": ["d1"], "c": ["c1", "gone"]})
    assert (where, [victim.uid for victim in victims]) == ("c", ["c1"])


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
