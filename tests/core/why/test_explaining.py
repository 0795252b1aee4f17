"""Explanations of waits in named situations (rules 20); `tests/property/test_explaining.py` judges random ones."""

from dataclasses import replace

import numpy as np
import pytest

from hived.cells.state import State
from hived.scheduler import handle
from hived.values.decisions import Cause, Explanation, Wait
from hived.values.events import Offer, ScheduleRequested
from hived.values.specs import CellTypeSpec, ClusterSpec, MemberSpec, PhysicalCellSpec, PodRequest, Rules
from hived.why.counts import MOST_HOLDERS, cells_needed
from hived.why.explaining import explain_wait
from hived.why.relaxing import Emptied
from tests.core.builders import (
    delete,
    fingerprint,
    healthy_state,
    lose,
    node_mask,
    pairs,
    pod,
    quota,
    rack_cluster,
    run,
    set_nodes,
)

BOTH = pytest.mark.parametrize("rules", Rules)


def racks(rules: Rules) -> State:
    """A and B have two nodes of 2 GPUs each, of n0 to n3."""
    return healthy_state(replace(rack_cluster(), rules=rules))


def offer_of(state: State, wanted: PodRequest, *nodes: str) -> Offer:
    """Only these nodes, for each pod of the group."""
    slots = sum(member.pod_count for member in wanted.spec.group.members)
    mask = np.repeat(node_mask(state, nodes)[None], slots, axis=0)
    return Offer(mask, np.zeros_like(mask))


def explain(state: State, wanted: PodRequest, offer: Offer | None = None) -> Explanation:
    """The explanation of a request that waits; the state is as before."""
    assert isinstance(handle(state, ScheduleRequested(wanted, offer=offer)), Wait)
    before = fingerprint(state)
    found = explain_wait(state, wanted, offer)
    assert fingerprint(state) == before
    return found


@BOTH
def test_groups_of_the_same_priority_hold_the_cells(rules: Rules) -> None:
    state = racks(rules)
    run(state, pod("a"))
    run(state, pod("b", priority=1))
    found = explain(state, pod("late"))
    assert found.causes == (Cause.IN_USE,)
    assert (found.level, found.asked, found.total, found.in_use, found.largest_fit) == ("NODE", 1, 2, 2, 0)
    assert [(holder.name, holder.priority) for holder in found.holders] == [("a", 0), ("b", 1)]


@BOTH
def test_a_group_of_lower_priority_is_not_in_the_way(rules: Rules) -> None:
    state = racks(rules)
    run(state, pod("weak"))
    run(state, pod("strong", priority=5))
    found = explain(state, pod("late", priority=1, members=((2, 2),)))
    assert (found.causes, found.free, found.in_use) == ((Cause.IN_USE,), 1, 1)
    assert [holder.name for holder in found.holders] == ["strong"]


@BOTH
def test_free_leaves_that_are_not_together_are_in_pieces(rules: Rules) -> None:
    state = racks(rules)
    for name in "xyz":
        run(state, pod(name, members=((1, 1),)))
    delete(state, pod("y"))
    found = explain(state, pod("late"))
    assert found.causes == (Cause.IN_PIECES,)
    assert (found.in_pieces, found.free_leaves, found.largest_fit, found.largest_ever) == (2, 2, 1, 2)


@BOTH
def test_bad_nodes_are_named(rules: Rules) -> None:
    state = racks(rules)
    set_nodes(state, *state.topology.node_names, is_healthy=False)
    found = explain(state, pod("late"))
    assert (found.causes, found.total, found.bad, found.holders) == ((Cause.BAD,), 2, 2, ())
    assert found.bad_nodes
    assert set(found.bad_nodes) <= set(state.topology.node_names)


@BOTH
def test_lost_leaves_are_bad_hardware_on_a_healthy_node(rules: Rules) -> None:
    state = racks(rules)
    for node in state.topology.node_names:
        lose(state, node, 1)
    found = explain(state, pod("late"))
    assert (found.causes, found.bad, found.largest_fit) == ((Cause.BAD,), 2, 1)


@BOTH
def test_nodes_that_are_not_offered_are_refused(rules: Rules) -> None:
    state = racks(rules)
    wanted = pod("late", members=((2, 2),))
    found = explain(state, wanted, offer_of(state, wanted, "n0"))
    assert (found.causes, found.free, found.refused) == ((Cause.KUBERNETES,), 1, 1)


@BOTH
def test_more_than_the_vc_is_promised_can_never_run(rules: Rules) -> None:
    found = explain(racks(rules), pod("late", members=((3, 2),)))
    assert (found.causes, found.asked, found.total, found.largest_ever) == ((Cause.NEVER,), 3, 2, 2)


def test_a_vc_without_cells_can_never_run_anything() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {})))
    assert explain(state, pod("late", vc="B")).causes == (Cause.NEVER,)


@BOTH
def test_causes_that_are_all_in_the_way_are_named_together_with_the_holders_first(rules: Rules) -> None:
    state = racks(rules)
    run(state, pod("a"))
    set_nodes(state, *(name for name in state.topology.node_names if name not in held(state, "a")), is_healthy=False)
    found = explain(state, pod("late", members=((2, 2),)))
    assert found.causes == (Cause.IN_USE, Cause.BAD)
    assert (found.in_use, found.bad) == (1, 1)


def held(state: State, name: str) -> set[str]:
    names = state.topology.node_names
    return {names[node] for node in state.arrays.node[state.groups[name].physical].tolist()}


@BOTH
def test_later_pods_wait_for_the_node_that_their_group_has_for_them(rules: Rules) -> None:
    state = racks(rules)
    gang = [pod(uid, "gang", members=((2, 2),)) for uid in ("one", "two")]
    run(state, gang[0])
    found = explain(state, gang[1], offer_of(state, gang[1], *(set(state.topology.node_names) - held(state, "gang"))))
    assert (found.causes, found.total, found.refused, found.free) == ((Cause.KUBERNETES,), 2, 1, 1)


def test_no_more_than_the_largest_holders_are_named() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 6}), racks=3, nodes=2, gpus=2))
    for number in range(MOST_HOLDERS + 4):
        run(state, pod(f"p{number}", members=((1, 1),)))
    found = explain(state, pod("late", members=((1, 1),)))
    assert (len(found.holders), found.more_holders) == (MOST_HOLDERS, 4)


@BOTH
def test_a_pinned_cell_below_a_node_is_counted_for_what_it_has(rules: Rules) -> None:
    types = {"NODE": CellTypeSpec("NODE", "PAIR", 2, is_node_level=True), "PAIR": CellTypeSpec("PAIR", "GPU", 2)}
    pinned = PhysicalCellSpec("NODE", "a", children=(PhysicalCellSpec(pinned_cell_id="pin"), PhysicalCellSpec()))
    vcs = {"A": quota("A", {}, ("pin",)), "B": quota("B", {"NODE.PAIR": 1})}
    state = healthy_state(ClusterSpec(types, (pinned,), vcs, rules=rules))
    run(state, pod("a", members=((1, 1),), pinned_cell_id="pin"))
    found = explain(state, pod("late", members=((1, 2),), pinned_cell_id="pin"))
    assert (found.causes, found.level, found.in_pieces) == ((Cause.IN_USE,), "PAIR", 1)
    assert (found.free_leaves, found.largest_fit, found.largest_ever) == (1, 1, 2)


def test_pods_of_a_combining_vc_fit_into_several_cells() -> None:
    state = pairs(1)
    run(state, pod("a", members=((1, 1),)))
    found = explain(state, pod("late", members=((1, 4),)))
    assert (found.causes, found.largest_fit, found.largest_ever) == ((Cause.IN_USE,), 3, 4)


@BOTH
def test_an_emptied_cluster_that_is_kept_follows_the_health_of_nodes(rules: Rules) -> None:
    state, emptied = racks(rules), Emptied()
    for names in (("n0", "n1", "n2"), (), ("n3",), ("n0", "n1", "n2", "n3")):
        set_nodes(state, *state.topology.node_names, is_healthy=True)
        set_nodes(state, *names, is_healthy=False)
        twin = emptied.with_same_health(state)
        assert twin.cells.node_bad.tolist() == state.cells.node_bad.tolist()
        assert twin.cells.bad.sum() == state.cells.bad.sum()


@pytest.mark.parametrize(
    ("members", "span", "cells"),
    [
        (((2, 1),), 2, 1),
        (((3, 1),), 2, 2),
        (((1, 1), (1, 3)), 4, 1),
        (((2, 2), (1, 3)), 4, 2),
        (((5, 1), (2, 3)), 4, 3),
        (((1, 8),), 4, 2),
        (((2, 8), (1, 8)), 8, 3),
    ],
)
def test_so_many_cells_hold_the_pods(members: tuple[tuple[int, int], ...], span: int, cells: int) -> None:
    assert cells_needed(tuple(MemberSpec(*member) for member in members), span) == cells
