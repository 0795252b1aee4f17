"""Verdicts on groups in cases that only many random changes came upon."""

import pytest

from hived_config.loader import Configuration, load_text
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.reconfiguration.change import Change
from hived_extender.reconfiguration.judging import Verdicts
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, preempt_args, spec_text


def switched(cluster: SmallCluster, old: Configuration, new: Configuration) -> dict[str, str]:
    """Carry a change out; returns the verdicts."""
    change = Change(old, new, None, 1)
    outcome = change.outcome(*change.catch_up_with(cluster.service))
    change.switch(cluster.service, None)
    return {one.name: one.verdict.value for one in outcome.affected}


def test_a_group_that_has_none_of_its_cells_has_no_place_to_lose() -> None:
    """Its node goes, then comes back, but by then its VC has nothing any more."""
    cluster = SmallCluster()
    _, node = cluster.place("p", spec_text("a"))
    first = load_text(CONFIG, "first")
    without_node = load_text(CONFIG.replace(f"{{cellAddress: {node}}}", "{cellAddress: other}"), "without node")
    without_vc = load_text(CONFIG.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]"), "without VC")
    assert switched(cluster, first, without_node) == {"ns/p": "unaccounted"}
    assert switched(cluster, without_node, without_vc) == {"ns/p": "restored"}
    assert cluster.groups()["ns/p"]["physicalPlacement"] == {node: [0, 1, 2, 3]}


def test_groups_may_come_while_all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds the lock for as long as that takes."""
    cluster = SmallCluster()
    cluster.place("p", spec_text("a"))
    first, look = load_text(CONFIG, "first"), Verdicts._verdict
    names = iter(("q", "r"))

    def interrupted(self: Verdicts, *groups: object) -> object:
        name = next(names, "")
        if name:
            cluster.place(name, spec_text("b", 1, group=name))
        return look(self, *groups)  # whatever it was called with

    change = Change(first, first, None, 1)
    present, waiting = change.catch_up_with(cluster.service)
    monkeypatch.setattr(Verdicts, "_verdict", interrupted)
    assert change.outcome(present, waiting).affected == []
    assert "ns:q" in present.groups


def test_nothing_is_said_of_groups_that_come_when_the_state_has_caught_up() -> None:
    """They would be taken for groups that have no cells any more."""
    cluster = SmallCluster(preemption=PreemptionPolicy(by_service=True))
    first = load_text(CONFIG, "first")
    cluster.place("victim", spec_text("b"))
    change = Change(first, first, None, 1)
    present, waiting = change.catch_up_with(cluster.service)
    cluster.place("late", spec_text("a"))
    preemptor = cluster.create("preemptor", spec_text("b", priority=5))
    cluster.service.preempt_victims(preempt_args(preemptor))
    assert change.outcome(present, waiting).affected == []
    change.switch(cluster.service, {})
    assert sorted(cluster.state.groups) == ["ns/late", "ns/preemptor", "ns/victim"]


def test_a_group_that_loses_one_node_and_gets_another_back_has_lost_one() -> None:
    cluster = SmallCluster()
    gang = spec_text("a", group="gang", pods=2)
    nodes = [cluster.place(name, gang)[1] for name in ("p", "q")]
    first = load_text(CONFIG, "first")
    without = [load_text(CONFIG.replace(f"{{cellAddress: {node}}}", "{cellAddress: other}"), node) for node in nodes]
    assert switched(cluster, first, without[0]) == {"ns:gang": "partlyUnaccounted"}
    assert switched(cluster, without[0], without[1]) == {"ns:gang": "partlyUnaccounted"}
    assert cluster.groups()["ns:gang"]["physicalPlacement"] == {nodes[0]: [0, 1, 2, 3]}
    assert switched(cluster, without[1], first) == {"ns:gang": "restored"}
