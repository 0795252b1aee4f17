"""Everything that the machine can have done in the world. Values only: the runner carries them out.

Each effect but the holds of bindings is answered by one `stimuli.Wrote`, so that the machine knows what is under way.

The side of the machine that faces the world: the time, the effects, and the moments to look again.

Every part of the machine has the same one. No part reads a clock, starts a thread or calls anybody: it puts an effect
into the outbox or sets a timer, and the runner does the rest. Not thread-safe.
"""

import heapq
import math
from collections.abc import Hashable, Mapping
from typing import NamedTuple

import msgspec

from hived_extender.jobs.kinds.description import GangKey, ObjectRef
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.gangs.plans import GangState
from hived_extender.machine.notices import Condition, Notice
from hived_extender.machine.pods import PodName


class BindPod(msgspec.Struct, frozen=True):
    """Bind a pod and annotate it, if it has this resourceVersion. `origin` is "scheduler" or "force"."""

    pod: PodName
    node: str
    version: str
    annotations: Mapping[str, str]
    origin: str


class ReadPod(msgspec.Struct, frozen=True):
    """Read a pod that is to be bound and that no watch has told of."""

    pod: PodName


class TouchPod(msgspec.Struct, frozen=True):
    """Change a pod, so that kube-scheduler tries it again."""

    pod: PodName


class AnnotatePod(msgspec.Struct, frozen=True):
    """Change annotations of a bound pod and prove them.

    `anew` is all that was written onto it: it replaces what is there, unless that is proven. For `is_bare` and `quota`
    see `proofs.Proof`.
    """

    pod: PodName
    changed: Mapping[str, str]
    anew: Mapping[str, str]
    is_bare: bool
    quota: Mapping[str, str] | None = None


class EvictPod(msgspec.Struct, frozen=True):
    """Make a pod leave; `by_force` deletes it whatever disruption budgets say. `is_move`: its group is being moved.

    It has `grace_s` seconds, None for its own `terminationGracePeriodSeconds`.
    """

    pod: PodName
    by_force: bool
    is_move: bool = False
    grace_s: int | None = None


class Announce(msgspec.Struct, frozen=True):
    """Write events and a condition about an object. `about` is its kind.

    `stored` is the condition that it has as far as is known, which is to be read first unless `is_stored_known`.
    """

    pod: PodName
    about: str
    notices: tuple[Notice, ...]
    condition: Condition | None
    stored: Condition | None
    is_stored_known: bool


class KeepChanged(msgspec.Struct, frozen=True):
    """Write down where tenants cannot write what pods were given whose annotations do not say so any more, by uid."""

    changed: Mapping[str, Mapping[str, str]]


class WriteStatuses(msgspec.Struct, frozen=True):
    """Write how far gangs have come into the objects that describe them; None for a gang without pods."""

    states: Mapping[GangKey, GangState | None]
    sources: Mapping[GangKey, ObjectRef]


class HoldBindings(msgspec.Struct, frozen=True):
    """Let calls to bind these pods, by uid, wait for `ReleaseBindings`."""

    uids: tuple[str, ...]


class ReleaseBindings(msgspec.Struct, frozen=True):
    """Let calls to bind these pods go on."""

    uids: tuple[str, ...]


Write = BindPod | ReadPod | TouchPod | AnnotatePod | EvictPod | Announce | KeepChanged | WriteStatuses
Effect = Write | HoldBindings | ReleaseBindings


class Awaits(msgspec.Struct, frozen=True):
    """An answer that follows the carrying out of an effect, by whoever asked."""

    effect: BindPod | ReadPod


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
