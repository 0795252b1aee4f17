"""Limits of connections around uvicorn, which speaks HTTP/1.1 and has none of these: their number, time, and headers.

The event loop accepts connections itself, in place of asyncio's server, so that a connection counts from its first
moment, also during its TLS handshake. A connection is *fresh* until its first request has been received, *busy* while a
request is answered, *idle* between two. Fresh connections have little time, however slowly their bytes come; so has a
client that does not read. Where a limit is reached, the oldest fresh connection makes room, then the one that is idle
for the longest, and never a busy one.

kube-scheduler holds one busy connection for each binding of a gang that is held back, thousands from one address. So
only the files that the process may open bound the number of busy connections; the others have a lower limit.
"""

import asyncio
import errno
import logging
import math
import resource
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from hived_extender.http.access import CALLER
from hived_extender.http.answers import identity_of

log = logging.getLogger(__name__)

RESERVED_FILES = 96
"""Descriptors kept for calls to the API server, watches, files and connections that are being closed."""

MOST_CONNECTIONS = 32_768
MOST_QUIET = 2048
"""Fresh and idle connections of a port: each holds 60 kB over TLS, silent or not."""

IDLE_S = 120.0
"""Longer than the 90 s after which Go's client drops an idle connection: we must never close one it is about to use."""

ADDRESS_SHARE = 0.75
"""One address has at most this part of the connections of a port."""

ACCEPTED_AT_ONCE = 32
READ_AT_LEAST = 64 * 1024
"""Bytes that a client which is behind has to read in `Limits.unread_s`."""

PAUSE_S = 0.05
"""Without a free descriptor: until the next connection is accepted. Meanwhile dropped connections are closed."""

GOODBYE_S = 0.5
"""At the end of the server: over TLS a close waits for the client, and one that is asleep must not hold up the end."""

HEAD_LIMIT = 1024 * 1024
"""Bytes of a request's line and headers, as in Go's servers. The parser itself would take any number."""

HEADS_LIMIT = 32 * 1024 * 1024
"""Bytes of headers that arrive in pieces, over all connections of a port."""

PIPELINE_LIMIT = 16
"""Requests that one connection may send before their answers. A piece of its bytes could hold thousands."""

ONCE = frozenset((b"authorization", b"host"))
"""Headers that a request has once. With two of them, the gate and Flask might each believe another one."""

OF_BODIES = frozenset((b"content-length", b"transfer-encoding"))
OUT_OF_FILES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

HANDSHAKE = "handshake"
REQUEST = "request"
IDLE = "idle"
UNREAD = "unread"
CROWDED = "crowded"
FULL = "full"
FILES = "files"
HEADS = "heads"
REASONS = (HANDSHAKE, REQUEST, IDLE, UNREAD, CROWDED, FULL, FILES, HEADS)
"""Reasons of dropped connections: a handshake took too long; a request's headers did; nothing came for too long;
the client does not read its answers, or the end of a closed connection; a limit made the oldest go; a limit is reached
and all are busy; no descriptor was free; too many bytes of headers are under way.
"""

WORTH_A_WARNING = frozenset((CROWDED, FULL, FILES, HEADS))


class Limits(msgspec.Struct, frozen=True):
    """Limits of a port: numbers of connections, and their times. `most_quiet` bounds fresh and idle ones together."""

    most: int = MOST_CONNECTIONS
    most_quiet: int = MOST_QUIET
    handshake_s: float = 10.0
    head_s: float = 10.0
    idle_s: float = IDLE_S
    unread_s: float = 10.0
    goodbye_s: float = 10.0
    sweep_s: float = 1.0
    log_s: float = 5.0


def limits_of_process() -> Limits:
    """The limits of a port: half of the descriptors that the process may open, but for the reserved ones."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return Limits()
    most = min(MOST_CONNECTIONS, max(16, (files - RESERVED_FILES) // 2))
    return Limits(most, min(most, MOST_QUIET))


def raise_file_limit() -> None:
    """Let this process open as many files as its hard limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems refuse more than another limit of theirs
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class RefusedHeadError(ValueError):
    """A head that no request to this server can have; the answer says why."""


class Connection(HttpToolsProtocol):
    """One connection from its acceptance on. uvicorn answers its requests; here are its limits, and its caller."""

    def __init__(self, port: "Port", accepted: socket.socket, address: str) -> None:
        self._scope_state: dict[str, Any] = {CALLER: None}
        super().__init__(port.config, port.state, self._scope_state, port.loop)
        self._port = port
        self.socket = accepted
        self.address = address
        self.is_open = self.is_dropped = False
        self.deadline = port.loop.time() + port.limits.handshake_s
        self.unread_deadline = math.inf
        self._unread_size = 0
        self.is_awaiting_head = False
        self._begun = self._headed = self._received = self._answered = 0
        self._has_headers_under_way = self._is_deaf = False
        self._head_size = self._counted_size = 0
        self._refusal = ""

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """The handshake is over; the headers of the first request are awaited."""
        super().connection_made(transport)
        self.is_open = True
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        self._scope_state[CALLER] = identity_of(certificate) if certificate else None
        if self.is_dropped:
            transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        self._count_head(0)
        self._port.forget(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have come: parts of requests, or many of them."""
        if self._is_deaf:
            return
        if self._begun == self._answered:
            self._await_head()
        super().data_received(data)
        if self._has_headers_under_way and not self.transport.is_closing():
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                self._refusal = f"the headers have more than {HEAD_LIMIT} bytes"
                self.send_400_response("")
            elif self.is_awaiting_head:
                self._count_head(self._head_size)
                if self._port.head_size > HEADS_LIMIT:
                    self._port.drop(self, HEADS)

    def pause_writing(self) -> None:
        """The client leaves so much unread that answers wait for it: it has to go on reading in time."""
        super().pause_writing()
        self._unread_size = self.transport.get_write_buffer_size()
        self.unread_deadline = self._port.loop.time() + self._port.limits.unread_s

    def resume_writing(self) -> None:
        """No answer waits for the client any more."""
        super().resume_writing()
        self.unread_deadline = math.inf

    # Called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._begun += 1
        self._has_headers_under_way, self._head_size = True, 0

    def on_headers_complete(self) -> None:
        """Its head is there. Raises RefusedHeadError, which is answered with 400."""
        if self._begun - self._answered > PIPELINE_LIMIT + 1:
            self._is_deaf, self.cycle.keep_alive = True, False  # the request before was the last
            return
        self._refusal = self._why_refused()
        if self._refusal:
            raise RefusedHeadError(self._refusal)
        if self.parser.get_http_version() == "1.0":
            self.expect_100_continue = False  # such a client takes it for the answer
        super().on_headers_complete()
        self.headers = []  # for what comes after the body: it was not there when access was decided
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False  # whatever follows is in another protocol
        self._headed += 1
        self._has_headers_under_way = self.is_awaiting_head = False
        self._count_head(0)
        self.deadline = math.inf  # the application limits how long the body takes

    def on_body(self, body: bytes) -> None:
        """A piece of its body; headers may come after the last one."""
        if self._is_deaf:
            return
        super().on_body(body)
        self._has_headers_under_way, self._head_size = True, 0

    def on_message_complete(self) -> None:
        """The request is there as a whole."""
        if self._is_deaf:
            return
        super().on_message_complete()
        self._has_headers_under_way = False
        self._received += 1
        if self._received > self._answered:
            self._port.leave_quiet(self)
        else:
            self._become_idle()  # this was the rest of a request that was answered before it had arrived

    # Called by uvicorn

    def on_response_complete(self) -> None:
        """An answer is complete: the next request may be answered."""
        super().on_response_complete()
        self._answered += 1
        if self._answered >= self._received:
            self._become_idle()
            has_rest = self._begun == self._answered > self._received
            if has_rest or self._begun > self._headed:
                self._await_head()
        if self._port.is_closed:
            self._end_soon()

    def send_400_response(self, msg: str) -> None:
        """Say why bytes are no request, and end the connection."""
        reason = f"Invalid HTTP request received: {self._refusal}" if self._refusal else msg
        super().send_400_response(reason)

    def shutdown(self) -> None:
        """End the connection when the request under way has been answered."""
        super().shutdown()
        self._end_soon()

    # Called by the port

    def is_stuck(self, now: float) -> bool:
        """True if the client has hardly read in the time it had. Else the time begins anew."""
        if now <= self.unread_deadline:
            return False
        before, self._unread_size = self._unread_size, self.transport.get_write_buffer_size()
        self.unread_deadline = now + self._port.limits.unread_s
        return before - self._unread_size < READ_AT_LEAST

    def _await_head(self) -> None:
        """The headers of a request have to arrive in time; a later call does not extend it."""
        if not self.is_awaiting_head:
            self.is_awaiting_head = True
            self.deadline = self._port.loop.time() + self._port.limits.head_s

    def _become_idle(self) -> None:
        self.is_awaiting_head = False
        self.deadline = self._port.loop.time() + self._port.limits.idle_s
        self._port.enter_idle(self)

    def _end_soon(self) -> None:
        if self.transport.is_closing():
            self._port.loop.call_later(GOODBYE_S, self.transport.abort)

    def _why_refused(self) -> str:
        """Return why this server does not answer the head that has just arrived, "" if it does."""
        once = [name for name, _ in self.headers if name in ONCE]
        if len(once) > len(set(once)):
            return f"the request has several {max(once, key=once.count).decode().title()} headers"
        if self.parser.should_upgrade() and any(name in OF_BODIES and value != b"0" for name, value in self.headers):
            # the parser skips the body
            return "the request has a body and an Upgrade header: send it without, as curl --http1.1 does"
        return ""

    def _count_head(self, size: int) -> None:
        """Have the port count so many bytes of a head that is not complete."""
        self._port.head_size += size - self._counted_size
        self._counted_size = size


class ConnectionCounts:
    """The connections of a port, or of one address there; the oldest come first in `fresh` and `idle`."""

    def __init__(self, most: int, most_quiet: int) -> None:
        self.total = 0
        self.fresh: OrderedDict[Connection, None] = OrderedDict()
        self.idle: OrderedDict[Connection, None] = OrderedDict()
        self._most = most
        self._most_quiet = most_quiet

    @property
    def is_full(self) -> bool:
        """True if a connection has to go before another may come."""
        return self.total >= self._most or len(self.fresh) + len(self.idle) >= self._most_quiet

    def first_to_go(self) -> Connection | None:
        """None if all are busy."""
        return next(iter(self.fresh), None) or next(iter(self.idle), None)


class Port:
    """A listening socket whose connections are accepted here, in place of asyncio's server.

    `config` is uvicorn's, for its application; `on_drop` is called with the reason for each dropped connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        config: uvicorn.Config,
        context: ssl.SSLContext | None,
        limits: Limits,
        on_drop: Callable[[str], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.config = config
        self.state = ServerState()
        self.limits = limits
        self.head_size = 0
        self.is_closed = False
        self._listener = listener
        self._context = context
        self._on_drop = on_drop
        self._all: set[Connection] = set()
        self._counts = ConnectionCounts(limits.most, limits.most_quiet)
        self._by_address: dict[str, ConnectionCounts] = {}
        self._openings: set[asyncio.Task[None]] = set()
        self._unlogged: Counter[str] = Counter()
        self._next_log = 0.0
        listener.setblocking(False)
        self.loop.add_reader(listener, self._accept)
        self._sweeping = self.loop.call_later(limits.sweep_s, self._sweep)

    def close(self) -> None:
        """Accept no more; open connections end with the request under way, others at once."""
        self.is_closed = True
        self.loop.remove_reader(self._listener)
        self._listener.close()  # so that clients are refused, and do not wait for a turn that never comes
        for connection in tuple(self._all):
            if connection.is_open:
                connection.shutdown()
            else:
                self._end(connection)

    async def wait_closed(self) -> None:
        """Wait for the openings under way to end."""
        if self._openings:
            await asyncio.wait(self._openings)
        self._sweeping.cancel()
        self._log()

    # The life of a connection

    def leave_quiet(self, connection: Connection) -> None:
        """It is busy now."""
        for counts in self._counts_of(connection):
            counts.fresh.pop(connection, None)
            counts.idle.pop(connection, None)

    def enter_idle(self, connection: Connection) -> None:
        """It is idle now, for the shortest time of all."""
        if connection in self._all:
            for counts in self._counts_of(connection):
                counts.fresh.pop(connection, None)
                counts.idle[connection] = None

    def forget(self, connection: Connection) -> None:
        """It counts no more. May be called twice."""
        if connection not in self._all:
            return
        self.leave_quiet(connection)
        for counts in self._counts_of(connection):
            counts.total -= 1
        if not self._by_address[connection.address].total:
            del self._by_address[connection.address]
        self._all.discard(connection)

    def drop(self, connection: Connection, reason: str) -> None:
        """End a connection for a reason of ours."""
        self._count(reason)
        self._end(connection)
        self.forget(connection)

    def _end(self, connection: Connection) -> None:
        connection.is_dropped = True
        if connection.is_open:
            connection.transport.abort()
        else:
            with suppress(OSError):  # the transport to be has this socket, and learns so that it is over
                connection.socket.shutdown(socket.SHUT_RDWR)

    def _counts_of(self, connection: Connection) -> tuple[ConnectionCounts, ConnectionCounts]:
        return self._counts, self._by_address[connection.address]

    # Accepting

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._listener.accept()
            except OSError as error:
                if error.errno in OUT_OF_FILES:
                    self._make_room_for_files()
                return
            self._admit(accepted, str(address[0]))

    def _make_room_for_files(self) -> None:
        """No descriptor is free: the listener would be reported again and again."""
        self._count(FILES)
        victim = self._counts.first_to_go()
        if victim is not None:
            self.drop(victim, CROWDED)
        self.loop.remove_reader(self._listener)
        self.loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        if not self.is_closed:
            self.loop.add_reader(self._listener, self._accept)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        of_address = self._by_address.get(address) or ConnectionCounts(
            math.ceil(self.limits.most * ADDRESS_SHARE), math.ceil(self.limits.most_quiet * ADDRESS_SHARE)
        )
        if not (self._make_room(of_address) and self._make_room(self._counts)):
            self._count(FULL)
            accepted.close()
            return
        accepted.setblocking(False)
        connection = Connection(self, accepted, address)
        self._all.add(connection)
        self._by_address[address] = of_address
        for counts in (self._counts, of_address):
            counts.total += 1
            counts.fresh[connection] = None
        opening = self.loop.create_task(self._open(connection))
        self._openings.add(opening)
        opening.add_done_callback(self._openings.discard)

    def _make_room(self, counts: ConnectionCounts) -> bool:
        """False if all are busy."""
        while counts.is_full:
            victim = counts.first_to_go()
            if victim is None:
                return False
            self.drop(victim, CROWDED)
        return True

    async def _open(self, connection: Connection) -> None:
        """Shake hands over TLS, and let uvicorn begin."""
        try:
            await self.loop.connect_accepted_socket(lambda: connection, connection.socket, ssl=self._context)
        except Exception as error:  # the edge: nothing that a client does may end the accepting
            level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR  # OSError: also of TLS, time-outs
            log.log(level, "a connection was not opened: %s", error)
            connection.socket.close()
            self.forget(connection)

    # Looking after all of them

    def _sweep(self) -> None:
        """End connections that take too long."""
        self._sweeping = self.loop.call_later(self.limits.sweep_s, self._sweep)
        now = self.loop.time()
        late = {each: reason for each in self._all if (reason := self._reason(each, now))}
        for connection, reason in late.items():
            if reason == IDLE:
                self._count(reason)
                connection.transport.close()  # in good order: it has until the next sweeps to be gone
            else:
                self.drop(connection, reason)
        if now >= self._next_log:
            self._log()

    def _reason(self, connection: Connection, now: float) -> str:
        """Return why a connection has to go now; "" if it may stay."""
        is_closing = connection.is_open and connection.transport.is_closing()
        if is_closing:
            connection.deadline = min(connection.deadline, now + self.limits.goodbye_s)
        if connection.is_stuck(now):
            return UNREAD
        if connection.deadline >= now:
            return ""
        if not connection.is_open:
            return HANDSHAKE
        if is_closing:
            return UNREAD
        return REQUEST if connection.is_awaiting_head else IDLE

    def _count(self, reason: str) -> None:
        self._on_drop(reason)
        if reason in WORTH_A_WARNING:
            self._unlogged[reason] += 1

    def _log(self) -> None:
        if self._unlogged:
            fields = dict(self._unlogged) | {"open": self._counts.total, "address": self._listener_name()}
            log.warning("connections dropped: too many at once", extra={"fields": fields})
            self._unlogged.clear()
            self._next_log = self.loop.time() + self.limits.log_s

    def _listener_name(self) -> str:
        try:
            return ":".join(str(part) for part in self._listener.getsockname()[:2])
        except OSError:
            return ""
