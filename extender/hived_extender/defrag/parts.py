"""The parts of what is wanted, each of which needs a place, and bounds on how much can have one."""

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from hived_extender.defrag.puzzle import Kind, Puzzle


class Part(msgspec.Struct, frozen=True):
    """One cell, or one pod of a gang, that needs a place. `is_alike`: as the part before it, of the same gang."""

    kind: int
    size: int = 0  # of a pod; 0 for a cell
    is_alike: bool = False
    gang: int = -1


def upper_bound(puzzle: Puzzle) -> tuple[int, ...]:
    """Per kind, at most how many of it can have room."""
    free = free_leaves(puzzle)
    found = []
    for kind in puzzle.kinds:
        most = min(kind.count, free // _leaves(kind)) if kind.spots or kind.sizes else 0
        found.append(max(0, min(most, len(kind.spots)) if kind.spots else most))
    return tuple(found)


def free_leaves(puzzle: Puzzle) -> int:
    """Leaves that nobody of the VC has: groups that move need as many as before."""
    own = sum(puzzle.fixed) + sum(size for mover in puzzle.movers if not mover.is_guest for _, size in mover.pods)
    return sum(puzzle.capacity) - own


def _leaves(kind: Kind) -> int:
    """Of one thing of a kind, with a place or sizes."""
    return sum(kind.sizes) or sum(kind.spots[0].amounts)


def numbers_met(puzzle: Puzzle, most: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Every way to meet so many wanted things with the leaves that are free, most of the first kinds first."""
    if len(most) == 1:
        yield (total,)
        return
    free = free_leaves(puzzle)
    for met in product(*(range(count, -1, -1) for count in most)):
        leaves = sum(count * _leaves(kind) for count, kind in zip(met, puzzle.kinds, strict=True) if count)
        if sum(met) == total and leaves <= free:
            yield met


def parts_of_kinds(kinds: Sequence[Kind], met: Sequence[int]) -> list[Part]:
    """The parts of so many things of each kind; larger cells first, as they have fewest places."""
    order = sorted(range(len(kinds)), key=lambda each: (-_weight(kinds[each]), each))
    parts: list[Part] = []
    gangs = 0
    for number in order:
        kind = kinds[number]
        for copy in range(met[number]):
            if kind.spots:
                parts.append(Part(number, is_alike=copy > 0))
                continue
            sizes = kind.sizes
            parts += [Part(number, size, i > 0 and sizes[i - 1] == size, gangs) for i, size in enumerate(sizes)]
            gangs += 1
    return parts


def _weight(kind: Kind) -> int:
    return sum(kind.spots[0].amounts) if kind.spots else max(kind.sizes, default=0)
