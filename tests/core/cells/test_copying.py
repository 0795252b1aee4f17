"""A copy of a state goes its own way: equal at first, and nothing of one is seen in the other."""

from dataclasses import replace
from random import Random

import pytest

from hived.cells.copying import copy_groups, copy_state
from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind, Decision
from hived.values.events import Phase, PodAllocated, PodProgressed
from hived.values.specs import Rules, WorkTimes
from tests.core.builders import (
    busy_state,
    delete,
    describe_groups,
    fingerprint,
    healthy_state,
    pod,
    rack_cluster,
    random_cluster,
    request,
    run,
    set_nodes,
)


def order(state: State) -> list[bytes]:
    """The order of the views, which decides which of equal nodes comes first."""
    return [getattr(state.cells, name).tobytes() for name in ("view_order", "view_keys", "changed", "is_sorted")]


def go_on(state: State, source: Random, steps: int = 12, name: str = "more") -> list[Decision]:
    """Random requests and events, by the drawn numbers alone; the decisions."""
    decisions = []
    for step in range(steps):
        wanted = pod(
            f"{name}{step}", vc=source.choice(state.topology.vc_names), priority=source.choice([-1, 0, 1, 5]),
            members=((source.choice([1, 2]), source.choice([1, 2])),), lazy_preemption=source.random() < 0.4,
        )  # fmt: skip
        decision = request(state, wanted, source.choice(list(Phase)))
        decisions.append(decision)
        if isinstance(decision, Bind):
            handle(state, PodAllocated(wanted, decision.bind_info, decision.lazily_preempted))
            handle(state, PodProgressed(wanted, WorkTimes(float(step), None)))
        delete(state, pod(f"p{source.randrange(12)}"))
        set_nodes(state, source.choice(state.topology.node_names), is_healthy=source.random() < 0.7)
    return decisions


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_is_equal_and_goes_on_alike(seed: int) -> None:
    state = busy_state(random_cluster(seed), Random(seed))
    before = fingerprint(state), order(state)
    copy = copy_state(state)
    check_invariants(copy)
    assert (fingerprint(copy), order(copy)) == before
    mine = go_on(copy, Random(seed))
    assert (fingerprint(state), order(state)) == before, "what the copy did is seen in the state"
    assert go_on(state, Random(seed)) == mine
    assert (fingerprint(state), order(state)) == (fingerprint(copy), order(copy))
    assert list(state.groups) == list(copy.groups)
    check_invariants(copy)


@pytest.mark.parametrize("seed", range(20))
def test_the_room_of_an_earlier_copy_holds_nothing_of_it(seed: int) -> None:
    state = busy_state(random_cluster(seed), Random(seed))
    room = copy_state(state)
    go_on(room, Random(seed + 1000))
    go_on(state, Random(seed), 4, "other")
    fresh, copy = copy_state(state), copy_state(state, room)
    check_invariants(copy)
    assert (fingerprint(copy), order(copy)) == (fingerprint(fresh), order(fresh))
    assert go_on(copy, Random(seed)) == go_on(fresh, Random(seed))
    assert fingerprint(copy) == fingerprint(fresh)


def test_the_memory_of_an_earlier_copy_is_used_again() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("a"))
    room = copy_state(state)
    memory, group = room.cells.memory, room.groups["a"]
    run(state, pod("b"))
    copy = copy_state(state, room)
    assert copy.cells.memory is memory
    assert copy.groups["a"] is group
    assert describe_groups(copy) == describe_groups(state)


def test_room_of_another_configuration_and_the_state_itself_are_not_written_over() -> None:
    state = healthy_state(rack_cluster())
    other = healthy_state(rack_cluster(racks=3))
    run(state, pod("a"))
    untouched = fingerprint(other)
    for room in (other, state):
        copy = copy_state(state, room)
        assert copy.cells.memory is not room.cells.memory
        delete(copy, pod("a"))
    assert fingerprint(other) == untouched
    assert set(state.groups) == {"a"}


@pytest.mark.parametrize("seed", range(20))
def test_groups_that_were_copied_a_moment_ago_hold_nothing_of_it(seed: int) -> None:
    state = busy_state(random_cluster(seed), Random(seed))
    groups = copy_groups(state, [*state.groups, "none"])
    go_on(state, Random(seed), 4, "other")
    fresh, copy = copy_state(state), copy_state(state, groups=groups)
    check_invariants(copy)
    assert (fingerprint(copy), order(copy)) == (fingerprint(fresh), order(fresh))
    assert go_on(copy, Random(seed)) == go_on(fresh, Random(seed))
    assert fingerprint(copy) == fingerprint(fresh)


def test_times_of_leaves_are_copied() -> None:
    state = healthy_state(replace(rack_cluster(), rules=Rules.BETTER))
    run(state, pod("a"))
    handle(state, PodProgressed(pod("a"), WorkTimes(5.0, None)))
    room = copy_state(state)
    handle(room, PodProgressed(pod("a"), WorkTimes(9.0, None)))
    assert fingerprint(copy_state(state, room)) == fingerprint(state)
    assert state.work is not None
    leaves = state.groups["a"].physical
    assert state.work.since_ms[leaves[leaves != NO_CELL]].tolist() == [5000, 5000]
