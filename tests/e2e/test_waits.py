"""Nobody waits longer than need be: from what makes room to the binding, and beside another virtual cluster's queue."""

import time
from pathlib import Path
from typing import Any

import pytest

from hived_extender.kube.client import NODES, PODS, KubeClient, pod_path
from hived_lab.embedded.nodes import READY
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import BUSY_S, POD_LIST, configuration, create, is_bound, pod, priority_class
from tests.expecting import expect_soon

CROWD = 300
LARGE_CROWD = 1000
"""With a kube-scheduler for each virtual cluster; with one for all, waits grow with the crowd (docs/install.md)."""

SETTLED_S = 5.0
"""Events and conditions of a crowd that just came are written by then; this is about queues, not about the disk."""

Json = dict[str, Any]


def submit(kube: KubeClient, name: str, vc: str, *, gpus: int = 8) -> str:
    kube.create(POD_LIST, pod(name, vc=vc, gpus=gpus))
    return name


def is_told_to_wait(kube: KubeClient, name: str) -> bool:
    return has_waited(kube.get(pod_path("default", name)))


def count_told_to_wait(kube: KubeClient) -> int:
    return sum(map(has_waited, kube.list_objects(PODS, dict[str, Any]).items))


def has_waited(found: Json) -> bool:
    conditions = found["status"].get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


def test_a_waiting_pod_is_bound_soon_after_whatever_made_room(plane: ControlPlane, tmp_path: Path) -> None:
    with RealCluster(plane, configuration(tmp_path, {"a": 1, "b": 1})) as cluster:
        kube = cluster.kube
        first = submit(kube, "first", "a")
        expect_soon(lambda: is_bound(kube, first))
        second = submit(kube, "second", "a")
        expect_soon(lambda: is_told_to_wait(kube, second))
        time.sleep(3)  # kube-scheduler has given it up by now

        kube.delete_pod("default", first, grace_period_s=0)
        expect_soon(lambda: is_bound(kube, second), BUSY_S)

        other = submit(kube, "other", "b")
        expect_soon(lambda: is_bound(kube, other))
        where = kube.get(pod_path("default", other))["spec"]["nodeName"]
        kube.delete_pod("default", other, grace_period_s=0)
        kube.patch(f"{NODES}/{where}", {"spec": {"unschedulable": True}})
        time.sleep(1)  # everybody has been told
        third = submit(kube, "third", "b")
        expect_soon(lambda: is_told_to_wait(kube, third))
        time.sleep(3)
        kube.patch(f"{NODES}/{where}", {"spec": {"unschedulable": None}})
        expect_soon(lambda: is_bound(kube, third), BUSY_S)

        kube.delete_pod("default", third, grace_period_s=0)
        kube.patch(f"{NODES}/{where}", {"metadata": {"annotations": {READY: "false"}}})
        expect_soon(lambda: not plane.is_node_ready(where))
        time.sleep(1)
        fourth = submit(kube, "fourth", "b")
        expect_soon(lambda: is_told_to_wait(kube, fourth))
        time.sleep(3)
        kube.patch(f"{NODES}/{where}", {"metadata": {"annotations": {READY: None}}})
        expect_soon(lambda: plane.is_node_ready(where))
        expect_soon(lambda: is_bound(kube, fourth), BUSY_S)
        assert kube.get(pod_path("default", fourth))["spec"]["nodeName"] == where


def test_a_waiting_pod_is_bound_soon_after_a_configuration_that_has_room_for_it(
    plane: ControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "after").mkdir()
    after = configuration(tmp_path / "after", {"a": 2, "b": 0})
    with RealCluster(plane, configuration(tmp_path, {"a": 1, "b": 1})) as cluster:
        kube = cluster.kube
        pods = [submit(kube, name, "a") for name in ("first", "second")]
        expect_soon(lambda: any(is_bound(kube, name) for name in pods))
        expect_soon(lambda: any(is_told_to_wait(kube, name) for name in pods))
        time.sleep(3)
        cluster.restart_service(after)
        expect_soon(lambda: all(is_bound(kube, name) for name in pods), BUSY_S)
        assert {kube.get(pod_path("default", name))["spec"]["nodeName"] for name in pods} == {"n0", "n1"}


@pytest.mark.parametrize(
    ("crowd_size", "crowd_priority", "has_scheduler_per_vc"),
    [(CROWD, 0, False), (CROWD, 1000, False), (LARGE_CROWD, 1000, True)],
    ids=["equal", "higher", "per VC"],
)
def test_a_crowd_that_waits_in_one_vc_does_not_hold_up_another(
    plane: ControlPlane, tmp_path: Path, crowd_size: int, crowd_priority: int, has_scheduler_per_vc: bool
) -> None:
    """Also where the crowd has the higher Kubernetes priority, by which kube-scheduler sorts its queue."""
    file = configuration(tmp_path, {"a": 1, "b": 4})
    with RealCluster(plane, file, has_scheduler_per_vc=has_scheduler_per_vc) as cluster:
        kube = cluster.kube
        fields = {"priorityClassName": priority_class(kube, crowd_priority)}
        create(kube, [pod(f"crowd-{number}", gpus=8, fields=fields) for number in range(crowd_size)])
        expect_soon(lambda: count_told_to_wait(kube) == crowd_size - 1, 300, every_s=1)
        time.sleep(SETTLED_S)
        delays = []
        for number in range(10):
            name = submit(kube, f"b-{number}", "b", gpus=2)
            delays.append(expect_soon(lambda name=name: is_bound(kube, name)))
            kube.delete_pod("default", name, grace_period_s=0)
        median = sorted(delays)[5]
        print(f"b's pods were bound after {median:.2f} s (median), {max(delays):.2f} s at most")
        # Beside a large crowd the API server, on the same few cores, takes seconds for some of the bindings themselves.
        assert median < BUSY_S
