"""Cells of elastic groups are the first that others take."""

import pytest

from hived.cells.state import State
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Preempt
from hived.values.errors import UserError
from hived.values.events import GroupSplit, Phase
from tests.core.builders import delete, healthy_state, held_nodes, pod, quota, rack_cluster, request, run, victim_uids

ALL_OF_A = rack_cluster(quota("A", {"RACK.NODE": 4}))


def victims(state: State, priority: int = 5, count: int = 1, size: int = 2) -> set[str]:
    decision = request(state, pod("strong", priority=priority, members=((count, size),)))
    return set(victim_uids(decision))


@pytest.mark.parametrize("elastic", range(4))
def test_an_elastic_group_leaves_before_groups_of_its_priority(elastic: int) -> None:
    state = healthy_state(ALL_OF_A)
    for number in range(4):
        run(state, pod(f"p{number}", elastic=number == elastic))
    assert victims(state) == {f"p{elastic}"}


def test_an_elastic_group_leaves_even_before_those_of_lower_priority() -> None:
    state = healthy_state(ALL_OF_A)
    for number in range(4):
        run(state, pod(f"p{number}", priority=int(number == 2), elastic=number == 2))
    assert victims(state) == {"p2"}


def test_an_elastic_group_does_not_leave_for_its_own_priority() -> None:
    state = healthy_state(ALL_OF_A)
    for number in range(4):
        run(state, pod(f"p{number}", priority=5 * (number == 2), elastic=number == 2))
    assert "p2" not in victims(state)


def test_others_leave_as_well_where_elastic_ones_do_not_suffice() -> None:
    state = healthy_state(ALL_OF_A)
    for number in range(4):
        run(state, pod(f"p{number}", elastic=number == 3))
    assert len(victims(state, count=2)) == 2


def test_within_a_node_elastic_leaves_are_taken_first() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), racks=1, nodes=1, gpus=4))
    for number in range(4):
        run(state, pod(f"p{number}", members=((1, 1),), elastic=number in (1, 3)))
    assert victims(state, size=2) == {"p1", "p3"}
    assert victims(state, size=3) == {"p0", "p1", "p3"}


def test_lent_cells_of_elastic_groups_are_taken_back_first() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {"RACK.NODE": 2})))
    for number in range(4):
        run(state, pod(f"o{number}", vc="B", priority=-1, elastic=number == 2))
    assert victims(state, priority=0) == {"o2"}


def test_a_place_with_fewer_elastic_lent_cells_is_better_than_one_with_more() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), quota("B", {"RACK.NODE": 1}), racks=1))
    run(state, pod("o0", vc="B", priority=-1, members=((1, 2),), elastic=True))
    run(state, pod("o1", vc="B", priority=-1, members=((1, 1),), elastic=True))
    assert victims(state, priority=0) == {"o1"}


def test_within_a_rack_elastic_groups_leave_first() -> None:
    state = healthy_state(ALL_OF_A)
    for number in range(4):
        run(state, pod(f"p{number}", elastic=number > 1))
    racks: dict[int, set[str]] = {}
    for number in range(4):
        racks.setdefault(int(held_nodes(state, f"p{number}")[0][1]) // 2, set()).add(f"p{number}")
    decision = request(state, pod("strong", priority=1, members=((2, 2),), within_cell="RACK"))
    assert isinstance(decision, Preempt)
    assert {uid for uids in decision.victims_by_node.values() for uid in uids} == {"p2", "p3"}


def test_the_pods_of_a_group_are_elastic_together() -> None:
    """Else it would depend on which of them the core heard of first, and on another one after a restart."""
    state = healthy_state(ALL_OF_A)
    run(state, pod("p0", "gang", members=((2, 2),), elastic=True))
    with pytest.raises(UserError, match="elastic is false, group has true"):
        request(state, pod("p1", "gang", members=((2, 2),)))


def test_each_part_of_a_split_group_has_its_own_flag() -> None:
    state = healthy_state(ALL_OF_A)
    run(state, pod("stand-in", "gang", members=((4, 2),)))
    parts = tuple(pod(f"p{number}", elastic=number == 1) for number in range(4))
    handle(state, GroupSplit("gang", parts))
    check_invariants(state)
    assert victims(state) == {"p1"}


def test_cells_that_are_reserved_by_another_group_are_not_elastic_any_more() -> None:
    state = healthy_state(ALL_OF_A)
    for number in range(4):
        run(state, pod(f"p{number}", elastic=number == 3))
    strong = pod("taker", priority=5)
    request(state, strong, Phase.PREEMPTING)
    check_invariants(state)
    assert "p3" not in victims(state, priority=7)
    delete(state, pod("p3", elastic=True), strong)
    check_invariants(state)
    assert not state.cells.elastic.any()
    assert state.elastic_group_count == 0


def test_lent_cells_given_back_to_an_elastic_group_count_again() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), racks=1, nodes=1))
    run(state, pod("lent", priority=-1, elastic=True))
    strong = pod("strong", priority=5)
    request(state, strong, Phase.PREEMPTING)
    assert state.cells.elastic_lent.sum() == 0
    delete(state, strong)
    check_invariants(state)
    assert state.cells.elastic_lent.max() == 2
