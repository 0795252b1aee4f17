"""A secured service on a real control plane: kube-scheduler's tlsConfig, and tokens that the API server reviews."""

import time
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from typing import Any

import pytest

from hived_config.loader import load_cluster
from hived_extender.api.paths import FILTER_PATH
from hived_extender.http.reviews import REMEMBER_GRANTED_S
from hived_extender.kube.client import pod_path
from hived_lab.embedded.machines import machines_of
from tests.e2e.certificates import LOOPBACK
from tests.e2e.cluster import READY_S
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import BUSY_S, POD_LIST, configuration, pod
from tests.e2e.processes import Process, free_port, hived_process
from tests.e2e.rights import grant_rights, scheduler_kubeconfig, service_kubeconfig
from tests.e2e.scheduling import scheduler_configuration
from tests.programs import output_of

CORE = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER = "/v1/inspect/clusterstatus"


class SecuredService:
    """`hived serve` secured as docs/security.md says, with what `hived certificates` makes and the rights for TLS."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.files = folder / "certificates"
        self.make_certificates()
        file = configuration(folder, {"a": 1}, gpus=4)
        self.spec = load_cluster(file)
        self.port = free_port()
        self._trust = create_default_context(cafile=self.files / "ca.crt")
        options = [
            f"--config={file}",
            f"--tls-cert-file={self.files}/tls.crt",
            f"--tls-private-key-file={self.files}/tls.key",
        ]
        options += [f"--client-ca-file={self.files}/ca.crt", "--authorize", "--log-level=DEBUG"]
        self.process = hived_process(
            "hived-secured",
            self.port,
            options,
            plane.logs / "hived-secured.log",
            is_ready=lambda: self.status("/readyz") == 200,
            environment={"KUBECONFIG": str(service_kubeconfig(plane))},
        )

    def make_certificates(self, *options: str) -> None:
        """As an administrator does."""
        output_of("certificates", "--out", str(self.files), *options)

    def start_scheduler(self) -> Process:
        """kube-scheduler, with the extender's tlsConfig."""
        tls = {"caFile": "ca.crt", "certFile": "client.crt", "keyFile": "client.key"}
        document = scheduler_configuration(
            f"https://{LOOPBACK}:{self.port}",
            self.spec.virtual_clusters,
            tls={key: str(self.files / name) for key, name in tls.items()},
        )
        return self.plane.start_scheduler(document, scheduler_kubeconfig(self.plane))

    def status(self, path: str, token: str = "", method: str = "GET") -> int:
        """With what a call is answered; 0 if nobody listens."""
        connection = HTTPSConnection(LOOPBACK, self.port, context=self._trust, timeout=15)
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def serial(self) -> str:
        """The number of the certificate that is shown to a new connection."""
        connection = HTTPSConnection(LOOPBACK, self.port, context=self._trust, timeout=15)
        connection.connect()
        try:
            return str(connection.sock.getpeercert()["serialNumber"])
        finally:
            connection.close()

    def create_pod(self, name: str) -> None:
        """A pod of one GPU."""
        self.plane.kube.create(POD_LIST, pod(name))

    def node_of(self, name: str) -> Any:
        """Where a pod is bound, None before."""
        return self.plane.kube.get(pod_path("default", name))["spec"].get("nodeName")


@pytest.fixture
def service(plane: ControlPlane, tmp_path: Path) -> Iterator[SecuredService]:
    plane.clear()
    grant_rights(plane, overlay="tls")
    service = SecuredService(plane, tmp_path)
    plane.add_nodes(machines_of(service.spec))
    try:
        service.process.start(ready_s=READY_S)
        yield service
    finally:
        service.process.stop()


def account_token(plane: ControlPlane, name: str) -> str:
    """The token of a new ServiceAccount."""
    accounts = f"{CORE}/serviceaccounts"
    plane.kube.create(accounts, {"metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str(plane.kube.create(f"{accounts}/{name}/token", request)["status"]["token"])


def test_kube_scheduler_binds_through_mutual_tls_also_after_a_renewal(
    plane: ControlPlane, service: SecuredService
) -> None:
    scheduler = service.start_scheduler()
    try:
        service.create_pod("first")
        plane.wait_for("the first pod to be bound", lambda: service.node_of("first") == "n0")
        before = service.serial()
        service.make_certificates("--force")
        assert service.serial() != before
        service.create_pod("second")
        plane.wait_for("the second pod to be bound", lambda: service.node_of("second") == "n0")
        scheduler = service.start_scheduler()
        service.create_pod("third")
        plane.wait_for("the third pod to be bound", lambda: service.node_of("third") == "n0")
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
