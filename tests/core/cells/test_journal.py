"""Whatever a search changes can be taken back, byte for byte, wherever it is interrupted (rule 5.2)."""

import itertools
import os
from random import Random
from typing import Any

import numpy as np
import pytest

from hived.cells.journal import JournalFull, start_recording, undo_changes
from hived.cells.state import State
from hived.life.health import set_node_health
from hived.scheduler import check_invariants
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Phase
from tests.core.builders import (
    busy_state,
    delete,
    fingerprint,
    healthy_state,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
    set_nodes,
    small_journal,
)

CAPACITY_STEP = int(os.environ.get("HIVED_CAPACITIES", "5"))
"""1 in `make soak`."""


# --- searches with a journal that is too small at every possible moment ----------------------------------------------


def play(state: State, capacity: int | None) -> tuple[list[Decision], bool]:
    """A story with each kind of decision; the journal starts every search with this capacity. Did it ever grow?"""
    decisions: list[Decision] = []
    has_grown = False

    def ask(*args: Any) -> Decision:
        nonlocal has_grown
        if capacity is not None:
            small_journal(state, capacity)
        decisions.append(request(state, *args))
        has_grown |= capacity is not None and len(state.cells.journal_value) > capacity
        check_invariants(state)
        return decisions[-1]

    for i in range(2):
        run(state, pod(f"o{i}", priority=-1))
    run(state, pod("lazy", members=((2, 2),), lazy_preemption=True))
    ask(pod("lazily", priority=5, members=((4, 2),)))
    run(state, pod("firm", priority=1))
    ask(pod("filtered", priority=5, members=((5, 2),)))
    ask(pod("too many", priority=5, members=((9, 2),)))
    ask(pod("urgent", priority=5, members=((5, 2),)), Phase.PREEMPTING)
    ask(pod("more urgent", priority=9, members=((4, 2),)), Phase.PREEMPTING)
    ask(pod("elsewhere", vc="B", priority=3, members=((2, 1), (1, 2))), Phase.PREEMPTING)
    set_nodes(state, "n1", "n6", is_healthy=False)
    ask(pod("more urgent", priority=9, members=((4, 2),)), Phase.PREEMPTING)
    ask(pod("small", vc="B", members=((1, 1),)))
    return decisions, has_grown


def story_cluster() -> State:
    return healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1, "RACK": 2}), quota("B", {"RACK.NODE": 2}), racks=5))


@pytest.mark.parametrize("step", [6 * CAPACITY_STEP, pytest.param(CAPACITY_STEP, marks=pytest.mark.long)])
def test_a_journal_that_is_too_small_at_any_moment_changes_nothing(step: int) -> None:
    """Capacities from 1 on, every fifth of them or as HIVED_CAPACITIES says, until none of the searches fills it."""
    spacious = story_cluster()
    expected, _ = play(spacious, None)
    kinds = {type(decision) for decision in expected}
    assert kinds == {Bind, Preempt, Wait}
    for capacity in itertools.count(1, step):
        state = story_cluster()
        decisions, has_grown = play(state, capacity)
        assert decisions == expected, capacity
        assert fingerprint(state) == fingerprint(spacious), capacity
        assert (state.cells.view_order == spacious.cells.view_order).all(), capacity
        if not has_grown:
            break
    assert capacity > 20


def test_a_large_gang_in_a_sparse_cluster_is_mapped_in_spite_of_a_full_journal() -> None:
    """Racks with one bad suggested node each, then two good ones: many candidates are tried and taken back."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 8}), racks=12, nodes=4, gpus=1))
    first_of_rack = [f"n{4 * rack}" for rack in range(10)]
    set_nodes(state, *first_of_rack, is_healthy=False)
    small_journal(state, 16)
    good = [f"n{node}" for node in range(40, 48)]
    decision = request(
        state, pod("g", members=((8, 1),), ignore_suggested_nodes=False), Phase.FILTERING, *first_of_rack, *good
    )
    assert isinstance(decision, Bind)
    assert {p.node for p in decision.bind_info.members[0]} == set(good)


def test_the_order_of_the_nodes_is_right_again_after_a_search_that_was_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The view was sorted after the pod's own preemption had been cancelled; both are taken back."""
    state = interrupted_state()
    with monkeypatch.context() as patched:
        patched.setattr("hived.hived_rules.placement.map_leaves", fail)
        with pytest.raises(ZeroDivisionError):
            request(state, pod("more urgent", priority=9, members=((4, 2),)), Phase.PREEMPTING)
    request(state, pod("too many", members=((9, 2),)))
    arrays, cells = state.arrays, state.cells
    view = state.topology.vc_views[0, 0]
    order = cells.view_order[arrays.view_start[view] : arrays.view_start[view + 1]].tolist()
    keys = [(bool(cells.bad[cell]), -int(cells.used[cell])) for cell in order]
    assert keys == sorted(keys)


def fail(*_: object) -> None:
    raise ZeroDivisionError


# --- decisions that are not carried out ------------------------------------------------------------------------------


def test_a_decision_that_is_not_carried_out_changes_nothing() -> None:
    """Any answer to a new group in the Filtering phase, and Bind, Wait and UserError in the Preempting phase."""
    source = Random(8)
    seen = set()
    for seed in range(40):
        spec = random_cluster(seed)
        state = busy_state(spec, source)
        for number in range(12):
            wanted = pod(
                f"new{number}",
                vc=source.choice([*spec.virtual_clusters, "nobody"] if number == 0 else list(spec.virtual_clusters)),
                priority=source.choice([-1, 0, 5, 1000]),
                members=((source.choice([1, 2, 4]), source.choice([1, 2, 3])),),
            )
            phase = source.choice(list(Phase))
            before = fingerprint(state)
            try:
                decision: object = request(state, wanted, phase)
            except UserError:
                decision = UserError
            if isinstance(decision, Preempt) and phase is Phase.PREEMPTING:
                delete(state, wanted)
                continue
            seen.add((decision if decision is UserError else type(decision), phase))
            assert fingerprint(state) == before
    assert seen >= set(itertools.product((Bind, Wait, UserError), Phase)) | {(Preempt, Phase.FILTERING)}


@pytest.mark.parametrize(
    "broken",
    [
        "hived.hived_rules.placement.map_leaves",
        "hived.deciding.has_victims",
        "hived.deciding.start_preemption",
        "hived.life.preemption.reserve_group",
        "hived.life.preemption.catch_up_after_plan",
    ],
)
def test_an_error_in_the_middle_of_a_search_leaves_the_state_as_before(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The search preempts a lazy group, cancels another preemption and reserves cells before it breaks."""
    state, twin = interrupted_state(), interrupted_state()
    wanted = pod("more urgent", priority=9, members=((4, 2),))
    before = fingerprint(state)

    with monkeypatch.context() as patched:
        patched.setattr(broken, fail)
        with pytest.raises(ZeroDivisionError):
            request(state, wanted, Phase.PREEMPTING)
    assert fingerprint(state) == before
    check_invariants(state)
    assert request(state, wanted, Phase.PREEMPTING) == request(twin, wanted, Phase.PREEMPTING)
    assert np.array_equal(state.cells.memory, twin.cells.memory)


def interrupted_state() -> State:
    """A preempting group of four nodes, one of which has turned bad, above a lazy and two opportunistic groups."""
    state = story_cluster()
    for i in range(6):
        run(state, pod(f"o{i}", priority=-1))
    run(state, pod("lazy", members=((2, 2),), lazy_preemption=True))
    run(state, pod("firm", priority=1))
    wanted = pod("more urgent", priority=9, members=((4, 2),))
    assert isinstance(request(state, wanted, Phase.PREEMPTING), Preempt)
    leaves = state.groups["more urgent"].physical
    set_nodes(state, state.topology.node_names[int(state.arrays.node[leaves[0]])], is_healthy=False)
    return state


def test_a_full_journal_interrupts_doomed_cells_wherever_they_are() -> None:
    """Errors cross from the kernel that is compiled once into those that call it."""
    interruptions = 0
    for capacity in itertools.count(1):
        state = small_journal(healthy_state(rack_cluster(quota("A", {"RACK": 2}))), capacity)
        before = fingerprint(state)
        start_recording(state)
        try:
            set_node_health(state.arrays, state.cells, np.zeros(1, np.int32), 1)
        except JournalFull:
            interruptions += 1
            undo_changes(state, (0, 0))
            assert fingerprint(state) == before
            continue
        break
    assert interruptions > 10
    assert state.cells.doomed_total.any()
