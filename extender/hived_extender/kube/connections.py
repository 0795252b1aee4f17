"""Kept connections to one HTTP server, for small calls that are made often.

urllib3 makes the connections, with all that belongs to TLS. Requests and answers are written and read here: a request
is one write, an answer is parsed in C. A call costs a quarter of the CPU that urllib3 takes for it, nearly all of which
is Python around the two. Nothing is sent twice: the caller knows whether a call can be repeated.
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httptools
import msgspec
import urllib3
from httptools.parser.errors import HttpParserError, HttpParserUpgrade
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import parse_url
from urllib3.util.wait import wait_for_read

READ_SIZE = 256 * 1024
AS_IT_IS = "/?&=%:,;@+!$'()*~"
"""Characters besides letters and digits that a path and a query are made of."""


class BrokenError(Exception):
    """There is no answer: no connection, too late, cut short, or not HTTP."""


class Reply(msgspec.Struct, frozen=True):
    """An answer, whatever its status."""

    status: int
    body: bytes


class Connections:
    """Thread-safe. Connections are made when no idle one is left, and at most `most_idle` are kept.

    `options` are those of urllib3's `HTTPSConnection`. Options of TLS are ignored where `host` has no https.
    """

    def __init__(self, host: str, options: Mapping[str, Any], *, most_idle: int) -> None:
        url = parse_url(host)
        self._is_tls = url.scheme == "https"
        self._server = ((url.host or "").strip("[]"), url.port)
        self._prefix = (url.path or "").rstrip("/")
        self._head = f"HTTP/1.1\r\nHost: {url.netloc}\r\n"
        self._options = {name: value for name, value in options.items() if self._is_tls or name == "socket_options"}
        self._most_idle = most_idle
        self._idle: list[HTTPConnection] = []  # the one that was used last is at the end
        self._busy: set[HTTPConnection | None] = set()
        self._is_aborted = False

    def call(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        connect_timeout_s: float,
        read_timeout_s: float,
    ) -> Reply:
        """Send a request and read the whole answer. `read_timeout_s` is for each piece of it. Raises BrokenError."""
        request = self._request(method, target, headers, body)
        connection: HTTPConnection | None = None
        try:
            connection = self._take() or self._connect(connect_timeout_s)
            self._busy.add(connection)
            if self._is_aborted:
                raise ConnectionAbortedError("no more calls are wanted")
            reply, is_kept = _exchange(connection, request, read_timeout_s)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, OSError | urllib3.exceptions.HTTPError):
                raise BrokenError(str(error) or type(error).__name__) from error
            raise
        finally:
            self._busy.discard(connection)
        if is_kept and len(self._idle) < self._most_idle:
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    def clear(self) -> None:
        """Close idle connections."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def retire(self) -> None:
        """Keep no connection any more: idle ones are closed now, and busy ones after their call."""
        self._most_idle = 0
        self.clear()

    def abort(self) -> None:
        """End all calls under way, which fail, and let every later one fail."""
        self._is_aborted = True
        for connection in tuple(self._busy):
            sock = connection.sock if connection is not None else None
            if sock is not None:  # a call that ends by itself has no socket any more
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        path = quote(self._prefix + target, safe=AS_IT_IS)
        return f"{method} {path} {self._head}{lines}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body

    def _take(self) -> HTTPConnection | None:
        """An idle connection that the server has not closed."""
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if not wait_for_read(connection.sock, timeout=0):
                    return connection
                connection.close()
        return None

    def _connect(self, timeout_s: float) -> HTTPConnection:
        kind = HTTPSConnection if self._is_tls else HTTPConnection
        connection = kind(*self._server, timeout=timeout_s, **self._options)
        connection.connect()
        # An answer is waited for before the next request, so that nothing is gained by holding a segment back.
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


class _Answer:
    """Collects an answer as httptools parses it, and ignores whatever follows: one request has one answer."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.pieces: list[bytes] = []
        self.status = 0
        self.has_headers = self.is_complete = self.is_kept = False

    def feed(self, data: bytes) -> None:
        """Parse more bytes. Raises ConnectionError if they are no answer."""
        try:
            self.parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self.is_complete:
                is_switch = isinstance(error, HttpParserUpgrade)
                raise ConnectionError("the server changes to another protocol" if is_switch else str(error)) from error
            self.is_kept = False

    def on_message_begin(self) -> None:
        if self.is_complete:  # the next call would take it for its own answer
            self.is_kept = False

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        self.status = self.parser.get_status_code()
        self.has_headers = self.status >= 200  # others announce the answer
        self.is_kept = self.parser.should_keep_alive()

    def on_body(self, piece: bytes) -> None:
        if not self.is_complete:
            self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.is_complete = self.has_headers


def _exchange(connection: HTTPConnection, request: bytes, timeout_s: float) -> tuple[Reply, bool]:
    """The answer, and whether the connection can be used again."""
    sock = connection.sock
    sock.settimeout(timeout_s)
    sock.sendall(request)
    answer = _Answer()
    while not answer.is_complete:
        data = sock.recv(READ_SIZE)
        if data:
            answer.feed(data)
        elif answer.has_headers and not answer.is_kept:
            break  # an answer without a length lasts until the connection ends
        else:
            raise ConnectionError("the server ended the connection before it had answered")
    return Reply(answer.status, b"".join(answer.pieces)), answer.is_complete and answer.is_kept
