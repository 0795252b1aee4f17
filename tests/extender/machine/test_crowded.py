"""Pods that kube-scheduler has no node for, and so does not ask about: who leaves for them, and when they are tried."""

from collections.abc import Callable

import pytest

from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.machine.small_cluster import (
    NODES,
    Json,
    SmallCluster,
    filter_args,
    node_json,
    pod_json,
    spec_text,
    to_node,
    to_pod,
)

QUIET_S = 60.0
"""In which all pods that would leave by mistake would be told to; a busy machine only makes a test see less of it."""


class CrowdedCluster(SmallCluster):
    """Each node has 8 CPUs, four leaf cells and an opportunistic pod on all of these that asks for 4 CPUs."""

    def __init__(self) -> None:
        super().__init__(preemption=PreemptionPolicy())
        self.set_nodes()
        for number in range(len(NODES)):
            pod = self.create_with(f"low-{number}", "4", spec_text(priority=-1))
            self.bind(pod, self.filter(pod)["NodeNames"][0])
            self.see(pod)

    def set_nodes(self, **spec: object) -> None:
        """Every node looks like this now."""
        for name in NODES:
            body = node_json(name)
            body["status"]["allocatable"] = {"cpu": "8", "pods": "110"}
            body["spec"] |= spec
            self.service.node_seen(to_node(body))

    def create_with(self, name: str, cpu: str, spec: str | None = None, node: str = "") -> Json:
        """A pod that asks for CPUs; without a scheduling spec it is another scheduler's."""
        pod = pod_json(name, spec, node=node, phase="Running" if node else "Pending")
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        limits["cpu"] = cpu
        if spec is None:
            pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        self.kube.add(pod)
        self.service.pod_seen(to_pod(pod))
        return pod

    def fill(self, cpu: str) -> list[Json]:
        """A pod of others on each node."""
        return [self.create_with(f"other-{cpu}-{name}", cpu, node=name) for name in NODES]

    def urgent(self) -> Json:
        """A guaranteed pod that needs a node's leaf cells and 6 CPUs."""
        return self.create_with("urgent", "6", spec_text(priority=5))


@pytest.fixture
def cluster() -> CrowdedCluster:
    return CrowdedCluster()


def assert_nobody_leaves(cluster: CrowdedCluster) -> None:
    cluster.pass_time(QUIET_S)
    assert cluster.kube.leaving == []


def test_nobody_leaves_nodes_that_stay_too_full_for_a_pod_that_was_never_asked_about(cluster: CrowdedCluster) -> None:
    cluster.fill("4")
    cluster.urgent()
    assert_nobody_leaves(cluster)
    cluster.service.close()


def test_nobody_leaves_a_node_on_which_too_little_has_become_free(cluster: CrowdedCluster) -> None:
    cluster.fill("4")
    tiny = cluster.fill("100m")
    cluster.service.filter_nodes(filter_args(cluster.urgent(), []))
    for pod in tiny:
        cluster.delete(pod)
    assert_nobody_leaves(cluster)
    cluster.service.close()


def test_one_node_is_emptied_in_vain_and_not_the_next_one_too(cluster: CrowdedCluster) -> None:
    cluster.urgent()
    cluster.until(lambda: cluster.kube.leaving)
    ((_, name),) = cluster.kube.leaving
    cluster.delete(cluster.kube.pods[name])
    cluster.pass_time(QUIET_S)
    assert len(cluster.kube.leaving) == 1
    cluster.service.close()


def untaint(cluster: CrowdedCluster) -> Callable[[], None]:
    cluster.set_nodes(taints=[{"key": "maintenance", "effect": "NoSchedule"}])
    return cluster.set_nodes


def others_leave(cluster: CrowdedCluster) -> Callable[[], None]:
    others = cluster.fill("4")
    return lambda: [cluster.delete(pod) for pod in others] and None


@pytest.mark.parametrize("obstacle", [untaint, others_leave])
def test_a_pod_that_was_never_asked_about_gets_room_once_nodes_would_do(
    cluster: CrowdedCluster, obstacle: Callable[[CrowdedCluster], Callable[[], None]]
) -> None:
    clear = obstacle(cluster)
    cluster.urgent()
    assert_nobody_leaves(cluster)
    clear()
    cluster.until(lambda: cluster.kube.leaving)
    cluster.service.close()
