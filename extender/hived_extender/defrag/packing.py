"""Where moved pods go: bins that have room, exactly or at once.

Pods are packed largest first. Bins with equal room are alike for that, so the exact search looks at amounts of room and
not at bins. Which of these bins it is, follows from locality: beside mates of the group, then as near the old place as
can be.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from hived_extender.defrag.puzzle import Puzzle


class Budget:
    """Steps that are left. A search that has none left gives up, and says so. The same on every machine."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    @property
    def is_spent(self) -> bool:
        """Are no steps left?"""
        return self.left <= 0

    def spend(self, steps: int = 1) -> None:
        """Count steps."""
        self.left -= steps


class Room:
    """Room for moved pods in each bin, once some groups have left and wanted things have their places."""

    def __init__(self, puzzle: Puzzle) -> None:
        """Nobody has left. Cost O(bins + movers)."""
        self._puzzle = puzzle
        own, lent = list(puzzle.fixed), list(puzzle.lent)
        for mover in puzzle.movers:
            amounts = lent if mover.is_guest else own
            for bin_, size in mover.pods:
                amounts[bin_] += size
        self.own, self._lent = own, lent
        self._free = [
            capacity - mine - theirs for capacity, mine, theirs in zip(puzzle.capacity, own, lent, strict=True)
        ]
        self._buckets: dict[int, list[int]] = {}
        for bin_, free in enumerate(self._free):
            if free > 0:
                self._buckets.setdefault(free, []).append(bin_)

    def after(self, moved: frozenset[int], used: Mapping[int, int]) -> dict[int, int]:
        """The room of the bins in which it changes: `moved` have left, `used` has what is wanted of bins."""
        own, lent, changed = Counter[int](), Counter[int](), set(used)
        for number in moved:
            mover = self._puzzle.movers[number]
            for bin_, size in mover.pods:
                (lent if mover.is_guest else own)[bin_] -= size
                changed.add(bin_)
        return {
            bin_: self._puzzle.capacity[bin_]
            - self.own[bin_]
            - own[bin_]
            - max(used.get(bin_, 0), self._lent[bin_] + lent[bin_])
            for bin_ in sorted(changed)
        }

    def pack(self, pods: Sequence["Pod"], changed: Mapping[int, int], budget: Budget) -> "Packed":
        """Bins for these pods; `changed` is what `after` says. Cost O(pods x log bins) if packing at once succeeds."""
        counts = Counter({free: len(bins) for free, bins in self._buckets.items()})
        for bin_, free in changed.items():
            counts[self._free[bin_]] -= 1
            counts[free] += 1
        counts = Counter({free: count for free, count in counts.items() if free > 0 and count > 0})
        sizes = tuple(sorted((pod.size for pod in pods), reverse=True))
        budget.spend(1 + len(sizes))
        if not _can_fit(sizes, counts):
            return Packed(is_proven=True)
        plan = _at_once(sizes, counts)
        if plan is None:
            search = _Exact(budget)
            plan = search.find(sizes, tuple(sorted(counts.items())))
            if plan is None:
                return Packed(is_proven=not search.gave_up)
        return Packed(bins=self._choose(pods, plan, changed), is_proven=True)

    def _choose(self, pods: Sequence["Pod"], plan: Sequence[int], changed: Mapping[int, int]) -> tuple[int, ...]:
        """A bin for each pod, of the rooms that the plan says, largest pods first; near mates, then near home."""
        parents = self._puzzle.parents
        touched = dict(changed)
        extra: dict[int, list[int]] = {}
        for bin_, free in touched.items():
            extra.setdefault(free, []).append(bin_)
        homes: dict[int, int] = {}
        chosen = [0] * len(pods)
        order = sorted(range(len(pods)), key=lambda each: (-pods[each].size, each))
        for number, room in zip(order, plan, strict=True):
            pod = pods[number]
            near = homes.get(pod.mover, pod.home)
            options = [*extra.get(room, ()), *_around(self._buckets.get(room, []), near, touched)]
            best = min(options, key=lambda bin_: (parents[bin_] != parents[near], abs(bin_ - near), bin_))
            chosen[number] = best
            homes.setdefault(pod.mover, best)
            if best in touched:
                extra[room].remove(best)
            touched[best] = room - pod.size
            insort(extra.setdefault(room - pod.size, []), best)
        return tuple(chosen)


class Pod(msgspec.Struct, frozen=True):
    """A pod that has to be packed: its mover, its leaves, and the bin that it was in."""

    mover: int
    size: int
    home: int


class Packed(msgspec.Struct, frozen=True):
    """The bin of each pod, None if they do not fit; is that proven?"""

    bins: tuple[int, ...] | None = None
    is_proven: bool = False


def _around(bins: list[int], near: int, touched: Mapping[int, int]) -> list[int]:
    """The nearest untouched bins of an ascending list, one on either side."""
    middle = bisect_left(bins, near)
    found = []
    for positions in (range(middle, len(bins)), range(middle - 1, -1, -1)):
        for position in positions:
            if bins[position] not in touched:
                found.append(bins[position])
                break
    return found


def _can_fit(sizes: tuple[int, ...], counts: Mapping[int, int]) -> bool:
    """Is there room for as many pods of each size and larger, one size at a time? Necessary, not sufficient."""
    if sum(sizes) > sum(free * count for free, count in counts.items()):
        return False
    return all(
        sum(free // size * count for free, count in counts.items()) >= sum(1 for each in sizes if each >= size)
        for size in set(sizes)
    )


def _at_once(sizes: tuple[int, ...], counts: Mapping[int, int]) -> list[int] | None:
    """The room that each pod takes: the smallest that it fits in. None if a pod is left over."""
    left = dict(counts)
    plan = []
    for size in sizes:
        room = min((free for free, count in left.items() if count and free >= size), default=0)
        if not room:
            return None
        _take(left, room, size)
        plan.append(room)
    return plan


def _take(counts: dict[int, int], room: int, size: int) -> None:
    counts[room] -= 1
    if room > size:
        counts[room - size] = counts.get(room - size, 0) + 1


class _Exact:
    """Tries every amount of room for each pod, with what is known to fail remembered."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._dead: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        self.gave_up = False

    def find(self, sizes: tuple[int, ...], counts: tuple[tuple[int, int], ...]) -> list[int] | None:
        """The room that each pod takes, None if there is no way, or the budget is spent."""
        plan: list[int] = []
        stack = [(counts, iter(_rooms(counts, sizes[0])))] if sizes else []
        while stack and len(plan) < len(sizes):
            here, rooms = stack[-1]
            room = next(rooms, None)
            if room is None:
                self._dead.add((len(plan), here))
                stack.pop()
                if plan:
                    plan.pop()
                continue
            self._budget.spend()
            if self._budget.is_spent:
                self.gave_up = True
                return None
            left = dict(here)
            _take(left, room, sizes[len(plan)])
            below = tuple(sorted((free, count) for free, count in left.items() if count))
            if (len(plan) + 1, below) in self._dead:
                continue
            plan.append(room)
            if len(plan) < len(sizes):
                stack.append((below, iter(_rooms(below, sizes[len(plan)]))))
        return plan if len(plan) == len(sizes) else None


def _rooms(counts: Sequence[tuple[int, int]], size: int) -> list[int]:
    return [free for free, _ in counts if free >= size]
