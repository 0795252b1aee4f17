"""An HTTP proxy that a test stands between two parts: it holds single requests or answers, and spoils watches.

One connection of the client has one of the server, opened anew when the server has closed it meanwhile. What is held
goes on when the test says so, also when its client has died in between: just as what is on its way in a network does.
"""

import asyncio
import contextlib
import re
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

from tests.e2e.certificates import Authority
from tests.e2e.loopback import LINE_LIMIT, LoopbackServer

HOLD_LIMIT_S = 120.0
"""Nothing is held for ever: a test that fails meanwhile leaves no connection behind."""


class Side(Enum):
    """Where something is held: a request that the server has not seen, or an answer that the client has not."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(eq=False)
class Hold:
    """The first request that matches, or the answer to it, kept back from when it comes until `release` or `drop`.

    `act` is called when it has come; with `after`, only what comes after that one matches. `status` is what the server
    answered, known when `answered` is set; 0 if it did not.
    """

    side: Side
    method: str
    pattern: re.Pattern[str]
    act: Callable[[], None] | None = None
    after: "Hold | None" = None
    arrived: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)
    status: int = 0
    is_dropped: bool = False
    _go: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let it go on."""
        self._go.set()

    def drop(self) -> None:
        """Break the connection instead."""
        self.is_dropped = True
        self._go.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until something is held; False when time is up."""
        return self.arrived.wait(timeout_s)

    async def stay(self) -> None:
        """For the proxy: something has come; returns when it may go on."""
        if self.act is not None:
            await asyncio.to_thread(self.act)
        self.arrived.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOLD_LIMIT_S):
                while not self._go.is_set():
                    await asyncio.sleep(0.002)
        if self.is_dropped:
            raise ConnectionAbortedError


@dataclass(slots=True)
class _Head:
    """The first lines of a request or an answer."""

    lines: bytes
    first: list[str]
    fields: dict[str, str]

    @property
    def is_chunked(self) -> bool:
        return self.fields.get("transfer-encoding", "").lower() == "chunked"

    @property
    def is_watch(self) -> bool:
        return "watch=" in self.first[1]

    @property
    def is_last(self) -> bool:
        return self.fields.get("connection", "").lower() == "close"


Spoil = Callable[[list[bytes]], list[bytes]]
"""Makes other lines of those of a watch. What it keeps back it can give when it is called again, with the lines that
have come since: none, perhaps, and `FLUSH_S` later at most."""

FLUSH_S = 0.05


class HttpProxy(LoopbackServer):
    """Listens on `port` from `start` to `stop` and passes everything on to the server at `upstream()`.

    Parameters
    ----------
    upstream : asked for each connection, for a URL such as `https://127.0.0.1:6443`
    authority : has signed the server's certificate, and signs one for the proxy itself, which then speaks TLS

    Attributes
    ----------
    answers : how often each status was answered, by method and last part of the path
    expired_count : watches that were told that their version is too old
    is_open : false to break every connection with its next request
    is_open_for_watches : false to break the connection of everyone who begins to watch
    spoil : makes the function that spoils a new watch; at first watches are passed on as they are
    """

    def __init__(self, upstream: Callable[[], str], authority: Authority | None = None) -> None:
        server_tls: ssl.SSLContext | None = None
        self._client_tls: ssl.SSLContext | None = None
        if authority is not None:
            pair = authority.server("proxy")
            server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            server_tls.load_cert_chain(pair.certificate, pair.key)
            self._client_tls = ssl.create_default_context(cafile=str(authority.file))
        super().__init__("http-proxy", server_tls)
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.expired_count = 0
        self.is_open = True
        self.is_open_for_watches = True
        self.spoil: Callable[[], Spoil] = lambda: list
        self._upstream = upstream
        self._holds: list[Hold] = []
        self._watches: set[asyncio.StreamWriter] = set()

    def hold(
        self, side: Side, method: str, pattern: str, act: Callable[[], None] | None = None, after: Hold | None = None
    ) -> Hold:
        """Keep back the next request whose path has `pattern` in it, or the answer to it; see `Hold`."""
        hold = Hold(side, method, re.compile(pattern), act, after)
        self._holds.append(hold)
        return hold

    def drop(
        self, side: Side, method: str, pattern: str, act: Callable[[], None] | None = None, after: Hold | None = None
    ) -> Hold:
        """Break the connection instead of passing such a request or answer on."""
        hold = self.hold(side, method, pattern, act, after)
        hold.drop()
        return hold

    def forget(self) -> None:
        """Wait for no request any more."""
        self._holds.clear()

    def cut_watches(self) -> int:
        """Break every watch that is open now, in the middle of whatever it says; returns how many."""
        return self.run(self._cut())

    async def _cut(self) -> int:
        watches = list(self._watches)
        for writer in watches:
            writer.transport.abort()
        return len(watches)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what a client says, and what it is answered."""
        connection = _Connection(self, reader, writer)
        try:
            await connection.serve()
        finally:
            connection.close()

    def _take(self, side: Side, head: _Head) -> Hold | None:
        for hold in self._holds:
            is_awaited = hold.after is None or hold.after.arrived.is_set()
            if is_awaited and (hold.side, hold.method) == (side, head.first[0]) and hold.pattern.search(head.first[1]):
                self._holds.remove(hold)
                return hold
        return None


class _Connection:
    """A client's connection, and the server's that goes with it."""

    def __init__(self, proxy: HttpProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._far: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def serve(self) -> None:
        """Pass on one request after another, until one side has had enough."""
        is_last = False
        while not is_last:
            head = await _read_head(self._reader)
            if not self._proxy.is_open or (head.is_watch and not self._proxy.is_open_for_watches):
                return
            body = b"".join([part async for part in _body(self._reader, head, is_request=True)])
            held = self._proxy._take(Side.REQUEST, head)
            try:
                if held is not None:
                    await held.stay()
                is_last = await self._exchange(head, body, held)
            finally:
                if held is not None:
                    held.answered.set()

    def close(self) -> None:
        """Break both connections."""
        self._writer.transport.abort()
        if self._far is not None:
            self._far[1].transport.abort()

    async def _exchange(self, head: _Head, body: bytes, held: Hold | None) -> bool:
        reader, writer = await self._server()
        writer.write(head.lines + (_chunk(body) + _chunk(b"") if head.is_chunked else body))
        await writer.drain()
        answer = await _read_head(reader)
        status = int(answer.first[1])
        self._proxy.answers[head.first[0], urlsplit(head.first[1]).path.rsplit("/", 1)[-1], status] += 1
        if held is not None:
            held.status = status
        parts = _body(reader, answer, is_request=False)
        self._proxy.expired_count += head.is_watch and status == 410
        if head.is_watch and status == 200:
            await self._pass_watch(answer, parts)
        else:
            content = b"".join([part async for part in parts])
            # Only now: a request to which no answer comes is not the one that is waited for.
            kept = self._proxy._take(Side.ANSWER, head)
            try:
                if kept is not None:
                    kept.status = status
                    await kept.stay()
                self._writer.write(answer.lines + (_chunk(content) + _chunk(b"") if answer.is_chunked else content))
                await self._writer.drain()
            finally:
                if kept is not None:
                    kept.answered.set()
        return answer.is_last or head.is_last

    async def _server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._far is not None and self._far[0].at_eof():
            self._far[1].transport.abort()
            self._far = None
        if self._far is None:
            url = urlsplit(self._proxy._upstream())
            tls = self._proxy._client_tls if url.scheme == "https" else None
            self._far = await asyncio.open_connection(url.hostname, url.port, ssl=tls, limit=LINE_LIMIT)
        return self._far

    async def _pass_watch(self, answer: _Head, parts: AsyncIterator[bytes]) -> None:
        """Line by line; when the client goes, so does the server's side."""
        spoil = self._proxy.spoil()
        self._proxy._watches.add(self._writer)
        far = (await self._server())[1]
        gone = asyncio.ensure_future(self._reader.read(1))
        gone.add_done_callback(lambda task: None if task.cancelled() else far.transport.abort())
        self._writer.write(answer.lines)
        flushing = asyncio.ensure_future(self._flush(spoil))
        rest = b""
        try:
            async for part in parts:
                *lines, rest = (rest + part).split(b"\n")
                self._proxy.expired_count += sum(b'"type":"ERROR"' in line and b'"code":410' in line for line in lines)
                self._write_lines(spoil, lines)
                await self._writer.drain()
            self._write_lines(spoil, [])
        finally:
            self._proxy._watches.discard(self._writer)
            for task in (flushing, gone):
                task.cancel()
            await asyncio.gather(flushing, gone, return_exceptions=True)
        self._writer.write(_chunk(b""))
        await self._writer.drain()

    async def _flush(self, spoil: Spoil) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._write_lines(spoil, [])

    def _write_lines(self, spoil: Spoil, lines: list[bytes]) -> None:
        for line in spoil(lines):
            self._writer.write(_chunk(line + b"\n"))


async def _read_head(reader: asyncio.StreamReader) -> _Head:
    lines = await reader.readuntil(b"\r\n\r\n")
    first, *others = lines.decode("latin-1").split("\r\n")
    named = (line.partition(":") for line in others if line)
    return _Head(lines, first.split(" ", 2), {name.strip().lower(): value.strip() for name, _, value in named})


async def _body(reader: asyncio.StreamReader, head: _Head, *, is_request: bool) -> AsyncIterator[bytes]:
    if head.is_chunked:
        while size := int(await reader.readline(), 16):
            yield await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif "content-length" in head.fields:
        yield await reader.readexactly(int(head.fields["content-length"]))
    elif not is_request and head.first[1] not in ("204", "304"):
        yield await reader.read()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
