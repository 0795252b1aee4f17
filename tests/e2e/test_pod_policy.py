"""The policies of pods on a real API server: the cases of the embedded one, and each policy's state.

The policy of hived's own writes is in force there as well: it refuses pods that hived would make.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from hived_deploy.installation import NAMESPACE
from hived_extender.kube.client import KubeClient
from tests.e2e.plane import ControlPlane
from tests.e2e.rights import HIVED as ACCOUNT
from tests.e2e.rights import grant_rights, service_kubeconfig
from tests.pod_writes import ADMIN, BINDING, BINDINGS, CASES, CREATED, HIVED, PODS, TENANT, Case, Writes, check

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
OWN_WRITES = "hived-own-writes"
GROUP = "tenants"
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant}
rules:
- apiGroups: [""]
  resources: [pods, pods/status, pods/binding, bindings]
  verbs: ["*"]
# A tenant may have this in its own namespace; the policies ask for it in all of them.
- apiGroups: [hivedscheduler.microsoft.com]
  resources: [pods]
  verbs: [bind]
"""


def _as_answered(case: Case) -> Case:
    """A case as all policies together answer it: hived may create no pod at all."""
    if case.user == HIVED and case.old is None:
        return replace(case, said="hived creates no such object", policy=OWN_WRITES)
    return case


@pytest.fixture(scope="module")
def writes(plane: ControlPlane) -> Iterator[Writes]:
    """With both policies in force, for a tenant that has every right to the pods of its namespace."""
    plane.clear()
    grant_rights(plane)
    subjects = [{"kind": "Group", "name": GROUP, "apiGroup": "rbac.authorization.k8s.io"}]
    # Hived has no right to create pods. Here it gets it, so that the policies alone answer.
    subjects.append({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE})
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
        "subjects": subjects,
    }
    plane.kubectl("apply", "-n", "default", "-f", "-", stdin=f"{RIGHTS}---\n{yaml.safe_dump(bound)}")
    tenant = KubeClient.connect(kubeconfig=str(plane.kubeconfig("tenant", [GROUP])))
    hived = KubeClient.connect(kubeconfig=str(service_kubeconfig(plane)))
    found = Writes({TENANT: tenant, HIVED: hived, ADMIN: plane.kube})
    own = _as_answered(next(one for one in CASES if one.user == HIVED and one.old is None))
    for case in (own, *(next(one for one in cases if one.said) for cases in (CREATED, BINDING))):
        plane.wait_for("the policies to be in force", lambda case=case: case.said in found.answer(case))
    yield found
    tenant.close()
    hived.close()
    plane.kubectl("delete", "-n", "default", "rolebinding/tenant", "role/tenant")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_real_api_server_answers_as_the_table_says(writes: Writes, case: Case) -> None:
    check(writes, _as_answered(case))


@pytest.mark.parametrize("name", [PODS, BINDINGS])
def test_the_api_server_finds_nothing_wrong_with_a_policy(plane: ControlPlane, writes: Writes, name: str) -> None:
    def status() -> dict[str, Any]:
        policy = plane.kube.get(f"{POLICIES}/{name}")
        found: dict[str, Any] = policy.get("status", {})
        return found if found.get("observedGeneration") == policy["metadata"]["generation"] else {}

    plane.wait_for("the types to be checked", lambda: "typeChecking" in status())
    assert status()["typeChecking"] == {}
