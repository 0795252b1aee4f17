"""Bodies of requests and answers over ASGI: read with a limit on size and time, sent as a whole."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hived_extender.answers import Answer
from hived_extender.wire import encode

BODY_TIMEOUT_S = 10.0
CLOSE_HEADER = (b"connection", b"close")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _Refused(Exception):
    """The body is too large; the connection cannot be used any more."""


class _ClientGone(Exception):
    """Nobody is there to answer."""


async def receive_body(scope: Scope, receive: Receive, send: Send, limit: int, timeout_s: float) -> bytes | None:
    """The body of a request, None if there is none to be had: then it has been answered, or the client has gone."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(scope, receive, limit)
    except _Refused as refusal:
        await send_answer(send, Answer(encode(str(refusal)), 413), close=True)
    except TimeoutError:
        message = f"the body did not arrive within {timeout_s:g} s"
        await send_answer(send, Answer(encode(message), 408), close=True)
    except _ClientGone:
        pass
    return None


async def _read(scope: Scope, receive: Receive, limit: int) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > limit:
            raise _Refused(f"the body has {int(value)} bytes, at most {limit} are read")
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        piece = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _Refused(f"the body has more than {limit} bytes")
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
