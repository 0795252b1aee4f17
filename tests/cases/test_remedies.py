"""What would help: the change of the configuration that a job needs, and never the end of its own gang."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.played import PREFIX, Played, nodes_config, played_on, pod
from tests.expecting import expect_soon
from tests.extender.machine.small_gangs import koordinator

pytestmark = pytest.mark.sample(3)

PIECES = """
rules: 2
physicalCluster:
  cellTypes:
    X-PAIR: {childCellType: X, childCellNumber: 2}
    X-NODE: {childCellType: X-PAIR, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: X-NODE, cellAddress: node-1}
virtualClusters:
  VC1:
    namespaces: [default]
    virtualCells: [{cellType: X-NODE.X-PAIR.X, cellNumber: 3}]
  VC2:
    virtualCells: [{cellType: X-NODE.X-PAIR.X, cellNumber: 3}]
"""
"""Single cells are promised, and two are nobody's."""

NODES = nodes_config(4, 2)


def test_cells_combined_help_a_pod_larger_than_a_cell(tmp_path: Path) -> None:
    with played_on(tmp_path, PIECES) as played:
        played.create(pod("two", 2, vc="VC1"))
        assert "combine=VC1" in played.helps("two")


def test_larger_cells_help_where_nobody_has_the_hardware(tmp_path: Path) -> None:
    with played_on(tmp_path, PIECES) as played:
        played.create(pod("two", 2, vc="VC1"))
        assert "cells=VC1:+1xX-NODE.X-PAIR" in played.helps("two")


def test_cells_of_its_own_are_exchanged_where_no_hardware_is_left(tmp_path: Path) -> None:
    full = PIECES.replace("cellNumber: 3}]\n  VC2", "cellNumber: 4}]\n  VC2").replace("cellNumber: 3", "cellNumber: 4")
    with played_on(tmp_path, full) as played:
        played.create(pod("two", 2, vc="VC1"))
        assert "cells=VC1:+1xX-NODE.X-PAIR,VC1:-2xX-NODE.X-PAIR.X" in played.helps("two")


def test_cells_are_not_combined_by_rules_that_cannot(tmp_path: Path) -> None:
    with played_on(tmp_path, PIECES.replace("rules: 2", "rules: hived")) as played:
        played.create(pod("two", 2, vc="VC1"))
        helps = played.helps("two")
    assert "cells=VC1:+1xX-NODE.X-PAIR" in helps
    assert "combine=VC1" not in helps


def test_combined_cells_are_tried_on_demand(tmp_path: Path) -> None:
    with played_on(tmp_path, PIECES) as played:
        played.create(pod("two", 2, vc="VC1"))
        played.why("two")
        assert played.inspector.why_if("default/two", ["combine=VC1"]).starts


COSCHEDULING = {
    "labels": {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
}


@pytest.fixture(params=[{"annotations": koordinator("g", 2)}, COSCHEDULING], ids=["koordinator", "coscheduling"])
def broken_gang(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Played]:
    """A gang of two nodes, whose second pod lost its node to another job and waits."""
    words = request.param
    with played_on(tmp_path, NODES) as played:
        played.create(pod("g-0", 4, **words), pod("g-1", 4, **words))
        played.expect_running("g-0", "g-1")
        node = played.running_pods()["g-1"]
        played.patch_node(node, {"spec": {"unschedulable": True}})
        played.create(pod("aa-other", 4))
        expect_soon(lambda: "cordoned" in str(played.inspector.why("default/aa-other")))
        played.delete("g-1")
        played.patch_node(node, {"spec": {"unschedulable": False}})
        played.expect_running("aa-other")
        played.create(pod("g-1", 4, **words))
        yield played


def test_the_own_gang_is_no_remedy(broken_gang: Played) -> None:
    assert broken_gang.helps("g-1") == ["ends=default/aa-other"]


def test_the_own_gang_is_no_victim_of_a_higher_priority(broken_gang: Played) -> None:
    assert not any("priority" in change and "podgroup" in change for change in broken_gang.helps("g-1"))
    tried = broken_gang.inspector.why_if("default/g-1", ["priority=5"])
    assert "podgroup/default/g" not in tried.victims


def test_pods_beyond_the_minimum_are_not_told_to_end_those_of_their_gang(tmp_path: Path) -> None:
    with played_on(tmp_path, NODES) as played:
        played.create(pod("g-0", 4, annotations=koordinator("g", 1)))
        played.expect_running("g-0")
        played.create(pod("aa-other", 4))
        played.expect_running("aa-other")
        played.create(pod("g-1", 4, annotations=koordinator("g", 1)))
        assert played.helps("g-1") == ["ends=default/aa-other"]
        tried = played.inspector.why_if("default/g-1", ["priority=5"])
        assert "podgroup/default/g" not in tried.victims


def test_an_affinity_group_names_the_node_of_its_cells_that_cannot_be_used_and_is_no_remedy(tmp_path: Path) -> None:
    group = "affinityGroup: {name: g, members: [{podNumber: 2, leafCellNumber: 4}]}"
    words = {f"{PREFIX}pod-scheduling-spec": f"virtualCluster: default\npriority: 1\nleafCellNumber: 4\n{group}\n"}
    with played_on(tmp_path, NODES) as played:
        played.create(pod("g-0", 4, annotations=words), pod("g-1", 4, annotations=words))
        played.expect_running("g-0", "g-1")
        node = played.running_pods()["g-1"]
        played.patch_node(node, {"spec": {"unschedulable": True}})
        played.delete("g-1")
        played.create(pod("g-1", 4, annotations=words))
        expect_soon(lambda: "node n" in played.why("g-1").sentence)
        found = played.why("g-1")
        assert found.cause == "bad"
        assert " is cordoned (since " in found.sentence
        assert not found.unblock
        played.patch_node(node, {"spec": {"unschedulable": False}})
        played.expect_running("g-0", "g-1")


def test_who_takes_a_node_out_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    note = f"{PREFIX}reason"
    with played_on(tmp_path, nodes_config(4, 2)) as played:

        def reasons() -> dict[str, str]:
            return {one.node: one.reason for one in played.inspector.nodes(is_bad=True)}

        played.patch_node("n1", {"metadata": {"annotations": {note: "new fans,\n back on Monday"}}})
        assert reasons() == {}, "a node in use has no need of a reason"
        played.patch_node("n1", {"spec": {"unschedulable": True}})
        expect_soon(lambda: reasons() == {"n1": "cordoned: new fans, back on Monday"})
        assert played.inspector.nodes(is_bad=True)[0].since, "the moment at which the cordon was seen"
        news = {"node": "n1", "healthy": False, "reason": "cordoned: new fans, back on Monday"}
        assert news in [getattr(one, "fields", None) for one in caplog.records]
        played.create(pod("first", 4))
        played.expect_running("first")
        played.create(pod("second", 4))
        expect_soon(lambda: "node n1 is cordoned: new fans, back on Monday" in played.why("second").sentence)
        helped = [each.text for each in played.why("second").unblock if each.change == "heal=n1"]
        assert helped == ["once node n1 is uncordoned"]
        short = [one.remedy for one in played.inspector.status().warnings if "promised" in one.text]
        assert short == [
            "kubectl uncordon n1 once it is to be used again (hived get nodes --bad), or lower the promise"
        ]
        played.patch_node("n1", {"metadata": {"annotations": {note: "x" * 1000}}})
        expect_soon(lambda: reasons() == {"n1": "cordoned: " + "x" * 120})
        played.patch_node("n1", {"metadata": {"annotations": {note: None}}})
        expect_soon(lambda: reasons() == {"n1": "cordoned"})
