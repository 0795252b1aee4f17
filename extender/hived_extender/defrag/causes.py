"""The reason why nothing is possible: too few leaf cells, groups that may not be moved, or no arrangement at all.

To know, the puzzle is solved once more as if every group might be moved. Only a question without a plan pays for that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from hived.cells.state import State
from hived_extender.defrag.model import Allowed, Refused, View, make_puzzle
from hived_extender.defrag.parts import free_leaves
from hived_extender.defrag.puzzle import Puzzle, Solution
from hived_extender.defrag.wants import Shape
from hived_extender.pods.progress import MAY_MOVE

CELLS, PERMISSION, ARRANGEMENT, SEARCH = "too few cells", "not allowed", "no arrangement", "not known"
LIMITS, UNCONFIRMED = "limits", "not confirmed"

SHOWN_GROUPS = 4


class Cause(msgspec.Struct, frozen=True):
    """One of the constants above, and the reason in words with a remedy."""

    name: str
    reason: str


NO_CAUSE = Cause("", "")


class Barred(msgspec.Struct, frozen=True):
    """The nodes that Kubernetes' rules keep wanted jobs from, whoever moves; `obstacle` is an example, in words."""

    refused: Refused
    obstacle: str


CUT_SHORT = Cause(SEARCH, "the search was cut short without a plan: ask for less, or try --solver cp-sat")


def cause_of(
    state: State,
    vc: str,
    by_view: Mapping[int, Sequence[Shape]],
    allowed: Mapping[str, Allowed],
    everybody: Mapping[str, Allowed],
    solve: Callable[[Puzzle], Solution],
    met: int,
    barred: Barred,
) -> Cause:
    """The cause why not more than `met` of the things wanted have room.

    `allowed` are the groups that may be moved, `everybody` all groups. Cost: one more solution of the
    puzzle.
    """
    views = [(View(state, view), shapes) for view, shapes in by_view.items()]
    puzzles = [make_puzzle(view, everybody, shapes, barred.refused) for view, shapes in views]
    if len(views) == 1:
        least, free = _least_leaves(puzzles[0], met + 1), free_leaves(puzzles[0])
        if free < least:
            return Cause(
                CELLS,
                f"{least} leaf cells of chain {views[0][0].chain.name} are needed for {met + 1} of those wanted, and "
                f"{vc} has {free} healthy ones that no guaranteed group of it uses: moving groups adds none",
            )
    solutions = [solve(puzzle) for puzzle in puzzles]
    if sum(sum(one.met) for one in solutions) > met:
        lacking = _lacking_leave(puzzles, solutions, allowed)
        if lacking:
            return _permission(vc, puzzles, lacking, allowed)
    elif all(one.bound_met == sum(one.met) for one in solutions):
        by_rules = any(each for one in everybody.values() for each in one.refused)
        example = f" ({barred.obstacle})" if barred.obstacle else ""
        where = f" where Kubernetes' rules allow the pods{example}" if by_rules or example else ""
        return Cause(
            ARRANGEMENT, f"no arrangement of the groups of {vc} has room{where}, even if all of them could be moved"
        )
    return CUT_SHORT


def _lacking_leave(
    puzzles: Sequence[Puzzle], solutions: Iterable[Solution], allowed: Mapping[str, Allowed]
) -> list[str]:
    """The groups that the solutions move, and that may not be moved; none if a first search was cut short."""
    return [
        name
        for puzzle, solution in zip(puzzles, solutions, strict=True)
        for number in solution.moved
        for name in puzzle.movers[number].names
        if name not in allowed
    ]


def _permission(vc: str, puzzles: Sequence[Puzzle], lacking: Sequence[str], allowed: Mapping[str, Allowed]) -> Cause:
    may_none = not any(name in allowed for puzzle in puzzles for mover in puzzle.movers for name in mover.names)
    begin = f"no group of {vc} may be moved" if may_none else "the groups that may be moved are not enough"
    more = f" and {len(lacking) - SHOWN_GROUPS} more" if len(lacking) > SHOWN_GROUPS else ""
    return Cause(
        PERMISSION,
        f"{begin}; there would be room if {', '.join(lacking[:SHOWN_GROUPS])}{more} could be moved. "
        f'Owners allow it by the annotation {MAY_MOVE}: "true" on each pod, the configuration by movable: true for the '
        f"virtual cluster",
    )


def _least_leaves(puzzle: Puzzle, count: int) -> int:
    """The leaves of so many of the things wanted, the smallest ones."""
    sizes = [
        sum(kind.sizes) or (sum(kind.spots[0].amounts) if kind.spots else 0)
        for kind in puzzle.kinds
        for _ in range(kind.count)
    ]
    return sum(sorted(sizes)[:count])
