"""The observer of controllers' jobs and of failures notices every violation."""

from collections.abc import Iterator

import pytest

from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.nodes import RUN_SECONDS, Machine
from tests.e2e.failures.rebuild import differences
from tests.e2e.observer import Observer, asks_for_cells
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import POD_LIST, pod


@pytest.fixture
def observer(plane: ControlPlane) -> Iterator[Observer]:
    """An observer of a cluster with one node and nothing on it."""
    plane.clear()
    plane.add_nodes([Machine("gpu-a", {"cpu": "8", "memory": "64Gi", "pods": "110"})])
    watching = Observer(KubeClient.connect(kubeconfig=str(plane.admin_kubeconfig)), asks_for_cells)
    watching.start()
    yield watching
    watching.stop()


def run_pod(plane: ControlPlane, name: str, **annotations: str) -> None:
    """A pod of ours that somebody bound."""
    plane.kube.create(POD_LIST, pod(name, annotations=annotations, fields={"nodeName": "gpu-a"}))


def test_a_device_that_is_given_twice_is_noticed(plane: ControlPlane, observer: Observer) -> None:
    run_pod(plane, "first", **{LEAF_CELL_ISOLATION: "0,1"})
    run_pod(plane, "second", **{LEAF_CELL_ISOLATION: "1,2"})
    plane.wait_for("both pods", lambda: len(observer.seen()) == 2)
    assert observer.violations == ["gpu-a/1 was given to second while first held it"]


def test_a_device_of_a_pod_that_has_ended_may_be_given_again(plane: ControlPlane, observer: Observer) -> None:
    run_pod(plane, "first", **{LEAF_CELL_ISOLATION: "0", RUN_SECONDS: "0"})
    plane.wait_for("the pod to end", lambda: any(one.is_completed for one in observer.seen()))
    run_pod(plane, "second", **{LEAF_CELL_ISOLATION: "0"})
    plane.wait_for("both pods", lambda: len(observer.seen()) == 2)
    assert observer.violations == []


def test_a_pod_that_is_bound_without_devices_is_noticed(plane: ControlPlane, observer: Observer) -> None:
    run_pod(plane, "bare")
    plane.wait_for("the pod", lambda: len(observer.seen()) == 1)
    assert observer.violations == ["bare was bound to gpu-a without devices"]


def test_a_difference_deep_inside_is_found() -> None:
    ours = {"physical": [{"cellState": "Used", "children": [{"cellState": "Used"}]}]}
    theirs = {"physical": [{"cellState": "Used", "children": [{"cellState": "Free"}]}]}
    assert differences(ours, theirs) == ["/physical/0/children/0/cellState: the leader has Used, a rebuild Free"]
