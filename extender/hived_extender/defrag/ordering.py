"""The order of moves: a group goes once its new place is free, or is free as soon as it has left its old one."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hived_extender.defrag.puzzle import Puzzle, Solution

Step = tuple[int, ...]
"""Numbers of movers that leave together, before any of them comes back."""

Leaf = tuple[str, int]
"""A node and a device index."""


class Places(msgspec.Struct, frozen=True):
    """The leaf cells that a mover has, and those that it gets."""

    old: frozenset[Leaf]
    new: frozenset[Leaf]


def steps_of(puzzle: Puzzle, solution: Solution, places: Mapping[int, Places]) -> list[Step]:
    """Opportunistic groups first, then the others. Most steps have one mover; a circle of movers is one step."""
    movers = puzzle.movers
    guests = [(number,) for number in solution.moved if movers[number].is_guest]
    free = [
        capacity - own - lent for capacity, own, lent in zip(puzzle.capacity, puzzle.fixed, puzzle.lent, strict=True)
    ]
    for number, mover in enumerate(movers):
        if not (mover.is_guest and number in solution.moved):
            _add(free, mover.pods, -1)
    pending = [number for number in solution.moved if not movers[number].is_guest]
    steps: list[Step] = []
    while pending:
        held = {leaf: number for number in pending for leaf in places[number].old}
        fitting = (
            step for step in _tries(pending) if _fits(puzzle, solution, free, step) and _is_free(held, places, step)
        )
        step = next(fitting, tuple(pending))
        for number in step:
            _add(free, movers[number].pods, 1)
            _add(free, _arriving(puzzle, solution, number), -1)
            pending.remove(number)
        steps.append(step)
    return guests + steps


def _tries(pending: Sequence[int]) -> Iterator[Step]:
    yield from ((number,) for number in pending)
    for i, number in enumerate(pending):
        yield from ((number, other) for other in pending[i + 1 :])


def _is_free(held: Mapping[Leaf, int], places: Mapping[int, Places], step: Step) -> bool:
    """Does nobody who has not moved yet hold the new leaf cells, but those who leave now?"""
    return all(held.get(leaf, number) in step for number in step for leaf in places[number].new)


def _fits(puzzle: Puzzle, solution: Solution, free: Sequence[int], step: Step) -> bool:
    needed: dict[int, int] = {}
    for number in step:
        for bin_, size in _arriving(puzzle, solution, number):
            needed[bin_] = needed.get(bin_, 0) + size
        for bin_, size in puzzle.movers[number].pods:
            needed[bin_] = needed.get(bin_, 0) - size
    return all(amount <= free[bin_] for bin_, amount in needed.items() if amount > 0)


def _arriving(puzzle: Puzzle, solution: Solution, number: int) -> list[tuple[int, int]]:
    sizes = [size for _, size in puzzle.movers[number].pods]
    return list(zip(solution.bins[number], sizes, strict=True))


def _add(free: list[int], pods: Sequence[tuple[int, int]], sign: int) -> None:
    for bin_, size in pods:
        free[bin_] += sign * size
