"""Waking pods that were refused and will not be asked about again, although a change has made room for them.

Kubernetes tells kube-scheduler and us of a deleted pod at the same time. If kube-scheduler is quicker, it asks about a
waiting pod while we still count the deleted one, is refused, and has no reason to ask again before the next event or
five minutes. So a moment after every change that makes room, the pods whose last refusal lies
shortly before it are touched; those that were asked about since then have seen the change already. A change that only
we know of, such as the end of a reservation, is no event for kube-scheduler at all: every refused pod is touched.
"""

import threading
import time
from collections.abc import Callable

EVE_S = 2.0
"""How long before the change a refusal may lie: longer than a watch is ever late on a healthy cluster."""


class Nudger:
    """Thread-safe. `wake` is called with uids, on a thread of its own and without any lock held.

    Remembers every pod that was refused, until it is woken or settled.
    """

    def __init__(self, wake: Callable[[str], None], delay_s: float) -> None:
        self._wake = wake
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._refusals: dict[str, float] = {}  # uid -> time of the last refusal
        self._last_change = 0.0
        self._last_secret = 0.0
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def refused(self, uid: str) -> None:
        """A pod was told to wait."""
        with self._lock:
            self._refusals[uid] = time.monotonic()

    def settled(self, uid: str) -> None:
        """A pod has its node, or is gone."""
        with self._lock:
            self._refusals.pop(uid, None)

    def room_made(self, *, is_announced: bool = True) -> None:
        """Something changed that may let a refused pod in; `is_announced` if kube-scheduler hears of it by itself."""
        with self._lock:
            self._last_change = time.monotonic()
            if not is_announced:
                self._last_secret = self._last_change
            self._start_timer()

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
            last, last_secret = self._last_change, self._last_secret
            stuck = [
                uid
                for uid, refused in self._refusals.items()
                if refused <= last_secret or last - EVE_S <= refused <= last
            ]
            for uid in stuck:
                del self._refusals[uid]
        for uid in stuck:
            self._wake(uid)
        with self._lock:
            self._timer = None
            if self._last_change > last:
                self._start_timer()
