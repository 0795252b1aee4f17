"""A real HTTP server on loopback that answers as a test says, for tests of clients."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

POLL_S = 0.01


class Request(NamedTuple):
    """A request as the client sent it; `target` with its query, or whole where a proxy is asked."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class StubServer(ThreadingHTTPServer):
    """Serves from a thread while it is entered.

    `answer` gives a status and a value for JSON, bytes, or a list of bytes to be sent chunk by chunk; headers may
    follow. Status 0 closes the connection instead. `protocol` is the version of HTTP that it speaks.
    """

    daemon_threads = True
    protocol = "HTTP/1.1"

    def __init__(self, answer: Callable[[Request], tuple[Any, ...]], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer

    @property
    def url(self) -> str:
        """Where it answers, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(POLL_S,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # the client acknowledges the headers 40 ms late
    server: StubServer

    def setup(self) -> None:
        self.protocol_version = self.server.protocol
        super().setup()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, answer, *headers = self.server.answer(Request(self.command, self.path, dict(self.headers), body))
        if not status:
            self.close_connection = True
            return
        self.send_response(status)
        if self.close_connection and self.protocol_version == "HTTP/1.1":
            self.send_header("Connection", "close")  # else a client that asked for that may use it once more
        for name, value in headers:
            self.send_header(name, value)
        if isinstance(answer, list) and answer and isinstance(answer[0], bytes):
            self.send_header("Transfer-Encoding", "chunked")
            parts = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*answer, b""]]
        else:
            parts = [answer if isinstance(answer, bytes) else json.dumps(answer).encode()]
            self.send_header("Content-Length", str(len(parts[0])))
        self.end_headers()
        for part in parts:
            self.wfile.write(part)

    do_POST = do_PATCH = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""
