"""Putting the parts together: a running extender, alone or with an embedded cluster of its own."""

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Any

from hived.errors import UserError
from hived_config.loader import Configuration, load
from hived_config.settings import PreemptBy
from hived_extender import server
from hived_extender.access import Security
from hived_extender.admission import Admission, Admitted
from hived_extender.app import create_app
from hived_extender.election import LeaseName
from hived_extender.embedded.cluster import EmbeddedCluster
from hived_extender.evictor import PreemptionPolicy
from hived_extender.jobs.configuration import publish
from hived_extender.jobs.controller import JobController
from hived_extender.kube import KubeClient, KubeError
from hived_extender.leadership import Leadership
from hived_extender.metrics import Metrics
from hived_extender.objects import Objects
from hived_extender.record import Recorder
from hived_extender.server import HttpServer
from hived_extender.service import Patience, Service
from hived_extender.shim import Shim
from hived_extender.status_writer import StatusWriter
from hived_extender.tls import ServerTls
from hived_extender.warm import compile_kernels
from hived_extender.webhook import Webhook

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
LEASE_TIMEOUT_S = 2.0
"""A write of the Lease that takes longer is given up; later ones would not come in time either."""

REVIEW_TIMEOUT_S = 5.0
"""For a review of access: the caller waits for it."""

READY_CHECK_S = 0.02
UNPROTECTED = Security()


@dataclass(frozen=True, slots=True)
class WebhookPort:
    """Where to serve the admission webhook, on the host that the extender listens on. The API server wants TLS."""

    port: int
    tls: ServerTls


class Extender:
    """A service, its watches and its HTTP server, from `start` to `stop`.

    The server answers from the start, verbs with "not ready" for as long as this replica does not lead.
    """

    def __init__(
        self,
        config_file: Path,
        configuration: Configuration,
        kube: KubeClient,
        listener: socket,
        record_dir: Path | None,
        lease: LeaseName | None,
        security: Security,
        webhook: HttpServer | None = None,
        *,
        serves_every_name: bool = False,
    ) -> None:
        """`listener` is the socket to serve, `webhook` is served beside it. Raises UserError if the record directory
        cannot be used.
        """
        self._kube = kube
        self._lease_kube = kube.with_timeout(LEASE_TIMEOUT_S)
        self._review_kube = kube.with_timeout(REVIEW_TIMEOUT_S)
        self._is_stopping = threading.Event()
        self._has_failed = False
        metrics = Metrics()
        objects = Objects(kube, metrics)
        self._statuses = StatusWriter(kube, objects)
        settings = configuration.settings
        self.service = Service(
            configuration.cluster,
            kube,
            patience=Patience(settings.force_pod_bind_threshold, settings.waiting_pod_block_ms / 1000),
            preemption=PreemptionPolicy(
                settings.preempt_by is PreemptBy.SERVICE, settings.disruption_budgets, settings.eviction_grace_s
            ),
            metrics=metrics,
            recorder=_recorder(record_dir, config_file, metrics) if record_dir else None,
            rules=configuration.rules,
            objects=objects,
            serves_every_name=serves_every_name,
            on_gang_change=self._statuses.changed,
        )
        app = create_app(self.service, security.gate(self._review_kube))
        self._server = HttpServer(Shim(app, self.service), listener, security.tls)
        self._servers = [self._server] if webhook is None else [self._server, webhook]
        self._leadership = Leadership(self.service, kube, self._lease_kube, lease, self._fail, objects)
        self._beginning = threading.Thread(target=self._begin, name="beginning", daemon=True)

    @property
    def url(self) -> str:
        """Where the extender answers."""
        return self._server.url

    @property
    def is_serving(self) -> bool:
        """False if an HTTP server, standing for election or a take-over has ended by itself."""
        are_alive = all(server.is_alive for server in self._servers)
        return are_alive and self._leadership.is_alive and not self._has_failed

    def start(self) -> None:
        """Begin to answer, to follow the cluster, and to lead as soon as it may."""
        for each in self._servers:
            each.start()
            log.info("listening", extra={"fields": {"url": each.url, "api_server": self._kube.host}})
        self._statuses.start(self.service.gang_state, self.service.serves, lambda: self.service.is_ready)
        self._beginning.start()

    def wait_ready(self, timeout_s: float = math.inf, stop: threading.Event | None = None) -> bool:
        """Wait until this replica leads; False if it still does not after `timeout_s`, if `stop` was set, or if it was
        stopped or has failed.
        """
        deadline = time.monotonic() + timeout_s
        while not self.service.is_ready:
            has_ended = (stop or self._is_stopping).wait(READY_CHECK_S) or not self.is_serving
            if has_ended or time.monotonic() > deadline:
                return False
        return True

    def stop(self) -> None:
        """Let another replica lead, finish the requests under way and the bindings being written, let go."""
        self._is_stopping.set()
        self._beginning.join(timeout=1)
        self._leadership.stop()
        for each in self._servers:
            each.stop()
        self._statuses.close()
        self.service.close()
        self._kube.close()
        self._lease_kube.close()
        self._review_kube.close()
        self._leadership.join()

    def _begin(self) -> None:
        try:
            # Compiling, if it has not been done yet, takes longer than kube-scheduler waits for an answer.
            started = time.monotonic()
            log.info("loading kernels; the first time after installation they are compiled, which takes up to a minute")
            compile_kernels()
            log.info("loaded", extra={"fields": {"seconds": round(time.monotonic() - started, 3)}})
            if not self._is_stopping.is_set():
                self._leadership.start()
        except Exception:
            log.critical("the beginning has failed", exc_info=True)
            self._fail()

    def _fail(self) -> None:
        self._has_failed = True


def _recorder(directory: Path, config_file: Path, metrics: Metrics) -> Recorder:
    try:
        return Recorder(directory, config_file, metrics.record_failures.inc)
    except OSError as error:
        raise UserError(f"cannot record to {directory}: {error.strerror}; --record wants a folder") from error


def _admitted(admission: Admission, pod: Mapping[str, Any]) -> Admitted:
    try:
        return admission.admit(pod)
    except UserError:
        return Admitted(pod)  # the API server says what is wrong with it


@contextmanager
def start_extender(
    config_file: Path,
    kube: KubeClient | None = None,
    *,
    listen: str = "",
    record_dir: Path | None = None,
    lease: LeaseName | None = None,
    security: Security = UNPROTECTED,
    webhook: WebhookPort | None = None,
    serves_every_name: bool = False,
) -> Iterator[Extender]:
    """A started extender for the cluster that `kube`, or else the configuration, points to; stopped at the end.

    `listen` is `[host]:port`, "" for what the configuration says. With a `lease` it leads when it holds that, else from
    the beginning. With `serves_every_name` no other scheduler is there that pods could be for. Raises UserError for a
    configuration, an address or a record directory that cannot be used.
    """
    configuration = load(config_file)
    settings = configuration.settings
    address = listen or settings.web_server_address
    with ExitStack() as stack:
        listener = stack.enter_context(closing(server.listen(address)))
        try:
            client = kube or KubeClient.connect(settings.kube_api_server_address, settings.kube_config_file_path)
        except KubeError as error:
            raise UserError(str(error)) from error
        webhook_server = None
        if webhook is not None:
            beside = stack.enter_context(closing(server.listen(f"{address.rpartition(':')[0]}:{webhook.port}")))
            webhook_server = HttpServer(
                Webhook(Admission(configuration.cluster, configuration.rules)), beside, webhook.tls, name="webhook"
            )
        extender = Extender(
            config_file,
            configuration,
            client,
            listener,
            record_dir,
            lease,
            security,
            webhook_server,
            serves_every_name=serves_every_name,
        )
        extender.start()
        try:
            yield extender
        finally:
            extender.stop()


@dataclass(frozen=True, slots=True)
class Embedded:
    """An embedded cluster and the extender that schedules it."""

    cluster: EmbeddedCluster
    extender: Extender


@contextmanager
def start_embedded(
    config_file: Path,
    *,
    listen: str = f"{LOOPBACK}:0",
    record_dir: Path | None = None,
    stop: threading.Event | None = None,
    has_webhook: bool = False,
) -> Iterator[Embedded]:
    """A whole cluster in this process: API server, nodes, extender, scheduler, and a controller for jobs.

    Ready when entered, gone at the end. With `has_webhook` pods are changed when they are created, as the admission
    webhook does. Once `stop` is set it is entered at once, ready or not: whoever set that has nothing more to do with
    it.
    Raises UserError for a configuration, an address or a record directory that cannot be used.
    """
    configuration = load(config_file)
    admission = Admission(configuration.cluster, configuration.rules, serves_every_name=True)
    cluster = EmbeddedCluster(
        configuration.cluster, admit_pod=(lambda pod: _admitted(admission, pod)) if has_webhook else None
    )
    cluster.start()
    try:
        kube = KubeClient.connect(cluster.api_url)
        publish(kube, config_file)
        with start_extender(
            config_file, kube, listen=listen, record_dir=record_dir, serves_every_name=True
        ) as extender:
            if not extender.wait_ready(stop=stop) and not (stop and stop.is_set()):
                raise UserError("the extender has not become ready; see the log")
            cluster.start_scheduler(extender.url)
            try:
                with closing(KubeClient.connect(cluster.api_url)) as jobs_kube, JobController(jobs_kube):
                    yield Embedded(cluster, extender)
            finally:
                cluster.stop_scheduler()
    finally:
        cluster.stop()
