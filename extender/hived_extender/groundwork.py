"""All that an extender stands on, found or refused before its first part begins."""

import logging
import os
from functools import partial
from pathlib import Path

import msgspec

from hived.values.errors import UserError
from hived_config.loader import Configuration
from hived_extender.awaiting import Awaiting
from hived_extender.jobs.job_admission import JobAdmission
from hived_extender.jobs.namespaces import Namespaces
from hived_extender.jobs.proofs import Prover
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import timestamp
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.writes.binding_secret import BindingSecret
from hived_extender.options import Options
from hived_extender.reconfiguration.stores import ConfigMapName, Origin, config_map_origin, file_origin

log = logging.getLogger(__name__)

LEASE_TIMEOUT_S = 2.0
"""A write of the Lease that takes longer is given up; later ones would not come in time either."""

REVIEW_TIMEOUT_S = 5.0
"""For a review of access: the caller waits for it."""


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
    """See the module. `prover` and `secret` are as for a `Service`; `namespaces` and `admission` begin empty."""

    origin: Origin
    clients: Clients
    prover: Prover | None
    secret: BindingSecret | None
    namespaces: Namespaces
    admission: JobAdmission

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
    admission = JobAdmission(first.cluster, first.rules, labels_of=namespaces.labels)
    return Groundwork(origin, Clients(client), prover, secret, namespaces, admission)


def _awaiting(options: Options, address: str) -> Awaiting:
    security = options.get("security")
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
            log.warning("bindings are not proved: whoever may create pods may take cells; see --binding-secret")
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
