"""The one door: what each event does, what it refuses, and that nothing it is given breaks the state."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from hived.cells.state import CellState, GroupState, State
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Applied, Bind, Wait
from hived.values.errors import InvariantError, UserError
from hived.values.events import Phase, PodAllocated, ScheduleRequested
from hived.values.specs import PodRequest
from tests.core import hostile
from tests.core.builders import (
    bind_info,
    delete,
    fingerprint,
    healthy_state,
    held_nodes,
    leaf,
    placement,
    pod,
    quota,
    rack_cluster,
    request,
    run,
    set_nodes,
)
from tests.places import ROOT

PAIR = ((2, 2),)


def assert_refused(state: State, event: ScheduleRequested | PodAllocated, message: str) -> None:
    """A UserError, and nothing has changed."""
    before = fingerprint(state)
    with pytest.raises(UserError, match=message):
        handle(state, event)
    assert fingerprint(state) == before
    check_invariants(state)


# --- a gang's pods, one by one -------------------------------------------------------------------------------------


def test_a_gang_is_placed_as_a_whole_with_its_first_pod() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("p0", "gang", members=PAIR))
    assert (state.cells.state[state.groups["gang"].physical] == CellState.USED).all()


def test_each_pod_of_a_gang_takes_the_next_slot() -> None:
    state = healthy_state(rack_cluster())
    nodes = [run(state, pod(f"p{i}", "gang", members=PAIR)).bind_info.node for i in range(2)]
    assert nodes == held_nodes(state, "gang")[::2]


def test_a_slot_that_was_left_is_taken_again() -> None:
    state = healthy_state(rack_cluster())
    gang = [pod(f"p{i}", "gang", members=PAIR) for i in range(3)]
    first = run(state, gang[0]).bind_info
    run(state, gang[1])
    delete(state, gang[0])
    assert run(state, gang[2]).bind_info == first


def test_one_pod_more_than_the_gang_has_is_refused() -> None:
    state = healthy_state(rack_cluster())
    for i in range(2):
        run(state, pod(f"p{i}", "gang", members=PAIR))
    message = r"^Requesting more pods than the configured number for 2 leaf cells \(2 pods\) in affinity group gang$"
    assert_refused(state, ScheduleRequested(pod("p2", "gang", members=PAIR)), message)


def test_a_placement_stands_though_its_node_has_turned_bad() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("p0", "gang", members=PAIR))
    node = held_nodes(state, "gang")[2]
    set_nodes(state, node, is_healthy=False)
    assert run(state, pod("p1", "gang", members=PAIR)).bind_info.node == node


def test_a_placement_stands_though_its_node_is_not_suggested() -> None:
    state = healthy_state(rack_cluster())
    gang = [pod(f"p{i}", "gang", members=PAIR, ignore_suggested_nodes=False) for i in range(2)]
    run(state, gang[0])
    node = held_nodes(state, "gang")[2]
    others = [name for name in state.topology.node_names if name != node]
    assert isinstance(request(state, gang[1], Phase.FILTERING, *others), Bind)


def test_deleting_a_pod_that_is_not_known_changes_nothing() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("p0", "gang", members=PAIR))
    before = fingerprint(state)
    delete(state, pod("stranger"), pod("p1", "gang", members=PAIR), pod("p0", "other", members=PAIR))
    assert fingerprint(state) == before


def test_a_waiting_pod_can_be_deleted() -> None:
    state = healthy_state(rack_cluster())
    wanted = pod("p", members=((9, 2),))
    assert isinstance(request(state, wanted), Wait)
    before = fingerprint(state)
    delete(state, wanted)
    assert fingerprint(state) == before


def test_being_allocated_twice_is_being_allocated_once() -> None:
    state = healthy_state(rack_cluster())
    wanted = pod("p0", "gang", members=PAIR)
    info = run(state, wanted).bind_info
    before = fingerprint(state)
    assert handle(state, PodAllocated(wanted, info)) == Applied()
    assert fingerprint(state) == before


def test_the_order_of_the_nodes_outlives_a_decision_that_is_not_carried_out() -> None:
    """The one thing that does (rule 6.3): equal nodes keep the order of the last search."""
    state = healthy_state(rack_cluster())
    order = state.cells.view_order.copy()
    run(state, pod("o", priority=-1, members=((1, 1),)))
    set_nodes(state, "n1", is_healthy=False)
    request(state, pod("p", priority=-1, members=((9, 2),)))
    assert (state.cells.view_order != order).any()
    set_nodes(state, "n1", is_healthy=True)
    delete(state, pod("o"))
    sorted_once = state.cells.view_order.copy()
    request(state, pod("p", priority=-1, members=((9, 2),)))
    assert (state.cells.view_order == sorted_once).all()


# --- a pod must agree with its group (rule 2.8) -----------------------------------------------------------------------

DISAGREEMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "virtualCluster": ({"vc": "B"}, "virtualCluster is B, group has A"),
    "priority": ({"priority": 1}, "priority is 1, group has 0"),
    "members": ({"members": ((1, 1), (2, 2)), "size": 2}, "members is 1x1,2x2, group has 2x2"),
    "pinnedCellId": ({"pinned_cell_id": "pin"}, "pinnedCellId is pin, group has "),
    "leafCellType": ({"leaf_cell_type": "GPU"}, "leafCellType is GPU, group has "),
    "lazyPreemptionEnable": ({"lazy_preemption": True}, "lazyPreemptionEnable is true, group has false"),
    "ignoreK8sSuggestedNodes": ({"ignore_suggested_nodes": False}, "ignoreK8sSuggestedNodes is false, group has true"),
    "two fields": ({"vc": "B", "priority": 1}, "virtualCluster is B, group has A"),
}


@pytest.mark.parametrize("field", DISAGREEMENTS)
def test_a_pod_that_differs_from_its_group_is_refused_in(field: str) -> None:
    state = healthy_state(rack_cluster())
    info = run(state, pod("p0", "gang", members=PAIR)).bind_info
    given, message = DISAGREEMENTS[field]
    wrong = pod("p1", "gang", **({"members": PAIR} | given))
    expected = rf"^\[p1\(ns/p1\)\]: Pod does not match its affinity group gang: {message}$"
    assert_refused(state, ScheduleRequested(wrong), expected)
    assert_refused(state, PodAllocated(wrong, info), expected)


def test_a_pod_of_another_vc_does_not_take_the_slot_of_a_running_one() -> None:
    state = healthy_state(rack_cluster())
    info = run(state, pod("p0", "gang")).bind_info
    assert_refused(state, PodAllocated(pod("evil", "gang", vc="NOSUCH", priority=-1), info), "does not match")


def test_a_pod_of_the_same_spec_does_not_take_the_slot_of_a_running_one() -> None:
    state = healthy_state(rack_cluster())
    info = run(state, pod("p0", "gang", members=PAIR)).bind_info
    assert_refused(state, PodAllocated(pod("twin", "gang", members=PAIR), info), "has no free placement")


# --- facts that contradict what is known ---------------------------------------------------------------------------


@pytest.mark.parametrize("members", [((1, 1),), ((1, 1), (1, 2))])
def test_a_bound_pod_of_another_size_than_its_group_is_refused(members: tuple[tuple[int, int], ...]) -> None:
    state = healthy_state(rack_cluster())
    info = run(state, pod("p0", "gang", members=PAIR)).bind_info
    assert_refused(state, PodAllocated(pod("p1", "gang", members=members), info), "does not match")


def contradictory(group: str) -> PodRequest:
    """A pod of one leaf in a gang of pods of two."""
    return pod("odd", group, members=PAIR, size=1)


def test_a_pod_of_a_size_that_its_own_spec_does_not_list_is_refused() -> None:
    state = healthy_state(rack_cluster())
    info = run(state, pod("p0", "gang", members=PAIR)).bind_info
    message = "the affinity group has no pod of 1 leaf cells"
    for group in ("gang", "new"):
        assert_refused(state, PodAllocated(contradictory(group), info), message)
        assert_refused(state, ScheduleRequested(contradictory(group)), message)


def test_such_a_pod_is_not_registered_as_preempting() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    for i in range(4):
        run(state, pod(f"v{i}", priority=-1))
    request(state, pod("p0", "gang", members=PAIR), Phase.PREEMPTING)
    assert_refused(state, ScheduleRequested(contradictory("gang"), Phase.PREEMPTING), "no pod of 1 leaf cells")


def test_a_pod_that_is_bound_to_two_slots_leaves_both() -> None:
    """Scheduled again although it is bound already, and bound again: deleting it must not leave the group behind."""
    state = healthy_state(rack_cluster())
    wanted = pod("p0", "gang", members=PAIR)
    run(state, wanted)
    run(state, wanted)
    check_invariants(state)
    delete(state, wanted)
    check_invariants(state)
    assert not state.groups


def test_one_placement_listed_twice_is_no_slot_for_two_pods() -> None:
    state = healthy_state(rack_cluster())
    info = bind_info((placement("n0", 0, 1), placement("n0", 0, 1)))
    handle(state, PodAllocated(pod("p0", "gang", members=PAIR), info))
    handle(state, PodAllocated(pod("p1", "gang", members=PAIR), info))
    check_invariants(state)
    delete(state, pod("p1", "gang", members=PAIR))
    assert state.cells.state[leaf(state, "n0", 0)] == CellState.USED


def test_lazy_preemption_for_a_bind_info_with_a_leaf_listed_twice_comes_to_an_end() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4}), gpus=4))
    run(state, pod("lazy", members=((1, 4),), lazy_preemption=True))
    node = held_nodes(state, "lazy")[0]
    info = bind_info((placement(node, 3, 0, 2, 2),))
    applied = handle(state, PodAllocated(pod("p", members=((1, 4),)), info, ("lazy",)))
    check_invariants(state)
    assert applied == Applied(lazily_preempted=("lazy",))


# --- suggested nodes that do not fit the cluster -------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 3, 5])
def test_a_mask_of_another_length_is_refused(length: int) -> None:
    state = healthy_state(rack_cluster())
    event = ScheduleRequested(pod("p", ignore_suggested_nodes=False), Phase.FILTERING, np.ones(length, np.bool_))
    assert_refused(state, event, "suggested nodes must be a mask of 4 nodes")


def test_a_mask_may_be_a_part_of_another_array() -> None:
    state = healthy_state(rack_cluster())
    mask = np.array([0, 1, 0, 1, 1, 1, 0, 1], np.bool_)[::2]
    wanted = pod("p", priority=-1, ignore_suggested_nodes=False)
    decision = handle(state, ScheduleRequested(wanted, Phase.FILTERING, mask))
    assert isinstance(decision, Bind)
    assert decision.bind_info.node == "n2"


def test_a_mask_of_all_nodes_is_as_good_as_none() -> None:
    decisions = []
    for mask in (None, np.ones(4, np.bool_)):
        state = healthy_state(rack_cluster())
        decisions.append(handle(state, ScheduleRequested(pod("p", ignore_suggested_nodes=False), suggested=mask)))
    assert decisions[0] == decisions[1]


# --- any event at all ----------------------------------------------------------------------------------------------


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(3000, 3060))
def test_no_hostile_event_breaks_the_state(seed: int) -> None:
    """Only UserError comes out, it changes nothing, and every invariant holds after each event."""
    state, enemy = hostile.start(seed)
    for _ in range(hostile.LENGTH):
        event = enemy.next()
        before = fingerprint(state)
        decision = None
        try:
            decision = handle(state, event)
        except UserError:
            assert fingerprint(state) == before, event
        enemy.learn(event, decision)
        check_invariants(state)


def test_hostile_events_reach_every_kind_of_answer_and_group() -> None:
    """So that the test above means something."""
    kinds: set[object] = set()
    for seed in range(3000, 3030):
        for state, answer in hostile.play(seed):
            kinds.add(answer.partition("(")[0] if answer.startswith(("Bind(", "Preempt(", "Wait(")) else "")
            kinds |= {group.state for group in state.groups.values()}
            kinds |= {"lazy" for group in state.groups.values() if group.lazy_preemptor}
    assert kinds >= {"Bind", "Preempt", "Wait", "", "lazy", *GroupState}


# --- the same events, the same bytes -------------------------------------------------------------------------------


def test_two_runs_give_the_same_bytes() -> None:
    assert [hostile.digest(seed) for seed in range(4)] == [hostile.digest(seed) for seed in range(4)]


@pytest.mark.long
def test_compiled_and_interpreted_runs_give_the_same_bytes() -> None:
    seeds = ("2000", "2001", "2002")
    here = " ".join(hostile.digest(int(seed)) for seed in seeds)
    there = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "tests.core.hostile", *seeds],
        cwd=ROOT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here


# --- our own mistakes ----------------------------------------------------------------------------------------------


def test_a_broken_state_is_reported() -> None:
    state = healthy_state(rack_cluster())
    state.cells.used[0] = 7
    with pytest.raises(InvariantError, match="used count is not the sum"):
        check_invariants(state)
