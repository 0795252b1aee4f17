"""What cannot be held says which kind it is, and what would do instead."""

import pytest

from hived.values.errors import UserError
from hived_extender.api.waiting import Job
from hived_extender.kube.client import KubeClient
from hived_jobs.suspension import resume, suspend
from tests.stub_server import StubServer


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("Job/ns/train", "batch.volcano.sh/v1alpha1", "hived knows no field that suspends a batch.volcano.sh Job. "),
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
            resume(KubeClient.connect(server.url), Job(name=name, state="Running", api_version=version))
        assert raised.value.message.startswith(f"{name} is not held, and hived holds none of its kind: ")
