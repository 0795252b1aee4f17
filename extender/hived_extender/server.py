"""The life of the server: uvicorn on a thread of its own, with TLS or without."""

import asyncio
import ctypes
import gc
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hived.errors import UserError
from hived.jit import forget_sources
from hived_extender.bodies import Receive, Scope, Send
from hived_extender.callers import CALLER
from hived_extender.identities import identity_of
from hived_extender.tls import ServerTls

KEEP_ALIVE_S = 120
"""Longer than the 90 s after which Go's client drops an idle connection: we must never close one it is about to use."""

DRAIN_TIMEOUT_S = 20
GOODBYE_TIMEOUT_S = 0.5

HEAD_LIMIT = 1024 * 1024
"""Bytes of a request's line and headers, as in Go's servers. The parser itself would take any number."""


class Application(Protocol):
    """What can be served: an ASGI application, closed when the last request has been answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

    def close(self) -> None:
        """Wait for what is still being done."""


class HttpServer:
    """uvicorn on a thread of its own, with a socket that listens already. `url` is where a client on this machine
    reaches the server.
    """

    def __init__(
        self, application: Application, listener: socket.socket, tls: ServerTls | None = None, name: str = "http"
    ) -> None:
        """`name` is the thread's."""
        self._application = application
        self._socket = listener
        self.url = _url(self._socket, "https" if tls else "http")
        config = uvicorn.Config(
            application,
            lifespan="off",
            http=_Protocol,
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
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name=name)

    @property
    def is_alive(self) -> bool:
        """False once the server has ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to answer; what was sent since construction has been kept waiting."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, finish the requests under way, end. May be called twice."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        self._application.close()


class _Protocol(HttpToolsProtocol):
    """uvicorn leaves the client's certificate out of the scope: here `state` says who is there, found out once per
    connection. Nor does it limit the headers of a request, which come before anybody has to say who they are.
    """

    _head_size: int | None = None  # bytes since a request began or had the last piece of its body; None between two

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own narrows it so
        super().connection_made(transport)
        # Whatever it is told, uvicorn logs every URL once its logger has a handler, and a query may hold a token.
        self.access_log = False
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert() if connection is not None else None
        self.app_state = {**self.app_state, CALLER: identity_of(certificate) if certificate else None}

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = 0

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._head_size = 0  # headers may come after a body too

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_size = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_size is not None and not self.transport.is_closing():
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                self.send_400_response(f"the headers have more than {HEAD_LIMIT} bytes")

    def shutdown(self) -> None:
        """Over TLS a close waits for the client's goodbye: one that is asleep must not hold up the end."""
        super().shutdown()
        if self.transport.is_closing():
            self.loop.call_later(GOODBYE_TIMEOUT_S, self.transport.abort)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command: uvicorn would end the process with the signal's exit code after draining."""
        yield


def tune_process() -> None:
    """Settings of the whole process for short tail latencies beside long status dumps; call before anything is loaded.

    With the usual thresholds a third of a recovery of 31,000 pods is spent on collecting garbage that is none.
    """
    sys.setswitchinterval(0.0005)
    gc.set_threshold(50_000, 20, 100)


def settle_process() -> None:
    """Give back what only the start needed, and have the collector skip what stays; call once after the start."""
    forget_sources()
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
