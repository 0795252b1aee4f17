"""Lines of units that wait, and walks along them in order.

Units that ask for the same in the same queue are of one kind: once one of them is refused, all are. Each kind has its
units sorted by place; a walk merges the kinds. So a turn costs as much as there are kinds and starts, not units.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from hived.values.specs import PodSpec
from hived_extender.queues.units import Unit

At = tuple[float, str]
"""Place and key: the order among equals."""

Rank = tuple[float, ...]


class Kind(NamedTuple):
    """All that an answer to a unit can depend on. `owner` is empty where no rule asks for it."""

    queue: str
    spec: PodSpec  # of a group without a name
    request: tuple[tuple[str, float], ...]
    is_preemptible: bool
    limit_s: float | None
    owner: tuple[str, ...]
    needs: str
    preempts: bool
    minimum: object


class Kinds:
    """A number for each kind that has units. A later kind never gets the same, so refusals may outlive a kind."""

    def __init__(self) -> None:
        self._kinds: dict[int, Kind] = {}
        self._numbers: dict[Kind, int] = {}
        self._units: dict[int, int] = {}
        self._next = 0

    def __getitem__(self, number: int) -> Kind:
        return self._kinds[number]

    def __len__(self) -> int:
        return len(self._kinds)

    def join(self, unit: Unit, asks_owner: bool) -> int:
        """The number of a unit's kind, which has one more. Cost: a hash of its spec."""
        kind = Kind(
            unit.queue, unit.spec.of_group(""), tuple(sorted(unit.request.items())), unit.is_preemptible,
            unit.limit_s, unit.owner if asks_owner else (), unit.needs, unit.preempts,
            None if unit.minimum is None else (unit.minimum.shape, unit.chosen),
        )  # fmt: skip
        number = self._numbers.setdefault(kind, self._next)
        if number == self._next:
            self._next += 1
            self._kinds[number] = kind
        self._units[number] = self._units.get(number, 0) + 1
        return number

    def leave(self, number: int) -> bool:
        """A kind has one unit fewer. True if that was the last one, so that the kind is forgotten."""
        self._units[number] -= 1
        if self._units[number]:
            return False
        del self._units[number], self._numbers[self._kinds.pop(number)]
        return True


class Line:
    """Units by kind, each kind in order."""

    def __init__(self) -> None:
        self._of_kind: dict[int, list[At]] = {}
        self.count = 0

    def add(self, kind: int, at: At) -> None:
        """Cost O(log units), and a move of memory."""
        insort(self._of_kind.setdefault(kind, []), at)
        self.count += 1

    def remove(self, kind: int, at: At) -> bool:
        """Take a unit out; False if it is not in the line."""
        found = self._of_kind.get(kind)
        if found is None:
            return False
        index = bisect_left(found, at)
        if index == len(found) or found[index] != at:
            return False
        del found[index]
        if not found:
            del self._of_kind[kind]
        self.count -= 1
        return True

    def has(self, kind: int, at: At) -> bool:
        """Is a unit in the line?"""
        found = self._of_kind.get(kind, [])
        index = bisect_left(found, at)
        return index < len(found) and found[index] == at

    def kinds(self) -> list[int]:
        """The kinds that have units, in the order in which they came."""
        return list(self._of_kind)

    def units(self, kind: int) -> list[At]:
        """The units of a kind in order; not to be changed."""
        return self._of_kind.get(kind, [])

    def count_before(self, kind: int, at: At) -> int:
        """How many units of a kind are before a place."""
        return bisect_left(self._of_kind.get(kind, []), at)


class Walk:
    """One walk along a line. `rank` says how a kind's first unit compares with that of others; it may grow meanwhile.

    All others of the kind of a unit are left out, unless `took` is called.
    """

    def __init__(self, line: Line, rank: Callable[[int], Rank]) -> None:
        """Cost O(kinds)."""
        self._line, self._rank = line, rank
        self._heap: list[tuple[Rank, At, int]] = [(rank(kind), line.units(kind)[0], kind) for kind in line.kinds()]
        heapify(self._heap)
        self._kind = -1

    def __iter__(self) -> Iterator[str]:
        while self._heap:
            rank, at, kind = heappop(self._heap)
            now = self._rank(kind)
            if now != rank:
                heappush(self._heap, (now, at, kind))
                continue
            self._kind = kind
            yield at[1]

    def took(self) -> None:
        """The unit has left the line; the next one of its kind is in the walk."""
        if units := self._line.units(self._kind):
            heappush(self._heap, (self._rank(self._kind), units[0], self._kind))
