"""Which of a few values each node has, as arrays: a test runs once for each value instead of once for each node."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

V = TypeVar("V", bound=Hashable)

ABSENT = 0
"""The number that stands for "there is no such node"; no test holds for it."""

_KEPT_TESTS = 256


class Column(Generic[V]):
    """One value for each row. Values are numbered from 1 in the order in which they were first seen, and stay."""

    def __init__(self) -> None:
        # number[row] is that of the row's value, ABSENT if it has none.
        self._number = np.zeros(0, np.int32)
        self.values: list[V] = []
        self._numbers: dict[V, int] = {}
        self._verdicts: OrderedDict[Hashable, npt.NDArray[np.bool_]] = OrderedDict()

    def put(self, row: int, value: V) -> None:
        """The row has this value now."""
        number = self._numbers.get(value)
        if number is None:
            self.values.append(value)
            number = self._numbers[value] = len(self.values)
        self._grow(row)
        self._number[row] = number

    def clear(self, row: int) -> None:
        """The row has no value any more."""
        self._grow(row)
        self._number[row] = ABSENT

    def number_of(self, value: V) -> int:
        """The number of a value, ABSENT if no row ever had it."""
        return self._numbers.get(value, ABSENT)

    def numbers(self, row_count: int) -> npt.NDArray[np.int32]:
        """Of the first rows, the number of each one's value. Not to be changed."""
        if row_count:
            self._grow(row_count - 1)
        return self._number[:row_count]

    def where(self, row_count: int, key: Hashable, test: Callable[[V], bool]) -> npt.NDArray[np.bool_]:
        """Of the first rows, for which the test holds. `key` stands for the test: its results are remembered.

        Cost O(rows) of a look-up in an array, and one test for each value that is new since.
        """
        verdicts = self._verdicts.get(key)
        known = 1 if verdicts is None else len(verdicts)
        if verdicts is None or known <= len(self.values):
            new = [test(value) for value in self.values[known - 1 :]]
            told = np.zeros(1, np.bool_) if verdicts is None else verdicts
            verdicts = np.append(told, np.array(new, np.bool_))
            self._verdicts[key] = verdicts
            if len(self._verdicts) > _KEPT_TESTS:
                self._verdicts.popitem(last=False)
        return verdicts[self.numbers(row_count)]

    def _grow(self, row: int) -> None:
        if row >= len(self._number):
            more = np.zeros(max(64, row + 1, 2 * len(self._number)), np.int32)
            more[: len(self._number)] = self._number
            self._number = more
