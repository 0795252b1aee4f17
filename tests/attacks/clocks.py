"""Wall clocks jump by up to a day, forward and back, while work goes on: of hived and its API server, or of a replica.

At each jump a queued job runs and two wait for it, which follow once it is gone. One replica leads. History and
queues are answered. Nothing has happened in the future.
"""

import json
import re
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hived_extender.api.paths import HISTORY_PATH, QUEUE_JOBS_PATH, READINESS_PATH
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.attacks.attack import Outcome, Run
from tests.e2e.cluster import RealCluster
from tests.e2e.own_clock import own_clock, set_clock
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import configuration
from tests.e2e.processes import Process, StartError, answers, free_port, hived_process
from tests.e2e.tools import DEFAULT, find

JOBS = "/apis/batch/v1/namespaces/default/jobs"
GPU = "nvidia.com/gpu"
HOUR_S = 3600
JUMPS_S = (3 * HOUR_S, -6 * HOUR_S, 12 * HOUR_S, -24 * HOUR_S, 90, 0)
"""Each the offset from the real time from then on."""

SOON_S = 60.0
SKEW_S = 2.0
"""The two clocks may differ by so much after a jump that is over."""


def embedded(run: Run) -> Outcome:
    """One embedded cluster as a process of its own; at a lower scale, fewer jumps."""
    outcome, offset = Outcome(), run.folder / "offset"
    environment, port = own_clock(offset), free_port()
    log = run.folder / "hived.log"
    service = hived_process(
        "hived", port, [f"--embedded={_configuration(run)}", "--webhook"], log,
        is_ready=lambda: "\nReady" in log.read_text(errors="replace"), environment=environment,
    )  # fmt: skip
    try:
        service.start(ready_s=180)
        found = re.search(r"export KUBECONFIG=(\S+)", log.read_text())
        assert found is not None
        with closing(KubeClient.connect(kubeconfig=found[1])) as kube:
            _Cluster(kube, f"http://127.0.0.1:{port}", [offset], [service], [port], outcome).jump_all(run)
    except StartError as error:
        outcome.fault(str(error))
    finally:
        service.stop()
    return outcome


def real(run: Run) -> Outcome:
    """Two replicas beside a real API server: the clock of each jumps in turn, all others are right."""
    outcome = Outcome()
    offsets = [run.folder / name / "offset" for name in ("first", "second")]
    for each in offsets:
        each.parent.mkdir()
    clocks = [own_clock(each) for each in offsets]
    with (
        ControlPlane(find(DEFAULT), "attacks") as plane,
        RealCluster(
            plane, _configuration(run), replica_count=2, serve_options=("--leader-elect",), of_replicas=clocks
        ) as cluster,
    ):
        _Cluster(plane.kube, cluster.url, offsets, cluster.services, cluster.ports, outcome).jump_all(run)
    return outcome


def _configuration(run: Run) -> Path:
    return configuration(run.folder, {"a": 1}, of_vcs={"a": {"namespaces": ["default"]}}, queues={"enabled": True})


def _job(name: str, run_s: float) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: 8}}}
    template = {
        "metadata": {"annotations": {RUN_SECONDS: f"{run_s:g}"}},
        "spec": {"schedulerName": "hived", "restartPolicy": "Never", "containers": [container]},
    }
    return {
        "metadata": {"name": name},
        "spec": {"parallelism": 1, "completions": 1, "suspend": True, "template": template},
    }


@dataclass
class _Cluster:
    """A cluster whose clocks jump; `offsets` has the file of each clock, `services` and `ports` the replicas."""

    kube: KubeClient
    url: str
    offsets: Sequence[Path]
    services: Sequence[Process]
    ports: Sequence[int]
    outcome: Outcome

    def jump_all(self, run: Run) -> None:
        """Each jump, by each clock in turn."""
        for number, jump_s in enumerate(JUMPS_S[: run.count(len(JUMPS_S), least=2)]):
            self.jump(number, jump_s)

    def jump(self, number: int, jump_s: int) -> None:
        """A job runs and two wait as the clock jumps; the first is deleted later, and the others follow in order."""
        names = [f"j{number}-{order}" for order in range(3)]
        clock = number % len(self.offsets)
        when = f"clock {clock} {jump_s:+d} s"
        for name, run_s in zip(names, (1e5, 1.0, 1.0), strict=True):
            self.kube.create(JOBS, _job(name, run_s))
        self._expect(f"{when}: {names[0]} starts before", lambda: self._is(names[0], "active"))
        set_clock(self.offsets[clock], jump_s)
        time.sleep(1.5)  # until the library has read it
        self._expect(f"{when}: it is still running, the others wait", lambda: self._waiting() == set(names[1:]))
        self._see_answers(when)
        self.kube.delete(f"{JOBS}/{names[0]}", with_dependents=True)
        for name in names[1:]:
            self._expect(f"{when}: {name} starts and ends", partial(self._is, name, "succeeded"))
        self._expect(f"{when}: one replica leads", lambda: self._leaders() == 1)
        for name in names[1:]:
            self.kube.delete(f"{JOBS}/{name}", with_dependents=True)
        for service in self.services:
            if not service.is_running:
                self.outcome.fault(f"{when}: hived has ended\n{service.tail()}")

    def _leaders(self) -> int:
        return sum(answers(f"http://127.0.0.1:{port}{READINESS_PATH}") for port in self.ports)

    def _expect(self, what: str, look: Callable[[], bool]) -> None:
        self.outcome.tried += 1
        until = time.monotonic() + SOON_S
        while not self._is_so(look):
            if time.monotonic() > until or not any(each.is_running for each in self.services):
                self.outcome.fault(f"not so: {what}\n{self._rows()}\n{self.services[0].tail(5)}")
                return
            time.sleep(0.05)
        self.outcome.refused += 1

    def _is_so(self, look: Callable[[], bool]) -> bool:
        try:
            return look()
        except TimeoutError:  # a busy machine
            return False

    def _is(self, name: str, counted: str) -> bool:
        return bool(self.kube.get(f"{JOBS}/{name}").get("status", {}).get(counted))

    def _waiting(self) -> set[str]:
        return {row["name"].rpartition("/")[2] for row in self._rows() if row["state"] == "Waiting"}

    def _rows(self) -> list[dict[str, Any]]:
        return list(self._get(QUEUE_JOBS_PATH)["items"])

    def _see_answers(self, when: str) -> None:
        self._expect(f"{when}: nothing is of the future", lambda: not self._later())
        self._expect(f"{when}: the history is answered", lambda: "times" in self._get(HISTORY_PATH))

    def _later(self) -> list[str]:
        return [row["name"] for row in self._rows() if row["since"] > time.time() + SKEW_S]

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)
