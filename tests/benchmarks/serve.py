"""The extender's service behind its real server, as a process: `python -m tests.benchmarks.serve --config FILE`.

It starts as `hived serve` does, except that nodes and pods come from files and not from an API server: the bound pods
as a list, before it leads, the waiting ones afterwards, as from a watch. When it is ready it prints one line of JSON
and serves until its standard input ends. Each line of that is another pod that is created.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import msgspec

from hived_config.loader import load_cluster
from hived_extender.http.bodies import Receive, Scope, Send
from hived_extender.http.server import HttpServer, listen, settle_process, tune_process
from hived_extender.http.shim import LateApp, Shim
from hived_extender.insight.answering import Answering
from hived_extender.insight.forecast import Forecaster
from hived_extender.insight.history import HistoryRings, Sampler
from hived_extender.jobs.wire import Node, NodeMetadata, NodeStatus, Pod, StatusCondition
from hived_extender.kube import logs
from hived_extender.kube.client import KubeClient
from hived_extender.kube.watch import drained
from hived_extender.machine.service import Service
from hived_extender.warm import compile_kernels
from tests.benchmarks.process import resident_mb

NOWHERE = "http://127.0.0.1:1"
"""Stands for the API server, which nothing that is measured talks to."""


class Nothing:
    """An application that answers an empty 200: what is left is the server itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """Nothing is under way."""


def read_pods(path: Path | None) -> list[Pod]:
    """Pods as the API server shows them, one JSON text a line."""
    if path is None:
        return []
    decoder = msgspec.json.Decoder(Pod)
    with path.open("rb") as lines:
        return [decoder.decode(line) for line in lines]


def healthy_node(name: str) -> Node:
    """A node that is Ready."""
    return Node(NodeMetadata(name), status=NodeStatus([StatusCondition("Ready", "True")]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--pods", type=Path, help="file of pods that are known at the start, one JSON text a line")
    parser.add_argument("--insight", action="store_true", help="with samples of the past and forecasts")
    options = parser.parse_args()
    logs.configure("json", "INFO", is_queued=True)
    tune_process()
    compile_kernels()
    spec = load_cluster(options.config)
    service = Service(spec, KubeClient.connect(NOWHERE))
    names = sorted(node for pool in spec.physical_cells for rack in pool.children for node in
                   (cell.address for cell in rack.children))  # fmt: skip
    service.sync_nodes([healthy_node(name) for name in names])
    pods = read_pods(options.pods)
    waiting = [pod for pod in pods if not pod.node]
    pods = [pod for pod in pods if pod.node]
    began = time.perf_counter()
    service.sync_pods(drained(pods))
    service.lead(lambda: True)
    recovery_s = time.perf_counter() - began
    for pod in waiting:
        service.pod_seen(pod)
    del waiting
    history, forecaster = HistoryRings(), Forecaster(service)
    beside = (Sampler(service, history), forecaster) if options.insight else ()
    for each in beside:
        each.start()
    app = LateApp(service, history=history, insight=Answering(service, forecaster)) if beside else LateApp(service)
    server = HttpServer(Shim(app, service), listen("127.0.0.1:0"))
    server.start()
    settle_process()
    ready = {"url": server.url, "recovery_s": recovery_s, "resident_mb": resident_mb()}
    empty = HttpServer(Nothing(), listen("127.0.0.1:0"))
    empty.start()
    print(json.dumps(ready | {"empty_url": empty.url}), flush=True)
    decode = msgspec.json.Decoder(Pod).decode
    for line in sys.stdin.buffer:
        service.pod_seen(decode(line))
    empty.stop()
    server.stop()
    for each in beside:
        each.stop()
    service.close()


if __name__ == "__main__":
    main()
