"""One request and its answer: its head as the parser has read it, and the ASGI messages of whoever answers it.

An answer is written in as few pieces as there are: the head goes with the first piece of the body, if that comes at
once. Exchanges of one connection are answered in the order of their requests; `HttpProtocol` sees to that.
"""

import asyncio
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from hived_extender.http.answers import Answer
from hived_extender.http.bodies import CLOSE_HEADER, Budget, Message, Receive, Scope, Send
from hived_extender.http.heads import Head
from hived_extender.pods.wire import encode

log = logging.getLogger(__name__)

READ_AHEAD = 64 * 1024
"""Bytes of a body that nobody has asked for yet; beyond, the client has to wait."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
STATUS_LINES = {each.value: b"HTTP/1.1 %d %s\r\n" % (each.value, each.phrase.encode()) for each in HTTPStatus}
BODILESS = frozenset((204, 304))
FAILED = Answer(b"Internal Server Error", 500, "text/plain; charset=utf-8")


class Admission(msgspec.Struct):
    """The room that a body was given: so many bytes of a budget, until it is answered; it has `timeout_s` to arrive."""

    budget: Budget
    length: int
    timeout_s: float

    def end(self) -> None:
        """Give the room back. May be called twice."""
        length, self.length = self.length, 0
        if length:
            self.budget.give_back(length)


class Application(Protocol):
    """An ASGI application, closed when the last request has been answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

    def close(self) -> None:
        """Wait for calls that are still being answered."""


class Wire(Protocol):
    """The connection, as an exchange needs it."""

    transport: asyncio.Transport
    scope: dict[str, Any]
    """The part of an ASGI scope that is the same for every request."""

    def close(self) -> None:
        """End the connection once everything is sent."""

    async def drain(self) -> None:
        """Wait until the client has read enough of the answer."""

    def resume_reading(self) -> None:
        """More of the body is wanted."""

    def answered(self, exchange: "Exchange") -> None:
        """The answer is complete."""


class _Progress(msgspec.Struct):
    """How far an answer is: `missing` bytes are announced and not sent; None where it comes in chunks."""

    is_started: bool = False
    missing: int | None = 0
    is_chunked: bool = False
    head: list[bytes] = msgspec.field(default_factory=list)


class Exchange:
    """One request and its answer. For the event loop's thread.

    With an `admission` the body is collected and answered at once, by `reply`; else an application asks for it.
    """

    __slots__ = (
        "_answer", "_is_end_told", "_is_lost", "_pieces", "_size", "_timer", "_waiter", "_wire",
        "admission", "head", "is_answered", "is_whole",
    )  # fmt: skip

    def __init__(self, wire: Wire, head: Head) -> None:
        self._wire = wire
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._answer = _Progress()
        self._is_end_told = self._is_lost = False
        self.head = head
        self.admission: Admission | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_whole = False
        self.is_answered = False

    # The request

    @property
    def is_started(self) -> bool:
        """Whether a part of the answer may have been sent."""
        return self._answer.is_started

    def feed(self, piece: bytes) -> bool:
        """A piece of the body has come; False if no more should come before it is asked for."""
        if self.is_answered:
            return True
        self._pieces.append(piece)
        self._size += len(piece)
        self._wake()
        return self.admission is not None or self._size <= READ_AHEAD

    def end(self) -> None:
        """The body has come as a whole."""
        self.is_whole = True
        self._wake()

    def limit_time(self, seconds: float) -> None:
        """The body has to be there by then; else the answer is 408 and the end of the connection."""
        if self.is_answered:
            return
        refusal = Answer(encode(f"the body did not arrive within {seconds:g} s"), 408)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, lambda: None if self.is_whole else self.reply(refusal, close=True))

    def lost(self) -> None:
        """The connection is gone."""
        self._is_lost = True
        self._release()
        self._wake()

    def take_body(self) -> bytes:
        """The bytes that have come since the last call."""
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.admission is not None:
            self.admission.end()

    # The answer, over ASGI

    async def run(self, application: Application) -> None:
        """Have an application answer; if it fails, the answer is 500."""
        try:
            await application(self._scope(), self._receive, self._send)
        except Exception:
            log.exception("a request could not be answered")
        if not self.is_answered and not self._is_lost:
            if self._answer.is_started:
                self._wire.close()  # the client sees that the answer ends too early
            else:
                self.reply(FAILED, close=True)

    def _scope(self) -> dict[str, Any]:
        head = self.head
        return {
            **self._wire.scope,
            "state": dict(self._wire.scope["state"]),
            "http_version": head.version,
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "headers": head.headers,
        }

    async def _receive(self) -> Message:
        if self.head.expects_continue and not self._answer.is_started and not self._wire.transport.is_closing():
            self.head.expects_continue = False
            self._wire.transport.write(CONTINUE)
        while not (self._pieces or self._is_lost or self.is_answered or self.is_whole > self._is_end_told):
            self._wire.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._is_lost or self.is_answered:
            return {"type": "http.disconnect"}
        self._is_end_told = self.is_whole
        return {"type": "http.request", "body": self.take_body(), "more_body": not self.is_whole}

    async def _send(self, message: Message) -> None:
        await self._wire.drain()
        if self._is_lost:
            return
        if self.is_answered:
            raise RuntimeError("the answer is complete already")
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        else:
            self._continue(message.get("body", b""), has_more=message.get("more_body", False))

    def _start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Make the head of the answer; it is sent with the first piece of the body, or without one that is not there
        yet: the client of a watch waits for the head.
        """
        head, answer = self.head, self._answer
        if answer.is_started:
            raise RuntimeError("the answer has begun already")
        lines, length = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status], None
        for name, value in headers:
            if b"\n" in value or b"\r" in value or b"\n" in name or b"\r" in name:
                raise RuntimeError(f"a header of the answer has several lines: {name!r}")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"connection":
                head.is_keep_alive = head.is_keep_alive and value.strip().lower() != b"close"
                continue
            lines.append(b"%s: %s\r\n" % (name, value))
        answer.is_started, answer.missing = True, length
        if head.method == "HEAD" or status in BODILESS:
            answer.missing = 0
        elif length is None and head.version == "1.1":
            answer.is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        elif length is None:
            head.is_keep_alive = False  # the end of the connection is the end of the body
        if not head.is_keep_alive:
            lines.append(b"%s: %s\r\n" % CLOSE_HEADER)
        lines.append(b"\r\n")
        answer.head = lines
        asyncio.get_running_loop().call_soon(self._send_head)

    def _send_head(self) -> None:
        lines, self._answer.head = self._answer.head, []
        if lines and not self._is_lost:
            self._wire.transport.write(b"".join(lines))

    def _continue(self, piece: bytes, *, has_more: bool) -> None:
        answer = self._answer
        if not answer.is_started:
            raise RuntimeError("the body of an answer comes after its head")
        lines, answer.head = answer.head, []
        if answer.is_chunked:
            lines += [b"%x\r\n" % len(piece), piece, b"\r\n"] if piece else []
            lines += [] if has_more else [b"0\r\n\r\n"]
        elif answer.missing is None:
            lines.append(piece)
        elif self.head.method != "HEAD":
            answer.missing -= len(piece)
            if answer.missing < 0 or (answer.missing and not has_more):
                raise RuntimeError("the body of an answer has another length than announced")
            lines.append(piece)
        if lines:
            self._wire.transport.write(b"".join(lines))
        if not has_more:
            self._end()

    # The answer, as a whole

    def reply(self, answer: Answer, *, close: bool = False) -> None:
        """Send an answer whose body is bytes; `close` ends the connection then."""
        if self._is_lost or self.is_answered:
            return
        head, body = self.head, answer.body
        assert isinstance(body, bytes)
        if close or answer.is_elsewhere:
            head.is_keep_alive = False
        lines = [STATUS_LINES[answer.status], b"content-type: ", answer.content_type.encode(), b"\r\n"]
        lines += [b"%s: %s\r\n" % (name.lower().encode(), value.encode()) for name, value in answer.headers]
        lines.append(b"content-length: %d\r\n" % len(body))
        if not head.is_keep_alive:
            lines.append(b"%s: %s\r\n" % CLOSE_HEADER)
        lines += [b"\r\n", b"" if head.method == "HEAD" else body]
        self._wire.transport.write(b"".join(lines))
        self._end()

    def _end(self) -> None:
        self.is_answered = True
        self._pieces.clear()
        self._release()
        self._wake()
        self._wire.answered(self)
