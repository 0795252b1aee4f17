"""Connections that do nothing, too many of them, too few descriptors: honest callers are answered all the same."""

import asyncio
import http.client
import math
import os
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from hived_extender.http import guard
from hived_extender.http.answers import Answer
from hived_extender.http.bodies import Body, Budget, Receive, Scope, Send, Share, read_body, send_answer
from hived_extender.http.guard import PIPELINE_LIMIT, READ_AT_LEAST, Limits, Port, limits_of_process
from hived_extender.http.server import Application, HttpServer, listen
from hived_extender.http.tls import ServerTls
from tests.expecting import expect_soon
from tests.extender.http.secured import Files
from tests.extender.machine.small_cluster import PATIENCE_S

TIMED = Limits(sweep_s=0.01, log_s=0.1)
LATER_S = 11.0
"""Longer than a handshake or headers may take, shorter than a connection may be idle."""

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
SHARE = Share(Budget(10_000), Budget(10_000), 1)
LONG = Limits(handshake_s=1000, head_s=1000, sweep_s=0.05, log_s=0.1)


class Echo:
    """Answers every request; one to /held only when it is let go."""

    def __init__(self) -> None:
        self.held_count = 0
        self.may_go = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with Body(scope, receive, send, 1000, SHARE):
            if scope["path"] == "/held":
                self.held_count += 1
                while not self.may_go:
                    await asyncio.sleep(0.01)
            await send_answer(send, Answer(b'"yes"'))

    def close(self) -> None:
        """Nothing is left to be done."""


class Refusing:
    """Answers every request before its body has arrived."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, Answer(b'"no"', 401))

    def close(self) -> None:
        """Nothing is left to be done."""


LARGE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 20000000\r\n\r\n"


class Large:
    """Answers every request with more than the network takes for a client that does not read."""

    SIZE = 20_000_000

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, Answer(bytes(self.SIZE)))

    def close(self) -> None:
        """Nothing is left to be done."""


class Served:
    """A server with these limits, and how many connections it has dropped by reason.

    Tests put its clock forward: a limit that real time reaches would also end what a busy machine is slow to send.
    """

    def __init__(self, limits: Limits, tls: ServerTls | None = None, application: Application | None = None) -> None:
        self.echo = Echo()
        self._counter = Counter("dropped", "x", ["port", "reason"], registry=CollectorRegistry())
        self.server = HttpServer(application or self.echo, listen("127.0.0.1:0"), tls, limits=limits)
        self.server.count_drops(self._counter)
        self.server.start()
        self.port = int(self.server.url.rsplit(":", 1)[1])
        expect_soon(lambda: self.server._serving.port)
        assert self.server._serving.port is not None
        self._accepting: Port = self.server._serving.port
        self._ahead_s = 0.0
        self._time = self._accepting.loop.time
        self._accepting.loop.time = lambda: self._time() + self._ahead_s

    def put_forward(self, seconds: float = LATER_S) -> None:
        """So much time has passed for all connections."""
        self._ahead_s += seconds

    def has(self, count: int, *, opened: bool = True) -> bool:
        """Whether there are so many connections, with their handshakes over unless `opened` is False."""
        there = list(self._accepting._all)
        return len(there) == count and all(each.is_open is opened for each in there)

    @property
    def waits_for_clients(self) -> int:
        """How many clients are behind with reading."""
        return sum(each.unread_deadline < math.inf for each in list(self._accepting._all))

    @property
    def unread_size(self) -> int:
        """How many bytes wait for clients to read."""
        return sum(each.transport.get_write_buffer_size() for each in list(self._accepting._all))

    def dropped(self, reason: str) -> int:
        return int(self._counter.labels("http", reason)._value.get())

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S, source_address=(source, 0))

    def health(self, context: ssl.SSLContext | None = None) -> int:
        """The status of a health check on a connection of its own."""
        if context is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        else:
            connection = http.client.HTTPSConnection("localhost", self.port, timeout=PATIENCE_S, context=context)
        with closing(connection):
            connection.request("GET", "/healthz")
            return connection.getresponse().status


@contextmanager
def serving(limits: Limits, tls: ServerTls | None = None, application: Application | None = None) -> Iterator[Served]:
    served = Served(limits, tls, application)
    try:
        yield served
    finally:
        served.echo.may_go = True
        served.server.stop()


def is_over(connection: socket.socket) -> bool:
    """Waits until the server has ended a connection; False if it never does."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def trickles_to_the_end(served: Served, connection: socket.socket, piece: bytes) -> bool:
    """Sends a piece twice a second until the server ends the connection; False if it never does."""
    connection.settimeout(0.01)
    for _ in range(1000):
        served.put_forward(0.5)
        try:
            connection.send(piece)
            if not connection.recv(1000):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def answered(connection: socket.socket, request: bytes = REQUEST) -> bytes:
    connection.sendall(request)
    return connection.recv(65536)


def test_a_silent_connection_has_little_time() -> None:
    with serving(TIMED) as served, closing(served.connect()) as silent:
        expect_soon(lambda: served.has(1))
        served.put_forward()
        assert is_over(silent)
        expect_soon(lambda: served.dropped(guard.REQUEST) == 1)


def test_a_silent_handshake_has_little_time(tmp_path: Path) -> None:
    files = Files(tmp_path)
    with serving(TIMED, ServerTls(files.certificate, files.key)) as served, closing(served.connect()) as silent:
        expect_soon(lambda: served.has(1, opened=False))
        served.put_forward()
        assert is_over(silent)
        expect_soon(lambda: served.dropped(guard.HANDSHAKE) == 1)
        assert served.health(files.context()) == 200


def test_silence_after_the_handshake_has_little_time(tmp_path: Path) -> None:
    files = Files(tmp_path)
    with (
        serving(TIMED, ServerTls(files.certificate, files.key)) as served,
        files.context().wrap_socket(served.connect(), server_hostname="localhost") as silent,
    ):
        expect_soon(lambda: served.has(1))
        served.put_forward()
        assert is_over(silent)
        expect_soon(lambda: served.dropped(guard.REQUEST) == 1)


@pytest.mark.parametrize("first", [b"", REQUEST, REQUEST * 2], ids=["first", "second", "third"])
def test_headers_that_trickle_have_no_more_time(first: bytes) -> None:
    with serving(TIMED) as served, closing(served.connect()) as slow:
        if first:
            assert answered(slow, first)
        slow.send(b"GET / HTTP/1.1\r\n")
        assert trickles_to_the_end(served, slow, b"X: y\r\n")


@pytest.mark.parametrize("first", [b"", REQUEST], ids=["first", "second"])
def test_blank_lines_before_a_request_have_no_more_time(first: bytes) -> None:
    with serving(TIMED) as served, closing(served.connect()) as slow:
        if first:
            assert answered(slow, first)
        assert trickles_to_the_end(served, slow, b"\r\n")


def test_the_rest_of_a_request_that_is_answered_already_has_little_time() -> None:
    with serving(TIMED, application=Refusing()) as served, closing(served.connect()) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert b"401" in slow.recv(1000)
        assert trickles_to_the_end(served, slow, b"x")


def test_a_connection_that_has_had_an_answer_stays_open() -> None:
    with serving(TIMED) as served, closing(served.connect()) as idle, closing(served.connect()) as silent:
        assert answered(idle)
        expect_soon(lambda: served.has(2))
        served.put_forward()
        assert is_over(silent)  # so the time for headers is over
        assert answered(idle)


def test_a_held_request_stays_open() -> None:
    with serving(TIMED) as served, closing(served.connect()) as held, closing(served.connect()) as silent:
        held.sendall(REQUEST.replace(b"/healthz", b"/held"))
        expect_soon(lambda: served.echo.held_count == 1)
        expect_soon(lambda: served.has(2))
        served.put_forward()
        assert is_over(silent)
        served.echo.may_go = True
        assert b"200" in held.recv(1000)


def test_where_a_cap_is_reached_the_oldest_without_a_request_goes(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(most=8, most_quiet=8, handshake_s=1000, head_s=1000, sweep_s=0.05, log_s=0.1)
    with serving(limits) as served, ExitStack() as stack:
        idle = stack.enter_context(closing(served.connect()))
        assert answered(idle)
        fresh = [stack.enter_context(closing(served.connect())) for _ in range(20)]
        assert served.health() == 200
        assert is_over(fresh[0])
        expect_soon(lambda: any("too many at once" in message for message in caplog.messages))
        assert answered(idle)
        assert b"200" in answered(fresh[-1])
        assert 15 <= served.dropped(guard.CROWDED) <= 17


def test_then_the_one_that_is_idle_for_the_longest_goes() -> None:
    limits = Limits(most=8, most_quiet=8, handshake_s=1000, head_s=1000)
    with serving(limits) as served, ExitStack() as stack:
        idle = [stack.enter_context(closing(served.connect())) for _ in range(5)]
        assert all(answered(each) for each in idle)
        assert answered(idle[0])
        assert [served.health() for _ in range(3)] == [200] * 3
        late = [stack.enter_context(closing(served.connect(f"127.0.0.{n}"))) for n in (2, 3)]
        assert all(answered(each) for each in late)
        assert answered(idle[0])


def test_busy_connections_stay_whatever_comes() -> None:
    limits = Limits(most=40, most_quiet=4, handshake_s=1000, head_s=1000)
    with serving(limits) as served, ExitStack() as stack:
        held = []
        for number in range(20):  # more than may be quiet, from one address
            held.append(stack.enter_context(closing(served.connect())))
            held[-1].sendall(REQUEST.replace(b"/healthz", b"/held"))
            expect_soon(lambda expected=number + 1: served.echo.held_count == expected)
        for _ in range(30):
            stack.enter_context(closing(served.connect()))
        assert served.health() == 200
        served.echo.may_go = True
        assert all(b"200" in each.recv(1000) for each in held)


def test_an_address_leaves_room_for_others() -> None:
    limits = Limits(most=8, most_quiet=8, handshake_s=1000, head_s=1000)
    with serving(limits) as served, ExitStack() as stack:
        for number in range(6):
            held = stack.enter_context(closing(served.connect("127.0.0.2")))
            held.sendall(REQUEST.replace(b"/healthz", b"/held"))
            expect_soon(lambda expected=number + 1: served.echo.held_count == expected)
        assert is_over(stack.enter_context(closing(served.connect("127.0.0.2"))))
        assert served.dropped(guard.FULL) == 1
        assert served.health() == 200


@contextmanager
def few_files(spare: int) -> Iterator[None]:
    """This process may open few more files than it has open now."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1 + spare, before[1]))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(spare):
            os.close(taken.pop())
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_free_descriptors_the_oldest_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    with serving(LONG) as served, ExitStack() as stack:
        others = [stack.enter_context(closing(socket.socket())) for _ in range(12)]
        with few_files(8):
            for each in others:  # their other ends need descriptors too
                each.settimeout(PATIENCE_S)
                each.connect(("127.0.0.1", served.port))
            expect_soon(lambda: served.dropped(guard.FILES) >= 1)
            assert b"200" in answered(others[-1])
        expect_soon(lambda: any("files" in getattr(record, "fields", {}) for record in caplog.records))


def test_the_caps_leave_descriptors_for_everything_else() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for files in (256, 1024, 4096):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
            limits = limits_of_process()
            assert 2 * limits.most + guard.RESERVED_FILES <= files
            assert limits.most_quiet <= limits.most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_of_files_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        guard.raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_client_that_does_not_take_its_goodbye_is_cut_off(tmp_path: Path) -> None:
    """Over TLS a closed connection waits for the client's own goodbye, and for what it has not read."""
    files = Files(tmp_path)
    with (
        serving(LONG, ServerTls(files.certificate, files.key)) as served,
        files.context().wrap_socket(served.connect(), server_hostname="localhost") as client,
    ):
        client.sendall(b"nonsense\r\n\r\n")
        expect_soon(lambda: served.put_forward(0.1) or served.dropped(guard.UNREAD))
        assert served.dropped(guard.UNREAD) == 1


def test_a_client_that_does_not_read_its_answers_is_cut_off() -> None:
    with serving(TIMED, application=Large()) as served, closing(served.connect()) as client:
        client.sendall(REQUEST * 2)  # the second answer waits for the first to be read
        expect_soon(lambda: served.put_forward(0.1) or served.dropped(guard.UNREAD))
        expect_soon(lambda: served.has(0))
        assert served.dropped(guard.UNREAD) == 1


def test_a_client_that_has_read_its_answers_in_time_stays() -> None:
    with serving(TIMED, application=Large()) as served, closing(served.connect()) as client:
        client.sendall(REQUEST * 2)
        expect_soon(lambda: served.waits_for_clients == 1)
        served.put_forward(9.0)
        assert read_answers(client, 2)
        served.put_forward(9.0)
        client.sendall(REQUEST)
        assert read_answers(client, 1)


def read_answers(connection: socket.socket, count: int) -> bool:
    """Reads so many answers of `Large`; False if the connection ends before."""
    missing = count * (Large.SIZE + len(LARGE_HEAD))
    while missing and (piece := connection.recv(min(missing, 1 << 20))):
        missing -= len(piece)
    return not missing


def test_a_client_that_goes_on_reading_has_the_time_anew() -> None:
    with serving(TIMED, application=Large()) as served, closing(served.connect()) as client:
        client.sendall(REQUEST)
        expect_soon(lambda: served.waits_for_clients == 1)
        for _ in range(3):
            unread = served.unread_size
            assert sum(len(client.recv(1 << 16)) for _ in range(64))
            expect_soon(lambda unread=unread: served.unread_size <= unread - READ_AT_LEAST)
            served.put_forward(9.0)
        assert served.dropped(guard.UNREAD) == 0


def test_a_client_that_reads_too_little_is_cut_off() -> None:
    with serving(TIMED, application=Large()) as served, closing(served.connect()) as client:
        client.sendall(REQUEST)
        expect_soon(lambda: client.recv(100) and (served.put_forward(1.0) or served.dropped(guard.UNREAD)))
        assert served.dropped(guard.UNREAD) == 1


class Headers(Refusing):
    """Answers with the names of the headers that are there when the body has been read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive, 1000)
        await send_answer(send, Answer(b" ".join(name for name, _ in scope["headers"])))


CHUNKS = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"


def test_headers_after_a_body_are_ignored() -> None:
    with serving(LONG, application=Headers()) as served, closing(served.connect()) as client:
        assert answered(client, CHUNKS + b"Authorization: Bearer x\r\n\r\n").endswith(b"\r\n\r\nhost transfer-encoding")


@pytest.mark.parametrize("name", ["Authorization", "Host"])
def test_a_header_that_must_be_single_is_refused_when_it_comes_again(name: str) -> None:
    with serving(LONG) as served, closing(served.connect()) as client:
        answer = answered(client, f"GET / HTTP/1.1\r\n{name}: a\r\n{name}: b\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(f"received: the request has several {name} headers".encode())
        assert is_over(client)


@pytest.mark.parametrize("request_", [REQUEST.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n"), CHUNKS])
def test_a_body_behind_a_wish_for_another_protocol_is_refused(request_: bytes) -> None:
    with serving(LONG) as served, closing(served.connect()) as client:
        wish = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
        assert answered(client, request_.replace(b"Host: x\r\n", wish)).startswith(b"HTTP/1.1 400 Bad Request")
        assert is_over(client)


def test_a_wish_for_another_protocol_ends_the_connection_with_the_answer() -> None:
    with serving(LONG) as served, closing(served.connect()) as client:
        wish = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
        assert b"connection: close" in answered(client, REQUEST.replace(b"Host: x\r\n", wish))
        assert is_over(client)


def test_requests_and_bytes_that_are_none_leave_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with serving(LONG) as served:
        for request in (REQUEST.replace(b"/healthz", b"/?token=secret"), b"nonsense\r\n\r\n"):
            with closing(served.connect()) as client:
                assert answered(client, request)
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_of_many_requests_ahead_of_their_answers_the_first_are_answered_and_the_connection_ends() -> None:
    with serving(LONG) as served, closing(served.connect()) as greedy:
        greedy.sendall(REQUEST * 10 * PIPELINE_LIMIT)
        answers = b""
        while piece := greedy.recv(65536):
            answers += piece
        assert answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 200") == PIPELINE_LIMIT + 1
        assert served.health() == 200


def test_a_client_with_http_1_0_is_not_asked_for_its_body() -> None:
    head = b"POST / HTTP/1.0\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
    with serving(LONG) as served, closing(served.connect()) as client:
        assert answered(client, head + b"x").startswith(b"HTTP/1.1 200 ")


def test_headers_in_pieces_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hived_extender.http.guard.HEADS_LIMIT", 200_000)
    with serving(LONG) as served, ExitStack() as stack:
        for _ in range(10):
            slow = stack.enter_context(closing(served.connect()))
            with suppress(OSError):
                slow.sendall(b"GET / HTTP/1.1\r\nX: " + b"y" * 50_000)
        expect_soon(lambda: served.dropped(guard.HEADS) >= 5)
        assert served.health() == 200


def test_stopping_does_not_wait_for_silent_connections() -> None:
    with serving(LONG) as served, closing(served.connect()) as silent:
        served.server.stop()
        assert is_over(silent)
        assert not served.server.is_alive
