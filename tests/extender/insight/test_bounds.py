"""A bound holds whatever holders do within the limits that they declared, and whichever waiting job comes first."""

import math
from random import Random

import pytest

from hived.scheduler import handle
from hived.values.decisions import Bind
from hived.values.events import NodeHealthChanged, ScheduleRequested
from hived.values.specs import Rules
from hived_extender.insight.forecast import bound_of
from hived_extender.insight.forward import Play, Scene, scene_of
from hived_extender.jobs.progress import MOST_S
from tests.core.builders import pod, rack_cluster
from tests.extender.insight.situations import HOUR, Situation
from tests.property.examples import examples

SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (((1, 1),), ((1, 2),), ((2, 1),), ((2, 2),), ((1, 1), (1, 2)))


def crowded(source: Random, rules: Rules) -> Situation:
    """Jobs of two virtual clusters run and wait; most of them say how long they run at the most."""
    situation = Situation(rack_cluster(racks=2, nodes=3), rules)
    for number in range(12):
        shape, vc = source.choice(SHAPES), source.choice("AAB")
        priority = source.choice((-1, 0, 0, 0, 1))
        request = pod(f"r{number}", vc=vc, priority=priority, members=shape)
        if isinstance(handle(situation.state, ScheduleRequested(request)), Bind):
            left_s = source.uniform(0.1, 8.0) * HOUR if source.random() < 0.85 else None
            situation.runs(f"r{number}", shape, vc=vc, priority=priority, left_s=left_s)
    for number in range(source.randint(1, 5)):
        limit_s = source.uniform(0.1, 8.0) * HOUR if source.random() < 0.85 else None
        situation.waits(
            f"w{number}", source.choice(SHAPES), vc=source.choice("AAB"), priority=source.choice((-1, 0, 0, 0, 1)),
            limit_s=limit_s,
        )  # fmt: skip
    if source.random() < 0.3:
        node = source.choice(situation.state.topology.node_names)
        handle(situation.state, NodeHealthChanged(node, is_healthy=False))
    return situation


def within(source: Random, limit_s: float | None) -> float:
    """A duration that keeps to a limit; one that nobody declared may be endless."""
    if limit_s is None:
        return source.choice((math.inf, HOUR))
    return limit_s * source.choice((1.0, 1.0, source.random(), 0.01))


def play(scene: Scene, source: Random) -> Play:
    """One future in which everybody keeps to what was declared."""
    ends = [within(source, runner.left_s) for runner in scene.runners]
    lengths = [within(source, waiter.entry.limit_s) for waiter in scene.waiters]
    one = Play(scene, ends, lengths)
    one.run()
    return one


@pytest.mark.sample(1)
@pytest.mark.parametrize("rules", Rules)
def test_no_future_within_the_declarations_breaks_a_bound(rules: Rules) -> None:
    bounded = 0
    for number in range(examples(160)):
        source = Random(f"bounds {rules} {number}")
        scene = scene_of(crowded(source, rules).snapshot())
        bounds = [bound_of(scene, waiter) for waiter in range(len(scene.waiters))]
        bounded += sum(bound < math.inf for bound in bounds)
        for _ in range(4):
            starts = play(scene, source).starts
            assert all(start <= bound for start, bound in zip(starts, bounds, strict=True)), f"case {number}"
    assert bounded > examples(160) / 4


def test_a_bound_is_asked_of_the_core_no_more_often_than_it_may() -> None:
    situation = Situation(rack_cluster(racks=20, nodes=20, gpus=2))
    for number in range(200):
        situation.runs(f"r{number}", left_s=HOUR + number)
    situation.waits("job", ((150, 2),))
    scene = scene_of(situation.snapshot())
    bound_s = bound_of(scene, 0)
    assert HOUR + 149 <= bound_s < math.inf


def test_limits_that_add_up_to_more_than_anybody_knows_are_no_bound() -> None:
    situation = Situation()
    situation.runs("running", left_s=HOUR)
    for number in range(3):
        situation.waits(f"w{number}", limit_s=MOST_S * 0.4, priority=3 - number)
    scene = scene_of(situation.snapshot())
    assert [bound_of(scene, number) < math.inf for number in range(3)] == [True, True, True]
    situation.waits("last", limit_s=HOUR)
    assert bound_of(scene_of(situation.snapshot()), 3) == math.inf
