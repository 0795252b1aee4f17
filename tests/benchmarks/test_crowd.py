"""Many connections at once, against a real server on loopback."""

from collections.abc import Iterator

import pytest

from tests.benchmarks.client import request_bytes
from tests.benchmarks.crowd import ask_all
from tests.stub_server import StubServer


def requests(count: int) -> Iterator[bytes]:
    return (request_bytes("POST", f"/{number}", b"x" * 100_000) for number in range(count))


def test_every_request_is_answered_once() -> None:
    with StubServer(lambda request: (200, {"path": request.target, "size": len(request.body)})) as server:
        answers = ask_all(server.url, 4, requests(11))
    expected = sorted(f'{{"path": "/{number}", "size": 100000}}'.encode() for number in range(11))
    assert sorted(answers.bodies) == expected


def test_each_connection_has_one_first_answer() -> None:
    with StubServer(lambda _: (200, {})) as server:
        answers = ask_all(server.url, 4, requests(11))
    assert (len(answers.first), len(answers.spent)) == (4, 11)


def test_a_refusal_ends_it() -> None:
    with StubServer(lambda _: (503, {})) as server, pytest.raises(RuntimeError, match="503"):
        ask_all(server.url, 2, requests(4))


def test_a_server_that_closes_a_connection_ends_it() -> None:
    with StubServer(lambda _: (0, {})) as server, pytest.raises((RuntimeError, ConnectionError)):
        ask_all(server.url, 2, requests(4))
