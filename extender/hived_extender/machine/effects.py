"""All effects of the machine in the world, as values: the runner carries them out.

Each effect but holds of bindings is answered by one `stimuli.Wrote`, so the machine knows the writes under way.
`Outbox` is shared by all parts: none reads a clock, starts a thread or calls the API server; it sends an effect or sets
a timer. Not thread-safe.
"""

import heapq
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import msgspec

from hived_extender.jobs.job import JobRef
from hived_extender.jobs.kinds import kind
from hived_extender.jobs.kinds.description import GangKey, ObjectRef
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.gangs.plans import GangState
from hived_extender.machine.notices import Condition, Notice
from hived_extender.machine.pods import PodName


class BindPod(msgspec.Struct, frozen=True):
    """Bind a pod and annotate it, at this resourceVersion only. `origin` is "scheduler" or "force"."""

    pod: PodName
    node: str
    version: str
    annotations: Mapping[str, str]
    origin: str


class ReadPod(msgspec.Struct, frozen=True):
    """Read a pod to bind that no watch has told of."""

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
    """Evict a pod; `by_force` deletes it despite disruption budgets. `is_move`: its group is being moved.

    It has `grace_s` seconds, None for its own `terminationGracePeriodSeconds`.
    """

    pod: PodName
    by_force: bool
    is_move: bool = False
    grace_s: int | None = None


class Announce(msgspec.Struct, frozen=True):
    """Write events and a condition about an object of the kind `about`.

    `stored` is its last known condition, to be read first unless `is_stored_known`.
    """

    pod: PodName
    about: str
    notices: tuple[Notice, ...]
    condition: Condition | None
    stored: Condition | None
    is_stored_known: bool


class KeepChanged(msgspec.Struct, frozen=True):
    """Store the original annotations of changed pods, by uid, where tenants cannot write."""

    changed: Mapping[str, Mapping[str, str]]


class WriteStatuses(msgspec.Struct, frozen=True):
    """Write the progress of gangs into the objects that describe them; None for a gang without pods."""

    states: Mapping[GangKey, GangState | None]
    sources: Mapping[GangKey, ObjectRef]


class CallJob(msgspec.Struct, frozen=True):
    """Make these calls on a job object or its pods, in order, while the term goes on."""

    number: int
    job: JobRef
    calls: tuple[kind.Write, ...]


class Errand(msgspec.Struct, frozen=True):
    """Work of the queues off the lock: `run` gets a function that is true while the term goes on."""

    name: str
    run: Callable[[Callable[[], bool]], Any]


class HoldBindings(msgspec.Struct, frozen=True):
    """Hold calls to bind these pods, by uid, until `ReleaseBindings`."""

    uids: tuple[str, ...]


class ReleaseBindings(msgspec.Struct, frozen=True):
    """Release held calls to bind these pods."""

    uids: tuple[str, ...]


Write = (
    BindPod | ReadPod | TouchPod | AnnotatePod | EvictPod | Announce | KeepChanged | WriteStatuses | CallJob | Errand
)
Effect = Write | HoldBindings | ReleaseBindings


class Awaits(msgspec.Struct, frozen=True):
    """An answer that depends on the result of an effect."""

    effect: BindPod | ReadPod


TimerKey = tuple[str, Hashable]
"""The part of the machine that wants to be called, and about whom."""


class Now(NamedTuple):
    """A moment in seconds: `at` of a monotonic clock, `wall` of the epoch."""

    at: float
    wall: float = 0.0


class Timers:
    """Timers by key; setting a key again replaces its moment."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimerKey]] = []
        self._valid: dict[TimerKey, tuple[int, float]] = {}
        self._count = 0

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._valid

    def due_of(self, key: TimerKey) -> float:
        """The moment of a key; infinity if not set."""
        return self._valid.get(key, (0, math.inf))[1]

    @property
    def due_at(self) -> float:
        """The earliest moment; infinity if none."""
        while self._heap and not self._is_valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def set(self, key: TimerKey, at: float) -> None:
        """Set the timer of a key. Cost O(log timers)."""
        if len(self._heap) > 2 * len(self._valid) + 100:  # most have been replaced or dropped
            self._heap = [each for each in self._heap if self._is_valid(each)]
            heapq.heapify(self._heap)
        self._count += 1
        self._valid[key] = self._count, at
        heapq.heappush(self._heap, (at, self._count, key))

    def drop(self, key: TimerKey) -> None:
        """Cancel the timer of a key."""
        self._valid.pop(key, None)

    def pop_due(self, now: float) -> TimerKey | None:
        """Take the key that is overdue for longest; None if none is."""
        if self.due_at > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._valid[key]
        return key

    def _is_valid(self, entry: tuple[float, int, TimerKey]) -> bool:
        at, count, key = entry
        return self._valid.get(key) == (count, at)


class Outbox:
    """The machine's effects during one stimulus, which came at `now`."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self.metrics = metrics or Metrics()
        self.now = Now(0.0)
        self.timers = Timers()
        self._effects: list[Effect] = []

    def send(self, effect: Effect) -> None:
        """Add an effect, in the order of the calls."""
        self._effects.append(effect)

    def wake_in(self, key: TimerKey, delay_s: float) -> None:
        """Set the timer of this key, replacing an earlier one."""
        self.timers.set(key, self.now.at + delay_s)

    def take(self) -> tuple[Effect, ...]:
        """Take all effects since the last call."""
        effects, self._effects = tuple(self._effects), []
        return effects
