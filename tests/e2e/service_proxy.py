"""The Service of the extender: what kube-proxy and readiness probes do for its replicas, in one small TCP forwarder.

Every replica is asked for `/readyz` five times a second; a new connection goes to a replica that said yes last time,
and is refused if none did. Connections that stand stay with their replica, as they do behind a real Service.
"""

import asyncio
import time
from collections.abc import Sequence

from tests.e2e.certificates import LOOPBACK
from tests.e2e.loopback import LoopbackServer

PROBE_INTERVAL_S = 0.2
PROBE_TIMEOUT_S = 1.0
CHUNK = 1 << 16


class ServiceProxy(LoopbackServer):
    """Forwards a port of its own to those of `replicas` that are ready, all on loopback, from `start` to `stop`."""

    def __init__(self, replicas: Sequence[int]) -> None:
        super().__init__("service-proxy")
        self._replicas = tuple(replicas)
        self._ready: list[int] = []
        self._turn = 0

    def start(self) -> None:
        """Listen on a free port, and begin to probe."""
        super().start()
        self._loop.call_soon_threadsafe(lambda: self.spawn(self._probe_all()))

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until a replica is ready. Raises TimeoutError."""
        until = time.monotonic() + timeout_s
        while not self._ready:
            if time.monotonic() > until:
                raise TimeoutError(f"none of {len(self._replicas)} replicas was ready after {timeout_s:.0f} s")
            time.sleep(PROBE_INTERVAL_S / 4)

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

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join the connection with a replica's; end it if none is ready."""
        replica = self._next()
        if replica is not None:
            await _join(reader, writer, replica)

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
