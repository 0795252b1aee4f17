"""Pods as Kueue makes and admits them, in its order: gates first, then node labels and no gate, one pod at a time.

Kueue is not to be had as a Go module here, so this file plays it.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_extender.kube.client import pod_path
from tests.e2e.controllers.site import RACK, STAYS_S, Site, pod
from tests.e2e.observer import Seen

ADMISSION = "kueue.x-k8s.io/admission"
TOPOLOGY = "kueue.x-k8s.io/topology"
FINALIZER = "kueue.x-k8s.io/managed"

Json = dict[str, Any]


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    """A site without pods, before and after; Kueue lets go of the pods that it has managed."""
    yield shared_site
    for one in shared_site.observer.present():
        shared_site.plane.kube.patch(pod_path("default", one.name), {"metadata": {"finalizers": None}})
    shared_site.clean(())


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


def admit(site: Site, one: Seen, gate: str = ADMISSION, **node_labels: str) -> None:
    """Take a gate away from a pod and write the labels of its flavor or its topology into the nodeSelector."""
    path = pod_path("default", one.name)
    found = site.plane.kube.get(path)
    found["spec"]["schedulingGates"] = [each for each in found["spec"]["schedulingGates"] if each["name"] != gate]
    found["spec"]["nodeSelector"] = (found["spec"].get("nodeSelector") or {}) | node_labels
    site.plane.kube.replace(path, found)


def test_a_group_starts_whole_when_its_last_pod_is_admitted(site: Site) -> None:
    site.create(*managed("train", 3))
    first, second, last = site.await_created("train-", 3)
    admit(site, first)
    admit(site, second)
    site.until(lambda: all(one.was_refused for one in (first, second)), "those admitted to be told that they wait")
    assert not site.bound("train-")
    admit(site, last)
    site.await_whole("train-", 3)


def test_an_admitted_group_waits_whole_for_room(site: Site) -> None:
    site.block("rival-1", "rival-2")
    site.create(*managed("train", 3))
    for one in site.await_created("train-", 3):
        admit(site, one)
    assert site.bound_while_waiting("train-", 3) == []
    site.unblock("rival-2")
    site.await_whole("train-", 3)


def test_a_group_runs_where_its_flavor_says(site: Site) -> None:
    site.create(*managed("train", 2))
    for one in site.await_created("train-", 2):
        admit(site, one, **{RACK: "b"})
    site.await_whole("train-", 2)
    assert site.racks("train-") == {"b"}


def test_a_group_whose_topology_kueue_has_chosen_runs_there(site: Site) -> None:
    """Every pod is told its own node, once all are admitted."""
    site.create(*managed("train", 2, topology=RACK))
    pods = site.await_created("train-", 2)
    for one in pods:
        admit(site, one)
    for one, node in zip(pods, ("c2", "c1"), strict=True):
        admit(site, one, TOPOLOGY, **{RACK: "c", "kubernetes.io/hostname": node})
    assert [one.node for one in site.await_whole("train-", 2)] == ["c2", "c1"]


def test_a_pod_that_kueue_still_holds_frees_its_cells_when_it_has_ended(site: Site) -> None:
    site.create(*managed("train", 2))
    for one in site.await_created("train-", 2):
        admit(site, one)
    for one in site.await_whole("train-", 2):
        site.fail(one.name, code=0)
    site.until(lambda: not site.used(), "all cells to be free", within_s=STAYS_S * 10)
    assert len(site.pods("train-")) == 2
