"""How commands that write to the cluster find its API server."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from hived.errors import UserError
from hived_extender.kube import KubeClient, KubeError

_OPTIONS = (
    click.option(
        "--kubeconfig",
        envvar="KUBECONFIG",
        show_envvar=True,
        default="",
        help="How to reach the API server.  [default: ~/.kube/config, else the pod's own account]",
    ),
    click.option(
        "--api-server", envvar="KUBE_APISERVER_ADDRESS", show_envvar=True, default="", help="Address of the API server."
    ),
)


def asks_api_server(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the API server is; the command gets a `connect` that takes `may_fail`."""

    @wraps(function)
    def ask(kubeconfig: str, api_server: str, **options: Any) -> None:
        is_inherited = click.get_current_context().get_parameter_source("kubeconfig") is ParameterSource.ENVIRONMENT
        if api_server and is_inherited and not any(map(os.path.isfile, kubeconfig.split(os.pathsep))):
            kubeconfig = ""  # left over from a cluster that is gone; the address is enough

        def connect(may_fail: bool = False) -> KubeClient | None:
            return _connect(api_server, kubeconfig, may_fail)

        function(connect=connect, **options)

    for option in reversed(_OPTIONS):
        ask = option(ask)
    return ask


def _connect(api_server: str, kubeconfig: str, may_fail: bool) -> KubeClient | None:
    try:
        return KubeClient.connect(api_server, kubeconfig)
    except KubeError as error:
        if may_fail:
            return None
        reason = error.message.rstrip(".")
        raise UserError(f"{reason}; give --kubeconfig FILE or --api-server URL, or --dry-run") from error
