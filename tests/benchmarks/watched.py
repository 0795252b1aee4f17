"""Filter calls beside twenty open pages, while a thousand jobs wait; and what explanations cost.

Virtual cluster alpha is full, and jobs of several sizes wait for it. Nine of ten calls ask for one of these. The tenth
asks for a pod of beta that binds, so the state changes all the time. Calls with and without pages take turns.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns, sleep
from urllib.parse import quote

from hived.values.specs import PodRequest, Rules
from hived_extender.api.paths import WHY_PATH
from tests.benchmarks.client import Connection, request_bytes
from tests.benchmarks.clusters import GPUS_PER_NODE, VC_NAMES, config_text
from tests.benchmarks.figures import Figures, summarise
from tests.benchmarks.measure import Measurement
from tests.benchmarks.process import cpu_s
from tests.benchmarks.web import FILTER, Server, filter_body, names_text, pod_text
from tests.benchmarks.workload import KINDS, LOW_PRIORITY, SMALLEST

WAITING = 1000
PART = 0.5
"""Of the GPUs of each virtual cluster, in use; alpha's all are."""

ROUNDS = 3
"""Of calls without and with pages; the medians of their percentiles are compared, as others may use the machine."""

LEAST_ROUND_S = 0.5
MOST_ROUND_S = 60.0
"""Seconds of each round, at 128 and at 16,384 nodes."""

PAUSE_S = 0.005
"""Between calls."""

ALONE, WATCHED = "watched/filter alone", "watched/filter"

BINDS_EACH = 10
WHYS = 20

FILLERS = (next(kind for kind in KINDS if kind.label == "1x8"), SMALLEST)
WAITERS = tuple(kind for kind in KINDS if kind.label in {"1x1", "1x2", "1x4", "1x8", "8x8", "32x8"})


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
            closing(Connection(server.url)) as connection,
            Pages.open(server.url, self._load.node_count, jobs) as pages,
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
            sleep(PAUSE_S)
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
        command = [sys.executable, "-m", "tests.benchmarks.page_readers", url, str(node_count), *jobs]
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
