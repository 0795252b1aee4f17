"""A server on loopback that lives in an event loop of its own, beside the threads of a test."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Coroutine
from typing import Any

from tests.e2e.certificates import LOOPBACK

LINE_LIMIT = 1 << 20


class LoopbackServer:
    """Listens on `port` from `start` to `stop`; `serve` has one connection. Connections end quietly when they break."""

    def __init__(self, name: str, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self._tls = tls
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"{'https' if self._tls else 'http'}://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        self.run(self._open())

    def stop(self) -> None:
        """Close all connections."""
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of `work` once the loop has done it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have the loop do `work` beside everything else, until `stop`."""
        self._keep(self._loop.create_task(work))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Have one connection until it ends."""
        raise NotImplementedError

    async def _open(self) -> None:
        self._server = await asyncio.start_server(
            self._accept, LOOPBACK, 0, ssl=self._tls, limit=LINE_LIMIT, backlog=256
        )
        self.port = self._server.sockets[0].getsockname()[1]

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
        self._keep(task)
        try:
            # Streams log what a task of theirs raises, also when `stop` cuts it.
            with contextlib.suppress(OSError, EOFError, ValueError, asyncio.CancelledError):
                await self.serve(reader, writer)
        finally:
            writer.transport.abort()

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
