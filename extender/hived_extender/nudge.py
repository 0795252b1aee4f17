"""Waking pods that were refused on the eve of a change that made room for them.

Kubernetes tells kube-scheduler and us of a deleted pod at the same time. If kube-scheduler is quicker, it asks about a
waiting pod while we still count the deleted one, is refused, and has no reason to ask again before the next event or
five minutes (EXTENDER, trap 9). So a moment after every change that makes room, the pods whose last refusal lies
shortly before it are touched; those that were asked about since then have seen the change already.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

EVE_S = 2.0
"""How long before the change a refusal may lie: longer than a watch is ever late on a healthy cluster."""


class Nudger:
    """Thread-safe. `wake` is called with uids, on a thread of its own and without any lock held."""

    def __init__(self, wake: Callable[[str], None], delay_s: float) -> None:
        self._wake = wake
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._refusals: OrderedDict[str, float] = OrderedDict()  # uid -> time of the last refusal, ascending
        self._last_change = 0.0
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def refused(self, uid: str) -> None:
        """A pod was told to wait. Cost O(1), amortised."""
        now = time.monotonic()
        with self._lock:
            self._refusals.pop(uid, None)
            self._refusals[uid] = now
            horizon = now - EVE_S - self._delay_s
            while next(iter(self._refusals.values())) < horizon:
                self._refusals.popitem(last=False)

    def settled(self, uid: str) -> None:
        """A pod has its node, or is gone."""
        with self._lock:
            self._refusals.pop(uid, None)

    def room_made(self) -> None:
        """Something changed that may let a refused pod in."""
        with self._lock:
            self._last_change = time.monotonic()
            if self._timer is None and self._refusals and not self._is_closed:
                self._timer = threading.Timer(self._delay_s, self._sweep)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Wake nobody any more; waits for a waking under way, so the caller must not hold a lock that `wake` takes."""
        with self._lock:
            self._is_closed = True
            timer = self._timer
        if timer is not None:
            timer.cancel()
            timer.join()

    def _sweep(self) -> None:
        with self._lock:
            self._timer = None
            last = self._last_change
            stuck = [uid for uid, refused in self._refusals.items() if last - EVE_S <= refused <= last]
            for uid in stuck:
                del self._refusals[uid]
        for uid in stuck:
            self._wake(uid)
