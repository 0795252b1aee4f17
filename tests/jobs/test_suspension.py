"""What cannot be held says which kind it is, and what would do instead."""

import json
from typing import Any
from unittest.mock import ANY

import pytest

from hived.values.errors import UserError
from hived_extender.api.waiting import Job
from hived_extender.jobs.kinds.marks import HELD
from hived_extender.kube.client import KubeClient
from hived_jobs.suspension import resume, suspend, suspend_cron
from tests.stub_server import Request, StubServer


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("RayService/ns/serve", "ray.io/v1", "hived knows no field that suspends a ray.io RayService. "),
        ("Notebook/ns/n", "", "hived knows no field that suspends a Notebook. "),
        ("Deployment/ns/web", "apps/v1", "a Deployment has no field that suspends it. Scale it to 0 instead: "),
        ("podgroup/ns/g", "", "it consists of pods, and Kubernetes suspends no pod that is there. "),
    ],
)
def test_a_job_that_cannot_be_held_says_why(name: str, version: str, expected: str) -> None:
    with StubServer(lambda request: (404, b"{}")) as server, pytest.raises(UserError) as raised:
        suspend(KubeClient.connect(server.url), Job(name=name, state="Running", api_version=version))
    assert raised.value.message.startswith(f"{name} cannot be held: {expected}")
    if version != "apps/v1":  # its pods may have gates
        with StubServer(lambda request: (404, b"{}")) as server, pytest.raises(UserError) as raised:
            resume(KubeClient.connect(server.url), Job(name=name, state="Running", api_version=version), is_now=False)
        assert raised.value.message.startswith(f"{name} is not held, and hived holds none of its kind: ")


def test_a_job_of_volcano_is_held_and_released_by_its_own_commands() -> None:
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ns", "uid": "u"},
        "spec": {"tasks": [{"name": "worker", "replicas": 2, "template": {}}]},
        "status": {"state": {"phase": "Running"}, "running": 2},
    }
    writes: list[tuple[str, Any]] = []

    def answer(request: Request) -> tuple[int, bytes]:
        if request.method == "GET":
            return 200, json.dumps(document).encode()
        body = json.loads(request.body)
        writes.append((request.method, body.get("action", body["metadata"].get("annotations"))))
        return (404, b"{}") if "podgroups" in request.target else (200, b"{}")

    job = Job(name="Job/ns/train", state="Running", api_version="batch.volcano.sh/v1alpha1")
    with StubServer(answer) as server:
        kube = KubeClient.connect(server.url)
        assert suspend(kube, job) == "held: its controller deletes its pods"
        assert writes == [("PATCH", {HELD: None}), ("POST", "AbortJob")]  # with the mark its service resumed it
        document["status"] = {"state": {"phase": "Aborted"}}
        writes.clear()
        assert suspend(kube, job) == "is held already"
        assert resume(kube, job, is_now=False) == "released"
        assert writes == [*[("PATCH", ANY)] * 3, ("POST", "ResumeJob")]


def test_a_cron_job_is_held_also_by_who_may_not_list_its_runs() -> None:
    path = "/apis/batch/v1/namespaces/ns/cronjobs/nightly"
    metadata = {"name": "nightly", "namespace": "ns", "uid": "u"}
    made = {"metadata": metadata, "spec": {}}

    def answer(request: Request) -> tuple[int, bytes]:
        return (200, json.dumps(made).encode()) if request.target.startswith(path) else (403, b"{}")

    with StubServer(answer) as server:
        told = suspend_cron(KubeClient.connect(server.url), path, is_on=True)
    assert told == "held: it starts no more runs; runs that are there go on"
