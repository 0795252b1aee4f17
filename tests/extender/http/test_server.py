"""The real server on a loopback port: keep-alive, limits on bodies, streaming, draining."""

import asyncio
import http.client
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask, Response

from hived.values.errors import UserError
from hived_extender.http import shim
from hived_extender.http.app import create_app
from hived_extender.http.guard import HEAD_LIMIT, Limits
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.shim import Shim
from hived_extender.machine.verbs import VerbSettings
from tests.extender.machine.small_cluster import (
    PATIENCE_S,
    SmallCluster,
    filter_body,
    pod_json,
    preempt_body,
    spec_text,
    wait_until,
)
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

BODY_LIMIT = 100_000
BODY_TIMEOUT_S = 0.3
"""Only where a body never comes: a busy machine may be slower with one that does."""


class Running:
    """A small cluster whose service is served."""

    def __init__(self, cluster: SmallCluster, **limits: Any) -> None:
        self.cluster = cluster
        options: dict[str, Any] = {"body_limit": BODY_LIMIT, "body_timeout_s": PATIENCE_S} | limits
        application = Shim(create_app(cluster.service), cluster.service, **options)
        self.server = HttpServer(application, listen("127.0.0.1:0"))
        self.server.start()
        self.address = ("127.0.0.1", int(self.server.url.rsplit(":", 1)[1]))

    def connect(self) -> http.client.HTTPConnection:
        """A keep-alive connection."""
        return http.client.HTTPConnection(*self.address, timeout=PATIENCE_S)

    def raw(self, data: bytes) -> bytes:
        """Everything the server answers to these bytes until it closes the connection."""
        with socket.create_connection(self.address, timeout=PATIENCE_S) as connection:
            connection.sendall(data)
            pieces = list(iter(lambda: connection.recv(65536), b""))
        return b"".join(pieces)


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running(SmallCluster())
    yield running
    running.server.stop()


def call(connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_one_connection_serves_a_pod_from_filter_to_bind(running: Running) -> None:
    pod = running.cluster.create("p")
    meta = pod["metadata"]
    bind = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n0"}
    with closing(running.connect()) as connection:
        assert call(connection, "POST", "/v1/extender/filter", filter_body(pod))[1]["NodeNames"] == ["n0"]
        port = connection.sock.getsockname()[1]
        assert call(connection, "POST", "/v1/extender/bind", json.dumps(bind).encode()) == (200, {"Error": ""})
        assert call(connection, "GET", "/v1/inspect/affinitygroups/ns/p")[1]["metadata"]["name"] == "ns/p"
        assert connection.sock.getsockname()[1] == port
    assert running.cluster.kube.pods["p"]["spec"]["nodeName"] == "n0"


@pytest.mark.parametrize(("path", "body"), [("filter", filter_body), ("preempt", preempt_body)])
def test_health_checks_do_not_wait_for_what_verbs_wait_for(
    running: Running, path: str, body: Callable[[Any], bytes]
) -> None:
    pod = running.cluster.create("p")
    with closing(running.connect()) as waiting, closing(running.connect()) as probe:
        with running.cluster.service.runner._lock:
            waiting.request("POST", f"/v1/extender/{path}", body(pod))
            assert not select.select([waiting.sock], [], [], 0.2)[0]
            assert [call(probe, "GET", each)[0] for each in ("/healthz", "/readyz")] == [200, 200]
        assert waiting.getresponse().status == 200


@pytest.mark.parametrize("path", ["/v1/extender/filter", "/v1/extender/preempt", "/v1/extender/bind", "/", "/x"])
def test_the_shim_answers_as_flask_alone_does(running: Running, path: str) -> None:
    flask = create_app(running.cluster.service).test_client()
    pod = running.cluster.create("p", spec_text(vc="none"))
    with closing(running.connect()) as connection:
        for method, body in (("POST", filter_body(pod)), ("POST", preempt_body(pod)), ("POST", b"{"), ("GET", b"")):
            expected = flask.open(path, method=method, data=body)
            assert call(connection, method, path, body) == (expected.status_code, expected.json)


def test_a_status_dump_is_streamed_in_pieces(running: Running) -> None:
    with closing(running.connect()) as connection:
        connection.request("GET", "/v1/inspect/clusterstatus")
        response = connection.getresponse()
        assert response.getheader("Transfer-Encoding") == "chunked"
        body = response.read()
    flask = create_app(running.cluster.service).test_client()
    assert body == flask.get("/v1/inspect/clusterstatus").data


def test_a_status_dump_by_http_1_0_has_its_length_and_no_chunks(running: Running) -> None:
    head, _, body = running.raw(b"GET /v1/inspect/clusterstatus HTTP/1.0\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["physicalCluster"]


def test_a_long_dump_by_http_1_0_is_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "BODY_LIMIT", 1000)
    answer = running.raw(b"GET /v1/inspect/clusterstatus HTTP/1.0\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert answer.endswith(b'"this answer is long and comes in chunks: ask by HTTP/1.1"')


def test_a_client_that_leaves_during_a_dump_harms_nobody(running: Running) -> None:
    for _ in range(20):
        with socket.create_connection(running.address) as connection:
            connection.sendall(b"GET /v1/inspect/clusterstatus HTTP/1.1\r\nHost: x\r\n\r\n")
    with closing(running.connect()) as connection:
        assert call(connection, "GET", "/healthz") == (200, {"status": "ok"})


def test_a_client_that_does_not_read_its_answer_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    app, has_ended = Flask(__name__), threading.Event()

    @app.route("/")
    def endless() -> Response:
        def pieces() -> Iterator[bytes]:
            try:
                while True:
                    yield bytes(1_000_000)
            finally:
                has_ended.set()

        return Response(pieces())

    limits = Limits(unread_s=0.2, sweep_s=0.02)
    server = HttpServer(Shim(app, SmallCluster().service), listen("127.0.0.1:0"), limits=limits)
    server.start()
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1]))) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert has_ended.wait(PATIENCE_S)
    server.stop()
    assert not any(record.exc_info for record in caplog.records)


def test_a_half_sent_body_is_given_up_and_holds_nobody_else() -> None:
    running = Running(SmallCluster(), body_timeout_s=BODY_TIMEOUT_S)
    head = b"POST /v1/extender/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
    try:
        with socket.create_connection(running.address, timeout=PATIENCE_S) as slow:
            slow.sendall(head)
            with closing(running.connect()) as connection:
                assert call(connection, "GET", "/healthz")[0] == 200
            answer = b"".join(iter(lambda: slow.recv(65536), b""))
    finally:
        running.server.stop()
    assert answer.startswith(b"HTTP/1.1 408")
    assert answer.endswith(b'"the body did not arrive within 0.3 s"')


def test_a_body_that_announces_too_much_is_refused_at_once(running: Running) -> None:
    head = b"POST /v1/extender/filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (BODY_LIMIT + 1)
    assert running.raw(head).startswith(b"HTTP/1.1 413")


def test_a_body_without_announced_length_is_refused_when_it_gets_too_large(running: Running) -> None:
    chunk = b"%x\r\n%s\r\n" % (1000, b"x" * 1000)
    head = b"POST /v1/extender/bind HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert running.raw(head + chunk * 110).startswith(b"HTTP/1.1 413")


HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
TRAILERS = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"


@pytest.mark.parametrize("piece", [b"X: " + b"y" * 1000 + b"\r\n", b"X" * 1000], ids=["many", "one"])
@pytest.mark.parametrize("head", [HEAD, HEAD + b"X: ", TRAILERS, b"GET /"], ids=["head", "value", "trailers", "path"])
def test_headers_without_end_are_given_up(running: Running, head: bytes, piece: bytes) -> None:
    with socket.create_connection(running.address, timeout=PATIENCE_S) as connection:
        connection.sendall(head)
        sent = 0
        with suppress(ConnectionError):
            while sent < 10 * HEAD_LIMIT:
                sent += connection.send(piece * 50)
    assert sent < 10 * HEAD_LIMIT


def test_a_body_is_no_header_however_large() -> None:
    large = Running(SmallCluster(), body_limit=3 * HEAD_LIMIT)
    try:
        with closing(large.connect()) as connection:
            assert call(connection, "POST", "/x", b"x" * 2 * HEAD_LIMIT)[0] == 404
            assert call(connection, "GET", "/healthz")[0] == 200
    finally:
        large.server.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\r\n\r\n",
        b"GET /%FF%FE HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET http://[/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /?a=\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: \xff\r\nConnection: close\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: zz\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    ],
)
def test_bytes_that_are_no_proper_request_are_answered_and_the_server_lives_on(running: Running, data: bytes) -> None:
    status = running.raw(data).split(b" ", 2)[1]
    assert b"200" <= status < b"500"
    with closing(running.connect()) as connection:
        assert call(connection, "GET", "/healthz")[0] == 200


class HeldSleep:
    """Stands in for the sleep of the shim: it lasts until `go_on` is set; `asked_s` has how long each should last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked_s: list[float] = []
        self.go_on = threading.Event()
        held = SimpleNamespace(**vars(asyncio) | {"sleep": self._sleep})
        monkeypatch.setattr("hived_extender.http.shim.asyncio", held)

    async def _sleep(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        while not self.go_on.is_set():
            await asyncio.sleep(0.005)


def test_a_waiting_pods_answer_is_held_back_without_holding_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = HeldSleep(monkeypatch)
    running = Running(SmallCluster(verb_settings=VerbSettings(waiting_block_s=0.4)))
    try:
        pod = running.cluster.create("p", spec_text(vc="empty"))
        with closing(running.connect()) as slow, closing(running.connect()) as quick:
            slow.request("POST", "/v1/extender/filter", filter_body(pod))
            wait_until(lambda: sleep.asked_s == [0.4])
            other = running.cluster.create("q")
            assert call(quick, "POST", "/v1/extender/filter", filter_body(other))[1]["NodeNames"] == ["n0"]
            sleep.go_on.set()
            assert json.loads(slow.getresponse().read())["FailedNodes"]
    finally:
        running.server.stop()


def test_a_pod_that_becomes_known_in_a_moment_is_waited_for(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = HeldSleep(monkeypatch)
    with closing(running.connect()) as connection:
        connection.request("POST", "/v1/extender/filter", filter_body(pod_json("p", spec_text())))
        wait_until(lambda: sleep.asked_s)
        running.cluster.create("p")
        sleep.go_on.set()
        assert json.loads(connection.getresponse().read())["NodeNames"] == ["n0"]


def test_a_pod_that_stays_unknown_is_refused_soon(running: Running) -> None:
    with closing(running.connect()) as connection:
        answer = call(connection, "POST", "/v1/extender/filter", filter_body(pod_json("p", spec_text())))[1]
    assert "is not known" in answer["Error"]


def test_stopping_finishes_the_request_under_way_and_refuses_new_ones() -> None:
    running = Running(SmallCluster())
    entered, release = threading.Event(), threading.Event()

    def wait_for_release() -> None:
        entered.set()
        release.wait(PATIENCE_S)

    running.cluster.kube.on_bind = wait_for_release
    pod = running.cluster.create("p")
    running.cluster.filter(pod)
    bind = {"PodName": "p", "PodNamespace": "ns", "PodUID": "uid-p", "Node": "n0"}
    with closing(running.connect()) as connection:
        connection.request("POST", "/v1/extender/bind", json.dumps(bind).encode())
        assert entered.wait(PATIENCE_S)
        stopping = threading.Thread(target=running.server.stop)
        stopping.start()
        wait_until(lambda: refuses(running.address))
        release.set()
        assert json.loads(connection.getresponse().read()) == {"Error": ""}
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive()
    assert not running.server.is_alive


def refuses(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=PATIENCE_S).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize(
    "address", ["", "x", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:99999", "a..b:80"]
)
def test_an_address_that_cannot_be_used_is_an_error(address: str) -> None:
    with pytest.raises(UserError, match="cannot listen on"):
        listen(address)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_without_a_host_both_families_are_served() -> None:
    cluster = SmallCluster()
    server = HttpServer(Shim(create_app(cluster.service), cluster.service), listen(":0"))
    server.start()
    try:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        for each in (host, "::1"):
            with closing(http.client.HTTPConnection(each, int(port), timeout=PATIENCE_S)) as connection:
                assert call(connection, "GET", "/healthz") == (200, {"status": "ok"})
    finally:
        server.stop()


class HeldBindings:
    """Bind calls that wait for the API server until they are released, at the latest when the context is left."""

    def __init__(self, running: Running, count: int) -> None:
        cluster = running.cluster
        self._running = running
        self._go_on = threading.Event()
        self.answers: list[Any] = []
        pods = [cluster.create(f"p{number}", spec_text(leaf_cells=1, priority=-1)) for number in range(count)]
        places = [cluster.filter(pod)["NodeNames"][0] for pod in pods]
        self._under_way = threading.Semaphore(0)
        cluster.kube.on_bind = self._hold
        self._threads = [threading.Thread(target=self._bind, args=each) for each in zip(pods, places, strict=True)]

    def __enter__(self) -> "HeldBindings":
        for thread in self._threads:
            thread.start()
        assert all(self._under_way.acquire(timeout=PATIENCE_S) for _ in self._threads)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let them go on, and wait for their answers."""
        self._go_on.set()
        for thread in self._threads:
            thread.join()

    def _hold(self) -> None:
        self._under_way.release()
        assert self._go_on.wait(PATIENCE_S)

    def _bind(self, pod: Any, where: str) -> None:
        with closing(self._running.connect()) as connection:
            self.answers.append(call(connection, "POST", "/v1/extender/bind", bind_body(pod, where)))


def bind_body(pod: Any, where: str) -> bytes:
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": "ns", "PodUID": meta["uid"], "Node": where}
    return json.dumps(body).encode()


def is_answered(connection: http.client.HTTPConnection, within_s: float) -> bool:
    """Has the server begun to answer the request under way?"""
    return bool(select.select([connection.sock], [], [], within_s)[0])


def test_filter_calls_are_answered_while_16_bindings_wait_for_the_api_server(running: Running) -> None:
    with HeldBindings(running, 16) as bindings:
        with closing(running.connect()) as connection:
            waiting = filter_body(running.cluster.create("q", spec_text(priority=-1)))
            results = [call(connection, "POST", "/v1/extender/filter", waiting) for _ in range(50)]
        assert all(status == 200 and answer["FailedNodes"] for status, answer in results)
        assert bindings.answers == []
        bindings.release()
    assert bindings.answers == [(200, {"Error": ""})] * 16


def test_a_filter_call_waits_while_there_are_too_many_bindings(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim, "MANY_BINDINGS", 16)
    monkeypatch.setattr(shim, "BACKLOG_WAIT_S", 10 * PATIENCE_S)
    waiting = filter_body(running.cluster.create("q", spec_text(vc="empty")))
    with closing(running.connect()) as connection, HeldBindings(running, 16) as bindings:
        connection.request("POST", "/v1/extender/filter", waiting)
        assert not is_answered(connection, within_s=0.3)
        bindings.release()
        assert json.loads(connection.getresponse().read())["FailedNodes"]
        assert call(connection, "POST", "/v1/extender/filter", waiting)[0] == 200


def test_a_filter_call_does_not_wait_for_ever_for_bindings(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "MANY_BINDINGS", 16)
    monkeypatch.setattr(shim, "BACKLOG_WAIT_S", 0.01)
    waiting = filter_body(running.cluster.create("q", spec_text(vc="empty")))
    with closing(running.connect()) as connection, HeldBindings(running, 16) as bindings:
        assert call(connection, "POST", "/v1/extender/filter", waiting)[1]["FailedNodes"]
        assert bindings.answers == []


def test_a_gang_starts_beside_too_many_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "MANY_BINDINGS", 8)
    monkeypatch.setattr(shim, "BACKLOG_WAIT_S", 10 * PATIENCE_S)
    cluster = SmallGangCluster()
    running = Running(cluster)
    first, second = (cluster.pod(name, 4, koordinator("train", 2)) for name in ("w-0", "w-1"))
    try:
        with closing(running.connect()) as one, closing(running.connect()) as other:
            place = call(one, "POST", "/v1/extender/filter", filter_body(first))[1]["NodeNames"][0]
            with HeldBindings(running, 8) as bindings:
                one.request("POST", "/v1/extender/bind", bind_body(first, place))
                assert call(other, "POST", "/v1/extender/filter", filter_body(second))[1]["NodeNames"]
                assert bindings.answers == []
            assert one.getresponse().read()
    finally:
        running.server.stop()
