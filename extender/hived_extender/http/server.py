"""The life of a server: uvicorn behind our guard, on an event loop of its own thread, with TLS or without."""

import asyncio
import ctypes
import gc
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import uvicorn
import uvloop
from prometheus_client import Counter

from hived.values.errors import UserError
from hived_extender.http.bodies import Receive, Scope, Send
from hived_extender.http.guard import IDLE_S, Limits, Port, limits_of_process, raise_file_limit
from hived_extender.http.tls import ServerTls

DRAIN_TIMEOUT_S = 20.0
DRAIN_CHECK_S = 0.005


class Application(Protocol):
    """An ASGI application, closed when the last request has been answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

    def close(self) -> None:
        """Wait for calls that are still being answered."""


class Serving:
    """Serves an application on a listening socket, from `run` to `stop`; `run` belongs to an event loop."""

    def __init__(
        self,
        application: Application,
        listener: socket.socket,
        context: ssl.SSLContext | None = None,
        *,
        limits: Limits,
        on_drop: Callable[[str], None] = lambda reason: None,
        drain_timeout_s: float = DRAIN_TIMEOUT_S,
    ) -> None:
        """`on_drop` is called with the reason for each dropped connection; at the end requests have `drain_timeout_s`
        to be answered.
        """
        self._application = application
        self._listener = listener
        self._context = context
        self._limits = limits
        self._on_drop = on_drop
        self._drain_timeout_s = drain_timeout_s
        self._should_stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event
        self.port: Port | None = None
        """None until connections are accepted."""

    async def run(self) -> None:
        """Accept connections and answer requests until `stop`; then finish the requests under way."""
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        port = self.port = Port(self._listener, _config(self._application), self._context, self._limits, self._on_drop)
        if not self._should_stop.is_set():
            await self._woken.wait()
        await self._drain(port)

    def stop(self) -> None:
        """Have `run` end; from any thread, at any time, any number of times."""
        self._should_stop.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._woken.set)

    async def _drain(self, port: Port) -> None:
        port.close()
        connections, tasks = port.state.connections, port.state.tasks
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout_s):
                while connections or tasks:
                    await asyncio.sleep(DRAIN_CHECK_S)
        for task in tuple(tasks):
            task.cancel()
        for connection in tuple(connections):
            connection.transport.abort()
        if tasks:
            await asyncio.wait(tasks)
        await port.wait_closed()


def _config(application: Application) -> uvicorn.Config:
    config = uvicorn.Config(
        application,
        interface="asgi3",
        ws="none",
        http="httptools",
        lifespan="off",
        log_config=None,
        log_level="error",  # it warns of each request that is none
        access_log=False,  # a query may hold a token
        proxy_headers=False,
        timeout_keep_alive=int(2 * IDLE_S),  # the guard ends idle connections
    )
    config.load()
    return config


class HttpServer:
    """A server on a thread of its own, with a socket that listens already. `url` is where a client on this machine
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
        self._serving = Serving(
            application,
            listener,
            tls.context if tls else None,
            limits=limits or limits_of_process(),
            on_drop=self._count_drop,
        )
        self._thread = threading.Thread(target=self._run, name=name)

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
        self._serving.stop()
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        self._application.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serving.run())


def tune_process() -> None:
    """Settings of the whole process for short tail latencies beside long status dumps; call before anything is loaded.

    With the usual thresholds a third of a recovery of 31,000 pods is spent on collecting garbage that is none.
    """
    raise_file_limit()
    sys.setswitchinterval(0.0001)
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
