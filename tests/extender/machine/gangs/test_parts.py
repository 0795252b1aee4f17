"""Gangs whose pods ask for several kinds of cells, or heed the nodes that kube-scheduler offers (rule 26.5)."""

import pytest

from hived_config.loader import load_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

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
def small() -> SmallGangCluster:
    return SmallGangCluster(spec=load_text(CONFIG, "parts.yaml", environ={}).cluster)


def test_a_gang_may_ask_for_two_kinds_of_cells(small: SmallGangCluster) -> None:
    small.pod("a-0", 4, asking("FAST", 3))
    small.pod("a-1", 4, asking("FAST", 3))
    small.pod("b-0", 2, asking("SLOW", 3))
    nodes = small.settle()
    assert sorted(nodes) == ["a-0", "a-1", "b-0"]
    assert {nodes["a-0"], nodes["a-1"]} == {"n0", "n1"}
    assert nodes["b-0"] in {"n2", "n3"}


def test_without_room_for_one_kind_nothing_of_the_other_is_held(small: SmallGangCluster) -> None:
    small.pod("a-0", 4, asking("FAST", 3))
    for name in ("b-0", "b-1"):
        small.pod(name, 4, asking("SLOW", 3))
    assert small.settle() == {}
    assert small.groups() == {}
    assert "SLOW" in small.ask("a-0") or "insufficient" in small.ask("a-0")


def test_nothing_stays_reserved_for_a_kind_when_another_has_no_room(small: SmallGangCluster) -> None:
    for name in ("p-0", "p-1"):
        small.pod(name, 4, {LEAF_TYPE: "FAST"})
    assert len(small.settle()) == 2
    high = {"priorityClassName": "high", "priority": 1000}
    small.pod("a-0", 4, asking("FAST", 2), **high)
    small.pod("b-0", 4, asking("SLOW", 2), **high)
    small.settle(1)
    assert small.groups()["podgroup/ns/train"]["state"] == "Preempting"
    small.pod("q", 4, {LEAF_TYPE: "SLOW"}, **high)
    small.settle(2)
    assert "q" in small.placed()
    assert "podgroup/ns/train" not in small.groups()


def test_pods_that_choose_their_nodes_are_heeded() -> None:
    small = SmallGangCluster()
    for number in range(2):
        small.pod(f"w-{number}", 4, koordinator("train", 2), nodeSelector={"disk": "fast"})
    for number in range(2):
        small.filter(small.kube.pods[f"w-{number}"], ["n1", "n3"])
    assert {group["physicalPlacement"].popitem()[0] for group in small.groups().values()} == {"n1", "n3"}


def test_pods_of_a_gang_may_choose_different_nodes() -> None:
    small = SmallGangCluster()
    small.pod("any", 4, koordinator("train", 2))
    small.pod("fast", 4, koordinator("train", 2), nodeSelector={"disk": "fast"})
    small.filter(small.kube.pods["any"], ["n0", "n1", "n2", "n3"])
    small.filter(small.kube.pods["fast"], ["n0"])
    assert small.groups()["ns/fast"]["physicalPlacement"].keys() == {"n0"}
    assert "ns/any" in small.groups()


def test_pods_that_choose_different_nodes_start_together_where_each_may() -> None:
    small = SmallGangCluster()
    for name, node in (("a", "n1"), ("b", "n2")):
        small.pod(name, 4, koordinator("train", 2), nodeSelector={"host": node})
    small.filter(small.kube.pods["a"], ["n1"])
    small.filter(small.kube.pods["b"], ["n2"])
    assert small.groups()["ns/a"]["physicalPlacement"].keys() == {"n1"}
    assert small.groups()["ns/b"]["physicalPlacement"].keys() == {"n2"}


def test_each_kind_heeds_the_nodes_that_were_offered_for_it(small: SmallGangCluster) -> None:
    fast = small.pod("a-0", 4, asking("FAST", 2), nodeSelector={"generation": "new"})
    slow = small.pod("b-0", 4, asking("SLOW", 2), nodeSelector={"generation": "old"})
    small.filter(fast, ["n0", "n1"])
    assert small.filter(slow, ["n3"])["NodeNames"] == ["n3"]
    assert small.filter(fast, ["n0", "n1"])["NodeNames"][0] in {"n0", "n1"}


@pytest.mark.parametrize("free", ["a-0", "b-0"])
def test_pods_that_may_have_cells_of_any_kind_leave_the_scarce_ones_to_others(
    small: SmallGangCluster, free: str
) -> None:
    """FAST cells are tried first. Two pods need all of them, so the one that may have any has SLOW ones."""
    for name in ("a-0", "b-0", "c-0"):
        small.pod(name, 4, koordinator("train", 3) if name == free else asking("FAST", 3))
    nodes = small.settle()
    assert nodes.pop(free) in {"n2", "n3"}
    assert set(nodes.values()) == {"n0", "n1"}


def test_parts_that_ask_for_more_than_all_cells_together_can_never_run(small: SmallGangCluster) -> None:
    """Each part could run alone: VC a has eight leaf cells of type FAST and four of type SLOW."""
    for name in ("a-0", "b-0"):
        small.pod(name, 4, asking("FAST", 4))
    for name in ("c-0", "d-0"):
        small.pod(name, 4, koordinator("train", 4))
    small.settle()
    assert "it can never run: a has 12 GPUs in all" in small.ask("a-0")


def test_parts_that_only_wait_for_others_can_run_one_day(small: SmallGangCluster) -> None:
    small.pod("now", 4, {LEAF_TYPE: "SLOW"})
    small.settle()
    for name in ("a-0", "b-0"):
        small.pod(name, 4, asking("FAST", 3))
    small.pod("c-0", 4, koordinator("train", 3))
    assert small.settle().keys() == {"now"}
    assert "never" not in small.ask("a-0")
