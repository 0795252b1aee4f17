"""Tasks save their work again and again while they run."""

from hived.specs import NO_TIMES, WorkTimes
from hived_simulator.hived_cluster import Saves
from tests.simulator.builders import job, tasks


def test_saves_are_told_once_each() -> None:
    saves, task = Saves(), tasks([job("one", "a", 0, 1000, (1, 1), checkpoint_s=100.0)])[0]
    assert saves.started(task, 50.0) == WorkTimes(50.0, None)
    assert list(saves.due(149.0)) == []
    assert list(saves.due(150.0)) == [task.group]
    assert list(saves.due(160.0)) == []
    assert list(saves.due(399.0)) == [task.group]
    assert saves.times(task.group) == WorkTimes(50.0, 350.0)


def test_a_run_that_is_over_saves_nothing() -> None:
    saves, task = Saves(), tasks([job("one", "a", 0, 1000, (1, 1), checkpoint_s=100.0)])[0]
    saves.started(task, 0.0)
    saves.ended(task.group)
    assert saves.times(task.group) == NO_TIMES
    saves.started(task, 70.0)
    assert list(saves.due(120.0)) == []
    assert list(saves.due(170.0)) == [task.group]


def test_without_checkpoints_nothing_is_ever_saved() -> None:
    saves, task = Saves(), tasks([job("one", "a", 0, 1000, (1, 1))])[0]
    saves.started(task, 0.0)
    assert list(saves.due(1e9)) == []


def test_a_save_at_the_very_moment_is_told_once_although_differences_are_rounded() -> None:
    saves, task = Saves(), tasks([job("one", "a", 0, 9000, (1, 1), checkpoint_s=600.0)])[0]
    started_s = 3257.964864
    moment_s = started_s + 4 * 600.0
    assert (moment_s - started_s) // 600.0 == 3
    saves.started(task, started_s)
    assert [group for _, group in zip(range(9), saves.due(moment_s), strict=False)] == [task.group]
    assert saves.times(task.group).saved_s == moment_s
