"""Where random choices come from: a seeded generator for long runs, hypothesis for runs that shrink."""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DataObject

T = TypeVar("T")


class Source(Protocol):
    def integer(self, low: int, high: int) -> int:
        """low <= result <= high; low is the simplest."""


class Choices:
    """Choices in the words of the generators; each prefers its first option when a failure is made smaller."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def integer(self, low: int, high: int) -> int:
        return self._source.integer(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(1, 100) > 100 - percent

    def weighted(self, options: dict[T, int]) -> T:
        at = self.integer(1, sum(options.values()))
        for option, weight in options.items():
            at -= weight
            if at <= 0:
                return option
        raise AssertionError("weights are positive")

    def shuffled(self, items: Sequence[T]) -> list[T]:
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in items]

    def subset(self, items: Sequence[T], percent: int) -> list[T]:
        return [item for item in items if self.chance(percent)]


class Seeded:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class Drawn:
    def __init__(self, data: DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))
