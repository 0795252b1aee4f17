"""Fuzzed requests to every path: mutated JSON, wrong methods, hostile headers, bytes that are no HTTP.

Every answer is 2xx, 4xx or 503, with JSON (or the text of /metrics, or the few words on bytes that are no HTTP); never
500, also inside the `Error` of a verb. `/healthz` stays 200.
"""

import json
import socket
import threading
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Any

from hived_extender.api.paths import CONFIG_PATH
from hived_extender.http.routes import INTERNAL_ERROR, ROUTES
from hived_extender.kube.client import KubeError
from tests.attacks.attack import Outcome, Run
from tests.attacks.hostile_values import DEEP, INTEGERS, LONG_DIGITS, STRUCTURED, Hostile, Json
from tests.attacks.target import NODE_NAMES, Target
from tests.e2e.pods import POD_LIST

FULL_COUNT = 100_000
CALLERS = 2
HEALTH_EVERY = 500
TIMEOUT_S = 20.0
COSTLY = 0.01
"""Of all requests: those to /v1/config paths, which start a process each."""

PATHS = sorted({route.path for route in ROUTES})
CONFIG_PATHS = sorted({route.path for route in ROUTES if route.path.startswith(CONFIG_PATH)})
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "X" * 300)
HEADERS = (
    "Content-Type: text/xml", "Expect: 100-continue", "Authorization: Bearer " + "x" * 5000, "Authorization: Basic !",
    "X-A: " + "y" * 20_000, "Accept: */*;q=9", "Cookie: a=b; c", "Content-Encoding: gzip", "Range: bytes=0-9999999999",
    "X-Forwarded-For: 1.2.3.4", "If-None-Match: *", "Upgrade: h2c", "Upgrade: websocket", "Host: other", "Accept:\t",
    "Transfer-Encoding: gzip", "Connection: close",
)  # fmt: skip
NO_HTTP = (
    b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 50 + b"\r\n", b"\x00" * 100,
    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: 1e9\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"GET / HTTP/1.1\r\nA\r\nB: \xff\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
)  # fmt: skip
ODD_SEGMENTS = ("..", "%00", "%ff", "a" * 3000, "%2e%2e%2f", "\u00e9", "{name}", "?a=b&a", "//", "%", "a;b", "*")


def run(run: Run) -> Outcome:
    """Two callers at once."""
    outcome = Outcome()
    with Target(run, "requests") as target:
        known = _known_pods(target, run.seed)
        count = run.count(FULL_COUNT, least=200)
        callers = [_Caller(run, target, outcome, number, known, count // CALLERS) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        if why := target.fault():
            outcome.fault(why)
        if "internal error" in target.service.log.read_text(errors="replace"):
            outcome.fault(f"the log of hived has an internal error: {target.service.log}")
    return outcome


def _known_pods(target: Target, seed: int) -> list[Json]:
    """Pods that the service has seen, so that requests about them get further than to `unknown`."""
    hostile = Hostile(seed, is_stored=True)
    known: list[Json] = []
    for number in range(40):
        with suppress(KubeError):
            known.append(target.kube.create(POD_LIST, hostile.pod(f"known-{number}")))
    return known


class _Caller(threading.Thread):
    """Sends requests from a seed of its own, over a connection that is made anew when it has ended."""

    def __init__(self, run: Run, target: Target, outcome: Outcome, number: int, known: list[Json], count: int) -> None:
        super().__init__(daemon=True)
        self._run, self._target, self._outcome, self._known, self._count = run, target, outcome, known, count
        self._number = number
        self._hostile = Hostile(run.seed * 1000 + number)
        self._random = self._hostile.random
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """Until all are sent."""
        try:
            for sent in range(self._count):
                self._send_one()
                if sent % HEALTH_EVERY == 0 and self._target.status("/healthz") != 200:
                    self._outcome.fault(f"/healthz is not 200 after {sent} requests")
                if sent % 5000 == 4999 and self._number == 0:
                    self._run.say(f"  {sent + 1} of {self._count} requests, times {CALLERS}")
        except Exception as error:
            self._outcome.fault(f"the attacker broke off: {type(error).__name__} {error}")
        self._close()

    def _send_one(self) -> None:
        if self._hostile.may(0.03):
            method, path, request, is_http = "GET", "", self._random.choice(NO_HTTP), False
            self._close()
        else:
            method, path, request = self._request()
            is_http = True
        self._outcome.tried += 1
        try:
            status, kind, body = self._exchange(method, request, is_http=is_http)
        except TimeoutError:
            self._close()
            self._outcome.fault(f"no answer within {TIMEOUT_S:.0f} s: {request[:300]!r}")
            return
        except (OSError, HTTPException) as error:
            self._close()
            if is_http:
                self._judge_broken(request, error)
            return
        if not is_http:
            self._close()
        self._judge(method, path, request, status, kind, body)

    def _judge(self, method: str, path: str, request: bytes, status: int, kind: str, body: bytes) -> None:
        shown = f"{request[:200]!r}: {status} {body[:200]!r}"
        is_refused = 400 <= status < 500 or status == 503
        is_known = status == 304 and b"If-None-Match" in request and not body
        if not (200 <= status < 300 or is_known or is_refused):
            self._outcome.fault(shown)
        elif INTERNAL_ERROR.encode() in body:
            self._outcome.fault(f"an internal error in the answer to {shown}")
        elif body and kind == "application/json":
            try:
                json.loads(body)
            except ValueError:
                self._outcome.fault(f"no JSON in the answer to {shown}")
        elif body and not path.startswith("/metrics") and b"Invalid HTTP request" not in body:
            self._outcome.fault(f"{kind} in the answer to {shown}")
        has_error = b'"Error":"' in body and b'"Error":""' not in body
        self._outcome.refused += is_refused or has_error

    def _judge_broken(self, request: bytes, error: Exception) -> None:
        """A connection may end without an answer only where the request cannot have one."""
        if b"HTTP/1.1\r\n" in request and not any(word in request for word in (b"CONNECT ", b"X" * 300, b"Upgrade")):
            self._outcome.fault(f"{type(error).__name__} {error} instead of an answer to {request[:300]!r}")

    # -- requests

    def _request(self) -> tuple[str, str, bytes]:
        path = self._random.choice(CONFIG_PATHS if self._hostile.may(COSTLY) else PATHS)
        body = self._body(path)
        if self._hostile.may(0.1):
            path = path.rstrip("/") + "/" + self._random.choice(ODD_SEGMENTS)
        path = path.replace("{name}", self._random.choice(("a", "evil", "default/g1", *ODD_SEGMENTS)))
        is_verb = "extender" in path or path.endswith(("what-if", "plan"))
        method = "POST" if is_verb else "GET"
        if self._hostile.may(0.1):
            method = self._random.choice(METHODS)
        headers = [self._random.choice(HEADERS) for _ in range(self._random.choice((0, 0, 0, 1, 3)))]
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n" + "".join(f"{each}\r\n" for each in headers)
        encoded = head.encode("utf-8", "replace")
        if self._hostile.may(0.1):
            pieces = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
            return method, path, encoded + b"Transfer-Encoding: chunked\r\n\r\n" + pieces
        return method, path, encoded + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)

    def _body(self, path: str) -> bytes:
        if self._hostile.may(0.1):
            return self._random.choice(STRUCTURED).encode("utf-8", "replace")
        pod = self._random.choice(self._known) if self._hostile.may(0.6) else self._hostile.pod("stranger")
        documents: dict[str, Any] = {
            "filter": {"Pod": pod, "Nodes": None, "NodeNames": NODE_NAMES},
            "preempt": {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": {"n0": {"Pods": []}}},
            "bind": {"PodName": pod["metadata"]["name"], "PodNamespace": "default", "PodUID": "x", "Node": "n0"},
            "what-if": {"pods": [self._hostile.pod("w") for _ in range(self._random.randrange(4))]},
        }
        document = documents.get(path.rpartition("/")[2], {"text": self._hostile.text(), "baseVersion": 1})
        if self._hostile.may(0.8):
            document = self._mutated(json.loads(json.dumps(document)))
        text = json.dumps(document).replace('"@digits"', LONG_DIGITS).replace('"@deep"', DEEP)
        return self._damaged(text.encode()) if self._hostile.may(0.2) else text.encode()

    def _mutated(self, document: Any) -> Any:
        """A document with a few places changed."""
        for _ in range(self._random.randrange(1, 4)):
            place: Any = document
            while isinstance(place, dict | list) and place:
                key = (
                    self._random.choice(list(place)) if isinstance(place, dict) else self._random.randrange(len(place))
                )
                if not isinstance(place[key], dict | list) or self._hostile.may(0.3):
                    self._change(place, key)
                    break
                place = place[key]
        return document

    def _change(self, place: Any, key: Any) -> None:
        values: tuple[Any, ...] = (
            None,
            True,
            -1,
            *INTEGERS,
            1e308,
            "",
            "x" * 3000,
            [],
            {},
            [[]],
            "\ud800",
            "@digits",
            "@deep",
            "\x00",
        )
        if isinstance(place, dict) and self._hostile.may(0.2):
            place[str(key).swapcase()] = place.pop(key)
        else:
            place[key] = self._random.choice(values)

    def _damaged(self, text: bytes) -> bytes:
        place = self._random.randrange(len(text) + 1)
        pieces = (b"\xff\xfe", b"\x00", b"", b"{", b'"', b"\\ud83d", b"\xed\xa0\x80", b"NaN", b"1e99999", b",")
        return text[:place] + self._random.choice(pieces) + text[place + self._random.randrange(3) :]

    # -- the connection

    def _exchange(self, method: str, request: bytes, *, is_http: bool) -> tuple[int, str, bytes]:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._target.port), timeout=TIMEOUT_S)
        self._socket.sendall(request)
        if not is_http:
            self._socket.shutdown(socket.SHUT_WR)
        response = HTTPResponse(self._socket, method=method)
        response.begin()
        body = response.read()
        if response.will_close or response.version < 11:
            self._close()
        return response.status, (response.getheader("Content-Type") or "").partition(";")[0], body

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
