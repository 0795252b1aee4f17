"""A cluster under hived: the core decides, and what the loop is told agrees with it."""

import pytest

from hived.scheduler import check_invariants
from hived.values.errors import UserError
from hived.values.specs import NO_TIMES, WorkTimes
from hived_simulator.changes import Act, Change
from hived_simulator.clusters import Leaving, Started, Waits
from hived_simulator.hived_cluster import HivedCluster, Saves
from hived_simulator.loop import Loop, Manner
from hived_simulator.tasks import Cause
from tests.simulator.builders import NODE, PAIR, RACK, cluster_of, job, random_jobs, run, tasks

SPEC = cluster_of(3, a={NODE: 2}, b={RACK: 1}, c={NODE: 1})


def only(*pods: tuple[int, int], vc: str = "a", **more: object):
    return tasks([job("job", vc, 0, 10, *pods, **more)])[0]


def test_a_gang_tells_the_level_of_the_cell_that_holds_it() -> None:
    cluster = HivedCluster(SPEC)
    answers = [cluster.ask(task, 0) for task in tasks([job("b", "b", 0, 1, (2, 4)), job("c", "c", 0, 1, (1, 1))])]
    assert [cluster.level_name(answer.level) for answer in answers if isinstance(answer, Started)] == ["RACK", "GPU"]


def test_a_gang_that_no_cell_holds_is_across() -> None:
    cluster = HivedCluster(SPEC)
    lent = only((6, 4), priority=-1)
    answer = cluster.ask(lent, -1)
    assert isinstance(answer, Started)
    assert (cluster.level_name(answer.level), cluster.level_name(cluster.best_level(lent))) == ("across", "across")


@pytest.mark.parametrize(
    ("pods", "best"),
    [
        (((1, 1),), "GPU"),
        (((2, 1),), "PAIR"),
        (((1, 3),), "NODE"),
        (((2, 3),), "RACK"),
        (((1, 2), (1, 4)), "RACK"),
        (((1, 1), (1, 3)), "NODE"),
        (((1, 2), (2, 3)), "across"),
        (((250_000, 4),), "across"),
    ],
)
def test_the_best_level_is_that_of_an_empty_cluster(pods, best) -> None:
    cluster = HivedCluster(SPEC)
    assert cluster.level_name(cluster.best_level(only(*pods))) == best


def test_a_preemptor_reserves_then_starts() -> None:
    cluster = HivedCluster(SPEC)
    lent, owner = tasks([job("lent", "a", 0, 1, (6, 4), priority=-1), job("owner", "b", 0, 1, (1, 4))])
    cluster.ask(lent, -1)
    assert cluster.ask(owner, 0) == Leaving((lent.group,))
    cluster.release(lent)
    assert isinstance(cluster.ask(owner, 0), Started)


def test_a_higher_priority_takes_reserved_cells() -> None:
    cluster = HivedCluster(SPEC)
    lent, low, high = tasks(
        [
            job("lent", "a", 0, 1, (6, 4), priority=-1),
            job("low", "c", 0, 1, (1, 4)),
            job("high", "c", 0, 1, (1, 4), priority=9),
        ]
    )
    cluster.ask(lent, -1)
    cluster.ask(low, 0)
    answer = cluster.ask(high, 9)
    assert isinstance(answer, Leaving)
    assert answer.cancelled == (low.group,)


def test_room_that_lacks_for_certain_needs_no_search() -> None:
    cluster = HivedCluster(SPEC)
    first, second = tasks([job("one", "a", 0, 1, (1, 4)), job("two", "a", 0, 1, (2, 4))])
    assert cluster.lacks_room(second, 0) is None
    cluster.ask(first, 0)
    assert cluster.lacks_room(second, 0) is Cause.FULL
    assert cluster.lacks_room(second, 5) is None  # it would preempt
    assert cluster.lacks_room(second, -1) is None


def test_cells_that_victims_leave_to_their_preemptor_count_once() -> None:
    cluster = HivedCluster(SPEC)
    low, other, high, after = tasks(
        [
            job("low", "a", 0, 1, (1, 3)),
            job("other", "a", 0, 1, (1, 2), priority=9),
            job("high", "a", 0, 1, (1, 4), priority=5),
            job("after", "a", 0, 1, (1, 2)),
        ]
    )
    cluster.ask(low, 0)
    cluster.ask(other, 9)
    assert cluster.lacks_room(after, 0) is None
    assert cluster.ask(high, 5) == Leaving((low.group,))
    assert cluster.lacks_room(after, 0) is None
    assert isinstance(cluster.ask(after, 0), Started)
    assert cluster.lacks_room(after, 0) is Cause.FULL
    cluster.release(low)
    assert isinstance(cluster.ask(high, 5), Started)
    assert cluster.lacks_room(after, 0) is Cause.FULL


def test_bad_hardware_is_told_from_fragments() -> None:
    cluster = HivedCluster(SPEC)
    for node in ("n0", "n1", "n2", "n3", "n4"):
        cluster.set_health(node, False)
    answer = cluster.ask(only((2, 4)), 0)
    assert isinstance(answer, Waits)
    assert answer.cause is Cause.BAD


def test_nodes_are_found_by_name_and_by_cell() -> None:
    cluster = HivedCluster(SPEC)
    assert (cluster.nodes_of("n3"), cluster.nodes_of("rack-1")) == (["n3"], ["n2", "n3"])
    with pytest.raises(UserError, match="rack-9"):
        cluster.nodes_of("rack-9")


def test_lazily_preempted_work_goes_on() -> None:
    jobs = [job("low", "c", 0, 100, (1, 4)), job("high", "c", 10, 20, (1, 4), priority=9)]
    low, high = run(HivedCluster(SPEC, is_lazy=True), jobs)
    assert (low.eviction_count, low.ended_s, high.first_s) == (0, 100, 10)


def test_lazily_preempted_work_counts_as_lent_from_then_on() -> None:
    jobs = [
        job("low", "c", 0, 100, (1, 4)),
        job("high", "c", 10, 20, (1, 4), priority=9),
        job("next", "c", 40, 50, (1, 4)),
    ]
    loop = Loop(HivedCluster(SPEC, is_lazy=True), tasks(jobs), (), Manner(), 20.0)
    loop.run()
    assert [row.lent_count for row in loop.series.rows] == [0, 4, 4, 4, 4]
    assert (loop.usage["c"].used_s, loop.usage["c"].lent_s, loop.tasks[2].first_s) == (240, 120, 40)


def test_a_push_keeps_running_work_and_reservations() -> None:
    jobs = [
        job("lent", "a", 0, 500, (6, 4), priority=-1),
        job("owner", "b", 10, 100, (1, 4)),
        job("c", "c", 20, 100, (1, 4)),
    ]
    more = cluster_of(4, a={NODE: 2}, b={RACK: 1}, c={NODE: 2})
    found = run(HivedCluster(SPEC), jobs, [Change(15.0, Act.PUSH, pushed=more)], Manner(grace_s=30.0))
    assert [(task.first_s, task.eviction_count) for task in found] == [(0, 1), (40, 0), (20, 0)]


def test_work_that_a_push_does_not_account_for_starts_again() -> None:
    jobs = [job("a", "a", 0, 500, (2, 4)), job("b", "b", 0, 500, (2, 4))]
    found = run(HivedCluster(SPEC), jobs, [Change(15.0, Act.PUSH, pushed=cluster_of(2, a={NODE: 2}, b={RACK: 1}))])
    assert sorted(task.ended_s for task in found) in ([500, 500], [500, 515])


def test_drained_nodes_lose_their_work_after_its_grace() -> None:
    jobs = [job("b", "b", 0, 500, (2, 4), checkpoint_s=100.0), job("later", "b", 60, 10, (1, 1))]
    changes = [Change(250.0, Act.DRAIN, ("rack-0",)), Change(250.0, Act.DRAIN, ("rack-1",)),
               Change(250.0, Act.DRAIN, ("rack-2",)), Change(400.0, Act.HEAL, ("rack-1",))]  # fmt: skip
    b, later = run(HivedCluster(SPEC), jobs, changes, Manner(grace_s=25.0))
    assert (b.eviction_count, b.lost_s, b.ended_s, later.first_s) == (1, 75, 700, 700)


def test_cordoned_nodes_finish_their_work() -> None:
    jobs = [job("b", "b", 0, 500, (2, 4)), job("later", "b", 60, 10, (2, 4))]
    changes = [Change(50.0, Act.CORDON, (f"rack-{rack}",)) for rack in range(3)]
    b, later = run(HivedCluster(SPEC), jobs, [*changes, Change(800.0, Act.HEAL, ("rack-0",))])
    assert (b.ended_s, b.eviction_count, later.first_s) == (500, 0, 800)


def test_added_cells_serve_opportunistic_work() -> None:
    jobs = [job("lent", "a", 0, 100, (8, 4), priority=-1)]
    spec = cluster_of(4)
    added = Change(50.0, Act.ADD, added=(spec.physical_cells[-1],))
    assert run(HivedCluster(SPEC), jobs, [added])[0].first_s == 50


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(3))
def test_invariants_hold_at_every_moment(seed: int) -> None:
    cluster = HivedCluster(cluster_of(3, a={NODE: 1, PAIR: 2}, b={RACK: 1}, c={NODE: 1}))
    changes = [Change(900.0, Act.FAIL, ("n1",)), Change(2000.0, Act.HEAL, ("n1",))]
    manner = Manner(grace_s=45.0, lends_over_quota=True)
    loop = Loop(cluster, tasks(random_jobs(seed, ("a", "b", "c"), count=40)), changes, manner, 300.0)
    while not loop.is_over:
        loop.step()
        check_invariants(cluster.state)
        running = [task for task in loop.tasks if task.phase == 3]
        assert loop.now.used_count == sum(task.shape.leaf_count for task in running)
        assert sum(loop.now.waiting) == sum(task.phase in (1, 2) for task in loop.tasks)


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
