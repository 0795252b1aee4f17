"""`hived serve` with TLS and `--authorize` on a real control plane, and a kube-scheduler that calls it so."""

from collections.abc import Mapping
from http.client import HTTPSConnection
from pathlib import Path
from ssl import create_default_context

from hived_config.loader import load_cluster
from tests.e2e.certificates import LOOPBACK
from tests.e2e.plane import ControlPlane
from tests.e2e.processes import Process, free_port, hived_process
from tests.e2e.rights import scheduler_kubeconfig, service_kubeconfig
from tests.e2e.scheduling import scheduler_configuration
from tests.programs import output_of

ACCOUNTS = "/api/v1/namespaces/{}/serviceaccounts"


class SecuredService:
    """`hived serve` secured as docs/security.md says, with what `hived certificates` makes and the rights for TLS."""

    def __init__(self, plane: ControlPlane, folder: Path, file: Path) -> None:
        self.plane = plane
        self.files = folder / "certificates"
        self.make_certificates()
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
        return self.answer(path, token, method)[0]

    def answer(
        self, path: str, token: str = "", method: str = "GET", body: str = "", headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """The status and the text of a call; 0 if nobody listens."""
        connection = HTTPSConnection(LOOPBACK, self.port, context=self._trust, timeout=60)
        given = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            connection.request(method, path, body or None, given)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def serial(self) -> str:
        """The number of the certificate that is shown to a new connection."""
        connection = HTTPSConnection(LOOPBACK, self.port, context=self._trust, timeout=15)
        connection.connect()
        try:
            return str((connection.sock.getpeercert() or {})["serialNumber"])
        finally:
            connection.close()


def account_token(plane: ControlPlane, name: str, namespace: str = "default") -> str:
    """The token of a new ServiceAccount."""
    accounts = ACCOUNTS.format(namespace)
    plane.kube.create(accounts, {"metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str(plane.kube.create(f"{accounts}/{name}/token", request)["status"]["token"])
