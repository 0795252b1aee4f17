"""The Service of the extender: what kube-proxy and readiness probes do for its replicas, in one small TCP forwarder.

Every replica is asked for `/readyz` five times a second; a new connection goes to a replica that said yes last time,
and is refused if none did. Connections that stand stay with their replica, as they do behind a real Service. Bytes are
passed on as they are, so TLS is between the client and the replica; probes do not check certificates, as kubelets'.
"""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e.certificates import LOOPBACK

PROBE_INTERVAL_S = 0.2
PROBE_TIMEOUT_S = 1.0
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Replica:
    """Where one replica listens on loopback, and whether it speaks TLS."""

    port: int
    is_tls: bool = False


class ServiceProxy:
    """Forwards `port` to the ready ones of its replicas, from `start` to `stop`.

    `replicas` may be changed at any time. `ready` is the replicas that answered the last probe with 200.
    """

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas = list(replicas)
        self.ready: list[Replica] = []
        self.port = 0
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="service-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unchecked = ssl.create_default_context()
        self._unchecked.check_hostname = False
        self._unchecked.verify_mode = ssl.CERT_NONE

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

    def url(self, *, is_tls: bool = False) -> str:
        """Its address for clients."""
        return f"{'https' if is_tls else 'http'}://{LOOPBACK}:{self.port}"

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until a replica is ready. Raises TimeoutError."""
        until = time.monotonic() + timeout_s
        while not self.ready:
            if time.monotonic() > until:
                raise TimeoutError(f"none of {len(self.replicas)} replicas was ready after {timeout_s:.0f} s")
            time.sleep(PROBE_INTERVAL_S / 4)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]
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
            replicas = list(self.replicas)
            answers = await asyncio.gather(*map(self._probe, replicas))
            self.ready = [replica for replica, is_ready in zip(replicas, answers, strict=True) if is_ready]
            await asyncio.sleep(PROBE_INTERVAL_S)

    async def _probe(self, replica: Replica) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                tls = self._unchecked if replica.is_tls else None
                reader, writer = await asyncio.open_connection(LOOPBACK, replica.port, ssl=tls)
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

    def _next(self) -> Replica | None:
        ready = self.ready
        self._turn += 1
        return ready[self._turn % len(ready)] if ready else None


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, replica: Replica) -> None:
    """Pass bytes both ways until both sides have nothing more to say, or one breaks."""
    far_reader, far_writer = await asyncio.open_connection(LOOPBACK, replica.port)
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
