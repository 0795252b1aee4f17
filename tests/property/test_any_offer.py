"""With an offer a group waits only if brute force finds no place either, and what it gets keeps to the offer."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from hived.cells.state import NO_GROUP, GroupState, State
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.events import LeavesLost, Limit, Offer, Phase, PodAllocated, ScheduleRequested, Spread, Together
from hived.values.specs import ClusterSpec, PodRequest, Rules
from tests.core.brute import has_place, is_allowed, is_near
from tests.core.builders import delete, fingerprint, healthy_state, pod, quota, rack_cluster, set_nodes, tree_cluster

SEEDS = range(90)


def small_cluster(source: Random) -> ClusterSpec:
    """Two racks of nodes, which may have switches; two VCs that are promised racks, nodes or switches."""
    nodes, gpus, switches = source.choice([2, 2, 3]), source.choice([2, 2, 3]), source.random() < 0.3
    kinds = {"RACK": nodes * 2, "RACK.NODE": 2}
    if switches:
        kinds["RACK.NODE.SWITCH"] = 1
    left = dict.fromkeys("AB", nodes * 4)
    promised: dict[str, dict[str, int]] = {"A": {}, "B": {}}
    for _ in range(source.randint(1, 6)):
        name, kind = source.choice("AAB"), source.choice(sorted(kinds))
        if sum(left.values()) - 4 * nodes >= kinds[kind]:
            left[name] -= kinds[kind]
            promised[name][kind] = promised[name].get(kind, 0) + 1
    vcs = [quota(name, cells) for name, cells in promised.items()]
    if switches:
        sizes = {"RACK": nodes, "NODE": 2, "SWITCH": gpus // 2 + 1 if gpus == 3 else 1}
        return tree_cluster(sizes, *vcs, tops=2)
    return rack_cluster(*vcs, racks=2, nodes=nodes, gpus=gpus)


def busy(source: Random, rules: Rules) -> State:
    """A small cluster in use; some nodes may be bad."""
    state = healthy_state(replace(small_cluster(source), rules=rules))
    for number in range(source.randint(0, 7)):
        one = pod(
            f"p{number}",
            vc=source.choice("AB"),
            priority=source.choice([-1, -1, 0, 1]),
            members=((source.choice([1, 1, 2]), source.choice([1, 2])),),
            lazy_preemption=source.random() < 0.3,
            elastic=source.random() < 0.2,
        )
        phase = Phase.PREEMPTING if source.random() < 0.1 else Phase.FILTERING
        decision = ask(state, one, offer_all(state, one), phase)
        if isinstance(decision, Bind):
            handle(state, PodAllocated(one, decision.bind_info, decision.lazily_preempted))
    if source.random() < 0.4:
        seated = [holder for group in state.groups.values() for holder in group.holders if holder is not None]
        delete(state, *source.sample(seated, min(len(seated), 1)))
    if source.random() < 0.3:
        set_nodes(state, source.choice(state.topology.node_names), is_healthy=False)
    if source.random() < 0.4:
        node, count = source.choice(state.topology.node_names), source.randint(1, 2)
        handle(state, LeavesLost(node, "GPU", count))
    check_invariants(state)
    return state


def ask(state: State, one: PodRequest, offer: Offer, phase: Phase) -> Decision:
    return handle(state, ScheduleRequested(one, phase, offer=offer))


def offer_all(state: State, one: PodRequest) -> Offer:
    slots = sum(member.pod_count for member in one.spec.group.members)
    return Offer(
        np.ones((slots, len(state.topology.node_names)), np.bool_),
        np.zeros((slots, len(state.topology.node_names)), bool),
    )


def random_offer(state: State, one: PodRequest, source: Random) -> Offer:
    slots, nodes = sum(m.pod_count for m in one.spec.group.members), len(state.topology.node_names)
    share = source.choice([0.3, 0.5, 0.8, 1.0])
    is_same = source.random() < 0.5
    rows = [[source.random() < share for _ in range(nodes)] for _ in range(slots)]
    after = [[source.random() < 0.4 for _ in range(nodes)] for _ in range(slots)]
    if is_same:
        rows, after = [rows[0]] * slots, [after[0]] * slots
    rules: list[Limit | Spread | Together] = []
    by_node = np.arange(nodes, dtype=np.int32)
    by_rack = (by_node * 2 // nodes).astype(np.int32)
    for _ in range(source.choice([0, 0, 1, 1, 2])):
        domain = source.choice([by_node, by_rack]).copy()
        if source.random() < 0.2:
            domain[source.randrange(nodes)] = -1
        count = int(domain.max()) + 1
        held = np.array([source.random() < 0.8 for _ in range(slots)])
        kind = source.random()
        if kind < 0.5:
            room = np.array([source.choice([0, 1, 1, 2]) for _ in range(count)], np.int64)
            rules.append(Limit(domain, held.astype(np.int64), room))
        elif kind < 0.8:
            present = np.array([source.choice([0, 0, 1]) for _ in range(count)], np.int64)
            rules.append(Spread(domain, held, present, source.choice([1, 1, 2])))
        else:
            rules.append(Together(domain, held))
    return Offer(np.array(rows, np.bool_), np.array(after, np.bool_) & ~np.array(rows, np.bool_), tuple(rules))


def random_gang(source: Random, name: str = "new", **spec: Any) -> PodRequest:
    members = source.choice(
        [((1, 1),), ((1, 2),), ((2, 1),), ((2, 2),), ((3, 2),), ((1, 1), (1, 2)), ((3, 1),), ((1, 1), (2, 2))]
    )
    return pod(
        name,
        vc=source.choice("AAB"),
        priority=source.choice([-1, 0, 1, 2]),
        members=members,
        within_cell=source.choice(["", "", "", "RACK", "NODE"]),
        within_is_required=source.random() < 0.7,
        **spec,
    )


@pytest.mark.sample(40)
@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_waits_only_if_there_is_no_place_at_all(seed: int, rules: Rules) -> None:
    source = Random(seed)
    state = busy(source, rules)
    one = random_gang(source)
    offer = random_offer(state, one, source)
    before, users = fingerprint(state), state.cells.using.copy()
    decision = ask(state, one, offer, Phase.FILTERING)
    assert fingerprint(state) == before
    if isinstance(decision, Wait):
        assert not has_place(state, one, offer), decision.reason
        assert fingerprint(state) == before
        return
    assert isinstance(decision, Bind | Preempt)
    groups = {name: group.virtual is not None for name, group in state.groups.items()}
    if isinstance(decision, Preempt):
        assert isinstance(ask(state, one, offer, Phase.PREEMPTING), Preempt)
    else:
        applied = handle(state, PodAllocated(one, decision.bind_info, decision.lazily_preempted))
        assert applied.lazily_preempted == decision.lazily_preempted
        assert all(groups[name] and state.groups[name].spec.lazy_preemption for name in decision.lazily_preempted)
    check_invariants(state)
    assert not state.cells.strained.any()
    group = state.groups["new"]
    assert group.state is (GroupState.ALLOCATED if isinstance(decision, Bind) else GroupState.PREEMPTING)
    assert (group.virtual is not None) == (one.spec.priority >= 0)
    placed = leaves_by_slot(one, group.physical.tolist())
    assert is_allowed(state, placed, offer, users)
    assert is_near(state, one, placed)
    if isinstance(decision, Bind):
        assert (users[group.physical] == NO_GROUP).all()


def leaves_by_slot(one: PodRequest, leaves: list[int]) -> list[tuple[int, ...]]:
    sizes = [member.leaf_cell_count for member in one.spec.group.members for _ in range(member.pod_count)]
    ends = np.cumsum(sizes).tolist()
    return [tuple(leaves[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(30))
def test_an_offer_of_every_node_changes_no_decision_but_to_wait(seed: int) -> None:
    """The reference gives up after one placement in the VC; with an offer the search goes on there too."""
    source = Random(seed)
    spec = small_cluster(source)
    plain, offered = healthy_state(spec), healthy_state(spec)
    pods: list[PodRequest] = []
    for number in range(25):
        one = random_gang(source, f"p{number}", lazy_preemption=source.random() < 0.3)
        phase = source.choice(list(Phase))
        expected = handle(plain, ScheduleRequested(one, Phase.FILTERING))
        found = ask(offered, one, offer_all(offered, one), Phase.FILTERING)
        if not isinstance(expected, Wait):
            assert found == expected
            assert ask(offered, one, offer_all(offered, one), phase) == handle(plain, ScheduleRequested(one, phase))
            pods.append(one)
        if isinstance(expected, Bind):
            for state in (plain, offered):
                handle(state, PodAllocated(one, expected.bind_info, expected.lazily_preempted))
        if source.random() < 0.4 and pods:
            gone = pods.pop(source.randrange(len(pods)))
            delete(plain, gone)
            delete(offered, gone)
        if source.random() < 0.2:
            node, is_healthy = source.choice(plain.topology.node_names), source.random() < 0.6
            set_nodes(plain, node, is_healthy=is_healthy)
            set_nodes(offered, node, is_healthy=is_healthy)
        assert fingerprint(plain) == fingerprint(offered)
        assert plain.cells.view_order.tobytes() == offered.cells.view_order.tobytes()
