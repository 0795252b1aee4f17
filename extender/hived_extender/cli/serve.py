"""`hived serve`: the extender for a real cluster, or a whole embedded cluster with it."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from hived_config.loader import load
from hived_config.settings import config_path
from hived_extender import logs
from hived_extender.running import LOOPBACK, Extender, start_embedded, start_extender
from hived_extender.server import tune_process

CHECK_INTERVAL_S = 1.0


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), help="Configuration file. [default: $CONFIG or hivedscheduler.yaml]"
)
@click.option(
    "--embedded", metavar="CONFIG", type=click.Path(path_type=Path),
    help="Run an embedded cluster with the nodes of this configuration; needs no Kubernetes.",
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
def command(
    *, config: Path | None, embedded: Path | None, listen: str, record: Path | None, log_format: str, log_level: str
) -> None:
    """Run the scheduler extender, or a whole embedded cluster.

    The address of the Kubernetes API server and the credentials come from the configuration file, from
    KUBE_APISERVER_ADDRESS and KUBECONFIG, or from the pod's service account, in this order.

    SIGTERM and SIGINT end it in order: requests under way are finished, the exit code is 0.

    \b
    Examples:
      hived serve --config hivedscheduler.yaml
      hived serve --embedded hivedscheduler.yaml
      hived serve --embedded hivedscheduler.yaml --record records
      hived serve --listen :9096 --log-format json
    """
    if config is not None and embedded is not None:
        raise click.UsageError("--config and --embedded exclude each other")
    logs.configure(log_format, log_level)
    with _stop_signal() as stop:
        if embedded is not None:
            _serve_embedded(embedded, listen, record, stop)
        else:
            with start_extender(config or config_path(os.environ), listen=listen, record_dir=record) as extender:
                _serve_until(stop, extender)


def _serve_embedded(config: Path, listen: str, record: Path | None, stop: threading.Event) -> None:
    address = listen or f"{LOOPBACK}:{load(config).settings.listen_on()[1]}"
    with start_embedded(config, listen=address, record_dir=record) as running:
        click.echo(_introduction(running.cluster.api_url, str(running.cluster.kubeconfig), running.extender.url))
        _serve_until(stop, running.extender)


def _serve_until(stop: threading.Event, extender: Extender) -> None:
    """Serve until told to stop; a server that ends by itself is a failure."""
    is_tuned = False
    while not stop.wait(CHECK_INTERVAL_S):
        if not extender.is_serving:
            raise click.ClickException("the HTTP server or the recovery has ended unexpectedly; see the log")
        if extender.service.is_ready and not is_tuned:
            tune_process()
            is_tuned = True


@contextmanager
def _stop_signal() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _introduction(api_url: str, kubeconfig: str, extender_url: str) -> str:
    return f"""\
An embedded cluster is running.

  API server   {api_url}
  extender     {extender_url}
  kubeconfig   {kubeconfig}

Try, in another terminal:

  export KUBECONFIG={kubeconfig}
  kubectl get nodes
  hived submit job.yaml
  kubectl get pods -A --watch
  kubectl cordon NODE
  hived get cluster --server {extender_url}
  curl {extender_url}/v1/inspect/clusterstatus

Ctrl-C ends it.
"""
