"""The ASGI application in front of Flask.

The shim reads every body itself (`bodies.py`), so that a half-sent request holds nothing but its own connection. It
asks the gate first: a caller without access cannot even send a body. Filter, preempt and the health checks are answered
inline, in microseconds, from bytes by the functions that the Flask routes call too; so is bind, which waits for the API
server, on threads of its own. Everything else goes to Flask on a thread, so that slow readers of long status dumps hold
up nobody but each other. Plans and pushes have one thread among them, and the gate's questions to the API server have
threads of their own too. Bodies, and calls that wait for a thread, are bounded kind by kind.
"""

import asyncio
import io
import logging
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from hived.errors import UserError
from hived_extender.api import paths
from hived_extender.http.answers import Answer, Question
from hived_extender.http.bodies import (
    BODY_TIMEOUT_S,
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
from hived_extender.http.callers import CALLER, Call, Verdict, refused
from hived_extender.http.config_routes import CONFIG_BODY_LIMIT
from hived_extender.http.identities import Identity
from hived_extender.http.late_app import BODY_LIMIT, CLOSE, GatedApp, gate_of
from hived_extender.http.routes import answer, bind_call, filter_call, health, preempt_call, readiness
from hived_extender.http.routing import Backend, Handler
from hived_extender.pods.wire import BindArgs, decode_args, encode
from hived_extender.service.acceptance import HELD_S
from hived_extender.service.service import Service

log = logging.getLogger(__name__)

T = TypeVar("T")

CROWDED = "too many calls of this kind are waiting: try again"

SEND_TIMEOUT_S = 10.0
"""For a piece of an answer: readers who fell asleep must not keep the threads that make the answers."""

PREMATURE_WAIT_S = 0.01
PREMATURE_TRIES = 10
"""A pod we do not know is waited for: an error would cost it a back-off of a second or more in kube-scheduler."""

MANY_BINDINGS = 128
BACKLOG_WAIT_S = 1.0
"""kube-scheduler decides faster than a busy API server writes bindings, and its bind calls time out. It asks about one
pod after the other, so a filter call that waits while there are many bindings slows it down as much as is needed. None
waits while a gang starts: bindings that are held back wait for these calls.
"""

ACCESS_THREADS = 4
VERB_THREADS = 4
"""For filter and preempt calls that would have to wait for the lock: it serves one at a time anyway."""

BIND_THREADS = 16
OTHER_THREADS = 8
CONFIG_THREADS = 1

MOST_REVIEWS = 256
MOST_OTHERS = 128
MOST_CONFIGS = 8
"""Calls that wait for such threads or have one. They hold their connections, which must not be all there are."""

KIB = 1024
MIB = 1024 * KIB

VERBS = frozenset((paths.FILTER_PATH, paths.PREEMPT_PATH, paths.BIND_PATH))
VERBS_BUDGET = 32 * MIB
SMALL_VERB = 4 * KIB
SMALL_VERBS_BUDGET = 16 * MIB
"""Bindings that are held back keep their bodies, of less than 1 KiB: there can be 16,384 of them."""

WHAT_IF_LIMIT = 3 * MIB
SMALL_LIMIT = 64 * KIB
"""For paths that need no body."""

OTHERS_BUDGET = 6 * MIB
SMALL_OTHERS_BUDGET = 2 * MIB

INLINE: dict[tuple[str, str], Handler] = {
    ("POST", paths.FILTER_PATH): filter_call,
    ("POST", paths.PREEMPT_PATH): preempt_call,
    ("GET", paths.HEALTH_PATH): health,
    ("GET", paths.READINESS_PATH): readiness,
}


class _Crowded(Exception):
    """Too many wait already."""


class _Lane:
    """Threads for calls of a kind, of which there may be `most` at once; for one event loop."""

    def __init__(self, name: str, thread_count: int, most: int) -> None:
        self.threads = ThreadPoolExecutor(thread_count, name)
        self._most = most
        self._count = 0

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call it on a thread. Raises _Crowded."""
        if self._count >= self._most:
            raise _Crowded
        self._count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, function, *arguments)
        finally:
            self._count -= 1


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
        limit, share = self._own(path.rstrip("/"))
        return self._limit or limit, share

    def _own(self, path: str) -> tuple[int, Share]:
        if path in VERBS:
            return BODY_LIMIT, self._verbs
        if path in {paths.HEALTH_PATH, paths.READINESS_PATH}:
            return SMALL_VERB, self._verbs
        if path in {paths.CONFIG_PATH, paths.CONFIG_PLAN_PATH}:
            return CONFIG_BODY_LIMIT, self._configs
        return WHAT_IF_LIMIT if path == paths.WHAT_IF_PATH else SMALL_LIMIT, self._others


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
        self._verb_threads = ThreadPoolExecutor(VERB_THREADS, "verb")
        self._reviews = _Lane("access", ACCESS_THREADS, MOST_REVIEWS)
        self._bind_threads = ThreadPoolExecutor(BIND_THREADS, "bind")
        self._others = _Lane("http", OTHER_THREADS, MOST_OTHERS)
        self._configs = _Lane("configuration", CONFIG_THREADS, MOST_CONFIGS)
        self._binding_count = 0
        self._held_count = 0
        self._may_filter = asyncio.Event()
        self._may_filter.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        verdict = await self._verdict(scope)
        if verdict.refusal is not None:
            await send_answer(send, verdict.refusal)
            return
        limit, share = self._shares.of(_place(scope))
        async with Body(scope, receive, send, limit, share, self._body_timeout_s) as body:
            if body is not None:
                await self._answer(scope, body, receive, send)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        handler = INLINE.get((scope["method"], scope["path"]))
        if handler is not None:
            if handler is filter_call and not self._may_filter.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._may_filter.wait(), BACKLOG_WAIT_S)
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
        """Hold a binding back until kube-scheduler has accepted all pods that start together; no thread waits."""
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
        call = Call(scope["method"], scope["path"], _caller(scope), _authorization(scope))
        verdict = self._gate.quick(call)
        if verdict is None:
            try:
                verdict = await self._reviews.run(self._gate.decide, call)
            except _Crowded:
                return refused(503, CROWDED, RETRY_AFTER)
        return verdict

    async def _answer_inline(self, handler: Handler, body: bytes) -> Answer:
        reply = await self._answer_at_once(handler, body)
        tries = 0
        while reply.is_premature and (tries < PREMATURE_TRIES or reply.is_growing):
            tries += 0 if reply.is_growing else 1
            await asyncio.sleep(PREMATURE_WAIT_S)
            reply = await self._answer_at_once(handler, body)
        if reply.is_premature and isinstance(reply.body, bytes):
            log.warning("unknown pod", extra={"fields": {"answer": reply.body.decode()}})
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        return reply

    async def _answer_at_once(self, handler: Handler, body: bytes) -> Answer:
        """Here, or on a thread if others are served just now: health checks must not wait for them too."""
        reply = answer(handler, self._backend, Question(body, may_wait=False))
        if reply.is_busy:
            loop = asyncio.get_running_loop()
            reply = await loop.run_in_executor(self._verb_threads, answer, handler, self._backend, Question(body))
        return reply

    def close(self) -> None:
        """Wait for calls that are still on threads."""
        self._verb_threads.shutdown(wait=True)
        self._reviews.threads.shutdown(wait=True, cancel_futures=True)
        self._bind_threads.shutdown(wait=True)
        self._others.threads.shutdown(wait=True)
        self._configs.threads.shutdown(wait=True)

    async def _call_flask(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        call = _FlaskCall(self._app, _environ(scope, body), loop, send)
        watcher = loop.create_task(call.watch_client(receive))
        try:
            is_change = scope["method"] == "POST" and _place(scope).rstrip("/") in {
                paths.CONFIG_PATH,
                paths.CONFIG_PLAN_PATH,
            }
            await (self._configs if is_change else self._others).run(call.run)
        finally:
            watcher.cancel()


class _FlaskCall:
    """One request in Flask, on a thread; each piece of the body is sent from the event loop before the next is made."""

    def __init__(self, app: GatedApp, environ: dict[str, Any], loop: asyncio.AbstractEventLoop, send: Send) -> None:
        self._app = app
        self._environ = environ
        self._loop = loop
        self._send = send
        self._is_client_gone = False
        self._start: Message = {}

    async def watch_client(self, receive: Receive) -> None:
        """Note when the client goes away: nobody needs the rest of the answer."""
        await receive()
        self._is_client_gone = True

    def run(self) -> None:
        """On the thread."""
        pieces = self._app(self._environ, self._start_response)
        try:
            for piece in pieces:
                if self._is_client_gone:
                    return
                self._deliver(piece, is_last=False)
            self._deliver(b"", is_last=True)
        except TimeoutError:
            log.warning("a client does not read its answer", extra={"fields": {"path": self._environ["PATH_INFO"]}})
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
        return lambda piece: self._deliver(piece, is_last=False)

    def _deliver(self, piece: bytes, is_last: bool) -> None:
        future = asyncio.run_coroutine_threadsafe(self._send_piece(piece, is_last), self._loop)
        try:
            future.result(SEND_TIMEOUT_S)
        except TimeoutError:
            future.cancel()
            raise

    async def _send_piece(self, piece: bytes, is_last: bool) -> None:
        if self._start:
            start, self._start = self._start, {}
            await self._send(start)
        await self._send({"type": "http.response.body", "body": piece, "more_body": not is_last})


def _place(scope: Scope) -> str:
    """The path as Flask reads it: see `Call.place`."""
    return "/" + str(scope["path"]).lstrip("/")


def _caller(scope: Scope) -> Identity | None:
    caller: Identity | None = scope.get("state", {}).get(CALLER)
    return caller


def _authorization(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"), None)


def _environ(scope: Scope, body: bytes) -> dict[str, Any]:
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
        CALLER: _caller(scope),
    }
    for name, value in scope["headers"]:
        key = name.decode("latin-1").upper().replace("-", "_")
        if key in {"CONTENT_LENGTH", "TRANSFER_ENCODING"}:
            continue
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value.decode("latin-1")
    return environ
