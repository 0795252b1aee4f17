"""Pieces of answers: made in turn on the event loop, with others served in between."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from flask import Flask, Response

from hived_extender.http import shim
from hived_extender.http.bodies import Message
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.shim import FlaskCall, Shim, environ_of
from tests.extender.machine.small_cluster import PATIENCE_S, SmallCluster


class Steps:
    """Notes each piece that is made, and each turn of the event loop."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def pieces(self, *names: str) -> Iterator[bytes]:
        """A piece for each name, an empty one for an empty name."""
        for name in names:
            self.notes.append(name)
            yield name.encode()

    async def turn_round(self) -> None:
        """Note each turn of the loop until it is cancelled."""
        while True:
            self.notes.append("turn")
            await asyncio.sleep(0)


def flask_call(sent: list[Message]) -> FlaskCall:
    """A call whose messages are kept; `begin` has run."""

    async def send(message: Message) -> None:
        sent.append(message)

    def app(_: object, start: Callable[..., object]) -> list[bytes]:
        start("200 OK", [])
        return []

    flask = Flask(__name__)
    flask.wsgi_app = app  # type: ignore[method-assign, assignment]  # Flask's way to put something in front
    call = FlaskCall(flask, {"PATH_INFO": "/"}, send)
    call.begin()
    return call


def bodies(sent: list[Message]) -> list[bytes]:
    """The pieces that were sent."""
    return [message["body"] for message in sent if message["type"] == "http.response.body"]


def test_headers_of_one_name_are_joined() -> None:
    headers = [(b"if-none-match", b'"a"'), (b"accept", b"*/*"), (b"if-none-match", b'"b"')]
    scope = {"method": "GET", "path": "/", "query_string": b"", "http_version": "1.1", "scheme": "http"}
    assert environ_of(scope | {"headers": headers}, b"")["HTTP_IF_NONE_MATCH"] == '"a", "b"'


def test_the_loop_turns_between_two_pieces_of_all_answers() -> None:
    steps = Steps()

    async def answer_two() -> None:
        turn = asyncio.Lock()
        others = asyncio.create_task(steps.turn_round())
        await asyncio.gather(*(flask_call([]).answer(steps.pieces(*names), turn) for names in ("abc", "xyz")))
        others.cancel()

    asyncio.run(answer_two())
    made = " ".join(steps.notes).split("turn")
    assert max(len(each.split()) for each in made) == 1


def test_answers_take_turns() -> None:
    steps = Steps()

    async def answer_two() -> None:
        turn = asyncio.Lock()
        await asyncio.gather(*(flask_call([]).answer(steps.pieces(*names), turn) for names in ("abc", "xyz")))

    asyncio.run(answer_two())
    assert "".join(steps.notes) == "axbycz"


def test_an_empty_piece_is_not_sent() -> None:
    sent: list[Message] = []

    async def answer() -> None:
        await flask_call(sent).answer(Steps().pieces("a", "", "b"), asyncio.Lock())

    asyncio.run(answer())
    assert bodies(sent) == [b"a", b"b", b""]


def test_an_answer_that_nobody_reads_holds_no_turn() -> None:
    sent: list[Message] = []

    async def answer() -> None:
        turn, never = asyncio.Lock(), asyncio.Event()
        stuck = flask_call([])
        stuck._send = lambda _: never.wait()  # type: ignore[assignment, return-value]  # a client that hangs
        reading = asyncio.create_task(stuck.answer(Steps().pieces("a", "b"), turn))
        await flask_call(sent).answer(Steps().pieces("x", "y", "z"), turn)
        reading.cancel()

    asyncio.run(answer())
    assert bodies(sent) == [b"x", b"y", b"z", b""]


def test_no_more_answers_are_under_way_than_there_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "OTHER_THREADS", 2)
    app, begun = Flask(__name__), threading.Semaphore(0)

    @app.route("/")
    def endless() -> Response:
        begun.release()
        return Response(iter(lambda: bytes(100_000), b""))

    server = HttpServer(Shim(app, SmallCluster().service), listen("127.0.0.1:0"))
    server.start()
    address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    clients = [socket.create_connection(address) for _ in range(3)]
    for client in clients:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    try:
        assert all(begun.acquire(timeout=PATIENCE_S) for _ in range(2))
        assert not begun.acquire(timeout=0.2)
        clients[0].close()
        clients[1].close()
        assert begun.acquire(timeout=PATIENCE_S)
    finally:
        for client in clients:
            client.close()
        server.stop()
