"""Clocks by which Leases run out in tests, however busy the machine is."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from hived_extender.kube import lease as election
from tests.expecting import expect_soon

LOOK_S = 1.0
"""For an elector to notice that the clock was turned, before it is turned again."""

POLL_S = 0.1
"""Of real time, until a thread looks by itself whether what it waits for has come."""


class LeaseClock:
    """Goes on only when it is turned. Electors still look and renew in real time, as often as they get to run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Becomes the clock of every elector of this process, until the test ends."""
        self.now_s = 1000.0
        monkeypatch.setattr(election, "now", lambda: self.now_s)
        monkeypatch.setattr(election, "SEEN_BEFORE_S", 0.0)  # it passes in real time only
        monkeypatch.setattr(election, "UNKNOWN_S", 0.0)

    def turn(self, seconds: float) -> None:
        """So much time has passed."""
        self.now_s += seconds

    def run_out(self, duration_s: float, is_so: Callable[[], object]) -> None:
        """Let Leases that nobody renews run out until it is so."""
        for _ in range(30):
            self.turn(duration_s)
            try:
                expect_soon(is_so, LOOK_S)
            except AssertionError:
                continue  # the Lease was written once more just after the clock was turned
            return
        pytest.fail("the Lease does not run out")


class SteppedClock:
    """Time passes only while everybody who takes part waits: then at once, until the first has something to do.

    However busy the machine is, nobody is late except for those that a test makes wait.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Becomes the clock of every elector of this process, until the test ends."""
        self.before_step: list[Callable[[], object]] = []
        self._now_s = 1000.0
        self._lock = threading.Lock()
        self._taking_part: set[threading.Thread] = set()
        self._waits: dict[threading.Thread, _Wait] = {}
        monkeypatch.setattr(election, "now", self.now)

    def now(self) -> float:
        """Seconds."""
        return self._now_s

    @contextmanager
    def taken_part(self) -> Iterator[None]:
        """Time passes only while this thread waits for it, too."""
        self.add(threading.current_thread())
        try:
            yield
        finally:
            self._taking_part.discard(threading.current_thread())

    def add(self, thread: threading.Thread) -> None:
        """A thread takes part until it ends, from before its start on."""
        self._taking_part.add(thread)

    def sleep(self, seconds: float) -> None:
        """Wait for that time."""
        self.wait(lambda: False, seconds)

    def wait(self, is_so: Callable[[], object], seconds: float = math.inf) -> None:
        """Wait until it is so, at most for that time."""
        me = threading.current_thread()
        with self._lock:
            mine = self._waits[me] = _Wait(self._now_s + seconds, is_so, threading.Condition(self._lock))
            while not mine.is_over(self._now_s):
                self._step()
                if not mine.is_over(self._now_s):
                    mine.woken.wait(POLL_S)
            del self._waits[me]

    def _step(self) -> None:
        """Go on to the next time that somebody waits for, unless somebody has something to do before."""
        waits = self._waits.values()
        is_ready = any(wait.is_over(self._now_s) for wait in waits)
        is_awake = any(each not in self._waits for each in self._taking_part if each.is_alive() or each.ident is None)
        next_s = min(wait.until for wait in waits)
        if not is_ready and not is_awake and next_s < math.inf:
            for look in self.before_step:
                look()
            self._now_s = next_s
        for wait in waits:
            if wait.is_over(self._now_s):
                wait.woken.notify()


@dataclass(frozen=True)
class _Wait:
    """The event that a thread waits for, and until when."""

    until: float
    is_so: Callable[[], object]
    woken: threading.Condition

    def is_over(self, now_s: float) -> bool:
        return now_s >= self.until or bool(self.is_so())


class SteppedEvent(threading.Event):
    """An event that is waited for on such a clock."""

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        """As that of any event."""
        self._clock.wait(self.is_set, math.inf if timeout is None else timeout)
        return self.is_set()
