"""Callers of the service: a keep-alive connection with a stopwatch, many that open at once, and open pages.

As a program it is one of two callers that disturb others. `callers status URL` reads the status of all cells again and
again, and prints the ns of each. `callers pages URL NODES JOB...` keeps twenty pages open as browsers do: each asks
again for what changes, with the tag of the answer that it has. Each line of its input has them rest, or ask on. When
the input ends, it prints the ns of each answer.
"""

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from urllib.parse import quote

import uvloop

from hived_extender.http.pages.jobs_pages import MANY, SELDOM_S
from hived_extender.http.pages.site import FRAGMENT, POLL_S

STATUS = "/v1/inspect/clusterstatus"
NODE_LEVEL = 3
BLOCK = 512
"""Nodes of one range of cells, as the picture asks for them."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").rsplit(":", 1)
    return host, int(port)


def request_bytes(method: str, path: str, body: bytes = b"") -> bytes:
    """A request on a connection that stays open."""
    return b"%s %s HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n%s" % (
        method.encode(), path.encode(), len(body), body,
    )  # fmt: skip


class Connection:
    """HTTP/1.1 on one socket with little work between the bytes and the stopwatch."""

    def __init__(self, url: str) -> None:
        self._socket = socket.create_connection(_address(url))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb", 1 << 20)

    def close(self) -> None:
        """Close the socket."""
        self._answers.close()
        self._socket.close()

    def call(self, request: bytes) -> tuple[int, bytes]:
        """Send a request, read the whole answer: nanoseconds, and the body. RuntimeError unless the status is 200."""
        started = perf_counter_ns()
        self._socket.sendall(request)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self._answers.readline()
            if not line:
                raise RuntimeError("the server closed the connection")
            head += line
        length = _field(head, b"content-length")
        body = self._answers.read(int(length)) if length else b"".join(self._chunks())
        spent = perf_counter_ns() - started
        if b" 200 " not in head.splitlines()[0]:
            raise RuntimeError(f"the server answered {head.decode()}{body[:500].decode()}")
        return spent, body

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._answers.readline(), 16):
            yield self._answers.read(size)
            self._answers.readline()
        self._answers.readline()


def _field(head: bytes, name: bytes) -> bytes:
    """A field of a head, b"" if it has none."""
    start = head.lower().find(b"\r\n%s:" % name)
    return b"" if start < 0 else head[start:].split(b"\r\n", 2)[1].partition(b":")[2].strip()


@dataclass(slots=True)
class Answers:
    """Nanoseconds of all calls, and of the first call of each connection with its opening; bodies of all answers."""

    spent: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


def ask_all(url: str, connection_count: int, requests: Iterator[bytes], timeout_s: float = 60.0) -> Answers:
    """Open so many connections and share the requests among them, of which there are at least as many.

    Each asks again as soon as it has its answer. Raises RuntimeError if the server refuses, OSError or EOFError if it
    closes one, TimeoutError if all of it takes longer than `timeout_s`.
    """
    answers = Answers()

    async def call(request: bytes | None) -> None:
        began, is_first = perf_counter_ns(), True
        streams = await _connect(url)
        while request is not None:
            status, _, body = await _exchange(streams, request)
            spent = perf_counter_ns() - began
            if status != 200:
                raise RuntimeError(f"the server answered {status} {body[:500].decode()}")
            answers.spent.append(spent)
            answers.bodies.append(body)
            answers.first += [spent] if is_first else []
            request, began, is_first = next(requests, None), perf_counter_ns(), False
        streams[1].close()

    async def call_all() -> None:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*[call(next(requests)) for _ in range(connection_count)])

    uvloop.run(call_all())
    return answers


async def _connect(url: str) -> Streams:
    return await asyncio.open_connection(*_address(url))


async def _exchange(streams: Streams, request: bytes) -> tuple[int, bytes, bytes]:
    """Send a request: status, head and body of the answer."""
    reader, writer = streams
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head, await reader.readexactly(int(_field(head, b"content-length") or 0))


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page by the path of what it asks for again, every so many seconds."""

    path: str
    every_s: float = POLL_S
    is_part: bool = True

    def request(self, tag: str) -> bytes:
        """Ask for what may have changed since the answer with this tag."""
        fields = [f"GET {self.path} HTTP/1.1", "Host: bench", "Accept-Encoding: gzip"]
        fields += [f"{FRAGMENT}: true", "Accept: text/html"] if self.is_part else []
        fields += [f"If-None-Match: {tag}"] if tag else []
        return "\r\n".join([*fields, "", ""]).encode()

    async def keep_open(self, url: str, delay_s: float, may_ask: threading.Event, spent: list[int]) -> None:
        """Ask again and again. Raises RuntimeError if the page cannot be read."""
        await asyncio.sleep(delay_s)
        streams, tag = await _connect(url), ""
        while True:
            if may_ask.is_set():  # pages keep their turns, so that they do not ask all at once later
                began = perf_counter_ns()
                streams = await _connect(url) if streams[0].at_eof() else streams  # silent ones are closed
                status, head, body = await _exchange(streams, self.request(tag))
                if status not in (200, 304):
                    raise RuntimeError(f"{self.path}: {status} {body[:500].decode(errors='replace')}")
                tag = _field(head, b"etag").decode() or tag
                spent.append(perf_counter_ns() - began)
            await asyncio.sleep(self.every_s)


def open_pages(node_count: int, jobs: Sequence[str]) -> list[OpenPage]:
    """Twenty open pages; `jobs` are the names of four jobs or more. A cluster's page asks for its picture as well."""
    ranges = ",".join(
        f"0.{NODE_LEVEL}.{first}-{min(node_count, first + BLOCK)}" for first in range(0, node_count, BLOCK)
    )
    clusters = [OpenPage("/page/cluster")] * 6
    pictures = [OpenPage(f"/page/cells/tiles?at={ranges}", is_part=False)] * 6
    queries = ("", "vc=alpha", "state=Waiting", "words=job-1", "rows=2")
    lists = [OpenPage(f"/page/jobs?{query}", SELDOM_S if node_count >= MANY else POLL_S) for query in queries]
    single = [OpenPage(f"/page/jobs/{quote(name)}", SELDOM_S) for name in jobs[:4]]
    vcs = [OpenPage(f"/page/vcs{name}") for name in ("", "", "/alpha", "/beta", "/gamma")]
    return [*clusters, *lists, *single, *vcs, *pictures]


async def read_pages(url: str, pages: Sequence[OpenPage]) -> list[int]:
    """Keep pages open until standard input ends; opens them evenly within their time."""
    spent, may_ask = list[int](), threading.Event()
    may_ask.set()
    delays = [page.every_s * number / len(pages) for number, page in enumerate(pages)]
    tasks = [
        asyncio.create_task(page.keep_open(url, delay, may_ask, spent))
        for page, delay in zip(pages, delays, strict=True)
    ]
    print("open", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        (may_ask.clear if may_ask.is_set() else may_ask.set)()
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    return spent


def main() -> None:
    kind, url, *rest = sys.argv[1:]
    if kind == "pages":
        node_count, *jobs = rest
        print("\n".join(map(str, uvloop.run(read_pages(url, open_pages(int(node_count), jobs))))))
        return
    connection = Connection(url)
    while True:
        print(connection.call(request_bytes("GET", STATUS))[0], flush=True)


if __name__ == "__main__":
    main()
