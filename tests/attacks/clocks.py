"""The wall clock of hived, and of its API server, jumps by up to a day, forward and back, while work goes on.

At each jump a queued job runs and two wait for it, which follow once it is gone. History and
queues are answered. Nothing has happened in the future.
"""

import json
import re
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from hived_extender.api.paths import HISTORY_PATH, QUEUE_JOBS_PATH
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.lifetimes import RUN_SECONDS
from tests.attacks.attack import Outcome, Run
from tests.e2e.own_clock import own_clock, set_clock
from tests.e2e.pods import configuration
from tests.e2e.processes import Process, StartError, free_port, hived_process
from tests.e2e.tools import ToolsMissing

JOBS = "/apis/batch/v1/namespaces/default/jobs"
GPU = "nvidia.com/gpu"
HOUR_S = 3600
JUMPS_S = (3 * HOUR_S, -6 * HOUR_S, 12 * HOUR_S, -24 * HOUR_S, 90, 0)
"""Each the offset from the real time from then on."""

SOON_S = 60.0
SKEW_S = 2.0
"""The two clocks may differ by so much after a jump that is over."""


def run(run: Run) -> Outcome:
    """One embedded cluster as a process of its own; at a lower scale, fewer jumps."""
    outcome, offset = Outcome(), run.folder / "offset"
    try:
        environment = own_clock(offset)
    except ToolsMissing as error:
        outcome.not_run = str(error)
        return outcome
    config = configuration(run.folder, {"a": 1}, queues={"enabled": True})
    document = yaml.safe_load(config.read_text())
    document["virtualClusters"]["a"]["namespaces"] = ["default"]
    config.write_text(yaml.safe_dump(document))
    port = free_port()
    log = run.folder / "hived.log"
    service = hived_process(
        "hived", port, [f"--embedded={config}", "--webhook"], log,
        is_ready=lambda: "\nReady" in log.read_text(errors="replace"), environment=environment,
    )  # fmt: skip
    try:
        service.start(ready_s=180)
        found = re.search(r"export KUBECONFIG=(\S+)", log.read_text())
        assert found is not None
        with closing(KubeClient.connect(kubeconfig=found[1])) as kube:
            cluster = _Cluster(kube, f"http://127.0.0.1:{port}", offset, service, outcome)
            for number, jump_s in enumerate(JUMPS_S[: run.count(len(JUMPS_S), least=2)]):
                cluster.jump(number, jump_s)
    except StartError as error:
        outcome.fault(str(error))
    finally:
        service.stop()
    return outcome


def _job(name: str, run_s: float) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: 8}}}
    template = {
        "metadata": {"annotations": {RUN_SECONDS: f"{run_s:g}"}},
        "spec": {"schedulerName": "hived", "restartPolicy": "Never", "containers": [container]},
    }
    return {"metadata": {"name": name}, "spec": {"parallelism": 1, "completions": 1, "template": template}}


class _Cluster:
    def __init__(self, kube: KubeClient, url: str, offset: Path, service: Process, outcome: Outcome) -> None:
        self._kube, self._url, self._offset, self._service, self._outcome = kube, url, offset, service, outcome

    def jump(self, number: int, jump_s: int) -> None:
        """A job runs and two wait as the clock jumps; the first is deleted later, and the others follow in order."""
        names = [f"j{number}-{order}" for order in range(3)]
        when = f"clock {jump_s:+d} s"
        for name, run_s in zip(names, (1e5, 1.0, 1.0), strict=True):
            self._kube.create(JOBS, _job(name, run_s))
        self._expect(f"{when}: {names[0]} starts before", lambda: self._is(names[0], "active"))
        set_clock(self._offset, jump_s)
        time.sleep(1.5)  # until the library has read it
        self._expect(f"{when}: it is still running, the others wait", lambda: self._waiting() == set(names[1:]))
        self._see_answers(when)
        self._kube.delete(f"{JOBS}/{names[0]}")
        for name in names[1:]:
            self._expect(f"{when}: {name} starts and ends", lambda name=name: self._is(name, "succeeded"))
        for name in names[1:]:
            self._kube.delete(f"{JOBS}/{name}")
        if not self._service.is_running:
            self._outcome.fault(f"{when}: hived has ended\n{self._service.tail()}")

    def _expect(self, what: str, look: Callable[[], bool]) -> None:
        self._outcome.tried += 1
        until = time.monotonic() + SOON_S
        while not self._is_so(look):
            if time.monotonic() > until or not self._service.is_running:
                self._outcome.fault(f"not so: {what}\n{self._rows()}\n{self._service.tail(5)}")
                return
            time.sleep(0.05)
        self._outcome.refused += 1

    def _is_so(self, look: Callable[[], bool]) -> bool:
        try:
            return look()
        except TimeoutError:  # a busy machine
            return False

    def _is(self, name: str, counted: str) -> bool:
        return bool(self._kube.get(f"{JOBS}/{name}").get("status", {}).get(counted))

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
        with urllib.request.urlopen(f"{self._url}{path}", timeout=30) as answer:
            return json.load(answer)
