"""What becomes of groups in cases that only many random changes came upon."""

import pytest

from hived_config.loader import Configuration, load_text
from hived_extender.reconfiguration.change import Change
from hived_extender.reconfiguration.verdicts import Verdicts
from hived_extender.service.preemptions import PreemptionPolicy
from tests.extender.service.world import CONFIG, World, preempt_args, spec_text


def switched(world: World, old: Configuration, new: Configuration) -> dict[str, str]:
    """Carry a change out; returns the verdicts."""
    change = Change(old, new, None, 1)
    outcome = change.outcome(*change.catch_up_with(world.service))
    change.switch(world.service, None)
    return {one.name: one.verdict.value for one in outcome.affected}


def test_a_group_that_has_none_of_its_cells_has_no_place_to_lose() -> None:
    """Its node goes, then comes back, but by then its VC has nothing any more."""
    world = World()
    _, node = world.place("p", spec_text("a"))
    first = load_text(CONFIG, "first")
    without_node = load_text(CONFIG.replace(f"{{cellAddress: {node}}}", "{cellAddress: other}"), "without node")
    without_vc = load_text(CONFIG.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]"), "without VC")
    assert switched(world, first, without_node) == {"ns/p": "unaccounted"}
    assert switched(world, without_node, without_vc) == {"ns/p": "restored"}
    assert world.groups()["ns/p"]["physicalPlacement"] == {node: [0, 1, 2, 3]}


def test_groups_may_come_while_all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds the lock for as long as that takes."""
    world = World()
    world.place("p", spec_text("a"))
    first, look = load_text(CONFIG, "first"), Verdicts._verdict
    names = iter(("q", "r"))

    def interrupted(self: Verdicts, *groups: object) -> object:
        name = next(names, "")
        if name:
            world.place(name, spec_text("b", 1, group=name))
        return look(self, *groups)  # whatever it was called with

    change = Change(first, first, None, 1)
    present, waiting = change.catch_up_with(world.service)
    monkeypatch.setattr(Verdicts, "_verdict", interrupted)
    assert change.outcome(present, waiting).affected == []
    assert "ns:q" in present.groups


def test_nothing_is_said_of_groups_that_come_when_the_state_has_caught_up() -> None:
    """They would be taken for groups that have no cells any more."""
    world = World(preemption=PreemptionPolicy(by_service=True))
    first = load_text(CONFIG, "first")
    world.place("victim", spec_text("b"))
    change = Change(first, first, None, 1)
    present, waiting = change.catch_up_with(world.service)
    world.place("late", spec_text("a"))
    preemptor = world.create("preemptor", spec_text("b", priority=5))
    world.service.preempt_victims(preempt_args(preemptor))
    assert change.outcome(present, waiting).affected == []
    change.switch(world.service, {})
    assert sorted(world.state.groups) == ["ns/late", "ns/preemptor", "ns/victim"]


def test_a_group_that_loses_one_node_and_gets_another_back_has_lost_one() -> None:
    world = World()
    gang = spec_text("a", group="gang", pods=2)
    nodes = [world.place(name, gang)[1] for name in ("p", "q")]
    first = load_text(CONFIG, "first")
    without = [load_text(CONFIG.replace(f"{{cellAddress: {node}}}", "{cellAddress: other}"), node) for node in nodes]
    assert switched(world, first, without[0]) == {"ns:gang": "partlyUnaccounted"}
    assert switched(world, without[0], without[1]) == {"ns:gang": "partlyUnaccounted"}
    assert world.groups()["ns:gang"]["physicalPlacement"] == {nodes[0]: [0, 1, 2, 3]}
    assert switched(world, without[1], first) == {"ns:gang": "restored"}
