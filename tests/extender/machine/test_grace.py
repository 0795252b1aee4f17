"""The time that pods have to leave is bounded by the configuration (rules 27.11, 27.12)."""

from typing import Any

import pytest

from hived.values.specs import ClusterSpec
from hived_config.rules import Grace
from hived_extender.jobs.progress import write_time
from hived_extender.kube.client import KubeError
from hived_extender.machine.preemptions import LATE_S, LONGEST_WAIT_S, PreemptionPolicy
from hived_extender.machine.verbs import VerbSettings
from tests.extender.machine.small_cluster import Json, SmallCluster, node, spec_text

DECADES_S = 315_360_000
LENT_S, PREEMPTED_S, OF_B_S = 300, 3_600, 60
GRACE = Grace(LENT_S, PREEMPTED_S, {"b": OF_B_S})


class Slow(SmallCluster):
    """Nobody leaves by himself, as containers that ignore SIGTERM. Deletions are noted with their grace."""

    def __init__(self, grace: Grace = GRACE, spec: ClusterSpec | None = None, **options: Any) -> None:
        policy = PreemptionPolicy(ceilings=grace, **options)
        super().__init__(preemption=policy, verb_settings=VerbSettings(wake_delay_s=1e6), spec=spec)
        self.asked: list[tuple[str, str, int | None]] = []
        self.refusals: list[KubeError] = []
        self.kube.evict_pod = self._noting("evict")
        self.kube.delete_pod = self._noting("delete")

    def _noting(self, how: str) -> Any:
        def note(namespace: str, name: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
            if self.refusals:
                raise self.refusals.pop(0)
            self.asked.append((how, name, grace_period_s))

        return note

    def runs(self, name: str, vc: str = "a", priority: int = -1, leaf_cells: int = 4, grace_s: int = DECADES_S) -> Json:
        """A pod that runs and asks for so much time to leave."""
        pod, _ = self.place(name, spec_text(vc, leaf_cells=leaf_cells, priority=priority))
        pod["spec"]["terminationGracePeriodSeconds"] = grace_s
        self.see(pod)
        return pod

    def leaves(self, pod: Json, grace_s: int) -> None:
        """The pod is being deleted, with so much time."""
        pod["metadata"]["deletionTimestamp"] = write_time(self.by_hand.wall_s + grace_s)
        pod["metadata"]["deletionGracePeriodSeconds"] = grace_s
        self.see(pod)

    def fill(self, **more: Any) -> list[Json]:
        """Opportunistic pods on all nodes."""
        return [self.runs(f"v{number}", **more) for number in range(4)]

    def need(self, name: str = "p", **more: Any) -> Json:
        """A guaranteed pod comes that needs a node."""
        pod = self.create(name, spec_text(**more))
        self.filter(pod)
        self.by_hand.settle()
        return pod


@pytest.mark.parametrize(("own_s", "given_s"), [(30, None), (LENT_S, None), (LENT_S + 1, LENT_S), (DECADES_S, LENT_S)])
def test_a_lent_pod_is_evicted_with_no_more_time_than_the_ceiling(own_s: int, given_s: int | None) -> None:
    cluster = Slow()
    cluster.fill(grace_s=own_s)
    cluster.need()
    assert [(how, grace) for how, _, grace in cluster.asked] == [("evict", given_s)]


def test_a_virtual_cluster_may_have_a_ceiling_of_its_own() -> None:
    cluster = Slow()
    cluster.fill(vc="b")
    cluster.need()
    assert [grace for _, _, grace in cluster.asked] == [OF_B_S]


def test_a_guaranteed_pod_that_is_preempted_has_its_own_ceiling() -> None:
    cluster = Slow()
    cluster.runs("v0", priority=0)
    cluster.runs("v1", priority=0)
    cluster.need(priority=5)
    assert [grace for _, _, grace in cluster.asked] == [PREEMPTED_S]


def test_a_victim_that_a_budget_protects_is_deleted_with_the_ceiling_too() -> None:
    cluster = Slow(grace_s=0.0)
    cluster.fill()
    cluster.refusals = [KubeError(429, "TooManyRequests", "budget")]
    cluster.need()
    cluster.pass_time(LONGEST_WAIT_S)
    assert [(how, grace) for how, _, grace in cluster.asked] == [("delete", LENT_S)]


def test_people_are_told_the_end_by_the_ceiling() -> None:
    cluster = Slow()
    cluster.fill()
    cluster.need()
    (text,) = cluster.filter(cluster.kube.pods["p"])["FailedNodes"].values()
    assert text.endswith("gone by about 00:21:40")  # 300 s of grace


def test_a_pod_that_its_owner_deletes_has_no_more_time_on_lent_cells() -> None:
    """A due job would find it leaving already, for years."""
    cluster = Slow()
    pod = cluster.fill()[0]
    cluster.leaves(pod, DECADES_S)
    cluster.by_hand.settle()
    assert cluster.asked == [("delete", "v0", LENT_S)]
    cluster.leaves(pod, LENT_S)
    cluster.by_hand.settle()
    assert len(cluster.asked) == 1


def test_a_guaranteed_pod_that_its_owner_deletes_has_its_own_time() -> None:
    cluster = Slow()
    cluster.leaves(cluster.runs("v0", priority=0), DECADES_S)
    cluster.pass_time(PREEMPTED_S + 2 * LATE_S)
    assert cluster.asked == []


def test_a_victim_that_is_there_after_its_time_is_deleted_at_once() -> None:
    cluster = Slow()
    victims = cluster.fill()
    cluster.need()
    ((_, name, _),) = cluster.asked
    victim = next(each for each in victims if each["metadata"]["name"] == name)
    cluster.leaves(victim, LENT_S)
    cluster.pass_time(LENT_S)
    assert len(cluster.asked) == 1
    cluster.pass_time(LATE_S + 1)
    assert cluster.asked[1:] == [("delete", name, 0)]


@pytest.mark.parametrize("ahead_s", [-3 * 3600.0, 3 * 3600.0])
def test_a_victim_has_all_of_its_time_although_our_clock_is_wrong_by_hours(ahead_s: float) -> None:
    cluster = Slow()
    cluster.pass_time(5 * 3600.0)
    victims = cluster.fill()
    cluster.need()
    ((_, name, _),) = cluster.asked
    victim = next(each for each in victims if each["metadata"]["name"] == name)
    victim["metadata"]["deletionTimestamp"] = write_time(cluster.by_hand.wall_s - ahead_s + LENT_S)
    victim["metadata"]["deletionGracePeriodSeconds"] = LENT_S
    cluster.see(victim)
    cluster.pass_time(LENT_S)
    assert len(cluster.asked) == 1
    cluster.pass_time(LATE_S + 1)
    assert cluster.asked[1:] == [("delete", name, 0)]


def test_a_pod_with_little_time_of_its_own_is_not_deleted_at_once_before_the_ceiling() -> None:
    """Its kubelet may be slow; nobody may have its devices while it runs."""
    cluster = Slow()
    victims = cluster.fill(grace_s=5)
    cluster.need()
    ((_, name, _),) = cluster.asked
    cluster.leaves(next(each for each in victims if each["metadata"]["name"] == name), 5)
    cluster.pass_time(LENT_S - 1)
    assert len(cluster.asked) == 1


def test_a_pod_on_a_node_that_is_not_ready_is_not_deleted_at_once() -> None:
    """Nobody knows what runs there."""
    cluster = Slow()
    victims = cluster.fill()
    cluster.need()
    ((_, name, _),) = cluster.asked
    victim = next(each for each in victims if each["metadata"]["name"] == name)
    cluster.leaves(victim, LENT_S)
    cluster.service.node_seen(node(victim["spec"]["nodeName"], is_ready=False))
    cluster.pass_time(LENT_S + 3 * LATE_S)
    assert ("delete", name, 0) not in cluster.asked
    cluster.service.node_seen(node(victim["spec"]["nodeName"]))
    cluster.pass_time(LATE_S)
    assert ("delete", name, 0) in cluster.asked


def test_a_new_leader_bounds_the_time_of_pods_that_leave_already() -> None:
    cluster = Slow()
    victims = cluster.fill()
    cluster.service.follow("another leads")
    cluster.leaves(victims[0], DECADES_S)
    cluster.by_hand.settle()
    assert cluster.asked == []
    cluster.lead()
    cluster.by_hand.settle()
    assert cluster.asked == [("delete", "v0", LENT_S)]


def test_a_new_leader_deletes_at_once_by_the_time_of_the_deletion() -> None:
    cluster = Slow()
    victims = cluster.fill()
    pod = cluster.need()
    ((_, name, _),) = cluster.asked
    victim = next(each for each in victims if each["metadata"]["name"] == name)
    cluster.leaves(victim, LENT_S)
    cluster.pass_time(LENT_S - 100)
    cluster.service.follow("another leads")
    cluster.lead()
    cluster.filter(pod)
    cluster.pass_time(100 + LATE_S + 1)
    assert cluster.asked[-1] == ("delete", name, 0)


def test_a_shorter_time_that_the_api_server_refuses_is_tried_again() -> None:
    cluster = Slow()
    pod = cluster.fill()[0]
    cluster.refusals = [KubeError(500, "InternalError", "etcd is away")]
    cluster.leaves(pod, DECADES_S)
    cluster.pass_time(LONGEST_WAIT_S + 1)
    assert cluster.asked == [("delete", "v0", LENT_S)]
