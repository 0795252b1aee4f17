"""The agenda: what happens when, in an order that depends on nothing but the events themselves."""

import heapq
from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """Kinds of events. Of one moment, lower numbers come first: cells come free before anybody asks for them."""

    END = 0  # of a task's run
    LEAVE = 1  # victims, at the end of their grace
    CHANGE = 2  # of the cluster
    SUBMIT = 3
    TURN = 4  # of queues, although nothing else happens
    BORROW = 5  # a task that was evicted from idle cells of others may take some again


class Entry(NamedTuple):
    """One event. `run` tells an end that is out of date: of a run that an eviction has ended."""

    at_s: float
    kind: Kind
    number: int  # of the task in order of places, or of the change
    run: int


class Agenda:
    """A heap of entries; entries of one moment, kind and number are in order of `run`."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []

    def add(self, at_s: float, kind: Kind, number: int, run: int = 0) -> None:
        """Something is going to happen. Cost O(log entries)."""
        heapq.heappush(self._heap, Entry(at_s, kind, number, run))

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """When the next entry is due. IndexError if there is none."""
        return self._heap[0].at_s

    def due(self) -> list[Entry]:
        """Take out everything that is due next: all entries of one moment, in their order."""
        now_s = self._heap[0].at_s
        found = []
        while self._heap and self._heap[0].at_s == now_s:
            found.append(heapq.heappop(self._heap))
        return found
