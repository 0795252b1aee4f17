"""Bodies share a bounded number of bytes: those that find no room wait, and verbs wait for nobody else's."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from hived_config.loader import load_text
from hived_extender.api.paths import (
    BIND_PATH,
    CONFIG_PATH,
    CONFIG_PLAN_PATH,
    FILTER_PATH,
    HEALTH_PATH,
    PREEMPT_PATH,
    WHAT_IF_PATH,
)
from hived_extender.http import shim, webhook
from hived_extender.http.app import create_app
from hived_extender.http.bodies import BODY_LIMIT
from hived_extender.http.change_routes import CONFIG_BODY_LIMIT
from hived_extender.http.routes import SMALL_LIMIT, WHAT_IF_LIMIT
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.shim import Shim
from hived_extender.http.webhook import MUTATE_PATH, Webhook
from hived_extender.jobs.admission import Admission
from tests.extender.machine.small_cluster import CONFIG, PATIENCE_S, SmallCluster, filter_body, wait_until

LARGE = 100_000
"""Two of these fill a budget of the tests."""

BUDGET = 240_000
Start = Callable[..., "Served"]


class Served:
    """A server on loopback."""

    def __init__(self, application: Shim | Webhook) -> None:
        self.server = HttpServer(application, listen("127.0.0.1:0"))
        self.server.start()
        self.address = ("127.0.0.1", int(self.server.url.rsplit(":", 1)[1]))

    @property
    def used_bytes(self) -> int:
        """By bodies of filter calls that are under way."""
        application = self.server._application
        assert isinstance(application, Shim)
        return application._shares.of(FILTER_PATH)[1].budget.used

    def begin(self, path: str, length: int | None) -> socket.socket:
        """A connection that announces a body, chunked if `length` is None, and waits to be told to go on."""
        connection = socket.create_connection(self.address, timeout=PATIENCE_S)
        size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n{size}\r\n\r\n"
        connection.sendall(head.encode())
        return connection

    def call(self, method: str, path: str, body: bytes = b"") -> int:
        with closing(http.client.HTTPConnection(*self.address, timeout=PATIENCE_S)) as connection:
            connection.request(method, path, body)
            return connection.getresponse().status


def is_admitted(connection: socket.socket, within_s: float = PATIENCE_S) -> bool:
    """Has the server begun to read the body?"""
    connection.settimeout(within_s)
    try:
        return connection.recv(1000).startswith(b"HTTP/1.1 100")
    except TimeoutError:
        return False


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a server with small budgets, with these seconds for a body."""
    monkeypatch.setattr(shim, "VERBS_BUDGET", BUDGET)
    monkeypatch.setattr(shim, "OTHERS_BUDGET", BUDGET)
    monkeypatch.setattr(webhook, "BUDGET", BUDGET)
    started: list[Served] = []

    def begin(body_timeout_s: float = PATIENCE_S, small: SmallCluster | None = None) -> Served:
        service = (small or SmallCluster()).service
        started.append(Served(Shim(create_app(service), service, body_limit=LARGE, body_timeout_s=body_timeout_s)))
        return started[-1]

    yield begin
    for served in started:
        served.server.stop()


def test_bodies_wait_in_order_until_there_is_room(start: Start) -> None:
    served = start()
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(served.begin(FILTER_PATH, LARGE))) for _ in range(2))
        assert is_admitted(first)
        assert is_admitted(second)
        third = stack.enter_context(closing(served.begin(FILTER_PATH, LARGE)))
        assert not is_admitted(third, 0.2)
        fourth = stack.enter_context(closing(served.begin(FILTER_PATH, 10_000)))  # it would fit; the third was first
        assert not is_admitted(fourth, 0.2)
        first.sendall(b"x" * LARGE)
        assert first.recv(1000).startswith(b"HTTP/1.1 200")
        assert is_admitted(third)
        assert is_admitted(fourth)


@pytest.mark.parametrize("path", [FILTER_PATH, "/x"])
def test_a_body_that_finds_no_room_in_time_is_refused(start: Start, path: str) -> None:
    served = start(body_timeout_s=0.5)
    with ExitStack() as stack:
        for _ in range(2):
            assert is_admitted(stack.enter_context(closing(served.begin(path, LARGE))))
        late = stack.enter_context(closing(served.begin(path, LARGE)))
        late.settimeout(PATIENCE_S)
        answer = b"".join(iter(lambda: late.recv(1000), b""))
    # The others are given up after as long, so that it may also be admitted just then, and given up later.
    assert answer.startswith((b"HTTP/1.1 503", b"HTTP/1.1 100"))
    assert (b"retry-after: 1" in answer) == (b"503" in answer)


def test_too_many_that_wait_are_refused_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hived_extender.http.bodies.Budget.has_queue", property(lambda self: len(self._waiting) >= 1))
    served = start()
    with ExitStack() as stack:
        for _ in range(2):
            assert is_admitted(stack.enter_context(closing(served.begin(FILTER_PATH, LARGE))))
        waiting = stack.enter_context(closing(served.begin(FILTER_PATH, LARGE)))
        assert not is_admitted(waiting, 0.2)
        refused = stack.enter_context(closing(served.begin(FILTER_PATH, LARGE)))
        answer = refused.recv(1000)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1\r\n" in answer


def test_a_chunked_body_counts_as_the_limit_of_its_path(start: Start) -> None:
    served = start()
    with ExitStack() as stack:
        for _ in range(2):
            assert is_admitted(stack.enter_context(closing(served.begin(WHAT_IF_PATH, None))))
        assert not is_admitted(stack.enter_context(closing(served.begin(WHAT_IF_PATH, LARGE))), 0.2)


def test_bytes_are_given_back_by_bodies_that_end_badly(start: Start) -> None:
    served = start()
    for _ in range(5):
        with closing(served.begin(FILTER_PATH, LARGE)) as gone:
            assert is_admitted(gone)
        with closing(served.begin(FILTER_PATH, None)) as endless:
            assert is_admitted(endless)
            endless.sendall(b"%x\r\n" % (LARGE + 1) + b"x" * (LARGE + 1))
            assert endless.recv(1000).startswith(b"HTTP/1.1 413")
    wait_until(lambda: served.used_bytes == 0)


def test_bytes_are_given_back_by_bodies_that_never_come(start: Start) -> None:
    served = start(body_timeout_s=0.1)
    for _ in range(5):
        with closing(served.begin(FILTER_PATH, LARGE)) as slow:
            assert b"HTTP/1.1 408" in b"".join(iter(lambda slow=slow: slow.recv(1000), b""))
    wait_until(lambda: served.used_bytes == 0)


def test_verbs_and_health_checks_do_not_wait_for_others(start: Start) -> None:
    small = SmallCluster()
    served = start(small=small)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(closing(served.begin(WHAT_IF_PATH, LARGE)))
        body = filter_body(small.create("p"))
        assert served.call("POST", FILTER_PATH, body + b" " * 30_000) == 200
        assert served.call("GET", HEALTH_PATH) == 200


def test_small_bodies_do_not_wait_for_large_ones(start: Start) -> None:
    served = start()
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(closing(served.begin(FILTER_PATH, LARGE)))
            stack.enter_context(closing(served.begin("/x", None)))
        assert served.call("POST", BIND_PATH, b"{}") == 200
        assert served.call("POST", "/x", b"{}") == 404


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        (FILTER_PATH, BODY_LIMIT),
        (PREEMPT_PATH, BODY_LIMIT),
        (BIND_PATH, BODY_LIMIT),
        (WHAT_IF_PATH, WHAT_IF_LIMIT),
        (CONFIG_PATH, CONFIG_BODY_LIMIT),
        (CONFIG_PLAN_PATH, CONFIG_BODY_LIMIT),
        ("/x", SMALL_LIMIT),
        ("/v1/inspect/clusterstatus", SMALL_LIMIT),
        (HEALTH_PATH, SMALL_LIMIT),
    ],
)
def test_each_path_has_a_limit(path: str, limit: int) -> None:
    small = SmallCluster()
    served = Served(Shim(create_app(small.service), small.service))
    try:
        with closing(served.begin(path, limit + 1)) as connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 413")
        if path != HEALTH_PATH:
            with closing(served.begin(path, limit)) as connection:
                assert is_admitted(connection)
    finally:
        served.server.stop()


def test_reviews_are_bounded_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "BODY_LIMIT", 2 * LARGE)
    configuration = load_text(CONFIG, "hivedscheduler.yaml")
    served = Served(Webhook(Admission(configuration.cluster, configuration.rules)))
    try:
        with ExitStack() as stack:
            assert is_admitted(stack.enter_context(closing(served.begin(MUTATE_PATH, 2 * LARGE))))
            assert not is_admitted(stack.enter_context(closing(served.begin(MUTATE_PATH, 2 * LARGE))), 0.2)
            assert served.call("POST", MUTATE_PATH, b"{}") == 400
            assert served.call("GET", HEALTH_PATH) == 200
    finally:
        served.server.stop()


def test_calls_that_wait_for_a_thread_are_bounded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "MOST_OTHERS", 2)
    entered, release = threading.Semaphore(0), threading.Event()
    small = SmallCluster()

    def slow(*_: object) -> object:
        entered.release()
        assert release.wait(PATIENCE_S)
        return {}

    monkeypatch.setattr(small.service, "lost_devices", slow)
    served = start(small=small)
    statuses: list[int] = []
    held = [
        threading.Thread(target=lambda: statuses.append(served.call("GET", "/v1/inspect/devices"))) for _ in range(2)
    ]
    for each in held:
        each.start()
    assert all(entered.acquire(timeout=PATIENCE_S) for _ in held)
    with closing(http.client.HTTPConnection(*served.address, timeout=PATIENCE_S)) as connection:
        connection.request("GET", "/v1/inspect/shortages")
        response = connection.getresponse()
        assert (response.status, response.getheader("Retry-After")) == (503, "1")
        assert "try again" in json.loads(response.read())
    assert served.call("GET", HEALTH_PATH) == 200
    release.set()
    for each in held:
        each.join()
    assert statuses == [200, 200]
