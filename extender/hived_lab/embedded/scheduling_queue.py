"""The scheduler's queue: which pod is tried next, and when the others are tried again.

    active  --pop-->  in flight  --park-->  unschedulable  --wake-->  back-off  --time-->  active
                                 --defer->  back-off

As in kube-scheduler: the highest Kubernetes priority first, then first come first served. A pod that failed waits for
an event that could help it. Its n-th failure costs at least `initial * 2^(n-1)` seconds, at most `longest`. An event
that comes while a pod is in flight counts for it too. Times are seconds of any one clock; nothing reads it here.
"""

import heapq
import itertools
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds; the defaults of kube-scheduler.

    `settle_s` passes between an event and the attempt that it causes, so that the extender, which watches for itself,
    has seen the event too. `flush_s` is the longest time that a pod waits for an event.
    """

    backoff_initial_s: float = 1.0
    backoff_longest_s: float = 10.0
    flush_s: float = 300.0
    settle_s: float = 0.05


class _Place(Enum):
    ACTIVE = auto()
    IN_FLIGHT = auto()
    BACKOFF = auto()
    UNSCHEDULABLE = auto()


@dataclass(slots=True, eq=False)
class _Entry:
    uid: str
    priority: int
    order: int
    place: _Place
    failure_count: int = 0
    not_before: float = 0.0
    ready_at: float = 0.0
    was_woken: bool = False


class SchedulingQueue:
    """Pods by uid. Not thread-safe."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._entries: dict[str, _Entry] = {}
        self._active: list[tuple[int, int, str]] = []
        self._orders = itertools.count()

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, uid: str, priority: int) -> None:
        """Add a pod to be tried at once; a pod that is known already stays where it is."""
        if uid in self._entries:
            return
        entry = _Entry(uid, priority, next(self._orders), _Place.ACTIVE)
        self._entries[uid] = entry
        self._activate(entry)

    def remove(self, uid: str) -> None:
        """Forget a pod, wherever it is."""
        self._entries.pop(uid, None)

    def pop(self, now: float) -> str | None:
        """Take the next pod in flight; None if none is due. Every pod popped is then parked, deferred or removed."""
        for entry in self._entries.values():
            if entry.place in (_Place.BACKOFF, _Place.UNSCHEDULABLE) and entry.ready_at <= now:
                self._activate(entry)
        while self._active:
            _, order, uid = heapq.heappop(self._active)
            popped = self._entries.get(uid)
            if popped is not None and popped.order == order and popped.place is _Place.ACTIVE:
                popped.place = _Place.IN_FLIGHT
                popped.was_woken = False
                return uid
        return None

    def next_due(self) -> float | None:
        """Return when `pop` will have something at the latest if nothing happens, None if it waits for `add`."""
        waiting = (_Place.BACKOFF, _Place.UNSCHEDULABLE)
        return min((entry.ready_at for entry in self._entries.values() if entry.place in waiting), default=None)

    def park(self, uid: str, now: float) -> None:
        """Put a pod that fits nowhere aside until an event wakes it."""
        entry = self._failed(uid, now)
        if entry is None:
            return
        entry.place, entry.ready_at = _Place.UNSCHEDULABLE, now + self._pace.flush_s
        if entry.was_woken:
            self._wake(entry, now)

    def defer(self, uid: str, now: float) -> None:
        """Try a pod again after its back-off: the attempt failed for a reason that no event will announce as gone."""
        entry = self._failed(uid, now)
        if entry is not None:
            entry.place, entry.ready_at = _Place.BACKOFF, entry.not_before

    def wake(self, uid: str, now: float) -> None:
        """Something happened that could help this pod."""
        entry = self._entries.get(uid)
        if entry is not None:
            self._wake(entry, now)

    def wake_all(self, now: float) -> None:
        """Something happened that could help every pod."""
        for entry in self._entries.values():
            self._wake(entry, now)

    def _wake(self, entry: _Entry, now: float) -> None:
        if entry.place is _Place.IN_FLIGHT:
            entry.was_woken = True
        elif entry.place is _Place.UNSCHEDULABLE:
            entry.place, entry.ready_at = _Place.BACKOFF, max(entry.not_before, now + self._pace.settle_s)

    def _failed(self, uid: str, now: float) -> _Entry | None:
        """Count a failure; None if the pod was removed while it was in flight."""
        entry = self._entries.get(uid)
        if entry is None or entry.place is not _Place.IN_FLIGHT:
            return None
        entry.failure_count += 1
        doublings = min(entry.failure_count - 1, 30)
        entry.not_before = now + min(self._pace.backoff_initial_s * 2**doublings, self._pace.backoff_longest_s)
        return entry

    def _activate(self, entry: _Entry) -> None:
        """Queue a pod behind those of its priority that are active already."""
        entry.place = _Place.ACTIVE
        entry.order = next(self._orders)
        heapq.heappush(self._active, (-entry.priority, entry.order, entry.uid))
