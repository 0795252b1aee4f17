"""Virtual time on a scenario: what happens next, the leaf cells that jobs have, and the jobs that wait.

The simulator and the forecast of starts are one loop of these: take what is next, end jobs, try those that wait.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from hived.values.specs import OPPORTUNISTIC_PRIORITY

Place = TypeVar("Place", bound=Any)
"""The place of a job among those that wait; lower places come first."""


class Entry(NamedTuple):
    """One event. `kind` orders events of one moment. `run` tells one that is out of date, as its job has run since."""

    at_s: float
    kind: int
    number: int
    run: int


class Agenda:
    """A heap of entries; entries of one moment and kind are in order of `number`, then `run`."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []

    def add(self, at_s: float, kind: int, number: int, run: int = 0) -> None:
        """Something is going to happen. Cost O(log entries)."""
        heapq.heappush(self._heap, Entry(at_s, kind, number, run))

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """The moment of the next entry. IndexError if there is none."""
        return self._heap[0].at_s

    def pop_next(self) -> list[Entry]:
        """Remove all entries of the next moment, in their order. IndexError if there is none."""
        now_s = self._heap[0].at_s
        found = []
        while self._heap and self._heap[0].at_s == now_s:
            found.append(heapq.heappop(self._heap))
        return found


class Occupancy:
    """Leaf cells of guaranteed groups, by virtual cluster and priority. A group counts once cells are reserved for it.

    Victims on their way out do not count: their cells are those of the groups that reserve them.
    """

    def __init__(self) -> None:
        """No group has any."""
        self._by_vc: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._counted: dict[str, tuple[str, int, int]] = {}
        self._victims: dict[str, set[str]] = {}  # by the group that reserves their cells

    def count_used(self, vc: str, priority: int, but: Collection[str] = ()) -> int:
        """Leaf cells of groups of at least this priority, but for some groups. Cost O(priorities + victims)."""
        used = sum(count for level, count in self._by_vc[vc].items() if level >= priority)
        if self._victims or but:
            leaving = set(but).union(*self._victims.values())
            counted = (self._counted[group] for group in leaving if group in self._counted)
            used -= sum(count for owner, level, count in counted if owner == vc and level >= priority)
        return used

    def add(self, group: str, vc: str, priority: int, leaves: int, victims: Iterable[str] = ()) -> None:
        """A group has cells of its virtual cluster, once its victims have left; an opportunistic one has none."""
        self._victims.pop(group, None)
        if victims:
            self._victims[group] = set(victims)
        if group not in self._counted and priority != OPPORTUNISTIC_PRIORITY:
            self._counted[group] = (vc, priority, leaves)
            self._by_vc[vc][priority] += leaves

    def remove(self, group: str) -> bool:
        """A group has none any more; returns whether it had some."""
        self._victims.pop(group, None)
        for victims in self._victims.values():
            victims.discard(group)
        if group not in self._counted:
            return False
        vc, priority, count = self._counted.pop(group)
        self._by_vc[vc][priority] -= count
        return True


class Heap(Generic[Place]):
    """Waiting jobs, the next one first. Places of jobs that do not wait any more are removed when they are met."""

    def __init__(self, is_waiting: Callable[[Place], bool]) -> None:
        self._places: list[Place] = []
        self._is_waiting = is_waiting

    def add(self, place: Place) -> None:
        """A job waits here. Cost O(log places)."""
        heapq.heappush(self._places, place)

    def first(self) -> Place | None:
        """The place of the next job; None if no job waits."""
        while self._places:
            if self._is_waiting(self._places[0]):
                return self._places[0]
            heapq.heappop(self._places)
        return None


class Lineup(Generic[Place]):
    """Waiting jobs by kind. Jobs of one kind get the same answer, so if one is refused, the others wait with it.

    `_open` is a heap of the first places of kinds to be tried; the one of a kind that counts is `_head[kind]`.
    """

    def __init__(self, is_waiting: Callable[[Place], bool]) -> None:
        """`is_waiting` is asked whether the job of a place still waits there."""
        self._is_waiting = is_waiting
        self._heaps: dict[Hashable, Heap[Place]] = {}
        self._refused: set[Hashable] = set()
        self._open: list[tuple[Place, Hashable]] = []
        self._head: dict[Hashable, Place] = {}

    def add(self, kind: Hashable, place: Place) -> None:
        """A job waits here. Cost O(log jobs)."""
        if kind not in self._heaps:
            self._heaps[kind] = Heap(self._is_waiting)
        self._heaps[kind].add(place)
        if kind not in self._refused and (kind not in self._head or place < self._head[kind]):
            self._show(kind, place)

    def refuse(self, kind: Hashable) -> None:
        """Try no job of this kind until it is reopened."""
        self._refused.add(kind)
        self._head.pop(kind, None)

    def reopen(self, helps: Callable[[Place], bool] = lambda place: True) -> None:
        """Try refused kinds again of which the first job may have room now. Cost O(refused kinds)."""
        for kind in list(self._refused):
            first = self._heaps[kind].first()
            if first is None:
                self._refused.discard(kind)
                del self._heaps[kind]
            elif helps(first):
                self._refused.discard(kind)
                self._show(kind, first)

    def first(self) -> Place | None:
        """The first job that may be tried; None if there is none. Cost O(log kinds)."""
        while self._open:
            place, kind = self._open[0]
            if self._head.get(kind) == place:
                first = self._heaps[kind].first()
                if first == place:
                    return place
                del self._head[kind]
                if first is None:
                    del self._heaps[kind]
                else:
                    self._show(kind, first)
            heapq.heappop(self._open)
        return None

    def _show(self, kind: Hashable, place: Place) -> None:
        self._head[kind] = place
        heapq.heappush(self._open, (place, kind))
