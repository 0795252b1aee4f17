"""A question that is asked tentatively has the answer that it would have for good, and no consequence."""

import pytest

from hived_extender.api.what_if import PodOutcome
from hived_extender.pods.wire import FilterArgs
from hived_extender.service.effects import Effect
from hived_extender.service.outbox import Now
from hived_extender.service.preemptions import PreemptionPolicy
from hived_extender.service.stimuli import FilterAsked
from tests.extender.service.gang_world import GangWorld, koordinator
from tests.extender.service.world import NODES, Json, World, filter_args, spec_text


def foresee(world: World, pod: Json, nodes: object = NODES) -> tuple[PodOutcome, tuple[Effect, ...]]:
    args: FilterArgs = filter_args(pod, nodes)
    reading = world.service._reading(args.pod)
    machine = world.service.machine
    answer, effects = machine.handle(FilterAsked(args, reading, tentatively=True), Now(world.by_hand.at))
    assert isinstance(answer, PodOutcome)
    return answer, effects


def test_a_pod_is_told_the_node_that_it_would_get() -> None:
    world = World()
    pod = world.create("p")
    world.pass_time(5.0)
    before, patches = world.snapshot(), list(world.kube.patches)
    answer, effects = foresee(world, pod)
    assert (answer.outcome, effects, world.snapshot()) == ("bind", (), before)
    assert world.kube.patches == patches
    assert world.filter(pod) == {"NodeNames": [answer.node]}


def test_only_the_nodes_that_are_offered_count() -> None:
    world = World()
    pod = world.create("p")
    assert foresee(world, pod, ["n2"])[0].node == "n2"
    assert world.filter(pod, ["n3"]) == {"NodeNames": ["n3"]}


def test_a_pod_without_room_is_told_why_it_waits() -> None:
    world = World()
    world.place("p")
    world.place("q")
    pod = world.create("r")
    answer, effects = foresee(world, pod)
    assert (answer.outcome, effects) == ("wait", ())
    assert answer.reason in world.filter(pod)["FailedNodes"]["hivedscheduler"]


def test_victims_stay_that_would_have_to_leave() -> None:
    world = World(preemption=PreemptionPolicy())
    world.place("p", spec_text(priority=0))
    world.place("q", spec_text(priority=0))
    pod = world.create("r", spec_text(priority=5))
    before = world.snapshot()
    answer, effects = foresee(world, pod)
    world.pass_time(0.0)
    assert (answer.outcome, effects, world.kube.leaving, world.snapshot()) == ("preempt", (), [], before)
    world.filter(pod)
    world.pass_time(0.0)
    assert world.kube.leaving


def test_a_gang_is_foreseen_as_a_whole_and_holds_nothing() -> None:
    world = GangWorld()
    for number in range(2):
        world.pod(f"w-{number}", 4, koordinator("train", 2))
    before = world.snapshot()
    answers = [foresee(world, world.kube.pods[f"w-{number}"])[0] for number in range(2)]
    assert [answer.outcome for answer in answers] == ["bind", "bind"]
    assert world.snapshot() == before
    assert {answer.node for answer in answers} == set(world.settle().values())


def test_a_gang_that_lacks_pods_waits_for_them() -> None:
    world = GangWorld()
    pod = world.pod("w-0", 4, koordinator("train", 3))
    answer, _ = foresee(world, pod)
    assert (answer.outcome, "1 of 3 pods created" in answer.reason) == ("wait", True)


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_pod_that_has_its_place_keeps_it(is_bound: bool) -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    if is_bound:
        world.bind(pod, "n0")
        world.see(pod)
    assert (foresee(world, pod)[0].outcome, foresee(world, pod)[0].node) == ("bind", "n0")
