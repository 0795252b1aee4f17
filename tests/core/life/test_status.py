"""The views for people, letter by letter (rules 16.2, 16.3)."""

import json
from typing import Any

import pytest

from hived.cells.state import State
from hived.life import status
from hived.scheduler import handle, new_state
from hived.values.errors import UserError
from hived.values.events import Phase, PodAllocated
from tests.core.builders import (
    bind_info,
    delete,
    fingerprint,
    healthy_state,
    placement,
    pod,
    quota,
    rack_cluster,
    request,
    run,
    set_nodes,
    tree_cluster,
)


def one_rack() -> State:
    """A rack of two nodes of one GPU; A is promised one node, B the other one.

    A guaranteed pod of A, an opportunistic one of B, and n1 is bad.
    """
    vcs = quota("A", {"RACK.NODE": 1}), quota("B", {"RACK.NODE": 1})
    state = healthy_state(rack_cluster(*vcs, racks=1, gpus=1))
    run(state, pod("a", vc="A", priority=3, members=((1, 1),)))
    run(state, pod("b", "loan", vc="B", priority=-1, members=((1, 1),)))
    set_nodes(state, "n1", is_healthy=False)
    return state


def cell(cell_type: str, address: str, state: str, health: str, priority: int, **more: str | bool) -> dict[str, Any]:
    """A cell as the views show it, without its children and the cell that it is bound to."""
    shown = {"cellState": state, "cellHealthiness": health, "cellPriority": priority}
    return {"cellType": cell_type, "cellAddress": address, **shown, **more}


TOP: dict[str, str | bool] = {"leafCellType": "GPU"}
NODE: dict[str, str | bool] = {"isNodeLevel": True}
A_LEAF = cell("GPU", "A/0/0", "Used", "Healthy", 3)
A_NODE = cell("NODE", "A/0", "Used", "Healthy", 3, **TOP, **NODE)
N0_LEAF = cell("GPU", "0/n0/0", "Used", "Healthy", 3, vc="A")
N0 = cell("NODE", "0/n0", "Used", "Healthy", 3, vc="A", **NODE)
B_LEAF = cell("GPU", "B/0/0", "Free", "Bad", -2)
B_NODE = cell("NODE", "B/0", "Free", "Bad", -2, **TOP, **NODE)
N1_LEAF = cell("GPU", "0/n1/0", "Used", "Bad", -1, vc="B")
N1 = cell("NODE", "0/n1", "Used", "Bad", -1, vc="B", **NODE)
RACK = cell("RACK", "0", "Used", "Bad", 3, **TOP)
N0_TREE = N0 | {"cellChildren": [N0_LEAF | {"virtualCell": A_LEAF}], "virtualCell": A_NODE}
N1_TREE = N1 | {"cellChildren": [N1_LEAF | {"virtualCell": B_LEAF}], "virtualCell": B_NODE}
PHYSICAL = [RACK | {"cellChildren": [N0_TREE, N1_TREE]}]
VC_A = [A_NODE | {"cellChildren": [A_LEAF | {"physicalCell": N0_LEAF}], "physicalCell": N0}]
VC_B = [
    B_NODE | {"cellChildren": [B_LEAF | {"physicalCell": N1_LEAF}], "physicalCell": N1},
    cell("GPU", "0/n1/0-opp", "Used", "Healthy", -1) | {"physicalCell": N1_LEAF | {"virtualCell": B_LEAF}},
]


def test_the_cluster_status_has_trees_of_both_kinds_and_the_leaves_lent_to_a_vc() -> None:
    assert status.cluster_status(one_rack()) == {
        "physicalCluster": PHYSICAL,
        "virtualClusters": {"A": VC_A, "B": VC_B},
    }


def test_cells_can_be_had_one_tree_at_a_time() -> None:
    state = one_rack()
    assert next(status.iter_physical_cluster(status.copy_cells(state))) == PHYSICAL[0]
    assert list(status.iter_virtual_cluster(status.copy_cells(state), "B")) == VC_B


def test_groups_are_listed_by_name() -> None:
    assert status.affinity_groups(one_rack()) == {
        "items": [
            {
                "metadata": {"name": "a"},
                "status": {
                    "vc": "A",
                    "priority": 3,
                    "state": "Allocated",
                    "physicalPlacement": {"n0": [0]},
                    "virtualPlacement": {"A/0": ["A/0/0"]},
                    "allocatedPods": ["a"],
                },
            },
            {
                "metadata": {"name": "loan"},
                "status": {
                    "vc": "B",
                    "priority": -1,
                    "state": "Allocated",
                    "physicalPlacement": {"n1": [0]},
                    "allocatedPods": ["b"],
                },
            },
        ]
    }


def test_no_groups_are_null() -> None:
    assert status.affinity_groups(healthy_state(rack_cluster())) == {"items": None}


def test_a_snapshot_has_what_differs_from_a_free_healthy_cell() -> None:
    assert status.snapshot(one_rack()) == (
        {
            "0": ["Used", "Bad", 3, "", ""],
            "0/n0": ["Used", "Healthy", 3, "A", "A/0"],
            "0/n0/0": ["Used", "Healthy", 3, "A", "A/0/0"],
            "0/n1": ["Used", "Bad", -1, "B", "B/0"],
            "0/n1/0": ["Used", "Bad", -1, "B", "B/0/0"],
        },
        {
            "A|A/0": ["Used", "Healthy", 3, "0/n0"],
            "A|A/0/0": ["Used", "Healthy", 3, "0/n0/0"],
            "B|B/0": ["Free", "Bad", -2, "0/n1"],
            "B|B/0/0": ["Free", "Bad", -2, "0/n1/0"],
            "B|0/n1/0-opp": ["Used", "Healthy", -1, "0/n1/0"],
        },
        {
            "a": {
                "vc": "A",
                "priority": 3,
                "state": "Allocated",
                "physical": {"n0": [0]},
                "virtual": {"A/0": ["A/0/0"]},
                "allocated": ["a"],
                "preempting": [],
                "lazyPreemptor": "",
            },
            "loan": {
                "vc": "B",
                "priority": -1,
                "state": "Allocated",
                "physical": {"n1": [0]},
                "virtual": {},
                "allocated": ["b"],
                "preempting": [],
                "lazyPreemptor": "",
            },
        },
    )


def test_an_idle_healthy_cluster_has_an_empty_snapshot() -> None:
    assert status.snapshot(healthy_state(rack_cluster())) == ({}, {}, {})


def test_a_preempting_group_lists_the_pods_that_preempt() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), racks=1, nodes=1, gpus=1))
    run(state, pod("v", priority=-1, members=((1, 1),)))
    request(state, pod("urgent", priority=5, members=((1, 1),)), Phase.PREEMPTING)
    assert status.affinity_group(state, "urgent")["status"] == {
        "vc": "A",
        "priority": 5,
        "state": "Preempting",
        "physicalPlacement": {"n0": [0]},
        "virtualPlacement": {"A/0": ["A/0/0"]},
        "preemptingPods": ["urgent"],
    }
    assert status.affinity_group(state, "v")["status"]["state"] == "BeingPreempted"
    assert status.snapshot(state)[0]["0/n0/0"] == ["Reserving", "Healthy", 5, "A", "A/0/0"]


def test_a_lent_leaf_shows_the_health_that_it_had_when_it_was_lent() -> None:
    state = new_state(rack_cluster())
    handle(state, PodAllocated(pod("o", priority=-1), bind_info((placement("n0", 0, 1, cell_type=""),))))
    set_nodes(state, "n0", is_healthy=True)
    assert status.snapshot(state)[1]["A|0/n0/0-opp"] == ["Used", "Bad", -1, "0/n0/0"]


def test_what_happens_during_the_walk_is_not_shown() -> None:
    state = healthy_state(rack_cluster())
    lent = pod("o", priority=-1, members=((2, 1),))
    run(state, lent)
    before = status.cluster_status(state)
    cells = status.copy_cells(state)
    delete(state, lent)
    assert list(status.iter_physical_cluster(cells)) == before["physicalCluster"] != status.physical_cluster(state)
    assert list(status.iter_virtual_cluster(cells, "A")) == before["virtualClusters"]["A"]


def test_cells_can_be_copied_to_the_room_of_an_earlier_copy() -> None:
    state = healthy_state(rack_cluster())
    room = status.copy_cells(state)
    run(state, pod("o", priority=-1, members=((2, 1),)))
    cells = status.copy_cells(state, room)
    assert cells.state is room.state
    assert list(status.iter_physical_cluster(cells)) == status.physical_cluster(state)


def test_the_room_of_another_topology_is_left_alone() -> None:
    room = status.copy_cells(healthy_state(rack_cluster()))
    before = list(status.iter_physical_cluster(room))
    status.copy_cells(one_rack(), room)
    assert list(status.iter_physical_cluster(room)) == before


def test_a_reserved_cell_is_shown_as_reserved() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), racks=1, nodes=1, gpus=1))
    run(state, pod("v", priority=-1, members=((1, 1),)))
    request(state, pod("urgent", priority=5, members=((1, 1),)), Phase.PREEMPTING)
    delete(state, pod("v"))
    assert status.snapshot(state)[0]["0/n0"] == ["Reserved", "Healthy", 5, "A", "A/0"]


def test_a_lazily_preempted_group_names_its_preemptor_and_the_time() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), racks=1))
    run(state, pod("lazy", lazy_preemption=True))
    run(state, pod("urgent", priority=5))
    group = status.affinity_group(state, "lazy", {"lazy": "2026-11-20T12:00:00Z"})
    assert "virtualPlacement" not in group["status"]
    assert group["status"]["lazyPreemptionStatus"] == {
        "preemptor": "urgent",
        "preemptionTime": "2026-11-20T12:00:00Z",
    }
    assert status.snapshot(state)[2]["lazy"]["lazyPreemptor"] == "urgent"


def test_an_unknown_group_is_not_found() -> None:
    with pytest.raises(UserError) as refused:
        status.affinity_group(one_rack(), "x")
    assert refused.value.code == 400
    assert refused.value.message == "Affinity group x does not exist since it is not allocated or preempting"


def test_an_unknown_vc_is_not_found() -> None:
    with pytest.raises(UserError, match=r"^VC x not found$") as refused:
        status.virtual_cluster(one_rack(), "x")
    assert refused.value.code == 400


def test_a_vc_without_cells_is_an_empty_list() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), quota("B", {})))
    assert status.virtual_clusters(state)["B"] == []


def test_preassigned_cells_are_listed_in_the_order_of_the_file_and_pins_last() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1, "RACK": 1}, ("pin",)), racks=3, pins={"n3": "pin"}))
    cells = status.virtual_cluster(state, "A")
    assert [(cell["cellAddress"], cell["cellType"]) for cell in cells] == [
        ("A/0", "NODE"),
        ("A/1", "RACK"),
        ("A/2", "NODE"),
    ]


def test_a_top_cell_at_node_level_has_both_marks() -> None:
    (node,) = status.physical_cluster(healthy_state(tree_cluster({"NODE": 1})))
    assert (node["isNodeLevel"], node["leafCellType"]) == (True, "GPU")


def test_a_group_of_a_vc_that_is_not_configured_shows_its_name() -> None:
    state = healthy_state(rack_cluster())
    handle(state, PodAllocated(pod("g", vc="gone"), bind_info((placement("n0", 0, 1),))))
    physical, virtual, groups = status.snapshot(state)
    assert physical["0/n0/0"] == ["Used", "Healthy", -1, "gone", ""]
    assert virtual["gone|0/n0/0-opp"] == ["Used", "Healthy", -1, "0/n0/0"]
    assert groups["g"]["vc"] == "gone"


def test_reading_changes_nothing_and_gives_plain_json() -> None:
    state = one_rack()
    before = fingerprint(state)
    shown = [status.cluster_status(state), status.affinity_groups(state), *status.snapshot(state)]
    assert json.loads(json.dumps(shown)) == shown
    assert fingerprint(state) == before
