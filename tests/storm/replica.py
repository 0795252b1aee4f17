"""Our service as a process of its own, its configuration in a ConfigMap, that can be killed and started again."""

import os
import signal
import socket
import subprocess
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from tests.extender.service.world import wait_until
from tests.programs import HIVED
from tests.storm.rules import Broken
from tests.storm.site import call

NAMESPACE, NAME = "default", "hived-config"
READY_S = 60.0


class Replica:
    """`hived serve --config-map` from `start` to `kill`, as often as wanted."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        self._command = [*HIVED, "serve", "--config-map", f"{NAMESPACE}/{NAME}", "--listen", self.url[7:]]
        # A few nodes: kernels are quick as plain Python, and need not be loaded.
        self._environ = os.environ | {"KUBECONFIG": str(kubeconfig), "NUMBA_DISABLE_JIT": "1"}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it leads."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, env=self._environ, stdout=log, stderr=log)
        wait_until(self._is_ready, READY_S)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise Broken(f"the service ended with {self._process.returncode}\n{self._log.read_text()[-3000:]}")
        with suppress(OSError, HTTPException, ValueError):
            return call(self.url, "GET", "/readyz")[0] == 200
        return False
