"""LeaderWorkerSets with their own controller, which makes Volcano's PodGroups: gangs, replicas, restarts, racks."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_lab.embedded.nodes import STOP_SECONDS
from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import LEADER_WORKER_SET
from tests.e2e.controllers.racks import RACK, Racks, template
from tests.e2e.plane import ControlPlane

EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
GANGS = {"gangSchedulingManagement": {"schedulerProvider": "volcano"}}
KINDS = ("leaderworkersets.leaderworkerset.x-k8s.io",)

Json = dict[str, Any]


@pytest.fixture(scope="module")
def controller(plane: ControlPlane, podgroup_kinds: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """The controller of LeaderWorkerSets, which can make a PodGroup for each replica."""
    with installed(plane, LEADER_WORKER_SET, **request.param):
        yield


with_gangs = pytest.mark.parametrize("controller", [GANGS], ids=["with gangs"], indirect=True)
without_gangs = pytest.mark.parametrize("controller", [{}], ids=["without gangs"], indirect=True)


@pytest.fixture
def racks(shared_racks: Racks, controller: None) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield shared_racks
    shared_racks.clean(KINDS)


def replicas(count: int, size: int, *, gpus: int = 4, pods: Json | None = None, **spec: Any) -> Json:
    """Groups of a leader and workers, all of one template; `pods` is metadata of theirs."""
    made = template(gpus, **(pods or {}))
    workers = {"size": size, "restartPolicy": "RecreateGroupOnPodRestart", "workerTemplate": made}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve"},
        "spec": {"replicas": count, "leaderWorkerTemplate": workers, **spec},
    }


@with_gangs
def test_a_leader_and_its_workers_start_whole_or_not_at_all(racks: Racks) -> None:
    racks.block("rival-1", "rival-2")
    racks.create(replicas(1, 3))
    assert racks.bound_while_waiting("serve-0", 3) == []
    racks.unblock("rival-1")
    racks.await_whole("serve-0", 3)


@with_gangs
def test_replicas_come_and_go_whole(racks: Racks) -> None:
    racks.create(replicas(1, 2))
    first = {one.uid for one in racks.await_whole("serve-0", 2)}
    racks.patch("leaderworkerset", "serve", {"spec": {"replicas": 2}})
    racks.await_whole("serve-1", 2)
    racks.patch("leaderworkerset", "serve", {"spec": {"replicas": 3}})
    assert racks.bound_while_waiting("serve-2", 2) == []
    racks.patch("leaderworkerset", "serve", {"spec": {"replicas": 1}})
    racks.until(lambda: len(racks.pods("serve-")) == 2 and len(racks.used()) == 8, "the others to be gone")
    assert {one.uid for one in racks.bound("serve-0")} == first
    assert racks.faults() == []


@with_gangs
def test_a_group_that_loses_a_pod_is_recreated_whole(racks: Racks) -> None:
    racks.create(replicas(1, 3, pods={"annotations": {STOP_SECONDS: "5"}}))
    before = {one.uid for one in racks.await_whole("serve-0", 3)}
    racks.block("rival")
    racks.plane.kube.delete_pod("default", "serve-0-1")
    racks.until(lambda: len({one.uid for one in racks.pods("serve-0")} - before) == 3, "three new pods")
    after = {one.uid for one in racks.await_whole("serve-0", 3)}
    assert not before & after


@with_gangs
def test_a_leader_that_has_to_be_ready_first_does_not_wait_for_its_workers(racks: Racks) -> None:
    racks.create(replicas(1, 3, startupPolicy="LeaderReady"))
    racks.until(lambda: len(racks.bound("serve-0")) == 3, "the leader and then its workers to have nodes")
    leader, *workers = racks.bound("serve-0")
    assert all(leader.bound_at < one.since for one in workers)
    assert racks.faults() == []


@without_gangs
def test_groups_with_exclusive_placement_have_a_rack_each(racks: Racks) -> None:
    """Workers are created only once their leader has a node, so these can be no gangs."""
    document = replicas(2, 2)
    document["metadata"]["annotations"] = {EXCLUSIVE: RACK}
    racks.create(document)
    racks.until(lambda: len(racks.bound("serve-")) == 4, "all pods to have nodes")
    first, second = racks.racks_of("serve-0"), racks.racks_of("serve-1")
    assert len(first) == len(second) == 1
    assert first != second
    assert racks.faults() == []
