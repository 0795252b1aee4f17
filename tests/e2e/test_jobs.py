"""Jobs without their controllers: a real API server takes what they are made of, and collects it with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.kube.client import KubeClient
from hived_jobs.controller import JobController
from hived_jobs.policies import Phase
from hived_jobs.records import KIND, read_record
from hived_jobs.submission import JOB
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import Json
from tests.job_files import ALL, VOLCANO

NAMESPACE = "jobs"
NATIVE = {"Job": "/apis/batch/v1", "Deployment": "/apis/apps/v1"}
"""Kinds that every cluster has."""

PLURALS = ("pods", "services", "configmaps", "secrets", "serviceaccounts")


@pytest.fixture
def kube(plane: ControlPlane) -> Iterator[KubeClient]:
    """A cluster with the namespace and the priority class that the files name, without any job."""
    for text in (
        f'{{"apiVersion": "v1", "kind": "Namespace", "metadata": {{"name": "{NAMESPACE}"}}}}',
        '{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}',
    ):
        plane.kubectl("apply", "-f", "-", stdin=text)
    yield plane.kube
    delete_records(plane.kube)
    plane.wait_for("everything to be collected", lambda: not any(made(plane.kube, plural) for plural in PLURALS))


def made(kube: KubeClient, plural: str) -> list[Json]:
    """The jobs that there are."""
    listed = kube.list_objects(f"/api/v1/namespaces/{NAMESPACE}/{plural}", dict).items
    return [one for one in listed if JOB in (one["metadata"].get("labels") or {})]


def delete_records(kube: KubeClient) -> int:
    """Delete every job; how many there were."""
    records = [one for one in made(kube, "configmaps") if KIND in one["metadata"]["labels"]]
    for one in records:
        kube.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{one['metadata']['name']}")
    return len(records)


def submit(plane: ControlPlane, folder: Path, text: str) -> Result:
    file = folder / "job.yaml"
    file.write_text(text.replace("namespace: lab", f"namespace: {NAMESPACE}"))
    words = ["submit", str(file), "--unchecked", "-n", NAMESPACE, "--kubeconfig", str(plane.admin_kubeconfig)]
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in NATIVE])
def test_a_job_is_created_as_a_whole_and_goes_as_a_whole(
    kind: str, plane: ControlPlane, kube: KubeClient, tmp_path: Path
) -> None:
    result = submit(plane, tmp_path, ALL[kind].replace("suspend: true", "suspend: false"))
    assert result.exit_code == 0, result.output
    assert "left out" not in result.stderr
    assert made(kube, "pods")
    assert delete_records(kube) == 1
    plane.wait_for("everything to be collected", lambda: not any(made(kube, plural) for plural in PLURALS))


@pytest.mark.parametrize("kind", NATIVE)
def test_an_object_of_a_kind_that_the_cluster_has_is_created_as_it_is(
    kind: str, plane: ControlPlane, kube: KubeClient, tmp_path: Path
) -> None:
    result = submit(plane, tmp_path, ALL[kind])
    assert result.exit_code == 0, result.output
    where = f"{NATIVE[kind]}/namespaces/{NAMESPACE}/{kind.lower()}s"
    [made_object] = kube.list_objects(where, dict).items
    assert made_object["spec"]["template"]["spec"]["schedulerName"] == "hived"
    assert not made(kube, "configmaps")
    kube.delete(f"{where}/{made_object['metadata']['name']}", with_dependents=True)


def test_an_eviction_restarts_a_job_that_says_so(plane: ControlPlane, kube: KubeClient, tmp_path: Path) -> None:
    assert submit(plane, tmp_path, VOLCANO).exit_code == 0
    before = {pod["metadata"]["uid"] for pod in made(kube, "pods")}
    with JobController(kube, [(NAMESPACE, "vc")]):
        kube.evict_pod(NAMESPACE, "vc-worker-1")
        plane.wait_for("all pods to be new ones", lambda: is_new(kube, before))
    state = read_record(kube, NAMESPACE, "vc").state
    assert (state.phase, state.retries, state.reason) == (Phase.PENDING, 1, "PodEvicted: vc-worker-1 is gone")


def is_new(kube: KubeClient, before: set[str]) -> bool:
    now = {pod["metadata"]["uid"] for pod in made(kube, "pods")}
    is_running = read_record(kube, NAMESPACE, "vc").state.phase is Phase.PENDING
    return len(now) == len(before) and not now & before and is_running
