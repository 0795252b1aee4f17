"""The delay of a virtual cluster depends on its own cells alone, and is replayed once."""

import pytest

from hived_simulator.loop import Manner
from hived_simulator.suggesting import BudgetError, Sizes
from tests.simulator.builders import NODE, cluster_of, job

NODE_PLACE, RACK_PLACE = ("RACK", 1), ("RACK", 0)
JOBS = (job("1", "a", 0, 100, (1, 4)), job("2", "a", 0, 100, (1, 4)), job("3", "b", 0, 10, (1, 4), priority=-1))
SPEC = cluster_of(2, a={NODE: 1}, b={NODE: 1})


def sizes(most: int = 10) -> Sizes:
    return Sizes(SPEC, JOBS, {"a": "a", "b": "b"}, Manner(), most)


def test_more_cells_make_less_delay() -> None:
    one = sizes()
    assert [one.delay("a", {NODE_PLACE: count}).total_s for count in (1, 2)] == [100.0, 0.0]


def test_opportunistic_jobs_have_no_delay_and_take_no_replay() -> None:
    one = sizes()
    assert (one.delay("b", {NODE_PLACE: 1}).jobs, one.replays) == (0, 0)


def test_nothing_is_replayed_twice_or_beyond_the_budget() -> None:
    one = sizes(most=1)
    for _ in range(3):
        one.delay("a", {NODE_PLACE: 1, RACK_PLACE: 0})
    assert one.replays == 1
    with pytest.raises(BudgetError):
        one.delay("a", {NODE_PLACE: 2})


def test_jobs_that_never_start_count_more_than_any_wait() -> None:
    gang = (job("1", "a", 0, 100, (2, 4)),)
    one = Sizes(SPEC, gang, {"a": "a"}, Manner(), 10)
    assert (one.delay("a", {NODE_PLACE: 1}).never, one.delay("a", {NODE_PLACE: 1}).total_s) == (1, 1000.0)
    assert one.delay("a", {NODE_PLACE: 2}).never == 0


def test_the_hardware_bounds_all_together() -> None:
    one = sizes()
    assert one.fits({"a": {NODE_PLACE: 3}, "b": {NODE_PLACE: 1}})
    assert not one.fits({"a": {NODE_PLACE: 4}, "b": {NODE_PLACE: 1}})
    assert not one.fits({"a": {RACK_PLACE: 1, NODE_PLACE: 1}, "b": {RACK_PLACE: 1}})
