"""Waking pods that were refused and could run now, although nobody will ask about them again for minutes.

kube-scheduler tries a refused pod again on an event of the cluster that may matter to it. It has no reason to when the
change is known to us alone (a reservation ended, a replica began to lead with another configuration), nor when it asked
about the pod just before our own watch told us of the same change. So a moment after every change that makes room, each
pod that was refused before it and has not been asked about since is tried on the core, and those that could run now are
touched. That costs microseconds for a pod that still has to wait, where waking it for nothing would cost kube-scheduler
a whole cycle and the API server several writes.

A new pod is tried too if kube-scheduler has not asked about it by then: it does not ask about a pod that its own
filters leave no node for, and only the service can know that others are to make room. For the same reason a pod that
could run, and has not been asked about since, is tried again after others got their nodes: its own may be among them.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

SLICE = 4
"""Pods that are tried on the core at once, in half a millisecond."""

REST = 9
"""How many times as long as a slice took others are served before the next."""

RETRY_S = 2.0
"""Until pods are tried again that could not be woken: the API server may be away."""

OVERTAKEN_S = 5.0
"""Until pods are tried again that could run, after others got their nodes. There may be thousands of them."""


class Nudger:
    """Thread-safe. Remembers every pod that waits, until it is settled: one that was woken may be overtaken.

    `wake` is called with the uids of a few pods, on a thread of its own and without any lock held; it returns those
    that could run and might have to be preempted for later.
    """

    def __init__(self, wake: Callable[[Sequence[str]], Sequence[str]], delay_s: float) -> None:
        self._wake = wake
        self._delay_s = delay_s
        self._changed = threading.Condition()
        self._refusals: dict[str, float] = {}  # uid -> when it was last refused, or tried on the core in vain
        self._fitting: set[str] = set()  # those that could run when they were tried last
        self._being_tried: set[str] = set()  # less those that something else was heard of since
        self._last_change = 0.0
        self._due = self._overtaken_due = math.inf
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="nudger", daemon=True)
        self._thread.start()

    def appeared(self, uid: str) -> None:
        """A pod waits that kube-scheduler has not asked about yet."""
        with self._changed:
            self._note(uid, -math.inf)
            self._sweep_in(self._delay_s)

    def not_woken(self, uid: str) -> None:
        """A pod that could run could not be woken, although `wake` tried to."""
        with self._changed:
            self._note(uid, -math.inf)
            self._sweep_in(RETRY_S)

    def refused(self, uid: str) -> None:
        """A pod was told to wait."""
        with self._changed:
            self._note(uid, time.monotonic())

    def settled(self, uid: str) -> None:
        """A pod has its node, or is gone."""
        with self._changed:
            self._refusals.pop(uid, None)
            self._being_tried.discard(uid)
            self._fitting.discard(uid)
            if self._fitting and self._overtaken_due == math.inf:
                self._overtaken_due = time.monotonic() + OVERTAKEN_S
                self._sweep_in(OVERTAKEN_S)

    def room_made(self) -> None:
        """Something changed that may let a refused pod in."""
        with self._changed:
            self._last_change = time.monotonic()
            if self._refusals:
                self._sweep_in(self._delay_s)

    def forget_all(self) -> None:
        """The term is over: nobody's refusal matters any more."""
        with self._changed:
            self._refusals.clear()
            self._being_tried.clear()
            self._fitting.clear()

    def close(self) -> None:
        """Wake nobody any more; waits for a waking under way, so the caller must not hold a lock that `wake` takes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _note(self, uid: str, refused: float) -> None:
        self._refusals[uid] = refused
        self._being_tried.discard(uid)
        self._fitting.discard(uid)

    def _sweep_in(self, delay_s: float) -> None:
        """Under the lock."""
        due = time.monotonic() + delay_s
        if due < self._due:
            self._due = due
            self._changed.notify()

    def _stale(self) -> list[str]:
        """Whom to try now, under the lock; sets when to look again."""
        now = time.monotonic()
        are_overtaken = self._overtaken_due <= now
        if are_overtaken:
            self._overtaken_due = math.inf
        self._due = self._overtaken_due
        return [
            uid
            for uid, refused in self._refusals.items()
            if refused <= self._last_change or (are_overtaken and uid in self._fitting)
        ]

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and (wait_s := self._due - time.monotonic()) > 0:
                    self._changed.wait(wait_s if wait_s < math.inf else None)
                if self._is_closed:
                    return
                stale = self._stale()
            try:
                for first in range(0, len(stale), SLICE):
                    if self._is_closed:
                        return
                    began = time.monotonic()
                    self._try(stale[first : first + SLICE])
                    # A lock is not handed over to whoever waits for it: without a pause this thread would get it again.
                    # Under a backlog every change makes thousands of tries; they may take a tenth of a core.
                    time.sleep(REST * (time.monotonic() - began))
            except Exception:
                log.exception("waiting pods could not be tried")

    def _try(self, uids: Sequence[str]) -> None:
        with self._changed:
            self._being_tried = self._refusals.keys() & uids
        began = time.monotonic()
        fitting = set(self._wake(uids))
        with self._changed:
            for uid in self._being_tried:
                self._refusals[uid] = began
            self._fitting |= fitting & self._being_tried
            self._being_tried.clear()
