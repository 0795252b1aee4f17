"""Mapping virtual leaves onto hardware against a mapper that tries every permutation (rules 7)."""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from hived.decisions import Bind, Wait
from hived.events import Phase
from hived.journal import start_recording, stop_recording
from hived.mapping import map_leaves
from hived.scheduler import check_invariants
from hived.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from hived.state import State
from hived.topology import NO_CELL, IntArray
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
)

Tree = dict[int, "Tree"]  # virtual cell to bind -> its children to bind, in the order of first use
Lists = dict[int, list[int]]  # chain level -> free cells
ALL = np.ones(0, np.bool_)


class PlainMapper:
    """Rules 7.1 to 7.8 on lists and dicts; children are matched by trying all permutations."""

    def __init__(self, state: State, suggested: np.ndarray, ignore: bool) -> None:
        self.state, self.suggested, self.ignore = state, suggested, ignore
        self.parent, self.bound = state.arrays.parent.tolist(), state.cells.bound.tolist()
        self.level = state.arrays.chain_level.tolist()
        self.found: dict[int, int] = {}
        self.relaxed = 0

    def map(self, leaves: list[int]) -> list[int] | None:
        arrays, cells = self.state.arrays, self.state.cells
        roots, below = self.trees(leaves)
        base = arrays.level_base.tolist()
        free = {level: cells.free_list[base[level] :][:count].tolist() for level, count in enumerate(cells.free_count)}
        claims = cells.claims.tolist()
        for root, branches in roots.items():
            if self.allocate(root, branches, free):
                claims[self.level[root]] -= 1
            elif not self.allocate_relaxed(root, branches, free, claims):
                return None
        for parent, branches in below.items():
            if not self.match(branches, list(self.state.topology.children(self.bound[parent]))):
                return None
        return [self.found.get(leaf, self.bound[leaf]) for leaf in leaves]

    def trees(self, leaves: list[int]) -> tuple[Tree, dict[int, Tree]]:
        """Trees below free preassigned cells, and by bound parent."""
        roots: Tree = {}
        below: dict[int, Tree] = {}
        for leaf in leaves:
            path: list[int] = []
            cell = leaf
            while cell != NO_CELL and self.bound[cell] == NO_CELL:
                path.insert(0, cell)
                cell = self.parent[cell]
            branches = roots if cell == NO_CELL else below.setdefault(cell, {}) if path else {}
            for step in path:
                branches = branches.setdefault(step, {})
        return roots, below

    def nodes(self, cell: int) -> set[int]:
        if self.state.arrays.node[cell] != NO_CELL:
            return {int(self.state.arrays.node[cell])}
        return {node for child in self.state.topology.children(cell) for node in self.nodes(child)}

    def usable(self, cells: list[int]) -> list[int]:
        """Unbound, not on one node and all bad, on a suggested node; fewest lost, then opportunistic leaves first."""
        good = [
            cell
            for cell in cells
            if self.bound[cell] == NO_CELL
            and not (self.is_bad(cell) and len(self.nodes(cell)) == 1)
            and (self.ignore or any(self.suggested[node] for node in self.nodes(cell)))
        ]
        return sorted(good, key=lambda cell: (self.lost(cell), self.state.cells.opportunistic_used[cell]))

    def leaves(self, cell: int) -> list[int]:
        children = list(self.state.topology.children(cell))
        return [leaf for child in children for leaf in self.leaves(child)] if children else [cell]

    def is_bad(self, cell: int) -> bool:
        return all(self.state.cells.bad[leaf] for leaf in self.leaves(cell))

    def lost(self, cell: int) -> int:
        return sum(self.state.cells.lost[leaf] for leaf in self.leaves(cell))

    def match(self, branches: Tree, candidates: list[int]) -> bool:
        usable = self.usable(candidates)
        for chosen in itertools.permutations(usable, len(branches)):
            found = dict(self.found)
            if all(
                self.match(below, list(self.state.topology.children(cell)))
                for below, cell in zip(branches.values(), chosen, strict=True)
            ):
                self.found |= zip(branches, chosen, strict=True)
                return True
            self.found = found
        return False

    def allocate(self, root: int, branches: Tree, free: Lists) -> bool:
        """Buddy allocation from the lowest level with a free cell."""
        top = self.level[root] + self.state.topology.chain_of(root).top_level - int(self.state.arrays.level[root])
        start = next((level for level in range(self.level[root], top + 1) if free[level]), None)
        return start is not None and self.descend(root, branches, free, start)

    def descend(self, root: int, branches: Tree, free: Lists, level: int) -> bool:
        for cell in self.usable(free[level]):
            if level == self.level[root]:
                is_placed = self.match({root: branches}, [cell])
            else:
                before = list(free[level - 1])
                free[level - 1] += self.state.topology.children(cell)
                is_placed = self.descend(root, branches, free, level - 1)
                if not is_placed:
                    free[level - 1] = before
            if is_placed:
                swap_remove(free[level], cell)
                return True
        return False

    def allocate_relaxed(self, root: int, branches: Tree, free: Lists, claims: list[int]) -> bool:
        """Split everything that the quota leaves over, level by level upwards."""
        self.relaxed += 1
        own, chain = self.level[root], self.state.topology.chain_of(root)
        top = own + chain.top_level - int(self.state.arrays.level[root])
        spare = {top + 1: 0}
        for level in range(top, own, -1):
            children = int(self.state.arrays.child_count[level + 1]) if level < top else 0
            spare[level] = len(free[level]) - claims[level] + spare[level + 1] * children
            if spare[level] < 0:
                return False
        for level in range(own + 1, top + 1):
            pieces: list[int] = []
            for _ in range(min(spare[level], len(free[level]))):
                head = free[level][0]
                swap_remove(free[level], head)
                pieces += self.cells_below(head, own)
            free[own] = pieces + free[own]
            if pieces and self.descend(root, branches, free, own):
                return True
        return False

    def cells_below(self, cell: int, level: int) -> Iterator[int]:
        if self.level[cell] == level:
            yield cell
        else:
            for child in self.state.topology.children(cell):
                yield from self.cells_below(child, level)


def swap_remove(cells: list[int], cell: int) -> None:
    cells[cells.index(cell)] = cells[-1]
    cells.pop()


def map_in_core(state: State, leaves: list[int], suggested: np.ndarray, ignore: bool) -> list[int] | None:
    physical: IntArray = np.full(len(leaves), 99, np.int32)
    start_recording(state)
    is_mapped = map_leaves(state.arrays, state.cells, np.array(leaves, np.int32), suggested, ignore, NO_CELL, physical)
    stop_recording(state)
    return physical.tolist() if is_mapped else None


def test_a_mapping_is_that_of_a_mapper_that_tries_every_permutation() -> None:
    source = random.Random(4)
    outcomes = {"mapped": 0, "not mapped": 0, "relaxed": 0}
    for seed in range(150):
        state = busy_state(random_cluster(seed), source)
        if seed % 3 == 0:
            lose_some(state, source)
        nodes = len(state.topology.node_names)
        for own in virtual_leaves(state):
            leaves = source.sample(own, source.randint(1, min(8, len(own))))
            share, ignore = source.choice([0.4, 0.8]), source.random() < 0.5
            suggested = np.array([source.random() < share for _ in range(nodes)])
            mapper = PlainMapper(state, suggested, ignore)
            expected = mapper.map(leaves)
            outcomes["relaxed"] += mapper.relaxed
            outcomes["not mapped" if expected is None else "mapped"] += 1
            assert map_in_core(state, leaves, suggested, ignore) == expected, seed
    assert all(count > 30 for count in outcomes.values()), outcomes


def lose_some(state: State, source: random.Random) -> None:
    for node in state.topology.node_names:
        lose(state, node, source.choice([0, 1, 1, 2]), *source.choice([(), (1,), (0, 2)]))


def test_a_mapping_below_nodes_with_lost_leaves_is_that_of_a_mapper_that_tries_every_permutation() -> None:
    """Nodes of 2 boards with 2 pairs of 2 GPUs, on which the leaves of a gang have to fit together."""
    types = {
        "PAIR": CellTypeSpec("PAIR", "GPU", 2),
        "BOARD": CellTypeSpec("BOARD", "PAIR", 2),
        "NODE": CellTypeSpec("NODE", "BOARD", 2, is_node_level=True),
        "RACK": CellTypeSpec("RACK", "NODE", 2),
    }
    racks = tuple(
        PhysicalCellSpec("RACK", children=tuple(PhysicalCellSpec(address=f"n{2 * i + k}") for k in range(2)))
        for i in range(2)
    )
    source = random.Random(6)
    outcomes = {"mapped": 0, "not mapped": 0}
    for _ in range(60):
        state = healthy_state(ClusterSpec(types, racks, {"A": quota("A", {"RACK": 1, "RACK.NODE": 2})}))
        for node in state.topology.node_names:
            lose(state, node, 0, *source.sample(range(8), source.choice([0, 1, 2, 3, 4])))
        (own,) = virtual_leaves(state)
        leaves = [leaf for leaf in own if state.cells.bad[leaf] == 0]
        leaves = source.sample(leaves, source.randint(3, len(leaves) * 2 // 3))
        expected = PlainMapper(state, ALL, True).map(leaves)
        outcomes["not mapped" if expected is None else "mapped"] += 1
        assert map_in_core(state, leaves, ALL, True) == expected
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
    rack = rack_cluster(racks=4)
    spec = ClusterSpec(
        cell_types={**rack.cell_types, "POOL": CellTypeSpec("POOL", "RACK", 2)},
        physical_cells=tuple(PhysicalCellSpec("POOL", children=rack.physical_cells[i : i + 2]) for i in (0, 2)),
        virtual_clusters={"A": quota("A", {"POOL.RACK.NODE": 8})},
    )
    state = healthy_state(spec)
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
