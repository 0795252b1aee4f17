"""The whole service decides as the core alone."""

from dataclasses import replace

import pytest

from hived.specs import Rules
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Manner
from tests.simulator.builders import history, job, random_jobs, run
from tests.simulator.service_cluster import ServiceCluster
from tests.simulator.test_loop import CHANGES, MANNERS, SPEC


@pytest.mark.sample(1)
@pytest.mark.parametrize(("seed", "manner", "rules"), [(0, "grace", Rules.HIVED), (1, "over quota", Rules.BETTER)])
def test_the_service_decides_as_the_core(seed: int, manner: str, rules: Rules) -> None:
    jobs = random_jobs(seed, ("a", "b", "c"), count=25)
    spec = replace(SPEC, rules=rules)
    core, service = (run(each, jobs, CHANGES, MANNERS[manner]) for each in (HivedCluster(spec), ServiceCluster(spec)))
    assert list(map(history, service)) == list(map(history, core))


def test_lazy_preemption_goes_through_the_service() -> None:
    jobs = [job("low", "c", 0, 100, (1, 4)), job("high", "c", 10, 20, (1, 4), priority=9)]
    low, high = run(ServiceCluster(SPEC, is_lazy=True), jobs, manner=Manner())
    assert (low.eviction_count, low.ended_s, high.first_s) == (0, 100, 10)


def test_wishes_are_told_to_the_service() -> None:
    jobs = [
        job("near", "b", 0, 10, (2, 4), within_cell="RACK", leaf_type="GPU"),
        job("far", "b", 0, 10, (1, 1), leaf_type="X"),
    ]
    near, far = run(ServiceCluster(SPEC), jobs)
    assert (near.first_s, near.level, far.first_s) == (0, 4, -1)
