"""Gangs of all dialects keep what their authors asked for, whatever happens to pods, nodes and scheduler.

`make soak` has longer runs.
"""

import pytest

from tests.property.choices import Choices, Seeded
from tests.property.gang_jobs import make_job
from tests.property.gang_run import GangRun

STEPS = 120


def make_run(choices: Choices) -> GangRun:
    """A few jobs, none of whose pods are created yet."""
    return GangRun(choices, [make_job(choices, f"j{number}") for number in range(choices.integer(1, 5))])


@pytest.mark.parametrize("seed", range(20))
def test_a_long_random_run_breaks_no_rule(seed: int) -> None:
    run = make_run(Choices(Seeded(seed)))
    for _ in range(STEPS):
        run.step()
    assert len(run.log) >= STEPS
