"""Our service as a process of its own, its configuration in a ConfigMap, that can be killed and started again."""

from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from tests.e2e.processes import Process, free_port, hived_process
from tests.storm.busy_cluster import call

NAMESPACE, NAME = "default", "hived-config"


class Replica:
    """`hived serve --config-map` from `start` to `kill`, as often as wanted."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process: Process = hived_process(
            "hived",
            port,
            [f"--config-map={NAMESPACE}/{NAME}"],
            log,
            is_ready=self._is_ready,
            # A few nodes: kernels are quick as plain Python, and need not be loaded.
            environment={"KUBECONFIG": str(kubeconfig), "NUMBA_DISABLE_JIT": "1"},
        )
        self.start, self.kill = self._process.start, self._process.kill

    def _is_ready(self) -> bool:
        with suppress(OSError, HTTPException, ValueError):
            return call(self.url, "GET", "/readyz")[0] == 200
        return False
