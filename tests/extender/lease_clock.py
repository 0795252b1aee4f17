"""Clocks by which Leases run out in tests, however busy the machine is."""

import threading
import time
from collections.abc import Callable

import pytest

from hived_extender import election
from tests.extender.world import wait_until

LOOK_S = 1.0
"""For an elector to notice that the clock was turned, before it is turned again."""

LONGEST_GAP_S = 0.2
"""Electors ask more often than that, unless the machine has no time for any of them."""


class LeaseClock:
    """Goes on only when it is turned. Electors still look and renew in real time, as often as they get to run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Becomes the clock of every elector of this process, until the test ends."""
        self.now_s = 1000.0
        monkeypatch.setattr(election, "now", lambda: self.now_s)

    def turn(self, seconds: float) -> None:
        """So much time has passed."""
        self.now_s += seconds

    def run_out(self, duration_s: float, is_so: Callable[[], object]) -> None:
        """Let Leases that nobody renews run out until it is so."""
        for _ in range(30):
            self.turn(duration_s)
            try:
                wait_until(is_so, LOOK_S)
            except AssertionError:
                continue  # the Lease was written once more just after the clock was turned
            return
        pytest.fail("the Lease does not run out")


class LivedClock:
    """Goes on by itself, but not while nobody looks at it: a time in which no thread ran has not passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Becomes the clock of every elector of this process, until the test ends."""
        self._lock = threading.Lock()
        self._now_s = 1000.0
        self._looked_at = time.monotonic()
        monkeypatch.setattr(election, "now", self.now)

    def now(self) -> float:
        """Seconds."""
        with self._lock:
            looked_at, self._looked_at = self._looked_at, time.monotonic()
            self._now_s += min(self._looked_at - looked_at, LONGEST_GAP_S)
            return self._now_s
