"""`hived serve`: the extender for a real cluster, or a whole embedded cluster with it."""

import logging
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hived_cli.helpers.answers import FiniteRange
from hived_cli.helpers.connecting import unwatched_jobs
from hived_cli.helpers.progress import stop_signal
from hived_cli.helpers.refusals import refused_in_vain
from hived_config.loader import load
from hived_config.settings import config_path
from hived_extender.groundwork import LOOPBACK, BindingSecretName, StoppedError, WebhookPort
from hived_extender.http.access import DEFAULT_VERB_CALLERS, Security
from hived_extender.http.server import settle_process, tune_process
from hived_extender.http.tls import ServerTls
from hived_extender.kube import logs
from hived_extender.kube.lease import DURATION_S, LeaseName
from hived_extender.reconfiguration.stores import ConfigMapName
from hived_extender.running import Extender, start_extender

if TYPE_CHECKING:
    from hived_extender.reconfiguration.node_sync import NodeSyncing
    from hived_lab.start import Embedded


CHECK_INTERVAL_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The command line as click has read it; names are those of the options."""

    config: Path | None
    config_map: str | None
    embedded: Path | None
    sync_nodes: float | None
    sync_levels: str
    sync_max: tuple[str, ...]
    listen: str
    record: Path | None
    log_format: str
    log_level: str
    verbose: bool
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    client_ca_file: Path | None
    allowed_client_name: tuple[str, ...]
    authorize: bool
    leader_elect: bool
    webhook: bool
    webhook_port: int | None
    webhook_tls_cert_file: Path | None
    webhook_tls_private_key_file: Path | None
    lease_namespace: str
    lease_name: str
    lease_duration: int
    binding_secret: str | None
    trust_unproved_before: datetime | None

    def check(self) -> None:
        """Raise UsageError for options that exclude each other, have no effect or protect less than they seem to."""
        is_embedded = self.embedded is not None
        if sum(each is not None for each in (self.config, self.config_map, self.embedded)) > 1:
            raise click.UsageError("--config, --config-map and --embedded exclude each other")
        if is_embedded and self.leader_elect:
            raise click.UsageError("an embedded cluster has one scheduler: --embedded goes without --leader-elect")
        self._check_tls()
        _check_company("--embedded", is_embedded, "verbose")
        _check_company("--client-ca-file", self.client_ca_file is not None, "allowed_client_name")
        self._check_webhook()
        if self.sync_nodes is not None and self.config_map is None and not is_embedded:
            raise click.UsageError("--sync-nodes needs --config-map or --embedded: a file is its owner's to change")
        _check_company("--sync-nodes", self.sync_nodes is not None, "sync_levels", "sync_max")
        _check_company("--leader-elect", self.leader_elect, "lease_namespace", "lease_name", "lease_duration")
        _check_company("--binding-secret", self.binding_secret is not None, "trust_unproved_before")
        if is_embedded and self.binding_secret is not None:
            raise click.UsageError(
                "an embedded cluster proves bindings by a key of its own: leave out --binding-secret"
            )

    def _check_tls(self) -> None:
        if self.embedded and (self.tls_cert_file or self.tls_private_key_file or self.client_ca_file or self.authorize):
            raise click.UsageError("an embedded cluster listens on loopback only: --embedded goes without TLS options")
        if (self.tls_cert_file is None) != (self.tls_private_key_file is None):
            raise click.UsageError("--tls-cert-file and --tls-private-key-file go together: give both or none")
        if self.client_ca_file and not self.tls_cert_file:
            raise click.UsageError("--client-ca-file needs --tls-cert-file and --tls-private-key-file")
        if self.authorize and not self.client_ca_file:
            raise click.UsageError(
                "--authorize needs --client-ca-file and the files of TLS: tokens must not travel in the clear, and "
                "kube-scheduler can show nothing but a client certificate"
            )

    def _check_webhook(self) -> None:
        has_port = self.webhook_port is not None
        if self.webhook and self.embedded is None:
            raise click.UsageError("--webhook goes with --embedded; for a real cluster give --webhook-port")
        if self.embedded is not None and has_port:
            raise click.UsageError("the embedded cluster calls no webhooks: give --webhook instead of --webhook-port")
        _check_company("--webhook-port", has_port, "webhook_tls_cert_file", "webhook_tls_private_key_file")

    def begin_log(self, *, is_queued: bool) -> None:
        """Log as these say; of an embedded cluster only changes, unless more is asked for."""
        is_brief = self.embedded is not None and not self.verbose and not is_given("log_level")
        logs.configure(self.log_format, self.log_level, only=Brief() if is_brief else None, is_queued=is_queued)

    def source(self) -> ConfigMapName | Path:
        """The place of the configuration."""
        if self.config_map:
            return ConfigMapName(*_namespaced("--config-map", self.config_map))
        return self.config or config_path(os.environ)

    def security(self) -> Security:
        """The certificates, and the rules for callers."""
        tls = None
        if self.tls_cert_file and self.tls_private_key_file:
            tls = ServerTls(self.tls_cert_file, self.tls_private_key_file, self.client_ca_file)
        return Security(tls, self.allowed_client_name, self.authorize)

    def lease(self) -> LeaseName | None:
        """The Lease of the replicas; the identity is the pod or the machine, and a part that no earlier process had."""
        if not self.leader_elect:
            return None
        identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{secrets.token_hex(4)}"
        return LeaseName(self.lease_namespace, self.lease_name, identity, self.lease_duration)

    def webhook_server(self) -> WebhookPort | None:
        """Raises UsageError without a certificate and a key, UserError where these cannot be used."""
        if self.webhook_port is None:
            return None
        certificate = self.webhook_tls_cert_file or self.tls_cert_file
        key = self.webhook_tls_private_key_file or self.tls_private_key_file
        if certificate is None or key is None:
            raise click.UsageError(
                "--webhook-port needs --webhook-tls-cert-file and --webhook-tls-private-key-file: the API server calls "
                "webhooks with TLS only"
            )
        return WebhookPort(self.webhook_port, ServerTls(certificate, key, options="--webhook-tls"))

    def secret(self) -> BindingSecretName | None:
        """The Secret with the keys of bindings, and the moment until which pods need no proof."""
        if self.binding_secret is None:
            return None
        until = self.trust_unproved_before
        moment = f"{until:%Y-%m-%dT%H:%M:%SZ}" if until is not None else ""
        return BindingSecretName(*_namespaced("--binding-secret", self.binding_secret), moment)


def _namespaced(option: str, name: str) -> tuple[str, str]:
    """(namespace, name). Raises UsageError for a text that cannot be a name."""
    namespace, _, own = name.rpartition("/")
    if not own or "/" in namespace:
        raise click.UsageError(f"{option} wants NAME or NAMESPACE/NAME, not {name!r}")
    return namespace or os.environ.get("POD_NAMESPACE") or "default", own


def _check_company(option: str, is_there: bool, *parameters: str) -> None:
    """Raise UsageError for parameters on the command line that mean nothing without `option`."""
    for name in parameters:
        if not is_there and is_given(name):
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect without {option}: give both")


def is_given(parameter: str) -> bool:
    """True if the parameter is on the command line."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


CHANGES = frozenset(
    {
        "bound",
        "force bind",
        "victim asked to leave",
        "lazily preempted",
        "preemption cancelled",
        "node",
        "configuration in force",
        "kernels are plain Python, which is slow, until they are compiled beside the service",
        "kernels are compiled",
    }
)
"""Messages at INFO that are shown, beside those about jobs."""
JOBS_LOG = "hived_jobs.controller"


class Brief(logging.Filter):
    """Lets changes and whatever is above INFO pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the record is worth a line."""
        is_change = record.name == JOBS_LOG or record.getMessage() in CHANGES
        return record.levelno > logging.INFO or (record.levelno == logging.INFO and is_change)


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), help="Configuration file. [default: $CONFIG or hivedscheduler.yaml]"
)
@click.option(
    "--config-map", metavar="[NAMESPACE/]NAME",
    help="Instead of a file: the ConfigMap that has the configuration, followed and changed by 'hived config push'. "
    "[namespace: $POD_NAMESPACE, else default]",
)  # fmt: skip
@click.option(
    "--embedded", metavar="CONFIG", type=click.Path(path_type=Path),
    help="Run an embedded cluster with the nodes of this configuration; needs no Kubernetes.",
)  # fmt: skip
@click.option(
    "--sync-nodes", metavar="SECONDS", type=FiniteRange(min=1),
    help="Look so often which nodes there are, and bring the configuration up to date, as 'hived config sync' does.",
)  # fmt: skip
@click.option(
    "--sync-levels", metavar="LABEL,...", default="",
    help="Labels of the groups that nodes stand in, outermost first: a node takes a place in its own group only.",
)  # fmt: skip
@click.option(
    "--sync-max", metavar="TYPE=N", multiple=True,
    help="Placeholders for nodes to come, until there are N places for nodes of a type; may be given several times.",
)  # fmt: skip
@click.option(
    "--listen", metavar="[HOST]:PORT", default="", help="Instead of the webServerAddress of the configuration."
)
@click.option(
    "--record", metavar="DIR", type=click.Path(path_type=Path), help="Write every event to DIR, for 'hived replay'."
)
@click.option(
    "--log-format", type=click.Choice(list(logs.FORMATTERS)), default="text", show_default=True, help="Form of the log."
)
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO", show_default=True,
    help="What is worth a line in the log.",
)  # fmt: skip
@click.option(
    "-v", "--verbose", is_flag=True,
    help="With --embedded: log every decision, not only what has changed for pods, nodes and the configuration.",
)  # fmt: skip
@click.option(
    "--tls-cert-file", metavar="FILE", type=click.Path(path_type=Path),
    help="Serve HTTPS with this certificate (PEM, with its chain); a renewed file is taken up at once.",
)  # fmt: skip
@click.option("--tls-private-key-file", metavar="FILE", type=click.Path(path_type=Path), help="The certificate's key.")
@click.option(
    "--client-ca-file", metavar="FILE", type=click.Path(path_type=Path),
    help="Let only holders of a client certificate of this CA filter, preempt and bind.",
)  # fmt: skip
@click.option(
    "--allowed-client-name", metavar="NAME", multiple=True, default=DEFAULT_VERB_CALLERS, show_default=True,
    help="A common name that such a certificate may have; may be given several times.",
)  # fmt: skip
@click.option(
    "--authorize", is_flag=True,
    help="Ask the API server who may call every other path but /healthz and /readyz.",
)  # fmt: skip
@click.option(
    "--leader-elect", is_flag=True,
    help="Run beside other replicas: only the holder of a Lease in the API server answers.",
)  # fmt: skip
@click.option(
    "--webhook", is_flag=True,
    help="With --embedded: isolate devices and hold jobs of queues, as the admission webhook of a real cluster does.",
)  # fmt: skip
@click.option(
    "--webhook-port", metavar="PORT", type=click.IntRange(0, 65535), envvar="WEBHOOK_PORT",
    show_default="$WEBHOOK_PORT, else no webhook",
    help="Serve the admission webhook that isolates devices at this port too, with TLS.",
)  # fmt: skip
@click.option(
    "--webhook-tls-cert-file", metavar="FILE", type=click.Path(path_type=Path), envvar="WEBHOOK_TLS_CERT_FILE",
    show_default="$WEBHOOK_TLS_CERT_FILE, else that of --tls-cert-file",
    help="Its certificate, for the name of the Service that the API server calls.",
)  # fmt: skip
@click.option(
    "--webhook-tls-private-key-file", metavar="FILE", type=click.Path(path_type=Path),
    envvar="WEBHOOK_TLS_PRIVATE_KEY_FILE", show_default="$WEBHOOK_TLS_PRIVATE_KEY_FILE, else that of the other port",
    help="The certificate's key.",
)  # fmt: skip
@click.option(
    "--lease-namespace", metavar="NAME", envvar="POD_NAMESPACE", default="default",
    show_default="$POD_NAMESPACE, else default",
    help="Where that Lease is.",
)  # fmt: skip
@click.option(
    "--binding-secret", metavar="[NAMESPACE/]NAME",
    help="Prove bindings by the keys of this Secret, which is made if it is not there. Without it every pod that says "
    "that hived bound it is believed.",
)  # fmt: skip
@click.option(
    "--trust-unproved-before", metavar="TIME", type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ"]),
    help="Believe pods without proof that were created before this time (UTC), and prove their bindings: for those "
    "that HiveD, or hived 0.1.0, has bound.",
)  # fmt: skip
@click.option("--lease-name", metavar="NAME", default="hived-scheduler", show_default=True, help="What it is called.")
@click.option(
    "--lease-duration", metavar="SECONDS", type=click.IntRange(2, 600), default=DURATION_S, show_default=True,
    help="After so long without a sign of life from the leader another replica takes over.",
)  # fmt: skip
def command(**given: Any) -> None:
    """Run the scheduler extender, or a whole embedded cluster.

    The address of the Kubernetes API server and the credentials are looked for in this order: in the configuration
    file, in KUBE_APISERVER_ADDRESS and KUBECONFIG, in the pod's service account.

    SIGTERM and SIGINT end it in order: requests under way are finished, the exit code is 0.

    \b
    Examples:
      hived serve --config hivedscheduler.yaml
      hived serve --config-map hived-system/hived-config
      hived serve --embedded hivedscheduler.yaml
      hived serve --embedded hivedscheduler.yaml --record records
      hived serve --config-map hived-config --sync-nodes 60 --sync-levels topology.kubernetes.io/zone,example.com/rack
      hived serve --listen :9096 --log-format json
      hived serve --leader-elect --lease-namespace hived-system
      hived serve --binding-secret hived-system/hived-bindings --trust-unproved-before 2026-11-22T12:00:00Z
      hived serve --tls-cert-file tls.crt --tls-private-key-file tls.key --client-ca-file ca.crt --authorize
      hived serve --webhook-port 9443 --webhook-tls-cert-file tls.crt --webhook-tls-private-key-file tls.key
      hived serve --embedded hivedscheduler.yaml --webhook
    """
    options = ServeOptions(**given)
    options.check()
    syncing = syncing_of(options)
    options.begin_log(is_queued=True)
    tune_process()
    with stop_signal() as stop:
        if options.embedded is not None:
            _serve_embedded(options, options.embedded, syncing, stop)
            return
        security = options.security()
        with (
            suppress(StoppedError),
            start_extender(
                options.source(),
                listen=options.listen,
                record_dir=options.record,
                security=security,
                lease=options.lease(),
                webhook=options.webhook_server(),
                syncing=syncing,
                binding_secret=options.secret(),
                unwatched_jobs=lambda kube: unwatched_jobs(lambda **_: kube),
                stop=stop,
            ) as extender,
        ):
            _serve_until(stop, extender)


def syncing_of(options: ServeOptions) -> "NodeSyncing | None":
    """Return how the nodes of the configuration follow those of the cluster, if they do. Raises UserError."""
    if options.sync_nodes is None:
        return None
    from hived_cli.config.generating import read_limits, split  # noqa: PLC0415  # it generates configurations,
    from hived_config.generating.nodes import Reading  # noqa: PLC0415  # which most services do without
    from hived_extender.reconfiguration.node_sync import NodeSyncing  # noqa: PLC0415  # as well

    limits = read_limits("--sync-max", options.sync_max)
    return NodeSyncing(options.sync_nodes, Reading(split(options.sync_levels)), limits)


def _serve_embedded(options: ServeOptions, config: Path, syncing: "NodeSyncing | None", stop: threading.Event) -> None:
    from hived_lab.start import start_embedded  # noqa: PLC0415  # a tenth of all modules; a real cluster needs none

    configuration = load(config)
    if not options.webhook and (warning := refused_in_vain(configuration, "--webhook")):
        log.warning(warning)
    address = options.listen or f"{LOOPBACK}:{configuration.settings.listen_on()[1]}"
    began = time.monotonic()
    with start_embedded(
        config,
        listen=address,
        record_dir=options.record,
        stop=stop,
        has_webhook=options.webhook,
        syncing=syncing,
        on_answering=introduce,
    ) as running:
        if not stop.is_set():
            click.echo(f"Ready after {time.monotonic() - began:.0f} s: pods are scheduled from now on.")
        _serve_until(stop, running.extender)


def _serve_until(stop: threading.Event, extender: Extender) -> None:
    """Serve until told to stop; a server that ends by itself is a failure."""
    is_settled = False
    while not stop.wait(CHECK_INTERVAL_S):
        if not extender.is_serving:
            raise click.ClickException("the HTTP server or the recovery has ended unexpectedly; see the log")
        if extender.service.is_ready and not is_settled:
            settle_process()
            is_settled = True


def introduce(running: "Embedded") -> None:
    """Say where a cluster answers, and what to try: jobs that wait where there are queues."""
    kubeconfig, extender_url = running.cluster.kubeconfig, running.extender.url
    has_queues = running.extender.queues.queueing.is_enabled
    begin = "kubectl apply -f job.yaml\n  hived get queue --jobs" if has_queues else "hived submit job.yaml"
    click.echo(f"""\
An embedded cluster is running. Pods that are created now wait until hived is ready, a few seconds.

  API server   {running.cluster.api_url}
  extender     {extender_url}
  page         {extender_url}/
  kubeconfig   {kubeconfig}

Try, in another terminal:

  export KUBECONFIG={kubeconfig} HIVED_SERVER={extender_url}
  kubectl get nodes
  {begin}
  kubectl get pods -A --watch
  kubectl cordon NODE
  hived get cluster
  hived get jobs
  hived why POD
  hived top
  curl {extender_url}/v1/inspect/clusterstatus

Ctrl-C ends it.
""")
