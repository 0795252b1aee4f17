"""The policy of docs/queued-jobs.md: a job names the user who creates it, and keeps that name."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import yaml

from hived_extender.jobs.kinds.marks import USER
from hived_extender.kube.client import KubeClient, KubeError
from tests.e2e.plane import ControlPlane
from tests.places import ROOT

JOBS = "/apis/batch/v1/namespaces/default/jobs"
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: authors}
rules: [{apiGroups: [batch], resources: [jobs], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: authors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: authors}
subjects: [{kind: Group, name: authors, apiGroup: rbac.authorization.k8s.io}]
"""


def job(name: str, user: str) -> dict[str, Any]:
    """A suspended job that names a user."""
    metadata = {"name": name, "annotations": {USER: user} if user else {}}
    pod = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
        "spec": {"suspend": True, "template": {"spec": pod}},
    }  # fmt: skip


@pytest.fixture(scope="module")
def tenant(plane: ControlPlane) -> Iterator[KubeClient]:
    """A user `ann` who may write jobs, with the policy in force."""
    policy = (ROOT / "docs" / "queued-jobs.md").read_text().split("```yaml\n", 1)[1].split("```", 1)[0]
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(policy)]
    plane.kubectl("apply", "-n", "default", "-f", "-", stdin=f"{RIGHTS}---\n{policy}")
    client = KubeClient.connect(kubeconfig=str(plane.kubeconfig("ann", ["authors"])))

    def is_in_force() -> bool:
        try:
            client.delete(f"{JOBS}/{client.create(JOBS, job('probe', 'bob'))['metadata']['name']}")
        except KubeError as error:
            return "annotate" in str(error)  # else the rights of ann are not there yet
        return False

    plane.wait_for("the policy to be in force", is_in_force)
    yield client
    client.close()
    kinds = ("validatingadmissionpolicy", "validatingadmissionpolicybinding")
    plane.kubectl("delete", *(f"{kind}/{name}" for kind, name in zip(kinds, names, strict=True)))
    plane.kubectl("delete", "-n", "default", "rolebinding/authors", "role/authors")


@pytest.mark.parametrize("user", ["bob", ""])
def test_a_job_of_another_name_or_of_none_is_refused_with_the_right_one(tenant: KubeClient, user: str) -> None:
    with pytest.raises(KubeError, match=f"annotate {USER}: ann"):
        tenant.create(JOBS, job("other", user))


def test_the_name_of_the_creator_stays(tenant: KubeClient, plane: ControlPlane) -> None:
    tenant.create(JOBS, job("own", "ann"))
    try:
        with pytest.raises(KubeError, match="annotate"):
            tenant.patch(f"{JOBS}/own", {"metadata": {"annotations": {USER: "bob"}}})
        plane.kube.patch(f"{JOBS}/own", {"spec": {"suspend": False}})
    finally:
        tenant.delete(f"{JOBS}/own")


def test_a_service_account_makes_jobs_for_others(tenant: KubeClient, plane: ControlPlane) -> None:
    account = str(plane.kubeconfig("system:serviceaccount:default:platform", ["authors"]))
    with closing(KubeClient.connect(kubeconfig=account)) as platform:
        made = platform.create(JOBS, job("made", "bob"))
        assert made["metadata"]["annotations"][USER] == "bob"
        platform.delete(f"{JOBS}/made")
