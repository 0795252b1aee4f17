"""Filter calls over TLS, and beside slow bindings: `python -m tests.benchmarks.transport`.

Servers are processes of their own with a small cluster. The kinds of transport take turns, so that a busy machine slows
all alike. One keep-alive connection for each asks again and again for a pod whose node is decided, with the names of
1,000 nodes. Then 16 bind calls are under way in every other turn, whose API server takes a second for each.
"""

import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any

from hived_extender.api.paths import BIND_PATH, FILTER_PATH
from hived_extender.http.access import DEFAULT_VERB_CALLERS, Gate, Security
from hived_extender.http.app import create_app
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.shim import Shim
from hived_extender.http.tls import ServerTls
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.machine.runner import Runner
from tests.extender.http.secured import Files
from tests.extender.machine.small_cluster import NODES, SmallCluster, filter_body, pod_json, spec_text

KINDS = ("plain", "TLS", "mutual TLS")
ROUNDS, CALLS, CONNECTIONS = 20, 250, 100
BIND_ROUNDS, BINDS, SLOW_S = 6, 16, 1.0
NODE_NAMES = (*NODES, *(f"gpu-node-{i:04}" for i in range(1000 - len(NODES))))
PODS = [pod_json(f"p{number}", spec_text(leaf_cells=1, priority=-1)) for number in range(BINDS)]
WAITING = pod_json("waiting", spec_text(leaf_cells=4, priority=-1))


def serve(kind: str, folder: str) -> None:
    """The server process: says its port, ends with its standard input."""
    files, cluster, tls = Path(folder), SmallCluster(run=Runner), None
    for pod in (*PODS, WAITING):
        cluster.create(pod["metadata"]["name"], pod["metadata"]["annotations"][SCHEDULING_SPEC])
    cluster.kube.bind_pod = lambda *_, **__: time.sleep(SLOW_S)
    if kind != KINDS[0]:
        tls = ServerTls(files / "tls.crt", files / "tls.key", files / "ca.crt" if kind == KINDS[2] else None)
    gate = Security(tls, DEFAULT_VERB_CALLERS).gate(cluster.kube) if tls else Gate()
    server = HttpServer(Shim(create_app(cluster.service, gate), cluster.service), listen("127.0.0.1:0"), tls)
    server.start()
    print(server.url.rsplit(":", 1)[1], flush=True)
    sys.stdin.read()
    server.stop()


class Caller:
    """A connection that is made to a server of one kind."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        address = ("127.0.0.1", port)
        self._connection = HTTPSConnection(*address, context=context) if context else HTTPConnection(*address)
        self._connection.connect()
        self._connection.sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self.close = self._connection.close

    def post(self, path: str, body: bytes) -> Any:
        """The answer, without mistakes. Raises RuntimeError."""
        self._connection.request("POST", path, body)
        answer = json.loads(self._connection.getresponse().read())
        if answer["Error"]:
            raise RuntimeError(answer["Error"])
        return answer

    def timed(self, body: bytes) -> list[float]:
        """Milliseconds of each of a series of filter calls."""
        spent = []
        for _ in range(CALLS):
            began = time.perf_counter()
            self.post(FILTER_PATH, body)
            spent.append((time.perf_counter() - began) * 1e3)
        return spent

    def bind_until(self, stop: threading.Event, pod: Any, where: str) -> None:
        """Bind a pod again and again."""
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": where}
        with closing(self):
            while not stop.is_set():
                self.post(BIND_PATH, json.dumps(body).encode())


def measure_transport(ports: dict[str, int], contexts: dict[str, ssl.SSLContext | None]) -> None:
    """Filter calls and new connections of each kind."""
    body = filter_body(PODS[0], NODE_NAMES)
    samples: dict[str, list[float]] = {kind: [] for kind in KINDS}
    connecting: dict[str, list[float]] = {kind: [] for kind in KINDS}
    callers = {kind: Caller(ports[kind], contexts[kind]) for kind in KINDS}
    for kind in KINDS * ROUNDS:
        samples[kind] += callers[kind].timed(body)
    for kind in KINDS * CONNECTIONS:
        began = time.perf_counter()
        with closing(Caller(ports[kind], contexts[kind])) as caller:
            caller.post(FILTER_PATH, body)
        connecting[kind].append((time.perf_counter() - began) * 1e3)
    for caller in callers.values():
        caller.close()
    print(f"filter, {len(NODE_NAMES)} node names, {len(body)} bytes, {ROUNDS * CALLS} calls each; ms")
    for kind in KINDS:
        show(kind, samples[kind], f"connect and call {statistics.median(connecting[kind]):.2f}")


def measure_beside_bindings(port: int) -> None:
    """Filter calls that answer 'wait', with and without bindings that wait for the API server."""
    samples: dict[str, list[float]] = {"no bindings": [], f"{BINDS} bindings": []}
    body = filter_body(WAITING)
    with closing(Caller(port)) as caller:
        places = [caller.post(FILTER_PATH, filter_body(pod))["NodeNames"][0] for pod in PODS]
        for _ in range(BIND_ROUNDS):
            for name, found in samples.items():
                stop, pods = threading.Event(), PODS if name.startswith(str(BINDS)) else []
                threads = [
                    threading.Thread(target=Caller(port).bind_until, args=(stop, pod, where))
                    for pod, where in zip(pods, places, strict=False)
                ]
                for thread in threads:
                    thread.start()
                time.sleep(SLOW_S / 4)
                found.extend(caller.timed(body))
                stop.set()
                for thread in threads:
                    thread.join()
    print(f"filter calls that answer 'wait', {CALLS * BIND_ROUNDS} each; ms")
    for name, found in samples.items():
        show(name, found, f"max {max(found):.3f}")


def show(name: str, samples: Sequence[float], rest: str) -> None:
    """One line of figures."""
    cuts = statistics.quantiles(samples, n=100)
    print(f"{name:11} p50 {cuts[49]:.3f}  p99 {cuts[98]:.3f}  {rest}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hived-bench-") as folder, ExitStack() as stack:
        files, ports = Files(Path(folder)), dict[str, int]()
        for kind in KINDS:
            command = [sys.executable, "-m", "tests.benchmarks.transport", kind, folder]
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            process = stack.enter_context(subprocess.Popen(command, **streams))
            assert process.stdin is not None
            assert process.stdout is not None
            stack.callback(process.stdin.close)
            ports[kind] = int(process.stdout.readline())
        measure_transport(ports, dict(zip(KINDS, (None, files.context(), files.context("scheduler")), strict=True)))
        measure_beside_bindings(ports[KINDS[0]])


if __name__ == "__main__":
    serve(*sys.argv[1:]) if sys.argv[1:] else main()
