"""A keep-alive HTTP client with a stopwatch; as a program it reads the status of all cells until it is killed."""

import socket
import sys
from contextlib import closing
from time import perf_counter_ns

STATUS = "/v1/inspect/clusterstatus"


class Connection:
    """HTTP/1.1 on one socket with no work between the bytes and the stopwatch."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def call(self, request: bytes) -> tuple[int, bytes]:
        """Send a request, read the whole answer: nanoseconds, and the body. RuntimeError unless the status is 200."""
        started = perf_counter_ns()
        self._socket.sendall(request)
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        head, body = data[:end].lower(), [data[end + 4 :]]
        if b"content-length:" in head:
            missing = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) - len(body[0])
            while missing > 0:
                body.append(self._receive())
                missing -= len(body[-1])
        else:
            end_of_body = body[0][-5:]
            while end_of_body != b"0\r\n\r\n":
                body.append(self._receive())
                end_of_body = (end_of_body + body[-1])[-5:]
        spent = perf_counter_ns() - started
        if b" 200 " not in head.splitlines()[0]:
            raise RuntimeError(f"the server answered {head.decode()}: {b''.join(body)[:500].decode()}")
        return spent, b"".join(body) if b"content-length:" in head else _joined(b"".join(body))

    def poll(self, request: bytes) -> str:
        """Ask for what may have changed: the tag of the answer, "" for none. RuntimeError unless it is 200 or 304."""
        self._socket.sendall(request)
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        status, *lines = data[:end].decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        left = int(fields.get("content-length", "0")) - len(data[end + 4 :])
        while left > 0:
            left -= len(self._receive())
        if status.split(" ")[1] not in {"200", "304"}:
            raise RuntimeError(f"the server answered {status} {data[end + 4 :][:500].decode(errors='replace')}")
        return fields.get("etag", "")

    def _receive(self) -> bytes:
        piece = self._socket.recv(1 << 20)
        if not piece:
            raise RuntimeError("the server closed the connection")
        return piece


def _joined(chunks: bytes) -> bytes:
    """The body that was sent in chunks."""
    parts = []
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        parts.append(rest[: int(size, 16)])
        chunks = rest[int(size, 16) + 2 :]
    return b"".join(parts)


def request_bytes(method: str, path: str, body: bytes = b"") -> bytes:
    """A request on a connection that stays open."""
    return b"%s %s HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n%s" % (
        method.encode(), path.encode(), len(body), body,
    )  # fmt: skip


def read_status_forever(url: str) -> None:
    """Prints a line for each answer: how long it took, in ns."""
    request = request_bytes("GET", STATUS)
    with closing(Connection(url)) as connection:
        while True:
            print(connection.call(request)[0], flush=True)


if __name__ == "__main__":
    read_status_forever(sys.argv[1])
