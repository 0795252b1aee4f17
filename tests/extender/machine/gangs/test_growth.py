"""The first pods of a gang that is being created need not be refused (rule 26.13)."""

import pytest

from hived_extender.jobs.kinds.description import GangKey
from hived_extender.machine.gangs.gang import GROWING_S, MOST_S, REST, GrowingError, Growth
from hived_extender.machine.verbs import VerbSettings
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

KEY = GangKey("ns", "train")
OTHER = GangKey("ns", "other")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def growth(clock: Clock) -> Growth:
    return Growth(clock)


def test_an_answer_waits_while_pods_come(growth: Growth, clock: Clock) -> None:
    growth.has_grown(KEY)
    assert growth.may_wait(KEY, is_forming=True)
    clock.now += 0.9 * GROWING_S
    growth.has_grown(KEY)
    clock.now += 0.9 * GROWING_S
    assert growth.may_wait(KEY, is_forming=True)
    clock.now += 0.2 * GROWING_S
    assert not growth.may_wait(KEY, is_forming=True)


def test_a_gang_that_is_complete_or_grows_no_more_is_not_waited_for(growth: Growth, clock: Clock) -> None:
    assert not growth.may_wait(KEY, is_forming=True)
    growth.has_grown(KEY)
    assert not growth.may_wait(KEY, is_forming=False)
    clock.now += 2 * GROWING_S
    growth.has_grown(OTHER)
    assert not growth.may_wait(KEY, is_forming=True)


def test_a_gang_that_grows_on_and_on_keeps_kube_scheduler_from_others_a_fifth_of_the_time(
    growth: Growth, clock: Clock
) -> None:
    waited = 0
    for _ in range(10_000):
        growth.has_grown(KEY)
        growth.has_grown(OTHER)
        waited += growth.may_wait(KEY, is_forming=True)
        clock.now += 0.01
    assert 0.15 <= waited / 10_000 <= 0.21


def test_after_an_answer_has_waited_others_are_given_at_once_for_a_while(growth: Growth, clock: Clock) -> None:
    growth.has_grown(KEY)
    assert growth.may_wait(KEY, is_forming=True)
    clock.now += 0.05
    assert not growth.may_wait(KEY, is_forming=False)
    growth.has_grown(OTHER)
    assert not growth.may_wait(OTHER, is_forming=True)
    clock.now += 0.05 * REST + 0.001
    growth.has_grown(OTHER)
    assert growth.may_wait(OTHER, is_forming=True)


def test_a_pod_that_nobody_asks_about_any_more_delays_nothing_later(growth: Growth, clock: Clock) -> None:
    growth.has_grown(KEY)
    assert growth.may_wait(KEY, is_forming=True)
    clock.now += 1000
    growth.has_grown(KEY)
    assert not growth.may_wait(KEY, is_forming=True)
    clock.now += REST * MOST_S + 0.001
    growth.has_grown(KEY)
    assert growth.may_wait(KEY, is_forming=True)


def test_the_first_pod_of_a_gang_gets_its_node_when_it_is_asked_about_again() -> None:
    cluster = SmallGangCluster(verb_settings=VerbSettings(waits_for_pods=True))
    pod = cluster.pod("w-0", 4, koordinator("train", 2))
    with pytest.raises(GrowingError):
        cluster.filter(pod)
    cluster.pod("w-1", 4, koordinator("train", 2))
    assert cluster.filter(pod)["NodeNames"]


def test_a_gang_that_stays_incomplete_is_refused_soon() -> None:
    cluster = SmallGangCluster(verb_settings=VerbSettings(waits_for_pods=True))
    pod = cluster.pod("w-0", 4, koordinator("train", 2))

    def is_refused() -> bool:
        try:
            return "FailedNodes" in cluster.filter(pod)
        except GrowingError:
            cluster.pass_time(0.01)
            return False

    assert any(is_refused() for _ in range(2000))


def test_kube_scheduler_is_told_the_same_until_the_gang_is_complete() -> None:
    cluster = SmallGangCluster()
    first = cluster.pod("w-0", 1, koordinator("train", 3))
    before = cluster.filter(first)["FailedNodes"]
    cluster.pod("w-1", 1, koordinator("train", 3))
    assert cluster.filter(first)["FailedNodes"] == before
    assert "2 of 3 pods created" in cluster.ask("w-0")
