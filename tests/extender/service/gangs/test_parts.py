"""Gangs whose pods ask for cells of several kinds, or heed the nodes that kube-scheduler offers."""

import pytest

from hived_config.loader import load_text
from tests.extender.service.gang_world import GangWorld, koordinator

CONFIG = """\
physicalCluster:
  cellTypes:
    FAST-NODE: {childCellType: FAST, childCellNumber: 4, isNodeLevel: true}
    SLOW-NODE: {childCellType: SLOW, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: FAST-NODE, cellAddress: n0}
  - {cellType: FAST-NODE, cellAddress: n1}
  - {cellType: SLOW-NODE, cellAddress: n2}
  - {cellType: SLOW-NODE, cellAddress: n3}
virtualClusters:
  a:
    virtualCells: [{cellType: FAST-NODE, cellNumber: 2}, {cellType: SLOW-NODE, cellNumber: 1}]
"""
LEAF_TYPE = "hivedscheduler.microsoft.com/leaf-cell-type"


def asking(leaf_type: str, minimum: int) -> dict[str, str]:
    return koordinator("train", minimum) | {LEAF_TYPE: leaf_type}


@pytest.fixture
def world() -> GangWorld:
    return GangWorld(spec=load_text(CONFIG, "parts.yaml", environ={}).cluster)


def test_a_gang_may_ask_for_two_kinds_of_cells(world: GangWorld) -> None:
    world.pod("a-0", 4, asking("FAST", 3))
    world.pod("a-1", 4, asking("FAST", 3))
    world.pod("b-0", 2, asking("SLOW", 3))
    nodes = world.settle()
    assert sorted(nodes) == ["a-0", "a-1", "b-0"]
    assert {nodes["a-0"], nodes["a-1"]} == {"n0", "n1"}
    assert nodes["b-0"] in {"n2", "n3"}


def test_without_room_for_one_kind_nothing_of_the_other_is_held(world: GangWorld) -> None:
    world.pod("a-0", 4, asking("FAST", 3))
    for name in ("b-0", "b-1"):
        world.pod(name, 4, asking("SLOW", 3))
    assert world.settle() == {}
    assert world.groups() == {}
    assert "SLOW" in world.ask("a-0") or "insufficient" in world.ask("a-0")


def test_nothing_stays_reserved_for_a_kind_when_another_has_no_room(world: GangWorld) -> None:
    for name in ("p-0", "p-1"):
        world.pod(name, 4, {LEAF_TYPE: "FAST"})
    assert len(world.settle()) == 2
    high = {"priorityClassName": "high", "priority": 1000}
    world.pod("a-0", 4, asking("FAST", 2), **high)
    world.pod("b-0", 4, asking("SLOW", 2), **high)
    world.settle(1)
    assert world.groups()["podgroup/ns/train"]["state"] == "Preempting"
    world.pod("q", 4, {LEAF_TYPE: "SLOW"}, **high)
    world.settle(2)
    assert "q" in world.placed()
    assert "podgroup/ns/train" not in world.groups()


def test_pods_that_choose_their_nodes_are_heeded() -> None:
    world = GangWorld()
    for number in range(2):
        world.pod(f"w-{number}", 4, koordinator("train", 2), nodeSelector={"disk": "fast"})
    for number in range(2):
        world.filter(world.kube.pods[f"w-{number}"], ["n1", "n3"])
    assert {group["physicalPlacement"].popitem()[0] for group in world.groups().values()} == {"n1", "n3"}


def test_pods_of_a_gang_may_choose_different_nodes() -> None:
    world = GangWorld()
    world.pod("any", 4, koordinator("train", 2))
    world.pod("fast", 4, koordinator("train", 2), nodeSelector={"disk": "fast"})
    world.filter(world.kube.pods["any"], ["n0", "n1", "n2", "n3"])
    world.filter(world.kube.pods["fast"], ["n0"])
    assert world.groups()["ns/fast"]["physicalPlacement"].keys() == {"n0"}
    assert "ns/any" in world.groups()


def test_pods_that_choose_different_nodes_start_together_where_each_may() -> None:
    world = GangWorld()
    for name, node in (("a", "n1"), ("b", "n2")):
        world.pod(name, 4, koordinator("train", 2), nodeSelector={"host": node})
    world.filter(world.kube.pods["a"], ["n1"])
    world.filter(world.kube.pods["b"], ["n2"])
    assert world.groups()["ns/a"]["physicalPlacement"].keys() == {"n1"}
    assert world.groups()["ns/b"]["physicalPlacement"].keys() == {"n2"}


def test_each_kind_heeds_the_nodes_that_were_offered_for_it(world: GangWorld) -> None:
    fast = world.pod("a-0", 4, asking("FAST", 2), nodeSelector={"generation": "new"})
    slow = world.pod("b-0", 4, asking("SLOW", 2), nodeSelector={"generation": "old"})
    world.filter(fast, ["n0", "n1"])
    assert world.filter(slow, ["n3"])["NodeNames"] == ["n3"]
    assert world.filter(fast, ["n0", "n1"])["NodeNames"][0] in {"n0", "n1"}
