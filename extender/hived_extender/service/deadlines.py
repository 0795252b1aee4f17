"""Doing things later, unless they are put off or called off: one thread, one heap."""

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)


class Deadlines:
    """Thread-safe. Each thing to do has a key; setting a key again replaces what it was set to."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Hashable, Callable[[], None]]] = []
        self._valid: dict[Hashable, int] = {}
        self._numbers = itertools.count()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._valid

    def set(self, key: Hashable, delay_s: float, action: Callable[[], None]) -> None:
        """Call `action` in a while, on a thread of our own and without any lock held."""
        with self._changed:
            if len(self._heap) > 2 * len(self._valid) + 100:  # most of it was put off or called off
                self._heap = [each for each in self._heap if self._valid.get(each[2]) == each[1]]
                heapq.heapify(self._heap)
            number = self._valid[key] = next(self._numbers)
            heapq.heappush(self._heap, (time.monotonic() + delay_s, number, key, action))
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
            if self._heap[0][1] == number:
                self._changed.notify()

    def drop(self, key: Hashable) -> None:
        """Do not do it."""
        with self._changed:
            self._valid.pop(key, None)

    def close(self) -> None:
        """Do nothing more; waits for what is under way, so the caller must not hold a lock that it takes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and (wait_s := self._wait_s()) > 0:
                    self._changed.wait(wait_s if wait_s < math.inf else None)
                if self._is_closed:
                    return
                _, number, key, action = heapq.heappop(self._heap)
                if self._valid.get(key) != number:
                    continue
                del self._valid[key]
            try:
                action()
            except Exception:
                log.exception("a deadline could not be kept")

    def _wait_s(self) -> float:
        return self._heap[0][0] - time.monotonic() if self._heap else math.inf
