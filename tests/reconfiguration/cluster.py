"""Where the cases run: a cluster whose service keeps its configuration in a ConfigMap, and can be started again."""

from contextlib import ExitStack
from typing import Protocol
from urllib.parse import urlsplit

from hived.values.errors import UserError
from hived_config.loader import load_text
from hived_deploy.installation import CONFIG as CONFIG_MAP
from hived_deploy.installation import NAMESPACE
from hived_extender.groundwork import LOOPBACK
from hived_extender.kube.client import KubeClient
from hived_extender.reconfiguration.stores import ConfigMapName
from hived_extender.reconfiguration.versions import TEXT_KEY
from hived_extender.running import Extender, start_extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.parts import MadeOfParts

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
READY_S = 30.0


class CaseCluster(Protocol):
    """A cluster on which the base configuration is in force when it is entered."""

    patience: float
    """How many times as long as on the embedded cluster things may take."""

    @property
    def kube(self) -> KubeClient:
        """A client of its API server."""

    @property
    def url(self) -> str:
        """Where its service answers."""

    def restart(self) -> None:
        """Stop the service and start it again; pods, nodes and the ConfigMap stay."""

    def memory(self) -> bytes:
        """The memory of the core, b"" where that cannot be seen."""


def create_config_map(kube: KubeClient, text: str) -> None:
    """As an administrator does before the first start."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kube.create("/api/v1/namespaces", namespace)
    kube.create(CONFIG_MAPS, {"metadata": {"name": CONFIG_MAP}, "data": {TEXT_KEY: text}})


class EmbeddedCaseCluster(MadeOfParts):
    """All in this process, as a context manager."""

    patience = 12.0

    def __init__(self, text: str, hardware: str) -> None:
        """`text` is in force at first; the nodes have what the configuration `hardware` says of them."""
        self._text = text
        self._cluster = EmbeddedCluster(load_text(hardware, "hardware.yaml", environ={}).cluster)
        self._service = ExitStack()
        self._listen = f"{LOOPBACK}:0"
        self.extender: Extender

    def _begin(self, stack: ExitStack) -> None:
        self._cluster.start()
        stack.callback(self._cluster.stop)
        self.kube = KubeClient.connect(self._cluster.api_url)
        stack.callback(self.kube.close)
        create_config_map(self.kube, self._text)
        stack.callback(self._service.close)
        self._start()
        self._cluster.start_scheduler(self.url)

    @property
    def url(self) -> str:
        """Where the service answers."""
        return self.extender.url

    def restart(self) -> None:
        """Stop the service and start it again at the same address."""
        self._service.close()
        self._start()

    def memory(self) -> bytes:
        """The arrays of the core."""
        with self.extender.service._open_core() as core:
            return core.state.cells.memory.tobytes()

    def _start(self) -> None:
        # An extender that stops closes what it was given.
        client = KubeClient.connect(kubeconfig=str(self._cluster.hived_kubeconfig))
        self.extender = self._service.enter_context(
            start_extender(
                ConfigMapName(NAMESPACE, CONFIG_MAP),
                client,
                listen=self._listen,
                serves_every_name=True,
                on_configuration=lambda configuration: self._cluster.add_machines(configuration.cluster),
            )
        )
        self._listen = urlsplit(self.extender.url).netloc
        if not self.extender.wait_ready(READY_S):
            raise UserError(f"the service was not ready after {READY_S:.0f} s: {self.extender.service.fault}")
