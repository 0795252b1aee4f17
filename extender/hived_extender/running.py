"""Putting the parts together: a running extender."""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from ipaddress import ip_address
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, TypedDict, Unpack

import msgspec

from hived.errors import UserError
from hived.jit import kernels_in_use
from hived_config.loader import Configuration
from hived_extender.changeover import Changeover
from hived_extender.defrag.desk import DefragDesk
from hived_extender.http import server
from hived_extender.http.access import Security
from hived_extender.http.config_pushes import ConfigPushes
from hived_extender.http.late_app import LateApp
from hived_extender.http.server import HttpServer
from hived_extender.http.shim import Shim
from hived_extender.http.tls import ServerTls
from hived_extender.http.webhook import Webhook
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.events import EventRecorder, timestamp
from hived_extender.kube.lease import LeaseName
from hived_extender.kube.metrics import Metrics
from hived_extender.pods.admission import Admission
from hived_extender.pods.namespaces import Namespaces
from hived_extender.pods.podgroups import Objects
from hived_extender.pods.proofs import Prover
from hived_extender.reconfiguration.configurations import Configurations
from hived_extender.reconfiguration.in_force import InForce
from hived_extender.reconfiguration.origins import ConfigMapName, Origin, config_map_origin, file_origin
from hived_extender.reconfiguration.reading import read_apart
from hived_extender.reconfiguration.stores import ConfigMapStore, Store
from hived_extender.recording.record import Recorder
from hived_extender.service.devices.following import DeviceObjects
from hived_extender.service.leadership import Leadership
from hived_extender.service.notices import Pace
from hived_extender.service.preemptions import PreemptionPolicy
from hived_extender.service.service import Service
from hived_extender.service.verbs import VerbSettings
from hived_extender.service.writes.binding_secret import BindingSecret
from hived_extender.service.writes.statuses import StatusWriter
from hived_extender.service.writes.telling import COMPONENT
from hived_extender.warm import load_kernels

if TYPE_CHECKING:
    from hived_extender.reconfiguration.node_sync import NodeSync, NodeSyncing

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
LEASE_TIMEOUT_S = 2.0
"""A write of the Lease that takes longer is given up; later ones would not come in time either."""

REVIEW_TIMEOUT_S = 5.0
"""For a review of access: the caller waits for it."""

READY_CHECK_S = 0.02
NAMESPACES_S = 5.0
JOIN_S = 1.0
LOADING = "kernels are being loaded: {} of {} are ready"
UNPROTECTED = Security()


class BindingSecretName(msgspec.Struct, frozen=True):
    """Which Secret has the keys that bindings are proved by; see `Prover` for `trusts_before`."""

    namespace: str
    name: str
    trusts_before: str = ""


class WebhookPort(msgspec.Struct, frozen=True):
    """Where to serve the admission webhook, on the host that the extender listens on. The API server wants TLS."""

    port: int
    tls: ServerTls


class Options(TypedDict, total=False):
    """The choices of an operator; each has a default.

    `listen` is `[host]:port`, by default what the configuration says. With a `lease` the extender leads when it holds
    that, else from the beginning. With `serves_every_name` no other scheduler is there that pods could be for.
    `on_configuration` is told of every other configuration that comes into force. With `syncing` the nodes of the
    configuration follow those of the cluster. Bindings are proved by the keys of `binding_secret`, or by `prover`;
    without either, every pod that says so counts as bound by hived. Where kernels are not linked, they are compiled
    beside the service unless `compiles_kernels` is False.
    """

    listen: str
    record_dir: Path | None
    lease: LeaseName | None
    security: Security
    webhook: WebhookPort | None
    serves_every_name: bool
    on_configuration: Callable[[Configuration], None]
    syncing: "NodeSyncing | None"
    pace: Pace | None
    binding_secret: BindingSecretName | None
    prover: Prover | None
    compiles_kernels: bool


class Extender:
    """A service, its watches and its HTTP server, from `start` to `stop`.

    The server answers from the start, verbs with "not ready" for as long as this replica does not lead.
    """

    def __init__(
        self,
        origin: Origin,
        kube: KubeClient,
        listener: socket,
        options: Options,
        *,
        webhook: HttpServer | None,
        prover: Prover | None,
        secret: BindingSecret | None,
        namespaces: Namespaces,
    ) -> None:
        """`listener` is the socket to serve, `webhook` is served beside it; `prover` and `secret` are as for a
        `Service`. Raises UserError if the record directory cannot be used.
        """
        self._kube = kube
        self._lease_kube = kube.with_timeout(LEASE_TIMEOUT_S)
        self._review_kube = kube.with_timeout(REVIEW_TIMEOUT_S)
        self._is_stopping = threading.Event()
        self._has_failed = False
        metrics = self.metrics = Metrics()
        configuration = self._configuration = origin.configuration
        objects = Objects(kube, metrics)
        self._namespaces = namespaces
        settings, record_dir = configuration.settings, options.get("record_dir")
        serves_every_name = options.get("serves_every_name", False)
        security = options.get("security", UNPROTECTED)
        self.service = Service(
            configuration.cluster,
            kube,
            verb_settings=VerbSettings(waits_for_pods=True).set_by(settings),
            preemption=PreemptionPolicy.of(settings),
            metrics=metrics,
            recorder=_recorder(record_dir, origin.version.text, metrics) if record_dir else None,
            rules=configuration.rules,
            objects=objects,
            serves_every_name=serves_every_name,
            statuses=StatusWriter(kube, objects, self._serves),
            pace=options.get("pace"),
            prover=prover,
            secret=secret,
            labels_of=self._namespaces.labels,
        )
        self._events = EventRecorder(kube, COMPONENT)
        in_force = InForce(
            self.service,
            origin,
            has_profiles=not serves_every_name,
            read=read_apart,
            on_switch=options.get("on_configuration", _ignore),
            relist=self._relist,
            tell=lambda kind, reason, message: self._tell(origin.store, kind, reason, message),
        )
        self.configurations = Configurations(in_force)
        self._node_sync = self._syncing_by(options.get("syncing"))
        gate = security.gate(self._review_kube)
        is_private = ip_address(listener.getsockname()[0]).is_loopback
        config_pushes = ConfigPushes(
            self.configurations, gate.may_do if gate.knows_callers else None, is_private=is_private
        )
        self.defrag = DefragDesk(self.service, lambda: self.configurations.in_force.text, secret)
        app = LateApp(self.service, gate, config_pushes, self.defrag)
        self._server = HttpServer(Shim(app, self.service), listener, security.tls)
        self._servers = [self._server] if webhook is None else [self._server, webhook]
        for each in self._servers:
            each.count_drops(metrics.dropped_connections)
        self._leadership = Leadership(
            self.service,
            kube,
            self._lease_kube,
            options.get("lease"),
            self._fail,
            objects,
            self.configurations.catch_up,
            DeviceObjects(kube, self.service, metrics),
        )
        self._changeover = Changeover(self.service.runner.look) if options.get("compiles_kernels", True) else None
        if self._changeover is not None:
            self.service.kernels = self._changeover.describe
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
        if self._changeover is not None:
            self._changeover.stop()
        if self._node_sync is not None:
            self._node_sync.stop()
        self.defrag.stop()
        self.configurations.stop()
        self._leadership.stop()
        for each in self._servers:
            each.stop()
        self._namespaces.stop()
        self.service.close()
        self._kube.close()
        self._lease_kube.close()
        self._review_kube.close()
        self._leadership.join()
        self._namespaces.join(JOIN_S)

    def _begin(self) -> None:
        try:
            started = time.monotonic()
            load_kernels(self._loading)
            fields = {"kernels": kernels_in_use(), "seconds": round(time.monotonic() - started, 3)}
            log.info("kernels", extra={"fields": fields})
            if not self._is_stopping.is_set():
                if self._changeover is not None:
                    self._changeover.start()
                self._await_namespaces()
                self._leadership.start()
                self.configurations.start()
                self.defrag.start()
                if self._node_sync is not None:
                    self._node_sync.start()
        except Exception:
            log.critical("the beginning has failed", exc_info=True)
            self._fail()

    def _loading(self, ready: int, total: int) -> None:
        """Say so to people who ask whether this replica is ready."""
        self.service.prepare(LOADING.format(ready, total), lambda: not self._is_stopping.is_set())

    def follow_namespaces(self, configuration: Configuration) -> bool:
        """Begin to, where a configuration chooses namespaces by their labels; False where it does not."""
        needs_labels = configuration.rules.access.needs_labels
        if needs_labels:
            self._namespaces.start(self._namespace_changed)
        return needs_labels

    def _await_namespaces(self) -> None:
        is_needed = self.follow_namespaces(self._configuration)
        if is_needed and not self._namespaces.wait_until_listed(NAMESPACES_S):
            log.warning("namespaces are not listed yet: pods that their labels allow a VC are refused meanwhile")

    def _namespace_changed(self, namespace: str) -> None:
        is_listed = self._namespaces.wait_until_listed(0)
        if is_listed and self.service.namespace_changed(namespace):
            self._relist()

    def _serves(self, scheduler_name: str) -> bool:
        return self.service.serves(scheduler_name)

    def _syncing_by(self, syncing: "NodeSyncing | None") -> "NodeSync | None":
        if syncing is None:
            return None
        # It generates configurations, which most services do without.
        from hived_extender.reconfiguration.node_sync import NodeSync  # noqa: PLC0415

        return NodeSync(self.service, self.configurations, self._kube, syncing)

    def _fail(self) -> None:
        self._has_failed = True

    def _relist(self) -> None:
        """Have all pods told anew: other ones may be ours now, or ask for something else."""
        self._leadership.relist_pods()

    def _tell(self, store: Store, kind: str, reason: str, message: str) -> None:
        """An event about the ConfigMap; there is nobody to tell of a file but the log."""
        if isinstance(store, ConfigMapStore):
            try:
                self._events.record(store, kind, reason, message, about="ConfigMap")
            except KubeError as error:
                log.warning("event not written", extra={"fields": {"reason": reason, "error": str(error)}})


def _ignore(_: Configuration) -> None:
    pass


def _recorder(directory: Path, config_text: str, metrics: Metrics) -> Recorder:
    try:
        return Recorder(directory, config_text, metrics.record_failures.inc)
    except OSError as error:
        raise UserError(f"cannot record to {directory}: {error.strerror}; --record wants a folder") from error


def _prover(secret: BindingSecret, trusts_before: str) -> Prover:
    """Proves bindings by the keys of a Secret. Raises UserError if it cannot be used."""
    try:
        keys = secret.keys()
    except KubeError as error:
        raise UserError(f"{secret.source}, which --binding-secret names: {error}") from error
    if trusts_before > timestamp():
        fields = {"trust_unproved_before": trusts_before}
        log.warning("until a time to come, new pods count as bound if they say so", extra={"fields": fields})
    return Prover(keys, trusts_before=trusts_before)


@contextmanager
def start_extender(
    config: Path | ConfigMapName | Origin,
    kube: KubeClient | None = None,
    **options: Unpack[Options],
) -> Iterator[Extender]:
    """A started extender for the cluster that `kube`, or else the configuration, points to; stopped at the end.

    `config` is a file, or the name of a ConfigMap in the cluster that `kube`, or else the environment, points to.
    Raises UserError for a configuration, an address, a Secret or a record directory that cannot be used.
    """
    prover, binding_secret, webhook = options.get("prover"), options.get("binding_secret"), options.get("webhook")
    client = kube
    secret: BindingSecret | None = None
    try:
        if isinstance(config, ConfigMapName):
            client = client or KubeClient.connect(os.environ.get("KUBE_APISERVER_ADDRESS", ""))
            origin = config_map_origin(client, config.namespace, config.name)
        else:
            origin = config if isinstance(config, Origin) else file_origin(config)
        settings = origin.configuration.settings
        client = client or KubeClient.connect(settings.kube_api_server_address, settings.kube_config_file_path)
        if binding_secret is not None:
            secret = BindingSecret(client, binding_secret.namespace, binding_secret.name)
            prover = _prover(secret, binding_secret.trusts_before)
        elif prover is None:
            log.warning("bindings are not proved: whoever may create pods may take cells; see --binding-secret")
    except KubeError as error:
        raise UserError(str(error)) from error
    address = options.get("listen") or settings.web_server_address
    namespaces = Namespaces(client, Metrics())
    admission = Admission(origin.configuration.cluster, origin.configuration.rules, labels_of=namespaces.labels)

    def taken_up(configuration: Configuration) -> None:
        admission.configure(configuration.cluster, configuration.rules)
        extender.follow_namespaces(configuration)
        options.get("on_configuration", _ignore)(configuration)

    with ExitStack() as stack:
        listener = stack.enter_context(closing(server.listen(address)))
        webhook_server = None
        if webhook is not None:
            beside = stack.enter_context(closing(server.listen(f"{address.rpartition(':')[0]}:{webhook.port}")))
            webhook_server = HttpServer(Webhook(admission), beside, webhook.tls, name="webhook")
        extender = Extender(
            origin,
            client,
            listener,
            {**options, "on_configuration": taken_up},
            webhook=webhook_server,
            prover=prover,
            secret=secret,
            namespaces=namespaces,
        )
        extender.start()
        try:
            yield extender
        finally:
            extender.stop()
