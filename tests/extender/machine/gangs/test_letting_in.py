"""PodGroups of Volcano are let in before they have pods (rule 26.16): the API server is a table of documents."""

from typing import Any

import pytest

from hived_extender.jobs.kinds import volcano
from hived_extender.kube.client import KubeError
from hived_extender.machine.gangs.table import waits_for_us

Json = dict[str, Any]

VOLCANO, KUBEFLOW, RAY = "/apis/batch.volcano.sh/v1alpha1", "/apis/kubeflow.org/v1", "/apis/ray.io/v1"
PODGROUPS = "/apis/scheduling.volcano.sh/v1beta1"


class Api:
    """Kinds that the API server has; an owner without a document may not be read."""

    def __init__(self) -> None:
        self.documents: dict[str, Json] = {
            VOLCANO: kinds(Job="jobs"),
            KUBEFLOW: kinds(PyTorchJob="pytorchjobs", TFJob="tfjobs"),
            RAY: kinds(RayCluster="rayclusters"),
            PODGROUPS: kinds(PodGroup="podgroups", Queue="queues"),
        }

    def get(self, path: str) -> Json:
        if path not in self.documents:
            raise KubeError(403, "Forbidden", "no right to read it")
        return self.documents[path]


def kinds(**plurals: str) -> Json:
    """Discovery's answer for one version of a group, subresources among the resources."""
    names = [(kind, name) for kind, plural in plurals.items() for name in (f"{plural}/status", plural)]
    return {"resources": [{"kind": kind, "name": name} for kind, name in names]}


def group(base: str, kind: str, name: str = "train", **status: str) -> Json:
    """A PodGroup of an owner of this kind with the uid 17."""
    owner = {"apiVersion": base.removeprefix("/apis/"), "kind": kind, "name": "train", "uid": "17", "controller": True}
    return {"metadata": {"namespace": "team", "name": name, "ownerReferences": [owner]}, "status": status}


def pytorch_job(**schedulers: str) -> Json:
    """A PyTorchJob with a role for each schedulerName; a template without one has an empty one here."""
    pods = {role: {"containers": [{"name": "pytorch"}], "schedulerName": name} for role, name in schedulers.items()}
    return {"spec": {"pytorchReplicaSpecs": {role: {"template": {"spec": pod}} for role, pod in pods.items()}}}


def is_let_in(api: Api, found: Json) -> bool:
    """Whether it is let in by a hived that serves the schedulerName hived."""
    return waits_for_us(api, "hived".__eq__, found)


def test_a_group_of_a_job_that_waits_in_a_queue_is_kept_out() -> None:
    api = Api()
    api.documents[f"{VOLCANO}/namespaces/team/jobs/train"] = {"spec": {"schedulerName": "hived"}}
    found = group(VOLCANO, "Job")
    assert is_let_in(api, found)
    found["metadata"]["annotations"] = {"hivedscheduler.microsoft.com/queue-held": "true"}
    assert not is_let_in(api, found)


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (pytorch_job(Master="hived", Worker="hived"), True),
        (pytorch_job(Master="default-scheduler", Worker="hived"), True),
        (pytorch_job(Master="volcano", Worker="volcano"), False),
        (pytorch_job(Master="", Worker=""), False),
    ],
    ids=["ours", "ours in part", "Volcano's", "without a name"],
)
def test_the_schedulers_of_an_owners_pod_templates_decide(owner: Json, expected: bool) -> None:
    api = Api()
    api.documents[f"{KUBEFLOW}/namespaces/team/pytorchjobs/train"] = owner
    assert is_let_in(api, group(KUBEFLOW, "PyTorchJob", phase="Pending")) is expected


@pytest.mark.parametrize(("scheduler", "expected"), [("hived", True), ("volcano", False), ("", False)])
def test_the_scheduler_of_a_job_of_volcano_holds_for_its_tasks(scheduler: str, expected: bool) -> None:
    api, task = Api(), {"template": {"spec": {"containers": [{"name": "main"}]}}}
    document = {"spec": {"schedulerName": scheduler, "tasks": [task]}}
    api.documents[f"{VOLCANO}/namespaces/team/jobs/train"] = document
    assert is_let_in(api, group(VOLCANO, "Job")) is expected


@pytest.mark.parametrize("phase", ["Inqueue", "Running", "Unknown", "Completed"])
def test_a_pod_group_that_is_past_pending_is_left_alone(phase: str) -> None:
    api = Api()
    api.documents[f"{KUBEFLOW}/namespaces/team/pytorchjobs/train"] = pytorch_job(Worker="hived")
    assert not is_let_in(api, group(KUBEFLOW, "PyTorchJob", phase=phase))


def test_an_owner_that_may_not_be_read_is_left_to_volcanos_queues() -> None:
    assert not is_let_in(Api(), group(RAY, "RayCluster"))


def test_an_owner_that_may_not_be_read_is_let_in_where_volcano_has_no_queues() -> None:
    api = Api()
    api.documents[PODGROUPS] = kinds(PodGroup="podgroups")
    assert is_let_in(api, group(RAY, "RayCluster"))


def test_a_pod_group_that_volcanos_controller_made_for_pods_is_left_alone() -> None:
    api = Api()
    api.documents[PODGROUPS] = kinds(PodGroup="podgroups")
    assert not is_let_in(api, group("/apis/apps/v1", "ReplicaSet", volcano.MADE.format("17")))


def test_a_pod_group_without_an_owner_is_left_alone() -> None:
    found = group(RAY, "RayCluster")
    del found["metadata"]["ownerReferences"]
    assert not is_let_in(Api(), found)


def test_an_owner_whose_kind_is_gone_is_left_alone() -> None:
    assert not is_let_in(Api(), group(RAY, "RayJob"))


def test_an_owner_that_cannot_be_read_now_is_an_error_to_try_again() -> None:
    class Away(Api):
        def get(self, path: str) -> Json:
            raise KubeError(503, "ServiceUnavailable", "no answer")

    with pytest.raises(KubeError):
        is_let_in(Away(), group(KUBEFLOW, "PyTorchJob"))
