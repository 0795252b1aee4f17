"""The connections of commands to a service and the API server, and their options."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hived.values.errors import UserError
from hived_cli.helpers.answers import with_options
from hived_extender.api import inspection
from hived_extender.api.inspection import Credentials, Inspector
from hived_extender.api.waiting import Job
from hived_extender.kube.client import KubeClient, KubeError

RECORDS_S = 2.0
"""So long a list waits for the jobs that the service does not watch."""

_OPTIONS = (
    click.option(
        "--kubeconfig", envvar="KUBECONFIG", show_envvar=True, default="",
        help="How to reach the API server.  [default: ~/.kube/config, else the pod's own account]",
    ),
    click.option(
        "--api-server", envvar="KUBE_APISERVER_ADDRESS", show_envvar=True, default="", help="Address of the API server."
    ),
)  # fmt: skip


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

    return with_options(ask, _OPTIONS)


def unwatched_jobs(connect: Callable[..., KubeClient | None], namespace: str = "") -> list[Job]:
    """Return the jobs that the service does not watch: suspended in their records, and CronJobs between their runs.

    Empty if there is no API server, it does not answer in time, or the caller may not read these.
    """
    if (kube := connect(may_fail=True)) is None:
        return []
    from hived_jobs.suspension import unwatched_jobs as found_in  # noqa: PLC0415  # most commands need it not

    return found_in(kube.with_timeout(RECORDS_S), namespace)


def _connect(api_server: str, kubeconfig: str, may_fail: bool) -> KubeClient | None:
    try:
        return KubeClient.connect(api_server, kubeconfig)
    except KubeError as error:
        if may_fail:
            return None
        reason = error.message.rstrip(".")
        raise UserError(f"{reason}; give --kubeconfig FILE or --api-server URL") from error


def _file_option(name: str, help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    envvar = f"HIVED_{name.removeprefix('--').replace('-', '_').upper()}"
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(name, metavar="FILE", type=kind, envvar=envvar, show_envvar=True, help=help_text)


SERVICE_OPTIONS = (
    click.option(
        "--server", envvar="HIVED_SERVER", default=inspection.DEFAULT_SERVER, show_default=True, show_envvar=True,
        help="Address of the service.",
    ),
    click.option(
        "--token", envvar="HIVED_TOKEN", default="", show_envvar=True,
        help="A token of the cluster, for a service that asks; others on this machine can read command lines.",
    ),
    _file_option("--token-file", "A file with such a token."),
    _file_option("--certificate-authority", "The CA of a service that speaks https."),
    _file_option("--client-certificate", "A client certificate, instead of a token."),
    _file_option("--client-key", "Its key, unless it is in the same file."),
)  # fmt: skip


def asks_service(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say whom to ask and how; the command gets an `inspector` for them."""

    @wraps(function)
    def ask(server: str, **options: Any) -> None:
        names = ("token", "token_file", "certificate_authority", "client_certificate", "client_key")
        credentials = Credentials(**{name: options.pop(name) for name in names})
        function(inspector=Inspector(server, credentials), **options)

    return with_options(ask, SERVICE_OPTIONS)
