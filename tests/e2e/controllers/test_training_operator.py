"""Jobs of Kubeflow's training-operator, which makes PodGroups of scheduler-plugins or of Volcano."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_extender.jobs.kinds import volcano
from hived_extender.kube.client import KubeError
from hived_lab.embedded.nodes import STOP_SECONDS
from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import TRAINING_OPERATOR
from tests.e2e.controllers.racks import SCHEDULER, Racks, container
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import path_of

RETRIED = 137
"""An exit code after which a pod is replaced; smaller ones are the job's own fault."""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def controller(plane: ControlPlane, podgroup_kinds: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """training-operator, with PodGroups of either kind."""
    with installed(plane, TRAINING_OPERATOR, f"--gang-scheduler-name={request.param}"):
        yield


either = pytest.mark.parametrize("controller", ["scheduler-plugins", "volcano"], indirect=True)
one_of_them = pytest.mark.parametrize("controller", ["scheduler-plugins"], indirect=True)


@pytest.fixture
def racks(shared_racks: Racks, controller: None) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield shared_racks
    shared_racks.clean(("pytorchjobs.kubeflow.org", "tfjobs.kubeflow.org", "mpijobs.kubeflow.org"))


def role(name: str, count: int, *, gpus: int = 4, restart: str = "OnFailure", **metadata: Any) -> Json:
    """So many pods whose container has the name that the operator looks for."""
    spec = {"schedulerName": SCHEDULER, "containers": [container(name, gpus)]}
    return {"replicas": count, "restartPolicy": restart, "template": {"metadata": metadata, "spec": spec}}


def job(kind: str, roles: Json, *, policy: Json | None = None, **spec: Any) -> Json:
    """A job of a kind, such as PyTorchJob, with the field that has its roles."""
    field = {"PyTorchJob": "pytorch", "TFJob": "tf", "MPIJob": "mpi"}[kind] + "ReplicaSpecs"
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "train"},
        "spec": {field: roles, "runPolicy": policy or {}, **spec},
    }


def pytorch_job(workers: int = 2, *, restart: str = "OnFailure", **policy: Any) -> Json:
    """A master and its workers with a node each."""
    roles = {"Master": role("pytorch", 1, restart=restart), "Worker": role("pytorch", workers, restart=restart)}
    return job("PyTorchJob", roles, policy=policy)


def phase_of(racks: Racks, name: str) -> str | None:
    """The phase of a PodGroup of Volcano, "" for a new one, None if it does not exist."""
    try:
        found = racks.plane.kube.get(f"{path_of(volcano.PODGROUPS)}/{name}")
    except KubeError:
        return None
    return str((found.get("status") or {}).get("phase", ""))


@either
def test_a_master_and_its_workers_start_whole_or_not_at_all(racks: Racks) -> None:
    racks.block("rival-1", "rival-2")
    racks.create(pytorch_job())
    assert racks.bound_while_waiting("train-", 3) == []
    racks.unblock("rival-1")
    racks.await_whole("train-", 3)


@pytest.mark.parametrize("controller", ["volcano"], indirect=True)
def test_a_job_for_another_scheduler_is_left_to_the_queues_of_volcano(racks: Racks) -> None:
    theirs = job("PyTorchJob", {"Master": role("pytorch", 1)})
    theirs["metadata"]["name"] = "theirs"
    theirs["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["schedulerName"] = "another"
    racks.create(theirs)
    racks.until(lambda: phase_of(racks, "theirs") is not None, "its PodGroup")
    racks.create(pytorch_job())
    racks.await_whole("train-", 3)
    assert phase_of(racks, "theirs") in ("", "Pending")
    assert racks.pods("theirs") == []


@either
def test_a_parameter_server_and_its_workers_start_whole(racks: Racks) -> None:
    racks.create(job("TFJob", {"PS": role("tensorflow", 1, gpus=1), "Worker": role("tensorflow", 3)}))
    gang = racks.await_whole("train-", 4)
    assert [len(one.devices) for one in gang] == [1, 4, 4, 4]


@either
def test_a_launcher_and_its_workers_start_whole(racks: Racks) -> None:
    racks.create(job("MPIJob", {"Launcher": role("mpi", 1, gpus=1), "Worker": role("mpi", 2)}, slotsPerWorker=4))
    gang = racks.await_whole("train-", 3)
    assert [len(one.devices) for one in gang] == [1, 4, 4]


@either
def test_a_suspended_job_has_no_cells_until_it_is_resumed(racks: Racks) -> None:
    racks.create(pytorch_job(suspend=True))
    text = "jsonpath={.status.conditions[?(@.type=='Suspended')].status}"
    racks.until(lambda: racks.plane.kubectl("get", "pytorchjob", "train", "-o", text).stdout == "True", "suspension")
    assert not racks.pods("train-")
    racks.patch("pytorchjob", "train", {"spec": {"runPolicy": {"suspend": False}}})
    racks.await_whole("train-", 3)
    racks.patch("pytorchjob", "train", {"spec": {"runPolicy": {"suspend": True}}})
    racks.until(lambda: not racks.observer.present() and not racks.used(), "all cells to be free")
    racks.block("rival-1", "rival-2")
    racks.patch("pytorchjob", "train", {"spec": {"runPolicy": {"suspend": False}}})
    assert racks.bound_while_waiting("train-", 3) == []
    racks.unblock("rival-2")
    racks.await_whole("train-", 3)


@one_of_them
def test_a_worker_that_failed_is_replaced_while_the_others_run(racks: Racks) -> None:
    racks.create(pytorch_job(restart="ExitCode"))
    before = {one.name: one.uid for one in racks.await_whole("train-", 3)}
    racks.fail("train-worker-1", RETRIED)
    racks.until(lambda: {one.uid for one in racks.bound("train-worker-1")} - set(before.values()), "a new worker")
    after = {one.name: one.uid for one in racks.await_created("train-", 3)}
    assert {name for name in before if before[name] != after[name]} == {"train-worker-1"}
    assert racks.faults() == []


@one_of_them
def test_a_job_that_is_submitted_again_while_its_pods_leave_starts_whole(racks: Racks) -> None:
    document = pytorch_job()
    for one in document["spec"]["pytorchReplicaSpecs"].values():
        one["template"]["metadata"]["annotations"] = {STOP_SECONDS: "8"}
    racks.create(document)
    before = {one.uid for one in racks.await_whole("train-", 3)}
    racks.delete("pytorchjob", "train")
    racks.create(document)
    racks.until(lambda: len({one.uid for one in racks.pods("train-")} - before) == 3, "three new pods")
    after = {one.uid for one in racks.await_whole("train-", 3)}
    assert not before & after


@one_of_them
def test_an_elastic_job_grows_and_shrinks_as_there_is_room(racks: Racks) -> None:
    elastic = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "c10d"}
    racks.create(job("PyTorchJob", {"Worker": role("pytorch", 2)}, elasticPolicy=elastic))
    before = {one.uid for one in racks.await_whole("train-", 2)}
    racks.patch("pytorchjob", "train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}})
    racks.until(lambda: len(racks.bound("train-")) == 4, "two more workers")
    assert before < {one.uid for one in racks.bound("train-")}
    assert racks.faults() == []
    racks.patch("pytorchjob", "train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}})
    racks.until(lambda: len(racks.pods("train-")) == 1 and len(racks.used()) == 4, "one worker to be left")
    assert racks.faults() == []


@one_of_them
def test_a_job_that_ends_frees_its_cells(racks: Racks) -> None:
    racks.create(pytorch_job(cleanPodPolicy="None"))
    for one in racks.await_whole("train-", 3):
        racks.fail(one.name, code=0)
    racks.until(lambda: not racks.used(), "all cells to be free")
    text = "jsonpath={.status.conditions[?(@.type=='Succeeded')].status}"
    racks.until(lambda: racks.plane.kubectl("get", "pytorchjob", "train", "-o", text).stdout == "True", "the end")
    assert not racks.used()
