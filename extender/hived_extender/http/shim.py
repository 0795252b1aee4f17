"""The ASGI application in front of Flask.

The shim reads every body itself (`bodies.py`), so that a half-sent request holds nothing but its own connection. It
asks the gate first: a caller without access cannot even send a body. Filter, preempt and the health checks are answered
on the event loop, in microseconds, by the functions that the Flask routes call too. Bind waits for the API server, on
threads of its own. Everything else goes to Flask on a thread, but the event loop makes the pieces of its answers: slow
readers of long status dumps hold up only each other. Plans and pushes have one thread, and the gate's questions
to the API server have threads of their own. Bodies, and calls that wait for a thread, are bounded kind by kind.

Verbs are decided on the event loop and nowhere else: it waits for the lock, but not long (`WAIT_S`). A thread that
decided would compete with the loop for the interpreter and for the lock. Each call behind it would need a thread too.
One thread only waits until the lock is free, and the loop goes on with the calls that wait, in order (`Turns`).
"""

import asyncio
import io
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from hived.values.errors import UserError
from hived_extender.api import paths
from hived_extender.http.access import CALLER, GATE, Call, Gate, GatedApp, Verdict, browser_refusal, gate_of, refused
from hived_extender.http.answers import JSON, PREMATURE_WAIT_S, Answer, Identity, Question
from hived_extender.http.bodies import (
    BODY_LIMIT,
    BODY_TIMEOUT_S,
    CLOSE,
    CLOSE_HEADER,
    RETRY_AFTER,
    Body,
    Budget,
    Message,
    Receive,
    Scope,
    Send,
    Share,
    send_answer,
)
from hived_extender.http.browsers import shown
from hived_extender.http.change_routes import CONFIG_BODY_LIMIT
from hived_extender.http.routes import (
    CONFIG_PATHS,
    HEALTH_PATHS,
    MIB,
    SMALL_LIMIT,
    SMALL_VERB,
    VERBS,
    answer,
    bind_call,
    filter_call,
    health,
    limit_of,
    preempt_call,
    readiness,
)
from hived_extender.http.routing import Backend, Handler
from hived_extender.jobs.wire import BindArgs, decode_args, encode
from hived_extender.machine.acceptance import HELD_S
from hived_extender.machine.service import Service

if TYPE_CHECKING:
    from flask import Flask


class LateApp:
    """The Flask application, as `create_app` makes it of the same parts, but only for the first request. Thread-safe.

    Importing Flask takes a tenth of the CPU of a start, and 5 MB. A replica saves both until its metrics
    or its status are read.
    """

    def __init__(self, service: Service, gate: Gate | None = None, *parts: Any, **named: Any) -> None:
        self.extensions: dict[str, Any] = {GATE: gate or Gate()}
        self._parts = (service, gate_of(self), *parts), named
        self._lock = threading.Lock()
        self._app: Flask | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        return self.flask()(environ, start_response)

    def flask(self) -> "Flask":
        """The application itself, for a WSGI server that has no shim before it."""
        with self._lock:
            if self._app is None:
                from hived_extender.http.app import create_app  # noqa: PLC0415  # imports Flask, see above

                parts, named = self._parts
                self._app = create_app(*parts, **named)
            return self._app


class FlaskCall:
    """One request in Flask. It is begun on a thread, but the pieces of its answer are made on the event loop.

    A thread that made them would compete with the loop for the interpreter's lock, for which each filter call would
    wait several times.
    """

    def __init__(self, app: GatedApp, environ: dict[str, Any], send: Send) -> None:
        self._app = app
        self._environ = environ
        self._send = send
        self._is_client_gone = False
        self._start: Message = {}

    async def watch_client(self, receive: Receive) -> None:
        """Note when the client goes away: the rest of the answer is not needed then."""
        await receive()
        self._is_client_gone = True

    def begin(self) -> Iterable[bytes]:
        """The pieces of the answer, to be made by `answer`. For a thread."""
        return self._app(self._environ, self._start_response)

    async def answer(self, pieces: Iterable[bytes], turn: asyncio.Lock) -> None:
        """Make and send each piece, none before the client has read enough of the last, until it goes away.

        The connection of a client that does not read is ended (`guard.py`), so this ends in bounded time.
        Calls of one `turn` make one piece among them before others are served; an empty piece is not sent. A client
        with HTTP/1.0 knows no chunks: it gets all pieces at once, up to `BODY_LIMIT` bytes.
        """
        rest, whole = iter(pieces), b""
        try:
            while (piece := await _next(rest, turn)) is not None and not self._is_client_gone:
                if self._environ.get("SERVER_PROTOCOL") == "HTTP/1.0":
                    whole += piece
                    if len(whole) > BODY_LIMIT:
                        whole = encode("this answer is long and comes in chunks: ask by HTTP/1.1")
                        self._start_response("505", [("Content-Type", JSON)])
                        break
                elif piece:
                    await self._deliver(piece, is_last=False)
            if not self._is_client_gone:
                if whole and not any(name == b"content-length" for name, _ in self._start["headers"]):
                    self._start["headers"].append((b"content-length", b"%d" % len(whole)))
                await self._deliver(whole, is_last=True)
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()

    def _start_response(self, status: str, headers: list[tuple[str, str]], _: object = None) -> Callable[[bytes], None]:
        self._start = {
            "type": "http.response.start",
            "status": int(status[:3]),
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
        if self._environ.get(CLOSE):
            self._start["headers"].append(CLOSE_HEADER)
        return _refuse_write

    async def _deliver(self, piece: bytes, *, is_last: bool) -> None:
        if self._start:
            start, self._start = self._start, {}
            await self._send(start)
        await self._send({"type": "http.response.body", "body": piece, "more_body": not is_last})


async def _next(pieces: Iterator[bytes], turn: asyncio.Lock) -> bytes | None:
    """The next piece; others are served before there can be another. None at the end."""
    async with turn:
        piece = next(pieces, None)
        if piece is not None:
            await asyncio.sleep(0)
        return piece


def _refuse_write(_: bytes) -> None:
    """WSGI's old way to send a piece, which Flask does not use."""
    raise NotImplementedError("an answer is made of pieces that are returned")


def caller_of(scope: Scope) -> Identity | None:
    """The identity in the verified client certificate of the connection."""
    caller: Identity | None = scope.get("state", {}).get(CALLER)
    return caller


def environ_of(scope: Scope, body: bytes) -> dict[str, Any]:
    """The WSGI environment of a request whose body has been read."""
    host, port = scope.get("server") or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode("utf-8", "surrogatepass").decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "REMOTE_ADDR": (scope.get("client") or ("",))[0],
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        CALLER: caller_of(scope),
    }
    for name, value in scope["headers"]:
        key = name.decode("latin-1").upper().replace("-", "_")
        if key in {"CONTENT_LENGTH", "TRANSFER_ENCODING"}:
            continue
        key, text = key if key == "CONTENT_TYPE" else f"HTTP_{key}", value.decode("latin-1")
        environ[key] = f"{environ[key]}, {text}" if key in environ else text
    return environ


log = logging.getLogger(__name__)

T = TypeVar("T")

CROWDED = "too many calls of this kind are waiting: try again"

MANY_BINDINGS = 128
BACKLOG_WAIT_S = 1.0
"""kube-scheduler decides faster than a busy API server writes bindings, and its bind calls time out. It asks about one
pod after the other, so a filter call that waits while there are many bindings slows it down as much as is needed. None
waits while a gang starts: bindings that are held back wait for these calls.
"""

ACCESS_THREADS = 4
BIND_THREADS = 16
OTHER_THREADS = 8
CONFIG_THREADS = 1

MOST_REVIEWS = 256
MOST_OTHERS = 128
MOST_CONFIGS = 8
"""Calls that wait for such threads or have one. They hold their connections, which must not be all there are."""

VERBS_BUDGET = 32 * MIB
SMALL_VERBS_BUDGET = 16 * MIB
"""Bindings that are held back keep their bodies, of less than 1 KiB: there can be 16,384 of them."""

OTHERS_BUDGET = 6 * MIB
SMALL_OTHERS_BUDGET = 2 * MIB

WAIT_S = 0.002
"""For the lock, on the event loop. Most hold it for less; to go to a thread and back takes a while too."""

INLINE: dict[tuple[str, str], Handler] = {
    ("POST", paths.FILTER_PATH): filter_call,
    ("POST", paths.PREEMPT_PATH): preempt_call,
    ("GET", paths.HEALTH_PATH): health,
    ("GET", paths.READINESS_PATH): readiness,
}
TAKE_TURNS = frozenset((filter_call, preempt_call))
"""They need the lock."""


class _Crowded(Exception):
    """Too many wait already."""


class _Lane:
    """Threads for calls of a kind, of which there may be `most` at once; for one event loop.

    A call keeps its thread's place until its answer is sent: answers under way, which can be large, are as few.
    """

    def __init__(self, name: str, thread_count: int, most: int) -> None:
        self.threads = ThreadPoolExecutor(thread_count, name)
        self._places = Budget(min(thread_count, most), most - thread_count)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, in order, and have it as long as the context lasts. Raises _Crowded."""
        if not self._places.try_take(1):
            if self._places.has_queue:
                raise _Crowded
            await self._places.take(1)
        try:
            yield
        finally:
            self._places.give_back(1)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call it on a thread. Raises _Crowded."""
        async with self.place():
            return await self.run_in_place(function, *arguments)

    async def run_in_place(self, function: Callable[..., T], *arguments: object) -> T:
        """Call it on the thread of a place that the caller has."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, function, *arguments)


class _Turns:
    """Calls that found the lock taken, one at a time and in order; `count` of them. For one event loop.

    `wait` returns when the lock is free, which may be over again when the loop gets to know.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self.count = 0
        self.threads = ThreadPoolExecutor(1, "verb")
        self._wait = wait
        self._turn = asyncio.Lock()

    async def run(self, ask: Callable[[], Answer]) -> Answer:
        """The answer, once it is not that others are served."""
        self.count += 1
        try:
            async with self._turn:
                while (reply := ask()).is_busy:
                    await asyncio.get_running_loop().run_in_executor(self.threads, self._wait)
                return reply
        finally:
            self.count -= 1


class _Shares:
    """The limits of bodies, each and together, path by path."""

    def __init__(self, limit: int | None) -> None:
        """`limit` replaces the limits of all paths."""
        self._limit = limit
        self._verbs = Share(Budget(VERBS_BUDGET), Budget(SMALL_VERBS_BUDGET, 4 * MOST_OTHERS), SMALL_VERB)
        self._configs = Share(Budget(2 * CONFIG_BODY_LIMIT), Budget(2 * CONFIG_BODY_LIMIT), SMALL_LIMIT)
        self._others = Share(Budget(OTHERS_BUDGET), Budget(SMALL_OTHERS_BUDGET), SMALL_LIMIT)

    def of(self, path: str) -> tuple[int, Share]:
        """The limit of one body, and the budget that it shares with others."""
        path = path.rstrip("/")
        is_verb, is_config = path in VERBS or path in HEALTH_PATHS, path in CONFIG_PATHS or path == paths.DEFRAG_PATH
        share = self._verbs if is_verb else self._configs if is_config else self._others
        return self._limit or limit_of(path), share


class Shim:
    """The ASGI application in front of Flask."""

    def __init__(
        self, app: GatedApp, service: Service, *, body_limit: int | None = None, body_timeout_s: float = BODY_TIMEOUT_S
    ) -> None:
        """`body_limit` stands for the limits that the paths have by themselves."""
        self._app = app
        self._gate = gate_of(app)
        self._backend = Backend(service)
        self._shares = _Shares(body_limit)
        self._body_timeout_s = body_timeout_s
        self._turns = _Turns(service.runner.wait_until_free)
        self._reviews = _Lane("access", ACCESS_THREADS, MOST_REVIEWS)
        self._bind_threads = ThreadPoolExecutor(BIND_THREADS, "bind")
        self._others = _Lane("http", OTHER_THREADS, MOST_OTHERS)
        self._configs = _Lane("configuration", CONFIG_THREADS, MOST_CONFIGS)
        self._pieces_turn = asyncio.Lock()
        self._binding_count = 0
        self._held_count = 0
        self._may_filter = asyncio.Event()
        self._may_filter.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        verdict = await self._verdict(scope)
        if verdict.refusal is not None:
            await send_answer(send, shown(verdict.refusal, _header(scope, b"accept") or ""))
            return
        limit, share = self._shares.of(_place(scope))
        async with Body(scope, receive, send, limit, share, self._body_timeout_s) as body:
            if body is not None:
                await self._answer(scope, body, receive, send)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        handler = INLINE.get((scope["method"], scope["path"]))
        if handler is not None:
            await send_answer(send, await self._answer_inline(handler, body))
        elif (scope["method"], scope["path"]) == ("POST", paths.BIND_PATH):
            await send_answer(send, await self._answer_bind(body))
        else:
            try:
                await self._call_flask(scope, body, receive, send)
            except _Crowded:
                await send_answer(send, Answer(encode(CROWDED), 503, headers=(RETRY_AFTER,)), close=True)

    async def _answer_bind(self, body: bytes) -> Answer:
        await self._wait_for_mates(body)
        loop = asyncio.get_running_loop()
        self._count(bindings=1)
        try:
            return await loop.run_in_executor(self._bind_threads, answer, bind_call, self._backend, Question(body))
        finally:
            self._count(bindings=-1)

    async def _wait_for_mates(self, body: bytes) -> None:
        """Hold a binding back until kube-scheduler has accepted all pods that start together (rule 26.8).

        No thread waits.
        """
        with suppress(UserError):  # the answer says so
            hold = self._backend.service.hold_of(decode_args(body, BindArgs).pod_uid)
            if hold is not None:
                self._count(held=1)
                try:
                    await asyncio.wait([asyncio.wrap_future(hold)], timeout=HELD_S)
                finally:
                    self._count(held=-1)

    def _count(self, *, bindings: int = 0, held: int = 0) -> None:
        self._binding_count += bindings
        self._held_count += held
        if self._held_count or self._binding_count < MANY_BINDINGS:
            self._may_filter.set()
        else:
            self._may_filter.clear()

    async def _verdict(self, scope: Scope) -> Verdict:
        call = Call(scope["method"], scope["path"], caller_of(scope), _header(scope, b"authorization"))
        if self._gate.is_open(call.place) and (why := browser_refusal(call.method, scope["headers"])):
            return refused(403, why)
        verdict = self._gate.quick(call)
        if verdict is None:
            try:
                verdict = await self._reviews.run(self._gate.decide, call)
            except _Crowded:
                return refused(503, CROWDED, RETRY_AFTER)
        return verdict

    async def _answer_inline(self, handler: Handler, body: bytes) -> Answer:
        if handler is filter_call and not self._may_filter.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._may_filter.wait(), BACKLOG_WAIT_S)
        reply = await self._in_turn(handler, body)
        tries = 0
        while reply.may_change(tries):
            tries += 0 if reply.is_growing else 1
            await asyncio.sleep(PREMATURE_WAIT_S)
            reply = await self._in_turn(handler, body)
        if reply.is_premature and isinstance(reply.body, bytes):
            log.warning("unknown pod", extra={"fields": {"answer": reply.body.decode()}})
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        return reply

    async def _in_turn(self, handler: Handler, body: bytes) -> Answer:
        """The answer of a handler, behind the calls that wait for the lock already."""
        if not (handler in TAKE_TURNS and self._turns.count):
            reply = self._ask(handler, body)
            if not reply.is_busy:
                return reply
        return await self._turns.run(lambda: self._ask(handler, body))

    def _ask(self, handler: Handler, body: bytes) -> Answer:
        return answer(handler, self._backend, Question(body, wait_s=WAIT_S))

    def close(self) -> None:
        """Wait for calls that are still on threads."""
        self._turns.threads.shutdown(wait=True)
        self._reviews.threads.shutdown(wait=True, cancel_futures=True)
        self._bind_threads.shutdown(wait=True)
        self._others.threads.shutdown(wait=True)
        self._configs.threads.shutdown(wait=True)

    async def _call_flask(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        call = FlaskCall(self._app, environ_of(scope, body), send)
        watcher = asyncio.get_running_loop().create_task(call.watch_client(receive))
        is_change = scope["method"] == "POST" and _place(scope).rstrip("/") in CONFIG_PATHS
        lane = self._configs if is_change else self._others
        try:
            async with lane.place():
                await call.answer(await lane.run_in_place(call.begin), self._pieces_turn)
        finally:
            watcher.cancel()


def _place(scope: Scope) -> str:
    """The path as Flask reads it: see `Call.place`."""
    return "/" + str(scope["path"]).lstrip("/")


def _header(scope: Scope, wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), None)
