"""Workloads whose nodes Kueue has chosen without knowing cells: hived keeps to them, or writes others that have cells.

Virtual cluster research has two of three nodes with four GPUs.
"""

from typing import Any

import pytest

from hived_extender.jobs.kinds.kueue import HOST
from hived_extender.queues.kueue.workloads import assignment_on
from tests.extender.queues.kueue.kueue_by_hand import KueueByHand
from tests.extender.queues.kueue.test_held_cells import nodes
from tests.extender.queues.kueue.workload_objects import pod_set, template

Json = dict[str, Any]


def chosen(kueue: KueueByHand, name: str) -> Json:
    """The assignment that stands in a Workload."""
    (assigned,) = kueue.get(name)["status"]["admission"]["podSetAssignments"]
    found: Json = assigned["topologyAssignment"]
    return found


def nodes_of(kueue: KueueByHand, name: str) -> list[str]:
    """The nodes of that assignment."""
    (part,) = chosen(kueue, name)["slices"]
    roots: list[str] = part["valuesPerLevel"][0]["individual"]["roots"]
    return sorted(roots)


def on_a_node(kueue: KueueByHand, name: str, node: str) -> None:
    """A Workload of one pod that has a node, on it."""
    kueue.queue(name, pod_set(count=1, made_of=template(4, node_selector={HOST: node})))
    kueue.reserve(name)
    kueue.expect(name, "Ready")
    assert nodes(kueue, kueue.start(name)) == {node}


def test_nodes_with_cells_stay_as_kueue_has_chosen_them(kueue: KueueByHand) -> None:
    kueue.declare()
    kueue.queue("job-train")
    kueue.reserve("job-train", topology=assignment_on({"n2": 1, "n1": 1}))
    found = kueue.expect("job-train", "Ready", "cells are held: 2 pods")
    assert "other nodes" not in found["message"]
    assert chosen(kueue, "job-train") == assignment_on({"n2": 1, "n1": 1})


def test_nodes_without_cells_are_replaced_by_others(kueue: KueueByHand) -> None:
    kueue.declare()
    on_a_node(kueue, "job-first", "n0")
    kueue.queue("job-train", pod_set(count=1))
    kueue.reserve("job-train", topology=assignment_on({"n0": 1}))
    kueue.expect("job-train", "Ready", "on other nodes than Kueue has chosen")
    (other,) = nodes_of(kueue, "job-train")
    assert other in ("n1", "n2")
    assert kueue.get("job-train")["status"]["admission"]["clusterQueue"] == "research"
    assert nodes(kueue, kueue.start("job-train")) == {other}


def test_workloads_that_are_alike_do_not_wait_for_each_others_nodes(kueue: KueueByHand) -> None:
    kueue.declare()
    on_a_node(kueue, "job-first", "n0")
    made_of = template(4)
    made_of["metadata"]["annotations"]["kueue.x-k8s.io/podset-slice-required-topology"] = "rack"
    for name, node in (("job-a", "n0"), ("job-b", "n1")):
        kueue.queue(name, pod_set(count=1, made_of=made_of))
        kueue.reserve(name, topology=assignment_on({node: 1}))
    kueue.expect("job-b", "Ready")
    kueue.expect("job-a", "Pending", "waits for cells")
    assert nodes_of(kueue, "job-a") == ["n0"]


@pytest.mark.parametrize("levels", [["rack"], ["rack", HOST]])
def test_other_levels_than_nodes_are_left_as_they_are(kueue: KueueByHand, levels: list[str]) -> None:
    kueue.declare()
    kueue.queue("job-train", pod_set(count=1))
    values = [{"universal": "nowhere"} for _ in levels]
    part = {"domainCount": 1, "valuesPerLevel": values, "podCounts": {"universal": 1}}
    kueue.reserve("job-train", topology={"levels": levels, "slices": [part]})
    kueue.expect("job-train", "Pending", "waits for cells")
    assert chosen(kueue, "job-train")["levels"] == levels
