"""A cluster under load with a real service, and what can be seen of it from outside and inside."""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hived.life.status import snapshot
from hived_extender.kube.client import KubeClient
from hived_jobs.configuration import CONFIG_MAP_NAME, CONFIG_MAP_NAMESPACE
from hived_lab.embedded.nodes import RUN_SECONDS
from hived_lab.start import Embedded, start_embedded
from tests.storm.documents import first_document, text_of
from tests.storm.rules import Broken, check_accounted, check_state
from tests.storm.switch_recorder import SwitchRecorder
from tests.storm.traffic import Traffic, has_ended, is_running

CONFIG = "/v1/config"
CONFIG_MAP = f"/api/v1/namespaces/{CONFIG_MAP_NAMESPACE}/configmaps/{CONFIG_MAP_NAME}"
GROUPS = "/v1/inspect/affinitygroups/"
TIMEOUT_S = 60.0
STILL_S = 0.2
SETTLE_S = 120.0

Json = dict[str, Any]


class BusyCluster:
    """An embedded cluster with its API server and scheduler loop, our service, and traffic."""

    def __init__(self, running: Embedded, seed: int) -> None:
        self.switches = SwitchRecorder(running.extender.service)
        self.traffic = Traffic(running.cluster, seed, first_document())
        self._running = running
        self._service = running.extender.service
        self._kube = KubeClient.connect(running.cluster.api_url)

    @classmethod
    @contextmanager
    def running(cls, seed: int) -> Iterator["BusyCluster"]:
        """With traffic, until the end."""
        with tempfile.TemporaryDirectory(prefix="hived-storm-") as folder:
            file = Path(folder, "hivedscheduler.yaml")
            file.write_text(text_of(first_document()))
            with start_embedded(file) as running:
                busy = cls(running, seed)
                busy.traffic.start()
                try:
                    yield busy
                finally:
                    busy.traffic.stop()
                    busy._kube.close()

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """The answer of the service."""
        return call(self._running.extender.url, method, path, body)

    def ok(self, method: str, path: str, body: bytes | None = None) -> Json:
        """The same of a request that must succeed."""
        code, answer = self.call(method, path, body)
        if code != 200:
            raise Broken(f"{method} {path}: {code} {answer}")
        found: Json = answer
        return found

    def groups(self) -> dict[str, Json]:
        """The status of each group by name, as the inspect API shows it."""
        items = self.ok("GET", GROUPS)["items"] or ()
        return {item["metadata"]["name"]: item["status"] for item in items}

    def check_state(self, pods: list[Json] | None) -> None:
        """`pods` are all there are, if nothing happens at the moment. Raises Broken and InvariantError."""
        if self._service.fault:
            raise Broken(self._service.fault)
        if self.traffic.failures:
            raise Broken("; ".join(self.traffic.failures))
        with self._service._open_core() as core:
            check_state(core.state)
            if pods is not None:
                check_accounted(core.state, pods)

    def everything(self) -> Json:
        """All that a push may change."""
        with self._service._open_core() as core:
            found = {"memory": core.state.cells.memory.tobytes(), "state": snapshot(core.state)}
        return found | {
            "configuration": self.ok("GET", CONFIG),
            "history": self.ok("GET", f"{CONFIG}/versions"),
            "ConfigMap": self._kube.get(CONFIG_MAP),
            "groups": self.groups(),
        }

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Nobody does anything, and what was done has had all its consequences."""
        cluster = self._running.cluster
        with self.traffic.paused():
            until = time.monotonic() + SETTLE_S
            while True:
                self._wait_still(until)
                cluster.stop_scheduler()  # where it was not amid something: a pod could be bound only after minutes
                if not self._something_comes():
                    break
                cluster.start_scheduler(self._running.extender.url)
            try:
                self._wait_still(until)
                yield
            finally:
                cluster.start_scheduler(self._running.extender.url)

    def _wait_still(self, until: float) -> None:
        seen, since = self._moment(), time.monotonic()
        while time.monotonic() - since < STILL_S:
            if time.monotonic() > until:
                raise Broken(f"something still changes {SETTLE_S:.0f} s after everybody has stopped")
            time.sleep(STILL_S / 10)
            now = self._moment()
            if now != seen or self._something_comes():
                seen, since = now, time.monotonic()

    def _moment(self) -> tuple[bytes, list[str]]:
        with self._service._open_core() as core:
            memory = core.state.cells.memory.tobytes()
        return memory, [pod["metadata"]["resourceVersion"] for pod in self.traffic.pods()]

    def _something_comes(self) -> bool:
        """Are there pods that are about to end by themselves, to be bound, or to leave, or whose end is yet unheard?"""
        known = {record.uid for record in list(self._service.machine.cache.pods)}
        pods = self.traffic.pods()
        if known - {pod["metadata"]["uid"] for pod in pods if not has_ended(pod)}:
            return True
        ends = any(is_running(pod) and RUN_SECONDS in pod["metadata"]["annotations"] for pod in pods)
        leaves = any("deletionTimestamp" in pod["metadata"] for pod in pods)
        return ends or leaves or bool(self._service.machine.cache.pods.counts()["Binding"])


def call(url: str, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """The status code and what the JSON of the answer says."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()
