"""Jobs wait as jobs on a real control plane, beside Kubernetes' Job controller, with rights and kinds that we ship."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from hived_deploy.installation import kinds_of_queues
from hived_extender.http.webhook import MUTATE_PATH, VALIDATE_PATH
from hived_extender.jobs.kinds.gates import GATE
from hived_extender.kube.client import KubeError
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import configuration
from tests.e2e.webhooks import webhook
from tests.expecting import expect_soon

Json = dict[str, Any]
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
EVENTS = "/api/v1/namespaces/default/events"
UNITS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/queueunits"
QUEUES = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/kube-queue/queues"
TREES = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees"
MUTATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def kinds(plane: ControlPlane) -> Iterator[None]:
    """The kinds of objects that we ship; they are gone afterwards."""
    namespace, *definitions = kinds_of_queues()
    plane.kube.create("/api/v1/namespaces", namespace)
    with plane.defined(*definitions):
        yield
    plane.kubectl("delete", "--wait", "namespace/kube-queue")


@pytest.fixture
def hived(plane: ControlPlane, kinds: None, tmp_path: Path) -> Iterator[RealCluster]:
    """hived with queues; the jobs are gone afterwards."""
    of_vcs = {"a": {"queue": {"borrow": True}}}
    file = configuration(tmp_path, {"a": 1, "b": 1}, gpus=4, of_vcs=of_vcs, rules=2, queues={"enabled": True})
    with RealCluster(plane, file) as cluster:
        yield cluster
        for job in plane.kube.get(JOBS)["items"]:
            plane.kubectl("delete", "job", job["metadata"]["name"], "--wait=true")
        for tree in plane.kube.get(TREES)["items"]:
            plane.kube.delete(f"{TREES}/{tree['metadata']['name']}")


def tree(least: Json, most: Json, lend: str = "") -> Json:
    """A quota tree whose only leaf, of virtual cluster b, has jobs of the default namespace."""
    large = {"cpu": 999900, GPU: 999900}
    attributes = {"hivedscheduler.microsoft.com/virtual-cluster": "b"}
    if lend:
        attributes["alibabacloud.com/lendlimit"] = lend
    child = {"name": "child-2", "min": least, "max": most, "namespaces": ["default"], "attributes": attributes}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "elasticquotatree", "namespace": "kube-system"},
        "spec": {"root": {"name": "root", "min": large, "max": large, "children": [child]}},
    }


class Jobs:
    """The jobs of the default namespace."""

    def __init__(self, plane: ControlPlane) -> None:
        self.kube = plane.kube

    def create(self, name: str, vc: str, *, suspend: bool = True, gpus: int = 4, **labels: str) -> None:
        """A Job of one pod that takes a whole node by default."""
        said = {"virtual-cluster": vc, "priority": "10"}
        annotations = {f"hivedscheduler.microsoft.com/{key}": value for key, value in said.items()}
        container = {"name": "main", "image": "x", "resources": {"limits": {GPU: gpus}}}
        pod = {"schedulerName": f"hivedscheduler-ds-{vc}", "restartPolicy": "Never", "containers": [container]}
        spec = {"suspend": suspend, "template": {"metadata": {"annotations": annotations}, "spec": pod}}
        self.kube.create(JOBS, {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def runs(self, name: str) -> bool:
        """Is its pod bound?"""
        return any(
            pod["spec"].get("nodeName")
            and pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == name
            for pod in self.kube.get(PODS)["items"]
        )

    def waits(self, name: str) -> bool:
        """Is it suspended, without pods?"""
        return bool(self.kube.get(f"{JOBS}/{name}")["spec"]["suspend"]) and not self.runs(name)

    def phase(self, name: str) -> str:
        """The phase of its QueueUnit."""
        units = {one["metadata"]["name"]: one for one in self.kube.get(UNITS)["items"]}
        return str(units.get(name, {}).get("status", {}).get("phase", ""))


@pytest.fixture
def jobs(plane: ControlPlane, hived: RealCluster) -> Jobs:
    return Jobs(plane)


def test_a_job_waits_as_a_job_and_starts_when_another_one_is_gone(plane: ControlPlane, jobs: Jobs) -> None:
    jobs.create("first", "b")
    expect_soon(lambda: jobs.runs("first"))
    expect_soon(lambda: jobs.phase("first") == "Running")
    jobs.create("second", "b")
    expect_soon(lambda: jobs.phase("second") == "Enqueued")
    assert jobs.waits("second")
    listed = plane.kubectl("get", "queue", "-n", "kube-queue")
    assert "b-" in listed.stdout
    plane.kubectl("delete", "job", "first")
    expect_soon(lambda: jobs.runs("second"))


def test_a_borrower_is_called_back_for_the_owner(jobs: Jobs) -> None:
    jobs.create("own", "a")
    expect_soon(lambda: jobs.runs("own"))
    jobs.create("ahead", "a")
    expect_soon(lambda: jobs.runs("ahead"))
    jobs.create("owner", "b")
    expect_soon(lambda: jobs.runs("owner"))
    expect_soon(lambda: jobs.waits("ahead"))
    assert (jobs.runs("own"), jobs.runs("owner")) == (True, True), "jobs on their own cells run on"


def test_a_quota_lets_one_job_run_at_a_time(jobs: Jobs) -> None:
    own = {"kube-queue/max-jobs": 1, GPU: 10000}
    jobs.kube.create(TREES, tree(own, own))
    jobs.create("one", "b", gpus=1)
    expect_soon(lambda: jobs.runs("one"))
    jobs.create("two", "b", gpus=1)
    expect_soon(lambda: jobs.phase("two") == "Enqueued")
    assert jobs.waits("two")
    jobs.kube.delete(f"{TREES}/elasticquotatree")
    expect_soon(lambda: jobs.runs("two"))
    assert jobs.runs("one"), "without the tree nothing limits them"


@pytest.fixture
def checked(plane: ControlPlane, kinds: None, tmp_path: Path) -> Iterator[RealCluster]:
    """hived with queues, which the API server asks about every tree; no tree is left afterwards."""
    file = configuration(tmp_path, {"a": 1, "b": 1}, gpus=4, rules=2, queues={"enabled": True})
    document, options = webhook("ValidatingWebhookConfiguration", VALIDATE_PATH, file, tmp_path / "certificates")
    with RealCluster(plane, file, serve_options=options) as cluster:
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(document))
        try:
            plane.wait_for("the API server to ask about trees", lambda: not is_taken(plane, {GPU: 2}, {GPU: 1}))
            yield cluster
        finally:
            plane.kube.delete(f"{VALIDATIONS}/{document['metadata']['name']}")
            plane.wait_for("nobody to be asked", lambda: is_taken(plane, {GPU: 2}, {GPU: 1}))
            for each in plane.kube.get(TREES)["items"]:
                plane.kube.delete(f"{TREES}/{each['metadata']['name']}")
            for each in plane.kube.get(JOBS)["items"]:
                plane.kubectl("delete", "job", each["metadata"]["name"], "--wait=true")


def is_taken(plane: ControlPlane, least: Json, most: Json) -> bool:
    """Would the API server store a tree with such a leaf?"""
    try:
        plane.kube.create(f"{TREES}?dryRun=All", {**tree(least, most), "metadata": {"name": "trial"}})
    except KubeError:
        return False
    return True


def test_the_api_server_stores_no_tree_that_breaks_rules_and_says_every_mistake(
    plane: ControlPlane, checked: RealCluster
) -> None:
    with pytest.raises(CalledProcessError) as refused:
        plane.kubectl("create", "-f", "-", stdin=json.dumps(tree({GPU: 4}, {GPU: 3}, lend="many")))
    assert "min nvidia.com/gpu is 4, more than max 3" in refused.value.stderr
    assert "alibabacloud.com/lendlimit" in refused.value.stderr
    assert plane.kube.get(TREES)["items"] == []


def test_who_lowers_a_quota_below_its_use_is_warned_and_trees_pass_while_nobody_answers(
    plane: ControlPlane, checked: RealCluster
) -> None:
    jobs = Jobs(plane)
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(tree({GPU: 4}, {GPU: 4})))
    jobs.create("train", "b")
    expect_soon(lambda: jobs.runs("train"))
    lowered = plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(tree({GPU: 2}, {GPU: 2})))
    assert "jobs that run use 2 nvidia.com/gpu more than its max" in lowered.stderr
    assert "Job/default/train" in lowered.stderr
    checked.services[0].stop()
    assert is_taken(plane, {GPU: 4}, {GPU: 3}), "nobody should need hived to change an object"


def test_a_gang_of_plain_pods_waits_at_its_gate_and_is_called_back_if_it_is_made_anew(
    plane: ControlPlane, jobs: Jobs
) -> None:
    jobs.create("own", "a")
    expect_soon(lambda: jobs.runs("own"))
    annotations = {
        "gang.scheduling.koordinator.sh/name": "ring",
        "gang.scheduling.koordinator.sh/min-available": "2",
        "hivedscheduler.microsoft.com/virtual-cluster": "a",
        "hivedscheduler.microsoft.com/priority": "10",
    }
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: 2}}}
    spec = {"schedulerName": "hivedscheduler-ds-a", "containers": [container], "schedulingGates": [{"name": GATE}]}
    labels = {"app": "ring"}
    made = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
    replicas = {"replicas": 2, "selector": {"matchLabels": labels}, "template": made}
    jobs.kube.create(REPLICA_SETS, {"metadata": {"name": "ring"}, "spec": replicas})

    def ring() -> list[Json]:
        pods = [pod for pod in jobs.kube.get(PODS)["items"] if pod["metadata"].get("labels", {}).get("app") == "ring"]
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def is_at_gate() -> bool:
        return len(ring()) == 2 and all(pod["spec"].get("schedulingGates") for pod in ring())

    expect_soon(lambda: len([pod for pod in ring() if pod["spec"].get("nodeName")]) == 2)
    expect_soon(lambda: jobs.phase("ring-gang-qu") in ("Dequeued", "Running"))
    jobs.create("owner", "b")
    expect_soon(lambda: jobs.runs("owner"))
    expect_soon(is_at_gate)
    expect_soon(lambda: jobs.phase("ring-gang-qu") == "Enqueued")
    assert not any(pod["spec"].get("nodeName") for pod in ring())
    plane.kubectl("delete", "job", "owner")
    expect_soon(lambda: len([pod for pod in ring() if pod["spec"].get("nodeName")]) == 2)
    plane.kubectl("delete", "replicaset", "ring")


@pytest.mark.parametrize("is_gated", [True, False], ids=["with the gate", "without the gate"])
def test_pods_of_a_deployment_wait_for_its_turn(plane: ControlPlane, jobs: Jobs, is_gated: bool) -> None:
    jobs.create("first", "b")
    expect_soon(lambda: jobs.runs("first"))
    said = {"virtual-cluster": "b", "priority": "10"}
    annotations = {f"hivedscheduler.microsoft.com/{key}": value for key, value in said.items()}
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: 2}}}
    spec: Json = {"schedulerName": "hivedscheduler-ds-b", "containers": [container]}
    if is_gated:
        spec["schedulingGates"] = [{"name": GATE}]
    labels = {"app": "serve"}
    made = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
    replicas = {"replicas": 2, "selector": {"matchLabels": labels}, "template": made}
    jobs.kube.create(DEPLOYMENTS, {"metadata": {"name": "serve"}, "spec": replicas})

    def nodes() -> list[str]:
        pods = [one for one in jobs.kube.get(PODS)["items"] if one["metadata"].get("labels", {}).get("app") == "serve"]
        return [one["spec"].get("nodeName", "") for one in pods]

    def is_told() -> bool:
        found = [one for one in jobs.kube.get(EVENTS)["items"] if one["involvedObject"]["kind"] == "Deployment"]
        return any(one["reason"] == "Enqueued" and "not created held" in one["message"] for one in found)

    expect_soon(lambda: jobs.phase("serve-deployment-qu") == "Enqueued")
    expect_soon(is_told)
    expect_soon(lambda: nodes() == ["", ""])
    assert jobs.runs("first")
    plane.kubectl("delete", "job", "first")
    expect_soon(lambda: len(nodes()) == 2 and all(nodes()))
    plane.kubectl("delete", "deployment", "serve")


@pytest.fixture
def admitted(plane: ControlPlane, kinds: None, tmp_path: Path) -> Iterator[Jobs]:
    """The jobs beside hived with queues, and with the webhook that holds jobs and takes devices out of pods."""
    file = configuration(tmp_path, {"a": 1, "b": 1}, gpus=4, rules=2, queues={"enabled": True})
    with admitting(plane, file):
        yield Jobs(plane)


@contextmanager
def admitting(plane: ControlPlane, file: Path, scheduler: str = "hivedscheduler-ds-b") -> Iterator[RealCluster]:
    """A cluster whose API server asks hived about pods and jobs that are created."""
    document, options = webhook("MutatingWebhookConfiguration", MUTATE_PATH, file, file.parent / "certificates")
    with RealCluster(plane, file, serve_options=options) as cluster:
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(document))
        try:
            plane.wait_for("the webhook to be asked", lambda: is_born_held(plane, scheduler))
            yield cluster
        finally:
            plane.kube.delete(f"{MUTATIONS}/{document['metadata']['name']}")
            plane.wait_for("nobody to be asked", lambda: not is_born_held(plane, scheduler))


def is_born_held(plane: ControlPlane, scheduler: str = "hivedscheduler-ds-b") -> bool:
    """Does the webhook answer about jobs?"""
    pod = {
        "restartPolicy": "Never",
        "schedulerName": scheduler,
        "containers": [{"name": "main", "image": "x", "resources": {"limits": {GPU: 1}}}],
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "asks"}, "spec": {"template": {"spec": pod}}}
    found = plane.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(job))
    return bool(json.loads(found.stdout)["spec"].get("suspend"))


def test_gangs_and_deployments_wait_for_cells_beside_the_webhook(plane: ControlPlane, admitted: Jobs) -> None:
    jobs = admitted
    jobs.create("first", "b", suspend=False)
    expect_soon(lambda: jobs.runs("first"))
    said = {"virtual-cluster": "b", "priority": "10"}
    annotations = {f"hivedscheduler.microsoft.com/{key}": value for key, value in said.items()}
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: 2}}}
    spec: Json = {"schedulerName": "hivedscheduler-ds-b", "containers": [container]}
    gang = {
        f"gang.scheduling.koordinator.sh/{key}": value for key, value in {"name": "ring", "min-available": "2"}.items()
    }
    labels = {"app": "serve"}
    replicas = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
    }
    jobs.kube.create(DEPLOYMENTS, {"metadata": {"name": "serve"}, "spec": replicas})
    expect_soon(lambda: jobs.phase("serve-deployment-qu") == "Enqueued")
    for number in range(2):
        jobs.kube.create(
            PODS, {"metadata": {"name": f"ring-{number}", "annotations": annotations | gang}, "spec": spec}
        )
    expect_soon(lambda: jobs.phase("ring-gang-qu") == "Enqueued")

    def placed(name: str) -> int:
        pods = [one for one in jobs.kube.get(PODS)["items"] if one["metadata"]["name"].startswith(f"{name}-")]
        return sum(bool(one["spec"].get("nodeName")) for one in pods)

    expect_soon(lambda: len(jobs.kube.get(PODS)["items"]) == 5)
    pods = [one for one in jobs.kube.get(PODS)["items"] if not one["spec"].get("nodeName")]
    assert [len(one["spec"]["schedulingGates"]) for one in pods] == [1] * 4
    plane.kubectl("delete", "job", "first")
    expect_soon(lambda: placed("serve") == 2)
    assert placed("ring") == 0
    plane.kubectl("delete", "deployment", "serve")
    expect_soon(lambda: placed("ring") == 2)
    plane.kubectl("delete", "pod", "ring-0", "ring-1")
