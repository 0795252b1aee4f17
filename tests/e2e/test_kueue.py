"""Kueue's admission check on a real API server: objects of Kueue's own definitions, written with the rights we ship.

Kueue itself does not run: the test takes its steps. `controllers/test_kueue.py` has it at work.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.queues.kueue.checks import Said, Write
from hived_extender.queues.kueue.controller import write_state
from hived_extender.queues.kueue.workloads import MANAGER, workload_of
from tests.e2e.cluster import RealCluster
from tests.e2e.kueue_kinds import definitions
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import configuration
from tests.e2e.rights import grant_rights, service_kubeconfig
from tests.expecting import expect_soon
from tests.extender.queues.kueue.kueue_by_hand import KueueByHand
from tests.extender.queues.kueue.workload_objects import CHECK, pod_set, template


@pytest.fixture(scope="module", params=["v1beta1", "v1beta2"])
def version(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """Kueue's kinds are there in one version of its API, for all tests: a kind that comes back is not soon its own."""
    with plane.defined(*definitions(request.param)):
        plane.wait_for("Kueue's kinds to be there", KueueByHand(plane.kube, request.param).is_there)
        yield request.param


@pytest.fixture
def kueue(plane: ControlPlane, version: str) -> Iterator[KueueByHand]:
    """Kueue's part; its objects are gone afterwards."""
    kueue = KueueByHand(plane.kube, version)
    yield kueue
    kueue.clear()


@pytest.fixture
def hived(plane: ControlPlane, kueue: KueueByHand, tmp_path: Path) -> Iterator[RealCluster]:
    """hived with the rights of an installation, after the kinds: it looks for new ones every minute."""
    file = configuration(tmp_path, {"a": 1, "b": 1}, gpus=4, of_vcs={"a": {"namespaces": ["default"]}})
    with RealCluster(plane, file) as cluster:
        yield cluster


def test_states_are_written_with_the_rights_that_we_ship(hived: RealCluster, kueue: KueueByHand) -> None:
    kueue.declare()
    expect_soon(kueue.is_active)
    kueue.queue("job-cpu", pod_set(made_of=template(0)))
    kueue.reserve("job-cpu", "theirs", CHECK)
    kueue.expect("job-cpu", "Ready", "none of its pods asks hived for devices")
    assert kueue.check("job-cpu", "theirs")["state"] == "Pending"
    kueue.queue("job-odd", pod_set(made_of=template(virtual_cluster="nobody")))
    kueue.reserve("job-odd")
    kueue.expect("job-odd", "Rejected", "set it to a virtual cluster: a, b")
    assert kueue.check("job-odd")["state"] == "Rejected"


def test_a_job_runs_on_the_cells_that_were_held_for_it(hived: RealCluster, kueue: KueueByHand) -> None:
    kueue.declare()
    kueue.queue("job-train", pod_set(count=2, made_of=template(2, scheduler="hivedscheduler-ds-a")))
    kueue.reserve("job-train")
    kueue.expect("job-train", "Ready", "cells are held: 2 pods x 2")
    names = kueue.start("job-train")
    expect_soon(lambda: all(kueue.node_of(name) for name in names))
    kueue.queue("job-next", pod_set(count=1, made_of=template(2, scheduler="hivedscheduler-ds-a")))
    kueue.reserve("job-next")
    kueue.expect("job-next", "Pending", "waits for cells: needs ")
    kueue.finish("job-train")
    for name in names:
        kueue.kube.delete(f"{kueue.pods}/{name}")
    kueue.expect("job-next", "Ready")
    assert kueue.check("job-next")["message"].startswith("cells are held: 1 pod")


@pytest.mark.parametrize(
    "said", [Said("Ready", "held", ({"name": "main", "annotations": {"a": "b"}},)), Said("Retry", "lost", requeue_s=30)]
)
def test_the_schema_takes_every_state(plane: ControlPlane, kueue: KueueByHand, said: Said) -> None:
    grant_rights(plane)
    kube = KubeClient.connect(kubeconfig=str(service_kubeconfig(plane)))
    kueue.queue("job-train")
    kueue.reserve("job-train")
    found = workload_of(kueue.get("job-train"))
    write_state(kube, kueue.collection, Write(found, (CHECK,), said), 1_800_000_000.0)
    check = kueue.check("job-train")
    assert (check["state"], check["message"]) == (said.state, said.message)
    assert check.get("podSetUpdates", []) == list(said.updates)
    managers = [
        (each["manager"], each.get("subresource")) for each in kueue.get("job-train")["metadata"]["managedFields"]
    ]
    assert (MANAGER, "status") in managers
    kube.close()


def test_a_state_is_not_written_over_an_eviction(plane: ControlPlane, kueue: KueueByHand) -> None:
    kueue.queue("job-train")
    kueue.reserve("job-train")
    found = workload_of(kueue.get("job-train"))
    kueue.evict("job-train")
    with pytest.raises(KubeError) as refusal:
        write_state(plane.kube, kueue.collection, Write(found, (CHECK,), Said("Retry", "late")), 1_800_000_000.0)
    assert refusal.value.is_conflict
    assert kueue.check("job-train")["state"] == "Pending"
