"""Groups with an offer of Kubernetes: nodes that are refused, nodes that others have to leave, rules between pods."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hived.cells.state import State
from hived.complete import assignment, offered_placement, pod_classes
from hived.complete import domains as domain_choice
from hived.complete.offers import keeps_rules
from hived.scenario import Asked, Scenario
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Limit, Offer, Phase, PodAllocated, ScheduleRequested, Spread, Together
from hived.values.specs import PodRequest
from tests.core.builders import (
    delete,
    fingerprint,
    healthy_state,
    held_nodes,
    node_mask,
    pod,
    pods_of_racks,
    quota,
    rack_cluster,
    reason,
    run,
    set_nodes,
)


def offer(
    state: State, *nodes: Sequence[str], after: Sequence[Sequence[str]] = (), rules: tuple[Any, ...] = ()
) -> Offer:
    """One row of node names for each slot."""
    rows = [node_mask(state, own) for own in after] or [node_mask(state, ())] * len(nodes)
    return Offer(np.array([node_mask(state, own) for own in nodes]), np.array(rows), rules)


def ask(state: State, wanted: PodRequest, offered: Offer, phase: Phase = Phase.FILTERING) -> Decision:
    return handle(state, ScheduleRequested(wanted, phase, offer=offered))


def start(state: State, wanted: PodRequest, offered: Offer) -> list[str]:
    """Ask, carry out what must be a Bind, and return the node of each pod."""
    decision = ask(state, wanted, offered)
    assert isinstance(decision, Bind), decision
    handle(state, PodAllocated(wanted, decision.bind_info, decision.lazily_preempted))
    check_invariants(state)
    assert decision.bind_info.node
    return [place.node for member in decision.bind_info.members for place in member]


def by_node(state: State) -> Any:
    return np.arange(len(state.topology.node_names), dtype=np.int32)


def by_rack(state: State, nodes: int) -> Any:
    return (by_node(state) // nodes).astype(np.int32)


def one_each(count: int, domains: int) -> tuple[Any, Any]:
    """Weights and room of anti-affinity."""
    return np.ones(count, np.int64), np.ones(domains, np.int64)


# --- nodes ---------------------------------------------------------------------------------------------------------


def half_tainted() -> tuple[State, list[str]]:
    """A VC of two racks of four nodes of 8 GPUs, another of as many; half of each rack is refused."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 2}), quota("B", {"RACK": 2}), racks=4, nodes=4, gpus=8))
    return state, [f"n{number}" for number in range(16) if number % 4 < 2]


def test_single_pods_use_what_is_left_of_both_racks() -> None:
    state, allowed = half_tainted()
    used = [start(state, pod(f"p{i}", members=((1, 8),)), offer(state, allowed))[0] for i in range(4)]
    assert len(set(used)) == 4
    assert set(used) <= set(allowed)


def test_a_gang_uses_what_is_left_of_both_racks() -> None:
    state, allowed = half_tainted()
    assert len(set(start(state, pod("gang", members=((4, 8),)), offer(state, *[allowed] * 4)))) == 4


def test_a_fifth_pod_waits_as_racks_of_other_vcs_stay_whole() -> None:
    state, allowed = half_tainted()
    told = reason(ask(state, pod("gang", members=((5, 8),)), offer(state, *[allowed] * 5)))
    assert told == (
        "the nodes of VC A that Kubernetes offers have no room for pods of 5x8 GPUs"
        " (it refuses 8 of the VC's 16 nodes to all of the pods)"
    )


def test_a_node_that_is_used_in_part_and_refused_does_not_hold_up_the_vc() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1, nodes=3, gpus=4))
    (used,) = start(state, pod("x", members=((1, 2),)), offer(state, ["n0"]))
    assert used == "n0"
    assert start(state, pod("y", members=((1, 2),)), offer(state, ["n2"])) == ["n2"]
    told = reason(ask(state, pod("z", members=((1, 2),)), offer(state, ["n1"])))
    assert told == (
        "no node of VC A that Kubernetes offers has 2 free GPUs in one piece (it refuses 2 of the VC's 2 nodes)"
    )


def test_missing_capacity_keeps_its_reason() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), racks=1))
    run(state, pod("x"))
    told = reason(ask(state, pod("y"), offer(state, ["n1"])))
    assert told == "insufficient capacity when scheduling in VC A"


def test_a_bad_node_keeps_its_reason() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1))
    set_nodes(state, "n0", "n1", is_healthy=False)
    assert "bad node" in reason(ask(state, pod("x"), offer(state, ["n0", "n1"])))


def test_each_member_goes_where_it_may_although_they_have_to_change_places() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4}), racks=1, nodes=4))
    rows = [["n0", "n1"], ["n0"], ["n1", "n2", "n3"], ["n1", "n2"]]
    assert start(state, pod("gang", members=((4, 2),)), offer(state, *rows)) == ["n1", "n0", "n3", "n2"]


def test_an_opportunistic_gang_keeps_to_the_offer_too() -> None:
    state = healthy_state(rack_cluster(racks=2))
    rows = [["n2", "n1"], ["n2"]]
    assert start(state, pod("gang", priority=-1, members=((2, 2),)), offer(state, *rows)) == ["n1", "n2"]


def test_a_pinned_cell_is_searched_as_a_whole() -> None:
    spec = rack_cluster(quota("A", {}, ("pin",)), racks=1)
    spec = replace(spec, physical_cells=(replace(spec.physical_cells[0], pinned_cell_id="pin"),))
    for node in ("n0", "n1"):
        state = healthy_state(spec)
        assert start(state, pod("x", pinned_cell_id="pin"), offer(state, [node])) == [node]


def test_a_gang_that_has_to_be_below_one_rack_takes_the_rack_that_is_offered() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 6}), racks=3))
    rows = [["n0", "n2", "n5"], ["n2", "n4", "n1", "n3"]]
    rack = start(state, pod("gang", members=((2, 2),), within_cell="RACK"), offer(state, *rows))
    assert rack in [["n0", "n1"], ["n2", "n3"], ["n5", "n4"]]
    told = reason(
        ask(state, pod("no", members=((2, 2),), within_cell="RACK"), offer(state, ["n0", "n1"], ["n2", "n3"]))
    )
    assert told.startswith("the nodes of VC A that Kubernetes offers have no room for pods of 2x2 GPUs")


def test_a_gang_that_prefers_one_rack_is_spread_if_no_rack_is_offered() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 6}), racks=3))
    gang = pod("gang", members=((2, 2),), within_cell="RACK", within_is_required=False)
    assert start(state, gang, offer(state, ["n0"], ["n2", "n4"])) == ["n0", "n2"]


# --- nodes that others have to leave -------------------------------------------------------------------------------


def test_others_leave_a_node_that_is_full_but_never_one_that_is_refused() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1))
    for name in ("x", "y"):
        run(state, pod(name))
    node = held_nodes(state, "y")[0]
    urgent = pod("urgent", priority=1)
    decision = ask(state, urgent, offer(state, [], after=[[node]]))
    assert isinstance(decision, Preempt)
    assert decision.victims_by_node == {node: ("y",)}
    told = reason(ask(state, urgent, offer(state, [])))
    assert told.endswith("(it refuses 2 of the VC's 2 nodes)")


def test_a_node_that_others_would_have_to_leave_is_not_used_beside_them() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), racks=1, nodes=1, gpus=4))
    run(state, pod("x", members=((1, 2),)))
    told = reason(ask(state, pod("y", members=((1, 2),)), offer(state, [], after=[["n0"]])))
    assert told.endswith("(pods would have to leave the VC's nodes first)")


def test_opportunistic_pods_leave_although_there_are_idle_cells_beside_them() -> None:
    """The node's CPU is used up: the pod fits only if the other one goes."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), racks=1, nodes=1, gpus=4))
    run(state, pod("lent", priority=-1, members=((1, 1),)))
    decision = ask(state, pod("x", members=((1, 2),)), offer(state, [], after=[["n0"]]))
    assert isinstance(decision, Preempt)
    assert decision.victims_by_node == {"n0": ("lent",)}


def test_an_idle_node_goes_before_one_that_somebody_has_to_leave() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 3}), racks=1, nodes=3))
    run(state, pod("lent", priority=-1, members=((2, 2),)))
    lent = set(held_nodes(state, "lent"))
    idle = next(node for node in state.topology.node_names if node not in lent)
    assert start(state, pod("x"), offer(state, [idle], after=[sorted(lent)])) == [idle]


def test_a_group_that_may_leave_the_vc_gives_its_claim_up_and_keeps_its_cells() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), racks=1))
    lazy = pod("lazy", lazy_preemption=True)
    assert start(state, lazy, offer(state, ["n0"])) == ["n0"]
    decision = ask(state, pod("urgent", priority=1), offer(state, ["n1"]))
    assert isinstance(decision, Bind)
    assert decision.lazily_preempted == ("lazy",)
    handle(state, PodAllocated(pod("urgent", priority=1), decision.bind_info, decision.lazily_preempted))
    check_invariants(state)
    assert state.groups["lazy"].virtual is None
    assert state.groups["urgent"].virtual is not None


def test_only_as_many_groups_leave_the_vc_as_have_to() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 3}), racks=1, nodes=5))
    for number in range(3):
        start(state, pod(f"lazy{number}", priority=number, lazy_preemption=True), offer(state, [f"n{number}"]))
    decision = ask(state, pod("gang", priority=5, members=((2, 2),)), offer(state, ["n3"], ["n4"]))
    assert isinstance(decision, Bind)
    assert decision.lazily_preempted == ("lazy0", "lazy1")


# --- reservations --------------------------------------------------------------------------------------------------


def reserving() -> tuple[State, PodRequest, str]:
    """A group that waits for a node until its user has left."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1))
    run(state, pod("x"))
    run(state, pod("y"))
    urgent, node = pod("urgent", priority=1), held_nodes(state, "x")[0]
    assert isinstance(ask(state, urgent, offer(state, [], after=[[node]]), Phase.PREEMPTING), Preempt)
    return state, urgent, node


def other(state: State, node: str) -> str:
    return next(name for name in state.topology.node_names if name != node)


def test_a_group_keeps_its_reservation_on_a_node_that_others_are_leaving() -> None:
    state, urgent, node = reserving()
    decision = ask(state, urgent, offer(state, [], after=[[node]]), Phase.PREEMPTING)
    assert isinstance(decision, Preempt)
    assert decision.cancelled == ()


def test_a_group_gives_up_a_reservation_on_a_node_that_is_refused_by_now() -> None:
    state, urgent, node = reserving()
    decision = ask(state, urgent, offer(state, [], after=[[other(state, node)]]), Phase.PREEMPTING)
    assert isinstance(decision, Preempt)
    assert decision.cancelled == ("urgent",)
    assert set(decision.victims_by_node) == {other(state, node)}


def test_a_group_whose_node_is_refused_when_its_victims_have_left_is_placed_anew() -> None:
    state, urgent, node = reserving()
    delete(state, pod("x"), pod("y"))
    decision = ask(state, urgent, offer(state, [other(state, node)]))
    assert isinstance(decision, Bind)
    assert decision.bind_info.node == other(state, node)
    assert decision.cancelled == ("urgent",)


def test_a_group_gets_the_cells_that_it_reserved() -> None:
    state, urgent, node = reserving()
    delete(state, pod("x"))
    assert start(state, urgent, offer(state, [node])) == [node]


# --- rules ---------------------------------------------------------------------------------------------------------


def test_pods_that_refuse_each_other_go_to_four_nodes() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4}), racks=2, nodes=4, gpus=8))
    rule = Limit(by_node(state), *one_each(4, 8))
    nodes = start(state, pod("gang", members=((4, 4),)), offer(state, *[state.topology.node_names] * 4, rules=(rule,)))
    assert len(set(nodes)) == 4


def test_without_the_rule_they_would_share_nodes() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4}), racks=2, nodes=4, gpus=8))
    assert len(set(start(state, pod("gang", members=((4, 4),)), offer(state, *[state.topology.node_names] * 4)))) == 2


def that_refuse_each_other(count: int, *, refused: Sequence[str] = (), after: Sequence[str] = ()) -> str:
    """Why so many pods of four GPUs wait that want a node each, in a VC of four nodes of a cluster of eight."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4}), racks=2, nodes=4, gpus=8))
    before = fingerprint(state)
    offered = [name for name in state.topology.node_names if name not in (*refused, *after)]
    rule = Limit(by_node(state), *one_each(count, 8))
    wishes = offer(state, *[offered] * count, after=[after] * count, rules=(rule,))
    told = reason(ask(state, pod("gang", members=((count, 4),)), wishes))
    assert fingerprint(state) == before
    return told


def test_more_pods_than_nodes_wait_and_are_told_that_rules_are_in_the_way() -> None:
    assert that_refuse_each_other(5) == "the rules between its pods leave no room for pods of 5x4 GPUs in VC A"


def test_nobody_is_said_to_have_to_leave_where_that_would_not_help() -> None:
    """kube-scheduler names every node as a candidate for preemption, though nobody is there."""
    everywhere = [f"n{number}" for number in range(8)]
    assert that_refuse_each_other(5, after=everywhere) == that_refuse_each_other(5)


def test_nodes_that_are_refused_are_told_of_beside_the_rules() -> None:
    assert that_refuse_each_other(5, refused=["n7"]) == (
        "the nodes of VC A that Kubernetes offers have no room for pods of 5x4 GPUs"
        " (it refuses 1 of the VC's 8 nodes to all of the pods) where the pods' rules about each other hold"
    )


def test_pods_that_would_have_to_leave_are_told_of_beside_the_rules() -> None:
    told = that_refuse_each_other(4, after=[f"n{number}" for number in range(5)])
    assert told.endswith("(pods would have to leave the VC's nodes first) where the pods' rules about each other hold")


def test_a_gang_is_told_of_nodes_that_only_some_of_its_pods_are_refused() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1))
    gang = pod("gang", members=((2, 2),))
    told = reason(ask(state, gang, offer(state, ["n0"], ["n0"])))
    assert told.endswith("(it refuses 1 of the VC's 2 nodes to all of the pods)")
    told = reason(ask(state, gang, offer(state, [], ["n0", "n1"])))
    assert told.endswith("(it refuses 2 of the VC's 2 nodes to some of the pods)")
    told = reason(ask(state, gang, offer(state, [], ["n0"])))
    assert told.endswith("(it refuses 1 of the VC's 2 nodes to all and 1 to some of the pods)")


def test_pods_are_spread_over_racks() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 8}), racks=2, nodes=4))
    rule = Spread(by_rack(state, 4), np.ones(4, np.bool_), np.zeros(2, np.int64), 1)
    nodes = start(state, pod("gang", members=((4, 2),)), offer(state, *[state.topology.node_names] * 4, rules=(rule,)))
    assert sorted(int(name[1:]) // 4 for name in nodes) == [0, 0, 1, 1]


def test_pods_that_belong_together_go_to_the_one_rack_that_has_room_for_all() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 6}), racks=3))
    rule = Together(by_rack(state, 2), np.ones(2, np.bool_))
    allowed = ["n0", "n2", "n4", "n5"]
    assert start(state, pod("gang", members=((2, 2),)), offer(state, allowed, allowed, rules=(rule,))) == ["n4", "n5"]


def test_a_spread_that_counts_nobody_is_kept() -> None:
    domain = np.array([0, 1], np.int32)
    nobody = Spread(domain - domain - 1, np.zeros(2, np.bool_), np.zeros(0, np.int64), 1)
    rules = (nobody, Spread(domain, np.ones(2, np.bool_), np.zeros(2, np.int64), 2**63 - 1))
    assert keeps_rules((*rules, rules[1]), np.array([0, 1], np.int32))


def test_what_a_search_knows_of_its_rows_follows_each_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = []

    class Room(assignment.PodRoom):
        def count(self, number: int, row: int, change: int, *, is_open: bool) -> None:
            super().count(number, row, change, is_open=is_open)
            for kind, fits in self._known_fits.items():
                alike = next(alike for alike in self._classes if alike[:3] == kind)
                followed.append(bool((fits == self._count_fits(alike)).all()))
                known = self._known_sums.pop(kind)
                followed.append(bool((known == self._sums(kind, fits)).all()))
                if kind in self._known_most:
                    most = self._capacity.most_to_open(fits * self._unions[kind])
                    followed.append(most == self._known_most[kind])
            leaves, self._known_leaves = self._known_leaves, None
            self._have_leaves()
            if leaves is not None:
                followed.append(leaves == self._known_leaves)

    class Assignment(assignment.Assignment):
        def _follow_row(self, row: int) -> None:
            super()._follow_row(row)
            for number, keys in self._known_keys.items():
                followed.append(bool((keys == self._make_keys(number)).all()))

    monkeypatch.setattr(assignment, "PodRoom", Room)
    monkeypatch.setattr(offered_placement, "Assignment", Assignment)
    state = pods_of_racks()
    run(state, pod("other", members=((3, 1),)))
    names = state.topology.node_names
    offered = offer(state, *[names[2::2]] * 2, *[names[4::2]] * 3)
    assert isinstance(ask(state, pod("gang", members=((4, 1), (1, 2))), offered), Bind)
    assert len(followed) > 4
    assert all(followed)


def test_pods_that_are_alike_are_placed_without_a_look_at_every_row_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Assignment(assignment.Assignment):
        def _make_keys(self, number: int) -> Any:
            made.append(number)
            return super()._make_keys(number)

    monkeypatch.setattr(offered_placement, "Assignment", Assignment)
    state = pods_of_racks()
    offered = offer(state, *[state.topology.node_names[::2]] * 4)
    assert isinstance(ask(state, pod("gang", members=((4, 1),)), offered), Bind)
    assert made == [0, 0]  # before and after a preassigned cell was opened


def jobs_on_racks(jobs: int, racks: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Decision, int, int]:
    """Ask for jobs of two pods, each below a rack of its own; also how often pods and domains were searched."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": racks}), racks=racks, nodes=2, gpus=4))
    rack, slots = by_rack(state, 2), 2 * jobs
    rules: list[Limit | Together] = []
    for job in range(jobs):
        own = np.arange(slots) // 2 == job
        rules += [Together(rack, own), Limit(rack, 1 + own * (2 * slots), np.full(racks, 2 + 4 * slots, np.int64))]
    counts = [0, 0]

    class Assignment(assignment.Assignment):
        def find(self, *, proves: bool = False) -> list[assignment.Place] | None:
            counts[0] += 1
            return super().find(proves=proves)

    class Domains(domain_choice.Domains):
        def _candidates(self, *args: Any) -> list[int]:
            counts[1] += 1
            return super()._candidates(*args)

    monkeypatch.setattr(offered_placement, "Assignment", Assignment)
    monkeypatch.setattr(offered_placement, "Domains", Domains)
    offered = offer(state, *[state.topology.node_names] * slots, rules=tuple(rules))
    return ask(state, pod("gang", members=((slots, 1),)), offered), counts[0], counts[1]


def test_jobs_that_exclude_each_other_from_their_racks_are_placed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decision, searches, domains = jobs_on_racks(4, 4, monkeypatch)
    assert isinstance(decision, Bind)
    assert searches == 1
    assert domains <= 8


def test_a_search_for_domains_is_given_up_after_a_bounded_number_of_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    decision, searches, domains = jobs_on_racks(5, 4, monkeypatch)
    told = reason(decision)
    assert searches == 0
    assert domains <= assignment.MOST_TRIED
    monkeypatch.setattr(assignment, "MOST_IN_A_SEARCH", 8)
    given_up, _, fewer = jobs_on_racks(5, 4, monkeypatch)
    assert reason(given_up) == f"{told}; the search was given up after {assignment.MOST_TRIED} tries"
    assert fewer < domains


def test_jobs_that_no_rack_has_room_for_are_refused_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two jobs has three pods; a rack has two nodes, and each of them CPU for one pod."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 12}), racks=12, nodes=2, gpus=4))
    rack, first = by_rack(state, 2), np.arange(6) < 3
    cpu = Limit(by_node(state), np.full(6, 5, np.int64), np.full(24, 8, np.int64))
    monkeypatch.setattr(offered_placement, "Assignment", None)
    rules = (Together(rack, first), Together(rack, ~first), cpu)
    gang = pod("gang", members=((6, 1),))
    told = reason(ask(state, gang, offer(state, *[state.topology.node_names] * 6, rules=rules)))
    assert told == "the rules between its pods leave no room for pods of 6x1 GPUs in VC A"


def test_pods_with_one_row_of_memory_are_alike_without_a_copy_of_it() -> None:
    row = np.ones(1 << 22, np.bool_)
    rows = np.broadcast_to(row, (64, len(row)))
    tracemalloc.start()
    (alike,) = pod_classes.find_pod_classes(
        pod("gang", members=((len(rows), 1),)).spec.group.members, Offer(rows, rows)
    )
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(alike.slots) == len(rows)
    assert most < len(row)


def test_two_spreads_need_one_order_for_both() -> None:
    halves, thirds = np.array([0, 0, 1, 1], np.int32), np.array([0, 1, 0, 1], np.int32)
    rules = tuple(Spread(each, np.ones(4, np.bool_), np.zeros(2, np.int64), 1) for each in (halves, thirds))
    assert keeps_rules(rules, np.array([0, 1, 2, 3], np.int32))
    assert not keeps_rules(rules, np.array([0, 0, 2, 2], np.int32))


def test_a_search_is_given_up_after_a_bounded_number_of_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of 3, 3 and 2 GPUs want 8 on two nodes of 4: no bound sees that they do not fit."""
    monkeypatch.setattr(assignment, "MOST_IN_A_SEARCH", 0)
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 3}), racks=1, nodes=3, gpus=4))
    gang = pod("gang", members=((1, 2), (2, 3)))
    told = reason(ask(state, gang, offer(state, *[["n0", "n1"]] * 3)))
    assert told.endswith(f"; the search was given up after {assignment.MOST_TRIED} tries")


# --- what goes in --------------------------------------------------------------------------------------------------


def test_offers_are_planned_with_like_suggestions() -> None:
    state = healthy_state(rack_cluster(racks=2))
    before = fingerprint(state)
    asks = [Asked(pod(name), offer=offer(state, ["n3", "n1"])) for name in ("a", "b", "c")]
    (decisions,) = Scenario(state).plan([asks])
    assert not isinstance(decisions, UserError)
    assert {each.bind_info.node for each in decisions[:2] if isinstance(each, Bind)} == {"n1", "n3"}
    assert isinstance(decisions[2], Wait)
    assert fingerprint(state) == before


def test_a_pod_of_a_group_that_has_its_cells_waits_until_their_node_is_offered() -> None:
    state = healthy_state(rack_cluster(racks=1, nodes=4))
    gang = pod("a", "gang", members=((2, 2),))
    nodes = start(state, gang, offer(state, ["n0"], ["n2"]))
    refused = ask(state, pod("b", "gang", members=((2, 2),)), offer(state, [], []))
    assert isinstance(refused, Wait)
    decision = ask(state, pod("b", "gang", members=((2, 2),)), offer(state, [], [nodes[1]]))
    assert isinstance(decision, Bind)
    assert decision.bind_info.node == nodes[1]


NODES = np.ones((1, 4), np.bool_)
FITTING = np.zeros(4, np.int32), np.ones(1, np.int64), np.ones(1, np.int64)


@pytest.mark.parametrize(
    ("offered", "told"),
    [
        (
            Offer(np.ones((2, 4), np.bool_), NODES),
            "offer.nodes has shape (2, 4) of bool, expected bool of shape (1, 4)",
        ),
        (Offer(NODES, np.ones((1, 4))), "offer.after has shape (1, 4) of float64, expected bool of shape (1, 4)"),
        (Offer(NODES, NODES, (Limit(FITTING[0][:3], *FITTING[1:]),)), "offer.rules[0].domain has shape (3,)"),
        (Offer(NODES, NODES, (Limit(FITTING[0] + 1, *FITTING[1:]),)), "offer.rules[0].domain names domain 1 of 1"),
        (Offer(NODES, NODES, (Limit(FITTING[0], -FITTING[1], FITTING[2]),)), "offer.rules[0].weight has -1, below 0"),
        (
            Offer(NODES, NODES, (Spread(FITTING[0], NODES[0, :1], FITTING[2], 0),)),
            "offer.rules[0].max_skew is 0, below 1",
        ),
        (Offer(NODES, NODES, (Together(FITTING[0], NODES[0]),)), "offer.rules[0].slots has shape (4,)"),
    ],
)
def test_an_offer_of_another_shape_is_refused(offered: Offer, told: str) -> None:
    state = healthy_state(rack_cluster())
    before = fingerprint(state)
    with pytest.raises(UserError) as refused:
        ask(state, pod("x"), offered)
    assert refused.value.message.startswith(told)
    assert fingerprint(state) == before


def test_an_offer_and_suggested_nodes_exclude_each_other() -> None:
    state = healthy_state(rack_cluster())
    with pytest.raises(UserError, match="an offer stands in their place"):
        handle(state, ScheduleRequested(pod("x"), Phase.FILTERING, NODES[0], Offer(NODES, NODES)))
