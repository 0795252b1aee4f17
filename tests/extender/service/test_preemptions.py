"""Making victims leave, one refusal after the other."""

from itertools import pairwise

import pytest

from hived_config.settings import Budgets
from hived_extender.kube.client import KubeError
from hived_extender.service import preemptions
from hived_extender.service.effects import EvictPod
from hived_extender.service.preemptions import AT_ONCE, PreemptionPolicy
from hived_extender.service.verbs import Patience
from tests.extender.service.world import NODES, Json, World, spec_text

PROTECTED = KubeError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
FORBIDDEN = KubeError(403, "Forbidden", 'pods "v" is forbidden')
BROKEN = KubeError(500, "InternalError", "etcd is away")
SILENT = KubeError(0, "NoAnswer", "timed out")
MANY = 1000


class Crowded(World):
    """Opportunistic pods of one GPU each fill all nodes, and nobody is tried again by himself."""

    def __init__(self, **policy: object) -> None:
        super().__init__(preemption=PreemptionPolicy(**policy), patience=Patience(nudge_delay_s=1e6))
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


def test_victims_are_asked_once_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemptions, "AT_ONCE", 1)
    world = Crowded()
    pod = world.create("p", spec_text())
    (text,) = world.filter(pod)["FailedNodes"].values()
    world.pass_time(60)
    victims = text.removeprefix("node(s) with pods to preempt: ").split(", ")
    assert [f"ns/{name}" for _, name in world.kube.leaving] == victims
    assert len(set(victims)) == 4


def test_some_evictions_go_on_side_by_side() -> None:
    world = Crowded()
    world.filter(world.create("g-0", spec_text(group="g", pods=2)))
    assert len(set(world.under_way)) == AT_ONCE


def test_a_victim_that_was_spared_can_be_one_again() -> None:
    world = Crowded(budgets=Budgets.RESPECT)
    world.refuse(PROTECTED)
    pod = world.preempt(leaf_cells=4)
    world.by_hand.settle()
    world.delete(pod)
    world.preempt("q", leaf_cells=4)
    world.pass_time(60)
    assert world.left() == ["evicted"] * 4


def test_nothing_is_remembered_of_victims_that_are_gone() -> None:
    world = Crowded()
    world.preempt()
    world.by_hand.settle()
    ((_, name),) = world.kube.leaving
    assert list(world.service.machine._preemptions._victims) == [f"uid-{name}"]
    world.delete(world.kube.pods[name])
    assert world.service.machine._preemptions._victims == {}


def test_a_budget_that_may_be_overridden_holds_a_victim_for_the_grace_period_only() -> None:
    world = Crowded(budgets=Budgets.OVERRIDE, grace_s=30.0)
    world.kube.refusals = [PROTECTED] * MANY
    world.kube.delete_pod = lambda _, name, **__: world.kube.leaving.append(("deleted", name))
    world.preempt()
    world.pass_time(30)
    assert world.left() == []
    world.pass_time(preemptions.LONGEST_WAIT_S)
    assert world.left() == ["deleted"]
    assert (world.count("deleted"), world.count("evicted")) == (1, None)


def test_a_budget_that_is_respected_holds_a_victim_until_it_allows() -> None:
    world = Crowded(budgets=Budgets.RESPECT, grace_s=0.05)
    world.refuse(*[PROTECTED] * 6)
    world.preempt()
    world.pass_time(600)
    assert world.left() == ["evicted"]
    assert world.count("refused") == 6


def test_a_victim_is_asked_less_and_less() -> None:
    world = Crowded(budgets=Budgets.RESPECT)
    world.refuse(*[PROTECTED] * MANY)
    world.preempt()
    world.by_hand.settle()
    moments = [world.by_hand.at]
    for _ in range(7):
        seen = len(world.kube.refusals)
        world.until(lambda seen=seen: len(world.kube.refusals) < seen)
        moments.append(world.by_hand.at)
    waits = [later - earlier for earlier, later in pairwise(moments)]
    assert waits == pytest.approx([0.5, 1, 2, 4, 8, 10, 10], abs=0.01)


@pytest.mark.parametrize("error", [FORBIDDEN, BROKEN, SILENT], ids=lambda error: str(error.status))
def test_an_eviction_that_is_refused_for_another_reason_is_tried_again(error: KubeError) -> None:
    world = Crowded()
    world.refuse(error, error)
    world.preempt()
    world.pass_time(10)
    assert (world.left(), world.count("refused")) == (["evicted"], 2)


def test_the_preemptor_is_told_why_its_victim_stays() -> None:
    world = Crowded()
    world.refuse(FORBIDDEN)
    world.preempt()
    world.pass_time(10)
    assert ("p", "PreemptionBlocked") in world.kube.events
    ((_, name),) = world.kube.leaving
    assert f"ns/{name} cannot be evicted: {FORBIDDEN}" in world.kube.messages


def test_a_victim_that_is_gone_already_is_not_asked_again() -> None:
    world = Crowded()
    world.refuse(KubeError(404, "NotFound", "gone"))
    world.preempt()
    world.pass_time(60)
    assert (world.left(), world.count("refused")) == ([], None)
    assert ("p", "PreemptionBlocked") not in world.kube.events


def test_a_conflict_is_no_proof_that_a_victim_is_gone() -> None:
    world = Crowded()
    world.refuse(KubeError(409, "Conflict", "a webhook says so"))
    world.preempt()
    world.pass_time(60)
    assert world.left() == ["evicted"]


def test_only_refusals_of_a_budget_lead_to_force() -> None:
    world = Crowded(grace_s=0.0)
    world.refuse(KubeError(0, "NoAnswer", "away"), KubeError(503, "", "starting"))
    world.preempt()
    world.pass_time(60)
    assert world.left() == ["evicted"]
