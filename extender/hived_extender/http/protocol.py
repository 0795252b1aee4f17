"""HTTP/1.1 on one connection: bytes to requests, and answers in the order of the requests.

The parser is httptools. Requests that an application can answer `at_once` are answered while their last bytes are
being read, without a task, a thread or an ASGI message. All others are answered by the ASGI application on a task.

Before an identity is known, a client can only send heads. So their size and number are bounded here, and `Connection`
is told how far the requests are, for its limits of time.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol, runtime_checkable

import httptools
import msgspec

from hived_extender.http.answers import Answer
from hived_extender.http.callers import CALLER
from hived_extender.http.exchange import FAILED, Admission, Application, Exchange
from hived_extender.http.heads import Head, HeadError, HeadParts
from hived_extender.http.identities import Identity, identity_of
from hived_extender.http.listening import HEADS, Connection

log = logging.getLogger(__name__)

GOODBYE_TIMEOUT_S = 0.5

HEAD_LIMIT = 1024 * 1024
"""Bytes of a request's line and headers, as in Go's servers. The parser itself would take any number."""

HEADS_LIMIT = 32 * 1024 * 1024
"""Bytes of headers that arrive in pieces, over all connections of a port."""

PIPELINE_LIMIT = 16
"""Requests that one connection may send ahead of their answers. A piece of its bytes could hold thousands."""

INVALID = "Invalid HTTP request received"
REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%s"
)


@runtime_checkable
class Quick(Protocol):
    """An application that answers some requests at once."""

    def admit(self, head: Head, caller: Identity | None) -> Admission | None:
        """Room for the body of a request that may be answered at once; None for all others. Never waits."""

    def answer_at_once(self, head: Head, body: bytes) -> Answer | Coroutine[Any, Any, Answer]:
        """The answer to an admitted request, or what gives it later."""


class Site(msgspec.Struct):
    """The parts that all connections of a server share; `head_size` counts bytes of heads that are not complete."""

    application: Application
    loop: asyncio.AbstractEventLoop
    protocols: "set[HttpProtocol]" = msgspec.field(default_factory=set)
    tasks: set[asyncio.Task[None]] = msgspec.field(default_factory=set)
    head_size: int = 0
    is_stopping: bool = False
    on_change: asyncio.Event | None = None
    """Set when a connection or a task has ended."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it on a task that `tasks` has until it ends."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def leave(self, protocol: "HttpProtocol") -> None:
        """A connection has ended."""
        self.protocols.discard(protocol)
        self._tell()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change.set()


class _HeadSize:
    """Bytes since a request began or had the last piece of its body, and how many of them the site has counted."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._size = 0
        self._charged = 0
        self.is_under_way = False

    def begin(self) -> None:
        """A head begins, or headers that come after a body."""
        self._size, self.is_under_way = 0, True

    def end(self) -> None:
        """No request is under way any more."""
        self.is_under_way = False

    def grow(self, size: int) -> int:
        """So many more bytes have come; returns all."""
        self._size += size
        return self._size

    def charge(self, size: int | None = None) -> None:
        """Have the site count so many bytes, or all that have come."""
        size = self._size if size is None else size
        self._site.head_size += size - self._charged
        self._charged = size


class HttpProtocol(asyncio.Protocol):
    """See the module. `connection` is told how far the requests are; all calls come from the event loop."""

    def __init__(self, connection: Connection, site: Site) -> None:
        self._connection = connection
        self._site = site
        self._quick = site.application if isinstance(site.application, Quick) else None
        self._parts = HeadParts()
        self.on_url, self.on_header = self._parts.on_url, self._parts.on_header  # called by the parser
        self._parser = httptools.HttpRequestParser(self)
        # Else a request that is the last would not be told of as a whole if anything came after it.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.transport: asyncio.Transport
        self._caller: Identity | None = None
        self.scope: dict[str, Any] = {}
        self._unanswered: deque[Exchange] = deque()
        self._arriving: Exchange | None = None
        self._head = _HeadSize(site)
        self._begun_count = self._headed_count = self._received_count = self._answered_count = 0
        self._may_be_quick = False
        self._is_deaf = self._is_reading_paused = False
        self._refusal = b""
        self._drained: asyncio.Future[None] | None = None

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it reads and writes
        """The handshake is over."""
        self.transport = transport
        self._site.protocols.add(self)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        self._caller = identity_of(certificate) if certificate else None
        self.scope = _scope_of(transport, self._caller)
        self._connection.opened(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._is_deaf = True
        self._site.leave(self)
        for exchange in self._unanswered:
            exchange.lost()
        self._head.charge(0)
        self.resume_writing()
        self._connection.closed()

    def data_received(self, data: bytes) -> None:
        """Bytes have come: parts of requests, or many of them."""
        if self._is_deaf:
            return
        if self._begun_count == self._answered_count:
            self._connection.awaits_head()
        self._may_be_quick = self._drained is None
        headed_count = self._headed_count
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_deaf = True  # whatever follows is in another protocol
        except httptools.HttpParserError as error:
            self._may_be_quick = False
            reason = error.__context__
            self._refuse(f"{INVALID}: {reason}" if isinstance(reason, HeadError) else f"{INVALID}.")
            return
        self._may_be_quick = False
        if self.transport.is_closing():
            return
        if self._arriving is not None and self._headed_count > max(headed_count, self._received_count):
            self._await_body(self._arriving)
        if self._head.is_under_way:
            self._count_head(len(data))

    def pause_writing(self) -> None:
        """The client does not read; answers have to wait."""
        self._drained = self._site.loop.create_future()
        self._connection.is_behind()

    def resume_writing(self) -> None:
        """It reads again."""
        self._connection.has_caught_up()
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set_result(None)

    # Called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begun_count += 1
        self._head.begin()
        self._parts.begin()

    def on_headers_complete(self) -> None:
        """Its head is there. Raises ValueError, which is answered with 400."""
        self._headed_count += 1
        self._head.charge(0)
        self._connection.has_head()
        if self._is_deaf:
            self._arriving = None  # it came after the last request
            return
        exchange = self._arriving = Exchange(self, self._parts.end(self._parser))
        self._unanswered.append(exchange)
        if len(self._unanswered) == 1:
            self._begin(exchange)
        elif len(self._unanswered) > PIPELINE_LIMIT + 1:
            raise HeadError("too many requests ahead of their answers")
        else:
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._head.begin()  # headers may come after a body too
        if self._arriving is not None and not self._arriving.feed(body):
            self._pause_reading()

    def on_message_complete(self) -> None:
        """It is there as a whole."""
        self._head.end()
        self._received_count += 1
        if self._received_count > self._answered_count:
            self._connection.is_received()
        else:
            self._connection.is_answered()  # this was the rest of a request that was answered before it had arrived
        exchange = self._arriving
        if exchange is not None:
            exchange.end()
            if exchange.admission is not None and not exchange.is_answered:
                self._answer_at_once(exchange)

    # Called by exchanges

    def close(self) -> None:
        """Take nothing more in, and end the connection once everything is sent."""
        self._is_deaf = True
        self.transport.close()
        if self._site.is_stopping:
            # Over TLS a close waits for the client's goodbye: one that is asleep must not hold up the end.
            self._site.loop.call_later(GOODBYE_TIMEOUT_S, self.transport.abort)

    async def drain(self) -> None:
        """Wait until the client has read enough of the answer."""
        while self._drained is not None:
            await asyncio.shield(self._drained)

    def resume_reading(self) -> None:
        """More of a body is wanted, or another request."""
        if self._is_reading_paused and not self.transport.is_closing():
            self._is_reading_paused = False
            self.transport.resume_reading()

    def answered(self, exchange: Exchange) -> None:
        """The answer is complete: the next one's turn has come."""
        self._answered_count += 1
        self._unanswered.popleft()
        if not exchange.head.is_keep_alive:
            self.close()
            return
        if self.transport.is_closing():
            return
        if not self._refusal and self._answered_count >= self._received_count:
            self._connection.is_answered()
            has_rest = self._begun_count == self._answered_count > self._received_count
            if has_rest or self._begun_count > self._headed_count:
                self._connection.awaits_head()
        self.resume_reading()
        if self._unanswered:
            self._begin(self._unanswered[0])
        else:
            self._send_refusal()

    # Called by the server

    def finish(self) -> None:
        """End the connection when the request under way has been answered."""
        if self._unanswered:
            self._unanswered[0].head.is_keep_alive = False
        else:
            self.close()

    def _begin(self, exchange: Exchange) -> None:
        head = exchange.head
        if self._quick is not None and self._may_be_quick and not head.expects_continue and not head.has_upgrade:
            exchange.admission = self._quick.admit(head, self._caller)
        if exchange.admission is None:
            self._site.spawn(exchange.run(self._site.application))
        self._may_be_quick = False  # others are served before the next request of the same piece

    def _answer_at_once(self, exchange: Exchange) -> None:
        assert self._quick is not None
        try:
            answer = self._quick.answer_at_once(exchange.head, exchange.take_body())
        except Exception:
            log.exception("a request could not be answered")
            answer = FAILED
        if isinstance(answer, Answer):
            exchange.reply(answer)
        else:
            self._site.spawn(self._answer_later(exchange, answer))

    async def _answer_later(self, exchange: Exchange, later: Coroutine[Any, Any, Answer]) -> None:
        try:
            answer = await later
        except Exception:
            log.exception("a request could not be answered")
            answer = FAILED
        exchange.reply(answer)

    def _await_body(self, exchange: Exchange) -> None:
        """Give the rest of a body its time; one that has to be asked for may have to wait."""
        if exchange.admission is not None:
            exchange.limit_time(exchange.admission.timeout_s)
        elif not exchange.is_answered:
            self._pause_reading()

    def _count_head(self, size: int) -> None:
        if self._head.grow(size) > HEAD_LIMIT:
            self._refuse(f"the headers have more than {HEAD_LIMIT} bytes")
        elif self._connection.is_awaiting_head:
            self._head.charge()
            if self._site.head_size > HEADS_LIMIT:
                self._connection.drop(HEADS)

    def _pause_reading(self) -> None:
        if not self._is_reading_paused and not self.transport.is_closing():
            self._is_reading_paused = True
            self.transport.pause_reading()

    def _refuse(self, message: str) -> None:
        """Answer bytes that are no request, in their turn, and end the connection."""
        self._is_deaf = True
        last = self._unanswered[-1] if self._unanswered else None
        if last is not None and not last.is_whole:
            last.lost()  # the rest of it will never come
            if last.is_started:
                self.close()
                return
            self._unanswered.pop()
        self._refusal = REFUSAL % (len(message), message.encode())
        self._pause_reading()
        self._send_refusal()

    def _send_refusal(self) -> None:
        if self._refusal and not self._unanswered and not self.transport.is_closing():
            self.transport.write(self._refusal)
            self.close()


def _scope_of(transport: asyncio.Transport, caller: Identity | None) -> dict[str, Any]:
    """The part of an ASGI scope that is the same for every request of a connection."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "scheme": "http" if transport.get_extra_info("ssl_object") is None else "https",
        "server": _address(transport.get_extra_info("sockname")),
        "client": _address(transport.get_extra_info("peername")),
        "root_path": "",
        "state": {CALLER: caller},
    }


def _address(address: Any) -> tuple[str, int] | None:
    """Host and port, without what IPv6 adds."""
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
