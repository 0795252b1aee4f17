"""Pods that no cell of their virtual cluster could hold are refused when they are created (rule 22.5)."""

import json
from typing import Any

import pytest

from hived_config.loader import load_text
from hived_extender.jobs.admission import Admission
from hived_extender.jobs.annotations import PREFIX, SCHEDULING_SPEC
from hived_extender.jobs.wire import ENABLE_LIMIT

CONFIGURATION = """\
{rules}physicalCluster:
  cellTypes:
    SWITCH: {{childCellType: H100, childCellNumber: 4}}
    NODE: {{childCellType: SWITCH, childCellNumber: 2, isNodeLevel: true}}
    RACK: {{childCellType: NODE, childCellNumber: 3}}
    OLD-NODE: {{childCellType: K80, childCellNumber: 16, isNodeLevel: true}}
  physicalCells:
  - cellType: RACK
    cellChildren: [{{cellAddress: a}}, {{cellAddress: b, pinnedCellId: front}}, {{cellAddress: d}}]
  - {{cellType: OLD-NODE, cellAddress: c}}
virtualClusters:
  racks:
    virtualCells: [{{cellType: RACK.NODE, cellNumber: 1}}, {{cellType: OLD-NODE, cellNumber: 1}}]
  halves:
    pinnedCells: [{{pinnedCellId: front}}]
    virtualCells: [{{cellType: RACK.NODE.SWITCH, cellNumber: 1}}]
"""


@pytest.fixture(scope="module")
def admission() -> Admission:
    configuration = load_text(CONFIGURATION.format(rules=""), "f", environ={})
    return Admission(configuration.cluster, configuration.rules, serves_every_name=True)


def own(vc: str, count: int, **more: Any) -> Any:
    text = json.dumps({"virtualCluster": vc, "priority": 0, "leafCellNumber": count, **more})
    container = {"name": "m", "resources": {"limits": {ENABLE_LIMIT: 1}}}
    return {"metadata": {"name": "p", "annotations": {SCHEDULING_SPEC: text}}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("vc", "count", "more", "most"),
    [
        ("halves", 4, {}, ""),
        ("halves", 5, {}, "VC halves that a pod can have has 4"),
        ("halves", 8, {"pinnedCellId": "front"}, ""),
        ("halves", 9, {"pinnedCellId": "front"}, "pinned cell front that a pod can have has 8"),
        ("halves", 8, {"priority": -1}, ""),
        ("halves", 17, {"priority": -1}, "the cluster that a pod can have has 16"),
        ("racks", 16, {}, ""),
        ("racks", 9, {"leafCellType": "H100"}, "VC racks that a pod can have has 8"),
        ("nowhere", 99, {}, ""),
    ],
)
def test_a_pod_larger_than_any_cell_is_refused(
    admission: Admission, vc: str, count: int, more: dict[str, Any], most: str
) -> None:
    refusal = admission.admit(own(vc, count, **more)).refusal
    assert most in refusal if most else not refusal


def test_a_pod_in_the_words_of_kubernetes_too(admission: Admission) -> None:
    container = {"name": "m", "resources": {"limits": {"nvidia.com/gpu": 5}}}
    said = {PREFIX + "virtual-cluster": "halves", PREFIX + "leaf-cell-type": "H100"}
    pod = {
        "metadata": {"name": "p", "annotations": said},
        "spec": {"schedulerName": "hived", "containers": [container]},
    }
    assert admission.admit(pod).refusal == (
        "it asks for 5 GPUs in one pod and can never run: the largest cell of VC halves that a pod can have "
        "has 4; ask for smaller pods"
    )


def test_a_vc_that_combines_cells_may_have_a_node() -> None:
    text = CONFIGURATION.format(rules="rules: 2\n").replace("  halves:\n", "  halves:\n    combine: true\n")
    configuration = load_text(text, "f", environ={})
    admission = Admission(configuration.cluster, configuration.rules, serves_every_name=True)
    assert admission.admit(own("halves", 8)).refusal == ""
