"""Jobs in queues: declared limits, turns, cells that are lent and taken back."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hived.values.errors import UserError
from hived.values.specs import Rules
from hived_extender.queues.policies import Policy
from hived_simulator.changes import Act, Change
from hived_simulator.clusters import SimulatedCluster
from hived_simulator.private import PrivateClusters
from hived_simulator.queued import QueuedCluster, QueuedLoop, Queueing, queueing_named, rounded_up
from hived_simulator.tasks import NEVER, Cause, Phase, Task
from hived_simulator.traces.jobs import Job
from tests.simulator.builders import NODE, RACK, cluster_of, history, job, random_jobs, run, tasks

TASKS = tasks([job(f"job {number}", "a", 0, 1000.0, (1, 1)) for number in range(200)])


def test_a_policy_named_alone_does_not_borrow() -> None:
    assert queueing_named("queue:alone") == ("queue", Policy.HIVED, False)
    assert queueing_named("queue-priority") == ("queue-priority", Policy.PRIORITY, True)


def test_other_words_after_the_colon_are_refused() -> None:
    with pytest.raises(UserError, match="'queue:30m': expected queue or queue:alone"):
        queueing_named("queue:30m")


@pytest.mark.parametrize(
    ("least_s", "limit_s"), [(1, 300), (300, 300), (301, 900), (604800, 604800), (604801, 1209600)]
)
def test_limits_are_round_times_that_are_long_enough(least_s: float, limit_s: float) -> None:
    assert rounded_up(least_s) == limit_s


def test_a_limit_is_a_multiple_of_the_duration_rounded_up() -> None:
    assert Queueing(limit_factor=2.0).limit_s(TASKS[0]) == 3600.0


def test_a_factor_of_zero_means_no_limits() -> None:
    assert Queueing(limit_factor=0.0).limit_s(TASKS[0]) is None


def test_about_the_asked_share_of_jobs_declares_no_limit() -> None:
    missing = sum(Queueing(unlimited_share=0.5).limit_s(task) is None for task in TASKS)
    assert 70 < missing < 130


def test_another_seed_draws_other_jobs_without_limit() -> None:
    drawn = [[Queueing(unlimited_share=0.5, seed=seed).limit_s(task) for task in TASKS] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


pytestmark = pytest.mark.sample(5)

SPEC = replace(cluster_of(3, a={NODE: 2}, b={RACK: 1}, c={NODE: 1}), rules=Rules.BETTER)
STRICT = Queueing(Policy.BLOCK, borrows=False)
ALONE = Queueing(Policy.HIVED, borrows=False)
BORROWS = {
    "hived": Queueing(Policy.HIVED),
    "priority": Queueing(Policy.PRIORITY),
    "block": Queueing(Policy.BLOCK),
    "hived without limits": Queueing(Policy.HIVED, limit_factor=0.0),
}
GRACE_S = 30.0


def queued(
    jobs: Sequence[Job], queueing: Queueing, changes: Sequence[Change] = (), grace_s: float = GRACE_S
) -> QueuedLoop:
    """The loop after a whole run."""
    loop = QueuedLoop(QueuedCluster(SPEC), tasks(jobs), changes, queueing, grace_s, 600.0)
    loop.run()
    return loop


def plain_jobs(seed: int, count: int = 80) -> list[Job]:
    """Guaranteed jobs of one priority."""
    source, at_s, jobs = random.Random(seed), 0.0, []
    for number in range(count):
        at_s += source.choice((0, 0, 60, 120, 300))
        shape = source.choice(((1, 1), (1, 2), (1, 4), (2, 2), (2, 4)))
        vc = source.choice(("a", "b", "c") if shape != (2, 4) else ("a", "b"))
        jobs.append(job(f"job {number}", vc, at_s, 60.0 * source.randint(1, 40), shape))
    return jobs


def starts(found: Sequence[Task]) -> list[float]:
    return [task.first_s for task in found]


def starving_gang() -> list[Job]:
    """Single GPUs come all the time; after ten minutes each of ten gangs asks for both nodes of `a`."""
    small = [job(f"small {number}", "a", 180.0 * number, 900.0, (1, 1)) for number in range(200)]
    large = [job(f"large {number}", "a", 600.0 + 3000.0 * number, 600.0, (2, 4)) for number in range(10)]
    return sorted([*small, *large], key=lambda each: each.submitted_s)


def p95_of_gangs(queueing: Queueing) -> float:
    loop = queued(starving_gang(), queueing)
    delays = sorted(task.first_s - task.submitted_s for task in loop.tasks if task.shape.leaf_count == 8)
    return delays[round(0.95 * len(delays)) - 1]


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(4))
def test_strict_queues_start_every_job_when_its_private_cluster_does(seed: int) -> None:
    jobs = plain_jobs(seed)
    private: SimulatedCluster = PrivateClusters(SPEC)
    assert starts(queued(jobs, STRICT).tasks) == starts(run(private, jobs))


@pytest.mark.long
@pytest.mark.parametrize("kind", BORROWS)
@pytest.mark.parametrize("seed", range(3))
def test_two_runs_are_equal(kind: str, seed: int) -> None:
    jobs = random_jobs(seed, ("a", "b", "c"))
    first, second = (queued(jobs, BORROWS[kind]) for _ in range(2))
    assert [history(task) for task in first.tasks] == [history(task) for task in second.tasks]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", BORROWS)
@pytest.mark.parametrize("seed", range(4))
def test_no_job_starts_later_than_in_its_own_schedule_and_a_grace_period(kind: str, seed: int) -> None:
    loop = queued(plain_jobs(seed), BORROWS[kind])
    assert max(loop.late_s.values()) <= GRACE_S


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", BORROWS)
@pytest.mark.parametrize("seed", range(3))
def test_every_job_that_can_run_ends(kind: str, seed: int) -> None:
    loop = queued(random_jobs(seed, ("a", "b", "c")), BORROWS[kind])
    assert {task.phase for task in loop.tasks} <= {Phase.ENDED, Phase.REFUSED}


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(3))
def test_a_job_runs_as_long_as_its_duration_and_the_work_that_it_lost(seed: int) -> None:
    for task in queued(plain_jobs(seed), BORROWS["hived"]).tasks:
        ran_s = task.ended_s - task.submitted_s - sum(task.waited_s)
        assert ran_s == pytest.approx(task.duration_s + task.lost_s)


def test_borrowed_cells_are_given_back_after_the_grace_period() -> None:
    jobs = [
        *(job(f"lent {number}", "a", 0.0, 7200.0, (1, 4)) for number in range(6)),
        job("owner", "b", 600.0, 60.0, (2, 4)),
    ]
    loop = queued(jobs, BORROWS["hived"])
    assert loop.tasks[-1].first_s == 600.0 + GRACE_S


def test_hours_that_are_given_back_are_counted() -> None:
    jobs = [
        *(job(f"lent {number}", "a", 0.0, 7200.0, (1, 4)) for number in range(6)),
        job("owner", "b", 600.0, 60.0, (2, 4)),
    ]
    assert queued(jobs, BORROWS["hived"]).given_back_s == 2 * 4 * 630.0


def test_strict_queues_borrow_nothing() -> None:
    assert queued(plain_jobs(1), STRICT).borrowed_s == 0.0


def test_large_gangs_wait_no_longer_with_reservation_than_where_small_jobs_go_past_them() -> None:
    without = p95_of_gangs(Queueing(Policy.PRIORITY, borrows=False))
    assert p95_of_gangs(ALONE) <= without / 10


@pytest.mark.long
def test_small_jobs_start_earlier_with_backfill_than_in_strict_queues() -> None:
    jobs = starving_gang()
    means = [sum(starts(queued(jobs, each).tasks)) for each in (ALONE, STRICT)]
    assert means[0] < means[1]


def test_jobs_on_a_node_that_fails_run_again_elsewhere() -> None:
    jobs = [job("first", "a", 0.0, 3600.0, (1, 4)), job("second", "a", 0.0, 3600.0, (1, 4))]
    whole = queued(jobs, ALONE)
    nodes = [f"n{number}" for number in range(6)]
    failed = queued(jobs, ALONE, [Change(60.0, Act.FAIL, (nodes[0],)), Change(7200.0, Act.HEAL, (nodes[0],))])
    assert all(task.eviction_count == 0 for task in whole.tasks)
    assert all(task.phase is Phase.ENDED for task in failed.tasks)


def test_a_job_that_its_virtual_cluster_cannot_hold_is_refused_where_nobody_borrows() -> None:
    (found,) = queued([job("large", "c", 0.0, 60.0, (2, 4))], ALONE).tasks
    assert (found.phase, found.first_s) == (Phase.REFUSED, NEVER)


def test_a_job_that_its_virtual_cluster_cannot_hold_runs_on_borrowed_cells() -> None:
    (found,) = queued([job("large", "c", 0.0, 60.0, (2, 4))], BORROWS["hived"]).tasks
    assert (found.phase, found.first_s, found.is_guaranteed_start) == (Phase.ENDED, 0.0, False)


def test_a_winner_waits_for_its_victims() -> None:
    jobs = [
        *(job(f"lent {number}", "a", 0.0, 7200.0, (1, 4)) for number in range(6)),
        job("owner", "b", 600.0, 60.0, (2, 4)),
    ]
    assert queued(jobs, BORROWS["hived"]).tasks[-1].waited_s[Cause.VICTIMS] == GRACE_S
