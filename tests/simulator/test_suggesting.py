"""Better sizes and shapes of virtual clusters for a trace."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from hived.values.specs import ClusterSpec
from hived_simulator.loop import Manner
from hived_simulator.suggesting import BudgetError, Goal, Shaped, Sizes, Step, applied, reshaped, resized
from hived_simulator.traces.jobs import Job
from tests.simulator.builders import NODE, RACK, cluster_of, job

NODE_PLACE, RACK_PLACE = ("RACK", 1), ("RACK", 0)
JOBS = (job("1", "a", 0, 100, (1, 4)), job("2", "a", 0, 100, (1, 4)), job("3", "b", 0, 10, (1, 4), priority=-1))
SPEC = cluster_of(2, a={NODE: 1}, b={NODE: 1})


def sizes(spec: ClusterSpec = SPEC, jobs: Sequence[Job] = JOBS, most: int = 100) -> Sizes:
    return Sizes(spec, jobs, {each.tenant: each.tenant for each in jobs}, Manner(), most)


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


WAITING = [job(f"{number}", "b", 0, 100, (1, 4)) for number in range(4)]
IDLE = [job("x", "a", 0, 100, (1, 4))]


def test_cells_go_from_those_that_do_not_need_them() -> None:
    found = resized(sizes(cluster_of(2, a={NODE: 3}, b={NODE: 1}), [*IDLE, *WAITING]), Goal.DELAY)
    assert found.steps == (Step(2, NODE_PLACE, "a", "b"),)
    assert found.table == {"a": {NODE_PLACE: 1}, "b": {NODE_PLACE: 3}}
    assert found.is_complete


def test_cells_that_nobody_is_promised_go_first_and_nobody_is_worse_off() -> None:
    found = resized(sizes(cluster_of(2, a={NODE: 1}, b={NODE: 1}), [*IDLE, *WAITING]), Goal.FAIR)
    assert found.steps == (Step(2, NODE_PLACE, "", "b"),)


def test_a_fair_division_takes_nothing_that_is_missed() -> None:
    busy = [job(f"a{number}", "a", 0, 100, (1, 4)) for number in range(4)]
    found = resized(sizes(cluster_of(2, a={NODE: 2}, b={NODE: 2}), [*busy, *WAITING]), Goal.FAIR)
    assert found.steps == ()


def test_the_least_delay_is_that_of_all_divisions() -> None:
    jobs = [
        *(job(f"a{number}", "a", 20 * number, 90, (1, 4)) for number in range(5)),
        *(job(f"b{number}", "b", 30 * number, 50, (1, 4)) for number in range(4)),
        *(job(f"c{number}", "c", 10 * number, 40, (1, 2)) for number in range(6)),
    ]
    one = sizes(cluster_of(3, a={NODE: 1}, b={NODE: 1}, c={NODE: 4}), jobs)
    found = resized(one, Goal.DELAY)

    def total(counts: tuple[int, ...]) -> float:
        return sum(one.delay(vc, {NODE_PLACE: count}).total_s for vc, count in zip("abc", counts, strict=True))

    best = min(total(counts) for counts in product(range(1, 5), repeat=3) if sum(counts) == 6)
    assert sum(one.delay(vc, counts).total_s for vc, counts in found.table.items()) == best


def test_the_search_ends_where_its_budget_does() -> None:
    found = resized(sizes(cluster_of(2, a={NODE: 3}, b={NODE: 1}), [*IDLE, *WAITING], most=2), Goal.DELAY)
    assert (found.steps, found.is_complete) == ((), False)


def test_a_step_leaves_the_table_before_as_it_was() -> None:
    before = {"a": {NODE_PLACE: 3}, "b": {NODE_PLACE: 1}}
    assert applied(before, Step(1, NODE_PLACE, "a", "b")) == {"a": {NODE_PLACE: 2}, "b": {NODE_PLACE: 2}}
    assert before["a"] == {NODE_PLACE: 3}


def shaped(jobs: Sequence[Job], most: int = 20, **vcs: Any) -> Shaped:
    return reshaped(sizes(cluster_of(3, **vcs), jobs, most))


def test_gangs_that_ran_at_once_get_a_cell_each() -> None:
    gangs = [job(f"{number}", "a", 0, 100, (2, 4)) for number in range(2)]
    found = shaped([*gangs, job("3", "a", 200, 100, (2, 4))], a={NODE: 6})
    assert found.table == {"a": {NODE_PLACE: 2, RACK_PLACE: 2}}
    (change,) = found.changes
    assert (change.parts, change.cells, change.need.jobs, change.need.at_once) == (4, 2, 3, 2)


def test_small_jobs_need_no_higher_cells() -> None:
    assert shaped([job("1", "a", 0, 100, (1, 4))], a={NODE: 4}).changes == ()


def test_cells_that_are_there_already_count() -> None:
    assert shaped([job("1", "a", 0, 100, (2, 4))], a={RACK: 1, NODE: 2}).changes == ()


def test_a_shape_for_which_the_hardware_does_not_suffice_is_left() -> None:
    found = shaped([job("1", "a", 0, 100, (2, 4))], a={NODE: 2}, b={RACK: 2, NODE: 1})
    assert found.changes == ()


def test_every_virtual_cluster_keeps_its_leaf_cells() -> None:
    found = shaped([job("1", "a", 0, 100, (2, 4)), job("2", "b", 0, 100, (2, 4))], a={NODE: 3}, b={NODE: 3})
    for counts in found.table.values():
        assert 8 * counts.get(RACK_PLACE, 0) + 4 * counts.get(NODE_PLACE, 0) == 12


def test_without_replays_nothing_changes() -> None:
    found = shaped([job("1", "a", 0, 100, (2, 4))], most=0, a={NODE: 4})
    assert (found.changes, found.is_complete) == ((), False)
