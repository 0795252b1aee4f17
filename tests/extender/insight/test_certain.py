"""A moment that is certain is the one that people are told of the preemption, and none where nobody knows it."""

from hived_config.settings import Budgets
from hived_extender.api.waiting import When
from hived_extender.insight.forecast import STAYING, forecast_of
from hived_extender.insight.past import Past
from hived_extender.insight.snapshot import take
from hived_extender.kube.client import KubeError
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.machine.small_cluster import SmallCluster, spec_text

PROTECTED = KubeError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")


class Lent(SmallCluster):
    """B's pods have lent cells everywhere, and budgets have refused to evict them for a pod of A."""

    def __init__(self, budgets: Budgets) -> None:
        super().__init__(preemption=PreemptionPolicy(budgets=budgets))
        for number in range(4):
            self.place(f"guest-{number}", spec_text("b", priority=-1))
        self.kube.refusals += [PROTECTED] * 1000
        pod = self.create("p")
        self.filter(pod)
        self.by_hand.settle()
        (self.told,) = set(self.filter(pod)["FailedNodes"].values())

    def when(self) -> When:
        snapshot = take(self.service)
        entry = snapshot.find("ns/p")
        assert entry is not None
        return forecast_of(snapshot, entry, Past())


def test_the_certain_moment_is_the_one_that_was_told_and_stays_it() -> None:
    cluster = Lent(Budgets.OVERRIDE)
    told = cluster.told.split("gone by about ")[1]
    for _ in range(3):
        when = cluster.when()
        assert (when.kind, when.by[11:19]) == ("certain", told)
        cluster.pass_time(20)


def test_a_moment_that_is_over_is_certain_no_more() -> None:
    cluster = Lent(Budgets.OVERRIDE)
    cluster.pass_time(120)
    assert cluster.when().because == STAYING


def test_nothing_is_certain_where_budgets_are_respected() -> None:
    when = Lent(Budgets.RESPECT).when()
    assert (when.kind, when.because) == ("unknown", STAYING)


def test_nothing_is_certain_where_kube_scheduler_evicts() -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy(by_service=False))
    for number in range(4):
        cluster.place(f"guest-{number}", spec_text("b", priority=-1))
    cluster.create("p")
    snapshot = take(cluster.service)
    assert {facts.gone_s for facts in snapshot.running.values()} == {float("inf")}
