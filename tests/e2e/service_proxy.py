"""The Service of the extender: what kube-proxy and readiness probes do for its replicas, in one small TCP forwarder.

Every replica is asked for `/readyz` five times a second; a new connection goes to a replica that said yes last time,
and is refused if none did. Connections that stand stay with their replica, as they do behind a real Service.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from tests.e2e.certificates import LOOPBACK

PROBE_INTERVAL_S = 0.2
PROBE_TIMEOUT_S = 1.0
CHUNK = 1 << 16


class ServiceProxy:
    """Forwards a port of its own to those of `replicas` that are ready, all on loopback, from `start` to `stop`."""

    def __init__(self, replicas: Sequence[int]) -> None:
        self._replicas = tuple(replicas)
        self._ready: list[int] = []
        self._port = 0
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="service-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen on a free port, and begin to probe."""
        self._thread.start()
        self._run(self._open())

    def stop(self) -> None:
        """Close everything."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"http://{LOOPBACK}:{self._port}"

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until a replica is ready. Raises TimeoutError."""
        until = time.monotonic() + timeout_s
        while not self._ready:
            if time.monotonic() > until:
                raise TimeoutError(f"none of {len(self._replicas)} replicas was ready after {timeout_s:.0f} s")
            time.sleep(PROBE_INTERVAL_S / 4)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self._port = self._server.sockets[0].getsockname()[1]
        self._spawn(self._probe_all())

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _probe_all(self) -> None:
        while True:
            answers = await asyncio.gather(*map(self._probe, self._replicas))
            self._ready = [replica for replica, is_ready in zip(self._replicas, answers, strict=True) if is_ready]
            await asyncio.sleep(PROBE_INTERVAL_S)

    async def _probe(self, replica: int) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(LOOPBACK, replica)
                try:
                    writer.write(b"GET /readyz HTTP/1.1\r\nHost: replica\r\nConnection: close\r\n\r\n")
                    status = (await reader.readline()).split(b" ")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False
        return status[1:2] == [b"200"]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        replica = self._next()
        try:
            if replica is not None:
                # A connection's task ends quietly, also when `stop` cuts it: streams log what a task of theirs raises.
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await _join(reader, writer, replica)
        finally:
            writer.transport.abort()

    def _next(self) -> int | None:
        ready = self._ready
        self._turn += 1
        return ready[self._turn % len(ready)] if ready else None


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, replica: int) -> None:
    """Pass bytes both ways until both sides have nothing more to say, or one breaks."""
    far_reader, far_writer = await asyncio.open_connection(LOOPBACK, replica)
    try:
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
    finally:
        far_writer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK):
        sink.write(chunk)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
