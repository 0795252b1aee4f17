"""Pods as Kueue makes and admits them, in its order: gates first, then node labels and no gate, one pod at a time.

Kueue is not to be had as a Go module here, so this file plays it.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_extender.kube.client import pod_path
from tests.e2e.controllers.racks import RACK, STAYS_S, Racks, pod
from tests.e2e.observer import Seen

ADMISSION = "kueue.x-k8s.io/admission"
TOPOLOGY = "kueue.x-k8s.io/topology"
FINALIZER = "kueue.x-k8s.io/managed"

Json = dict[str, Any]


@pytest.fixture
def racks(shared_racks: Racks) -> Iterator[Racks]:
    """The racks without pods, before and after; Kueue lets go of the pods that it has managed."""
    yield shared_racks
    for one in shared_racks.observer.present():
        shared_racks.plane.kube.patch(pod_path("default", one.name), {"metadata": {"finalizers": None}})
    shared_racks.clean(())


def managed(name: str, count: int, *, topology: str = "") -> list[Json]:
    """A group of plain pods as Kueue's webhook leaves them."""
    gates = [ADMISSION, *([TOPOLOGY] if topology else [])]
    labels = {
        "kueue.x-k8s.io/queue-name": "team",
        "kueue.x-k8s.io/managed": "true",
        "kueue.x-k8s.io/pod-group-name": name,
    }
    annotations = {
        "kueue.x-k8s.io/pod-group-total-count": str(count),
        "kueue.x-k8s.io/role-hash": "b1c7e5a2",
    }
    if topology:
        labels["kueue.x-k8s.io/tas"] = "true"
        annotations["kueue.x-k8s.io/podset-required-topology"] = topology
    spec = {"schedulingGates": [{"name": gate} for gate in gates]}
    return [
        pod(f"{name}-{number}", spec=spec, labels=labels, annotations=annotations, finalizers=[FINALIZER])
        for number in range(count)
    ]


def admit(racks: Racks, one: Seen, gate: str = ADMISSION, **node_labels: str) -> None:
    """Take a gate away from a pod and write the labels of its flavor or its topology into the nodeSelector."""
    path = pod_path("default", one.name)
    found = racks.plane.kube.get(path)
    found["spec"]["schedulingGates"] = [each for each in found["spec"]["schedulingGates"] if each["name"] != gate]
    found["spec"]["nodeSelector"] = (found["spec"].get("nodeSelector") or {}) | node_labels
    racks.plane.kube.replace(path, found)


def test_a_group_starts_whole_when_its_last_pod_is_admitted(racks: Racks) -> None:
    racks.create(*managed("train", 3))
    first, second, last = racks.await_created("train-", 3)
    admit(racks, first)
    admit(racks, second)
    racks.until(lambda: all(one.was_refused for one in (first, second)), "those admitted to be told that they wait")
    assert not racks.bound("train-")
    admit(racks, last)
    racks.await_whole("train-", 3)


def test_an_admitted_group_waits_whole_for_room(racks: Racks) -> None:
    racks.block("rival-1", "rival-2")
    racks.create(*managed("train", 3))
    for one in racks.await_created("train-", 3):
        admit(racks, one)
    assert racks.bound_while_waiting("train-", 3) == []
    racks.unblock("rival-2")
    racks.await_whole("train-", 3)


def test_a_group_runs_where_its_flavor_says(racks: Racks) -> None:
    racks.create(*managed("train", 2))
    for one in racks.await_created("train-", 2):
        admit(racks, one, **{RACK: "b"})
    racks.await_whole("train-", 2)
    assert racks.racks_of("train-") == {"b"}


def test_a_group_whose_topology_kueue_has_chosen_runs_there(racks: Racks) -> None:
    """Every pod is told its own node, once all are admitted."""
    racks.create(*managed("train", 2, topology=RACK))
    pods = racks.await_created("train-", 2)
    for one in pods:
        admit(racks, one)
    for one, node in zip(pods, ("c2", "c1"), strict=True):
        admit(racks, one, TOPOLOGY, **{RACK: "c", "kubernetes.io/hostname": node})
    assert [one.node for one in racks.await_whole("train-", 2)] == ["c2", "c1"]


def test_a_pod_that_kueue_still_holds_frees_its_cells_when_it_has_ended(racks: Racks) -> None:
    racks.create(*managed("train", 2))
    for one in racks.await_created("train-", 2):
        admit(racks, one)
    for one in racks.await_whole("train-", 2):
        racks.fail(one.name, code=0)
    racks.until(lambda: not racks.used(), "all cells to be free", within_s=STAYS_S * 10)
    assert len(racks.pods("train-")) == 2
