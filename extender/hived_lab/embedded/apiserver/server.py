"""The API server on a socket: its ASGI application, its thread and its event loop.

It is made for programs on the same machine and has no authentication. So that no web page can use it, it answers only
under a loopback name and refuses what browsers send across origins.
"""

import asyncio
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

from hived.values.errors import UserError
from hived_extender.http.bodies import ClientGoneError, Receive, Scope, Send, TooLargeError, read_body
from hived_extender.http.guard import Limits
from hived_extender.http.server import Serving
from hived_extender.jobs.admission import Admission
from hived_lab.embedded.apiserver import bodies
from hived_lab.embedded.apiserver.bodies import ApiError, encode
from hived_lab.embedded.apiserver.registry import Registry
from hived_lab.embedded.apiserver.rest import JSON, Request, Response, Rest
from hived_lab.embedded.apiserver.store import DEFAULT_HISTORY_LIMIT, Store, Watch

MAX_BODY_BYTES = 3 * 1024 * 1024
_LOOPBACK_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?")

log = logging.getLogger(__name__)


class Application:
    """The ASGI application over `rest`."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            _refuse_web_pages(headers)
            body = await _body(receive)
        except ClientGoneError:  # half a request is not carried out
            return
        except ApiError as refusal:
            await _send_response(send, Response(refusal.code, encode(refusal.status())))
            return
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        answer = self._answer(Request(scope["method"], path.partition("?")[0], query, headers, body))
        if isinstance(answer, Watch):
            await _send_watch(send, receive, answer)
        else:
            await _send_response(send, answer)

    def close(self) -> None:
        """Nothing is left to be done."""

    def _answer(self, request: Request) -> Response | Watch:
        try:
            return self._rest.handle(request)
        except Exception:
            log.exception("the API server failed on %s %s", request.method, request.path)
            failure = ApiError(500, "internal error, see the server's log")
            return Response(500, encode(failure.status()))


def _refuse_web_pages(headers: dict[str, str]) -> None:
    host = headers.get("host", "localhost")
    if not _LOOPBACK_HOST.fullmatch(host) or "origin" in headers:
        raise bodies.forbidden("host", host, "the embedded cluster serves local programs only")


async def _body(receive: Receive) -> bytes:
    try:
        return await read_body(receive, MAX_BODY_BYTES)
    except TooLargeError:
        raise ApiError(413, f"limit is {MAX_BODY_BYTES} bytes") from None


async def _send_response(send: Send, response: Response) -> None:
    headers = [
        (b"content-type", response.content_type.encode()),
        (b"content-length", b"%d" % len(response.content)),
        *((b"warning", _warning(text)) for text in response.warnings),
    ]
    await send({"type": "http.response.start", "status": response.code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})


def _warning(text: str) -> bytes:
    quoted = text.encode("ascii", "backslashreplace").decode().replace("\\", "\\\\").replace('"', '\\"')
    printable = "".join(letter if letter.isprintable() else " " for letter in quoted)
    return f'299 - "{printable}"'.encode()


async def _send_watch(send: Send, receive: Receive, watch: Watch) -> None:
    """Send lines until the watch ends or the client goes away."""
    headers = [(b"content-type", JSON.encode()), (b"cache-control", b"no-cache, private")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    telling = asyncio.ensure_future(_send_chunks(send, watch))
    leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((telling, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (telling, leaving):
            task.cancel()
        await asyncio.gather(telling, leaving, return_exceptions=True)
    await send({"type": "http.response.body", "body": b""})


async def _send_chunks(send: Send, watch: Watch) -> None:
    async for chunk in watch.chunks():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


LOOPBACK = "127.0.0.1"
DEFAULT_EVENT_TTL_S = 3600.0
DEFAULT_BOOKMARK_INTERVAL_S = 30.0
_SHUTDOWN_S = 2
_SWEEP_INTERVAL_S = 60.0

Result = TypeVar("Result")


class ApiServer:
    """An API server on a loopback port, served from a thread of its own.

    Parameters
    ----------
    port : 0 chooses a free one
    history_limit : changes remembered per resource; a watch from before them is answered with 410
    event_ttl_s : seconds after which an unchanged event is removed
    admission : changes pods and jobs that are created, and judges quota trees; by default none
    hived_token : who bears it may write what only hived writes onto pods; by default every user may
    """

    def __init__(
        self,
        port: int = 0,
        history_limit: int = DEFAULT_HISTORY_LIMIT,
        bookmark_interval_s: float = DEFAULT_BOOKMARK_INTERVAL_S,
        event_ttl_s: float = DEFAULT_EVENT_TTL_S,
        admission: Admission | None = None,
        hived_token: str = "",
    ) -> None:
        self._socket = _listen(port)
        # Versions from the clock are above those of an earlier run on this port, so its clients list again.
        self.registry = Registry(Store(time.time_ns() // 1000, history_limit))
        self._rest = Rest(self.registry, bookmark_interval_s, admission, hived_token)
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
