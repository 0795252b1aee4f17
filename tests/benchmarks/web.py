"""Filter calls as kube-scheduler makes them: a keep-alive connection from another process to the real server.

The server's cluster is half full. Each call asks for a 1-GPU pod that binds and carries the names of all nodes.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Self

from hived.specs import BindInfo, PodRequest
from hived_extender.annotations import SCHEDULING_SPEC, bind_annotations
from hived_extender.wire import ENABLE_LIMIT
from tests.benchmarks.client import Connection, request_bytes
from tests.benchmarks.clusters import GPUS_PER_NODE, VC_NAMES, config_text
from tests.benchmarks.figures import Figures
from tests.benchmarks.measure import Measurement
from tests.benchmarks.process import cpu_ms, resident_mb
from tests.benchmarks.workload import LOW_PRIORITY, SMALLEST

FILTER = "/v1/extender/filter"
START_REPEATS = 3
CALLS = {"same list": 200, "other list": 60, "status": 100}
"""Calls at 128 nodes; up to four times as many on larger clusters."""


def pod_text(pod: PodRequest, bind_info: BindInfo | None = None) -> str:
    """A pod as the API server shows it, in one line."""
    spec = pod.spec
    group = {"name": spec.group.name, "members": [
        {"podNumber": member.pod_count, "leafCellNumber": member.leaf_cell_count} for member in spec.group.members
    ]}  # fmt: skip
    wanted = {"virtualCluster": spec.virtual_cluster, "priority": spec.priority,
              "leafCellNumber": spec.leaf_cell_count, "affinityGroup": group}  # fmt: skip
    if spec.lazy_preemption:
        wanted["lazyPreemptionEnable"] = True
    annotations = {SCHEDULING_SPEC: json.dumps(wanted)} | (bind_annotations(bind_info) if bind_info else {})
    return json.dumps({
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "annotations": annotations},
        "spec": {"nodeName": bind_info.node if bind_info else "",
                 "containers": [{"resources": {"limits": {ENABLE_LIMIT: "1"}}}]},
        "status": {"phase": "Running" if bind_info else "Pending"},
    })  # fmt: skip


def names_text(names: Sequence[str]) -> bytes:
    """A list of node names as Go writes it: no spaces."""
    return json.dumps(names, separators=(",", ":")).encode()


class Server:
    """A `serve` process and what it said when it was ready."""

    def __init__(self, process: "subprocess.Popen[bytes]", ready: dict[str, Any], start_s: float) -> None:
        self.process = process
        self.url: str = ready["url"]
        self.seconds: dict[str, float] = ready["seconds"]
        self.resident_mb: float = ready["resident_mb"]
        self.start_s = start_s
        self.start_cpu_s = cpu_ms(process.pid) / 1e3

    @classmethod
    @contextmanager
    def running(cls, config: Path, pods: Path | None = None) -> Iterator[Self]:
        """Start a process, wait until it is ready, stop it at the end."""
        command = [sys.executable, "-m", "tests.benchmarks.serve", "--config", str(config)]
        command += ["--pods", str(pods)] if pods else []
        started = perf_counter_ns()
        command += ["--started", str(started)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{' '.join(command)} ended before it was ready")
            try:
                yield cls(process, json.loads(line), (perf_counter_ns() - started) / 1e9)
            finally:
                process.stdin.close()


class WebMeasurement:
    """Start, recovery, filter calls and memory of the service, each in a process of its own."""

    def __init__(self, node_count: int, seed: int, progress: Callable[[str], None]) -> None:
        self._load = Measurement(node_count, seed, progress)
        self._progress = progress
        self._calls = {name: count * min(4, node_count // 128) for name, count in CALLS.items()}
        self.figures = Figures()

    def run(self) -> Figures:
        """Raises RuntimeError if the server does not do what the load relies on."""
        with tempfile.TemporaryDirectory(prefix="hived-bench-") as folder:
            config, half, full = (Path(folder, name) for name in ("config.yaml", "half.jsonl", "full.jsonl"))
            config.write_text(config_text(self._load.node_count))
            self.starts(config)
            waiting = self.write_loads(half, full)
            with Server.running(config, half) as server:
                self.filter_calls(server, waiting)
            self._progress("a full cluster recovers from annotations")
            with Server.running(config, full) as server:
                self.figures.values["web/recovery"] = server.seconds["pods"] + server.seconds["term"]
                self.figures.values["web/memory full"] = server.resident_mb
        return self.figures

    def starts(self, config: Path) -> None:
        """Fresh processes with compiled kernels on disk; the median one counts."""
        self._progress("fresh processes")
        runs = []
        for _ in range(START_REPEATS):
            with Server.running(config) as server:
                runs.append(server)
        middle = sorted(runs, key=lambda server: server.start_s)[START_REPEATS // 2]
        self.figures.values["process/total"] = middle.start_s
        self.figures.values["process/cpu"] = middle.start_cpu_s
        for name in ("import", "kernels", "configuration", "nodes", "term"):
            self.figures.values[f"process/{name}"] = middle.seconds[name]
        self.figures.values["web/memory ready"] = middle.resident_mb

    def write_loads(self, half: Path, full: Path) -> list[PodRequest]:
        """Files of the bound pods of a half full and of a full cluster; the former with pods that wait, returned."""
        load = self._load
        load.start()
        gpu_count = load.node_count * GPUS_PER_NODE
        load.fill(gpu_count // 2)
        rooms = {vc: load.quota[vc] - load.driver.gpus_by_vc[vc] for vc in VC_NAMES}
        waiting = []
        for _ in range(sum(self._calls.values())):
            roomiest = max(rooms, key=rooms.__getitem__)
            rooms[roomiest] -= 1
            waiting.append(load.source.make(SMALLEST, roomiest, LOW_PRIORITY).pods[0])
        lines = [pod_text(pod, bind_info) for pod, bind_info in load.driver.placed.values()]
        half.write_text("\n".join([*lines, *map(pod_text, waiting)]))
        load.fill(gpu_count)
        full.write_text("\n".join(pod_text(pod, bind_info) for pod, bind_info in load.driver.placed.values()))
        return waiting

    def filter_calls(self, server: Server, waiting: Sequence[PodRequest]) -> None:
        """With the node list of the call before, with another one, and while somebody reads the status in a loop."""
        names = list(self._load.driver.state.topology.node_names)
        same = names_text(names)
        pods = iter(waiting)
        with closing(Connection(server.url)) as connection:
            self._progress("filter calls")
            before = cpu_ms(server.process.pid)
            for _ in range(self._calls["same list"]):
                self._filter(connection, next(pods), same, "web/filter")
            spent = cpu_ms(server.process.pid) - before
            self.figures.values["web/filter cpu"] = spent / self._calls["same list"]
            for i in range(self._calls["other list"]):
                turned = names_text(names[i + 1 :] + names[: i + 1])
                self._filter(connection, next(pods), turned, "web/filter other list")
            self._progress("filter calls beside status")
            with _reading_status(server.url):
                for _ in range(self._calls["status"]):
                    self._filter(connection, next(pods), same, "web/filter beside status")
        self.figures.values["web/memory half"] = resident_mb(server.process.pid)

    def _filter(self, connection: Connection, pod: PodRequest, names: bytes, key: str) -> None:
        body = b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (pod_text(pod).encode(), names)
        spent, answer = connection.call(request_bytes("POST", FILTER, body))
        if not json.loads(answer)["NodeNames"]:
            raise RuntimeError(f"filter did not bind {pod.name}: {answer[:500].decode()}")
        self.figures.samples.setdefault(key, []).append(spent)


@contextmanager
def _reading_status(url: str) -> Iterator[None]:
    """A process that reads the status of all cells again and again."""
    command = [sys.executable, "-m", "tests.benchmarks.client", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.terminate()
