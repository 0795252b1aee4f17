"""Virtual cells that a request names: a group gets just these if they are free (rule 18.11)."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hived.cells.state import State
from hived.life.groups import virtual_leaves
from hived.scenario import Asked, Scenario
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind, Decision, Preempt
from hived.values.errors import UserError
from hived.values.events import Phase, PodAllocated, ScheduleRequested
from hived.values.specs import PodRequest, Rules
from tests.core.builders import (
    delete,
    fingerprint,
    healthy_state,
    held_nodes,
    pod,
    quota,
    rack_cluster,
    run,
    set_nodes,
    victim_uids,
)

Own = tuple[int, ...]


def cluster(rules: Rules = Rules.BETTER, *, gpus: int = 2) -> State:
    """VCs A and B have two nodes each, of one rack each."""
    return healthy_state(replace(rack_cluster(gpus=gpus), rules=rules))


def leaves_of(state: State, vc: str) -> list[int]:
    arrays = state.arrays
    found = np.flatnonzero((arrays.level == 1) & (arrays.vc == state.topology.vc_index[vc]))
    return [int(leaf) for leaf in found]


def ask(state: State, wanted: PodRequest, own: Own) -> Decision:
    return handle(state, ScheduleRequested(wanted, own=np.array(own, np.int32)))


def run_in(state: State, wanted: PodRequest, own: Own) -> None:
    decision = ask(state, wanted, own)
    assert isinstance(decision, Bind), decision
    handle(state, PodAllocated(wanted, decision.bind_info, decision.lazily_preempted))
    check_invariants(state)


def test_a_group_gets_the_cells_that_it_names() -> None:
    state = cluster()
    last = tuple(leaves_of(state, "A")[2:])
    run_in(state, pod("a", members=((1, 2),)), last)
    assert virtual_leaves(state, "a") == last


def test_without_names_it_gets_the_first_ones() -> None:
    state = cluster()
    run(state, pod("a", members=((1, 2),)))
    assert virtual_leaves(state, "a") == tuple(leaves_of(state, "A")[:2])


def test_each_pod_gets_its_own_cells_in_the_order_of_slots() -> None:
    state = cluster()
    first, second, third, fourth = leaves_of(state, "A")
    run_in(state, pod("a", members=((2, 2),)), (third, fourth, first, second))
    assert virtual_leaves(state, "a") == (third, fourth, first, second)


def test_cells_in_use_are_not_taken_and_the_group_is_placed_like_any_other() -> None:
    state = cluster()
    first = tuple(leaves_of(state, "A")[:2])
    run_in(state, pod("a", members=((1, 2),)), first)
    run_in(state, pod("b", members=((1, 2),)), first)
    assert virtual_leaves(state, "b") == tuple(leaves_of(state, "A")[2:])


def test_cells_of_two_nodes_are_not_for_one_pod() -> None:
    state = cluster()
    leaves = leaves_of(state, "A")
    run_in(state, pod("a", members=((1, 2),)), (leaves[1], leaves[2]))
    assert virtual_leaves(state, "a") == tuple(leaves[:2])


def test_opportunistic_work_leaves_for_them() -> None:
    state = cluster()
    run(state, pod("o", vc="B", priority=-1, members=((4, 2),)))
    own = tuple(leaves_of(state, "A")[2:])
    decision = ask(state, pod("a", members=((1, 2),)), own)
    assert isinstance(decision, Preempt)


def test_a_reservation_keeps_them() -> None:
    state = cluster()
    lent = [pod(f"o{number}", vc="B", priority=-1, members=((1, 2),)) for number in range(4)]
    for one in lent:
        run(state, one)
    own = np.array(leaves_of(state, "A")[2:], np.int32)
    wanted = pod("a", members=((1, 2),))
    decision = handle(state, ScheduleRequested(wanted, Phase.PREEMPTING, own=own))
    victims = victim_uids(decision)
    delete(state, *(one for one in lent if one.uid in victims))
    run(state, wanted)
    assert virtual_leaves(state, "a") == tuple(own.tolist())
    check_invariants(state)


def test_bad_hardware_behind_them_sends_the_group_elsewhere() -> None:
    state = cluster()
    run(state, pod("a", members=((1, 1),)))
    (node,) = held_nodes(state, "a")
    set_nodes(state, node, is_healthy=False)
    rest = (leaves_of(state, "A")[1],)
    run_in(state, pod("b", members=((1, 1),)), rest)
    assert held_nodes(state, "b") != [node]
    assert virtual_leaves(state, "b") != rest


def test_a_sparing_vc_evicts_nobody_for_them() -> None:
    spec = rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1, nodes=3)
    vc = replace(spec.virtual_clusters["A"], spares=True)
    state = healthy_state(replace(spec, rules=Rules.BETTER, virtual_clusters={"A": vc}))
    run(state, pod("x", members=((1, 1),)))
    run(state, pod("o", priority=-1, members=((2, 1),)))
    run(state, pod("o2", priority=-1, members=((1, 1),)))
    own = (next(leaf for leaf in leaves_of(state, "A") if leaf not in virtual_leaves(state, "x")),)
    assert isinstance(ask(state, pod("y", members=((1, 1),)), own), Bind)


def test_the_references_rules_do_not_look_at_them() -> None:
    state = cluster(Rules.HIVED)
    decision = ask(state, pod("a", members=((1, 2),)), (-5,))
    assert isinstance(decision, Bind)


@pytest.mark.parametrize(
    ("own", "priority", "expected"),
    [
        ((0, 1, 2), 0, "3 are given, expected int32 ids of 2 leaf cells"),
        ((-1, 0), 0, "ids are from -1 to 0, expected 0 to"),
        ((0, 1), 0, "some are no virtual leaf cells of it"),
        (("B", "B"), 0, "some are no virtual leaf cells of it"),
        (("A", "A"), 0, "a leaf cell is named twice"),
        (("A", "A"), -1, "an opportunistic group has none"),
    ],
)
def test_names_that_cannot_be_meant_are_refused(own: tuple[int | str, ...], priority: int, expected: str) -> None:
    state = cluster()
    before = fingerprint(state)
    ids = tuple(leaves_of(state, one)[0] if isinstance(one, str) else one for one in own)
    with pytest.raises(UserError, match=expected):
        ask(state, pod("a", priority=priority, members=((1, 2),)), ids)
    assert fingerprint(state) == before


def test_a_plan_heeds_them() -> None:
    state = cluster()
    own = np.array(leaves_of(state, "A")[2:], np.int32)
    first, second = pod("a", members=((1, 2),)), pod("b", members=((1, 2),))
    (found,) = Scenario(state).plan([[Asked(first, own=own), Asked(second)]])
    assert not isinstance(found, UserError)
    assert all(isinstance(one, Bind) for one in found)
    run_in(state, first, tuple(own.tolist()))
    assert virtual_leaves(state, "a") == tuple(own.tolist())


def wanted(number: int, source: Random) -> PodRequest:
    priority = source.choice([-1, -1, 0, 0, 1])
    members: tuple[tuple[int, int], ...] = ((source.choice([1, 1, 2, 3]), source.choice([1, 2, 4])),)
    return pod(f"p{number}", vc=source.choice("AB"), priority=priority, members=members)


class Twins:
    """A cluster, and another one in which the same guaranteed groups run and nobody else does."""

    def __init__(self, seed: int) -> None:
        self.source = Random(seed)
        vcs = quota("A", {"RACK": 1, "RACK.NODE": 1}), quota("B", {"RACK.NODE": 3})
        self.spec = replace(rack_cluster(*vcs, racks=2, nodes=4, gpus=4), rules=Rules.BETTER)
        self.real, self.alone = healthy_state(self.spec), healthy_state(self.spec)
        self.running: list[PodRequest] = []
        self.answers: list[Decision] = []

    def step(self, number: int) -> None:
        if self.running and self.source.random() < 0.4:
            self.leave(self.running[self.source.randrange(len(self.running))])
            return
        one = wanted(number, self.source)
        if one.spec.priority < 0:
            self.answers.append(decision := handle(self.real, ScheduleRequested(one)))
            if isinstance(decision, Bind):
                handle(self.real, PodAllocated(one, decision.bind_info))
                self.running.append(one)
            return
        one = replace(one, spec=replace(one.spec, priority=0))
        chosen = handle(self.alone, ScheduleRequested(one))
        if isinstance(chosen, Bind):
            handle(self.alone, PodAllocated(one, chosen.bind_info))
            self.start(one, virtual_leaves(self.alone, one.spec.group.name))
            self.running.append(one)

    def start(self, one: PodRequest, own: Own) -> None:
        """It runs at once, or as soon as opportunistic groups have left."""
        decision = ask(self.real, one, own)
        self.answers.append(decision)
        if isinstance(decision, Preempt):
            victims = victim_uids(decision)
            for other in [other for other in self.running if other.uid in victims]:
                assert other.spec.priority == -1
                self.leave(other)
            decision = ask(self.real, one, own)
        assert isinstance(decision, Bind), decision
        handle(self.real, PodAllocated(one, decision.bind_info, decision.lazily_preempted))
        assert virtual_leaves(self.real, one.spec.group.name) == own

    def leave(self, one: PodRequest) -> None:
        self.running.remove(one)
        delete(self.real, one)
        if one.spec.priority >= 0:
            delete(self.alone, one)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_what_a_vc_would_start_alone_starts_in_the_same_cells_beside_others(seed: int) -> None:
    twins = Twins(seed)
    for number in range(60):
        twins.step(number)
        check_invariants(twins.real)
    assert any(isinstance(one, Preempt) for one in twins.answers)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_failing_nodes_never_break_the_state_or_the_place_in_the_vc(seed: int) -> None:
    twins = Twins(seed + 100)
    real, source = twins.real, twins.source
    for number in range(60):
        if source.random() < 0.3:
            set_nodes(real, source.choice(real.topology.node_names), is_healthy=source.random() < 0.5)
            continue
        one = wanted(number, source)
        own = twins.source.sample(
            leaves_of(real, one.spec.virtual_cluster),
            k=sum(n * c for n, c in [(m.pod_count, m.leaf_cell_count) for m in one.spec.group.members]),
        )
        decision = handle(real, ScheduleRequested(one)) if one.spec.priority < 0 else ask(real, one, tuple(own))
        if isinstance(decision, Bind):
            handle(real, PodAllocated(one, decision.bind_info, decision.lazily_preempted))
            twins.running.append(one)
            assert one.spec.priority < 0 or virtual_leaves(real, one.spec.group.name)
        check_invariants(real)
        if twins.running and source.random() < 0.4:
            delete(real, twins.running.pop(source.randrange(len(twins.running))))
            check_invariants(real)
