"""The cost of TLS and the gate to a filter call: `python -m tests.benchmarks.security`.

Each server is a process of its own with a small cluster; one keep-alive connection asks again and again for a pod whose
node is decided, so that the difference is in the transport. The names of 1,000 nodes come with each call, as from a
kube-scheduler with so many. Rounds alternate between the kinds, so that a busy machine slows all alike.
"""

import json
import ssl
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY
from time import perf_counter_ns

from hived_extender.api.paths import FILTER_PATH
from hived_extender.http.access import DEFAULT_VERB_CALLERS, Gate, Security
from hived_extender.http.app import create_app
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.shim import Shim
from hived_extender.http.tls import ServerTls
from hived_extender.machine.runner import Runner
from tests.extender.http.secured import Files
from tests.extender.machine.small_cluster import NODES, SmallCluster, filter_body, pod_json, spec_text

KINDS = ("plain", "TLS", "mutual TLS")
ROUNDS = 20
CALLS = 250
CONNECTIONS = 100
NODE_NAMES = (*NODES, *(f"gpu-node-{i:04}" for i in range(1000 - len(NODES))))


def serve(kind: str, folder: str) -> None:
    """The server process: says its port, ends with its standard input."""
    files = Path(folder)
    cluster = SmallCluster(run=Runner)
    cluster.create("p")
    tls = None
    if kind != KINDS[0]:
        tls = ServerTls(files / "tls.crt", files / "tls.key", files / "ca.crt" if kind == KINDS[2] else None)
    gate = Security(tls, DEFAULT_VERB_CALLERS).gate(cluster.kube) if tls else Gate()
    server = HttpServer(Shim(create_app(cluster.service, gate), cluster.service), listen("127.0.0.1:0"), tls)
    server.start()
    print(server.url.rsplit(":", 1)[1], flush=True)
    sys.stdin.read()
    server.stop()


def connect(kind: str, port: int, contexts: dict[str, ssl.SSLContext]) -> HTTPConnection:
    """A connection that is made."""
    if kind == KINDS[0]:
        connection = HTTPConnection("127.0.0.1", port)
    else:
        connection = HTTPSConnection("127.0.0.1", port, context=contexts[kind])
    connection.connect()
    connection.sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    return connection


def ask(connection: HTTPConnection, body: bytes) -> int:
    """Nanoseconds of one filter call."""
    started = perf_counter_ns()
    connection.request("POST", FILTER_PATH, body)
    answer = connection.getresponse().read()
    spent = perf_counter_ns() - started
    if json.loads(answer)["NodeNames"] != ["n0"]:
        raise RuntimeError(f"filter answered {answer[:300]!r}")
    return spent


def main() -> None:
    samples: dict[str, list[int]] = {kind: [] for kind in KINDS}
    connecting: dict[str, list[int]] = {kind: [] for kind in KINDS}
    body = filter_body(pod_json("p", spec_text()), NODE_NAMES)
    with tempfile.TemporaryDirectory(prefix="hived-bench-") as folder, ExitStack() as stack:
        files = Files(Path(folder))
        contexts = {KINDS[1]: files.context(), KINDS[2]: files.context("scheduler")}
        connections, ports = {}, {}
        for kind in KINDS:
            command = [sys.executable, "-m", "tests.benchmarks.security", kind, folder]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            )
            assert process.stdin is not None
            assert process.stdout is not None
            stack.callback(process.stdin.close)
            ports[kind] = int(process.stdout.readline())
            connections[kind] = stack.enter_context(closing(connect(kind, ports[kind], contexts)))
        for kind in KINDS * ROUNDS:
            samples[kind] += [ask(connections[kind], body) for _ in range(CALLS)]
        for kind in KINDS * CONNECTIONS:
            started = perf_counter_ns()
            with closing(connect(kind, ports[kind], contexts)) as connection:
                connection.request("GET", "/healthz")
                connection.getresponse().read()
            connecting[kind].append(perf_counter_ns() - started)
    print(f"filter, {len(NODE_NAMES)} node names, {len(body)} bytes, {ROUNDS * CALLS} calls each; ms")
    for kind in KINDS:
        cuts = statistics.quantiles(samples[kind], n=100)
        first = statistics.median(connecting[kind])
        print(f"{kind:11} p50 {cuts[49] / 1e6:.3f}  p99 {cuts[98] / 1e6:.3f}  connect and call {first / 1e6:.2f}")


if __name__ == "__main__":
    serve(*sys.argv[1:]) if sys.argv[1:] else main()
