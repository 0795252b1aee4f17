"""Pods over several cells of their VC on one node (rules 19.4, 19.5)."""

import numpy as np
import pytest

from hived.cells.state import State
from hived.life.groups import bind_info_of_slot
from hived.life.status import affinity_group
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.events import (
    GroupReserved,
    GroupSplit,
    Limit,
    NodeHealthChanged,
    Offer,
    Phase,
    PodAllocated,
    ScheduleRequested,
)
from hived.values.specs import BindInfo, PodRequest, Rules
from tests.core.builders import (
    delete,
    describe_groups,
    held_nodes,
    node_mask,
    pairs,
    pod,
    reason,
    request,
    run,
    set_nodes,
)

COMBINE = "set combine: true for the VC"


def restarted(state: State, *bound: tuple[PodRequest, BindInfo]) -> State:
    again = new_state(state.spec)
    for node in state.topology.node_names:
        handle(again, NodeHealthChanged(node, True))
    for one, info in bound:
        handle(again, PodAllocated(one, info))
    check_invariants(again)
    return again


def test_a_pod_larger_than_a_cell_takes_several_of_one_node() -> None:
    state = pairs()
    decision = run(state, pod("big", members=((1, 4),)))
    check_invariants(state)
    assert set(held_nodes(state, "big")) == {"a"}
    ((place,),) = decision.bind_info.members
    assert place.preassigned_cell_types == ("PAIR",) * 4
    assert sorted(place.leaf_cell_indices) == [0, 1, 2, 3]


def test_inspection_shows_all_cells_that_a_pod_is_in() -> None:
    state = pairs()
    run(state, pod("big", members=((1, 4),)))
    shown = affinity_group(state, "big")["status"]
    assert shown["physicalPlacement"] == {"a": [0, 1, 2, 3]}
    assert {root: len(leaves) for root, leaves in shown["virtualPlacement"].items()} == {"A/0": 2, "A/1": 2}


def test_a_gang_has_each_pod_on_a_node_of_its_own() -> None:
    state = pairs(3)
    run(state, pod("gang", members=((1, 3), (2, 4))))
    check_invariants(state)
    assert [len(set(held_nodes(state, "gang")[first:end])) for first, end in ((0, 3), (3, 7), (7, 11))] == [1, 1, 1]


def test_one_cell_is_enough_where_it_can_be() -> None:
    state = pairs()
    run(state, pod("small"))
    run(state, pod("other"))
    ((place,),) = run(state, pod("two", members=((1, 2),))).bind_info.members
    assert place.node == "b"
    assert place.leaf_cell_indices in {(0, 1), (2, 3)}


def test_a_pod_may_take_what_is_left_of_two_cells() -> None:
    state = pairs(1)
    for name in "wxyz":
        run(state, pod(name, members=((1, 1),)))
    delete(state, pod("w", members=((1, 1),)), pod("y", members=((1, 1),)))
    run(state, pod("two", members=((1, 2),)))
    check_invariants(state)


@pytest.mark.parametrize("rules", Rules)
def test_a_pod_of_a_vc_that_does_not_combine_waits_and_is_told_the_key(rules: Rules) -> None:
    told = reason(request(pairs(combines=False, rules=rules), pod("big", members=((1, 4),))))
    assert told.startswith("insufficient capacity when scheduling in VC A")
    assert (COMBINE in told) == (rules is Rules.BETTER)


def test_the_key_is_not_named_where_it_would_not_help() -> None:
    state = pairs(combines=False)
    assert COMBINE not in reason(request(state, pod("big", members=((1, 5),))))
    assert COMBINE not in reason(request(state, pod("low", priority=-1, members=((1, 5),))))


def test_cells_that_others_are_promised_are_not_taken() -> None:
    state = pairs(2, A={"NODE.PAIR": 2}, B={"NODE": 1})
    run(state, pod("small", members=((1, 2),)))
    run(state, pod("whole", vc="B", members=((1, 4),)))
    assert isinstance(request(state, pod("big", members=((1, 4),))), Wait)
    alone = pairs(2, A={"NODE.PAIR": 2}, B={"NODE": 1})
    run(alone, pod("big", members=((1, 4),)))
    run(alone, pod("whole", vc="B", members=((1, 4),)))
    check_invariants(alone)


def test_pairs_of_two_nodes_are_not_one_cell() -> None:
    state = pairs(2, A={"NODE.PAIR": 2}, B={"NODE.PAIR": 2})
    for node in "ab":
        one = pod(f"b-{node}", vc="B", ignore_suggested_nodes=False)
        decision = request(state, one, Phase.FILTERING, node)
        assert isinstance(decision, Bind)
        handle(state, PodAllocated(one, decision.bind_info))
    assert COMBINE not in reason(request(state, pod("big", members=((1, 4),))))
    delete(state, pod("b-a", vc="B"))
    run(state, pod("big", members=((1, 4),)))
    assert set(held_nodes(state, "big")) == {"a"}


def test_bad_nodes_are_passed_over() -> None:
    state = pairs()
    set_nodes(state, "a", is_healthy=False)
    run(state, pod("big", members=((1, 4),)))
    assert set(held_nodes(state, "big")) == {"b"}
    set_nodes(state, "b", is_healthy=False)
    check_invariants(state)
    assert isinstance(request(state, pod("more", members=((1, 4),))), Wait)
    delete(state, pod("big", members=((1, 4),)))
    set_nodes(state, "a", "b", is_healthy=True)
    check_invariants(state)
    run(state, pod("more", members=((1, 4),)))


def test_suggested_nodes_are_heeded() -> None:
    state = pairs()
    heeding = pod("big", members=((1, 4),), ignore_suggested_nodes=False)
    decision = handle(state, ScheduleRequested(heeding, Phase.FILTERING, node_mask(state, ["b"])))
    assert isinstance(decision, Bind)
    assert decision.bind_info.node == "b"


def test_a_restart_finds_the_same_cells() -> None:
    state = pairs(3)
    gang = pod("gang", members=((1, 2), (2, 4)), size=4)
    info = run(state, gang).bind_info
    again = restarted(state, (gang, info))
    before, after = describe_groups(state)["gang"], describe_groups(again)["gang"]
    assert before[2] == after[2]
    assert after[3] is not None


def test_weaker_groups_leave_and_the_reservation_outlives_a_restart() -> None:
    state = pairs(1)
    small = [pod(name) for name in ("x", "y")]
    infos = [run(state, one).bind_info for one in small]
    big = pod("big", priority=1, members=((1, 4),))
    decision = request(state, big, Phase.PREEMPTING)
    assert isinstance(decision, Preempt)
    assert decision.victims_by_node == {"a": ("x", "y")}
    check_invariants(state)
    reserved = bind_info_of_slot(state, state.groups["big"], 0)
    again = restarted(state, *zip(small, infos, strict=True))
    handle(again, GroupReserved((big,), reserved))
    check_invariants(again)
    for one in (state, again):
        delete(one, *small)
        run(one, big)
        check_invariants(one)
        assert set(held_nodes(one, "big")) == {"a"}


def test_opportunistic_pods_make_room() -> None:
    state = pairs(1)
    run(state, pod("low", priority=-1, members=((1, 1),)))
    decision = request(state, pod("big", members=((1, 4),)), Phase.PREEMPTING)
    assert isinstance(decision, Preempt)
    assert decision.victims_by_node == {"a": ("low",)}


def test_a_placed_gang_can_be_split() -> None:
    state = pairs(2)
    run(state, pod("stand-in", "gang", members=((2, 4),)))
    parts = tuple(pod(f"p{number}", members=((1, 4),)) for number in range(2))
    handle(state, GroupSplit("gang", parts))
    check_invariants(state)
    assert [set(held_nodes(state, f"p{number}")) for number in range(2)] == [{"a"}, {"b"}]


def test_an_offer_and_its_rules_are_kept() -> None:
    state = pairs(3)
    gang = pod("gang", members=((2, 4),))
    nodes = np.array([[True, False, True], [True, False, True]])
    by_node = np.arange(3, dtype=np.int32)
    apart = Limit(by_node, np.ones(2, np.int64), np.ones(3, np.int64))
    offer = Offer(nodes, np.zeros_like(nodes), (apart,))
    decision = handle(state, ScheduleRequested(gang, offer=offer))
    assert isinstance(decision, Bind)
    assert [place.node for member in decision.bind_info.members for place in member] == ["a", "c"]
    crowded = Offer(nodes & (by_node == 0), np.zeros_like(nodes), (apart,))
    assert isinstance(handle(state, ScheduleRequested(gang, offer=crowded)), Wait)


def test_pods_of_one_node_have_leaves_that_are_near() -> None:
    state = pairs(1)
    decision = run(state, pod("gang", members=((1, 1), (1, 3))))
    ((one,), (three,)) = decision.bind_info.members
    assert three.leaf_cell_indices == (0, 1, 2)
    assert one.leaf_cell_indices == (3,)
