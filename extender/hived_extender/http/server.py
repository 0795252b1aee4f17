"""The life of the server: uvicorn on a thread of its own, with TLS or without."""

import asyncio
import ctypes
import gc
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import uvicorn
from prometheus_client import Counter
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hived.errors import UserError
from hived_extender.http.bodies import Receive, Scope, Send
from hived_extender.http.callers import CALLER
from hived_extender.http.identities import identity_of
from hived_extender.http.listening import HEADS, Connection, Limits, Port, limits_of_process, raise_file_limit
from hived_extender.http.tls import ServerTls

KEEP_ALIVE_S = 120
"""Longer than the 90 s after which Go's client drops an idle connection: we must never close one it is about to use."""

DRAIN_TIMEOUT_S = 20
GOODBYE_TIMEOUT_S = 0.5

HEAD_LIMIT = 1024 * 1024
"""Bytes of a request's line and headers, as in Go's servers. The parser itself would take any number."""

HEADS_LIMIT = 32 * 1024 * 1024
"""Bytes of headers that arrive in pieces, over all connections of a port."""

PIPELINE_LIMIT = 16
"""Requests that one connection may send ahead of their answers. A piece of its bytes could hold thousands."""


class Application(Protocol):
    """An ASGI application, closed when the last request has been answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

    def close(self) -> None:
        """Wait for calls that are still being answered."""


class HttpServer:
    """uvicorn on a thread of its own, with a socket that listens already. `url` is where a client on this machine
    reaches the server.
    """

    def __init__(
        self,
        application: Application,
        listener: socket.socket,
        tls: ServerTls | None = None,
        name: str = "http",
        *,
        limits: Limits | None = None,
    ) -> None:
        """`name` is the thread's; without `limits` two ports share the files that the process may open."""
        self._name = name
        self._drops: Counter | None = None
        self._application = application
        self._socket = listener
        self.url = _url(self._socket, "https" if tls else "http")
        config = uvicorn.Config(
            application,
            lifespan="off",
            http=HttpToolsProtocol,
            ws="none",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
            server_header=False,
            date_header=False,
        )
        config.load()
        config.ssl = tls.context if tls else None
        self._server = _Server(config, limits or limits_of_process(), self._count_drop)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name=name)

    @property
    def is_alive(self) -> bool:
        """False once the server has ended."""
        return self._thread.is_alive()

    def count_drops(self, drops: Counter) -> None:
        """From now on, count dropped connections here, by the name of the server and the reason."""
        self._drops = drops

    def _count_drop(self, reason: str) -> None:
        if self._drops is not None:
            self._drops.labels(self._name, reason).inc()

    def start(self) -> None:
        """Begin to answer; requests since construction have been kept waiting."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, finish the requests under way, end. May be called twice."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        self._application.close()


class _Heads:
    """How many bytes of headers that are not complete the connections of a port have sent."""

    def __init__(self) -> None:
        self.size = 0


class _TooManyRequests(Exception):
    """More are pipelined than anybody needs; the parser's caller answers 400."""


class _Protocol(HttpToolsProtocol):
    """uvicorn leaves the client's certificate out of the scope: here `state` has the identity, found out once per
    connection. Nor does it limit the size and time of a request's headers, which come before any identity is known.
    `_connection` is told how far the requests are, for its limits.
    """

    def __init__(self, connection: Connection, heads: _Heads, **options: Any) -> None:
        super().__init__(**options)
        self._connection = connection
        self._heads = heads
        self._head_size: int | None = None
        """Bytes since a request began or had the last piece of its body; None between two."""
        self._charged = 0  # of `_heads`
        self._begun_count = self._headed_count = self._received_count = self._answered_count = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own narrows it so
        super().connection_made(transport)
        # Despite its settings uvicorn logs every URL once its logger has a handler, and a query may hold a token.
        self.access_log = False
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert() if connection is not None else None
        self.app_state = {**self.app_state, CALLER: identity_of(certificate) if certificate else None}
        self._connection.opened(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._charge(0)
        self._connection.closed()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun_count += 1
        self._head_size = 0

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._headed_count += 1
        self._charge(0)
        self._connection.has_head()
        if len(self.pipeline) > PIPELINE_LIMIT:
            raise _TooManyRequests

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._head_size = 0  # headers may come after a body too

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_size = None
        self._received_count += 1
        if self._received_count > self._answered_count:
            self._connection.is_received()
        else:
            self._connection.is_answered()  # this was the rest of a request that was answered before it had arrived

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answered_count += 1
        if self._answered_count >= self._received_count:
            self._connection.is_answered()
            has_rest = self._begun_count == self._answered_count > self._received_count
            if has_rest or self._begun_count > self._headed_count:
                self._connection.awaits_head()

    def data_received(self, data: bytes) -> None:
        if self._begun_count == self._answered_count:
            self._connection.awaits_head()
        headed_count = self._headed_count
        super().data_received(data)
        if self._headed_count > headed_count and self._headed_count > self._received_count:
            self.flow.pause_reading()  # until the body is asked for: it may have to wait
        if self._head_size is not None and not self.transport.is_closing():
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                self.send_400_response(f"the headers have more than {HEAD_LIMIT} bytes")
            elif self._connection.is_awaiting_head:
                self._charge(self._head_size)
                if self._heads.size > HEADS_LIMIT:
                    self._connection.drop(HEADS)

    def _charge(self, size: int) -> None:
        self._heads.size += size - self._charged
        self._charged = size

    def shutdown(self) -> None:
        """Over TLS a close waits for the client's goodbye: one that is asleep must not hold up the end."""
        super().shutdown()
        if self.transport.is_closing():
            self.loop.call_later(GOODBYE_TIMEOUT_S, self.transport.abort)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, limits: Limits, on_drop: Callable[[str], None]) -> None:
        super().__init__(config)
        self._limits = limits
        self._on_drop = on_drop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections ourselves: uvicorn's own server counts none of them."""
        heads = _Heads()

        def protocol(connection: Connection) -> _Protocol:
            return _Protocol(
                connection,
                heads,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                _loop=asyncio.get_running_loop(),
            )

        ports = [Port(each, protocol, self.config.ssl, self._limits, self._on_drop) for each in sockets or ()]
        self.servers = ports  # type: ignore[assignment]  # it closes them, and waits until they are closed
        self.started = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command: uvicorn would end the process with the signal's exit code after draining."""
        yield


def tune_process() -> None:
    """Settings of the whole process for short tail latencies beside long status dumps; call before anything is loaded.

    With the usual thresholds a third of a recovery of 31,000 pods is spent on collecting garbage that is none.
    """
    raise_file_limit()
    sys.setswitchinterval(0.0005)
    gc.set_threshold(50_000, 20, 100)


def settle_process() -> None:
    """Free the memory that only the start needed, and have the collector skip the rest; call once after the start."""
    gc.collect()
    gc.freeze()
    with suppress(AttributeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


def listen(address: str) -> socket.socket:
    """A socket that listens at `[host]:port`; port 0 takes any free one. Without a host it listens on every interface,
    by IPv6 and IPv4 where there are both. Raises UserError if that is impossible.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal() or int(port) > 65535:
        raise UserError(f"cannot listen on {address!r}: expected [host]:port")
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", int(port)), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
        family = socket.getaddrinfo(host or "0.0.0.0", int(port), type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, int(port)), family=family, backlog=1024)
    except OSError as error:
        raise UserError(f"cannot listen on {address!r}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise UserError(f"cannot listen on {address!r}: {host!r} is no name of a host") from error


def _url(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    if host == "::" and not listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
        host = "0.0.0.0"
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"
