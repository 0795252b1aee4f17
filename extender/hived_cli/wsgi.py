"""`hived serve` behind another server: the whole endpoint as a Flask application, for any WSGI server.

    HIVED_SERVE_OPTIONS="--config cluster.yaml" flask --app hived_cli.wsgi run --port 9096

The process is one scheduler, so it has to be one process with threads. It begins with the first call that it answers:
servers load an application in processes too that answer none, such as that of a reloader, or one that forks others.
"""

import atexit
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click
from flask import Flask

from hived.values.errors import UserError
from hived_cli.helpers.connecting import unwatched_jobs
from hived_cli.serve import ServeOptions, command, introduce, syncing_of
from hived_config.loader import load
from hived_extender.groundwork import LOOPBACK
from hived_extender.http.answers import JSON
from hived_extender.http.server import tune_process
from hived_extender.jobs.wire import encode
from hived_extender.running import Extender, start_extender

VARIABLE = "HIVED_SERVE_OPTIONS"
"""The environment variable with the options of `hived serve`, as they stand on a command line."""

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def create_app() -> Flask:
    """The application for the options in the environment. Raises ClickException for those that cannot be."""
    options = _options(shlex.split(os.environ.get(VARIABLE, "")))
    tune_process()
    _end_in_order()
    stack = ExitStack()
    atexit.register(stack.close)
    try:
        extender = stack.enter_context(_prepared(options))
    except UserError as error:
        raise click.ClickException(str(error)) from error
    app = extender.app.flask()
    app.wsgi_app = Beginning(app.wsgi_app, extender)  # type: ignore[method-assign]  # as Flask has it
    return app


class Beginning:
    """A WSGI application that begins a service with its first call, if its server can be one scheduler."""

    def __init__(self, app: WsgiApp, extender: Extender) -> None:
        self._app, self._extender = app, extender

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        why = _why_not(environ)
        if not why:
            self._extender.start()
            if not self._extender.is_serving:
                why = "the service has ended unexpectedly: see the log, and start this process again"
        if why:
            start_response("503 Service Unavailable", [("Content-Type", JSON)])
            return [encode(why)]
        return self._app(environ, start_response)


def _why_not(environ: dict[str, Any]) -> str:
    """Return why a server must not have this application, "" if it may."""
    if environ["wsgi.multiprocess"]:
        return "several processes would each give the same cells away: have the WSGI server run one, with threads"
    if not environ["wsgi.multithread"]:
        return "bindings wait for other calls: have the WSGI server answer calls side by side, with threads"
    return ""


def _options(arguments: list[str]) -> ServeOptions:
    """The options, checked as on a command line. Raises UsageError for those of the server of `hived serve`."""
    with command.make_context("hived serve", arguments) as context:
        options = ServeOptions(**context.params)
        options.check()
        for name in ("tls_cert_file", "client_ca_file", "webhook_port"):
            if getattr(options, name) is not None:
                raise click.UsageError(
                    f"--{name.replace('_', '-')} is for the server of hived serve: here the WSGI server listens, and "
                    "hived knows no callers"
                )
        options.begin_log(is_queued=False)  # no thread before the server may fork
    return options


@contextmanager
def _prepared(options: ServeOptions) -> Iterator[Extender]:
    """An extender that another server is to serve; that of an embedded cluster has begun."""
    syncing = syncing_of(options)
    if options.embedded is None:
        with start_extender(
            options.source(),
            listen=options.listen,
            record_dir=options.record,
            lease=options.lease(),
            syncing=syncing,
            binding_secret=options.secret(),
            unwatched_jobs=lambda kube: unwatched_jobs(lambda **_: kube),
            is_served_elsewhere=True,
        ) as extender:
            yield extender
        return
    from hived_lab.start import start_embedded  # noqa: PLC0415  # a tenth of all modules; a real cluster needs none

    with start_embedded(
        options.embedded,
        listen=options.listen or f"{LOOPBACK}:{load(options.embedded).settings.listen_on()[1]}",
        record_dir=options.record,
        has_webhook=options.webhook,
        syncing=syncing,
        on_answering=introduce,
        is_served_elsewhere=True,
    ) as running:
        yield running.extender


def _end_in_order() -> None:
    """Have SIGTERM end a process in order that has no way of its own, as Flask's server has none."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
