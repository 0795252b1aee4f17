"""Bytes to requests and answers to bytes: the ASGI application of the API server.

It is made for programs on the same machine and has no authentication. So that no web page can use it, it answers only
under a loopback name and refuses what browsers send across origins.
"""

import asyncio
import logging
import re

from hived_extender.http.bodies import ClientGoneError, Receive, Scope, Send, TooLargeError, read_body
from hived_lab.embedded.apiserver import statuses
from hived_lab.embedded.apiserver.bodies import encode
from hived_lab.embedded.apiserver.requests import JSON, Request, Response
from hived_lab.embedded.apiserver.rest import Rest
from hived_lab.embedded.apiserver.statuses import ApiError
from hived_lab.embedded.apiserver.watching import Watch

MAX_BODY_BYTES = 3 * 1024 * 1024
_LOOPBACK_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?")

log = logging.getLogger(__name__)


class Application:
    """The ASGI application over `rest`."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            _refuse_web_pages(headers)
            body = await _body(receive)
        except ClientGoneError:  # half a request is not carried out
            return
        except ApiError as refusal:
            await _send_response(send, Response(refusal.code, encode(refusal.status())))
            return
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        answer = self._answer(Request(scope["method"], path.partition("?")[0], query, headers, body))
        if isinstance(answer, Watch):
            await _send_watch(send, receive, answer)
        else:
            await _send_response(send, answer)

    def close(self) -> None:
        """Nothing is left to be done."""

    def _answer(self, request: Request) -> Response | Watch:
        try:
            return self._rest.handle(request)
        except Exception:
            log.exception("the API server failed on %s %s", request.method, request.path)
            failure = ApiError(500, "InternalError", "internal error, see the server's log")
            return Response(500, encode(failure.status()))


def _refuse_web_pages(headers: dict[str, str]) -> None:
    host = headers.get("host", "localhost")
    if not _LOOPBACK_HOST.fullmatch(host) or "origin" in headers:
        raise statuses.forbidden("host", host, "the embedded cluster serves local programs only")


async def _body(receive: Receive) -> bytes:
    try:
        return await read_body(receive, MAX_BODY_BYTES)
    except TooLargeError:
        raise statuses.too_large(MAX_BODY_BYTES) from None


async def _send_response(send: Send, response: Response) -> None:
    headers = [
        (b"content-type", response.content_type.encode()),
        (b"content-length", b"%d" % len(response.content)),
        *((b"warning", _warning(text)) for text in response.warnings),
    ]
    await send({"type": "http.response.start", "status": response.code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})


def _warning(text: str) -> bytes:
    quoted = text.encode("ascii", "backslashreplace").decode().replace("\\", "\\\\").replace('"', '\\"')
    printable = "".join(letter if letter.isprintable() else " " for letter in quoted)
    return f'299 - "{printable}"'.encode()


async def _send_watch(send: Send, receive: Receive, watch: Watch) -> None:
    """Send lines until the watch ends or the client goes away."""
    headers = [(b"content-type", JSON.encode()), (b"cache-control", b"no-cache, private")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    telling = asyncio.ensure_future(_send_chunks(send, watch))
    leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((telling, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (telling, leaving):
            task.cancel()
        await asyncio.gather(telling, leaving, return_exceptions=True)
    await send({"type": "http.response.body", "body": b""})


async def _send_chunks(send: Send, watch: Watch) -> None:
    async for chunk in watch.chunks():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
