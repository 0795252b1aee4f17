"""What would help a waiting job: every kind of change, each tried by the core before it is named."""

from typing import Any

import pytest

from hived.scheduler import check_invariants
from hived_config.access import Access, AccessRules, NamespaceEntry, VirtualClusterAccess
from hived_config.loader import load_text
from hived_config.rules import Moving, PodRules
from hived_extender.api.waiting import Unblock
from hived_extender.insight.snapshot import Snapshot, take
from hived_extender.insight.unblocks import unblocks_of
from hived_extender.jobs.progress import MAY_MOVE
from tests.extender.machine.small_cluster import SmallCluster, node, spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

TWO_TYPES = """\
physicalCluster:
  cellTypes:
    OLD-NODE: {childCellType: OLD, childCellNumber: 4, isNodeLevel: true}
    NEW-NODE: {childCellType: NEW, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: OLD-NODE, cellAddress: n0}
  - {cellType: OLD-NODE, cellAddress: n1}
  - {cellType: NEW-NODE, cellAddress: n2}
  - {cellType: NEW-NODE, cellAddress: n3}
virtualClusters:
  a:
    virtualCells: [{cellType: OLD-NODE, cellNumber: 2}, {cellType: NEW-NODE, cellNumber: 1}]
"""


def helps(snapshot: Snapshot, name: str) -> dict[str, Unblock]:
    """What would help the job, by the change; the snapshot is as it was."""
    entry = snapshot.find(name)
    assert entry is not None
    before = snapshot.state.cells.memory.tobytes()
    found = {one.change: one for one in unblocks_of(snapshot, entry)}
    assert snapshot.state.cells.memory.tobytes() == before
    check_invariants(snapshot.state)
    return found


def late_job(small: SmallCluster, **spec: Any) -> dict[str, Unblock]:
    """What would help a pod `late` that comes last."""
    small.filter(small.create("late", spec_text(**spec)))
    return helps(take(small.service), "ns/late")


def full(**options: Any) -> SmallCluster:
    """Virtual cluster a has both its nodes in use."""
    small = SmallCluster(**options)
    small.place("one")
    small.place("two", spec_text(priority=7))
    return small


@pytest.mark.parametrize("place", [0, 1])
def test_a_job_on_a_bad_node_helps_by_ending_where_its_cells_then_get_other_hardware(place: int) -> None:
    small = SmallCluster()
    where = [small.place("one")[1], small.place("two")[1]]
    small.service.node_seen(node(where[place], is_cordoned=True))
    assert {"ends=ns/one", "ends=ns/two"} <= late_job(small).keys()


def in_pieces(*, movable: str = "", **options: Any) -> SmallCluster:
    """Virtual cluster a has 2 GPUs free on one of its nodes, and 3 on the other, where job `w` is."""
    small = SmallCluster(**options)
    for name, cells in (("x", 2), ("y", 2), ("z", 3), ("w", 1)):
        small.place(name, spec_text(leaf_cells=cells), annotations={MAY_MOVE: "true"} if movable == name else {})
    for name in ("x", "z"):
        small.delete(small.kube.pods[name])
    return small


def test_a_job_that_could_start_needs_nothing() -> None:
    small = SmallCluster()
    small.create("late")
    assert helps(take(small.service), "ns/late") == {}


def test_a_job_that_cannot_be_asked_for_has_no_help() -> None:
    small = SmallGangCluster()
    small.pod("g-0", annotations=koordinator("g", 2))
    assert helps(take(small.service), "ns/g-0") == {}


def test_changes_come_in_the_order_of_what_they_cost() -> None:
    kinds = [change.partition("=")[0] for change in late_job(full())]
    assert kinds == ["vc", "priority", "opportunistic", "ends", "ends", "cells", "cells"]


def test_a_priority_is_the_lowest_that_does_and_names_whom_it_preempts() -> None:
    found = late_job(full(), priority=0)["priority=1"]
    assert found.text == "at priority 1 instead of 0; one would be preempted"
    assert found.victims == ["ns/one"]


def test_a_job_that_only_waits_for_its_victims_to_leave_needs_nothing() -> None:
    assert late_job(full(), priority=5) == {}


def test_a_pod_that_no_cell_can_hold_fits_as_smaller_pods() -> None:
    found = late_job(SmallCluster(), leaf_cells=8)
    assert list(found) == ["pods=2x4"]
    assert found["pods=2x4"].text == "as 2 pods of 4 GPUs each instead of 1 pod of 8 GPUs"


def test_smaller_pods_are_as_large_as_they_can_be() -> None:
    assert [change for change in late_job(in_pieces()) if change.startswith("pods")] == ["pods=2x2"]


def test_fewer_pods_are_as_many_as_can_start() -> None:
    small = SmallCluster()
    small.place("one")
    found = late_job(small, leaf_cells=1, group="g", pods=8)
    assert found["pods=4x1"].text == "with 4 of its 8 pods"


def test_another_leaf_type_is_one_that_the_virtual_cluster_has() -> None:
    small = SmallCluster(spec=load_text(TWO_TYPES, "two.yaml", environ={}).cluster)
    for name in ("one", "two"):
        small.place(name, spec_text(leafCellType="OLD"))
    found = late_job(small, leafCellType="OLD")
    assert found["leafType=NEW"].text == "with NEW instead of OLD"


def test_another_virtual_cluster_is_one_that_the_namespace_may_use() -> None:
    namespaces = {name: VirtualClusterAccess((NamespaceEntry("ns", max_priority=5),)) for name in ("a", "empty")}
    rules = PodRules(access=AccessRules(Access.NAMESPACES, {**namespaces, "b": VirtualClusterAccess()}))
    small = SmallCluster(rules=rules)
    small.place("one")
    small.place("two")
    assert not [change for change in late_job(small) if change.startswith("vc")]
    assert late_job(full())["vc=b"].text == "in virtual cluster b"


def test_a_priority_is_not_above_what_the_namespace_may_have() -> None:
    access = AccessRules(Access.EVERYBODY, {"a": VirtualClusterAccess(max_priority=7)}, opportunistic=())
    found = late_job(full(rules=PodRules(access=access)), priority=7)
    assert not [change for change in found if change.startswith(("priority", "opportunistic"))]


def test_a_bad_node_that_would_help_is_named_with_its_remedy() -> None:
    small = SmallCluster(bad_nodes=("n1", "n2", "n3"))
    small.place("one")
    assert late_job(small)["heal=n1"].text == "once node n1 is Ready"


def test_several_bad_nodes_are_named_where_one_alone_does_not_help() -> None:
    found = late_job(SmallCluster(bad_nodes=("n0", "n1", "n2", "n3")), group="g", pods=2)
    (heal,) = [change for change in found if change.startswith("heal")]
    assert len(heal.split(",")) == 2


def test_a_job_that_ends_is_the_one_that_loses_least() -> None:
    small = SmallCluster()
    for name, started in (("one", "1970-01-01T00:00:10Z"), ("two", "1970-01-01T00:10:00Z")):
        pod, _ = small.place(name)
        stored = small.kube.pods[name]
        stored["metadata"]["creationTimestamp"] = stored["status"]["startTime"] = started
        small.kube.touch(stored)
        small.see(pod)
    ends = [change for change in late_job(small) if change.startswith("ends")]
    assert ends == ["ends=ns/two", "ends=ns/one"]


def test_two_jobs_have_to_end_where_one_does_not_make_enough_room() -> None:
    small = SmallCluster()
    for name in ("p", "q", "r", "s"):
        small.place(name, spec_text(leaf_cells=2))
    ends = [change for change in late_job(small) if change.startswith("ends")]
    assert ends == ["ends=ns/p,ns/q", "ends=ns/r,ns/s"]


PLANNED = "which is allowed: hived defrag plan --job ns/late plans it"


def test_a_job_moves_where_that_joins_free_cells() -> None:
    found = late_job(in_pieces(movable="w"))
    assert found["move=ns/w"].text == f"if w starts anew elsewhere, {PLANNED}"


def test_a_job_moves_where_its_virtual_cluster_allows_it() -> None:
    rules = PodRules(moving=Moving(movable=frozenset({"a"})))
    (move,) = [one for change, one in late_job(in_pieces(rules=rules)).items() if change.startswith("move")]
    assert move.text == f"if y starts anew elsewhere, {PLANNED}"


def test_a_move_says_if_nothing_allows_it() -> None:
    (move,) = [one for change, one in late_job(in_pieces()).items() if change.startswith("move")]
    not_yet = f"which neither annotation {MAY_MOVE} nor movable: true of the virtual cluster allows yet"
    assert move.text == f"if y starts anew elsewhere, {not_yet}"


def test_cells_are_nobodys_or_given_by_another_virtual_cluster() -> None:
    found = late_job(full())
    assert found["cells=a:+1xRACK.NODE"].text == "if the configuration promises 1 RACK.NODE more to a"
    given = found["cells=a:+1xRACK.NODE,b:-1xRACK.NODE"]
    assert given.text == "if the configuration promises 1 RACK.NODE more to a and 1 fewer to b"


def test_cells_in_use_are_not_given_away() -> None:
    small = full()
    small.place("three", spec_text(vc="b"))
    assert [change for change in late_job(small) if change.startswith("cells")] == ["cells=a:+1xRACK.NODE"]


def test_an_opportunistic_job_waits_for_whoever_has_the_hardware() -> None:
    small = SmallCluster()
    for number in range(4):
        small.place(f"o{number}", spec_text(priority=-1))
    assert list(late_job(small, priority=-1)) == ["priority=0", "ends=ns/o0", "ends=ns/o1"]


def test_the_pods_of_a_gang_end_as_one_job() -> None:
    small = SmallGangCluster()
    for index in range(2):
        small.pod(f"g-{index}", annotations=koordinator("g", 2))
    assert set(small.settle()) == {"g-0", "g-1"}
    for index in range(2):
        small.pod(f"h-{index}", annotations=koordinator("h", 2))
    small.settle()
    found = helps(take(small.service), "podgroup/ns/h")
    assert found["ends=podgroup/ns/g"].text == "once g has ended"


@pytest.mark.parametrize("count", [1, 2])
def test_the_same_snapshot_has_the_same_answer(count: int) -> None:
    small = full()
    small.create("late", spec_text(leaf_cells=4, group="g", pods=count))
    snapshot = take(small.service)
    assert helps(snapshot, "ns/late") == helps(snapshot, "ns/late")
