"""Accepting connections, and which of them have to go.

The server's own event loop accepts, in place of asyncio's Server, so that a connection counts from its first moment:
also while its TLS handshake lasts. A connection is *fresh* until its first request has been received, *busy* while a
request is answered, *idle* between two. Fresh ones have little time, however slowly their bytes come; so has any whose
client does not read. Where a cap is reached, the oldest fresh connection makes room, then the one that is idle for the
longest; a busy one never does.

kube-scheduler holds one busy connection for each binding of a gang that is held back, thousands from one address. So
busy connections are bounded by the files that the process may open alone, and the others by a lower number.
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

import msgspec

log = logging.getLogger(__name__)

RESERVED_FILES = 96
"""Descriptors kept for calls to the API server, watches, files and what is being closed."""

MOST_CONNECTIONS = 32_768
MOST_QUIET = 2048
"""Fresh and idle ones of a port: each holds 60 kB over TLS, silent or not."""

IDLE_S = 120.0
"""Longer than the 90 s after which Go's client drops an idle connection: we must never close one it is about to use."""

ADDRESS_SHARE = 0.75
"""One address has at most this part of what a port may have."""

ACCEPTED_AT_ONCE = 32
READ_AT_LEAST = 64 * 1024
"""Bytes that a client which is behind has to read in `Limits.unread_s`: as many as may wait for it without harm."""

PAUSE_S = 0.05
"""Without a free descriptor: until the next connection is accepted. Meanwhile those that made room are closed."""

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
"""Why connections are dropped, in this order: a handshake took too long; a request's headers did; nothing came for too
long; the client does not read its answers, or the end of a closed connection; a cap made the oldest go; a cap is
reached and all are busy; no descriptor was free; too many bytes of headers are under way.
"""

WORTH_A_WARNING = frozenset((CROWDED, FULL, FILES, HEADS))


class Limits(msgspec.Struct, frozen=True):
    """How many connections a port has, and how long they may take. `most_quiet` bounds fresh and idle ones together."""

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


class Connection:
    """One connection from its acceptance on. The protocol says how far its requests are; all on the loop's thread."""

    __slots__ = (
        "_port", "_unread_size", "address", "deadline", "is_awaiting_head", "is_dropped", "is_fresh", "socket",
        "transport", "unread_deadline",
    )  # fmt: skip

    def __init__(self, port: "Port", accepted: socket.socket, address: str, deadline: float) -> None:
        self._port = port
        self.socket = accepted
        self.address = address
        self.transport: asyncio.Transport | None = None
        self.deadline = deadline
        self.unread_deadline = math.inf
        self._unread_size = 0
        self.is_awaiting_head = False
        self.is_fresh = True
        self.is_dropped = False

    def opened(self, transport: asyncio.Transport) -> None:
        """The handshake is over; the headers of the first request are awaited."""
        self.transport = transport
        if self.is_dropped:
            transport.abort()
        self.awaits_head()

    def awaits_head(self) -> None:
        """The headers of a request have to arrive in time; a later call does not extend it."""
        if not self.is_awaiting_head:
            self.is_awaiting_head = True
            self.deadline = self._port.loop.time() + self._port.limits.head_s

    def has_head(self) -> None:
        """All headers have arrived; the application limits how long the body takes."""
        self.is_awaiting_head = False
        self.deadline = math.inf

    def is_received(self) -> None:
        """A whole request has arrived: it is answered now."""
        self.is_fresh = False
        self._port.leave_quiet(self)

    def is_answered(self) -> None:
        """No request is under way any more."""
        self.is_fresh = self.is_awaiting_head = False
        self.deadline = self._port.loop.time() + self._port.limits.idle_s
        if not self.is_dropped:
            self._port.enter_idle(self)

    def is_behind(self) -> None:
        """The client leaves so much unread that answers wait for it: it has to go on reading in time."""
        assert self.transport is not None
        self._unread_size = self.transport.get_write_buffer_size()
        self.unread_deadline = self._port.loop.time() + self._port.limits.unread_s

    def has_caught_up(self) -> None:
        """No answer waits for the client any more."""
        self.unread_deadline = math.inf

    def is_stuck(self, now: float) -> bool:
        """Whether the client has hardly read in the time it had. Else it has the time anew."""
        if now <= self.unread_deadline:
            return False
        before = self._unread_size
        self.is_behind()
        return before - self._unread_size < READ_AT_LEAST

    def closed(self) -> None:
        """The connection is gone."""
        self._port.forget(self)

    def drop(self, reason: str) -> None:
        """End it at once."""
        self._port.drop(self, reason)


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
        """Whether one has to go before another may come."""
        return self.total >= self._most or len(self.fresh) + len(self.idle) >= self._most_quiet

    def first_to_go(self) -> Connection | None:
        """None if all are busy."""
        return next(iter(self.fresh), None) or next(iter(self.idle), None)


class Port:
    """A listening socket whose connections are accepted here, in place of asyncio's Server.

    `make_protocol` gives the protocol of a connection; `on_drop` is told why one was dropped.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[Connection], asyncio.Protocol],
        context: ssl.SSLContext | None,
        limits: Limits,
        on_drop: Callable[[str], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self._listener = listener
        self._make_protocol = make_protocol
        self._context = context
        self._on_drop = on_drop
        self._all: set[Connection] = set()
        self._crowd = ConnectionCounts(limits.most, limits.most_quiet)
        self._by_address: dict[str, ConnectionCounts] = {}
        self._openings: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._unlogged: Counter[str] = Counter()
        self._next_log = 0.0
        listener.setblocking(False)
        self.loop.add_reader(listener, self._accept)
        self._sweeping = self.loop.call_later(limits.sweep_s, self._sweep)

    def close(self) -> None:
        """Accept no more; connections that have not been opened yet end."""
        self._is_closed = True
        self.loop.remove_reader(self._listener)
        for connection in [each for each in self._all if each.transport is None]:
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
        for crowd in self._crowds(connection):
            crowd.fresh.pop(connection, None)
            crowd.idle.pop(connection, None)

    def enter_idle(self, connection: Connection) -> None:
        """It is idle now, for the shortest time of all."""
        if connection in self._all:
            for crowd in self._crowds(connection):
                crowd.fresh.pop(connection, None)
                crowd.idle[connection] = None

    def forget(self, connection: Connection) -> None:
        """It counts no more. May be called twice."""
        if connection not in self._all:
            return
        self.leave_quiet(connection)
        for crowd in self._crowds(connection):
            crowd.total -= 1
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
        if connection.transport is not None:
            connection.transport.abort()
        else:
            with suppress(OSError):  # the transport to be has this socket, and learns so that it is over
                connection.socket.shutdown(socket.SHUT_RDWR)

    def _crowds(self, connection: Connection) -> tuple[ConnectionCounts, ConnectionCounts]:
        return self._crowd, self._by_address[connection.address]

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
        victim = self._crowd.first_to_go()
        if victim is not None:
            self.drop(victim, CROWDED)
        self.loop.remove_reader(self._listener)
        self.loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        if not self._is_closed:
            self.loop.add_reader(self._listener, self._accept)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        of_address = self._by_address.get(address) or ConnectionCounts(
            math.ceil(self.limits.most * ADDRESS_SHARE), math.ceil(self.limits.most_quiet * ADDRESS_SHARE)
        )
        if not (self._make_room(of_address) and self._make_room(self._crowd)):
            self._count(FULL)
            accepted.close()
            return
        accepted.setblocking(False)
        connection = Connection(self, accepted, address, self.loop.time() + self.limits.handshake_s)
        self._all.add(connection)
        self._by_address[address] = of_address
        for crowd in (self._crowd, of_address):
            crowd.total += 1
            crowd.fresh[connection] = None
        opening = self.loop.create_task(self._open(connection))
        self._openings.add(opening)
        opening.add_done_callback(self._openings.discard)

    def _make_room(self, crowd: ConnectionCounts) -> bool:
        """False if nobody can go."""
        while crowd.is_full:
            victim = crowd.first_to_go()
            if victim is None:
                return False
            self.drop(victim, CROWDED)
        return True

    async def _open(self, connection: Connection) -> None:
        """Shake hands, if that is the custom of the port, and let the protocol begin."""
        try:
            with suppress(OSError):
                connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.loop.connect_accepted_socket(
                lambda: self._make_protocol(connection),
                connection.socket,
                ssl=self._context,
                ssl_handshake_timeout=2 * self.limits.handshake_s if self._context else None,
            )
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
            if reason == IDLE and connection.transport is not None:
                self._count(reason)
                connection.transport.close()  # in good order: it has until the next sweeps to be gone
            else:
                self.drop(connection, reason)
        if now >= self._next_log:
            self._log()

    def _reason(self, connection: Connection, now: float) -> str:
        """Why a connection has to go now; "" if it may stay."""
        is_closing = connection.transport is not None and connection.transport.is_closing()
        if is_closing:
            connection.deadline = min(connection.deadline, now + self.limits.goodbye_s)
        if connection.is_stuck(now):
            return UNREAD
        if connection.deadline >= now:
            return ""
        if connection.transport is None:
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
            fields = dict(self._unlogged) | {"open": self._crowd.total, "address": self._listener_name()}
            log.warning("connections dropped: too many at once", extra={"fields": fields})
            self._unlogged.clear()
            self._next_log = self.loop.time() + self.limits.log_s

    def _listener_name(self) -> str:
        try:
            return ":".join(str(part) for part in self._listener.getsockname()[:2])
        except OSError:
            return ""
