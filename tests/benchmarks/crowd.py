"""Many connections that open at once and then ask one thing after the other, each as soon as it has its answer.

One thread serves them all: a thread for each would wait for the others here, and not for the server.
"""

import selectors
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter_ns


@dataclass(slots=True)
class Answers:
    """Nanoseconds of all calls, and of the first call of each connection with its opening; bodies of all answers."""

    spent: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


class _Caller:
    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_first = True
        self._received = b""
        self.ask(request)
        self.socket.connect_ex(address)

    def ask(self, request: bytes) -> None:
        """Begin to send a request."""
        self._unsent = memoryview(request)
        self.started = perf_counter_ns()

    def send(self) -> bool:
        """Send what the socket takes; True once that is all."""
        self._unsent = self._unsent[self.socket.send(self._unsent) :]
        return not self._unsent

    def receive(self) -> bytes | None:
        """The body of the answer once it is complete. Raises RuntimeError for any status but 200."""
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise RuntimeError("the server closed the connection")
        self._received += piece
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return None
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"the server answered {self._received[:500].decode()}")
        self._received = b""
        return body


def _length(head: bytes) -> int:
    return int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])


def ask_all(url: str, connection_count: int, requests: Iterator[bytes], timeout_s: float = 60.0) -> Answers:
    """Open so many connections and share the requests among them, of which there are at least as many.

    Raises RuntimeError if the server closes one, is silent for `timeout_s`, or refuses.
    """
    host, port = url.removeprefix("http://").rsplit(":", 1)
    answers = Answers()
    with selectors.DefaultSelector() as selector:
        callers = [_Caller((host, int(port)), next(requests)) for _ in range(connection_count)]
        try:
            for caller in callers:
                selector.register(caller.socket, selectors.EVENT_WRITE, caller)
            while selector.get_map():
                ready = selector.select(timeout_s)
                if not ready:
                    raise RuntimeError(f"no answer within {timeout_s} s")
                for key, _ in ready:
                    _proceed(selector, key.data, requests, answers)
        finally:
            for caller in callers:
                caller.socket.close()
    return answers


def _proceed(selector: selectors.BaseSelector, caller: _Caller, requests: Iterator[bytes], answers: Answers) -> None:
    if selector.get_key(caller.socket).events == selectors.EVENT_WRITE:
        if caller.send():
            selector.modify(caller.socket, selectors.EVENT_READ, caller)
        return
    body = caller.receive()
    if body is None:
        return
    spent = perf_counter_ns() - caller.started
    answers.spent.append(spent)
    answers.bodies.append(body)
    if caller.is_first:
        answers.first.append(spent)
        caller.is_first = False
    request = next(requests, None)
    if request is None:
        selector.unregister(caller.socket)
    else:
        caller.ask(request)
        selector.modify(caller.socket, selectors.EVENT_WRITE, caller)
