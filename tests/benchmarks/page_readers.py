"""Twenty open pages, as browsers keep them: each asks again for what changes, with the tag of the answer that it has.

As a program, `python -m tests.benchmarks.page_readers URL NODES JOB`, it keeps them open until its standard input ends.
Each line there has them rest, or ask on. In the end it prints how long each answer took, in ns, one a line.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import perf_counter_ns
from urllib.parse import quote

from hived_extender.http.pages.jobs_pages import MANY, SELDOM_S
from hived_extender.http.pages.site import FRAGMENT, POLL_S
from tests.benchmarks.client import Connection

NODE_LEVEL = 3
BLOCK = 512
"""Nodes of one range of cells, as the picture asks for them."""


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page by the path of what it asks for again, every so many seconds."""

    path: str
    every_s: float = POLL_S
    is_part: bool = True


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


class Readers:
    """Asks for all pages, each on a connection and a thread of its own. `spent` has the ns of each answer."""

    def __init__(self, url: str, pages: Sequence[OpenPage]) -> None:
        self.spent: list[int] = []
        self._url = url
        self._is_stopping = threading.Event()
        self._may_ask = threading.Event()
        self._may_ask.set()
        self._failures: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._read, args=(page, number / len(pages)), daemon=True)
            for number, page in enumerate(pages)
        ]

    def start(self) -> None:
        """Open the pages, evenly within their time."""
        for thread in self._threads:
            thread.start()

    def rest_or_go_on(self) -> None:
        """Ask for nothing for a while, as pages that nobody looks at; or go on."""
        (self._may_ask.clear if self._may_ask.is_set() else self._may_ask.set)()

    def stop(self) -> None:
        """Close them. Raises the first mistake of any."""
        self._is_stopping.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _read(self, page: OpenPage, delay: float) -> None:
        try:
            self._is_stopping.wait(delay * page.every_s)
            with ExitStack() as stack:
                connection, tag = None, ""
                while not self._is_stopping.is_set():
                    if self._may_ask.is_set():  # pages keep their turns, so that they do not ask all at once later
                        began = perf_counter_ns()
                        # A browser connects when it asks: a connection that stays silent is closed after seconds.
                        connection = connection or stack.enter_context(closing(Connection(self._url)))
                        tag = connection.poll(b"".join(_request(page, tag))) or tag
                        self.spent.append(perf_counter_ns() - began)
                    self._is_stopping.wait(page.every_s)
        except Exception as error:
            self._failures.append(error)


def _request(page: OpenPage, tag: str) -> Iterator[bytes]:
    yield b"GET %s HTTP/1.1\r\nHost: bench\r\nAccept-Encoding: gzip\r\n" % page.path.encode()
    yield b"%s: true\r\nAccept: text/html\r\n" % FRAGMENT.encode() if page.is_part else b""
    yield b"If-None-Match: %s\r\n" % tag.encode() if tag else b""
    yield b"\r\n"


def main() -> None:
    url, node_count, *jobs = sys.argv[1:]
    readers = Readers(url, open_pages(int(node_count), jobs))
    readers.start()
    print("open", flush=True)
    for _ in sys.stdin:
        readers.rest_or_go_on()
    readers.stop()
    print("\n".join(map(str, readers.spent)))


if __name__ == "__main__":
    main()
