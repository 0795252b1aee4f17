"""Better rules: nobody leaves needlessly, gangs are near together, a VC chooses by its own state (rules 18)."""

from dataclasses import replace

import pytest

from hived.cells.state import State
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.events import LeavesLost, Phase, PodAllocated, ScheduleRequested
from hived.values.specs import (  # fmt: skip
    PodRequest,
    Rules,
    VirtualClusterSpec,
    WorkTimes,
)
from tests.core.builders import (
    better_state,
    delete,
    healthy_state,
    held_nodes,
    node_mask,
    pod,
    quota,
    rack_cluster,
    request,
    run,
    set_nodes,
    tree_cluster,
    victim_uids,
)


def racks_of_eight(*vcs: VirtualClusterSpec) -> State:
    """Six racks of eight nodes of eight GPUs."""
    return better_state(rack_cluster(*vcs, racks=6, nodes=8, gpus=8))


def nodes_of(state: State, group: str) -> set[str]:
    return set(held_nodes(state, group))


def rack_of(node: str, per_rack: int = 8) -> int:
    return int(node.removeprefix("n")) // per_rack


def racks_used(state: State, group: str, per_rack: int = 8) -> set[int]:
    return {rack_of(node, per_rack) for node in nodes_of(state, group)}


def run_at(state: State, wanted: PodRequest, started_s: float) -> None:
    """Start a pod at this time."""
    decision = request(state, wanted)
    assert isinstance(decision, Bind), decision
    handle(state, PodAllocated(wanted, decision.bind_info, times=WorkTimes(started_s)))


def victims_at(state: State, wanted: PodRequest, now_s: float) -> set[str]:
    """The pods that have to leave for another one at this time."""
    return set(victim_uids(handle(state, ScheduleRequested(wanted, Phase.FILTERING, now_s=now_s))))


# --- nobody leaves needlessly --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rules", "kind"), [(Rules.HIVED, Preempt), (Rules.BETTER, Bind)])
def test_a_new_node_is_in_another_rack_if_the_rest_of_this_one_is_lent(rules: Rules, kind: type) -> None:
    vcs = quota("A", {"RACK.NODE": 24}), quota("B", {"RACK.NODE": 24})
    state = healthy_state(replace(rack_cluster(*vcs, racks=6, nodes=8, gpus=8), rules=rules))
    run(state, pod("a1", members=((1, 8),)))
    (own,) = nodes_of(state, "a1")
    lent = pod("o", vc="B", priority=-1, members=((7, 8),), ignore_suggested_nodes=False)
    rest = [f"n{number}" for number in range(48) if rack_of(f"n{number}") == rack_of(own) and f"n{number}" != own]
    decision = request(state, lent, Phase.FILTERING, *rest)
    assert isinstance(decision, Bind)
    handle(state, PodAllocated(lent, decision.bind_info))
    assert isinstance(request(state, pod("a2", members=((1, 8),))), kind)


def test_opportunistic_pods_keep_off_nodes_that_a_vc_has_begun_to_use() -> None:
    state = better_state(rack_cluster(gpus=4))
    run(state, pod("a", members=((1, 2),)))
    run(state, pod("o", vc="B", priority=-1, members=((1, 2),)))
    assert nodes_of(state, "a").isdisjoint(nodes_of(state, "o"))
    run(state, pod("b", members=((1, 2),)))  # packs onto A's node, and evicts nobody
    assert nodes_of(state, "b") == nodes_of(state, "a")


def test_opportunistic_gangs_keep_off_racks_that_a_vc_has_begun_to_use() -> None:
    state = racks_of_eight(quota("A", {"RACK": 3}), quota("B", {"RACK": 3}))
    run(state, pod("a1", members=((1, 8),)))
    run(state, pod("o", vc="B", priority=-1, members=((4, 8),)))
    assert racks_used(state, "o").isdisjoint(racks_used(state, "a1"))
    run(state, pod("a2", members=((8, 8),)))
    assert len(racks_used(state, "a2")) == 1
    assert nodes_of(state, "a2").isdisjoint(nodes_of(state, "o"))


def test_an_opportunistic_pod_takes_the_rest_of_a_used_node_where_nothing_else_is_left() -> None:
    state = better_state(rack_cluster(racks=1, nodes=2, gpus=4))
    run(state, pod("a", members=((1, 2),)))
    run(state, pod("b", vc="B", members=((1, 4),)))
    assert isinstance(request(state, pod("o", vc="B", priority=-1, members=((1, 2),))), Bind)


def test_no_more_free_cells_are_lent_than_are_left_over_when_all_claims_are_met() -> None:
    state = better_state(rack_cluster(quota("A", {"RACK.NODE": 6}), quota("B", {"RACK": 1}), racks=3, nodes=4, gpus=2))
    for number in range(5):
        run(state, pod(f"a{number}", members=((1, 2),)))
    for number in range(3):  # two of A's second rack are left over, and B claims the third rack as a whole
        run(state, pod(f"o{number}", vc="B", priority=-1, members=((1, 2),)))
    assert len({rack_of(node, 4) for number in range(3) for node in nodes_of(state, f"o{number}")}) == 2
    run(state, pod("a5", members=((1, 2),)))
    check_invariants(state)


def test_a_rack_is_split_of_which_nothing_is_lent() -> None:
    state = better_state(rack_cluster(quota("A", {"RACK.NODE": 8}), quota("B", {"RACK": 2}), racks=4, nodes=4, gpus=2))
    for number in range(4):
        run(state, pod(f"a{number}", members=((1, 2),)))
    run(state, pod("o", vc="B", priority=-1, members=((2, 2),)))
    for number in range(4, 8):  # the rest of the rack that is split now is A's
        run(state, pod(f"a{number}", members=((1, 2),)))
    assert "o" in state.groups
    check_invariants(state)


def test_the_own_choice_goes_before_another_one_that_evicts_nobody() -> None:
    """Else an 8-GPU job would wait for two nodes of A, where it waits for none in a private cluster."""
    state = own_node_is_lent()
    assert victims_at(state, pod("b", members=((1, 2),)), 1.0) == {"o"}


def test_a_sparing_vc_takes_another_node_of_its_own_rather_than_to_evict() -> None:
    state = own_node_is_lent(spares=True)
    decision = request(state, pod("b", members=((1, 2),)))
    assert isinstance(decision, Bind)
    assert decision.bind_info.node not in nodes_of(state, "a")


def own_node_is_lent(*, spares: bool = False) -> State:
    """A has two nodes, and a job on half of one; the other half is lent, and so is half of B's node."""
    vc = replace(quota("A", {"RACK.NODE": 2}), spares=spares)
    state = better_state(rack_cluster(vc, quota("B", {"RACK.NODE": 1}), racks=1, nodes=3, gpus=4))
    run(state, pod("a", members=((1, 2),)))
    run(state, pod("x", vc="B", members=((1, 4),)))
    run(state, pod("filler", vc="B", priority=-1, members=((1, 4),)))
    run(state, pod("o", vc="B", priority=-1, members=((1, 2),)))
    delete(state, pod("filler"))
    assert nodes_of(state, "o") == nodes_of(state, "a")
    return state


@pytest.mark.parametrize("is_lent", [False, True])
def test_lent_leaves_of_a_gang_on_two_nodes_never_make_a_later_job_wait(is_lent: bool) -> None:
    """Job j belongs beside the gang on the node of lower number, so that k joins it and leaves a third node to y."""
    state = better_state(
        rack_cluster(quota("A", {"RACK.NODE": 3}), quota("B", {"RACK.NODE": 1}), racks=1, nodes=4, gpus=8)
    )
    whole = [pod(f"a{number}", members=((1, 8),)) for number in range(3)]
    for each in whole:
        run(state, each)
    run(state, pod("b", vc="B", members=((1, 8),)))
    delete(state, whole[0], whole[2])
    run(state, pod("g", members=((2, 5),)))
    lent = pod("o", vc="B", priority=-1, members=((1, 3),))
    if is_lent:
        run(state, lent)
    delete(state, whole[1])
    if isinstance(request(state, pod("j", members=((1, 1),))), Preempt):
        delete(state, lent)
    run(state, pod("j", members=((1, 1),)))
    short = pod("y", members=((1, 6),))
    run(state, short)
    run(state, pod("k", members=((1, 1),)))
    delete(state, short)
    assert isinstance(request(state, pod("next", members=((1, 8),))), Bind)


# --- if somebody has to leave, those with the least lost work --------------------------------------------------------


def test_a_gang_gets_the_same_cells_of_its_vc_whether_somebody_had_to_leave_or_not() -> None:
    """Its second size is placed first, so the cells are not chosen in the order of its pods."""
    found = []
    for is_lent in (False, True):
        state = better_state(rack_cluster(quota("A", {"RACK": 1}), racks=1, nodes=4))
        lent = [pod(f"lent-{number}", priority=-1) for number in range(4)] if is_lent else []
        for each in lent:
            run(state, each)
        gang = pod("gang", members=((3, 1), (1, 2)))
        assert isinstance(request(state, gang, Phase.PREEMPTING), Preempt if is_lent else Bind)
        delete(state, *lent)
        run(state, gang)
        check_invariants(state)
        virtual = state.groups["gang"].virtual
        assert virtual is not None
        found.append(virtual.tolist())
    assert found[0] == found[1]


def test_the_group_that_started_last_leaves() -> None:
    state = better_state(rack_cluster())
    for number, started in enumerate((50.0, 10.0, 90.0, 70.0)):
        run_at(state, pod(f"o{number}", vc="B", priority=-1), started)
    assert victims_at(state, pod("a"), 100.0) == {"o2"}


def test_a_group_on_two_nodes_counts_as_a_whole() -> None:
    state = better_state(rack_cluster())
    run_at(state, pod("gang", vc="B", priority=-1, members=((2, 2),)), 60.0)
    run_at(state, pod("o1", vc="B", priority=-1), 30.0)
    run_at(state, pod("o2", vc="B", priority=-1), 0.0)
    assert victims_at(state, pod("a"), 100.0) == {"o1"}  # 2 x 70 leaf-seconds; the gang loses 4 x 40


def test_two_small_groups_leave_for_a_node_rather_than_a_larger_loss() -> None:
    state = better_state(rack_cluster(racks=1))
    run_at(state, pod("big", vc="B", priority=-1), 0.0)
    run_at(state, pod("s1", vc="B", priority=-1, members=((1, 1),)), 80.0)
    run_at(state, pod("s2", vc="B", priority=-1, members=((1, 1),)), 90.0)
    assert victims_at(state, pod("a"), 100.0) == {"s1", "s2"}


def test_of_equal_losses_fewer_groups_leave() -> None:
    state = better_state(rack_cluster(racks=1))
    for name in ("s1", "s2"):
        run_at(state, pod(name, vc="B", priority=-1, members=((1, 1),)), 50.0)
    run_at(state, pod("one", vc="B", priority=-1), 50.0)
    assert victims_at(state, pod("a"), 100.0) == {"one"}


def test_elastic_groups_leave_before_others() -> None:
    state = better_state(rack_cluster(racks=1))
    run_at(state, pod("job", vc="B", priority=-1), 90.0)
    run_at(state, pod("extra", vc="B", priority=-1, elastic=True), 0.0)
    assert victims_at(state, pod("a"), 100.0) == {"extra"}


def test_within_a_vc_the_lower_priority_that_loses_least_leaves() -> None:
    state = better_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    for number, started in enumerate((50.0, 10.0, 90.0, 70.0)):
        run_at(state, pod(f"p{number}", priority=number), started)
    assert victims_at(state, pod("high", priority=5), 100.0) == {"p2"}
    assert victims_at(state, pod("low", priority=2), 100.0) == {"p0"}
    assert isinstance(request(state, pod("lowest", priority=0)), Wait)


def test_a_group_that_leaves_lazily_keeps_its_cells_where_others_are_free() -> None:
    spec = rack_cluster(quota("A", {"RACK.NODE": 1}), quota("B", {"RACK.NODE": 3}))
    state = better_state(spec)
    run(state, pod("lazy", lazy_preemption=True))
    decision = run(state, pod("high", priority=1))
    assert decision.lazily_preempted == ("lazy",)
    assert nodes_of(state, "lazy").isdisjoint(nodes_of(state, "high"))
    check_invariants(state)


def test_a_search_for_victims_that_is_cut_short_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEWEST_SETS", "MOST_SETS"):
        monkeypatch.setattr(f"hived.better_rules.victim_choice.{name}", 3)
    state = better_state(rack_cluster(racks=4))
    for number in range(16):
        run_at(state, pod(f"o{number}", vc="B", priority=-1, members=((1, 1),)), float(number * 5 % 16))
    decision = handle(state, ScheduleRequested(pod("a"), Phase.PREEMPTING, now_s=100.0))
    assert isinstance(decision, Preempt)
    assert decision.gave_up


# --- near together, and full cells first -----------------------------------------------------------------------------


def test_a_gang_over_several_cells_of_its_vc_is_below_one_rack() -> None:
    state = racks_of_eight(quota("A", {"RACK.NODE": 24}), quota("B", {"RACK.NODE": 24}))
    for number in range(5):
        run(state, pod(f"b{number}", vc="B" if number % 2 else "A", members=((1, 8),)))
        run(state, pod(f"o{number}", vc="B", priority=-1, members=((3, 8),)))
        run(state, pod(f"g{number}", vc="A" if number % 2 else "B", members=((4, 8),)))
        assert len(racks_used(state, f"g{number}")) == len(racks_used(state, f"o{number}")) == 1
    check_invariants(state)


def test_gangs_are_near_together_whether_their_vc_packs_by_topology_or_not() -> None:
    infos = []
    for packs in (False, True):
        state = racks_of_eight(*(replace(quota(name, {"RACK.NODE": 24}), packs_by_topology=packs) for name in "AB"))
        run(state, pod("x", members=((1, 4),)))
        infos.append(run(state, pod("g", members=((8, 8),))).bind_info)
        assert len(racks_used(state, "g")) == 1
    assert infos[0] == infos[1]


def test_small_pods_fill_the_fullest_node() -> None:
    state = racks_of_eight(quota("A", {"RACK.NODE": 24}), quota("B", {"RACK.NODE": 24}))
    run(state, pod("five", members=((1, 5),)))
    run(state, pod("four", members=((1, 4),)))
    fullest = nodes_of(state, "five")
    assert nodes_of(state, "four").isdisjoint(fullest)
    for name, size in (("one", 1), ("two", 2)):
        run(state, pod(name, members=((1, size),)))
        assert nodes_of(state, name) == fullest


def test_of_equally_full_nodes_that_in_the_fullest_rack_comes_first() -> None:
    state = racks_of_eight(quota("A", {"RACK": 3}), quota("B", {"RACK": 3}))
    run(state, pod("a", members=((8, 8),)))
    run(state, pod("b", members=((5, 8),)))
    delete(state, *(pod(f"a-{number}", "a", members=((8, 8),)) for number in range(8)), pod("a", members=((8, 8),)))
    run(state, pod("c", members=((3, 8),)))
    assert racks_used(state, "c") == racks_used(state, "b")


def test_a_gang_is_kept_within_the_cell_that_it_wishes() -> None:
    state = racks_of_eight(quota("A", {"RACK.NODE": 24}), quota("B", {"RACK.NODE": 24}))
    run(state, pod("x", vc="B", members=((7, 8),)))
    run(state, pod("y", vc="B", members=((7, 8),)))
    for number in range(4):
        run(state, pod(f"a{number}", members=((4, 8),), within_cell="RACK"))
        assert len(racks_used(state, f"a{number}")) == 1
    wide = request(state, pod("wide", members=((9, 8),), within_cell="RACK"))
    assert isinstance(wide, Wait)


def test_a_gang_of_several_sizes_fits_if_the_larger_pods_come_first() -> None:
    state = better_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1, gpus=4))
    run(state, pod("x", members=((1, 2),)))
    assert isinstance(request(state, pod("g", members=((1, 2), (1, 4)))), Bind)
    assert isinstance(request(state, pod("h", priority=-1, members=((1, 2), (1, 3)))), Bind)


# --- bad hardware -------------------------------------------------------------------------------------------------


def test_lost_leaves_and_nodes_that_are_not_suggested_are_passed_over() -> None:
    state = better_state(rack_cluster(gpus=4))
    handle(state, LeavesLost("n0", "GPU", 2))
    run(state, pod("whole", members=((1, 4),), ignore_suggested_nodes=False))
    assert "n0" not in nodes_of(state, "whole")
    only = handle(
        state,
        ScheduleRequested(
            pod("two", vc="B", ignore_suggested_nodes=False), Phase.FILTERING, node_mask(state, ["n0", "n1"])
        ),
    )
    assert isinstance(only, Bind)
    assert only.bind_info.node in {"n0", "n1"}
    check_invariants(state)


def run_opportunistic_on(state: State, name: str, *nodes: str) -> None:
    """Start an opportunistic pod of a whole node of four on one of these nodes."""
    lent = pod(name, priority=-1, members=((1, 4),), ignore_suggested_nodes=False)
    decision = request(state, lent, Phase.FILTERING, *nodes)
    assert isinstance(decision, Bind)
    handle(state, PodAllocated(lent, decision.bind_info))


def test_a_doomed_rack_goes_to_other_bad_hardware_rather_than_that_somebody_leaves() -> None:
    vcs = quota("A", {"RACK": 1, "RACK.NODE": 1}), quota("B", {"RACK.NODE": 1})
    state = better_state(rack_cluster(*vcs, gpus=4))
    set_nodes(state, "n1", "n2", is_healthy=False)  # the rack of n0 is doomed, to be shown to A as bad
    run_opportunistic_on(state, "lent", "n3")
    wanted = pod("whole", members=((1, 4),))
    run(state, wanted)
    assert nodes_of(state, "whole") == {"n0"}
    check_invariants(state)
    delete(state, wanted)
    check_invariants(state)


def test_a_rack_with_more_bad_nodes_is_no_way_to_spare_somebody() -> None:
    state = better_state(rack_cluster(quota("A", {"RACK": 1}), quota("B", {"RACK": 1}), nodes=3, gpus=4))
    set_nodes(state, "n1", "n3", "n4", is_healthy=False)
    for name, node in (("x", "n0"), ("y", "n2")):
        run_opportunistic_on(state, name, node)
    assert isinstance(request(state, pod("first", members=((1, 4),))), Preempt)
    assert isinstance(request(state, pod("second", vc="B", members=((1, 4),))), Bind)


@pytest.mark.parametrize(("spares", "expected"), [(False, Preempt), (True, Bind)])
def test_a_rack_with_a_bad_node_is_taken_before_somebody_leaves_by_a_sparing_vc_alone(
    spares: bool, expected: type[Bind | Preempt]
) -> None:
    vc = replace(quota("A", {"RACK": 1}), spares=spares)
    state = better_state(rack_cluster(vc, racks=2, nodes=2, gpus=4))
    set_nodes(state, "n0", is_healthy=False)
    for node in ("n2", "n3"):
        run_opportunistic_on(state, f"lent-{node}", node)
    assert isinstance(request(state, pod("one", members=((1, 4),))), expected)


@pytest.mark.parametrize("spares", [False, True])
def test_a_rack_with_a_bad_node_is_split_before_the_healthy_one_of_another_vc(spares: bool) -> None:
    vcs = quota("A", {"RACK": 1}), replace(quota("B", {"RACK.NODE": 1}), spares=spares)
    state = better_state(rack_cluster(*vcs, gpus=4))
    set_nodes(state, "n0", is_healthy=False)
    run_opportunistic_on(state, "lent", "n1")
    small = pod("small", vc="B", members=((1, 4),))
    decision = request(state, small, Phase.PREEMPTING)
    assert isinstance(decision, Preempt)
    assert decision.victims_by_node.keys() == {"n1"}
    whole = pod("whole", members=((2, 4),))
    assert isinstance(request(state, whole), Bind)


def test_a_good_rack_is_split_if_no_other_choice_leaves_it_whole() -> None:
    vcs = quota("A", {"RACK": 1}), quota("B", {"RACK.NODE": 1})
    state = better_state(rack_cluster(*vcs, gpus=4))
    set_nodes(state, "n0", "n1", is_healthy=False)
    run(state, pod("small", vc="B", members=((1, 4),)))
    assert nodes_of(state, "small") <= {"n2", "n3"}
    check_invariants(state)


def test_the_next_rack_of_a_vc_that_a_group_leaves_lazily_has_no_bad_node() -> None:
    state = better_state(rack_cluster(quota("A", {"RACK": 1}), racks=3, gpus=4))
    run(state, pod("lazy", members=((2, 4),), lazy_preemption=True))
    damaged, lent = sorted({0, 1, 2} - racks_used(state, "lazy", 2))
    set_nodes(state, f"n{2 * damaged}", is_healthy=False)
    for number in (0, 1):
        run_opportunistic_on(state, f"lent-{number}", f"n{2 * lent + number}")
    decision = request(state, pod("high", priority=1, members=((1, 4),)), Phase.PREEMPTING)
    assert isinstance(decision, Preempt)
    assert decision.lazily_preempted == ("lazy",)
    assert racks_used(state, "high", 2) == {lent}


def test_where_the_own_choice_has_bad_hardware_alone_another_one_evicts_nobody() -> None:
    vc = quota("A", {"RACK.NODE": 3, "RACK.NODE.PAIR": 2})
    state = better_state(tree_cluster({"RACK": 2, "NODE": 2, "PAIR": 2}, vc, tops=2))
    run(state, pod("x", members=((1, 2),)))
    (own,) = nodes_of(state, "x")
    set_nodes(state, own, is_healthy=False)  # the other pair of this node is the only hardware for A's second one
    for number in range(2):
        run_opportunistic_on(state, f"lent{number}", *(f"n{i}" for i in range(4) if f"n{i}" != own))
    decision = request(state, pod("y", members=((1, 2),)))
    assert isinstance(decision, Bind)
    assert decision.bind_info.node not in {own, *nodes_of(state, "lent0"), *nodes_of(state, "lent1")}
