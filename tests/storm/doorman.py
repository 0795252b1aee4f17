"""Stands between a client and the API server, and does something about one request: lets it through, or not, and tells.

Whoever waits for an answer behind a doorman gets what the API server says, byte for byte, watches included.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 16
HEAD_LIMIT = 1 << 20


class Moment(Enum):
    """Of a request: nothing of it has reached the API server, or all has, and its answer is there."""

    BEFORE = "before"
    AFTER = "after"


class Fate(Enum):
    """What becomes of the request then."""

    PASS = "passes"
    DROP = "is dropped with its connection"
    HOLD = "is held until it is released"


@dataclass(frozen=True)
class Order:
    """What to do at a moment of the next request with this method to a path that begins and ends so."""

    method: str
    path: str
    moment: Moment
    act: Callable[[], None] = lambda: None
    fate: Fate = Fate.PASS

    def meets(self, method: str, path: str) -> bool:
        """Is it for this request?"""
        return method == self.method and path.partition("?")[0].endswith(self.path)


class Doorman:
    """Forwards a port of its own to that of the API server, from `start` to `stop`."""

    def __init__(self, port: int) -> None:
        self.far_port = port
        self._is_shut = False
        self._port = 0
        self._order: Order | None = None
        self._met = threading.Event()
        self._released = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="doorman", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"http://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        self._run(self._open())

    def stop(self) -> None:
        """Close everything."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def expect(self, order: Order) -> None:
        """Obey this once, in place of any other order."""
        self._met.clear()
        self._run(self._renew())
        self._order = order

    def shut(self) -> None:
        """Let nobody in: new connections end at once, those that stand with their next request."""
        self._is_shut = True

    def open(self) -> None:
        """Let everybody in again."""
        self._is_shut = False

    def forget(self) -> None:
        """Let everything pass from now on, also what is held."""
        self._order = None
        self._loop.call_soon_threadsafe(self._released.set)

    def wait_met(self, timeout_s: float) -> bool:
        """Wait until the request has come."""
        return self._met.wait(timeout_s)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _renew(self) -> None:
        self._released.clear()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0, limit=HEAD_LIMIT)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self.far_port)
                try:
                    await _Connection(self, reader, writer, far_reader, far_writer).serve()
                finally:
                    far_writer.transport.abort()
        finally:
            writer.transport.abort()

    def take(self, method: str, path: str) -> Order | None:
        """The order, if this is the request that it is for; it is obeyed once."""
        if self._is_shut:
            return Order(method, path, Moment.BEFORE, fate=Fate.DROP)
        order = self._order
        if order is None or not order.meets(method, path):
            return None
        self._order = None
        return order

    async def obey(self, order: Order) -> bool:
        """Act; returns whether the request goes on. What kills the client goes on without its connection."""

        def act() -> None:
            order.act()
            self._met.set()

        await asyncio.to_thread(act)
        if order.fate is Fate.HOLD:
            await self._released.wait()
        return order.fate is not Fate.DROP


class _Connection:
    """One connection of a client, which sends a request when it has the answer to the one before."""

    def __init__(
        self,
        doorman: Doorman,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        self._doorman = doorman
        self._reader, self._writer = reader, writer
        self._far_reader, self._far_writer = far_reader, far_writer
        self._after: Order | None = None  # to be obeyed when the answer comes

    async def serve(self) -> None:
        """Until either side ends it, or an order does."""
        sides = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._answers())]
        try:
            await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)

    async def _requests(self) -> None:
        while True:
            head = await self._reader.readuntil(b"\r\n\r\n")
            method, path = head.split(b" ", 2)[:2]
            body = await self._reader.readexactly(_content_length(head))
            order = self._doorman.take(method.decode(), path.decode())
            if order is not None and order.moment is Moment.BEFORE and not await self._doorman.obey(order):
                return
            self._after = order if order is not None and order.moment is Moment.AFTER else None
            self._far_writer.write(head + body)
            await self._far_writer.drain()

    async def _answers(self) -> None:
        while chunk := await self._far_reader.read(CHUNK):
            order, self._after = self._after, None
            if order is not None and not await self._doorman.obey(order):
                return
            self._writer.write(chunk)
            await self._writer.drain()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0
