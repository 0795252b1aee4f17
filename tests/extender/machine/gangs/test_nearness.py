"""Gangs that wish for nothing are kept together if their pods fill nodes, unless their virtual cluster is `packed`."""

import pytest
from msgspec.structs import replace

from hived_config.loader import load_text
from hived_extender.jobs.kinds.own import WITHIN_CELL
from tests.extender.machine.small_gangs import RULES, SmallGangCluster, koordinator

CONFIG = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: n0}, {cellAddress: n1}]}
  - {cellType: RACK, cellChildren: [{cellAddress: n2}, {cellAddress: n3}]}
virtualClusters:
  a: {virtualCells: [{cellType: RACK.NODE, cellNumber: 4}], PLACEMENT}
"""
RACKS = ({"n0", "n1"}, {"n2", "n3"})


def small(placement: str = "") -> SmallGangCluster:
    """One pod fills a node of four in two racks."""
    configuration = load_text(CONFIG.replace("PLACEMENT", placement), "racks.yaml", environ={})
    made = SmallGangCluster(spec=configuration.cluster)
    rules = replace(RULES, packed=configuration.rules.packed)
    made.service.machine.interpreter.configure(configuration.cluster, rules)
    made.pod("first", 4)
    made.settle()
    return made


def are_together(placed: dict[str, str]) -> bool:
    return {placed["w-0"], placed["w-1"]} in RACKS


@pytest.mark.parametrize(
    ("placement", "gpus", "annotations", "expected"),
    [
        ("", 4, {}, True),
        ("placement: packed", 4, {}, False),
        ("placement: packed", 4, {WITHIN_CELL: "RACK"}, True),
    ],
)
def test_pods_that_fill_nodes_are_kept_together(
    placement: str, gpus: int, annotations: dict[str, str], expected: bool
) -> None:
    one = small(placement)
    for number in range(2):
        one.pod(f"w-{number}", gpus, koordinator("train", 2) | annotations)
    assert are_together(one.settle()) is expected


def test_smaller_pods_fill_nodes_that_are_in_use() -> None:
    one = small()
    one.pod("half", 2)
    in_use = one.settle()["half"]
    for number in range(2):
        one.pod(f"w-{number}", 1, koordinator("train", 2))
    placed = one.settle()
    assert placed["w-0"] == placed["w-1"] == in_use


def test_a_gang_starts_apart_where_nothing_else_is_free() -> None:
    one = small()
    other_rack = next(rack for rack in RACKS if one.placed()["first"] not in rack)
    second = one.pod("second", 4, nodeSelector={"disk": "fast"})
    one.filter(second, sorted(other_rack)[:1])
    for number in range(2):
        one.pod(f"w-{number}", 4, koordinator("train", 2))
    for _ in range(2):
        for number in range(2):
            one.ask(f"w-{number}")
    assert not are_together(one.placed())


def test_a_pod_that_is_replaced_returns_to_its_gang() -> None:
    one = small()
    for number in range(2):
        one.pod(f"w-{number}", 4, koordinator("train", 2))
    one.settle()
    one.drop("w-0")
    one.pod("w-0", 4, koordinator("train", 2), uid="uid-again")
    assert are_together(one.settle())


def test_pods_that_choose_different_nodes_are_not_tied_together() -> None:
    one = SmallGangCluster()
    for name, node in (("w-0", "n1"), ("w-1", "n2")):
        one.pod(name, 4, koordinator("train", 2), nodeSelector={"host": node})
    one.filter(one.kube.pods["w-0"], ["n1"])
    one.filter(one.kube.pods["w-1"], ["n2"])
    assert {"ns/w-0", "ns/w-1"} <= one.groups().keys()
