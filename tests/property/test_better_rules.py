"""Random events on random clusters under better rules: the state keeps its own rules, and questions change nothing."""

from dataclasses import replace
from random import Random

import pytest

from hived.cells.state import State
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Bind, Decision
from hived.values.errors import UserError
from hived.values.events import LeavesLost, Phase, PodAllocated
from hived.values.specs import PodRequest, Rules, VirtualClusterSpec, WorkTimes
from tests.core.builders import delete, fingerprint, pod, random_cluster, request, set_nodes
from tests.property.better_run import BetterRun


def wanted(number: int, vcs: list[VirtualClusterSpec], types: list[str], source: Random) -> PodRequest:
    """A pod of a group of any kind."""
    vc, priority = source.choice(vcs), source.choice([-1, -1, 0, 1, 5])
    members: tuple[tuple[int, int], ...] = ((source.choice([1, 1, 2, 3]), source.choice([1, 1, 2, 4])),)
    if source.random() < 0.2:
        members = ((1, 1), (source.choice([1, 2]), 2))
    is_pinned = bool(vc.pinned_cell_ids) and priority >= 0 and source.random() < 0.4
    return pod(
        f"p{number}", vc=vc.name, priority=priority, members=members, lazy_preemption=source.random() < 0.3,
        elastic=source.random() < 0.2, ignore_suggested_nodes=source.random() < 0.7,
        pinned_cell_id=source.choice(vc.pinned_cell_ids) if is_pinned else "",
        within_cell=source.choice(types) if source.random() < 0.15 else "", within_is_required=source.random() < 0.8,
    )  # fmt: skip


def ask(state: State, one: PodRequest, source: Random) -> Decision:
    """A filter call, which changes nothing, or a preempt call."""
    nodes = state.topology.node_names
    suggested = [node for node in nodes if source.random() < 0.8] if source.random() < 0.3 else []
    if source.random() < 0.5:
        return request(state, one, Phase.PREEMPTING, *suggested)
    before = fingerprint(state)
    decision = request(state, one, Phase.FILTERING, *suggested)
    assert fingerprint(state) == before
    return decision


def live(seed: int) -> tuple[State, list[Decision]]:
    """Forty steps; invariants are checked after each."""
    source = Random(seed)
    spec = random_cluster(seed)
    some = {name: replace(vc, spares=source.random() < 0.3) for name, vc in sorted(spec.virtual_clusters.items())}
    state = new_state(replace(spec, rules=Rules.BETTER, virtual_clusters=some))
    nodes, decisions, alive = list(state.topology.node_names), list[Decision](), list[PodRequest]()
    set_nodes(state, *(node for node in nodes if source.random() < 0.9), is_healthy=True)
    for number in range(40):
        one = wanted(number, list(some.values()), sorted(spec.cell_types), source)
        try:
            decision = ask(state, one, source)
        except UserError:
            continue
        decisions.append(decision)
        alive.append(one)
        if isinstance(decision, Bind):
            times = WorkTimes(float(number))
            handle(state, PodAllocated(one, decision.bind_info, decision.lazily_preempted, times))
        if source.random() < 0.4:
            delete(state, alive.pop(source.randrange(len(alive))))
        if source.random() < 0.1:
            set_nodes(state, source.choice(nodes), is_healthy=source.random() < 0.7)
        if source.random() < 0.05:
            handle(state, LeavesLost(source.choice(nodes), "GPU", 1))
        check_invariants(state)
    return state, decisions


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(24))
def test_a_random_life_keeps_all_rules_and_is_the_same_twice(seed: int) -> None:
    state, decisions = live(seed)
    again, same = live(seed)
    assert decisions == same
    assert fingerprint(state) == fingerprint(again)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(6))
def test_all_events_together_break_no_rule_and_are_the_same_twice(seed: int) -> None:
    assert sum(BetterRun(seed).live(60).values()) > 0
