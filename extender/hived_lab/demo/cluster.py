"""An embedded cluster for one experiment, whose extender can be started again with another configuration."""

from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from hived.errors import UserError
from hived_config.loader import load_cluster
from hived_extender.kube.client import KubeClient
from hived_extender.options import LOOPBACK
from hived_extender.running import start_extender
from hived_jobs.configuration import publish
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.start import PROMPT

READY_TIMEOUT_S = 30.0


class LabCluster:
    """A cluster as a context manager: ready when entered, gone at the end."""

    def __init__(self, configuration: Path) -> None:
        self._configuration = configuration
        self._cluster = EmbeddedCluster(load_cluster(configuration))
        self._cluster_stack = ExitStack()
        self._extender_stack = ExitStack()
        self._listen = f"{LOOPBACK}:0"

    def __enter__(self) -> "LabCluster":
        with ExitStack() as stack:
            self._cluster.start()
            stack.callback(self._cluster.stop)
            # With hived's rights: experiments make pods that HiveD has bound.
            self.kube = KubeClient.connect(kubeconfig=str(self._cluster.hived_kubeconfig))
            stack.callback(self.kube.close)
            stack.callback(self._extender_stack.close)
            self._start_extender(self._configuration)
            self._cluster.start_scheduler(self.url)
            self._cluster_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster_stack.close()

    @property
    def kubeconfig(self) -> Path:
        """A file with which kubectl reaches its API server."""
        return self._cluster.kubeconfig

    def restart_service(self, configuration: Path) -> None:
        """Stop the extender and start it with another configuration at the same address; pods and nodes stay."""
        self._extender_stack.close()
        self._start_extender(configuration)

    def _start_extender(self, configuration: Path) -> None:
        publish(self.kube, configuration)
        # Clients of its own: an extender that stops closes what it was given.
        client = KubeClient.connect(kubeconfig=str(self._cluster.hived_kubeconfig))
        extender = self._extender_stack.enter_context(
            start_extender(
                configuration,
                client,
                listen=self._listen,
                serves_every_name=True,
                pace=PROMPT,
                compiles_kernels=False,  # a lab has a few nodes, where plain kernels are quick
            )
        )
        self.url = extender.url
        self._listen = urlsplit(extender.url).netloc
        if not extender.wait_ready(READY_TIMEOUT_S):
            raise UserError(f"the extender was not ready after {READY_TIMEOUT_S:.0f} s: {extender.service.fault}")
