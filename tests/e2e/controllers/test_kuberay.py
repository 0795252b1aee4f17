"""Pods and PodGroups as KubeRay's operator writes them, started for Volcano or for scheduler-plugins.

This file plays the operator: first the PodGroup, then the head and workers. `test_queued_kinds.py` runs the real one.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_extender.jobs.kinds import coscheduling, volcano
from hived_extender.jobs.kinds.description import ObjectKind
from tests.e2e.controllers.racks import Racks, pod
from tests.e2e.podgroups import path_of

CLUSTER = "train"
HEAD_GROUP, WORKER_GROUP = "headgroup", "gpu-workers"

Json = dict[str, Any]


@pytest.fixture
def racks(shared_racks: Racks) -> Iterator[Racks]:
    """The racks without pods and PodGroups, before and after."""
    yield shared_racks
    shared_racks.clean((coscheduling.PODGROUPS.name, volcano.PODGROUPS.name))


class Operator:
    """KubeRay's operator for one batch scheduler: `volcano` or `scheduler-plugins`."""

    def __init__(self, racks: Racks, scheduler: str) -> None:
        self._racks = racks
        self._scheduler = scheduler
        self._kind: ObjectKind = volcano.PODGROUPS if scheduler == "volcano" else coscheduling.PODGROUPS
        self._gang = f"ray-{CLUSTER}-pg" if scheduler == "volcano" else CLUSTER

    def make_group(self, minimum: int) -> None:
        """The PodGroup: the head and all workers that are wanted."""
        resources = {"nvidia.com/gpu": str(4 * (minimum - 1)), "cpu": str(minimum)}
        document = {
            "apiVersion": f"{self._kind.group}/{self._kind.versions[0]}",
            "kind": "PodGroup",
            "metadata": {"name": self._gang},
            "spec": {"minMember": minimum, "minResources": resources},
        }
        self._racks.plane.kube.create(path_of(self._kind), document)

    def set_minimum(self, minimum: int) -> None:
        """As after a change of the cluster."""
        self._racks.plane.kube.patch(f"{path_of(self._kind)}/{self._gang}", {"spec": {"minMember": minimum}})

    def make_pods(self, workers: range, *, has_head: bool = True) -> None:
        """The head, and workers of these numbers, one after the other."""
        heads = [self._pod(f"{CLUSTER}-head-x7k2p", "head", HEAD_GROUP, gpus=1)] if has_head else []
        for one in [*heads, *(self._pod(f"{CLUSTER}-worker-{each}", "worker", WORKER_GROUP) for each in workers)]:
            self._racks.create(one)

    def _pod(self, name: str, node_type: str, group: str, gpus: int = 4) -> Json:
        labels = {
            "ray.io/cluster": CLUSTER,
            "ray.io/identifier": f"{CLUSTER}-{node_type}",
            "ray.io/node-type": node_type,
            "ray.io/group": group,
            "ray.io/is-ray-node": "yes",
            "app.kubernetes.io/name": "kuberay",
            "app.kubernetes.io/created-by": "kuberay-operator",
        }
        annotations = {"ray.io/ft-enabled": "false"}
        if self._scheduler == "volcano":
            annotations |= {"scheduling.k8s.io/group-name": self._gang, "volcano.sh/task-spec": group}
        else:
            labels["scheduling.x-k8s.io/pod-group"] = self._gang
        forced = {"schedulerName": self._scheduler, "restartPolicy": "Never"}
        return pod(name, gpus, spec=forced, labels=labels, annotations=annotations)


@pytest.fixture(params=["volcano", "scheduler-plugins"])
def operator(racks: Racks, request: pytest.FixtureRequest) -> Operator:
    """See `Operator`."""
    return Operator(racks, request.param)


def test_a_head_and_its_workers_start_whole_or_not_at_all(racks: Racks, operator: Operator) -> None:
    racks.block("rival")
    operator.make_group(4)
    operator.make_pods(range(3))
    assert racks.bound_while_waiting("train-", 4) == []
    racks.unblock("rival")
    racks.await_whole("train-", 4)


def test_a_head_waits_for_workers_that_are_not_created_yet(racks: Racks, operator: Operator) -> None:
    operator.make_group(3)
    operator.make_pods(range(1))
    assert racks.bound_while_waiting("train-", 2) == []
    operator.make_pods(range(1, 2), has_head=False)
    racks.await_whole("train-", 3)


def test_workers_that_an_autoscaler_adds_join_a_running_cluster(racks: Racks, operator: Operator) -> None:
    operator.make_group(2)
    operator.make_pods(range(1))
    racks.await_whole("train-", 2)
    operator.set_minimum(4)
    operator.make_pods(range(1, 3), has_head=False)
    racks.until(lambda: len(racks.bound("train-")) == 4, "the new workers")
    assert racks.faults() == []
    for number in (1, 2):
        racks.plane.kube.delete_pod("default", f"train-worker-{number}")
    racks.until(lambda: len(racks.used()) == 5, "their cells to be free")


def test_a_worker_that_is_gone_is_replaced_while_the_others_run(racks: Racks, operator: Operator) -> None:
    operator.make_group(3)
    operator.make_pods(range(2))
    before = {one.uid for one in racks.await_whole("train-", 3)}
    racks.plane.kube.delete_pod("default", "train-worker-0")
    operator.make_pods(range(2, 3), has_head=False)
    racks.until(lambda: racks.bound("train-worker-2"), "the new worker")
    assert len({one.uid for one in racks.bound("train-")} & before) == 2
    assert racks.faults() == []
