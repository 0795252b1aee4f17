"""The choices of whoever starts an extender."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import msgspec

from hived_config.loader import Configuration
from hived_extender.http.access import Security
from hived_extender.http.tls import ServerTls
from hived_extender.jobs.proofs import Prover
from hived_extender.kube.lease import LeaseName
from hived_extender.machine.notices import Pace

if TYPE_CHECKING:
    from hived_extender.reconfiguration.node_sync import NodeSyncing

LOOPBACK = "127.0.0.1"


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
    beside the service unless `compiles_kernels` is False. `stop` ends a start that waits for the API server.
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
