"""VC safety: the formula against trying it out, and the strain of chains where it does not hold (rules 4)."""

import random
from itertools import product

import numpy as np
import pytest

from hived.cells.safety import (
    claims_without_good_cells,
    is_safe,
    keeps_safety,
    spare_cells,
    spare_of,
)
from hived.cells.state import State
from hived.cells.topology import NO_CELL
from tests.core.builders import (
    busy_state,
    cell_at,
    healthy_state,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    run,
    set_nodes,
)
from tests.core.callable_kernels import callable_kernel

NODE, RACK = 2, 3


def claims_can_be_met(state: State, chain: int) -> bool:
    """Whether free cells can be handed out, split as needed, until each claim has a cell of its own; tried out."""
    arrays, cells = state.arrays, state.cells
    offset, top = int(arrays.level_offset[chain]), int(arrays.top_level[chain])
    whole = 0
    for level in range(offset + top, offset, -1):
        base = int(arrays.level_base[level])
        free = [
            cell for cell in range(base, base + int(arrays.level_size[level])) if cells.free_position[cell] != NO_CELL
        ]
        whole += len(free)
        for _ in range(int(cells.claims[level])):
            if whole == 0:
                return False
            whole -= 1
        whole *= int(arrays.child_count[level])
    return True


def test_a_chain_is_safe_exactly_if_its_free_cells_can_be_handed_out_to_all_claims() -> None:
    source, outcomes = random.Random(1), {False: 0, True: 0}
    kernel = callable_kernel(is_safe)
    for seed in range(60):
        state = busy_state(random_cluster(seed), source)
        for chain, _ in product(range(len(state.topology.chains)), range(6)):
            is_met = claims_can_be_met(state, chain)
            assert bool((spare_of(state, chain) >= 0).all()) == is_met
            assert kernel(state.arrays, state.cells, chain) == is_met
            outcomes[is_met] += 1
            level = int(state.arrays.level_offset[chain]) + source.randint(1, int(state.arrays.top_level[chain]))
            state.cells.claims[level] += source.randint(0, 2)
    assert min(outcomes.values()) > 30, outcomes


def test_kernels_and_python_read_the_same_formula() -> None:
    source = random.Random(2)
    kernel = callable_kernel(spare_cells)
    for seed in range(10):
        state = busy_state(random_cluster(seed), source)
        for chain in range(len(state.topology.chains)):
            assert kernel(state.arrays, state.cells, chain).tolist() == spare_of(state, chain).tolist()


@pytest.mark.parametrize(
    ("taken", "is_kept"), [(["0"], True), (["0/n0"], True), (["0/n0", "0/n1"], True), (["0/n0", "1/n2"], False)]
)
def test_cells_may_be_taken_together_if_no_level_is_split_more_often_than_it_has_spare(
    taken: list[str], is_kept: bool
) -> None:
    """One of two racks is promised to B, so that one may be split."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {"RACK": 1})))
    cells = np.array([cell_at(state, address) for address in taken], np.int32)
    kernel = callable_kernel(keeps_safety)
    assert kernel(state.arrays, state.cells, cells, spare_of(state, 0)) == is_kept
    assert not state.cells.mark.any()


def test_strain_is_forgotten_once_vc_safety_holds_again() -> None:
    state = healthy_state(rack_cluster())
    state.cells.strained[0] = 1
    set_nodes(state, "n0", is_healthy=True)
    assert not state.cells.strained.any()


def test_good_cells_that_meet_larger_claims_are_missing_for_smaller_ones() -> None:
    """Of two racks n3 is bad: A's rack takes the good one, and one good node is left for B's two."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), quota("B", {"RACK.NODE": 2})))
    set_nodes(state, "n3", is_healthy=False)
    assert claims_without_good_cells(state, 0) == {NODE: 1}


def test_no_claim_is_without_good_cells_where_all_are_good() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("g"))
    assert claims_without_good_cells(state, 0) == {}
