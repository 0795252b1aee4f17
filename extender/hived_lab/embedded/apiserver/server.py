"""The life of the API server: its thread, its event loop, its socket."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

from hived.errors import UserError
from hived_extender.http.listening import Limits
from hived_extender.http.server import Serving
from hived_extender.pods.admission import Admission
from hived_lab.embedded.apiserver.asgi import Application
from hived_lab.embedded.apiserver.registry import Registry
from hived_lab.embedded.apiserver.rest import Rest
from hived_lab.embedded.apiserver.store import DEFAULT_HISTORY_LIMIT, Store

LOOPBACK = "127.0.0.1"
DEFAULT_EVENT_TTL_S = 3600.0
DEFAULT_BOOKMARK_INTERVAL_S = 30.0
_SHUTDOWN_S = 2
_SWEEP_INTERVAL_S = 60.0

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class ApiServer:
    """An API server on a loopback port, served from a thread of its own.

    Parameters
    ----------
    port : 0 chooses a free one
    history_limit : changes remembered per resource; a watch from before them is answered with 410
    expired_as_status : answer such a watch with the HTTP status, not with an ERROR event
    event_ttl_s : seconds after which an event that nobody touched is removed
    admission : changes pods and jobs that are created, and judges quota trees; by default none
    hived_token : who bears it may write what only hived writes onto pods; by default everybody may
    """

    def __init__(
        self,
        port: int = 0,
        history_limit: int = DEFAULT_HISTORY_LIMIT,
        bookmark_interval_s: float = DEFAULT_BOOKMARK_INTERVAL_S,
        expired_as_status: bool = False,
        event_ttl_s: float = DEFAULT_EVENT_TTL_S,
        admission: Admission | None = None,
        hived_token: str = "",
    ) -> None:
        self._socket = _listen(port)
        # Versions from the clock are above those of an earlier run on this port, so its clients list again.
        self.registry = Registry(Store(time.time_ns() // 1000, history_limit))
        self._rest = Rest(self.registry, bookmark_interval_s, expired_as_status, admission, hived_token)
        self._event_ttl_s = event_ttl_s
        self._started: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop
        self._tasks: list[asyncio.Future[None]] = []
        self._thread = threading.Thread(target=self._run, name="embedded-apiserver", daemon=True)
        self._serving = Serving(Application(self._rest), self._socket, limits=Limits(), drain_timeout_s=_SHUTDOWN_S)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Serve until `stop`; requests are answered when this returns. Raises what kept the event loop from running."""
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """End watches, finish running requests, close the port."""
        if self._thread.is_alive():
            self.call(self._shut_down)
            self._thread.join()
        self._socket.close()

    def call(self, work: Callable[[], Result]) -> Result:
        """Run `work` on the server's event loop, from another thread, and return what it returns.

        The registry may only be used there. An exception of `work` is raised here.
        """
        done: Future[Result] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the coroutine that `work` makes on the server's event loop until it ends or the server stops."""

        def begin() -> None:
            task = asyncio.ensure_future(work())
            task.add_done_callback(_log_failure)
            self._tasks.append(task)

        self.call(begin)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._tasks.append(asyncio.ensure_future(self._sweep_events()))
        self._started.set_result(None)
        await self._serving.run()

    def _shut_down(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._rest.stop()
        self._serving.stop()

    async def _sweep_events(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_INTERVAL_S, self._event_ttl_s))
            self.registry.expire_events(self._event_ttl_s)


def _log_failure(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a part of the embedded cluster has stopped", exc_info=task.exception())


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise UserError(f"the embedded API server cannot listen on {LOOPBACK}:{port}: {error.strerror}") from error
    listener.listen(128)
    return listener
