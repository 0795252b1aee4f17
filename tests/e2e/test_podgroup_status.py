"""PodGroups of other schedulers on a real control plane: their gangs start, and their status says how far that is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hived_extender.jobs.kinds import coscheduling, volcano
from hived_extender.jobs.kinds.description import ObjectKind
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import definition, path_of
from tests.e2e.pods import POD_LIST, Json, configuration

MARKS: dict[str, Json] = {
    coscheduling.PODGROUPS.name: {"labels": {"scheduling.x-k8s.io/pod-group": "train"}},
    volcano.PODGROUPS.name: {"annotations": {"scheduling.k8s.io/group-name": "train"}},
}


@pytest.fixture(params=[coscheduling.PODGROUPS, volcano.PODGROUPS], ids=lambda kind: kind.group)
def kind(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[ObjectKind]:
    """A kind that is installed; the status of Volcano's is a part of the object, as its project had it for long."""
    document = definition(request.param)
    if request.param is volcano.PODGROUPS:
        del document["spec"]["versions"][0]["subresources"]
    with plane.defined(document):
        yield request.param


def member(kind: ObjectKind, name: str, *, count: int = 2) -> Json:
    """A pod as a controller of this kind makes it."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(count)}}}
    spec = {"schedulerName": "hivedscheduler-ds-a", "containers": [container]}
    return {"metadata": {"name": name, **MARKS[kind.name]}, "spec": spec}


def test_a_pod_group_says_what_it_waits_for_and_that_it_runs(
    plane: ControlPlane, kind: ObjectKind, tmp_path: Path
) -> None:
    file = configuration(tmp_path, {"a": 1}, gpus=4, of_vcs={"a": {"namespaces": ["default"]}})
    with RealCluster(plane, file) as cluster:
        group = {"apiVersion": f"{kind.group}/{kind.versions[0]}", "kind": "PodGroup", "metadata": {"name": "train"}}
        cluster.kube.create(path_of(kind), {**group, "spec": {"minMember": 2}})

        def status() -> dict[str, Any]:
            found: dict[str, Any] = cluster.kube.get(f"{path_of(kind)}/train").get("status") or {}
            return found

        cluster.kube.create(POD_LIST, member(kind, "first"))
        waits = "Inqueue" if kind is volcano.PODGROUPS else "Pending"
        plane.wait_for("the group to wait", lambda: status().get("phase") == waits)
        if kind is volcano.PODGROUPS:
            (condition,) = status()["conditions"]
            assert (condition["type"], condition["reason"]) == ("Unschedulable", "NotEnoughTasks")
            assert "1 of 2 pods created" in condition["message"]
        cluster.kube.create(POD_LIST, member(kind, "second"))
        plane.wait_for("the group to run", lambda: status().get("running") == 2)
        assert status()["phase"] == "Running"
        for name in ("first", "second"):
            cluster.kube.delete(f"{POD_LIST}/{name}", grace_period_s=0)
        plane.wait_for("nothing to run", lambda: not status().get("running"))
        assert status()["phase"] == waits
