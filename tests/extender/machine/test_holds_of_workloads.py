"""Cells held for Kueue's Workloads: their pods have gates, and get their key in the call that takes these away.

kube-scheduler may know of that call before our watch does.
"""

import json
from typing import Any

import pytest

from hived.scheduler import check_invariants
from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from hived_extender.jobs.job import JobRef
from hived_extender.jobs.kinds.marks import HOLD
from hived_extender.machine.holds import HeldBind
from hived_extender.machine.recording.operations import STAND_IN
from hived_extender.machine.stimuli import Hold, HoldsLookedAt, HoldState
from tests.extender.machine.small_cluster import Json
from tests.extender.machine.small_jobs import SmallJobCluster

GATE = "kueue.x-k8s.io/admission"
WORKLOAD = JobRef("kueue.x-k8s.io/v1beta2", "Workload", "ns", "train", "uid-train")
KEY = f"{WORKLOAD}/{WORKLOAD.uid}"
OWNERS = {
    "plain": [],
    "Deployment": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "serve-77d", "uid": "uid-serve", "controller": True}
    ],
    "StatefulSet": [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "serve", "uid": "uid-serve", "controller": True}
    ],
}


def held(pods: int = 2, gpus: int = 4) -> Hold:
    group = GroupSpec(KEY, (MemberSpec(pods, gpus),))
    spec = PodSpec("a", 0, gpus, group, leaf_cell_type="GPU", ignore_suggested_nodes=False)
    return Hold(KEY, WORKLOAD, spec)


def gated(cluster: SmallJobCluster, name: str, owner: str = "plain", **more: Any) -> Json:
    """A pod as Kueue's webhook leaves it."""
    labels = {"kueue.x-k8s.io/managed": "true", "pod-template-hash": "77d", **more.pop("labels", {})}
    made = cluster.pod(name, labels=labels, schedulingGates=[{"name": GATE}], **more)
    made["metadata"]["ownerReferences"] = OWNERS[owner]
    cluster.see(made)
    return made


def admit(cluster: SmallJobCluster, pod: Json) -> None:
    """Kueue takes the gate away; our watch does not tell of it yet."""
    pod["spec"]["schedulingGates"] = []
    pod["metadata"]["annotations"][HOLD] = KEY
    cluster.kube.touch(pod)


def stand_ins(cluster: SmallJobCluster) -> list[str]:
    return [name for name in cluster.groups() if name.startswith(STAND_IN)]


def state_of(cluster: SmallJobCluster) -> HoldState:
    found: dict[str, HoldState] = cluster.tell(HoldsLookedAt())
    return found[KEY]


def nodes_of(cluster: SmallJobCluster, hold: Hold) -> list[str]:
    found = cluster.held(hold)
    assert isinstance(found, HeldBind)
    return [pod.node for member in found.bind_info.members for pod in member]


@pytest.mark.parametrize("owner", OWNERS)
def test_pods_take_their_cells_before_the_watch_tells_of_their_gates(owner: str) -> None:
    cluster = SmallJobCluster()
    pods = [gated(cluster, f"w-{number}", owner) for number in range(2)]
    nodes = nodes_of(cluster, held())
    found = []
    for pod in pods:
        admit(cluster, pod)
        found += cluster.filter(pod)["NodeNames"]
    assert sorted(found) == sorted(nodes)
    assert stand_ins(cluster) == []
    for pod, node in zip(pods, found, strict=True):
        cluster.bind(pod, node)
        cluster.see(pod)
    assert state_of(cluster) == HoldState(2, 0, 2, 2)
    check_invariants(cluster.state)


def test_a_group_of_plain_pods_takes_its_cells_when_kube_scheduler_has_asked_about_the_last() -> None:
    cluster = SmallJobCluster()
    named = {"kueue.x-k8s.io/pod-group-name": "train"}
    counted = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    pods = [gated(cluster, f"w-{number}", labels=named, annotations=counted) for number in range(2)]
    nodes = nodes_of(cluster, held())
    for pod in pods:
        admit(cluster, pod)
    assert "NodeNames" not in cluster.filter(pods[0])
    (second,) = cluster.filter(pods[1])["NodeNames"]
    (first,) = cluster.filter(pods[0])["NodeNames"]
    assert sorted((first, second)) == sorted(nodes)
    assert stand_ins(cluster) == []


def test_words_that_come_with_the_end_of_the_gates_count() -> None:
    """Kueue writes our virtual cluster and priority in the same call."""
    cluster = SmallJobCluster()
    pod = gated(cluster, "w-0")
    admit(cluster, pod)
    pod["metadata"]["annotations"]["hivedscheduler.microsoft.com/priority"] = "7"
    (node,) = cluster.filter(pod)["NodeNames"]
    cluster.bind(pod, node)
    (spec,) = [text for key, text in pod["metadata"]["annotations"].items() if key.endswith("pod-scheduling-spec")]
    assert json.loads(spec)["priority"] == 7


def test_a_pod_without_a_gate_is_not_read_anew() -> None:
    cluster = SmallJobCluster()
    pod = cluster.pod("w-0")
    pod["metadata"]["annotations"]["hivedscheduler.microsoft.com/priority"] = "bad"
    cluster.kube.touch(pod)
    assert cluster.filter(pod)["NodeNames"]


@pytest.mark.parametrize("gpus", [4, 2])
def test_cells_are_given_back_for_pods_that_have_others(gpus: int) -> None:
    """They were placed before anybody knew that they belong to the Workload."""
    cluster = SmallJobCluster()
    cluster.held(held(pods=2, gpus=2))
    pod = cluster.pod("w-0", gpus)
    (node,) = cluster.filter(pod)["NodeNames"]
    cluster.bind(pod, node)
    cluster.see(pod)
    assert state_of(cluster) == HoldState(2, 2, 0, 0)
    pod["metadata"]["annotations"][HOLD] = KEY
    cluster.kube.touch(pod)
    cluster.see(pod)
    assert state_of(cluster) == HoldState(2, 1, 1, 1)
    other = cluster.pod("w-1", 2, annotations={HOLD: KEY})
    assert cluster.filter(other)["NodeNames"]
    assert stand_ins(cluster) == []
    check_invariants(cluster.state)


def test_a_pod_that_leaves_does_not_count_as_one_with_cells() -> None:
    cluster = SmallJobCluster()
    cluster.held(held(pods=2, gpus=2))
    pod = cluster.pod("w-0", 2)
    (node,) = cluster.filter(pod)["NodeNames"]
    cluster.bind(pod, node)
    pod["metadata"]["annotations"][HOLD] = KEY
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    cluster.kube.touch(pod)
    cluster.see(pod)
    assert state_of(cluster).held_count == 2
