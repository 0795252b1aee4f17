"""The options of `hived serve`: which of them go together, and what they mean to the service."""

import os
import secrets
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click
from click.core import ParameterSource

from hived_config.settings import config_path
from hived_extender.http.access import Security
from hived_extender.http.tls import ServerTls
from hived_extender.kube.lease import LeaseName
from hived_extender.options import BindingSecretName, WebhookPort
from hived_extender.reconfiguration.origins import ConfigMapName


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

    def source(self) -> ConfigMapName | Path:
        """Where the configuration is."""
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
        """Where the keys of bindings are, and until when pods need no proof."""
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
    """Whether the parameter is on the command line."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE
