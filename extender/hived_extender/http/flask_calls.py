"""One request in Flask, from ASGI: its WSGI environment, and its answer piece by piece."""

import asyncio
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hived_extender.http.bodies import CLOSE_HEADER, Message, Receive, Scope, Send
from hived_extender.http.callers import CALLER
from hived_extender.http.gated_app import CLOSE, GatedApp
from hived_extender.http.identities import Identity


class FlaskCall:
    """One request in Flask. It is begun on a thread, but the pieces of its answer are made on the event loop.

    A thread that made them would compete with the loop for the interpreter's lock, for which each filter call would
    wait several times.
    """

    def __init__(self, app: GatedApp, environ: dict[str, Any], send: Send) -> None:
        self._app = app
        self._environ = environ
        self._send = send
        self._is_client_gone = False
        self._start: Message = {}

    async def watch_client(self, receive: Receive) -> None:
        """Note when the client goes away: nobody needs the rest of the answer."""
        await receive()
        self._is_client_gone = True

    def begin(self) -> Iterable[bytes]:
        """The pieces of the answer, to be made by `answer`. For a thread."""
        return self._app(self._environ, self._start_response)

    async def answer(self, pieces: Iterable[bytes], turn: asyncio.Lock) -> None:
        """Make and send each piece, none before the client has read enough of the last, until it goes away.

        The connection of a client that does not read is ended (`guard.py`), so this ends in bounded time.
        Calls of one `turn` make one piece among them before others are served; an empty piece is not sent.
        """
        rest, whole = iter(pieces), list[bytes]()
        try:
            while (piece := await _next(rest, turn)) is not None and not self._is_client_gone:
                if self._environ.get("SERVER_PROTOCOL") == "HTTP/1.0":
                    whole.append(piece)
                elif piece:
                    await self._deliver(piece, is_last=False)
            if not self._is_client_gone:
                await self._deliver(self._with_length(whole), is_last=True)
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()

    def _with_length(self, whole: list[bytes]) -> bytes:
        """The body for a client with HTTP/1.0, which knows no chunks; empty where the pieces have been sent."""
        body = b"".join(whole)
        if whole and not any(name == b"content-length" for name, _ in self._start["headers"]):
            self._start["headers"].append((b"content-length", b"%d" % len(body)))
        return body

    def _start_response(self, status: str, headers: list[tuple[str, str]], _: object = None) -> Callable[[bytes], None]:
        self._start = {
            "type": "http.response.start",
            "status": int(status[:3]),
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
        if self._environ.get(CLOSE):
            self._start["headers"].append(CLOSE_HEADER)
        return _refuse_write

    async def _deliver(self, piece: bytes, *, is_last: bool) -> None:
        if self._start:
            start, self._start = self._start, {}
            await self._send(start)
        await self._send({"type": "http.response.body", "body": piece, "more_body": not is_last})


async def _next(pieces: Iterator[bytes], turn: asyncio.Lock) -> bytes | None:
    """The next piece; others are served before there can be another. None at the end."""
    async with turn:
        piece = next(pieces, None)
        if piece is not None:
            await asyncio.sleep(0)
        return piece


def _refuse_write(_: bytes) -> None:
    """WSGI's old way to send a piece, which Flask does not use."""
    raise NotImplementedError("an answer is made of pieces that are returned")


def caller_of(scope: Scope) -> Identity | None:
    """The identity in the verified client certificate of the connection."""
    caller: Identity | None = scope.get("state", {}).get(CALLER)
    return caller


def environ_of(scope: Scope, body: bytes) -> dict[str, Any]:
    """The WSGI environment of a request whose body has been read."""
    host, port = scope.get("server") or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode("utf-8", "surrogatepass").decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "REMOTE_ADDR": (scope.get("client") or ("",))[0],
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        CALLER: caller_of(scope),
    }
    for name, value in scope["headers"]:
        key = name.decode("latin-1").upper().replace("-", "_")
        if key in {"CONTENT_LENGTH", "TRANSFER_ENCODING"}:
            continue
        key, text = key if key == "CONTENT_TYPE" else f"HTTP_{key}", value.decode("latin-1")
        environ[key] = f"{environ[key]}, {text}" if key in environ else text
    return environ
