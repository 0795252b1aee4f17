"""Numbers, links and addresses of cells against the oracle's trees of objects (rules 1.6, 1.10, 1.13)."""

import numpy as np
import pytest

from hived.cells.layout import build_topology
from hived.cells.topology import NO_CELL, Topology, resolve_chain
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from tests.core.builders import quota, rack_cluster, random_cluster
from tests.core.naive.model import Cell, build_chains, build_virtual_clusters, initial_view

SEEDS = range(25)


def physical_trees(topology: Topology) -> list[int]:
    """Top cells, chains ascending, in declaration order."""
    return [f.first_root + i for f in topology.forests if f.vc == NO_CELL for i in range(f.tree_count)]


def assert_same_tree(topology: Topology, cell: int, plain: Cell) -> None:
    arrays = topology.arrays
    assert (topology.address(cell), topology.cell_type(cell)) == (plain.address, plain.cell_type)
    assert arrays.level[cell] == plain.level
    first = int(arrays.first_leaf[cell])
    leaves = range(first, first + int(arrays.leaf_count[arrays.chain_level[cell]]))
    assert [topology.address(leaf) for leaf in leaves] == [leaf.address for leaf in plain.leaves]
    for child, plain_child in zip(topology.children(cell), plain.children, strict=True):
        assert arrays.parent[child] == cell
        assert arrays.root[child] == arrays.root[cell]
        assert_same_tree(topology, child, plain_child)


@pytest.mark.parametrize("seed", SEEDS)
def test_physical_trees_are_those_of_the_file(seed: int) -> None:
    spec = random_cluster(seed)
    topology = build_topology(spec)
    tops = [top for chain in build_chains(spec).values() for top in chain.tops]
    for cell, plain in zip(physical_trees(topology), tops, strict=True):
        assert_same_tree(topology, cell, plain)


@pytest.mark.parametrize("seed", SEEDS)
def test_virtual_trees_are_those_of_the_file(seed: int) -> None:
    spec = random_cluster(seed)
    topology = build_topology(spec)
    for name, vc in build_virtual_clusters(spec, build_chains(spec)).items():
        roots = topology.preassigned[topology.vc_index[name]]
        for cell, plain in zip(roots, [*vc.preassigned, *vc.pinned.values()], strict=True):
            assert_same_tree(topology, cell, plain)


@pytest.mark.parametrize("seed", SEEDS)
def test_views_begin_in_the_order_of_the_file(seed: int) -> None:
    spec = random_cluster(seed)
    topology, chains = build_topology(spec), build_chains(spec)
    arrays, vcs = topology.arrays, build_virtual_clusters(spec, chains)
    expected = {chain: initial_view(list(plain.tops), plain.node_level) for chain, plain in enumerate(chains.values())}
    for (vc, chain), view in topology.vc_views.items():
        plain, name = vcs[topology.vc_names[vc]], topology.chains[chain].name
        expected[view] = initial_view(list(plain.roots(name)), chains[name].node_level)
    for (vc, pin), view in topology.pinned_views.items():
        root = vcs[topology.vc_names[vc]].pinned[pin]
        expected[view] = initial_view([root], chains[root.chain].node_level)
    assert len(expected) == len(arrays.view_start) - 1
    for view, cells in expected.items():
        own = arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]].tolist()
        assert [topology.address(cell) for cell in own] == [cell.address for cell in cells]
        assert topology.view_leaf_counts[view] == sum(len(cell.leaves) for cell in cells)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_leaves_of_a_node_stand_in_canonical_order(seed: int) -> None:
    """Chains ascending, then in tree order; one node may carry several chains (rules 1.7, 10.3)."""
    spec = random_cluster(seed)
    topology = build_topology(spec)
    arrays = topology.arrays
    leaves = [leaf for chain in build_chains(spec).values() for top in chain.tops for leaf in top.leaves]
    for node, name in enumerate(topology.node_names):
        own = arrays.node_leaf[arrays.node_leaf_start[node] : arrays.node_leaf_start[node + 1]]
        expected = [(leaf.address, leaf.index) for leaf in leaves if leaf.node == name]
        assert [(topology.address(leaf), arrays.device[leaf]) for leaf in own.tolist()] == expected


def test_every_cell_is_in_its_forest() -> None:
    topology = build_topology(random_cluster(3))
    for cell in range(len(topology.arrays.parent)):
        forest = topology.forest_of(cell)
        assert forest.first_root <= topology.arrays.root[cell] < forest.first_root + forest.tree_count


def test_node_names_and_vcs_are_numbered_in_ascending_order() -> None:
    topology = build_topology(rack_cluster(quota("b", {"RACK": 1}), quota("a", {"RACK": 1}), racks=6))
    assert topology.vc_names == ("a", "b")
    assert topology.node_names == ("n0", "n1", "n10", "n11", *(f"n{i}" for i in range(2, 10)))


def test_leaf_types_lead_to_their_chains_in_ascending_order() -> None:
    types = {
        name: CellTypeSpec(name, leaf, 2, is_node_level=True)
        for name, leaf in (("Z", "GPU"), ("M", "CPU"), ("A", "GPU"))
    }
    topology = build_topology(ClusterSpec(types, tuple(PhysicalCellSpec(name, name) for name in types), {}))
    assert list(topology.leaf_type_chains) == ["CPU", "GPU"]
    assert [[topology.chains[i].name for i in chains] for chains in topology.leaf_type_chains.values()] == [
        ["M"],
        ["A", "Z"],
    ]


def test_the_leaves_of_a_level_multiply() -> None:
    types = {"N": CellTypeSpec("N", "G", 3, is_node_level=True), "R": CellTypeSpec("R", "N", 5)}
    chain = resolve_chain(types, "R")
    assert [chain.leaf_count(level) for level in (1, 2, 3)] == [1, 3, 15]


def test_a_cluster_without_vcs_has_only_physical_cells() -> None:
    spec = rack_cluster()
    topology = build_topology(ClusterSpec(spec.cell_types, spec.physical_cells, {}))
    assert topology.physical_count == len(topology.arrays.parent) == 14
    assert np.all(topology.arrays.vc == NO_CELL)
