"""Trying the pods that wait on the core: what it costs when there are thousands of them."""

from typing import Any

import pytest

from hived.decisions import Decision
from hived.events import Event, ScheduleRequested
from hived.scheduler import handle
from hived.state import State
from hived_extender.service.verbs import Patience
from tests.extender.service.world import World, node, spec_text


@pytest.fixture
def world() -> World:
    """Half of VC a's nodes are left. Nothing is tried unless a test says so."""
    world = World(patience=Patience(nudge_delay_s=3600))
    world.place("p")
    return world


@pytest.fixture
def asked(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def listen(state: State, event: Event) -> Decision:
        if isinstance(event, ScheduleRequested) and state is world.state:
            names.append(event.pod.name)
        return handle(state, event)

    monkeypatch.setattr("hived_extender.service.ledger.handle", listen)
    return names


def waiting(world: World, *names: str, **spec: Any) -> list[str]:
    """Uids of new pods that nobody has asked about."""
    return [world.create(name, spec_text(**spec))["metadata"]["uid"] for name in names]


def test_pods_that_ask_alike_wait_alike(world: World, asked: list[str]) -> None:
    world.place("q")
    uids = [*waiting(world, "r0", "r1", "r2"), *waiting(world, "small", leaf_cells=1), *waiting(world, "r3")]
    for _ in range(2):
        world.service.machine._waiting.try_these(uids)
    assert asked == ["q", "r0", "small"]


@pytest.mark.parametrize("change", ["a pod goes", "a pod comes", "a node turns bad"])
def test_after_any_change_they_are_tried_anew(world: World, asked: list[str], change: str) -> None:
    last, _ = world.place("q")
    uids = waiting(world, "r0", "r1")
    world.service.machine._waiting.try_these(uids)
    if change == "a pod goes":
        world.delete(last)
    elif change == "a pod comes":
        world.place("lent", spec_text(vc="b", leaf_cells=1, priority=-1))
    else:
        world.service.node_seen(node("n3", is_ready=False))
    asked.clear()
    world.service.machine._waiting.try_these(uids)
    assert asked == ["r0"]


def test_pods_that_ask_alike_could_run_alike(world: World, asked: list[str]) -> None:
    uids = waiting(world, "r0", "r1")
    world.service.machine._waiting.try_these(uids)
    assert asked == ["r0"]
    world.place("q")
    world.service.machine._waiting.try_these(uids)
    assert asked == ["r0", "q", "r0"]


def test_pods_that_have_to_preempt_are_each_tried(world: World, asked: list[str]) -> None:
    world.place("q")
    world.service.machine._waiting.try_these(waiting(world, "r0", "r1", priority=5))
    assert asked == ["q", "r0", "r1"]


def test_a_pod_of_a_group_that_is_placed_is_tried_for_itself(world: World, asked: list[str]) -> None:
    gang = {"group": "g", "pods": 2, "leaf_cells": 2}
    world.place("g0", spec_text(**gang))
    world.service.machine._waiting.try_these(
        [*waiting(world, "h0", group="h", pods=2, leaf_cells=2), *waiting(world, "g1", **gang)]
    )
    assert asked == ["g0", "h0", "g1"]
