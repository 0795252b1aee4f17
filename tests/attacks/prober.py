"""Honest calls from a process of their own: `python -m tests.attacks.prober PLAN`.

It asks filter about pods in turn, and now and then `/healthz`: a call every few milliseconds, over a kept connection,
with a deadline. For each line on its standard input it prints a line of JSON with what has happened since the last.
"""

import json
import ssl
import sys
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from hived_extender.api.paths import FILTER_PATH, HEALTH_PATH

TIMEOUT_S = 5.0
"""As kube-scheduler has it for the extender: httpTimeout."""

HEALTH_EVERY = 10


class Prober:
    """Calls until the end of the process; what was seen is taken away by `taken`."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._bodies = [text.encode() for text in plan["bodies"]]
        self._lock = threading.Lock()
        self._spent: list[float] = []
        self._failures: list[str] = []
        self._connection: HTTPConnection | None = None

    def run(self) -> None:
        """Call forever."""
        number = 0
        while True:
            began = time.perf_counter()
            path, body = FILTER_PATH, self._bodies[number % len(self._bodies)]
            if number % HEALTH_EVERY == HEALTH_EVERY - 1:
                path, body = HEALTH_PATH, b""
            failure = self._call(path, body)
            spent_ms = (time.perf_counter() - began) * 1e3
            with self._lock:
                self._spent.append(spent_ms)
                if failure:
                    self._failures.append(failure)
            number += 1
            time.sleep(self._plan["interval_s"])

    def taken(self) -> dict[str, Any]:
        """All that has happened since the last time."""
        with self._lock:
            seen = {"spent": self._spent, "failures": self._failures}
            self._spent, self._failures = [], []
        return seen

    def _call(self, path: str, body: bytes) -> str:
        """Why the answer is no good, "" if it is."""
        try:
            connection = self._connection = self._connection or self._connect()
            connection.request("POST" if body else "GET", path, body or None)
            response = connection.getresponse()
            text = response.read()
            if response.status != 200:
                return f"{path}: {response.status} {text[:200]!r}"
            answer = json.loads(text)
            return "" if path == HEALTH_PATH or answer.get("NodeNames") else f"{path}: {text[:300]!r}"
        except (OSError, HTTPException, ValueError) as error:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return f"{path}: {type(error).__name__} {error}"

    def _connect(self) -> HTTPConnection:
        plan = self._plan
        if not plan["ca"]:
            return HTTPConnection("127.0.0.1", plan["port"], timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=plan["ca"])
        context.load_cert_chain(plan["certificate"], plan["key"])
        return HTTPSConnection("127.0.0.1", plan["port"], timeout=TIMEOUT_S, context=context)


def main() -> None:
    """Call, and tell when asked, until standard input ends."""
    prober = Prober(json.loads(Path(sys.argv[1]).read_text()))
    threading.Thread(target=prober.run, daemon=True).start()
    with suppress(BrokenPipeError):
        for _ in sys.stdin:
            print(json.dumps(prober.taken()), flush=True)


if __name__ == "__main__":
    main()
