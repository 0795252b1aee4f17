"""Groups that the first choices cannot place, and that have a place all the same (rules 19)."""

import numpy as np
import pytest

from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.complete import assignment
from hived.complete.known_waits import forget_waits
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Bind, Wait
from hived.values.events import NodeHealthChanged, Offer, Phase, PodAllocated, ScheduleRequested
from hived.values.specs import PodRequest, Rules
from tests.core.builders import (
    better_state,
    cell_at,
    fingerprint,
    healthy_state,
    held_nodes,
    lose,
    node_mask,
    pairs,
    pod,
    quota,
    rack_cluster,
    request,
    run,
    set_nodes,
    small_journal,
)


def big_nodes(rules: Rules, nodes: int = 2) -> State:
    """One rack of nodes of four GPUs, all promised to A."""
    return healthy_state(rack_cluster(quota("A", {"RACK.NODE": nodes}), racks=1, nodes=nodes, gpus=4, rules=rules))


def ask(state: State, wanted: PodRequest, *suggested: str) -> Bind | Wait:
    decision = handle(state, ScheduleRequested(wanted, Phase.FILTERING, node_mask(state, suggested)))
    assert isinstance(decision, Bind | Wait)
    return decision


def does_bind(state: State, wanted: PodRequest) -> bool:
    """Ask for a group, and start it if it has a place."""
    decision = request(state, wanted)
    if isinstance(decision, Bind):
        handle(state, PodAllocated(wanted, decision.bind_info))
        check_invariants(state)
    return isinstance(decision, Bind)


@pytest.mark.parametrize("rules", Rules)
def test_a_guaranteed_gang_of_two_sizes_has_its_large_pods_placed_first(rules: Rules) -> None:
    state = big_nodes(rules)
    run(state, pod("one", members=((1, 1),)))
    assert does_bind(state, pod("gang", members=((1, 1), (2, 3)))) == (rules is Rules.BETTER)


@pytest.mark.parametrize("rules", Rules)
def test_an_opportunistic_gang_of_two_sizes_has_its_large_pods_placed_first(rules: Rules) -> None:
    state = big_nodes(rules)
    run(state, pod("two", members=((1, 2),)))
    assert does_bind(state, pod("gang", priority=-1, members=((1, 2), (1, 3)))) == (rules is Rules.BETTER)


@pytest.mark.parametrize("rules", Rules)
def test_sizes_that_descending_order_cannot_pack_are_packed(rules: Rules) -> None:
    """Of 5 and 7 free leaves, 3 and 2 fill the first, the rest the second; with larger ones first, a 2 is left over."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1, nodes=2, gpus=7, rules=rules))
    run(state, pod("two", members=((1, 2),)))
    assert does_bind(state, pod("gang", members=((3, 2), (2, 3)))) == (rules is Rules.BETTER)


@pytest.mark.parametrize("rules", Rules)
def test_another_virtual_choice_is_tried_where_the_first_has_no_suggested_node(rules: Rules) -> None:
    """The VC's rack is bound to nodes that are not suggested; its single node may be anywhere else."""
    spec = rack_cluster(quota("A", {"RACK": 1, "RACK.NODE": 1}), quota("B", {"RACK.NODE": 1}), rules=rules)
    state = healthy_state(spec)
    own, more = (pod(name, members=((1, 2),), ignore_suggested_nodes=False) for name in ("own", "more"))
    found = ask(state, own, "n0", "n1")
    assert isinstance(found, Bind)
    handle(state, PodAllocated(own, found.bind_info))
    assert held_nodes(state, "own") == ["n0", "n0"]
    decision = ask(state, more, "n3")
    if rules is Rules.HIVED:
        assert isinstance(decision, Wait)
        assert "bad or non-suggested" in decision.reason
        return
    assert isinstance(decision, Bind)
    assert decision.bind_info.node == "n3"
    handle(state, PodAllocated(more, decision.bind_info))
    check_invariants(state)


@pytest.mark.parametrize("rules", Rules)
def test_doomed_cells_that_nobody_uses_are_exchanged(rules: Rules) -> None:
    """Both pairs of B are doomed on node b when node a heals; they are released, and C's node is doomed instead."""
    state = pairs(2, combines=False, rules=rules, B={"NODE.PAIR": 2}, C={"NODE": 1})
    set_nodes(state, "a", "b", is_healthy=False)
    set_nodes(state, "a", is_healthy=True)
    doomed = [cell for cell in range(state.topology.physical_count) if state.cells.doomed_position[cell] != NO_CELL]
    assert [state.topology.address(cell) for cell in doomed] == ["b/0", "b/1"]
    assert does_bind(state, pod("gang", vc="B", members=((2, 2),))) == (rules is Rules.BETTER)
    if rules is Rules.BETTER:
        assert set(held_nodes(state, "gang")) == {"a"}
        assert state.groups["gang"].virtual is not None
        assert not state.cells.strained.any()
        assert state.cells.doomed_position[cell_at(state, "b")] != NO_CELL


def test_waiting_changes_nothing() -> None:
    state = big_nodes(Rules.BETTER)
    run(state, pod("x", members=((1, 3),)))
    run(state, pod("y", members=((1, 3),)))
    before = fingerprint(state)
    assert isinstance(request(state, pod("gang", members=((1, 1), (1, 2)))), Wait)
    assert fingerprint(state) == before


def test_a_search_that_is_given_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of 7, 6, 4 and 3 GPUs for nodes with 8, 6, 6 and 2: no bound sees that they do not fit."""
    gang = pod("gang", members=((1, 3), (1, 4), (1, 6), (1, 7)))
    state = better_state(rack_cluster(quota("A", {"RACK.NODE": 4}), racks=1, nodes=4, gpus=8))
    for node, count in (("n1", 2), ("n2", 2), ("n3", 6)):
        lose(state, node, count)
    decision = request(state, gang)
    assert isinstance(decision, Wait)
    assert "given up" not in decision.reason
    monkeypatch.setattr(assignment, "MOST_IN_A_SEARCH", 0)
    forget_waits(state)
    decision = request(state, gang)
    assert isinstance(decision, Wait)
    assert decision.reason.endswith("the search was given up after 1024 tries")


def test_the_journal_grows_on_the_way() -> None:
    state = small_journal(big_nodes(Rules.BETTER), 8)
    run(state, pod("one", members=((1, 1),)))
    run(state, pod("gang", members=((1, 2), (1, 3))))
    check_invariants(state)


def test_an_offer_is_searched_as_completely() -> None:
    state = big_nodes(Rules.BETTER)
    run(state, pod("two", members=((1, 2),)))
    gang = pod("gang", members=((1, 2), (1, 3)))
    nodes = np.ones((2, 2), np.bool_)
    decision = handle(state, ScheduleRequested(gang, offer=Offer(nodes, np.zeros_like(nodes))))
    assert isinstance(decision, Bind)


def test_new_states_of_bad_nodes_wait_without_a_search() -> None:
    state = new_state(rack_cluster(rules=Rules.BETTER))
    assert isinstance(request(state, pod("one")), Wait)
    handle(state, NodeHealthChanged("n0", True))
    assert isinstance(request(state, pod("one")), Bind)
