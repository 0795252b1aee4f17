"""Filter calls as kube-scheduler makes them: a keep-alive connection from another process to the real server.

Each call carries the names of all nodes. In `WebMeasurement` the cluster is half full, and each asks for a 1-GPU pod
that binds. In `WatchedMeasurement` twenty pages are open, while a thousand jobs wait for virtual cluster alpha, which
is full. Nine of ten calls ask for one of these. The tenth asks for a pod of beta that binds, so that the state changes.
"""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns, sleep
from typing import Any, Self
from urllib.parse import quote

from hived.values.specs import BindInfo, PodRequest, Rules
from hived_extender.api.paths import WHY_PATH
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.bind_info import bind_annotations
from hived_extender.jobs.wire import ENABLE_LIMIT
from tests.benchmarks.callers import Connection, ask_all, request_bytes
from tests.benchmarks.core import Measurement
from tests.benchmarks.load import GPUS_PER_NODE, KINDS, LOW_PRIORITY, SMALLEST, VC_NAMES, config_text, spec_document
from tests.benchmarks.process import cpu_s, resident_mb
from tests.benchmarks.table import Figures, summarise

FILTER = "/v1/extender/filter"
START_REPEATS = 3
"""Fresh processes, unless told otherwise."""

CALLS = {"same list": 200, "other list": 60}
"""Calls at 128 nodes; up to four times as many on larger clusters."""

CONNECTIONS = 32
"""That open at once, and share as many calls."""

STATUSES = 2
"""Answers that the reader of the status gets while calls go on, each of the physical and all virtual clusters."""

LEAST_BESIDE_STATUS = 100
MOST_BESIDE_STATUS = 250
"""Calls at 128 nodes until the reader has them; up to 32 times as many, as one of 16,384 nodes takes seconds."""

LONGEST_S = 600.0
"""For one answer, where a busy machine has not given the reader its turn while all calls were made."""

PAUSE_S = 0.001
"""Between calls beside the status: without, it would take longer than there are pods to ask about."""

WAITING, WHYS, BINDS_EACH = 1000, 20, 10
PART = 0.5
"""Of the GPUs of each virtual cluster, in use; alpha's all are."""

ROUNDS = 3
"""Of calls without and with pages; the medians of their percentiles are compared, as others may use the machine."""

LEAST_ROUND_S, MOST_ROUND_S = 0.5, 60.0
"""Seconds of each round, at 128 and at 16,384 nodes."""

WATCHED_PAUSE_S = 0.005
"""Between calls."""

ALONE, WATCHED = "watched/filter alone", "watched/filter"

FILLERS = (next(kind for kind in KINDS if kind.label == "1x8"), SMALLEST)
WAITERS = tuple(kind for kind in KINDS if kind.label in {"1x1", "1x2", "1x4", "1x8", "8x8", "32x8"})


def pod_text(pod: PodRequest, bind_info: BindInfo | None = None) -> str:
    """A pod as the API server shows it, in one line."""
    annotations = {SCHEDULING_SPEC: json.dumps(spec_document(pod))} | (bind_annotations(bind_info) if bind_info else {})
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
        self.empty_url: str = ready["empty_url"]
        self.recovery_s: float = ready["recovery_s"]
        self.resident_mb: float = ready["resident_mb"]
        self.start_s = start_s
        self.start_cpu_s = cpu_s(process.pid)

    def create(self, pod: PodRequest) -> None:
        """Let the server see another pod."""
        assert self.process.stdin is not None
        self.process.stdin.write(pod_text(pod).encode() + b"\n")
        self.process.stdin.flush()

    @classmethod
    @contextmanager
    def running(cls, config: Path, pods: Path | None = None, *options: str) -> Iterator[Self]:
        """Start a process with more options, wait until it is ready, stop it at the end."""
        command = [sys.executable, "-m", "tests.benchmarks.serve", "--config", str(config)]
        command += ["--pods", str(pods)] if pods else []
        command += options
        started = perf_counter_ns()
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

    def __init__(
        self, node_count: int, seed: int, progress: Callable[[str], None], start_count: int = START_REPEATS,
        rules: Rules = Rules.HIVED,
    ) -> None:  # fmt: skip
        self._start_count = start_count
        self._load = Measurement(node_count, seed, progress, rules=rules)
        self._progress = progress
        self._calls = {name: count * min(4, node_count // 128) for name, count in CALLS.items()}
        self._beside_status = MOST_BESIDE_STATUS * min(32, node_count // 128)
        self.figures = Figures()

    def run(self) -> Figures:
        """Raises RuntimeError if the server does not do what the load relies on."""
        with tempfile.TemporaryDirectory(prefix="hived-bench-") as folder:
            config, half, busy, full = (Path(folder, name) for name in ("config", "half", "busy", "full"))
            config.write_text(config_text(self._load.node_count, self._load.rules))
            self.starts(config)
            waiting = self.write_loads(half, busy, full)
            with Server.running(config, half) as server:
                self.empty_calls(server)
                self.filter_calls(server, waiting)
            with Server.running(config, half) as server:
                self.crowded_calls(server, waiting)
            with Server.running(config, busy) as server:
                self.filter_calls_beside_status(server, waiting)
            self._progress("a full cluster recovers from annotations")
            with Server.running(config, full) as server:
                self.figures.values["web/recovery"] = server.recovery_s
                self.figures.values["web/memory full"] = server.resident_mb
        return self.figures

    def starts(self, config: Path) -> None:
        """Fresh processes with compiled kernels on disk; the median one counts."""
        self._progress("fresh processes")
        runs = []
        for _ in range(self._start_count):
            with Server.running(config) as server:
                runs.append(server)
        middle = sorted(runs, key=lambda server: server.start_s)[self._start_count // 2]
        self.figures.values["process/total"] = middle.start_s
        self.figures.values["process/cpu"] = middle.start_cpu_s
        self.figures.values["web/memory ready"] = middle.resident_mb

    def write_loads(self, half: Path, busy: Path, full: Path) -> list[PodRequest]:
        """Files of the bound pods of a half full and of a full cluster; the former with pods that wait, returned.

        As waiting pods are tried in the background, `half` has no more of them than are needed; `busy` has all.
        """
        load = self._load
        load.start()
        gpu_count = load.node_count * GPUS_PER_NODE
        load.fill(gpu_count // 2)
        rooms = {vc: load.quota[vc] - load.driver.gpus_by_vc[vc] for vc in VC_NAMES}
        waiting = []
        few = sum(self._calls.values())
        for _ in range(max(few, self._beside_status)):
            roomiest = max(rooms, key=rooms.__getitem__)
            rooms[roomiest] -= 1
            waiting.append(load.source.make(SMALLEST, roomiest, LOW_PRIORITY).pods[0])
        lines = [pod_text(pod, bind_info) for pod, bind_info in load.driver.placed.values()]
        half.write_text("\n".join([*lines, *map(pod_text, waiting[:few])]))
        busy.write_text("\n".join([*lines, *map(pod_text, waiting)]))
        load.fill(gpu_count)
        full.write_text("\n".join(pod_text(pod, bind_info) for pod, bind_info in load.driver.placed.values()))
        return waiting

    def empty_calls(self, server: Server) -> None:
        """What the same server takes to answer nothing."""
        self._progress("empty calls")
        request = request_bytes("GET", "/")
        with closing(Connection(server.empty_url)) as connection:
            spent = [connection.call(request)[0] for _ in range(self._calls["same list"])]
        self.figures.samples["web/empty"] = spent

    def crowded_calls(self, server: Server, waiting: Sequence[PodRequest]) -> None:
        """Many connections at once, with one node list."""
        self._progress(f"{CONNECTIONS} connections")
        names = names_text(self._load.driver.state.topology.node_names)
        pods = waiting[: sum(self._calls.values()) // CONNECTIONS * CONNECTIONS]
        requests = [request_bytes("POST", FILTER, filter_body(pod, names)) for pod in pods]
        answers = ask_all(server.url, CONNECTIONS, iter(requests))
        for answer in answers.bodies:
            _check_binds(answer)
        self.figures.samples["web/crowded"] = answers.spent
        self.figures.samples["web/crowded first"] = answers.first

    def filter_calls(self, server: Server, waiting: Sequence[PodRequest]) -> None:
        """With the node list of the call before, and with another one."""
        names = list(self._load.driver.state.topology.node_names)
        same = names_text(names)
        pods = iter(waiting)
        with closing(Connection(server.url)) as connection:
            self._progress("filter calls")
            before = cpu_s(server.process.pid)
            for _ in range(self._calls["same list"]):
                self._filter(connection, next(pods), same, "web/filter")
            spent = (cpu_s(server.process.pid) - before) * 1e3
            same_list, empty = (summarise(self.figures.samples[key]) for key in ("web/filter", "web/empty"))
            self.figures.values["web/filter times empty"] = same_list["p50"] / empty["p50"]
            self.figures.values["web/filter cpu"] = spent / self._calls["same list"]
            for i in range(self._calls["other list"]):
                turned = names_text(names[i + 1 :] + names[: i + 1])
                self._filter(connection, next(pods), turned, "web/filter other list")
        self.figures.values["web/memory half"] = resident_mb(server.process.pid)

    def filter_calls_beside_status(self, server: Server, waiting: Sequence[PodRequest]) -> None:
        """While somebody reads the status in a loop, until it has been read as a whole."""
        self._progress("filter calls beside status")
        same = names_text(self._load.driver.state.topology.node_names)
        with closing(Connection(server.url)) as connection, StatusReader.running(server.url) as reader:
            for number, pod in enumerate(waiting):
                if number >= LEAST_BESIDE_STATUS and reader.answers >= STATUSES:
                    break
                self._filter(connection, pod, same, "web/filter beside status")
                sleep(PAUSE_S)
            if not reader.has_answered.wait(LONGEST_S):
                raise RuntimeError("the status of all cells was never read")
            self.figures.samples["web/status"] = list(reader.spent)
            self.figures.values["web/statuses"] = reader.answers

    def _filter(self, connection: Connection, pod: PodRequest, names: bytes, key: str) -> None:
        spent, answer = connection.call(request_bytes("POST", FILTER, filter_body(pod, names)))
        _check_binds(answer)
        self.figures.samples.setdefault(key, []).append(spent)


def filter_body(pod: PodRequest, names: bytes) -> bytes:
    """A question of kube-scheduler about a pod, with a list of node names."""
    return b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (pod_text(pod).encode(), names)


def _check_binds(answer: bytes) -> None:
    if not json.loads(answer)["NodeNames"]:
        raise RuntimeError(f"filter did not bind a pod: {answer[:500].decode()}")


class StatusReader:
    """A process that reads the status of all cells again and again. `spent` grows by the ns of each that it gets."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        self.spent: list[int] = []
        self.has_answered = threading.Event()
        self._lines = process.stdout
        self._thread = threading.Thread(target=self._count)
        self._thread.start()

    @classmethod
    @contextmanager
    def running(cls, url: str) -> Iterator[Self]:
        """Start a process and wait for its first answer, which does not count; stop it at the end."""
        command = [sys.executable, "-m", "tests.benchmarks.callers", "status", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            reader = cls(process)
            try:
                yield reader
            finally:
                process.terminate()
                reader._thread.join()

    def _count(self) -> None:
        for line in self._lines:
            self.spent.append(int(line))
            self.has_answered.set()

    @property
    def answers(self) -> int:
        """How many it has got."""
        return len(self.spent)


class WatchedMeasurement:
    """One server, watched by twenty pages every other round."""

    def __init__(self, node_count: int, seed: int, progress: Callable[[str], None], rules: Rules = Rules.HIVED) -> None:
        self._load = Measurement(node_count, seed, progress, rules=rules)
        self._progress = progress
        self._round_s = min(MOST_ROUND_S, LEAST_ROUND_S * node_count / 128)
        self.figures = Figures()

    def run(self) -> Figures:
        """Raises RuntimeError if the server does not do what the load relies on."""
        with tempfile.TemporaryDirectory(prefix="hived-bench-") as folder:
            config, pods = Path(folder, "config"), Path(folder, "pods")
            config.write_text(config_text(self._load.node_count, self._load.rules))
            waiting, binding = self._write_load(pods)
            with Server.running(config, pods, "--insight") as server:
                self._rounds(server, waiting, binding)
                self._whys(server, waiting)
        return self.figures

    def _write_load(self, path: Path) -> tuple[list[PodRequest], list[PodRequest]]:
        """A file of the pods that run and of those that wait: the latter, and others that fit."""
        load = self._load
        load.start()
        self._progress(f"{WAITING} jobs that wait for a full virtual cluster")
        for vc in VC_NAMES:
            self._fill(vc, load.quota[vc] if vc == VC_NAMES[0] else int(load.quota[vc] * PART))
        kinds = cycle([kind for kind in WAITERS if kind.gpu_count <= load.node_count * GPUS_PER_NODE // 16])
        waiting = [load.source.make(next(kinds), VC_NAMES[0], LOW_PRIORITY) for _ in range(WAITING)]
        free = load.quota[VC_NAMES[1]] - load.driver.gpus_by_vc[VC_NAMES[1]]
        binding = [load.source.make(SMALLEST, VC_NAMES[1], LOW_PRIORITY).pods[0] for _ in range(free)]
        lines = [pod_text(pod, info) for pod, info in load.driver.placed.values()]
        path.write_text("\n".join([*lines, *(pod_text(pod) for job in waiting for pod in job.pods)]))
        return [job.pods[0] for job in waiting], binding

    def _fill(self, vc: str, gpu_count: int) -> None:
        driver, source = self._load.driver, self._load.source
        for kind in FILLERS:
            while driver.gpus_by_vc[vc] + kind.gpu_count <= gpu_count:
                if not driver.place(source.make(kind, vc, LOW_PRIORITY), "load", may_preempt=False):
                    break

    def _rounds(self, server: Server, waiting: Sequence[PodRequest], binding: Sequence[PodRequest]) -> None:
        names = names_text(self._load.driver.state.topology.node_names)
        wait, bind = cycle(waiting), iter(binding)
        jobs = [f"{pod.namespace}/{pod.name}" for pod in waiting[: 4 * len(WAITERS) : len(WAITERS) + 1]]
        self._progress(f"filter calls, {ROUNDS} times {self._round_s:g} s without pages and with them")
        p99s: dict[str, list[float]] = {ALONE: [], WATCHED: []}
        with (
            Pages.open(server.url, self._load.node_count, jobs) as pages,
            closing(Connection(server.url)) as connection,  # now, as one that stays silent is closed
        ):
            calls = partial(self._calls, server, connection, wait, bind, names)
            self._create(server, next(bind, None))
            calls("")  # the first calls read each pod, and pages are opened
            for _ in range(ROUNDS):
                for key, found in p99s.items():
                    pages.rest_or_go_on()
                    before, began = cpu_s(server.process.pid), perf_counter()
                    spent = calls(key)
                    cpu = (cpu_s(server.process.pid) - before) / (perf_counter() - began)
                    found.append(summarise(spent)["p99"])
                    self._progress(f"{key}: {len(spent)} calls, p99 {found[-1]:.1f} ms, {cpu:.0%} of a core")
        self.figures.samples["watched/page"] = pages.spent
        self.figures.values["watched/filter times alone"] = median(p99s[WATCHED]) / median(p99s[ALONE])

    def _calls(
        self,
        server: Server,
        connection: Connection,
        wait: Iterator[PodRequest],
        bind: Iterator[PodRequest],
        names: bytes,
        key: str,
    ) -> list[int]:
        """Ask for a while; returns the ns of each answer, which are noted under `key` if there is one."""
        until, number, every = perf_counter() + self._round_s, 0, list[int]()
        while perf_counter() < until:
            number += 1
            is_to_bind = number % BINDS_EACH == 0
            pod = self._next if is_to_bind else next(wait)
            spent, answer = connection.call(request_bytes("POST", FILTER, filter_body(pod, names)))
            if bool(json.loads(answer)["NodeNames"]) != is_to_bind:
                raise RuntimeError(f"{pod.name} should {'bind' if is_to_bind else 'wait'}: {answer[:500].decode()}")
            if is_to_bind:
                self._create(server, next(bind, None))
            every.append(spent)
            sleep(WATCHED_PAUSE_S)
        if key:
            self.figures.samples.setdefault(key, []).extend(every)
        return every

    def _create(self, server: Server, pod: PodRequest | None) -> None:
        """Have the server know the next pod that binds a while before it is asked about."""
        if pod is None:
            raise RuntimeError("all pods that fit are bound: measure a larger cluster, or for a shorter time")
        server.create(pod)
        self._next = pod

    def _whys(self, server: Server, waiting: Sequence[PodRequest]) -> None:
        """Why one job after the other waits; each has to be worked out, on the same copy or on another."""
        self._progress("why jobs wait")
        with closing(Connection(server.url)) as connection:
            for pod in waiting[:WHYS]:
                began = perf_counter_ns()
                path = WHY_PATH + quote(f"{pod.namespace}/{pod.name}")
                _, answer = connection.call(request_bytes("GET", path))
                self.figures.samples.setdefault("watched/why", []).append(perf_counter_ns() - began)
                if json.loads(answer)["certificate"]["cause"] == "unknown":
                    raise RuntimeError(f"nobody knows why {pod.name} waits: {answer[:500].decode()}")


class Pages:
    """Open pages in another process; `spent` has the ns of each answer in the end."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.spent: list[int] = []
        self._process = process

    @classmethod
    @contextmanager
    def open(cls, url: str, node_count: int, jobs: Sequence[str]) -> Iterator["Pages"]:
        """Until the end. Raises RuntimeError if a page cannot be read."""
        command = [sys.executable, "-m", "tests.benchmarks.callers", "pages", url, str(node_count), *jobs]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            pages = cls(process)
            try:
                yield pages
            finally:
                out, _ = process.communicate()
            if process.returncode:
                raise RuntimeError("a page could not be read")
            pages.spent.extend(map(int, out.split()))

    def rest_or_go_on(self) -> None:
        """Nobody looks at them any more; or somebody does again."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
