"""The lab's cluster on a real control plane: kube-scheduler decides with our service, each in a process of its own."""

import os
import shutil
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from hived_config.loader import load_cluster
from hived_extender.embedded.machines import machines_of
from hived_extender.jobs.configuration import publish
from hived_extender.kube import KubeClient
from tests.e2e.certificates import LOOPBACK
from tests.e2e.plane import ControlPlane
from tests.e2e.processes import Process, free_port
from tests.e2e.scheduling import scheduler_configuration
from tests.e2e.service_proxy import Replica, ServiceProxy

SERVE = "from hived_extender.cli import main; main(prog_name='hived')"
READY_S = 120.0


class RealCluster:
    """The nodes of a configuration, our service and kube-scheduler, on a control plane that may serve others later.

    As a context manager: pods and nodes that an earlier experiment left are deleted, all is ready when it is entered,
    and service and scheduler have ended when it is left; pods and nodes stay.

    Parameters
    ----------
    plane : the control plane
    configuration : a file for the service
    replica_count : how many processes of the service
    serve_options : further options of `hived serve`
    preemption_by : who makes victims leave, "service" or "kube-scheduler"

    Attributes
    ----------
    services : the replicas, each a `Process`
    proxy : stands in for their Service; kube-scheduler and `url` go through it
    """

    def __init__(
        self,
        plane: ControlPlane,
        configuration: Path,
        *,
        replica_count: int = 1,
        serve_options: tuple[str, ...] = (),
        preemption_by: str = "service",
    ) -> None:
        self.plane = plane
        self._preemption_by = preemption_by
        self._spec = load_cluster(configuration)
        self._file = plane.logs / "hivedscheduler.yaml"
        self._stack = ExitStack()
        self._configure(configuration)
        self.ports = [free_port() for _ in range(replica_count)]
        self.services = [self._service(number, port, serve_options) for number, port in enumerate(self.ports)]
        self.proxy = ServiceProxy([Replica(port) for port in self.ports])

    def __enter__(self) -> "RealCluster":
        with ExitStack() as stack:
            self.plane.clear()
            publish(self.plane.kube, self._file)
            for service in self.services:
                stack.callback(service.stop)
                service.start(ready_s=None)
            self.plane.add_nodes(machines_of(self._spec))
            self.proxy.start()
            stack.callback(self.proxy.stop)
            self._wait_served()
            scheduler = self.plane.start_scheduler(
                scheduler_configuration(self.url, self._spec.virtual_clusters, preemption_by=self._preemption_by)
            )
            stack.callback(scheduler.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def kube(self) -> KubeClient:
        """A client of the API server, with every right."""
        return self.plane.kube

    @property
    def url(self) -> str:
        """Where the service answers, whichever replica that is."""
        return self.proxy.url()

    def restart_service(self, configuration: Path) -> None:
        """Stop every replica, and start them with another configuration at the same addresses."""
        for service in self.services:
            service.stop()
        self._configure(configuration)
        publish(self.kube, self._file)
        for service in self.services:
            service.start(ready_s=None)
        self._wait_served()

    def _configure(self, configuration: Path) -> None:
        shutil.copyfile(configuration, self._file)
        with self._file.open("a") as file:
            file.write(f"preemptionBy: {self._preemption_by}\n")

    def _wait_served(self) -> None:
        for service in self.services:
            service.wait_ready(READY_S)
        self.proxy.wait_ready()

    def _service(self, number: int, port: int, options: tuple[str, ...]) -> Process:
        address = f"{LOOPBACK}:{port}"
        return Process(
            f"hived-{number}",
            [sys.executable, "-c", SERVE, "serve", f"--config={self._file}", f"--listen={address}", *options],
            self.plane.logs / f"hived-{number}.log",
            is_ready=lambda: _answers(f"http://{address}/readyz"),
            environment={
                "KUBECONFIG": str(self.plane.kubeconfig(f"hived-{number}", ["system:masters"])),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False
