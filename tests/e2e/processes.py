"""Programs that are started, stopped, killed, frozen and started again, each known by its pid."""

import contextlib
import itertools
import os
import random
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.e2e import guard
from tests.programs import program

POLL_S = 0.05
STOP_S = 20.0
TAIL_LINES = 25


class StartError(Exception):
    """A program ended or was not ready in time; the message ends with the tail of its log."""


# Below those that the system gives to whoever connects or wants any port: nobody takes one before its owner listens, or
# while the owner is away. Each worker of one run has its own range.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ports = itertools.count(20_000 + _WORKER % 4 * 2_000 + random.randrange(1_000))


def free_port() -> int:
    """A TCP port on loopback that nobody listens on, another one each time."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = next(_ports)
            probe.bind(("127.0.0.1", port))
            return port


class Process:
    """One program with its arguments, from `start` to `stop` as often as wanted; its log goes on in one file.

    Parameters
    ----------
    name : what it is called in messages
    command : program and arguments
    log : where its output is appended
    is_ready : asked until it says yes; None for a program that is ready once it runs
    environment : variables beside those of this process
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        is_ready: Callable[[], bool] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.command = [str(part) for part in command]
        self._is_ready = is_ready
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The pid of the program that runs now. Raises StartError if none does."""
        if self._process is None:
            raise StartError(f"{self.name} does not run")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended; a frozen program runs."""
        if self._process is None:
            return False
        has_ended = self._process.poll() is not None
        if has_ended:
            guard.forget(self._process.pid)
        return not has_ended

    def start(self, *extra: str, ready_s: float | None = 60.0) -> None:
        """Start it, with arguments beside its own this time, and wait until it is ready (not with `ready_s=None`).

        Raises StartError if it runs already, ends at once, or is not ready in time.
        """
        with self._lock:
            if self.is_running:
                raise StartError(f"{self.name} runs already")
            with self.log.open("ab") as log:
                log.write(f"--- {' '.join([*self.command, *extra])}\n".encode())
                log.flush()
                self._process = subprocess.Popen(
                    [*self.command, *extra],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C is for the tests, which end their processes in order
                )
            guard.watch(self._process.pid)
        if ready_s is not None:
            self.wait_ready(ready_s)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until it answers. Raises StartError if it ends or time is up, with the end of its log."""
        began = time.monotonic()
        while self.is_running:
            if self._is_ready is None or self._is_ready():
                return
            if time.monotonic() - began > timeout_s:
                raise StartError(f"{self.name} was not ready after {timeout_s:.0f} s\n{self.tail()}")
            time.sleep(POLL_S)
        code = self._process.returncode if self._process else None
        raise StartError(f"{self.name} ended with exit code {code}\n{self.tail()}")

    def wait_ended(self, timeout_s: float = STOP_S) -> int:
        """Wait until it has ended by itself and return its exit code. Raises TimeoutExpired."""
        if self._process is None:
            return 0
        code = self._process.wait(timeout_s)
        guard.forget(self._process.pid)
        return code

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End it politely, with SIGTERM, and the hard way if that takes too long; harmless when it does not run."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a frozen program hears nothing
        try:
            self.wait_ended(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it with SIGKILL and wait until it is gone; harmless when it does not run."""
        self._signal(signal.SIGKILL)
        self.wait_ended()

    def freeze(self) -> None:
        """SIGSTOP: it keeps its connections and does nothing any more, until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on after `freeze`."""
        self._signal(signal.SIGCONT)

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(f"  {self.name} | {line}" for line in text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)


def hived_process(
    name: str,
    port: int,
    words: Sequence[str],
    log: Path,
    *,
    is_ready: Callable[[], bool],
    environment: Mapping[str, str],
    product: Path | None = None,
    file_limit: int = 0,
) -> Process:
    """`hived serve` with these words on a port of loopback.

    Parameters
    ----------
    product : the folder of another checkout that takes the place of this one
    file_limit : how many files it may open, 0 for as many as the system allows
    """
    hived, path = program(product)
    command = [*hived, "serve", f"--listen=127.0.0.1:{port}", *words]
    if file_limit:
        command = ["sh", "-c", f'ulimit -n {file_limit} && exec "$@"', "sh", *command]
    paths = filter(None, [environment.get("PYTHONPATH"), path])
    variables = {**environment, "PYTHONPATH": os.pathsep.join(paths)}
    return Process(name, command, log, is_ready=is_ready, environment=variables)


def answers(url: str, timeout_s: float = 1.0, tls: ssl.SSLContext | None = None) -> bool:
    """Whether a GET is answered with success."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s, context=tls):
            return True
    except OSError:
        return False
