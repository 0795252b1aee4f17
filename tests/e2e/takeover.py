"""How long nobody answers when the leader ends, on a real control plane.

    python -m tests.e2e.takeover --nodes 100 --repeat 10

From the signal to the first answer of the next leader to a filter call, which is asked of it every few milliseconds.
The cluster is half full and some pods wait: a new leader reads the former again and touches the latter.
"""

import argparse
import os
import random
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hived_extender.kube.client import pod_path
from tests.e2e.certificates import LOOPBACK
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import configuration, create, pod
from tests.e2e.processes import Process
from tests.e2e.throughput import wait_bound
from tests.e2e.tools import DEFAULT, VERSIONS, find

REPLICAS = 2
GPUS = 8
WAITING_COUNT = 50
ASK_S = 0.005
LONGEST_S = 60.0
LEASE_S = 120
"""Kubelets that give a sign of life every few seconds would be most of what a thousand nodes do to this machine."""

ENDS: dict[str, Callable[[Process], None]] = {"kill -9": Process.kill, "polite stop": Process.stop}


def measure(plane: ControlPlane, node_count: int, repeat: int) -> dict[str, list[float]]:
    """Seconds without an answer, by how the leader ended."""
    with tempfile.TemporaryDirectory() as folder:
        file = configuration(Path(folder), {"a": node_count, "nobody": 0}, gpus=GPUS)
        options = ("--leader-elect",)
        with RealCluster(plane, file, replica_count=REPLICAS, serve_options=options) as cluster:
            question = _fill(plane, node_count)
            return {name: [_gap(cluster, end, question) for _ in range(repeat)] for name, end in ENDS.items()}


def _fill(plane: ControlPlane, node_count: int) -> bytes:
    """Half of the GPUs in use, and pods of a VC that has none; returns the filter call of one of those."""
    bound_count = node_count * GPUS // 2
    create(plane.kube, [pod(f"p-{number}") for number in range(bound_count)])
    wait_bound(plane.kube, bound_count)
    create(plane.kube, [pod(f"waiting-{number}", vc="nobody") for number in range(WAITING_COUNT)])
    asked: dict[str, Any] = plane.kube.get(pod_path("default", "waiting-0"))
    nodes = [f"n{number}" for number in range(node_count)]
    return msgspec.json.encode({"Pod": asked, "Nodes": None, "NodeNames": nodes})


def _gap(cluster: RealCluster, end: Callable[[Process], None], question: bytes) -> float:
    leader = cluster.leader()
    cluster.await_followers()
    time.sleep(random.uniform(1.0, 2.0))  # any moment between two renewals of the Lease
    others = [port for port, one in zip(cluster.ports, cluster.services, strict=True) if one is not leader]
    ending = threading.Thread(target=end, args=(leader,))
    began = time.monotonic()
    ending.start()
    while not any(_is_answered(port, question) for port in others):
        if time.monotonic() - began > LONGEST_S:
            raise TimeoutError(f"nobody answered for {LONGEST_S:.0f} s")
        time.sleep(ASK_S)
    gap = time.monotonic() - began
    ending.join()
    leader.start(ready_s=None)
    return gap


def _is_answered(port: int, question: bytes) -> bool:
    address = f"http://{LOOPBACK}:{port}/v1/extender/filter"
    try:
        with urllib.request.urlopen(urllib.request.Request(address, question), timeout=10) as answer:
            return not msgspec.json.decode(answer.read())["Error"]
    except OSError:
        return False


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--version", choices=VERSIONS, default=DEFAULT)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=10)
    options = parser.parse_args()
    name = f"takeover-{os.getpid()}"
    with ControlPlane(find(options.version), name, lease_s=LEASE_S) as plane:
        for how, seconds in measure(plane, options.nodes, options.repeat).items():
            middle, most = statistics.median(seconds), max(seconds)
            print(f"{options.version}: {options.nodes} nodes, {how}: median {middle:.2f} s, most {most:.2f} s")


if __name__ == "__main__":
    main()
