"""The best solution of a small puzzle, by trying every set of movers and every place of each."""

from collections.abc import Iterator, Sequence
from itertools import product

from hived_extender.insight.defrag.puzzle import Puzzle


def best_of(puzzle: Puzzle) -> tuple[int, int]:
    """(things met, least cost for that many)."""
    best = (0, 0)
    for mask in range(1 << len(puzzle.movers)):
        moved = [i for i in range(len(puzzle.movers)) if mask >> i & 1]
        cost = sum(puzzle.movers[i].cost for i in moved)
        for met in product(*(range(kind.count * bool(kind.spots or kind.sizes) + 1) for kind in puzzle.kinds)):
            total = sum(met)
            is_better = total > best[0] or (total == best[0] and cost < best[1])
            if is_better and _can_be(puzzle, moved, met):
                best = (total, cost)
    return best


def check_solution(puzzle: Puzzle, moved: Sequence[int], bins: dict[int, tuple[int, ...]], met: Sequence[int]) -> None:
    """Fail unless the moved groups have room where they are put, and the things wanted can then be placed."""
    own, lent = _staying(puzzle, moved)
    arriving = [0] * len(puzzle.capacity)
    for number, places in bins.items():
        for bin_, (_, size) in zip(places, puzzle.movers[number].pods, strict=True):
            arriving[bin_] += size
    assert all(o + a + g <= c for o, a, g, c in zip(own, arriving, lent, puzzle.capacity, strict=True) if a)
    free = [c - o - a for c, o, a in zip(puzzle.capacity, own, arriving, strict=True)]
    assert any(True for _ in _wanted(puzzle, moved, met, free))


def _staying(puzzle: Puzzle, moved: Sequence[int]) -> tuple[list[int], list[int]]:
    own, lent = list(puzzle.fixed), list(puzzle.lent)
    for number, mover in enumerate(puzzle.movers):
        if number not in moved:
            for bin_, size in mover.pods:
                (lent if mover.is_guest else own)[bin_] += size
    return own, lent


def _can_be(puzzle: Puzzle, moved: Sequence[int], met: Sequence[int]) -> bool:
    own, lent = _staying(puzzle, moved)
    free = [c - o for c, o in zip(puzzle.capacity, own, strict=True)]
    pods = [size for i in moved if not puzzle.movers[i].is_guest for _, size in puzzle.movers[i].pods]
    for left in _wanted(puzzle, moved, met, free):
        room = [min(r, c - o - g) for r, c, o, g in zip(left, puzzle.capacity, own, lent, strict=True)]
        if _packs(sorted(pods, reverse=True), room, set()):
            return True
    return False


def _packs(pods: list[int], room: list[int], seen: set[tuple[int, ...]]) -> bool:
    if not pods:
        return True
    key = (len(pods), *sorted(room))
    if key in seen:
        return False
    seen.add(key)
    for bin_, free in enumerate(room):
        if free >= pods[0]:
            room[bin_] -= pods[0]
            if _packs(pods[1:], room, seen):
                return True
            room[bin_] += pods[0]
    return False


def _wanted(puzzle: Puzzle, moved: Sequence[int], met: Sequence[int], free: list[int]) -> Iterator[list[int]]:
    """The room that is left after placing so many of each kind, for each way to do so."""

    def place(kinds: list[tuple[int, int]], free: list[int], after: int) -> Iterator[list[int]]:
        if not kinds:
            yield free
            return
        (number, count), rest = kinds[0], kinds[1:]
        kind = puzzle.kinds[number]
        if count == 0:
            yield from place(rest, free, -1)
            return
        if kind.spots:
            for i in range(after + 1, len(kind.spots)):
                spot = kind.spots[i]
                if not spot.movers <= set(moved):
                    continue
                left = list(free)
                for bin_, amount in zip(spot.bins, spot.amounts, strict=True):
                    left[bin_] -= amount
                if min(left) >= 0:
                    yield from place([(number, count - 1), *rest], left, i)
            return
        for start, end in kind.ranges or ((0, len(free)),):
            for left in _gang(kind.sizes, free, start, end, set()):
                yield from place([(number, count - 1), *rest], left, -1)

    yield from place([(i, count) for i, count in enumerate(met) if count], free, -1)


def _gang(
    sizes: Sequence[int], free: list[int], start: int, end: int, seen: set[tuple[int, ...]]
) -> Iterator[list[int]]:
    key = (len(sizes), *free)
    if key in seen:
        return
    seen.add(key)
    if not sizes:
        yield free
        return
    for bin_ in range(start, end):
        if free[bin_] >= sizes[0]:
            left = list(free)
            left[bin_] -= sizes[0]
            yield from _gang(sizes[1:], left, start, end, seen)
