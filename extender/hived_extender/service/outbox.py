"""The side of the machine that faces the world: the time, the effects, and the moments to look again.

Every part of the machine has the same one. No part reads a clock, starts a thread or calls anybody: it puts an effect
into the outbox or sets a timer, and the runner does the rest. Not thread-safe.
"""

import heapq
import math
from collections.abc import Hashable
from typing import NamedTuple

from hived_extender.kube.metrics import Metrics
from hived_extender.service.effects import Effect

TimerKey = tuple[str, Hashable]
"""The part of the machine that wants to be called, and about whom."""


class Now(NamedTuple):
    """A moment, in seconds: `at` of a clock that never goes back, `wall` of the epoch, which people read."""

    at: float
    wall: float = 0.0


class Timers:
    """Moments at which something is due. A key has one at most: setting it again replaces it."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimerKey]] = []
        self._valid: dict[TimerKey, tuple[int, float]] = {}
        self._count = 0

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._valid

    def due_of(self, key: TimerKey) -> float:
        """When a key is due; infinity if it is not set."""
        return self._valid.get(key, (0, math.inf))[1]

    @property
    def due_at(self) -> float:
        """When the first one is due; infinity if none ever is."""
        while self._heap and not self._is_valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def set(self, key: TimerKey, at: float) -> None:
        """Let a key be due at a moment. Cost O(log timers)."""
        if len(self._heap) > 2 * len(self._valid) + 100:  # most have been replaced or dropped
            self._heap = [each for each in self._heap if self._is_valid(each)]
            heapq.heapify(self._heap)
        self._count += 1
        self._valid[key] = self._count, at
        heapq.heappush(self._heap, (at, self._count, key))

    def drop(self, key: TimerKey) -> None:
        """Let a key not be due any more."""
        self._valid.pop(key, None)

    def pop_due(self, now: float) -> TimerKey | None:
        """Take the key that has been due for longest; None if none is."""
        if self.due_at > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._valid[key]
        return key

    def _is_valid(self, entry: tuple[float, int, TimerKey]) -> bool:
        at, count, key = entry
        return self._valid.get(key) == (count, at)


class Outbox:
    """The effects of the machine while it handles one stimulus. `now` is the moment of that stimulus."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self.metrics = metrics or Metrics()
        self.now = Now(0.0)
        self.timers = Timers()
        self._effects: list[Effect] = []

    def send(self, effect: Effect) -> None:
        """Have something done, in the order of the calls."""
        self._effects.append(effect)

    def wake_in(self, key: TimerKey, delay_s: float) -> None:
        """Be called about this after a while, in place of any earlier wish."""
        self.timers.set(key, self.now.at + delay_s)

    def take(self) -> tuple[Effect, ...]:
        """Everything that was sent since the last call."""
        effects, self._effects = tuple(self._effects), []
        return effects
