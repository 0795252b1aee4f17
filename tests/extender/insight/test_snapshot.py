"""A snapshot has the state of one moment, and all jobs: the ones that wait, in their order, and the ones that run."""

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from hived.scheduler import check_invariants
from hived.values.errors import InvariantError
from hived_extender.insight.snapshot import Snapshot, WaitingEntry, take
from hived_extender.jobs.kinds import native
from hived_extender.jobs.kinds.description import ObjectRef
from hived_extender.machine.offers import Offers
from hived_extender.machine.verbs import NotLeadingError
from tests.extender.machine.small_cluster import SmallCluster, node, spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator


def names(snapshot: Snapshot) -> list[str]:
    return [entry.name for entry in snapshot.waiting]


def found(snapshot: Snapshot, name: str) -> WaitingEntry:
    entry = snapshot.find(name)
    assert entry is not None
    return entry


def test_the_copy_does_not_change_with_the_service() -> None:
    small = SmallCluster()
    small.place("one")
    snapshot = take(small.service)
    small.place("two")
    assert set(snapshot.state.groups) == set(snapshot.running) == {"ns/one"}
    check_invariants(snapshot.state)


def test_jobs_wait_in_the_order_of_priority_and_age() -> None:
    small = SmallGangCluster()
    for index in range(2):
        small.pod(f"full-{index}")
        small.ask(f"full-{index}")
    small.pod("old")
    small.pod("young")
    small.pod("high", annotations={}, priorityClassName="high")
    assert names(take(small.service)) == ["ns/high", "ns/old", "ns/young"]


def test_a_gang_waits_as_one_job_with_all_its_pods() -> None:
    small = SmallGangCluster()
    for index in range(3):
        small.pod(f"g-{index}", annotations=koordinator("g", 3), labels={"userName": "ann"})
    entry = found(take(small.service), "podgroup/ns/g")
    assert entry.pods == ("ns/g-0", "ns/g-1", "ns/g-2")
    assert [one.spec.group.members[0].pod_count for one in entry.requests] == [3]
    assert (entry.user, entry.vc, entry.refusal) == ("ann", "a", "")


def test_an_incomplete_gang_cannot_be_asked_for_yet() -> None:
    small = SmallGangCluster()
    small.pod("g-0", annotations=koordinator("g", 2))
    entry = found(take(small.service), "ns/g-0")
    assert entry.name == "podgroup/ns/g"
    assert entry.is_incomplete
    assert not entry.requests
    assert "1 of 2 pods created" in entry.refusal


def test_a_pod_with_a_mistake_is_refused() -> None:
    small = SmallCluster()
    small.create("wrong", spec_text(leaf_cells=0))
    entry = found(take(small.service), "ns/wrong")
    assert "LeafCellNumber is non-positive" in entry.refusal
    assert not entry.is_incomplete


NATIVE = native.PODGROUPS


def in_podgroup(version: str, gang: bool, spec: dict[str, Any]) -> SmallGangCluster:
    """A cluster with a PodGroup `g` of Kubernetes' own."""
    policy = {"gang": {"minCount": 2}} if gang else {"basic": {}}
    group = {"apiVersion": f"{NATIVE.group}/{version}", "spec": {"schedulingPolicy": policy, **spec}}
    found = {NATIVE.ref("ns", "g"): group}
    return SmallGangCluster(objects=Mock(get=lambda kind, namespace, name: found.get(ObjectRef(kind, namespace, name))))


@pytest.mark.parametrize("is_gang", [True, False])
@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
def test_a_pod_whose_podgroup_has_another_priority_is_refused_before_anybody_asks(version: str, is_gang: bool) -> None:
    small = in_podgroup(version, is_gang, {"priority": 0})
    for index in range(2):
        small.pod(f"w-{index}", schedulingGroup={"podGroupName": "g"}, priority=1000, priorityClassName="high")
    for index in range(2):
        refusal = found(take(small.service), f"ns/w-{index}").refusal
        assert "its priority is 1000 (PriorityClass high), and that of PodGroup g is 0 (no PriorityClass)" in refusal
        assert "create it and its pods anew with one priorityClassName" in refusal


@pytest.mark.parametrize(
    ("spec", "pod"),
    [
        ({"priority": 1000, "priorityClassName": "high"}, {"priority": 1000, "priorityClassName": "high"}),
        ({"priority": 0}, {"priority": 0}),
        ({}, {"priority": 0}),
        ({"priority": 1000, "priorityClassName": "high"}, {}),  # the API server has not told the pod's priority
    ],
)
def test_a_pod_of_its_podgroups_priority_is_asked_for(spec: dict[str, Any], pod: dict[str, Any]) -> None:
    small = in_podgroup("v1beta1", True, spec)
    for index in range(2):
        small.pod(f"w-{index}", schedulingGroup={"podGroupName": "g"}, **pod)
    assert found(take(small.service), "podgroup/ns/g").refusal == ""


def test_priorities_of_podgroups_may_differ_before_kubernetes_1_37() -> None:
    small = in_podgroup("v1alpha2", True, {"priority": 0})
    for index in range(2):
        small.pod(f"w-{index}", schedulingGroup={"podGroupName": "g"}, priority=1000, priorityClassName="high")
    assert found(take(small.service), "podgroup/ns/g").refusal == ""


def test_one_pod_of_another_priority_is_named_to_its_mates() -> None:
    small = in_podgroup("v1beta1", True, {"priority": 0})
    small.pod("w-0", schedulingGroup={"podGroupName": "g"}, priority=0)
    small.pod("w-1", schedulingGroup={"podGroupName": "g"}, priority=1000, priorityClassName="high")
    assert "w-1 refused" in small.ask("w-0")


def test_preemption_policies_of_a_podgroups_pods_may_not_differ() -> None:
    small = in_podgroup("v1beta1", True, {"priority": 0})
    small.pod("w-0", schedulingGroup={"podGroupName": "g"}, priority=0)
    small.pod("w-1", schedulingGroup={"podGroupName": "g"}, priority=0, preemptionPolicy="Never")
    refusal = found(take(small.service), "ns/w-0").refusal
    assert "the preemptionPolicy of w-1 is Never, of w-0 PreemptLowerPriority" in refusal


def test_the_reason_is_the_one_that_was_told() -> None:
    small = SmallCluster()
    small.place("one")
    small.place("two")
    small.filter(small.create("three"))
    assert "a has 2 of 2 in use by one" in found(take(small.service), "ns/three").reason


def test_bad_nodes_have_a_reason() -> None:
    small = SmallCluster(bad_nodes=("n1",))
    small.service.node_seen(node("n2", is_cordoned=True))
    assert {name: why for name, (why, _) in take(small.service).bad.items()} == {"n1": "NotReady", "n2": "cordoned"}


def test_a_leaving_group_has_the_time_when_it_is_gone_at_the_latest() -> None:
    small = SmallCluster()
    pod, _ = small.place("one")
    stored = small.kube.pods["one"]
    stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    stored["spec"]["terminationGracePeriodSeconds"] = 60
    small.kube.touch(stored)
    small.see(pod)
    facts = take(small.service).running["ns/one"]
    assert (facts.is_leaving, facts.grace_s, facts.leaves_s) == (True, 60.0, 1767225660.0)


def test_a_replica_that_does_not_lead_has_no_snapshot() -> None:
    with pytest.raises(NotLeadingError):
        take(SmallCluster(is_leading=False).service)


def test_pods_that_are_alike_share_the_rows_of_their_offers() -> None:
    small = SmallGangCluster()
    for index in range(3):
        small.pod(f"g-{index}", annotations=koordinator("g", 3))
    entry = found(take(small.service), "podgroup/ns/g")
    (part,) = entry.parts
    offer, fit = part.offer, part.fit
    assert offer is not None
    assert offer.nodes.shape == offer.after.shape == fit.shape == (3, 4)
    assert all(np.asarray(rows).strides[0] == 0 for rows in (offer.nodes, offer.after, fit))


def test_an_error_of_a_snapshot_does_not_stop_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallCluster()
    small.create("one")
    with monkeypatch.context() as patched:
        patched.setattr(Offers, "could_take", lambda *_: int("no rows"))
        with pytest.raises(ValueError, match="no rows"):
            take(small.service)
    assert not small.service.runner.fault
    assert names(take(small.service)) == ["ns/one"]


def test_a_service_that_has_stopped_has_no_snapshot() -> None:
    small = SmallCluster()
    with pytest.raises(InvariantError), small.service.runner.exclusive():
        raise IndexError
    with pytest.raises(InvariantError):
        take(small.service)
