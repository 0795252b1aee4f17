"""The event loop and its lanes against the same written plainly, and what happens at one moment."""

from dataclasses import replace
from typing import Any

import pytest

from hived.values.specs import Rules
from hived.virtual_time import Heap
from hived_simulator.changes import Act, Change
from hived_simulator.clusters import SimulatedCluster
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Loop, Manner
from hived_simulator.private import PrivateClusters
from hived_simulator.quotas import QuotaCluster
from hived_simulator.tasks import FIRST_REST_S, REST_FACTOR, Cause, Phase
from tests.simulator.builders import NODE, RACK, cluster_of, history, job, random_jobs, run, tasks
from tests.simulator.naive import NaiveLoop


def looks(nodes: int, priority: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the head of a queue is looked at when a job on all nodes ends for which one of each shape waits."""
    jobs = [job("first", "a", 0, 100, (nodes, 4), priority=priority)]
    jobs += [job(str(pods), "a", 1, 10, (pods, 4), priority=priority) for pods in range(1, nodes)]
    cluster = QuotaCluster(cluster_of(nodes // 2, a={NODE: nodes}), False)
    loop = Loop(cluster, tasks(jobs), (), Manner(has_backfill=True), 0.0)
    while loop.now.at_s < 1:
        loop.step()
    seen, first = [0], Heap.first

    def counted(heap: Heap[Any]) -> object:
        seen[0] += 1
        return first(heap)

    with monkeypatch.context() as patch:
        patch.setattr(Heap, "first", counted)
        loop.step()
    assert loop.now.at_s == 100
    return seen[0]


@pytest.mark.parametrize("priority", [0, -1])
def test_many_shapes_cost_as_many_looks(priority: int, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (looks(nodes, priority, monkeypatch) for nodes in (12, 48))
    assert 0 < many <= 5 * few


SPEC = cluster_of(3, a={NODE: 2}, b={RACK: 1}, c={NODE: 1})
OTHER = cluster_of(4, a={NODE: 3}, b={RACK: 1}, d={NODE: 1})
MANNERS = {
    "fifo": Manner(),
    "backfill": Manner(has_backfill=True),
    "over quota": Manner(lends_over_quota=True),
    "grace": Manner(grace_s=90.0, lends_over_quota=True, has_backfill=True),
}
CHANGES = (
    Change(900.0, Act.FAIL, ("n1",)),
    Change(2000.0, Act.DRAIN, ("rack-1",)),
    Change(3000.0, Act.HEAL, ("n1",)),
    Change(3600.0, Act.PUSH, pushed=OTHER),
    Change(5000.0, Act.HEAL, ("rack-1",)),
    Change(5400.0, Act.PUSH, pushed=SPEC),
)


def made(kind: str) -> SimulatedCluster:
    if kind == "hived":
        return HivedCluster(SPEC)
    if kind == "better":
        return HivedCluster(replace(SPEC, rules=Rules.BETTER))
    if kind == "private":
        return PrivateClusters(SPEC)
    return QuotaCluster(SPEC, spreads=kind == "spread")


@pytest.mark.sample(8)
@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("kind", ["hived", "better", "private", "best fit", "spread"])
@pytest.mark.parametrize("seed", range(2))
def test_it_equals_the_naive_loop(kind: str, manner: str, seed: int) -> None:
    changes = CHANGES if seed else ()
    jobs = random_jobs(seed, ("a", "b", "c"), count=40)
    found = run(made(kind), jobs, changes, MANNERS[manner])
    naive = NaiveLoop(made(kind), tasks(jobs), changes, MANNERS[manner]).run()
    told = [history(task)[:6] + history(task)[7:] for task in found]
    assert told == [history(task)[:6] + history(task)[7:] for task in naive]


def test_two_runs_are_equal() -> None:
    jobs = random_jobs(7, ("a", "b", "c"))
    first, second = (run(HivedCluster(SPEC), jobs, CHANGES, MANNERS["grace"]) for _ in range(2))
    assert list(map(history, first)) == list(map(history, second))


def test_jobs_of_a_virtual_cluster_start_in_order() -> None:
    jobs = [job("first", "a", 0, 100, (2, 4)), job("large", "a", 1, 100, (2, 4)), job("small", "a", 2, 10, (1, 1))]
    assert [task.first_s for task in run(HivedCluster(SPEC), jobs)] == [0, 100, 200]


def test_with_backfill_a_later_job_passes() -> None:
    jobs = [job("first", "a", 0, 100, (1, 4)), job("large", "a", 1, 100, (2, 4)), job("small", "a", 2, 10, (1, 1))]
    found = run(HivedCluster(SPEC), jobs, manner=Manner(has_backfill=True))
    assert [task.first_s for task in found] == [0, 100, 2]


def test_an_elastic_job_starts_pod_by_pod() -> None:
    jobs = [job("first", "a", 0, 100, (1, 4)), job("elastic", "a", 1, 50, (2, 4), is_gang=False)]
    assert [task.first_s for task in run(HivedCluster(SPEC), jobs)] == [0, 1, 51]


def test_a_job_over_its_quota_runs_on_lent_cells_and_starts_again_when_the_owner_returns() -> None:
    jobs = [job("own", "c", 0, 1000, (1, 4)), job("over", "c", 0, 1000, (5, 4)), job("b", "b", 300, 10, (1, 4))]
    found = run(HivedCluster(SPEC), jobs, manner=Manner(lends_over_quota=True))
    assert [task.first_s for task in found] == [0, 0, 300]
    assert (found[1].eviction_count, found[1].lost_s, found[1].ended_s) == (1, 300, 300 + FIRST_REST_S + 1000)


def test_a_job_that_was_evicted_from_lent_cells_waits_longer_each_time_before_it_takes_some_again() -> None:
    owners = [job(f"b{number}", "b", at_s, 10, (1, 4)) for number, at_s in enumerate((300, 1300, 5000))]
    jobs = [job("own", "c", 0, 90_000, (1, 4)), job("over", "c", 0, 20_000, (5, 4)), *owners]
    found = run(HivedCluster(SPEC), jobs, manner=Manner(lends_over_quota=True))
    assert (found[1].eviction_count, found[1].lost_s) == (3, 300 + 100 + 100)
    assert found[1].ended_s == 5000 + FIRST_REST_S * REST_FACTOR**2 + 20_000


def test_a_job_rests_at_least_as_long_as_the_work_that_its_eviction_undid() -> None:
    jobs = [job("own", "c", 0, 90_000, (1, 4)), job("over", "c", 0, 20_000, (5, 4)), job("b", "b", 5000, 10, (1, 4))]
    manner = Manner(lends_over_quota=True)
    assert run(HivedCluster(SPEC), jobs, manner=manner)[1].ended_s == 5000 + 5000 + 20_000
    saved = [jobs[0], job("over", "c", 0, 20_000, (5, 4), checkpoint_s=600), jobs[2]]
    assert run(HivedCluster(SPEC), saved, manner=manner)[1].ended_s == 5000 + FIRST_REST_S + 20_000 - 4800


def test_a_job_that_rests_starts_on_cells_of_its_own_virtual_cluster_at_once() -> None:
    jobs = [job("own", "b", 0, 400, (2, 4)), job("over", "b", 1, 1000, (2, 4))]
    jobs += [job("a", "a", 300, 10, (2, 4)), job("c", "c", 300, 10, (1, 4))]
    found = run(HivedCluster(SPEC), jobs, manner=Manner(lends_over_quota=True))
    assert (found[1].eviction_count, found[1].ended_s) == (1, 400 + 1000)


def test_a_restart_goes_on_from_the_last_checkpoint() -> None:
    jobs = [
        job("own", "c", 0, 1000, (1, 4)),
        job("over", "c", 0, 1000, (5, 4), checkpoint_s=120.0),
        job("b", "b", 300, 10, (1, 4)),
    ]
    found = run(HivedCluster(SPEC), jobs, manner=Manner(lends_over_quota=True))
    assert (found[1].lost_s, found[1].ended_s) == (60, 300 + FIRST_REST_S + 1000 - 240)


def test_victims_have_their_grace() -> None:
    jobs = [job("lent", "c", 0, 1000, (6, 4), priority=-1), job("b", "b", 300, 10, (1, 4))]
    found = run(HivedCluster(SPEC), jobs, manner=Manner(grace_s=30.0))
    assert (found[1].first_s, found[1].waited_s[Cause.VICTIMS], found[0].lost_s) == (330, 30, 330)


def test_who_waits_for_victims_starts_once_they_have_ended_by_themselves() -> None:
    jobs = [job("lent", "c", 0, 310, (6, 4), priority=-1), job("b", "b", 300, 10, (1, 4))]
    found = run(HivedCluster(SPEC), jobs, manner=Manner(grace_s=30.0))
    assert (found[1].first_s, found[0].eviction_count) == (310, 0)


def test_who_loses_reserved_cells_to_another_waits_again() -> None:
    jobs = [
        job("lent", "a", 0, 1000, (2, 4), priority=-1),
        job("high", "a", 10, 100, (1, 4), priority=5),
        job("low", "a", 10, 100, (1, 4), priority=0),
    ]
    cluster = HivedCluster(cluster_of(1, a={NODE: 2}))
    _, high, low = run(cluster, jobs, [Change(20.0, Act.FAIL, ("n0",))], Manner(grace_s=60.0))
    assert (high.first_s, low.first_s) == (20, 120)


def test_a_job_that_never_fits_is_refused_and_holds_nobody_up() -> None:
    jobs = [job("large", "a", 0, 10, (3, 4)), job("small", "a", 0, 10, (1, 1))]
    large, small = run(HivedCluster(SPEC), jobs)
    assert (large.phase, small.first_s) == (Phase.REFUSED, 0)
    assert "insufficient capacity" in large.reason


def test_higher_priorities_come_first_and_preempt() -> None:
    jobs = [
        job("low", "a", 0, 100, (2, 4), priority=0),
        job("lower", "a", 5, 10, (1, 4), priority=0),
        job("high", "a", 10, 20, (1, 4), priority=5),
    ]
    low, lower, high = run(HivedCluster(SPEC), jobs)
    assert (high.first_s, low.eviction_count, low.ended_s, lower.first_s) == (10, 1, 130, 130)


def test_better_rules_evict_those_who_lose_least() -> None:
    spec = replace(cluster_of(1, a={NODE: 2}), rules=Rules.BETTER)
    jobs = [
        job("unsaved", "a", 0, 5000, (1, 4), priority=-1),
        job("saved", "a", 0, 5000, (1, 4), priority=-1, checkpoint_s=600.0),
        job("owner", "a", 1230, 10, (1, 4)),
    ]
    for order in (jobs, [jobs[1], jobs[0], jobs[2]]):
        lost = {task.checkpoint_s: task.lost_s for task in run(HivedCluster(spec), order)[:2]}
        assert lost == {0.0: 0.0, 600.0: 30.0}


def test_causes_of_waits_are_told() -> None:
    jobs = [
        job("one", "a", 0, 100, (1, 3)),
        job("two", "a", 0, 100, (1, 3)),
        job("fragmented", "a", 0, 10, (1, 2)),
        job("behind", "a", 0, 10, (1, 2)),
    ]
    _, _, fragmented, behind = run(HivedCluster(SPEC), jobs)
    assert (fragmented.waited_s[Cause.FRAGMENTED], behind.waited_s[Cause.BEHIND]) == (100, 100)


def test_usage_counts_until_the_last_submission() -> None:
    jobs = [job("a", "a", 0, 100, (1, 4)), job("b", "b", 50, 100, (1, 1))]
    loop = Loop(HivedCluster(SPEC), tasks(jobs), (), Manner(), 0)
    loop.run()
    assert (loop.usage["a"].used_s, loop.usage["b"].used_s) == (200, 0)
