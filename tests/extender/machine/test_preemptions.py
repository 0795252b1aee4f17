"""Evictions, one refusal after the other (rule 27.10)."""

from itertools import pairwise

import pytest

from hived_config.settings import Budgets
from hived_extender.kube.client import KubeError
from hived_extender.machine import preemptions
from hived_extender.machine.effects import EvictPod
from hived_extender.machine.preemptions import AT_ONCE, PreemptionPolicy
from hived_extender.machine.verbs import VerbSettings
from tests.extender.machine.small_cluster import NODES, Json, SmallCluster, spec_text

PROTECTED = KubeError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
FORBIDDEN = KubeError(403, "Forbidden", 'pods "v" is forbidden')
BROKEN = KubeError(500, "InternalError", "etcd is away")
SILENT = KubeError(0, "NoAnswer", "timed out")
MANY = 1000


class Crowded(SmallCluster):
    """Opportunistic pods of one GPU each fill all nodes, and nobody is tried again by himself."""

    def __init__(self, **policy: object) -> None:
        super().__init__(preemption=PreemptionPolicy(**policy), verb_settings=VerbSettings(wake_delay_s=1e6))
        for number in range(4 * len(NODES)):
            self.place(f"v{number}", spec_text("b", leaf_cells=1, priority=-1))

    def preempt(self, name: str = "p", leaf_cells: int = 1) -> Json:
        """A pod comes for whom as many pods have to leave."""
        pod = self.create(name, spec_text(leaf_cells=leaf_cells))
        self.filter(pod)
        return pod

    @property
    def under_way(self) -> list[str]:
        """The pods that are being evicted."""
        return [effect.pod.name for effect, _ in self.by_hand.jobs if isinstance(effect, EvictPod)]

    def refuse(self, *refusals: KubeError) -> None:
        self.kube.refusals += refusals

    def left(self) -> list[str]:
        """How pods were made to leave."""
        return [how for how, _ in self.kube.leaving]

    def count(self, outcome: str) -> float | None:
        return self.service.metrics.registry.get_sample_value("hived_evictions_total", {"outcome": outcome})


def told(cluster: Crowded, pod: Json) -> str:
    """The words that kube-scheduler is told about the pod."""
    return str(cluster.filter(pod)["FailedNodes"])


def test_victims_are_asked_once_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemptions, "AT_ONCE", 1)
    cluster = Crowded()
    pod = cluster.create("p", spec_text())
    (text,) = cluster.filter(pod)["FailedNodes"].values()
    cluster.pass_time(60)
    names, end = text.removeprefix("node(s) with pods to preempt: ").split("; ")
    victims = names.split(", ")
    assert end == "gone by about 00:17:10"  # 30 s of grace
    assert [f"ns/{name}" for _, name in cluster.kube.leaving] == victims
    assert len(set(victims)) == 4


def test_people_are_told_of_refusals_once_a_budget_refuses() -> None:
    cluster = Crowded()
    cluster.refuse(*[PROTECTED] * MANY)
    pod = cluster.preempt()
    cluster.by_hand.settle()
    assert "gone by about 00:17:50" in told(cluster, pod)  # 30 s of refusals, 10 s until the next retry, and 30 s


def test_some_evictions_go_on_side_by_side() -> None:
    cluster = Crowded()
    cluster.filter(cluster.create("g-0", spec_text(group="g", pods=2)))
    assert len(set(cluster.under_way)) == AT_ONCE


def test_a_victim_that_was_spared_can_be_one_again() -> None:
    cluster = Crowded(budgets=Budgets.RESPECT)
    cluster.refuse(PROTECTED)
    pod = cluster.preempt(leaf_cells=4)
    cluster.by_hand.settle()
    cluster.delete(pod)
    cluster.preempt("q", leaf_cells=4)
    cluster.pass_time(60)
    assert cluster.left() == ["evicted"] * 4


def test_nothing_is_remembered_of_victims_that_are_gone() -> None:
    cluster = Crowded()
    cluster.preempt()
    cluster.by_hand.settle()
    ((_, name),) = cluster.kube.leaving
    assert list(cluster.service.machine.preemptions._victims) == [f"uid-{name}"]
    cluster.delete(cluster.kube.pods[name])
    assert cluster.service.machine.preemptions._victims == {}


def test_a_budget_that_may_be_overridden_holds_a_victim_for_the_grace_period_only() -> None:
    cluster = Crowded(budgets=Budgets.OVERRIDE, grace_s=30.0)
    cluster.kube.refusals = [PROTECTED] * MANY
    cluster.kube.delete_pod = lambda _, name, **__: cluster.kube.leaving.append(("deleted", name))
    cluster.preempt()
    cluster.pass_time(30)
    assert cluster.left() == []
    cluster.pass_time(preemptions.LONGEST_WAIT_S)
    assert cluster.left() == ["deleted"]
    assert (cluster.count("deleted"), cluster.count("evicted")) == (1, None)


def test_the_moment_at_which_victims_should_be_gone_is_not_before_they_are_deleted() -> None:
    cluster = Crowded(budgets=Budgets.OVERRIDE, grace_s=30.0)
    cluster.kube.refusals = [PROTECTED] * MANY
    deleted: list[float] = []
    cluster.kube.delete_pod = lambda *_, **__: deleted.append(cluster.by_hand.wall_s)
    pod = cluster.preempt()
    (victim,) = cluster.service.machine.preemptions._victims.values()
    cluster.pass_time(60)
    assert victim.until_s is not None
    assert deleted[0] + victim.record.seen.grace_s <= victim.until_s
    assert "gone by about" in told(cluster, pod)


def test_nothing_is_promised_where_the_api_server_fails() -> None:
    cluster = Crowded()
    cluster.refuse(SILENT)
    pod = cluster.preempt()
    cluster.by_hand.settle()
    assert "gone by" not in told(cluster, pod)


def test_a_budget_that_is_respected_holds_a_victim_until_it_allows() -> None:
    cluster = Crowded(budgets=Budgets.RESPECT, grace_s=0.05)
    cluster.refuse(*[PROTECTED] * 6)
    cluster.preempt()
    cluster.pass_time(600)
    assert cluster.left() == ["evicted"]
    assert cluster.count("refused") == 6


def test_a_victim_is_asked_less_and_less() -> None:
    cluster = Crowded(budgets=Budgets.RESPECT)
    cluster.refuse(*[PROTECTED] * MANY)
    cluster.preempt()
    cluster.by_hand.settle()
    moments = [cluster.by_hand.at]
    for _ in range(7):
        seen = len(cluster.kube.refusals)
        cluster.until(lambda seen=seen: len(cluster.kube.refusals) < seen)
        moments.append(cluster.by_hand.at)
    waits = [later - earlier for earlier, later in pairwise(moments)]
    assert waits == pytest.approx([0.5, 1, 2, 4, 8, 10, 10], abs=0.01)


@pytest.mark.parametrize("error", [FORBIDDEN, BROKEN, SILENT], ids=lambda error: str(error.status))
def test_an_eviction_that_is_refused_for_another_reason_is_tried_again(error: KubeError) -> None:
    cluster = Crowded()
    cluster.refuse(error, error)
    cluster.preempt()
    cluster.pass_time(10)
    assert (cluster.left(), cluster.count("refused")) == (["evicted"], 2)


def test_the_preemptor_is_told_why_its_victim_stays() -> None:
    cluster = Crowded()
    cluster.refuse(FORBIDDEN)
    cluster.preempt()
    cluster.pass_time(10)
    assert ("p", "PreemptionBlocked") in cluster.kube.events
    ((_, name),) = cluster.kube.leaving
    assert f"ns/{name} cannot be evicted: {FORBIDDEN}" in cluster.kube.messages


def test_a_victim_that_is_gone_already_is_not_asked_again() -> None:
    cluster = Crowded()
    cluster.refuse(KubeError(404, "NotFound", "gone"))
    cluster.preempt()
    cluster.pass_time(60)
    assert (cluster.left(), cluster.count("refused")) == ([], None)
    assert ("p", "PreemptionBlocked") not in cluster.kube.events


def test_a_conflict_is_no_proof_that_a_victim_is_gone() -> None:
    cluster = Crowded()
    cluster.refuse(KubeError(409, "Conflict", "a webhook says so"))
    cluster.preempt()
    cluster.pass_time(60)
    assert cluster.left() == ["evicted"]


def test_only_refusals_of_a_budget_lead_to_force() -> None:
    cluster = Crowded(grace_s=0.0)
    cluster.refuse(KubeError(0, "NoAnswer", "away"), KubeError(503, "", "starting"))
    cluster.preempt()
    cluster.pass_time(60)
    assert cluster.left() == ["evicted"]
