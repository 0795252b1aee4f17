"""The lab's cluster on a real control plane: kube-scheduler decides with our service, each in a process of its own."""

import contextlib
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from hived.values.specs import ClusterSpec
from hived_config.loader import load_cluster
from hived_deploy.installation import NAMESPACE
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.reconfiguration.versions import TEXT_KEY
from hived_jobs.configuration import publish
from hived_lab.embedded.nodes import machines_of
from tests.e2e.certificates import LOOPBACK
from tests.e2e.plane import SCHEDULER, ControlPlane
from tests.e2e.processes import Process, answers, free_port, hived_process
from tests.e2e.rights import grant_rights, scheduler_kubeconfig, service_kubeconfig
from tests.e2e.scheduling import scheduler_configuration
from tests.e2e.service_proxy import ServiceProxy
from tests.parts import MadeOfParts

SYNCHRONOUS_PREEMPTION = "--feature-gates=SchedulerAsyncPreemption=false"
"""The setting that docs/preemption.md asks for where kube-scheduler deletes the victims."""

READY_S = 180.0
"""Two replicas may have to compile their kernels, at the same time."""
PROBE_S = 0.3
"""A replica that is frozen does not answer, and the others should not have to wait for it."""

T = TypeVar("T")


class RealCluster(MadeOfParts):
    """The nodes of a configuration, our service and kube-scheduler, on a control plane that may serve others later.

    Both have the accounts and the rights of an installation, and nothing more. Entering it deletes the pods and
    nodes that an earlier experiment left, and waits until all is ready. Leaving it ends service and scheduler; pods and
    nodes stay.

    Parameters
    ----------
    plane : the control plane
    configuration : a file for the service
    config_map : namespace/name of a ConfigMap in which it is put, for the service to read and change there
    replica_count : how many processes of the service
    serve_options : further options of `hived serve`
    has_scheduler_per_vc : whether each virtual cluster has a kube-scheduler, or one serves them all
    preemption_by : who makes victims leave, "service" or "kube-scheduler"
    kubeconfig : what the replicas know the API server by, by default that of their account
    environment : variables for the replicas
    of_replicas : further ones of each
    extender_url : where kube-scheduler finds the service, by default at `url`
    is_direct : whether it finds the first replica there, without `proxy` in between, for measurements
    product : the folder of another checkout, whose service and configuration of kube-scheduler take the place of ours
    other_names : further schedulerNames that kube-scheduler serves
    scheduler_options : further options of kube-scheduler

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
        config_map: str = "",
        replica_count: int = 1,
        serve_options: tuple[str, ...] = (),
        has_scheduler_per_vc: bool = False,
        preemption_by: str = "service",
        kubeconfig: Path | None = None,
        environment: Mapping[str, str] | None = None,
        of_replicas: Sequence[Mapping[str, str]] = (),
        extender_url: str = "",
        is_direct: bool = False,
        product: Path | None = None,
        other_names: tuple[str, ...] = (),
        scheduler_options: tuple[str, ...] = (),
    ) -> None:
        self.plane = plane
        self._product = product
        self._preemption_by = preemption_by
        self._spec = load_cluster(configuration)
        self._kubeconfig = kubeconfig
        self._environment, self._of_replicas = dict(environment or {}), of_replicas
        self.ports = [free_port() for _ in range(replica_count)]
        self._extender_url = f"http://{LOOPBACK}:{self.ports[0]}" if is_direct else extender_url
        self._other_names = other_names
        self._scheduler_options = scheduler_options
        self._config_map = config_map
        self._file = plane.logs / "hivedscheduler.yaml"
        self._has_scheduler_per_vc = has_scheduler_per_vc
        grant_rights(plane)
        self._configure(configuration)
        self.services = [self._service(number, port, serve_options) for number, port in enumerate(self.ports)]
        self.proxy = ServiceProxy(self.ports)

    def _begin(self, stack: ExitStack) -> None:
        self.plane.clear()
        publish(self.plane.kube, self._file)
        if self._config_map:
            store_config_map(self.plane.kube, self._file, *self._config_map.split("/"))
        for service in self.services:
            stack.callback(service.stop)
            service.start(ready_s=None)
        self.plane.add_nodes(machines_of(self._spec))
        self.proxy.start()
        stack.callback(self.proxy.stop)
        self._wait_served()
        self._start_schedulers(stack)

    @property
    def kube(self) -> KubeClient:
        """A client of the API server, with every right."""
        return self.plane.kube

    @property
    def spec(self) -> ClusterSpec:
        """The configuration that the nodes were made from."""
        return self._spec

    def leader(self, besides: Process | None = None) -> Process:
        """The replica that is ready, another than `besides`, once there is one. Raises TimeoutError."""
        return self._await(
            lambda: next((one for one in self._standing(" is ready") if one is not besides), None), "no replica leads"
        )

    def await_followers(self) -> None:
        """Wait until every replica but one knows that another leads, and so is ready to take over."""
        count = len(self.services) - 1
        self._await(lambda: len(list(self._standing(" leads"))) >= count, f"fewer than {count} follow")

    def _standing(self, words: str) -> Iterator[Process]:
        """The replicas that say so of themselves."""
        for service, port in zip(self.services, self.ports, strict=True):
            if words in _standing(port):
                yield service

    def _await(self, look: Callable[[], T | None], otherwise: str) -> T:
        until = time.monotonic() + READY_S
        while not (found := look()):
            if time.monotonic() > until:
                tails = "\n".join(service.tail(5) for service in self.services)
                raise TimeoutError(f"{otherwise} after {READY_S:.0f} s\n{tails}")
            time.sleep(0.02)
        return found

    @property
    def url(self) -> str:
        """Where the service answers, whichever replica that is."""
        return self.proxy.url

    def restart_service(self, configuration: Path | None = None) -> None:
        """Stop every replica, and start them at the same addresses, with another configuration if one is given."""
        for service in self.services:
            service.stop()
        if configuration is not None:
            self._configure(configuration)
            publish(self.kube, self._file)
        for service in self.services:
            service.start(ready_s=None)
        self._wait_served()

    def _configure(self, configuration: Path) -> None:
        shutil.copyfile(configuration, self._file)
        with self._file.open("a") as file:
            file.write(f"preemptionBy: {self._preemption_by}\n")

    def _start_schedulers(self, stack: ExitStack) -> None:
        all_vcs = sorted(self._spec.virtual_clusters)
        served = {f"{SCHEDULER}-{vc}": [vc] for vc in all_vcs} if self._has_scheduler_per_vc else {SCHEDULER: all_vcs}
        account = scheduler_kubeconfig(self.plane)
        options = self._scheduler_options
        if self._preemption_by != "service":
            options += (SYNCHRONOUS_PREEMPTION,)
        for name, vcs in served.items():
            configuration = scheduler_configuration(
                self._extender_url or self.url,
                vcs,
                is_shared=not self._has_scheduler_per_vc,
                others=self._other_names,
                product=self._product,
            )
            stack.callback(self.plane.start_scheduler(configuration, account, name=name, options=options).stop)

    def _wait_served(self) -> None:
        for service in self.services:
            service.wait_ready(READY_S)
        self.proxy.wait_ready(READY_S)

    def _service(self, number: int, port: int, options: tuple[str, ...]) -> Process:
        # Beside others a replica is well, and not ready, until it leads.
        probe = "healthz" if "--leader-elect" in options else "readyz"
        kubeconfig = self._kubeconfig or service_kubeconfig(self.plane)
        source = f"--config-map={self._config_map}" if self._config_map else f"--config={self._file}"
        own = self._of_replicas[number] if self._of_replicas else {}
        return hived_process(
            f"hived-{number}",
            port,
            [source, *options],
            self.plane.logs / f"hived-{number}.log",
            is_ready=lambda: answers(f"http://{LOOPBACK}:{port}/{probe}"),
            environment={**self._environment, **own, "KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": NAMESPACE},
            product=self._product,
        )


def store_config_map(kube: KubeClient, file: Path, namespace: str, name: str) -> None:
    """Make a ConfigMap of a file, as an administrator does before the first start, in place of the one there."""
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    with contextlib.suppress(KubeError):
        kube.delete(f"{collection}/{name}")
    kube.create(collection, {"metadata": {"name": name}, "data": {TEXT_KEY: file.read_text()}})


def _standing(port: int) -> str:
    """The answer of a replica to readiness probes; "" for none."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=PROBE_S):
            return " is ready"
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""
