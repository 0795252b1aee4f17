"""The smallest prefix that is enough, less those that could have stayed."""

from collections.abc import Sequence
from random import Random

import pytest

from hived.scenario import least_prefix


class Room:
    """Candidates free some cells each; so many are needed. Notes the questions."""

    def __init__(self, needed: int, frees: Sequence[int]) -> None:
        self.needed, self.frees, self.asked = needed, frees, list[tuple[int, ...]]()

    @property
    def count(self) -> int:
        return len(self.asked)

    def is_enough(self, leaving: Sequence[int]) -> bool:
        self.asked.append(tuple(leaving))
        return sum(self.frees[one] for one in leaving) >= self.needed

    def least(self) -> list[int] | None:
        return least_prefix(range(len(self.frees)), self.is_enough)


def test_there_may_be_no_candidates() -> None:
    assert Room(1, []).least() is None


def test_many_candidates_are_few_questions() -> None:
    room = Room(1, [0] * 1000 + [1] + [0] * 1000)
    assert room.least() == [1000]
    assert room.count < 1001 + 2 * 11 + 3


def test_a_beginning_that_is_enough_is_asked_about_once() -> None:
    room = Room(4, [1] * 8)
    assert room.least() == [0, 1, 2, 3]
    assert room.asked.count((0, 1, 2, 3)) == 1


@pytest.mark.parametrize("seed", range(50))
def test_none_of_them_could_have_stayed(seed: int) -> None:
    source = Random(seed)
    frees = [source.choice([0, 1, 2, 8]) for _ in range(source.randrange(12))]
    room = Room(source.randrange(12), frees)
    found = room.least()
    if found is None:
        assert sum(frees) < room.needed
        return
    assert room.is_enough(found)
    assert not any(room.is_enough([other for other in found if other != one]) for one in found)
    last = max(found, default=-1)
    assert not found or not room.is_enough(range(last))
