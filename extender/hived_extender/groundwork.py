"""The options of an extender, and all that it needs before its first part begins: found, waited for or refused."""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import msgspec

from hived.values.errors import HivedError, UserError
from hived_config.loader import Configuration
from hived_extender.api.paths import HEALTH_PATH, READINESS_PATH, Health, Readiness
from hived_extender.api.waiting import Job
from hived_extender.http import server
from hived_extender.http.access import Security
from hived_extender.http.answers import Answer
from hived_extender.http.bodies import Receive, Scope, Send, send_answer
from hived_extender.http.server import HttpServer
from hived_extender.http.tls import ServerTls
from hived_extender.jobs.admission import Admission
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.namespaces import Namespaces
from hived_extender.jobs.wire import encode
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import Backoff, timestamp
from hived_extender.kube.lease import LeaseName
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.notices import Pace
from hived_extender.machine.writes.binding_secret import BindingSecret
from hived_extender.reconfiguration.stores import ConfigMapName, Origin, config_map_origin, file_origin

if TYPE_CHECKING:
    from hived_extender.reconfiguration.node_sync import NodeSyncing

log = logging.getLogger(__name__)

LEASE_TIMEOUT_S = 2.0
"""A write of the Lease that takes longer is given up; later ones would not come in time either."""

REVIEW_TIMEOUT_S = 5.0
"""For a review of access: the caller waits for it."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 15.0
"""Between two tries; the time doubles."""

T = TypeVar("T")

LOOPBACK = "127.0.0.1"


class BindingSecretName(msgspec.Struct, frozen=True):
    """The name of the Secret with the keys that prove bindings; see `Prover` for `trusts_before`."""

    namespace: str
    name: str
    trusts_before: str = ""


class WebhookPort(msgspec.Struct, frozen=True):
    """The port of the admission webhook, on the host that the extender listens on. The API server wants TLS."""

    port: int
    tls: ServerTls


class Options(TypedDict, total=False):
    """The choices of an operator; each has a default.

    `listen` is `[host]:port`, by default what the configuration says. With a `lease` the extender leads when it holds
    that, else from the beginning. With `serves_every_name` no other scheduler is there that pods could be for.
    `on_configuration` is told of every other configuration that comes into force. With `syncing` the nodes of the
    configuration follow the nodes of the cluster. Bindings are proved by the keys of `binding_secret`, or by `prover`;
    without either, every pod that says so counts as bound by hived. Where kernels are not linked, they are compiled
    beside the service unless `compiles_kernels` is False. `stop` ends a start that waits for the API server.
    `is_served_elsewhere`: a WSGI server listens, at `listen` if that is given, and not the extender. `as_anyone`
    connects without credentials to an API server that lets everybody do everything. `unwatched_jobs` lists the jobs
    that the service does not watch, such as those that are suspended in their records, as far as the viewer of a page
    may read these.
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
    stop: threading.Event
    is_served_elsewhere: bool
    as_anyone: Callable[[], KubeClient]
    unwatched_jobs: Callable[[KubeClient], list[Job]]


class StoppedError(HivedError):
    """The process was told to end while it waited."""


class Awaiting:
    """Waits for an API server that cannot answer at the start of a process.

    A process that ended instead would be started again by Kubernetes, later each time, up to five minutes. While it
    waits, probes are answered at `address`, if that is known: alive, and not ready. `stop` ends the waiting.
    """

    def __init__(self, address: str = "", tls: ServerTls | None = None, stop: threading.Event | None = None) -> None:
        self._address, self._tls = address, tls
        self._stop = stop or threading.Event()

    def read(self, call: Callable[[], T], name: str) -> T:
        """The result of `call`, which reads what people know as `name`.

        Raises its error if the same call would fail for ever, and StoppedError.
        """
        backoff, probes = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S), _Probes()
        with ExitStack() as stack:
            while True:
                try:
                    return call()
                except (KubeError, UserError) as error:
                    if not _may_pass(error):
                        raise
                    probes.reason = f"waiting for the API server, which cannot show {name} yet"
                    fields = {"what": name, "error": str(error), "again_in_s": backoff.failed()}
                    log.warning("waiting for the API server", extra={"fields": fields})
                if not probes.are_answered and self._address:
                    self._answer(probes, stack)
                if self._stop.wait(backoff.wait_s):
                    raise StoppedError(f"stopped before {name} could be read")

    def _answer(self, probes: "_Probes", stack: ExitStack) -> None:
        listener = stack.enter_context(closing(server.listen(self._address)))
        answering = HttpServer(probes, listener, self._tls, name="probes")
        answering.start()
        stack.callback(answering.stop)
        probes.are_answered = True


class _Probes:
    """The ASGI application of a process that waits: alive, and not ready for a reason."""

    def __init__(self) -> None:
        self.reason = ""
        self.are_answered = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if path == HEALTH_PATH:
            await send_answer(send, Answer(encode(Health("ok"))))
        elif path == READINESS_PATH:
            await send_answer(send, Answer(encode(Readiness("not ready", self.reason)), 503))
        else:
            await send_answer(send, Answer(encode(f"not ready: {self.reason}"), 503))

    def close(self) -> None:
        """Nothing is left to be done."""


def _may_pass(error: KubeError | UserError) -> bool:
    """True if the API server could answer the same call differently later."""
    cause = error if isinstance(error, KubeError) else error.__cause__
    return isinstance(cause, KubeError) and cause.may_pass


class Clients:
    """Connections to one API server, with the patience that each use has."""

    def __init__(self, kube: KubeClient) -> None:
        self.kube = kube
        self.lease = kube.with_timeout(LEASE_TIMEOUT_S)
        self.reviews = kube.with_timeout(REVIEW_TIMEOUT_S)

    def close(self) -> None:
        """Close all of them."""
        for each in (self.kube, self.lease, self.reviews):
            each.close()


class Groundwork(msgspec.Struct, frozen=True):
    """All that is found or refused before the first part of an extender begins.

    `prover` and `secret` are as for a `Service`; `namespaces` and `admission` begin empty.
    """

    origin: Origin
    clients: Clients
    prover: Prover | None
    secret: BindingSecret | None
    namespaces: Namespaces
    admission: Admission

    @property
    def first(self) -> Configuration:
        """The configuration in force at the start."""
        return self.origin.configuration


def lay_groundwork(config: Path | ConfigMapName | Origin, kube: KubeClient | None, options: Options) -> Groundwork:
    """See `running.start_extender`. Waits for an API server that cannot answer.

    Raises UserError for a configuration or a Secret that cannot be used, and StoppedError.
    """
    try:
        origin, client = _origin_and_client(config, kube, options)
        prover, secret = _proofs(
            client, options, options.get("listen") or origin.configuration.settings.web_server_address
        )
    except KubeError as error:
        raise UserError(str(error)) from error
    namespaces, first = Namespaces(client, Metrics()), origin.configuration
    admission = Admission(first.cluster, first.rules, labels_of=namespaces.labels)
    return Groundwork(origin, Clients(client), prover, secret, namespaces, admission)


def _awaiting(options: Options, address: str) -> Awaiting:
    security = options.get("security")
    address = "" if options.get("is_served_elsewhere", False) else address
    return Awaiting(address, security.tls if security is not None else None, options.get("stop"))


def _origin_and_client(
    config: Path | ConfigMapName | Origin, kube: KubeClient | None, options: Options
) -> tuple[Origin, KubeClient]:
    """A configuration in the cluster has to be found by the environment, and another one may say where that is."""
    if isinstance(config, ConfigMapName):
        kube = kube or KubeClient.connect(os.environ.get("KUBE_APISERVER_ADDRESS", ""))
        read = partial(config_map_origin, kube, config.namespace, config.name)
        return _awaiting(options, options.get("listen", "")).read(
            read, f"ConfigMap {config.namespace}/{config.name}"
        ), kube
    origin = config if isinstance(config, Origin) else file_origin(config)
    settings = origin.configuration.settings
    return origin, kube or KubeClient.connect(settings.kube_api_server_address, settings.kube_config_file_path)


def _proofs(kube: KubeClient, options: Options, address: str) -> tuple[Prover | None, BindingSecret | None]:
    """The prover of bindings, and the Secret with its keys. Raises UserError if that cannot be used."""
    name = options.get("binding_secret")
    if name is None:
        prover = options.get("prover")
        if prover is None:
            log.warning("bindings are not proved: any client that may create pods may take cells; see --binding-secret")
        return prover, None
    secret = BindingSecret(kube, name.namespace, name.name)
    try:
        keys = _awaiting(options, address).read(secret.keys, secret.source)
    except KubeError as error:
        raise UserError(f"{secret.source}, which --binding-secret names: {error}") from error
    if name.trusts_before > timestamp():
        fields = {"trust_unproved_before": name.trusts_before}
        log.warning("until a time to come, new pods count as bound if they say so", extra={"fields": fields})
    return Prover(keys, trusts_before=name.trusts_before), secret
