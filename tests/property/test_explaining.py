"""Explanations of waits are right and least (rules 20.1, 20.2); `make why` judges 20,000 states."""

import pytest

from hived.values.decisions import Cause
from hived.values.specs import Rules
from tests.property.examples import examples
from tests.property.explained import run_busy, run_world

BOTH = pytest.mark.parametrize("rules", Rules)


@pytest.mark.sample(2)
@BOTH
@pytest.mark.parametrize("seed", range(examples(24)))
def test_causes_in_one_chain_are_those_that_stand_in_the_way_when_carried_out(seed: int, rules: Rules) -> None:
    run_world(seed, rules)


@pytest.mark.sample(1)
@BOTH
@pytest.mark.parametrize("seed", range(examples(16)))
def test_causes_in_several_chains_are_those_that_stand_in_the_way_when_carried_out(seed: int, rules: Rules) -> None:
    run_busy(seed, rules)


@pytest.mark.long
def test_the_random_clusters_meet_every_cause_alone_and_together() -> None:
    met = {causes for seed in (0, 1, 2, 3) for causes in run_world(seed, Rules.BETTER).waits}
    assert {cause for causes in met for cause in causes} == {Cause.IN_USE, Cause.BAD, Cause.KUBERNETES, Cause.NEVER}
    assert any(len(causes) > 1 for causes in met)
