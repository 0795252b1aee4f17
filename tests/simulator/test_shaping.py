"""Lower cells become higher ones, as many as the gangs that occur need at once."""

from collections.abc import Sequence
from typing import Any

from hived_simulator.loop import Manner
from hived_simulator.suggesting import Shaped, Sizes, reshaped
from hived_simulator.traces.jobs import Job
from tests.simulator.builders import NODE, RACK, cluster_of, job

NODE_PLACE, RACK_PLACE = ("RACK", 1), ("RACK", 0)


def shaped(jobs: Sequence[Job], most: int = 20, **vcs: Any) -> Shaped:
    return reshaped(Sizes(cluster_of(3, **vcs), jobs, {each.tenant: each.tenant for each in jobs}, Manner(), most))


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
