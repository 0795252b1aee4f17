"""Under the better rules no group waits where a placement exists (rule 19.1); `make soak` looks at 100,000 states."""

import pytest

from hived.values.specs import Rules
from tests.property.false_waits import run_world


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(40))
def test_no_group_waits_although_a_placement_exists(seed: int) -> None:
    counts = run_world(seed, 15, by_offer=seed % 7 == 0)
    assert counts.findings == []


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", [14, 52, 65, 265, 280, 355, 812, 1638, 1640, 2554, 6698, 7430])
def test_clusters_that_once_had_a_false_wait_or_a_restart_that_cost_a_place(seed: int) -> None:
    assert run_world(seed, 30, by_offer=seed % 7 == 0).findings == []


def test_the_judge_finds_false_waits_of_the_reference() -> None:
    counts = [run_world(seed, 30, Rules.HIVED) for seed in range(24)]
    assert sum(len(each.findings) for each in counts) >= 10
    assert sum(each.binds for each in counts) >= 100
