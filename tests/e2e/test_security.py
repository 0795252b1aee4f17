"""A secured service on a real control plane: kube-scheduler's tlsConfig, and tokens that the API server reviews."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hived_extender.api.paths import FILTER_PATH
from hived_extender.http.access import REMEMBER_GRANTED_S
from hived_extender.kube.client import pod_path
from hived_lab.embedded.nodes import machines_of
from tests.e2e.cluster import READY_S
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import BUSY_S, POD_LIST, configuration, pod
from tests.e2e.rights import grant_rights
from tests.e2e.secured import SecuredService, account_token

CORE = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER = "/v1/inspect/clusterstatus"


def create_pod(plane: ControlPlane, name: str) -> None:
    """A pod of one GPU."""
    plane.kube.create(POD_LIST, pod(name))


def node_of(plane: ControlPlane, name: str) -> Any:
    """Where a pod is bound, None before."""
    return plane.kube.get(pod_path("default", name))["spec"].get("nodeName")


@pytest.fixture
def service(plane: ControlPlane, tmp_path: Path) -> Iterator[SecuredService]:
    plane.clear()
    grant_rights(plane, overlay="tls")
    service = SecuredService(plane, tmp_path, configuration(tmp_path, {"a": 1}, gpus=4))
    plane.add_nodes(machines_of(service.spec))
    try:
        service.process.start(ready_s=READY_S)
        yield service
    finally:
        service.process.stop()


def test_kube_scheduler_binds_through_mutual_tls_also_after_a_renewal(
    plane: ControlPlane, service: SecuredService
) -> None:
    scheduler = service.start_scheduler()
    try:
        create_pod(plane, "first")
        plane.wait_for("the first pod to be bound", lambda: node_of(plane, "first") == "n0")
        before = service.serial()
        service.make_certificates("--force")
        assert service.serial() != before
        create_pod(plane, "second")
        plane.wait_for("the second pod to be bound", lambda: node_of(plane, "second") == "n0")
        scheduler = service.start_scheduler()
        create_pod(plane, "third")
        plane.wait_for("the third pod to be bound", lambda: node_of(plane, "third") == "n0")
    finally:
        scheduler.stop()


def test_the_api_server_decides_who_may_look_and_nobody_else_comes_in(
    plane: ControlPlane, service: SecuredService
) -> None:
    viewer, nobody = account_token(plane, "viewer"), account_token(plane, "nobody")
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": "viewer"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "hived-viewer"}
    binding = {"metadata": {"name": "test-viewer"}, "subjects": [subject], "roleRef": reference}
    try:
        plane.kube.create(f"{RBAC}/clusterrolebindings", binding)
        plane.wait_for("the viewer to be let in", lambda: service.status(CLUSTER, viewer) == 200)
        assert [service.status(path, viewer) for path in ("/", "/metrics", "/openapi.json", "/v1/inspect/x")] == [
            200, 200, 200, 404,
        ]  # fmt: skip
        assert [service.status(CLUSTER, token) for token in ("", "forged", nobody)] == [401, 401, 403]
        assert service.status(CLUSTER, viewer, "DELETE") == 403
        assert service.status("/v1/admin", viewer) == 403
        assert service.status(FILTER_PATH, viewer, "POST") == 401
        plane.kube.delete(f"{RBAC}/clusterrolebindings/test-viewer")
        began = time.monotonic()
        plane.wait_for("the right to be gone", lambda: service.status(CLUSTER, viewer) == 403)
        assert time.monotonic() - began < REMEMBER_GRANTED_S + BUSY_S
        log = service.process.log.read_text()
        assert all(token not in log for token in (viewer, nobody, "forged"))
    finally:
        for path in (
            f"{CORE}/serviceaccounts/viewer",
            f"{CORE}/serviceaccounts/nobody",
        ):
            plane.kube.delete(path)
