"""Who would have to leave for a group at the least: asked of the core under its journal, so that nothing changes."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def least_prefix(candidates: Sequence[T], is_enough: Callable[[Sequence[T]], bool]) -> list[T] | None:
    """The first candidates that are enough together, less those of them that could have stayed; None if all are not.

    A later one stays if it can, then an earlier one. Cost: O(log) questions for the prefix, one for each of its
    candidates.
    """
    if is_enough(()):
        return []
    if not candidates:
        return None
    most = 1
    while not is_enough(candidates[:most]):
        if most >= len(candidates):
            return None
        most *= 2
    most = min(most, len(candidates))
    least = most // 2  # not enough
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if is_enough(candidates[:middle]) else (middle, most)
    return _pruned(list(candidates[:most]), is_enough)


def _pruned(leaving: list[T], is_enough: Callable[[Sequence[T]], bool]) -> list[T]:
    """Without those that need not leave: one after the other, from the last."""
    for place in reversed(range(len(leaving))):
        rest = leaving[:place] + leaving[place + 1 :]
        if is_enough(rest):
            leaving = rest
    return leaving
