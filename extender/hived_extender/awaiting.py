"""Reads that a start cannot do without: an API server that cannot answer is waited for, and people are told so.

A process that ended instead would be started again by Kubernetes, later each time, up to five minutes. While it waits,
probes are answered where the address is known: it is alive, and not ready.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TypeVar

from hived.values.errors import HivedError, UserError
from hived_extender.api.paths import HEALTH_PATH, READINESS_PATH
from hived_extender.api.service import Health, Readiness
from hived_extender.http import server
from hived_extender.http.answers import Answer
from hived_extender.http.bodies import Receive, Scope, Send, send_answer
from hived_extender.http.server import HttpServer
from hived_extender.http.tls import ServerTls
from hived_extender.jobs.wire import encode
from hived_extender.kube.client import KubeError
from hived_extender.kube.clocks import Backoff

log = logging.getLogger(__name__)

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 15.0
"""Between two tries; the time doubles."""

T = TypeVar("T")


class StoppedError(HivedError):
    """The process was told to end while it waited."""


class Awaiting:
    """Waits for the API server at the start of a process.

    `address`, if known, is where probes are answered meanwhile. `stop` ends the waiting.
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
    """Whether the API server could answer the same call otherwise, with nobody changing the call."""
    cause = error if isinstance(error, KubeError) else error.__cause__
    return isinstance(cause, KubeError) and cause.may_pass
