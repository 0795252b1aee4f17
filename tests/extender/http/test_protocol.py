"""The protocol over a transport in memory: however the bytes of requests are cut, the answers are the same."""

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hived_extender.http.answers import Answer
from hived_extender.http.bodies import Budget, Receive, Scope, Send, read_body, send_answer
from hived_extender.http.exchange import Admission
from hived_extender.http.heads import Head
from hived_extender.http.identities import Identity
from hived_extender.http.protocol import PIPELINE_LIMIT, HttpProtocol, Site
from tests.property.examples import examples

TURNS = 1000
"""Of the event loop, far more than an answer takes."""


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_over = self.is_paused = False

    def write(self, data: bytes) -> None:
        assert not self.is_over
        self.written += data

    def close(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name.endswith("name") else None


class Echo:
    """Answers with the method, the path and the body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, 1 << 20)
        await send_answer(send, echo(scope["method"], scope["path"], body))

    def close(self) -> None:
        """Nothing is left to be done."""


class QuickEcho(Echo):
    """The same, at once or a moment later."""

    def __init__(self) -> None:
        self.budget = Budget(1 << 20)

    def admit(self, head: Head, caller: Identity | None) -> Admission | None:
        if head.length is None or not self.budget.try_take(head.length):
            return None
        return Admission(self.budget, head.length, 1000.0)

    def answer_at_once(self, head: Head, body: bytes) -> Answer | Coroutine[Any, Any, Answer]:
        answer = echo(head.method, head.path, body)
        return self._later(answer) if head.path == "/later" else answer

    async def _later(self, answer: Answer) -> Answer:
        await asyncio.sleep(0)
        return answer


def echo(method: str, path: str, body: bytes) -> Answer:
    return Answer(b"%s %s %s" % (method.encode(), path.encode(), body))


def connection_of() -> Any:
    requests = ("awaits_head", "has_head", "is_received", "is_answered")
    calls = {name: lambda *_: None for name in ("opened", "closed", *requests, "has_caught_up")}
    return SimpleNamespace(**calls, is_awaiting_head=True)


async def answers_to(application: Echo, pieces: Sequence[bytes]) -> tuple[bytes, bool]:
    """All bytes that are sent, and whether the connection is ended."""
    site = Site(application, asyncio.get_running_loop())
    protocol, transport = HttpProtocol(connection_of(), site), Transport()
    protocol.connection_made(cast(asyncio.Transport, transport))
    for piece in pieces:
        for _ in range(TURNS):
            if transport.is_over or not transport.is_paused:
                break
            await asyncio.sleep(0)
        if transport.is_over:
            break
        assert not transport.is_paused
        protocol.data_received(piece)
    for _ in range(TURNS):
        if not site.tasks:
            break
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    assert not site.protocols
    assert site.head_size == 0
    return transport.written, transport.is_over


def run(application: Echo, *pieces: bytes) -> tuple[bytes, bool]:
    return asyncio.run(answers_to(application, pieces))


REQUESTS = (
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello world",
    b"POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /chunks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
    b"POST /expects HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx",
    b"HEAD /%41 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /old HTTP/1.0\r\nHost: x\r\n\r\n",
    b"nonsense\r\n\r\n",
)


@pytest.mark.parametrize("kind", [Echo, QuickEcho])
@given(
    requests=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=5),
    cuts=st.lists(st.integers(0, 500), max_size=12),
)
@settings(max_examples=examples(150), deadline=None)
def test_answers_are_the_same_however_the_bytes_are_cut(
    kind: type[Echo], requests: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(requests)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in pairwise(edges)]
    found = [run(kind(), *each) for each in (requests, pieces)]
    assert without_continue(found[0]) == without_continue(found[1])


def without_continue(found: tuple[bytes, bool]) -> tuple[bytes, bool]:
    """The client is asked to go on only where it had not done so by itself; nothing else depends on that."""
    return found[0].replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""), found[1]


@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
@settings(max_examples=examples(150), deadline=None)
def test_any_bytes_leave_nothing_behind(data: bytes, cut: int) -> None:
    application = QuickEcho()
    run(application, *filter(None, (data[:cut], data[cut:])))
    assert application.budget.used == 0


def test_at_once_and_over_asgi_the_answers_are_the_same() -> None:
    for request in REQUESTS:
        assert run(Echo(), request) == run(QuickEcho(), request), request


def test_answers_come_in_the_order_of_the_requests() -> None:
    written, _ = run(QuickEcho(), REQUESTS[2] + REQUESTS[0] + REQUESTS[1])
    assert [each in written for each in (b"POST /later {}", b"GET /healthz ", b"POST /v1 hello world")] == [True] * 3
    assert written.index(b"/later") < written.index(b"/healthz") < written.index(b"/v1")


def test_requests_before_one_too_many_are_answered() -> None:
    written, is_over = run(QuickEcho(), REQUESTS[0] * 2, REQUESTS[0] * (PIPELINE_LIMIT + 1))
    assert written.count(b"HTTP/1.1 200 OK") == PIPELINE_LIMIT + 2
    assert written.count(b"HTTP/1.1 400 Bad Request") == is_over == 1


class HeaderEcho(Echo):
    """Answers with the headers that are there when the body has been read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive, 1 << 20)
        await send_answer(send, Answer(b" ".join(name for name, _ in scope["headers"])))


def test_headers_after_a_body_are_ignored() -> None:
    written, _ = run(HeaderEcho(), REQUESTS[3].replace(b"0\r\n\r\n", b"0\r\nAuthorization: Bearer x\r\n\r\n"))
    assert written.endswith(b"\r\n\r\nhost transfer-encoding")


@pytest.mark.parametrize("name", ["Authorization", "Host"])
def test_a_header_that_must_be_single_is_refused_when_it_comes_again(name: str) -> None:
    written, _ = run(Echo(), f"GET / HTTP/1.1\r\n{name}: a\r\n{name}: b\r\n\r\n".encode())
    assert written.startswith(b"HTTP/1.1 400 ")
    assert written.endswith(f"received: the request has several {name} headers".encode())


@pytest.mark.parametrize("request_", [REQUESTS[1], REQUESTS[3]], ids=["announced", "in chunks"])
def test_a_body_behind_a_wish_for_another_protocol_is_refused(request_: bytes) -> None:
    wish = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    written, is_over = run(Echo(), request_.replace(b"Host: x\r\n", wish))
    assert (written.split(b"\r\n", 1)[0], is_over) == (b"HTTP/1.1 400 Bad Request", True)


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    head, _, body = REQUESTS[4].partition(b"\r\n\r\n")
    written, _ = run(Echo(), head + b"\r\n\r\n", body)
    assert written.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_a_client_with_http_1_0_is_not_asked_for_its_body() -> None:
    head, _, body = REQUESTS[4].replace(b"HTTP/1.1", b"HTTP/1.0").partition(b"\r\n\r\n")
    written, _ = run(Echo(), head + b"\r\n\r\n", body)
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")


def test_an_answer_to_head_has_no_body() -> None:
    written, _ = run(Echo(), REQUESTS[5])
    assert written.endswith(b"content-length: 8\r\n\r\n")


def test_an_answer_is_written_in_one_piece() -> None:
    async def writes() -> int:
        site, transport, count = Site(Echo(), asyncio.get_running_loop()), Transport(), 0
        protocol = HttpProtocol(connection_of(), site)

        def count_write(data: bytes) -> None:
            nonlocal count
            count += 1

        transport.write = count_write  # type: ignore[method-assign]  # counted as it is called
        protocol.connection_made(cast(asyncio.Transport, transport))
        protocol.data_received(REQUESTS[1])
        await asyncio.wait(site.tasks)
        return count

    assert asyncio.run(writes()) == 1


class Silent(Echo):
    """Begins an answer, and never has a piece of its body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()


def test_a_client_gets_the_head_of_an_answer_before_its_body_is_there() -> None:
    written, _ = run(Silent(), REQUESTS[0])
    assert written == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
