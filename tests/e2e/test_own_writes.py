"""What hived may change in the objects of others, on a real API server: nothing but what the service writes."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hived_deploy.installation import SCHEDULER, Installation, deploy_folder
from hived_extender.kube.client import KubeClient, KubeError
from tests.e2e.plane import ControlPlane
from tests.e2e.rights import grant_rights, service_kubeconfig

POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/hived-own-writes"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
GATE = "hivedscheduler.microsoft.com/queue"
CONTAINER = {"name": "main", "image": "honest"}
OTHER_IMAGE = [{"name": "main", "image": "evil"}]

Json = dict[str, Any]


def template(**fields: Any) -> Json:
    spec = {"containers": [CONTAINER], "restartPolicy": "Always", **fields}
    return {"metadata": {"labels": {"app": "a"}}, "spec": spec}


@pytest.fixture(scope="module")
def hived(plane: ControlPlane) -> Iterator[KubeClient]:
    """With the account's rights; the policy is in force, and a pod, a Deployment and a Job are there."""
    plane.clear()
    grant_rights(plane)
    gates = [{"name": GATE}, {"name": "example.com/other"}]
    pod = {"containers": [CONTAINER], "schedulerName": "nobody"}
    plane.kube.create(PODS, {"metadata": {"name": "p"}, "spec": pod})
    plane.kube.create(PODS, {"metadata": {"name": "gated"}, "spec": pod | {"schedulingGates": gates}})
    selector = {"matchLabels": {"app": "a"}}
    spec = {"replicas": 0, "selector": selector, "template": template()}
    plane.kube.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    job = {"suspend": True, "template": template(restartPolicy="Never")}
    plane.kube.create(JOBS, {"metadata": {"name": "j"}, "spec": job})
    client = KubeClient.connect(kubeconfig=str(service_kubeconfig(plane)))
    values = itertools.count()
    plane.wait_for(
        "the policy to be in force", lambda: "own alone" in refusal(client, f"{PODS}/p", labelled(f"{next(values)}"))
    )
    yield client
    client.close()
    plane.clear()


def labelled(value: str) -> Json:
    return {"metadata": {"labels": {"example.com/label": value}}}


def refusal(kube: KubeClient, path: str, body: Json, *, by_lists: bool = False) -> str:
    """Why a change is refused, "" if it is carried out."""
    try:
        kube.patch_lists(path, body) if by_lists else kube.patch(path, body)
    except KubeError as error:
        return str(error)
    return ""


NOTE = {"metadata": {"annotations": {"hivedscheduler.microsoft.com/queue-state": "{}"}}}
ALLOWED = {
    "an annotation of its own on a pod": (f"{PODS}/p", NOTE),
    "its retry label": (f"{PODS}/p", {"metadata": {"labels": {"hivedscheduler.microsoft.com/pod-retry-at": "1"}}}),
    "an annotation of its own on a Deployment": (f"{DEPLOYMENTS}/d", NOTE),
    "a job to be resumed": (f"{JOBS}/j", {**NOTE, "spec": {"suspend": False}}),
    "its own gate": (f"{PODS}/gated", {"spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}),
    "a condition of a pod": (f"{PODS}/p/status", {"status": {"conditions": [{"type": "A", "status": "True"}]}}),
}
REFUSED = {
    "another image in a pod": (f"{PODS}/p", {"spec": {"containers": OTHER_IMAGE}}),
    "a deadline for a pod": (f"{PODS}/p", {"spec": {"activeDeadlineSeconds": 1}}),
    "another's label on a pod": (f"{PODS}/p", labelled("other")),
    "an owner of a pod": (
        f"{PODS}/p",
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "u"}]}},
    ),
    "a finalizer of a pod": (f"{PODS}/p", {"metadata": {"finalizers": ["example.com/never"]}}),
    "another's gate": (
        f"{PODS}/gated",
        {"spec": {"schedulingGates": [{"name": "example.com/other", "$patch": "delete"}]}},
    ),
    "the address of a pod": (f"{PODS}/p/status", {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}),
    "the end of a pod": (f"{PODS}/p/status", {"status": {"phase": "Succeeded"}}),
    "another image in a Deployment": (
        f"{DEPLOYMENTS}/d",
        {"spec": {"template": {"spec": {"containers": OTHER_IMAGE}}}},
    ),
    "another account in a Deployment": (
        f"{DEPLOYMENTS}/d",
        {"spec": {"template": {"spec": {"serviceAccountName": "admin"}}}},
    ),
    "more replicas of a Deployment": (f"{DEPLOYMENTS}/d", {"spec": {"replicas": 9}}),
    "another parallelism of a Job": (f"{JOBS}/j", {"spec": {"parallelism": 9}}),
    "a label of a Job": (f"{JOBS}/j", labelled("other")),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_service_writes_is_let_through(hived: KubeClient, name: str) -> None:
    path, body = ALLOWED[name]
    assert refusal(hived, path, body, by_lists="gate" in name or "condition" in name) == ""


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_thief_of_the_account_would_write_is_refused(hived: KubeClient, name: str) -> None:
    path, body = REFUSED[name]
    said = refusal(hived, path, body, by_lists="metadata" not in body)
    assert "hived-own-writes" in said, said


def test_an_administrator_is_not_restricted(plane: ControlPlane, hived: KubeClient) -> None:
    assert refusal(plane.kube, f"{DEPLOYMENTS}/d", {"spec": {"revisionHistoryLimit": 3}}) == ""


def test_the_api_server_finds_nothing_wrong_with_the_policy(plane: ControlPlane, hived: KubeClient) -> None:
    def status() -> Json:
        policy = plane.kube.get(POLICY)
        found: Json = policy.get("status", {})
        return found if found.get("observedGeneration") == policy["metadata"]["generation"] else {}

    plane.wait_for("the types to be checked", lambda: "typeChecking" in status())
    assert status()["typeChecking"] == {}


@pytest.mark.usefixtures("hived")
def test_rights_on_tenants_objects_can_end_at_their_namespaces(plane: ControlPlane) -> None:
    own = "hived-within"
    within = Installation(
        configuration=(deploy_folder() / "base" / "hivedscheduler.yaml").read_text(),
        virtual_clusters=("default",),
        namespace=own,
        has_queues=True,
        tenant_namespaces=("default",),
    )
    kinds = {"Namespace", "ServiceAccount", "RoleBinding"}
    objects = [each for each in within.objects() if each["kind"] in kinds and SCHEDULER not in each["metadata"]["name"]]
    grant_rights(plane)  # the roles
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
    try:
        client = KubeClient.connect(kubeconfig=str(plane.service_account_kubeconfig(own, "hived")))
        plane.wait_for("the rights", lambda: not refusal(client, f"{PODS}/p", NOTE))
        elsewhere = "/api/v1/namespaces/kube-system/pods/p"
        assert "forbidden" in refusal(client, elsewhere, NOTE)
        with pytest.raises(KubeError, match="forbidden"):
            client.delete_pod("kube-system", "p")
        assert not refusal(client, f"{JOBS}/j", NOTE)
        assert "forbidden" in refusal(client, "/apis/batch/v1/namespaces/kube-system/jobs/j", NOTE)
        client.close()
    finally:
        plane.kubectl("delete", "namespace", own, "--wait=false")
