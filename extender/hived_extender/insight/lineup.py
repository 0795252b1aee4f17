"""The waiting jobs of a play, in the order in which they are tried, and the leaf cells that guaranteed groups have.

Jobs of one kind get the same answers. So one of each kind is tried, and once it is refused, the others wait with it
until cells come free that may help them.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable

from hived_extender.insight.scene import Scene


class Lineup:
    """Waiting jobs by number; lower numbers come first. `begin` opens a round, and `next` has the jobs to be tried."""

    def __init__(self, scene: Scene) -> None:
        """Jobs that cannot be asked for are left out."""
        self._scene = scene
        self._kinds: dict[Hashable, list[int]] = {}  # the next one of each kind last
        self._refused: set[Hashable] = set()
        self._heads: list[tuple[int, Hashable]] = []
        self._tried: Hashable | None = None
        for number in reversed(range(len(scene.waiters))):
            if scene.waiters[number].is_asked:
                self._kinds.setdefault(scene.waiters[number].kind, []).append(number)

    def __bool__(self) -> bool:
        """Does anybody wait?"""
        return bool(self._kinds)

    def begin(self) -> None:
        """All that wait are tried in their order, but for kinds that were refused."""
        self._heads = [(numbers[-1], kind) for kind, numbers in self._kinds.items() if kind not in self._refused]
        heapq.heapify(self._heads)
        self._tried = None

    def next(self) -> int | None:
        """The next job of the round; None at its end. Cost O(log kinds)."""
        if self._tried in self._kinds and self._tried not in self._refused:
            heapq.heappush(self._heads, (self._kinds[self._tried][-1], self._tried))
        while self._heads:
            number, kind = heapq.heappop(self._heads)
            if kind not in self._refused and self._kinds.get(kind, [-1])[-1] == number:
                self._tried = kind
                return number
        self._tried = None
        return None

    def refuse(self, number: int) -> None:
        """A job has no room, nor have others of its kind."""
        self._refused.add(self._scene.waiters[number].kind)

    def add(self, number: int) -> None:
        """A job waits again."""
        waiting = self._kinds.setdefault(self._scene.waiters[number].kind, [])
        if number not in waiting:
            waiting.append(number)
            waiting.sort(reverse=True)

    def drop(self, number: int) -> None:
        """A job does not wait any more."""
        kind = self._scene.waiters[number].kind
        if number in self._kinds.get(kind, ()):
            self._kinds[kind].remove(number)
            if not self._kinds[kind]:
                del self._kinds[kind]

    def reopen(self, vc: str) -> None:
        """Cells of a virtual cluster are free: those that they may help are tried again.

        By VC safety they help its own guaranteed jobs alone, where every node is healthy and offered.
        """
        if not self._scene.is_whole:
            self._refused.clear()
            return
        waiting = ((kind, self._scene.waiters[numbers[-1]]) for kind, numbers in self._kinds.items())
        for kind, one in waiting:
            if one.entry.vc == vc or one.is_opportunistic or one.is_restricted:
                self._refused.discard(kind)


class Usage:
    """Leaf cells of guaranteed groups, by virtual cluster and priority."""

    def __init__(self) -> None:
        """Nobody has any."""
        self._used: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._counted: dict[str, tuple[str, int, int]] = {}

    def add(self, group: str, vc: str, priority: int, leaves: int) -> None:
        """A group has cells; twice counts once."""
        if group not in self._counted:
            self._counted[group] = (vc, priority, leaves)
            self._used[vc][priority] += leaves

    def remove(self, group: str) -> None:
        """A group has its cells no more, or no more as a guaranteed one."""
        vc, priority, leaves = self._counted.pop(group, ("", 0, 0))
        self._used[vc][priority] -= leaves

    def held(self, vc: str, priority: int, without: Iterable[str]) -> int:
        """Leaf cells of groups of a virtual cluster of at least this priority, without some of its groups."""
        held = sum(count for level, count in self._used[vc].items() if level >= priority)
        return held - sum(self._counted.get(group, ("", 0, 0))[2] for group in without)
