"""Kept connections against a server that answers with the bytes it is given, and says what it was sent."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from hived_extender.kube.connections import BrokenError, Connections, Reply

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WAIT_S = 20.0


class Server:
    """Answers the requests of each connection with the next of `scripts`, one by one, and then closes it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.scripts: list[list[bytes]] = []
        self.seen: list[bytes] = []
        self.closed = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection, self.scripts.pop(0)), daemon=True).start()

    def _serve(self, connection: socket.socket, script: list[bytes]) -> None:
        with connection, suppress(EOFError):
            for answer in script:
                self.seen.append(_request(connection))
                connection.sendall(answer)
        self.closed.release()


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += _received(connection)
    return head + b"\r\n\r\n" + body


def _received(connection: socket.socket) -> bytes:
    """Raises EOFError if the client has closed: to read on would never wait, and never end."""
    data = connection.recv(65536)
    if not data:
        raise EOFError
    return data


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


def connections(server: Server, prefix: str = "", most_idle: int = 4) -> Connections:
    return Connections(f"http://127.0.0.1:{server.port}{prefix}", {}, most_idle=most_idle)


def call(to: Connections, body: bytes = b"", target: str = "/x", read_timeout_s: float = WAIT_S) -> Reply:
    return to.call("POST", target, {"A": "b"}, body, connect_timeout_s=WAIT_S, read_timeout_s=read_timeout_s)


def test_calls_follow_each_other_on_one_connection(server: Server) -> None:
    server.scripts = [[OK, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"]]
    to = connections(server, "/prefix/")
    assert call(to, b"body", "/ä?x=1%2F") == Reply(200, b"ok")
    assert call(to) == Reply(404, b"")
    first = b"POST /prefix/%C3%A4?x=1%2F HTTP/1.1\r\nHost: 127.0.0.1:"
    assert server.seen[0].startswith(first)
    assert server.seen[0].endswith(b"\r\nA: b\r\nContent-Length: 4\r\n\r\nbody")


def test_a_connection_that_the_server_has_closed_is_replaced_before_anything_is_sent(server: Server) -> None:
    server.scripts = [[OK], [OK]]
    to = connections(server)
    call(to)
    assert server.closed.acquire(timeout=WAIT_S)
    assert call(to) == Reply(200, b"ok")
    assert len(server.seen) == 2


def test_a_request_that_was_sent_is_never_sent_again(server: Server) -> None:
    server.scripts = [[b""], [OK]]
    with pytest.raises(BrokenError, match="before it had answered"):
        call(connections(server))
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", id="cut short"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok", id="cut in a chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", id="cut in its head"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 101 Switch\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", id="a change of protocol"),
    ],
)
def test_what_is_no_whole_answer_is_none(server: Server, answer: bytes) -> None:
    server.scripts = [[answer], [OK]]
    to = connections(server)
    with pytest.raises(BrokenError):
        call(to)
    assert call(to) == Reply(200, b"ok")


def test_a_server_that_says_nothing_is_waited_for_no_longer_than_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        to = Connections(f"http://127.0.0.1:{silent.getsockname()[1]}", {}, most_idle=4)
        with pytest.raises(BrokenError, match="timed out"):
            call(to, read_timeout_s=0.1)


def test_a_connection_is_closed_after_its_call_once_they_are_retired(server: Server) -> None:
    server.scripts = [[OK, OK], [b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"]]
    to = connections(server)
    to.retire()
    assert [call(to), call(to)] == [Reply(200, b"ok"), Reply(201, b"")]


def test_an_abort_ends_the_call_under_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        to = Connections(f"http://127.0.0.1:{silent.getsockname()[1]}", {}, most_idle=4)
        with ThreadPoolExecutor() as threads:
            calling = threads.submit(call, to)
            silent.accept()[0].recv(1024)
            to.abort()
            assert isinstance(calling.exception(WAIT_S), BrokenError)


def test_no_call_begins_after_an_abort(server: Server) -> None:
    server.scripts = [[OK]]
    to = connections(server)
    to.abort()
    with pytest.raises(BrokenError, match="no more calls are wanted"):
        call(to)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nto the end", b"to the end", id="no length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"ok", id="to be closed"),
    ],
)
def test_a_connection_that_ends_with_its_answer_is_not_used_again(server: Server, answer: bytes, body: bytes) -> None:
    server.scripts = [[answer], [OK]]
    to = connections(server)
    assert call(to) == Reply(200, body)
    assert call(to) == Reply(200, b"ok")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(b"HTTP/1.1 409 Conflict\r\nContent-Length: 3\r\n\r\nbad", id="another answer"),
        pytest.param(b"HTTP/1.1 409 Confl", id="a part of another answer"),
        pytest.param(b"HTTP/1.1 101 Switch\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", id="a change of protocol"),
        pytest.param(b"garbage", id="no answer"),
    ],
)
def test_bytes_after_an_answer_belong_to_no_call(server: Server, more: bytes) -> None:
    server.scripts = [[OK + more, OK], [b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"]]
    to = connections(server)
    assert [call(to), call(to)] == [Reply(200, b"ok"), Reply(201, b"")]


def test_chunks_and_announcements_are_put_together(server: Server) -> None:
    announced = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"
    server.scripts = [[announced + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", OK]]
    to = connections(server)
    assert call(to) == Reply(201, b"abc")
    assert call(to) == Reply(200, b"ok")


def test_threads_do_not_share_a_connection_and_only_so_many_are_kept(server: Server) -> None:
    server.scripts = [[OK] * 100 for _ in range(8)]
    to = connections(server, most_idle=2)
    found: list[Reply] = []
    barrier = threading.Barrier(6)

    def work() -> None:
        barrier.wait()
        for _ in range(10):
            found.append(call(to, b"x" * 3000))

    server.scripts *= 20
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Reply(200, b"ok")] * 60
    to.clear()


def test_nobody_there_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BrokenError):
        call(Connections(f"http://127.0.0.1:{port}", {}, most_idle=1))
