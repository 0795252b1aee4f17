"""16,384 nodes, four fifths of them full, behind the real commands: an API server that has them, and `hived serve`.

`python -m tests.browser.large_cluster CONFIG` is the API server, as a process of its own: it writes the configuration,
prints its address and serves until its standard input ends. Its nodes have no kubelet, since heartbeats of so many
would take more of the machine than all that is measured.
"""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hived.values.specs import PodRequest, Rules
from hived_extender.kube.client import NODES as NODES_PATH
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.apiserver.registry import Registry
from hived_lab.embedded.apiserver.resources import NAMESPACES, NODES, PODS
from hived_lab.embedded.apiserver.server import ApiServer
from tests.benchmarks.core import Measurement
from tests.benchmarks.load import GPUS_PER_NODE, cluster_spec, config_text
from tests.benchmarks.web import pod_text
from tests.browser.cdp import Json
from tests.expecting import expect_soon
from tests.programs import HIVED

NODE_COUNT = 16_384
FULL_PART = 0.8
BAD_EACH = 311
"""One node of so many is not ready."""

READY_S = 300.0
"""Kernels may have to be compiled first."""


@dataclass(frozen=True, slots=True)
class Large:
    """The running programs: the address and the process of the service, a client of the API server, names of nodes."""

    url: str
    process: "subprocess.Popen[bytes]"
    kube: KubeClient
    nodes: tuple[str, ...]

    def flip(self, node: str, is_ready: bool) -> None:
        """Let a node fail or heal."""
        self.kube.patch(f"{NODES_PATH}/{node}/status", {"status": _status(is_ready)})


@contextmanager
def running(folder: Path) -> Iterator[Large]:
    """Both programs, ready; gone at the end."""
    config = folder / "hivedscheduler.yaml"
    command = [sys.executable, "-m", "tests.browser.large_cluster", str(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        port = _free_port()
        environment = os.environ | {"KUBE_APISERVER_ADDRESS": ready["url"]}
        serve = [*HIVED, "serve", "--config", str(config), "--listen", f"127.0.0.1:{port}"]
        log = (folder / "service.log").open("wb")
        with subprocess.Popen(serve, env=environment, stdout=log, stderr=log) as service:
            try:
                url = f"http://127.0.0.1:{port}"
                expect_soon(lambda: _is_ready(url, service), READY_S, 0.1)
                kube = KubeClient.connect(ready["url"])
                yield Large(url, service, kube, tuple(ready["nodes"]))
                kube.close()
            finally:
                service.terminate()
                log.close()
                assert server.stdin is not None
                server.stdin.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _is_ready(url: str, service: "subprocess.Popen[bytes]") -> bool:
    assert service.poll() is None, "the service has ended"
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _status(is_ready: bool) -> Json:
    devices = {"nvidia.com/gpu": str(GPUS_PER_NODE), "cpu": "64", "memory": "512Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    return {"capacity": devices, "allocatable": devices, "conditions": conditions}


def _fill(registry: Registry, nodes: tuple[str, ...], pods: list[Json]) -> None:
    registry.create(NAMESPACES, {"metadata": {"name": "bench"}})
    for i, name in enumerate(nodes):
        registry.create(NODES, {"metadata": {"name": name}, "status": _status(i % BAD_EACH != 0)})
    for body in pods:
        registry.create(PODS, body)


def _placed_pods() -> list[Json]:
    """Pods that run, as the scheduler would have placed them one after the other."""
    load = Measurement(NODE_COUNT, 1, lambda text: None, rules=Rules.BETTER)
    load.start()
    load.fill(int(NODE_COUNT * GPUS_PER_NODE * FULL_PART))
    return [_bound(pod, json.loads(pod_text(pod, info))) for pod, info in load.driver.placed.values()]


def _bound(pod: PodRequest, body: Json) -> Json:
    del body["metadata"]["uid"]
    body["spec"]["containers"][0] |= {"name": "main", "image": "none"}
    return body


def main() -> None:
    Path(sys.argv[1]).write_text(config_text(NODE_COUNT, Rules.BETTER))
    spec = cluster_spec(NODE_COUNT)
    nodes = tuple(
        node.address for pool in spec.physical_cells for rack in pool.children for node in rack.children
    )  # fmt: skip
    pods = _placed_pods()
    server = ApiServer()
    server.start()
    server.call(lambda: _fill(server.registry, nodes, pods))
    print(json.dumps({"url": server.url, "nodes": nodes, "pods": len(pods)}), flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
