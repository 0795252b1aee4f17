"""Larger pods first in one view, against a plain version; and the cheap check before a search."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hived.cells.journal import start_recording, stop_recording, undo_changes
from hived.cells.state import State
from hived.cells.views import forget_moves, forget_order, view_key, views_to_try
from hived.complete.fitting import could_hold, place_descending
from hived.values.events import Phase
from hived.values.specs import OPPORTUNISTIC_PRIORITY, Rules
from tests.core.builders import (
    busy_state,
    healthy_state,
    pairs,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
    set_nodes,
)

ALL = np.ones(0, np.bool_)


def order_of(state: State, view: int) -> list[int]:
    """Fullest nodes first, equal ones as they were at first."""
    arrays, cells = state.arrays, state.cells
    nodes = arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]].tolist()
    return sorted(nodes, key=lambda cell: view_key(arrays, cells, cell, ALL, True))


def forget_history(state: State, source: Random) -> None:
    """Bring the nodes of all views into any order, as other requests before could have done."""
    arrays, cells = state.arrays, state.cells
    for start, end in zip(arrays.view_start[:-1], arrays.view_start[1:], strict=True):
        own = cells.view_order[start:end].tolist()
        cells.view_order[start:end] = source.sample(own, len(own))
    forget_order(arrays, cells)


def free_of(state: State, cell: int) -> int:
    """Leaves of a node of a view that nobody uses and that are not bad; none of a bad node."""
    arrays, cells = state.arrays, state.cells
    first, count = int(arrays.first_leaf[cell]), int(arrays.leaf_count[arrays.chain_level[cell]])
    return sum(cells.priority[leaf] == -2 and not cells.bad[leaf] for leaf in range(first, first + count))


def nodes_by_hand(free: list[int], sizes: list[int]) -> list[int] | None:
    """The place of each pod, largest first, each in the first place with room."""
    found = []
    for size in sorted(sizes, reverse=True):
        place = next((place for place, room in enumerate(free) if room >= size), None)
        if place is None:
            return None
        free[place] -= size
        found.append(place)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_larger_pods_get_the_first_node_with_room(seed: int) -> None:
    source = Random(seed)
    state = busy_state(random_cluster(seed), source)
    for vc in state.topology.vc_names:
        for view in (view for views in views_to_try(state, pod("x", vc=vc).spec) for view in views):
            sizes, counts = np.array([1, 2, 3], np.int32), np.array([source.randint(1, 2) for _ in range(3)], np.int64)
            leaves = np.full(int(sizes @ counts), -1, np.int32)
            forget_history(state, source)
            forget_moves(state.arrays, state.cells, view)
            start_recording(state)
            is_placed = place_descending(
                state.arrays, state.cells, view, OPPORTUNISTIC_PRIORITY, sizes, counts, ALL, True, leaves
            )
            undo_changes(state, (0, 0))
            stop_recording(state)
            order = order_of(state, view)
            pods = np.repeat(sizes, counts).tolist()
            expected = nodes_by_hand([free_of(state, cell) for cell in order], pods)
            assert is_placed == (expected is not None)
            if expected is None:
                continue
            assert len(set(leaves.tolist())) == len(leaves)
            starts = np.cumsum([0, *pods])
            found = []
            for slot in range(len(pods)):
                own = leaves[starts[slot] : starts[slot + 1]]
                cells = {next(place for place, cell in enumerate(order) if is_below(state, leaf, cell)) for leaf in own}
                assert len(cells) == 1
                assert (state.cells.priority[own] == -2).all()
                assert not state.cells.bad[own].any()
                found.append((pods[slot], cells.pop()))
            assert sorted(found) == sorted(zip(sorted(pods, reverse=True), expected, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_a_decision_does_not_depend_on_the_order_that_earlier_requests_left(seed: int) -> None:
    source = Random(seed)
    state = busy_state(replace(random_cluster(seed), rules=Rules.BETTER), source)
    names = state.topology.node_names
    for name in source.sample(names, len(names) // 4):
        set_nodes(state, name, is_healthy=False)
    for number in range(12):
        members = ((1, source.randint(1, 2)), *(((source.randint(1, 2), 3),) if number % 2 else ()))
        vc = source.choice(state.topology.vc_names)
        wanted = pod(
            f"x{number}", vc=vc, members=members, priority=source.choice((-1, 0, 1)), ignore_suggested_nodes=False
        )
        suggested = source.sample(names, source.randint(len(names) // 2, len(names)))
        answers = []
        for _ in range(3):
            forget_history(state, source)
            answers.append(request(state, wanted, Phase.FILTERING, *suggested))
        assert answers[0] == answers[1] == answers[2]


def is_below(state: State, leaf: int, cell: int) -> bool:
    first = int(state.arrays.first_leaf[cell])
    return first <= leaf < first + int(state.arrays.leaf_count[state.arrays.chain_level[cell]])


def holds(state: State, *sizes: tuple[int, int], priority: int = 0, combines: bool = False) -> bool:
    view = next(views_to_try(state, pod("x", priority=priority).spec))[0]
    return could_hold(
        state.arrays, state.cells, view, priority, np.array([size for size, _ in sizes], np.int32),
        np.array([count for _, count in sizes], np.int64), ALL, True, combines,
    )  # fmt: skip


def test_a_full_vc_has_no_room_unless_somebody_is_weaker() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), racks=1))
    assert holds(state, (2, 2))
    assert not holds(state, (2, 3))
    run(state, pod("one", members=((1, 1),)))
    assert holds(state, (1, 1), (2, 1))
    assert not holds(state, (2, 2))
    run(state, pod("rest", members=((1, 1), (1, 2))))
    assert not holds(state, (1, 1))
    assert holds(state, (2, 2), priority=1)


def test_leaves_of_several_cells_count_together_only_where_pods_may_be_on_several() -> None:
    state = pairs(1)
    assert not holds(state, (4, 1))
    assert holds(state, (4, 1), combines=True)
    assert not holds(state, (5, 1), combines=True)


def test_hardware_that_is_bad_does_not_count_unless_only_doomed_cells_are_bound_to_it() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    run(state, pod("one", members=((1, 1),)))
    assert holds(state, (2, 1))
    set_nodes(state, "n1", is_healthy=False)
    assert not holds(state, (2, 1))
    idle = pairs(2, rules=Rules.BETTER, A={"NODE.PAIR": 2})
    set_nodes(idle, "a", "b", is_healthy=False)
    assert (idle.cells.doomed_total > 0).any()
    assert holds(idle, (2, 1))
