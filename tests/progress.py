"""Says every few seconds that tests run, and which: kernels compile for a minute, and some tests take as long."""

import os
import sys
import threading
import time
from collections.abc import Callable

EVERY_S = 15.0


class Progress:
    """A pytest plugin for the process that shows results; says a line when there was none for a while."""

    def __init__(self, every_s: float = EVERY_S, is_compiling: Callable[[], bool] = lambda: False) -> None:
        # pytest redirects the output of tests, but not while plugins are configured
        self._output = os.dup(sys.stdout.fileno())
        self._every_s = every_s
        self._is_compiling = is_compiling
        self._started = self._last = time.monotonic()
        self._running: dict[str, None] = {}
        self._done = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def pytest_sessionstart(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def pytest_sessionfinish(self) -> None:
        """End, so that no line comes between those of the summary."""
        self._ended.set()
        self._thread.join()
        os.close(self._output)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins, here or in a worker."""
        self._running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test has ended, which pytest shows."""
        self._running.pop(nodeid, None)
        self._done += 1
        self._last = time.monotonic()

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s / 10):
            if time.monotonic() - self._last >= self._every_s:
                self._say()

    def _say(self) -> None:
        self._last = time.monotonic()
        doing = ["compiling kernels"] if self._is_compiling() else []
        if names := list(self._running):
            doing.append(f"running {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else ""))
        line = f"... {self._last - self._started:.0f} s, {self._done} tests done, {', '.join(doing) or 'starting'}"
        os.write(self._output, f"\n{line}\n".encode())
