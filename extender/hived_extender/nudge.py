"""Waking pods that were refused and could run now, although nobody will ask about them again for minutes.

kube-scheduler tries a refused pod again on an event of the cluster that may matter to it. It has no reason to when the
change is known to us alone (a reservation ended, a replica began to lead with another configuration), nor when it asked
about the pod just before our own watch told us of the same change. So a moment after every change that makes room, each
pod that was refused before it and has not been asked about since is tried on the core, and those that could run now are
touched. That costs microseconds for a pod that still has to wait, where waking it for nothing would cost kube-scheduler
a whole cycle and the API server several writes.

A new pod is tried too if kube-scheduler has not asked about it by then: it does not ask about a pod that its own
filters leave no node for, and only the service can know that others are to make room.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence

SLICE = 64
"""Pods that are tried on the core at once, others being served in between."""


class Nudger:
    """Thread-safe. Remembers every pod that waits, until it is woken or settled.

    `wake` is called with the uids of a few pods, on a thread of its own and without any lock held; it returns those
    that it has woken.
    """

    def __init__(self, wake: Callable[[Sequence[str]], Sequence[str]], delay_s: float) -> None:
        self._wake = wake
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._refusals: dict[str, float] = {}  # uid -> when it was last refused, or tried on the core in vain
        self._last_change = 0.0
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def appeared(self, uid: str) -> None:
        """A pod waits that kube-scheduler has not asked about yet."""
        with self._lock:
            self._refusals[uid] = -math.inf
            self._start_timer()

    def refused(self, uid: str) -> None:
        """A pod was told to wait."""
        with self._lock:
            self._refusals[uid] = time.monotonic()

    def settled(self, uid: str) -> None:
        """A pod has its node, or is gone."""
        with self._lock:
            self._refusals.pop(uid, None)

    def room_made(self) -> None:
        """Something changed that may let a refused pod in."""
        with self._lock:
            self._last_change = time.monotonic()
            self._start_timer()

    def forget_all(self) -> None:
        """The term is over: nobody's refusal matters any more."""
        with self._lock:
            self._refusals.clear()

    def close(self) -> None:
        """Wake nobody any more; waits for a waking under way, so the caller must not hold a lock that `wake` takes."""
        with self._lock:
            self._is_closed = True
            timer = self._timer
        if timer is not None:
            timer.cancel()
            timer.join()

    def _start_timer(self) -> None:
        if self._timer is None and self._refusals and not self._is_closed:
            self._timer = threading.Timer(self._delay_s, self._sweep)
            self._timer.daemon = True
            self._timer.start()

    def _sweep(self) -> None:
        with self._lock:
            change = self._last_change
            stale = [uid for uid, refused in self._refusals.items() if refused <= change]
        try:
            for first in range(0, len(stale), SLICE):
                self._try(stale[first : first + SLICE])
        finally:
            with self._lock:
                self._timer = None
                if self._last_change > change:
                    self._start_timer()

    def _try(self, uids: Sequence[str]) -> None:
        began = time.monotonic()
        woken = set(self._wake(uids))
        with self._lock:
            for uid in uids:
                if uid in woken:
                    self._refusals.pop(uid, None)
                elif uid in self._refusals:
                    self._refusals[uid] = max(self._refusals[uid], began)
