"""Policies with queues by name, and the limits that jobs declare."""

import pytest

from hived.errors import UserError
from hived_extender.queues.policies import Policy
from hived_simulator.queued import Queueing, queueing_named, rounded_up
from tests.simulator.builders import job, tasks

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
