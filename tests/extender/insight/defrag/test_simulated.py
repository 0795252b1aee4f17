"""Plans in the simulator: whenever a job waits because of fragmentation, a plan starts it at once, as promised."""

from dataclasses import replace

import pytest

from hived.scheduler import check_invariants
from hived.values.specs import ClusterSpec, Rules
from hived_simulator.tasks import Phase
from tests.extender.insight.defrag.simulated import DefragmentingLoop, MovingCluster
from tests.property.examples import examples
from tests.simulator.builders import NODE, PAIR, RACK, cluster_of, random_jobs, tasks

CLUSTERS = (
    cluster_of(3, a={NODE: 4}, b={NODE: 2}),
    cluster_of(3, a={RACK: 1, NODE: 2}, b={NODE: 2}),
    cluster_of(4, a={NODE: 5, PAIR: 2}, b={NODE: 2}),
)


def simulated(seed: int, spec: ClusterSpec) -> DefragmentingLoop:
    """A whole run of random jobs; the loop itself asserts that each plan reaches what it promised."""
    loop = DefragmentingLoop(MovingCluster(spec), tasks(random_jobs(seed, ("a", "b"))), [], seed)
    while not loop.is_over:
        loop.step()
    check_invariants(loop.cluster.state)
    return loop


@pytest.mark.sample(1)
@pytest.mark.parametrize("rules", [Rules.HIVED, Rules.BETTER])
@pytest.mark.parametrize("number", range(len(CLUSTERS)))
def test_the_job_that_waits_starts_as_promised(number: int, rules: Rules) -> None:
    spec = replace(CLUSTERS[number], rules=rules)
    made = 0
    for seed in range(examples(3)):
        loop = simulated(seed, spec)
        made += len(loop.made)
        assert all(task.phase in (Phase.ENDED, Phase.REFUSED) for task in loop.tasks)
    assert made
