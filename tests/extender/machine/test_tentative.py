"""A question that is asked tentatively has the answer that it would have for good, and no consequence."""

import pytest

from hived_extender.api.waiting import PodOutcome
from hived_extender.jobs.wire import FilterArgs
from hived_extender.machine.effects import Effect, Now
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.stimuli import FilterAsked
from tests.extender.machine.small_cluster import NODES, Json, SmallCluster, filter_args, spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator


def foresee(cluster: SmallCluster, pod: Json, nodes: object = NODES) -> tuple[PodOutcome, tuple[Effect, ...]]:
    args: FilterArgs = filter_args(pod, nodes)
    reading = cluster.service._reading(args.pod)
    machine = cluster.service.machine
    answer, effects = machine.handle(FilterAsked(args, reading, tentatively=True), Now(cluster.by_hand.at))
    assert isinstance(answer, PodOutcome)
    return answer, effects


def test_a_pod_is_told_the_node_that_it_would_get() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.pass_time(5.0)
    before, patches = cluster.snapshot(), list(cluster.kube.patches)
    answer, effects = foresee(cluster, pod)
    assert (answer.outcome, effects, cluster.snapshot()) == ("bind", (), before)
    assert cluster.kube.patches == patches
    assert cluster.filter(pod) == {"NodeNames": [answer.node]}


def test_only_the_nodes_that_are_offered_count() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    assert foresee(cluster, pod, ["n2"])[0].node == "n2"
    assert cluster.filter(pod, ["n3"]) == {"NodeNames": ["n3"]}


def test_a_pod_without_room_is_told_why_it_waits() -> None:
    cluster = SmallCluster()
    cluster.place("p")
    cluster.place("q")
    pod = cluster.create("r")
    answer, effects = foresee(cluster, pod)
    assert (answer.outcome, effects) == ("wait", ())
    assert answer.reason in cluster.filter(pod)["FailedNodes"]["hivedscheduler"]


def test_victims_stay_that_would_have_to_leave() -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy())
    cluster.place("p", spec_text(priority=0))
    cluster.place("q", spec_text(priority=0))
    pod = cluster.create("r", spec_text(priority=5))
    before = cluster.snapshot()
    answer, effects = foresee(cluster, pod)
    cluster.pass_time(0.0)
    assert (answer.outcome, effects, cluster.kube.leaving, cluster.snapshot()) == ("preempt", (), [], before)
    cluster.filter(pod)
    cluster.pass_time(0.0)
    assert cluster.kube.leaving


def test_a_gang_is_foreseen_as_a_whole_and_holds_nothing() -> None:
    cluster = SmallGangCluster()
    for number in range(2):
        cluster.pod(f"w-{number}", 4, koordinator("train", 2))
    before = cluster.snapshot()
    answers = [foresee(cluster, cluster.kube.pods[f"w-{number}"])[0] for number in range(2)]
    assert [answer.outcome for answer in answers] == ["bind", "bind"]
    assert cluster.snapshot() == before
    assert {answer.node for answer in answers} == set(cluster.settle().values())


def test_a_gang_that_lacks_pods_waits_for_them() -> None:
    cluster = SmallGangCluster()
    pod = cluster.pod("w-0", 4, koordinator("train", 3))
    answer, _ = foresee(cluster, pod)
    assert (answer.outcome, "1 of 3 pods created" in answer.reason) == ("wait", True)


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_pod_that_has_its_place_keeps_it(is_bound: bool) -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    if is_bound:
        cluster.bind(pod, "n0")
        cluster.see(pod)
    assert (foresee(cluster, pod)[0].outcome, foresee(cluster, pod)[0].node) == ("bind", "n0")
