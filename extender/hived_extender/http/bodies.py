"""Bodies of requests and answers over ASGI: read with limits on size, time and memory, sent as a whole.

A body is admitted as a whole before it is read: as many bytes as it announces, or the limit of its path if it does not
say. A `Budget` bounds the memory of all bodies of a kind; a body without room waits for earlier ones. Each kind has a
budget of its own, so that no kind waits for another. The bytes are given back once the request is answered.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from hived_extender.http.answers import Answer
from hived_extender.jobs.wire import encode

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes, of any body. A filter call for 16,000 nodes with names of the longest kind is 4 MB."""

CLOSE = "hived.close"
"""Set in the WSGI environment by an answer after which the connection is to be closed; the header itself is the
server's affair."""

BODY_TIMEOUT_S = 10.0
"""Until a body is admitted; and from then on, until it has arrived."""

MOST_WAITING = 128
"""Bodies that wait to be admitted. Each holds what its connection had sent with the headers, at most 256 KiB."""

RETRY_AFTER = ("Retry-After", "1")
CLOSE_HEADER = (b"connection", b"close")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _Refused(Exception):
    """The body is not read; the connection cannot be used any more."""

    def __init__(self, message: str, status: int, *headers: tuple[str, str]) -> None:
        self.answer = Answer(encode(message), status, headers=headers)


class ClientGoneError(Exception):
    """The client has closed the connection."""


class TooLargeError(Exception):
    """The body has more bytes than it may."""


class Budget:
    """Bytes of bodies, or places of threads, that may be in use at once: `used <= size`. For one event loop."""

    def __init__(self, size: int, most_waiting: int = MOST_WAITING) -> None:
        self.size = size
        self.used = 0
        self._most_waiting = most_waiting
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def has_queue(self) -> bool:
        """True if as many bodies wait as may."""
        return len(self._waiting) >= self._most_waiting

    def try_take(self, count: int) -> bool:
        """Take room if there is any now and no other body waits for it."""
        if self._waiting or self.used + count > self.size:
            return False
        self.used += count
        return True

    async def take(self, count: int) -> None:
        """Wait for room, behind earlier waiters. `count` must not exceed `size`."""
        if self.try_take(count):
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (admitted, count)
        self._waiting.append(waiter)
        try:
            await admitted
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                self._admit()
            else:
                self.give_back(count)  # admitted, and given up in the same moment
            raise

    def give_back(self, count: int) -> None:
        """These bytes are not needed any more."""
        self.used -= count
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self.used + self._waiting[0][1] <= self.size:
            admitted, count = self._waiting.popleft()
            self.used += count
            if not admitted.done():
                admitted.set_result(None)


class Share(msgspec.Struct, frozen=True):
    """The room for bodies of a kind. Bodies of at most `small_limit` bytes have a budget of their own, so that they
    never wait for large ones.
    """

    budget: Budget
    small_budget: Budget
    small_limit: int

    def of(self, count: int) -> Budget:
        """The budget for a body of so many bytes."""
        return self.small_budget if count <= self.small_limit else self.budget


class Body:
    """The body of a request, for as long as the context lasts; None if there is none to be had.

    Then the request has been answered, or the client has gone.
    """

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, limit: int, share: Share, timeout_s: float = BODY_TIMEOUT_S
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limit = limit
        self._share = share
        self._timeout_s = timeout_s
        self._budget = share.budget
        self._taken = 0

    async def __aenter__(self) -> bytes | None:
        try:
            await self._take(_announced(self._scope, self._limit))
            async with asyncio.timeout(self._timeout_s):
                body = await read_body(self._receive, self._limit)
            self._keep(len(body))
            return body
        except _Refused as refusal:
            await self._refuse(refusal.answer)
        except TooLargeError:
            await self._refuse(Answer(encode(f"the body has more than {self._limit} bytes"), 413))
        except TimeoutError:
            message = f"the body did not arrive within {self._timeout_s:g} s"
            await self._refuse(Answer(encode(message), 408))
        except ClientGoneError:
            self._keep(0)
        except BaseException:
            self._keep(0)
            raise
        return None

    async def __aexit__(self, *_: object) -> None:
        self._keep(0)

    async def _refuse(self, answer: Answer) -> None:
        self._keep(0)
        await send_answer(self._send, answer, close=True)

    async def _take(self, count: int) -> None:
        """Raises _Refused if there is no room in time."""
        if not count:
            return
        self._budget = self._share.of(count)
        message = "too many bodies are being read at once: try again"
        if self._budget.has_queue:
            raise _Refused(message, 503, RETRY_AFTER)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._budget.take(count)
        except TimeoutError as error:
            raise _Refused(message, 503, RETRY_AFTER) from error
        self._taken = count

    def _keep(self, count: int) -> None:
        """Give back all but so many bytes."""
        if count < self._taken:
            taken, self._taken = self._taken, count
            self._budget.give_back(taken - count)


def _announced(scope: Scope, limit: int) -> int:
    """Bytes to admit for a body. Raises _Refused if it is too large."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return limit
        if name == b"content-length":
            if int(value) > limit:
                raise _Refused(f"the body has {int(value)} bytes, at most {limit} are read", 413)
            return int(value)
    return 0


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body of a request. Raises TooLargeError beyond `limit` bytes, ClientGoneError before its end."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        piece = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise TooLargeError
        if not message.get("more_body", False):
            return b"".join(pieces)


async def send_answer(send: Send, reply: Answer, *, close: bool = False) -> None:
    """Send a whole answer; `close` ends the connection, as an answer does that another replica can give."""
    body = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
    headers = [(b"content-type", reply.content_type.encode()), (b"content-length", b"%d" % len(body))]
    headers += [(name.lower().encode(), value.encode()) for name, value in reply.headers]
    if close or reply.is_elsewhere:
        headers.append(CLOSE_HEADER)
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
