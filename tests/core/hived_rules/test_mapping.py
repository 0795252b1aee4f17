"""Mapping virtual leaves onto hardware, against the oracle and by cases (rules 7)."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hived.cells.journal import start_recording, stop_recording
from hived.cells.state import State
from hived.cells.topology import NO_CELL, IntArray
from hived.hived_rules.mapping import map_leaves
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind, Decision, Wait
from hived.values.errors import UserError
from hived.values.events import Event, Phase
from hived.values.specs import ClusterSpec
from tests.core import builders
from tests.core.builders import (
    busy_state,
    cell_at,
    delete,
    healthy_state,
    held_nodes,
    lose,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
    set_nodes,
    tree_cluster,
)
from tests.core.naive import NaiveScheduler
from tests.core.naive import mapping as naive_mapping
from tests.core.naive.mapping import map_leaves as map_in_oracle
from tests.core.naive.mapping import relaxed_split
from tests.core.naive.placement import Suggestions
from tests.long import batches

ALL = np.ones(0, np.bool_)


class Pair:
    """A state of the core, and the oracle that was told the same events."""

    def __init__(self, spec: ClusterSpec, make: Callable[[], State], monkeypatch: pytest.MonkeyPatch) -> None:
        """`make` builds the state from nothing, by functions of `builders`."""
        events: list[Event] = []

        def noted(state: State, event: Event) -> Decision:
            events.append(event)
            return handle(state, event)

        with monkeypatch.context() as patched:
            patched.setattr(builders, "handle", noted)
            self.state = make()
        oracle = NaiveScheduler(spec)
        for event in events:
            with contextlib.suppress(UserError):
                oracle.handle(event)
        self.cluster = oracle.cluster
        self.cells = {cell.address: cell for cell in self.cluster.virtual_cells()}
        self.numbers = {self.state.topology.address(i): i for i in range(self.state.topology.physical_count)}

    def expected(self, leaves: list[int], suggested: np.ndarray, ignore: bool) -> list[int] | None:
        """The oracle's mapping, as cells of the core."""
        address, names = self.state.topology.address, self.state.topology.node_names
        wanted = [self.cells[address(leaf)] for leaf in leaves]
        nodes = frozenset(names[node] for node in np.flatnonzero(suggested).tolist())
        found = map_in_oracle(self.cluster, wanted, Suggestions(nodes, ignore))
        return None if found is None else [self.numbers[found[leaf].address] for leaf in wanted]


def map_in_core(state: State, leaves: list[int], suggested: np.ndarray, ignore: bool) -> list[int] | None:
    physical: IntArray = np.full(len(leaves), 99, np.int32)
    start_recording(state)
    is_mapped = map_leaves(state.arrays, state.cells, np.array(leaves, np.int32), suggested, ignore, NO_CELL, physical)
    stop_recording(state)
    return physical.tolist() if is_mapped else None


@pytest.mark.parametrize("seeds", batches(quick=30, long=150))
def test_a_mapping_is_that_of_the_oracle(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    source = random.Random(4)
    outcomes = {"mapped": 0, "not mapped": 0, "relaxed": 0}

    def relaxed(*arguments: Any) -> Any:
        outcomes["relaxed"] += 1
        return relaxed_split(*arguments)

    monkeypatch.setattr(naive_mapping, "relaxed_split", relaxed)
    for seed in seeds:
        spec = random_cluster(seed)
        pair = Pair(
            spec,
            lambda: lose_some(busy_state(spec, source), source, seed),  # noqa: B023  # called at once
            monkeypatch,
        )
        for own in virtual_leaves(pair.state):
            leaves = source.sample(own, source.randint(1, min(8, len(own))))
            share, ignore = source.choice([0.4, 0.8]), source.random() < 0.5
            suggested = np.array([source.random() < share for _ in pair.state.topology.node_names])
            expected = pair.expected(leaves, suggested, ignore)
            outcomes["not mapped" if expected is None else "mapped"] += 1
            assert map_in_core(pair.state, leaves, suggested, ignore) == expected, seed
    assert all(count > len(seeds) // 6 for count in outcomes.values()), outcomes


def lose_some(state: State, source: random.Random, seed: int) -> State:
    """Every third state loses leaf cells."""
    for node in state.topology.node_names if seed % 3 == 0 else ():
        lose(state, node, source.choice([0, 1, 1, 2]), *source.choice([(), (1,), (0, 2)]))
    return state


def test_a_mapping_below_nodes_with_lost_leaves_is_that_of_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of 2 boards with 2 pairs of 2 GPUs, on which the leaves of a gang have to fit together."""
    source = random.Random(6)
    outcomes = {"mapped": 0, "not mapped": 0}
    vc = quota("A", {"RACK": 1, "RACK.NODE": 2})
    spec = tree_cluster({"RACK": 2, "NODE": 2, "BOARD": 2, "PAIR": 2}, vc, tops=2)

    def make() -> State:
        state = healthy_state(spec)
        for node in state.topology.node_names:
            lose(state, node, 0, *source.sample(range(8), source.choice([0, 1, 2, 3, 4])))
        return state

    for _ in range(60):
        pair = Pair(spec, make, monkeypatch)
        (own,) = virtual_leaves(pair.state)
        leaves = [leaf for leaf in own if pair.state.cells.bad[leaf] == 0]
        leaves = source.sample(leaves, source.randint(3, len(leaves) * 2 // 3))
        expected = pair.expected(leaves, ALL, True)
        outcomes["not mapped" if expected is None else "mapped"] += 1
        assert map_in_core(pair.state, leaves, ALL, True) == expected
    assert min(outcomes.values()) > 10, outcomes


def virtual_leaves(state: State) -> list[list[int]]:
    """The leaves of each VC, chain by chain."""
    arrays = state.arrays
    found: dict[tuple[int, int], list[int]] = {}
    for leaf in np.flatnonzero((arrays.level == 1) & (arrays.vc != NO_CELL)).tolist():
        chain = int(arrays.chain_of_level[arrays.chain_level[leaf]])
        found.setdefault((int(arrays.vc[leaf]), chain), []).append(leaf)
    return list(found.values())


def test_mapping_changes_nothing() -> None:
    source = random.Random(5)
    for seed in range(10):
        state = busy_state(random_cluster(seed), source)
        for leaves in virtual_leaves(state):
            before, scratch = state.cells.memory.copy(), state.cells.mark.copy()
            map_in_core(state, leaves, ALL, True)
            assert (state.cells.memory == before).all()
            assert (state.cells.mark == scratch).all()


def test_a_gang_spans_preassigned_cells_of_several_levels() -> None:
    """Its first leaf lies below a low preassigned cell, so its wishes are fewer levels deep than the next one's."""
    spec = rack_cluster(quota("A", {"RACK.NODE": 1, "RACK": 1}), gpus=1)
    state = healthy_state(spec)
    run(state, pod("g", members=((2, 1),)))
    check_invariants(state)


def test_a_long_gang_over_preassigned_cells_of_several_levels_stays_within_its_arrays() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1, "RACK": 99}), racks=100, nodes=2, gpus=1))
    run(state, pod("g", members=((199, 1),)))
    assert len(set(held_nodes(state, "g"))) == 199


def test_cells_without_opportunistic_pods_are_taken_first() -> None:
    state = healthy_state(rack_cluster())
    lent = run(state, pod("o", priority=-1))
    assert run(state, pod("g")).bind_info.node != lent.bind_info.node


def test_an_opportunistic_pod_is_preempted_where_no_other_cell_is_left() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    for i in range(4):
        run(state, pod(f"o{i}", priority=-1))
    decision = request(state, pod("g"))
    assert not isinstance(decision, Bind)


def test_a_bad_node_is_avoided_where_another_one_is_free() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2})))
    set_nodes(state, "n0", "n1", is_healthy=False)
    run(state, pod("g", members=((2, 2),)))
    assert held_nodes(state, "g") == ["n2", "n2", "n3", "n3"]


@pytest.mark.parametrize("bad", ["n0", "n1"])
def test_a_rack_with_a_bad_node_still_serves_a_pod_that_fits_the_other_one(bad: str) -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    set_nodes(state, bad, is_healthy=False)
    run(state, pod("g"))
    assert set(held_nodes(state, "g")) == {"n0", "n1"} - {bad}


# --- safe relaxed split: the free cells of the root's own level are all unusable (rule 7.6) ---------------------------


def test_what_a_gang_has_claimed_itself_is_no_obstacle_to_its_next_cell() -> None:
    """B splits a rack beside a bad node; A's rack is placed first, so the last rack may be split for A's node."""
    spec = rack_cluster(quota("A", {"RACK": 1, "RACK.NODE": 1}), quota("B", {"RACK.NODE": 1}), racks=3)
    state = healthy_state(spec)
    set_nodes(state, "n0", is_healthy=False)
    run(state, pod("b", vc="B"))
    assert held_nodes(state, "b") == ["n1", "n1"]
    run(state, pod("g", members=((3, 2),)))
    assert held_nodes(state, "g")[::2] == ["n4", "n5", "n2"]


def test_only_levels_above_the_wanted_one_must_have_cells_to_spare() -> None:
    """Every node is promised; the quota still holds the gang's first node when its second one needs a whole pool."""
    vc = quota("A", {"POOL.RACK.NODE": 8})
    state = healthy_state(tree_cluster({"POOL": 2, "RACK": 2, "NODE": 2}, vc, tops=2))
    run(state, pod("first"))
    assert set(held_nodes(state, "first")) == {"n0"}
    gang = pod("g", members=((2, 2),), ignore_suggested_nodes=False)
    decision = request(state, gang, Phase.FILTERING, "n2", "n4")
    assert isinstance(decision, Bind), decision
    assert [p.node for p in decision.bind_info.members[0]] == ["n2", "n4"]


def test_cells_that_other_vcs_may_claim_are_not_split() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {"RACK": 1})))
    run(state, pod("first"))
    wanted = pod("g", ignore_suggested_nodes=False)
    assert isinstance(request(state, wanted, Phase.FILTERING, "n2", "n3"), Wait)


def test_leaves_that_are_bound_already_keep_their_hardware() -> None:
    """A bad leaf stays bound when it is released, and is still the physical leaf of its virtual one."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=1))
    first = pod("g", members=((1, 1),))
    run(state, first)
    node = held_nodes(state, "g")[0]
    set_nodes(state, node, is_healthy=False)
    delete(state, first)
    leaf = cell_at(state, f"0/{node}/0")
    virtual = int(state.cells.bound[leaf])
    assert map_in_core(state, [virtual], ALL, True) == [leaf]
