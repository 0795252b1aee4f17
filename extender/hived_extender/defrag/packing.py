"""Where moved pods go: bins that have room, exactly or at once.

Pods are packed largest first. Bins with equal room that refuse the same pods are alike for that. So the exact search
looks at kinds of room and not at bins: the amount, and who is refused. Which of these bins it is, follows from
locality: beside mates of the group, then as near the old place as can be.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hived_extender.defrag.puzzle import NO_BINS, Puzzle

Kind = tuple[int, frozenset[int]]
"""Of room: leaves that are free, and the numbers of the sets of refused bins that it is in."""

Ask = tuple[int, int]
"""Of a pod: its leaves, and the number of the set of bins that refuse it, -1 if none does."""

NOBODY: frozenset[int] = frozenset()


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
        sets = dict.fromkeys(each for mover in puzzle.movers for each in mover.refused if each)
        self._numbers = {each: number for number, each in enumerate(sets)}
        self._refuses: dict[int, frozenset[int]] = {
            bin_: frozenset(number for each, number in self._numbers.items() if bin_ in each)
            for bin_ in NO_BINS.union(*sets)
        }
        self._buckets: dict[Kind, list[int]] = {}
        for bin_, free in enumerate(self._free):
            if free > 0:
                self._buckets.setdefault((free, self.refuses(bin_)), []).append(bin_)

    def refuses(self, bin_: int) -> frozenset[int]:
        """The numbers of the sets of refused bins that a bin is in."""
        return self._refuses.get(bin_, NOBODY)

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
        counts = Counter({kind: len(bins) for kind, bins in self._buckets.items()})
        for bin_, free in changed.items():
            counts[self._free[bin_], self.refuses(bin_)] -= 1
            counts[free, self.refuses(bin_)] += 1
        counts = Counter({kind: count for kind, count in counts.items() if kind[0] > 0 and count > 0})
        asks = tuple(self._ask_of(pod) for pod in self._in_order(pods))
        budget.spend(1 + len(asks))
        if not _can_fit(tuple(size for size, _ in asks), counts):
            return Packed(is_proven=True)
        plan = _at_once(asks, counts)
        if plan is None:
            search = _Exact(budget)
            plan = search.find(asks, tuple(sorted(counts.items(), key=_order)))
            if plan is None:
                return Packed(is_proven=not search.gave_up)
        return Packed(bins=self._choose(pods, plan, changed), is_proven=True)

    def _ask_of(self, pod: "Pod") -> Ask:
        return pod.size, self._numbers.get(pod.refused, -1)

    def _in_order(self, pods: Sequence["Pod"]) -> list["Pod"]:
        """The largest first; of one size, the ones that most bins refuse."""
        return sorted(pods, key=lambda pod: (-pod.size, -len(pod.refused)))

    def _choose(self, pods: Sequence["Pod"], plan: Sequence[Kind], changed: Mapping[int, int]) -> tuple[int, ...]:
        """A bin for each pod, of the rooms that the plan says, largest pods first; near mates, then near home."""
        parents = self._puzzle.parents
        touched = dict(changed)
        extra: dict[Kind, list[int]] = {}
        for bin_, free in touched.items():
            extra.setdefault((free, self.refuses(bin_)), []).append(bin_)
        homes: dict[int, int] = {}
        chosen = [0] * len(pods)
        order = sorted(range(len(pods)), key=lambda each: (-pods[each].size, -len(pods[each].refused), each))
        for number, room in zip(order, plan, strict=True):
            pod = pods[number]
            near = homes.get(pod.mover, pod.home)
            options = [*extra.get(room, ()), *_around(self._buckets.get(room, []), near, touched)]
            best = min(options, key=lambda bin_: (parents[bin_] != parents[near], abs(bin_ - near), bin_))
            chosen[number] = best
            homes.setdefault(pod.mover, best)
            if best in touched:
                extra[room].remove(best)
            touched[best] = room[0] - pod.size
            insort(extra.setdefault((touched[best], room[1]), []), best)
        return tuple(chosen)


class Pod(msgspec.Struct, frozen=True):
    """A pod that has to be packed: its mover, its leaves, the bin that it was in, and the bins that refuse it."""

    mover: int
    size: int
    home: int
    refused: frozenset[int] = NO_BINS


def pods_of(puzzle: Puzzle, moved: Iterable[int]) -> list[Pod]:
    """The pods of some movers; guests find their places by themselves."""
    return [
        Pod(number, size, bin_, puzzle.movers[number].refused_to(pod))
        for number in moved
        if not puzzle.movers[number].is_guest
        for pod, (bin_, size) in enumerate(puzzle.movers[number].pods)
    ]


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


def _can_fit(sizes: tuple[int, ...], counts: Mapping[Kind, int]) -> bool:
    """Is there room for as many pods of each size and larger, one size at a time? Necessary, not sufficient."""
    if sum(sizes) > sum(free * count for (free, _), count in counts.items()):
        return False
    return all(
        sum(free // size * count for (free, _), count in counts.items()) >= sum(1 for each in sizes if each >= size)
        for size in set(sizes)
    )


def _at_once(asks: tuple[Ask, ...], counts: Mapping[Kind, int]) -> list[Kind] | None:
    """The room that each pod takes: the smallest that it fits in. None if a pod is left over."""
    left = dict(counts)
    plan = []
    for size, number in asks:
        rooms = [kind for kind, count in left.items() if count and kind[0] >= size and number not in kind[1]]
        if not rooms:
            return None
        room = min(rooms, key=lambda kind: _order((kind, 0)))
        _take(left, room, size)
        plan.append(room)
    return plan


def _order(room: tuple[Kind, int]) -> tuple[int, int, list[int]]:
    """The least room first, of it the room that refuses most."""
    (free, refuses), _ = room
    return free, -len(refuses), sorted(refuses)


def _take(counts: dict[Kind, int], room: Kind, size: int) -> None:
    free, refuses = room
    counts[room] -= 1
    if free > size:
        counts[free - size, refuses] = counts.get((free - size, refuses), 0) + 1


class _Exact:
    """Tries every kind of room for each pod, with what is known to fail remembered."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._dead: set[tuple[int, tuple[tuple[Kind, int], ...]]] = set()
        self.gave_up = False

    def find(self, asks: tuple[Ask, ...], counts: tuple[tuple[Kind, int], ...]) -> list[Kind] | None:
        """The room that each pod takes, None if there is no way, or the budget is spent."""
        plan: list[Kind] = []
        stack = [(counts, iter(_rooms(counts, asks[0])))] if asks else []
        while stack and len(plan) < len(asks):
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
            _take(left, room, asks[len(plan)][0])
            below = tuple(sorted(((kind, count) for kind, count in left.items() if count), key=_order))
            if (len(plan) + 1, below) in self._dead:
                continue
            plan.append(room)
            if len(plan) < len(asks):
                stack.append((below, iter(_rooms(below, asks[len(plan)]))))
        return plan if len(plan) == len(asks) else None


def _rooms(counts: Sequence[tuple[Kind, int]], ask: Ask) -> list[Kind]:
    size, number = ask
    return [kind for kind, _ in counts if kind[0] >= size and number not in kind[1]]
