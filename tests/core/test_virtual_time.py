"""What happens next, the leaf cells that jobs have, and the jobs that wait, against the same written plainly."""

from random import Random

import pytest

from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived.virtual_time import Agenda, Entry, Lineup, Occupancy


def test_entries_of_one_moment_come_together_in_the_order_of_kind_number_and_run() -> None:
    agenda = Agenda()
    for entry in ((2.0, 0, 1), (1.0, 1, 0), (1.0, 0, 2, 1), (1.0, 0, 2, 0)):
        agenda.add(*entry)
    assert (len(agenda), agenda.next_s) == (4, 1.0)
    assert agenda.pop_next() == [Entry(1.0, 0, 2, 0), Entry(1.0, 0, 2, 1), Entry(1.0, 1, 0, 0)]
    assert agenda.pop_next() == [Entry(2.0, 0, 1, 0)]
    assert not agenda


def test_cells_count_by_virtual_cluster_and_priority_and_once_for_a_group() -> None:
    used = Occupancy()
    used.add("low", "a", 0, 4)
    used.add("low", "a", 0, 4)
    used.add("high", "a", 5, 2)
    used.add("other", "b", 0, 8)
    used.add("lent", "a", OPPORTUNISTIC_PRIORITY, 16)
    assert [used.count_used("a", priority) for priority in (0, 1, 6)] == [6, 2, 0]
    assert used.count_used("a", 0, but=("high", "other", "unknown")) == 4
    assert [used.remove(group) for group in ("low", "low", "lent")] == [True, False, False]
    assert used.count_used("a", 0) == 2


def test_victims_do_not_count_while_their_cells_are_reserved() -> None:
    used = Occupancy()
    used.add("victim", "a", 0, 4)
    used.add("stays", "a", 0, 1)
    used.add("taker", "a", 5, 4, ["victim"])
    assert used.count_used("a", 0) == 5
    used.remove("taker")
    assert used.count_used("a", 0) == 5
    used.add("taker", "a", 5, 4, ["victim"])
    used.remove("victim")
    used.add("taker", "a", 5, 4)
    assert used.count_used("a", 0) == 5


class PlainLineup:
    """Jobs that wait, in a list."""

    def __init__(self, waiting: set[int]) -> None:
        self.waiting = waiting
        self.kinds: dict[int, str] = {}
        self.refused: set[str] = set()

    def first(self) -> int | None:
        """The first one of a kind that was not refused."""
        return min((each for each in self.waiting if self.kinds[each] not in self.refused), default=None)

    def reopen(self, of: set[int]) -> None:
        """Those kinds whose first job is one of these."""
        first = {kind: min(each for each in self.waiting if self.kinds[each] == kind) for kind in self._kinds()}
        self.refused -= {kind for kind, place in first.items() if place in of}
        self.refused &= first.keys()

    def _kinds(self) -> set[str]:
        return {self.kinds[each] for each in self.waiting}


@pytest.mark.parametrize("seed", range(20))
def test_the_first_job_of_the_kinds_that_were_not_refused_is_next(seed: int) -> None:
    source, waiting = Random(seed), set[int]()
    lineup, plain = Lineup[int](waiting.__contains__), PlainLineup(waiting)
    for number in range(300):
        act = source.randrange(4)
        first = lineup.first()
        assert first == plain.first()
        if act == 0 and first is not None:
            lineup.refuse(plain.kinds[first])
            plain.refused.add(plain.kinds[first])
        elif act == 1 and waiting:
            waiting.discard(source.choice(sorted(waiting)) if first is None or source.random() < 0.5 else first)
        elif act == 2 and source.random() < 0.3:
            helped = {each for each in waiting if source.random() < 0.7}
            lineup.reopen(helped.__contains__)
            plain.reopen(helped)
        else:
            place, kind = source.randrange(100) * 1000 + number, source.choice("abcd")
            waiting.add(place)
            plain.kinds[place] = kind
            lineup.add(kind, place)
