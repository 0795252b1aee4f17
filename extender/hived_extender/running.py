"""Putting the parts together: a running extender, on what `groundwork` has found."""

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Unpack

from hived.kernels.jit import kernels_in_use
from hived.values.errors import UserError
from hived_config.loader import Configuration
from hived_extender.api.status import CertificateUse
from hived_extender.groundwork import Groundwork, Options, lay_groundwork
from hived_extender.http import server
from hived_extender.http.access import Security
from hived_extender.http.change_rights import ConfigPushes
from hived_extender.http.server import HttpServer
from hived_extender.http.shim import LateApp, Shim
from hived_extender.http.tls import ServerTls
from hived_extender.http.webhook import Webhook
from hived_extender.insight.answering import Answering
from hived_extender.insight.defrag.desk import DefragDesk
from hived_extender.insight.ended import EndedJobs
from hived_extender.insight.forecast import Forecaster
from hived_extender.insight.history import HistoryRings, Sampler
from hived_extender.insight.overview import Files, Overview
from hived_extender.insight.store import Store as PastStore
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.podgroups import Objects
from hived_extender.kube import answers
from hived_extender.kube.client import VERSION, KubeClient, KubeError
from hived_extender.kube.events import EventRecorder
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.priority_classes import PriorityClasses
from hived_extender.machine.devices.dra import DeviceObjects
from hived_extender.machine.leadership import Leadership
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.recording.record import Recorder
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import VerbSettings
from hived_extender.machine.writes.statuses import StatusWriter
from hived_extender.machine.writes.writer import COMPONENT
from hived_extender.queues.answering import QueueAnswers
from hived_extender.queues.controller import QueueController, QueueLender
from hived_extender.queues.kueue.controller import KueueController
from hived_extender.queues.removal import tree_warnings, without_queues
from hived_extender.reconfiguration.configurations import Configurations, InForce
from hived_extender.reconfiguration.reading import read_apart
from hived_extender.reconfiguration.stores import ConfigMapName, ConfigMapStore, Origin, Store
from hived_extender.warm import Changeover, load_kernels

if TYPE_CHECKING:
    from hived_extender.reconfiguration.node_sync import NodeSync

log = logging.getLogger(__name__)

READY_CHECK_S = 0.02
NAMESPACES_S = 5.0
JOIN_S = 1.0
VIEWER_S = 10.0
"""For a call of the API server for the viewer of a page."""

LOADING = "kernels are being loaded: {} of {} are ready"
UNPROTECTED = Security()


class Extender:
    """A service, its watches and its HTTP server, from `start` to `stop`.

    The server answers from the start, verbs with "not ready" for as long as this replica does not lead. `app` is all of
    its paths as a WSGI application, for another server.
    """

    def __init__(
        self, groundwork: Groundwork, listener: socket | None, options: Options, webhook: HttpServer | None = None
    ) -> None:
        """`listener` is the socket to serve, None if another server has `app`; `webhook` is served beside it.

        Raises UserError if the record directory cannot be used.
        """
        self._groundwork = groundwork
        self._options = options
        self._is_stopping = threading.Event()
        self._has_failed = self._has_begun = False
        self._start_lock = threading.Lock()
        self.metrics = Metrics()
        self._objects = Objects(groundwork.clients.kube, self.metrics)
        self._events = EventRecorder(groundwork.clients.kube, COMPONENT)
        self.service = self._make_service()
        self.configurations = Configurations(self._make_in_force())
        self.store = PastStore(Path(path) if (path := groundwork.first.settings.history_file) else None)
        self.history = HistoryRings(self.store)
        self._ended = EndedJobs(self.store)
        self.service.await_ends(self._ended.unended())
        self._forecaster = Forecaster(self.service, self.store, self._ended)
        self.defrag = DefragDesk(self.service, lambda: self.configurations.in_force.text, groundwork.secret)
        self.queues = QueueController(
            self.service,
            groundwork.clients.kube,
            groundwork.prover or Prover(),
            self.metrics,
            learned=self._forecaster.left_s,
        )
        self._sampler = Sampler(self.service, self.history, queued=self.queues.waiting_pods)
        self._queue_answers = QueueAnswers(self.queues, self._job_troubles)
        self._ended.objects = self._queue_answers
        self.insight = Answering(self.service, self._forecaster, self._ended, objects=self._queue_answers)
        lender = QueueLender(self.queues, self.service.runner)
        self.kueue = KueueController(self.service, groundwork.clients.kube, self.metrics, lender)
        groundwork.admission.beside_tree = partial(tree_warnings, self.queues)
        self._node_sync = self._make_node_sync()
        security = options.get("security", UNPROTECTED)
        self.app = self._make_app(security, is_private=_is_private(listener, options))
        server = None if listener is None else HttpServer(Shim(self.app, self.service), listener, security.tls)
        self.url = f"http://{options.get('listen', '')}" if server is None else server.url
        self._servers = [each for each in (server, webhook) if each is not None]
        for each in self._servers:
            each.count_drops(self.metrics.dropped_connections)
        self._leadership = self._make_leadership()
        self._changeover = Changeover(self.service.runner.look) if options.get("compiles_kernels", True) else None
        if self._changeover is not None:
            self.service.kernels = self._changeover.describe
        self._beginning = threading.Thread(target=self._begin, name="beginning", daemon=True)

    # The parts, each from those before it

    def _job_troubles(self) -> dict[str, str]:
        return self.insight.troubles()

    def _make_service(self) -> Service:
        """The service, with the settings of the first configuration."""
        ground, first = self._groundwork, self._groundwork.first
        record_dir, text = self._options.get("record_dir"), ground.origin.version.text
        return Service(
            first.cluster,
            ground.clients.kube,
            verb_settings=VerbSettings(waits_for_pods=True).set_by(first.settings),
            preemption=PreemptionPolicy.of(first.settings, first.rules),
            metrics=self.metrics,
            recorder=_recorder(record_dir, text, self.metrics) if record_dir else None,
            rules=first.rules,
            objects=self._objects,
            serves_every_name=self._options.get("serves_every_name", False),
            statuses=StatusWriter(ground.clients.kube, self._objects, self._serves),
            pace=self._options.get("pace"),
            prover=ground.prover,
            secret=ground.secret,
            labels_of=ground.namespaces.labels,
            class_of=PriorityClasses(ground.clients.kube).find,
        )

    def _make_in_force(self) -> InForce:
        """The configuration in force, which is read apart and followed by everything that depends on it."""
        origin = self._groundwork.origin
        return InForce(
            self.service,
            origin,
            has_profiles=not self._options.get("serves_every_name", False),
            read=read_apart,
            on_switch=self._taken_up,
            relist=self._relist,
            tell=lambda kind, reason, message: self._tell(origin.store, kind, reason, message),
            beside=lambda new: without_queues(self.queues, new),
        )

    def _make_node_sync(self) -> "NodeSync | None":
        syncing = self._options.get("syncing")
        if syncing is None:
            return None
        from hived_extender.reconfiguration.node_sync import NodeSync  # noqa: PLC0415  # most services do without

        return NodeSync(self.service, self.configurations, self._groundwork.clients.kube, syncing)

    def _make_app(self, security: Security, *, is_private: bool) -> LateApp:
        """All paths, behind one gate. Without callers that are known, only a loopback address takes pushes."""
        gate = security.gate(self._groundwork.clients.reviews)
        may_push = gate.may_do if gate.knows_callers else None
        config_pushes = ConfigPushes(self.configurations, may_push, is_private=is_private)
        kube = self._groundwork.clients.kube
        return LateApp(
            self.service, gate, config_pushes, self.defrag, self.history, self.insight, self._queue_answers,
            lambda token: kube.as_bearer(token, VIEWER_S), self._make_overview(security),
            as_anyone=self._options.get("as_anyone"), unwatched_jobs=self._options.get("unwatched_jobs"),
        )  # fmt: skip

    def _make_overview(self, security: Security) -> Overview:
        """The state of all parts."""
        lease, webhook, kube = self._options.get("lease"), self._options.get("webhook"), self._groundwork.clients.kube
        used: dict[CertificateUse, ServerTls | None] = {
            "serving": security.tls,
            "webhook": None if webhook is None else webhook.tls,
        }
        return Overview(
            self.service,
            self.insight,
            self._queue_answers,
            self.store,
            files=Files(
                [(use, tls.certificate) for use, tls in used.items() if tls is not None],
                self._groundwork.first.settings.history_file,
            ),
            replica="" if lease is None else lease.identity,
            config_version=lambda: self.configurations.in_force.version,
            rules=lambda: self.configurations.rules,
            kubernetes=lambda: str(kube.get(VERSION).get("gitVersion", "")),
            are_followed=lambda: self._leadership.is_following,
        )

    def _make_leadership(self) -> Leadership:
        clients = self._groundwork.clients
        return Leadership(
            self.service,
            clients.kube,
            clients.lease,
            self._options.get("lease"),
            self._fail,
            self._objects,
            self.configurations.catch_up,
            DeviceObjects(clients.kube, self.service, self.metrics),
        )

    # Running

    @property
    def is_serving(self) -> bool:
        """False if an HTTP server, standing for election or a take-over has ended by itself."""
        are_alive = all(server.is_alive for server in self._servers)
        return are_alive and self._leadership.is_alive and not self._has_failed

    def start(self) -> None:
        """Begin to answer, to follow the cluster, and to lead as soon as it may. May be called again, by any thread."""
        with self._start_lock:
            if self._has_begun:
                return
            self._has_begun = True
        answers.prepare()
        for each in self._servers:
            each.start()
            log.info("listening", extra={"fields": {"url": each.url, "api_server": self._groundwork.clients.kube.host}})
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
        """Let another replica lead, finish the requests under way and the bindings being written, release the Lease."""
        self._is_stopping.set()
        if self._has_begun:
            self._beginning.join(timeout=1)
        if self._changeover is not None:
            self._changeover.stop()
        if self._node_sync is not None:
            self._node_sync.stop()
        self._sampler.stop()
        self._forecaster.stop()
        self.defrag.stop()
        self.kueue.stop()
        self.queues.stop()
        self.configurations.stop()
        self._leadership.stop()
        for each in self._servers:
            each.stop()
        self._groundwork.namespaces.stop()
        self.service.close()
        self.store.close()
        self._groundwork.clients.close()
        self._leadership.join()
        self.kueue.join(JOIN_S)
        self.queues.join(JOIN_S)
        self._groundwork.namespaces.join(JOIN_S)

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
                self.queues.start()  # nothing gets cells before quotas are known
                self._leadership.start()
                self.configurations.start()
                self.defrag.start()
                self.kueue.start()
                self._sampler.start()
                self._forecaster.start()
                if self._node_sync is not None:
                    self._node_sync.start()
        except Exception:
            log.critical("the beginning has failed", exc_info=True)
            self._fail()

    def _loading(self, ready: int, total: int) -> None:
        """Say so to people who ask whether this replica is ready."""
        self.service.prepare(LOADING.format(ready, total), lambda: not self._is_stopping.is_set())

    def _taken_up(self, configuration: Configuration) -> None:
        """Another configuration has come into force."""
        self._groundwork.admission.configure(configuration.cluster, configuration.rules)
        self._follow_namespaces(configuration)
        self._options.get("on_configuration", _ignore)(configuration)

    def _follow_namespaces(self, configuration: Configuration) -> bool:
        """Begin to, where a configuration chooses namespaces by their labels; False where it does not."""
        needs_labels = configuration.rules.access.needs_labels
        if needs_labels:
            self._groundwork.namespaces.start(self._namespace_changed)
        return needs_labels

    def _await_namespaces(self) -> None:
        is_needed = self._follow_namespaces(self._groundwork.first)
        if is_needed and not self._groundwork.namespaces.wait_until_listed(NAMESPACES_S):
            log.warning("namespaces are not listed yet: pods that their labels allow a VC are refused meanwhile")

    def _namespace_changed(self, namespace: str) -> None:
        if not self._groundwork.namespaces.wait_until_listed(0):
            return
        if self.service.namespace_changed(namespace):
            self._relist()
        if any(name.namespace == namespace for name in self.queues.jobs.everything()):
            self.queues.read_anew()

    def _serves(self, scheduler_name: str) -> bool:
        return self.service.serves(scheduler_name)

    def _fail(self) -> None:
        self._has_failed = True

    def _relist(self) -> None:
        """Have all pods told anew: other ones may be ours now, or ask for something else."""
        self._leadership.relist_pods()

    def _tell(self, store: Store, kind: str, reason: str, message: str) -> None:
        """Write an event about the ConfigMap. A file has no object for events; the log tells of it."""
        if isinstance(store, ConfigMapStore):
            try:
                self._events.record(store, kind, reason, message, about="ConfigMap")
            except KubeError as error:
                log.warning("event not written", extra={"fields": {"reason": reason, "error": str(error)}})


def _ignore(_: Configuration) -> None:
    pass


def _is_private(listener: socket | None, options: Options) -> bool:
    """True if only users of this machine can call. Of another server than ours that is what `listen` says."""
    host = options.get("listen", "").rpartition(":")[0].strip("[]") if listener is None else listener.getsockname()[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _recorder(directory: Path, config_text: str, metrics: Metrics) -> Recorder:
    try:
        return Recorder(directory, config_text, metrics.record_failures.inc)
    except OSError as error:
        raise UserError(f"cannot record to {directory}: {error.strerror}; --record wants a folder") from error


@contextmanager
def start_extender(
    config: Path | ConfigMapName | Origin,
    kube: KubeClient | None = None,
    **options: Unpack[Options],
) -> Iterator[Extender]:
    """A started extender for the cluster that `kube`, or else the configuration, points to; stopped at the end.

    `config` is a file, or the name of a ConfigMap in the cluster that `kube`, or else the environment, points to.
    With `is_served_elsewhere` it is not started yet.
    Raises UserError for a configuration, an address, a Secret or a record directory that cannot be used.
    """
    groundwork = lay_groundwork(config, kube, options)
    address = options.get("listen") or groundwork.first.settings.web_server_address
    with ExitStack() as stack:
        is_ours = not options.get("is_served_elsewhere", False)
        listener = stack.enter_context(closing(server.listen(address))) if is_ours else None
        webhook, webhook_server = options.get("webhook"), None
        if webhook is not None:
            beside = stack.enter_context(closing(server.listen(f"{address.rpartition(':')[0]}:{webhook.port}")))
            webhook_server = HttpServer(Webhook(groundwork.admission), beside, webhook.tls, name="webhook")
        extender = Extender(groundwork, listener, options, webhook_server)
        if is_ours:
            extender.start()
        try:
            yield extender
        finally:
            extender.stop()
