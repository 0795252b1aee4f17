"""The effect on filter calls of 16 bindings that wait for a slow API server: `python -m tests.benchmarks.slow_binds`.

The service is a process of its own; its API server, in this process, takes a second for every binding. Filter calls are
timed without and with 16 bind calls under way all the time, in turns, so that a busy machine slows both alike.
"""

import json
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any

from hived_extender.api.paths import BIND_PATH, FILTER_PATH
from hived_extender.http.app import create_app
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.shim import Shim
from hived_extender.kube.client import KubeClient
from hived_extender.machine.service import Service
from tests.extender.machine.small_cluster import NODES, cluster_spec, filter_body, node, pod_json, spec_text, to_pod
from tests.stub_server import Request, StubServer

BINDS = 16
SLOW_S = 1.0
ROUNDS = 5
CALLS = 300
PODS = [pod_json(f"p{number}", spec_text(leaf_cells=1, priority=-1)) for number in range(BINDS)]
WAITING = pod_json("waiting", spec_text(leaf_cells=4, priority=-1))


def answer(request: Request) -> tuple[int, Any]:
    """An API server that takes a second for a binding, and accepts everything else at once."""
    if request.target.endswith("/binding"):
        time.sleep(SLOW_S)
    return 201, {"metadata": {"name": "x"}}


def serve(api: str) -> None:
    """The server process: says its port, ends with its standard input."""
    service = Service(cluster_spec(), KubeClient.connect(api))
    service.sync_nodes([node(name) for name in NODES])
    service.lead(lambda: True)
    for pod in [*PODS, WAITING]:
        service.pod_seen(to_pod(pod))
    server = HttpServer(Shim(create_app(service), service), listen("127.0.0.1:0"))
    server.start()
    print(server.url.rsplit(":", 1)[1], flush=True)
    sys.stdin.read()
    server.stop()
    service.close()


def connect(port: int) -> HTTPConnection:
    connection = HTTPConnection("127.0.0.1", port)
    connection.connect()
    connection.sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    return connection


def post(connection: HTTPConnection, path: str, body: bytes) -> Any:
    connection.request("POST", path, body)
    return json.loads(connection.getresponse().read())


def timed(connection: HTTPConnection) -> list[float]:
    """Milliseconds of each of a series of filter calls."""
    body = filter_body(WAITING)
    spent = []
    for _ in range(CALLS):
        started = time.perf_counter()
        post(connection, FILTER_PATH, body)
        spent.append(1000 * (time.perf_counter() - started))
    return spent


def bind_until(stop: threading.Event, port: int, pod: Any, where: str, delays: list[float]) -> None:
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": where}
    with closing(connect(port)) as connection:
        while not stop.is_set():
            started = time.perf_counter()
            error = post(connection, BIND_PATH, json.dumps(body).encode())["Error"]
            if error:
                raise RuntimeError(error)
            delays.append(time.perf_counter() - started)


def main() -> None:
    """Print the figures."""
    quiet: list[float] = []
    busy: list[float] = []
    delays: list[float] = []
    with ExitStack() as stack:
        api = stack.enter_context(StubServer(answer))
        command = [sys.executable, "-m", "tests.benchmarks.slow_binds", api.url]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = stack.enter_context(subprocess.Popen(command, **streams))
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with closing(connect(port)) as connection:
            places = [post(connection, FILTER_PATH, filter_body(pod))["NodeNames"][0] for pod in PODS]
            timed(connection)
            for _ in range(ROUNDS):
                quiet += timed(connection)
                stop = threading.Event()
                threads = [
                    threading.Thread(target=bind_until, args=(stop, port, pod, where, delays))
                    for pod, where in zip(PODS, places, strict=True)
                ]
                for thread in threads:
                    thread.start()
                time.sleep(SLOW_S / 4)
                busy += timed(connection)
                stop.set()
                for thread in threads:
                    thread.join()
        process.stdin.close()
    print(f"filter calls that answer 'wait', {len(quiet)} each; ms")
    for name, values in (("no bindings", quiet), (f"{BINDS} bindings", busy)):
        cuts = statistics.quantiles(values, n=100)
        print(f"{name:12} p50 {cuts[49]:.3f}  p99 {cuts[98]:.3f}  max {max(values):.3f}")
    print(f"bind calls took {min(delays):.2f} to {max(delays):.2f} s, {BINDS} at a time")


if __name__ == "__main__":
    serve(sys.argv[1]) if sys.argv[1:] else main()
