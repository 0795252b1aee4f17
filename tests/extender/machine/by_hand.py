"""The service's machine under a clock that the test turns: nothing happens by itself, and nothing takes time."""

import math
from collections import deque
from collections.abc import Callable

from hived_extender.machine.effects import Now, Write
from hived_extender.machine.machine import Machine
from hived_extender.machine.runner import Runner, Writes
from hived_extender.machine.stimuli import Closing, TimeCame, TryWaiting

LONG_S = 3600.0


class ByHand(Runner):
    """Keeps effects until `settle`, and time where it is until `pass_time`."""

    def __init__(self, machine: Machine, writes: Writes) -> None:
        super().__init__(machine, writes)
        self.at = 1000.0
        self.jobs: deque[tuple[Write, int]] = deque()

    def start(self) -> None:
        """Time is told by the test."""

    def close(self, timeout_s: float) -> None:
        """Carry out what is to be done now."""
        self.handle(Closing())
        self.settle()
        self._is_closing = True

    def settle(self) -> None:
        """Carry out all effects and what follows from them, and try the pods that are to be tried, in no time."""
        while self.jobs or self._machine.has_backlog or self._machine.due_at <= self.at:
            while self.jobs:
                self._write(*self.jobs.popleft())
            if self._machine.due_at <= self.at:
                self.handle(TimeCame())
            elif self._machine.has_backlog:
                self.handle(TryWaiting())

    def pass_time(self, seconds: float) -> None:
        """Let time go by, with everything that is due on the way."""
        until = self.at + seconds
        self.settle()
        while self._machine.due_at <= until:
            self.at = max(self.at, self._machine.due_at)
            self.settle()
        self.at = until

    def until(self, is_so: Callable[[], object]) -> None:
        """Let time go by until it is so. Fails when nothing is going to happen any more, or not within an hour."""
        until = self.at + LONG_S
        self.settle()
        while not is_so():
            due_at = self._machine.due_at
            assert due_at < min(until, math.inf), "nothing more happens"
            self.at = max(self.at, due_at)
            self.settle()

    def _now(self) -> Now:
        self.at += 1e-6  # no two stimuli at one moment
        return Now(self.at, self.at)

    def _submit(self, effect: Write, term: int) -> None:
        self.jobs.append((effect, term))
