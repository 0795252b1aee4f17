"""Counts the promises of virtual clusters by cell type and level, and resolves cell types as users write them."""

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from hived.cells.topology import Forest, Forests
from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.chains import Chain, chain_below
from hived_config.reader import closest


class PinnedCell(
    msgspec.Struct,
    frozen=True,
    rename={"pin_id": "pinnedCellId", "cell_type": "cellType", "address": "cellAddress"},
):
    """A pinned cell: its type, its full address, and the VC that has it or ""."""

    pin_id: str
    cell_type: str
    address: str
    vc: str


class DividedLevel(
    msgspec.Struct,
    frozen=True,
    rename={
        "cell_type": "cellType", "cell_count": "cells", "leaf_count": "leafCellsEach", "is_node_level": "isNodeLevel",
        "promised": "virtualCells", "pinned": "pinnedCells",
    },
):  # fmt: skip
    """One level of a chain; a leaf cell is level 1.

    Attributes
    ----------
    cell_count : the physical cells of the level, parts of promised ones included
    leaf_count : the leaf cells below each
    promised, pinned : by VC, the preassigned cells of this level that are not pinned, and the pinned ones
    spare : cells of this level left whole when every VC has its promise; of the level above, as few as possible are
        split
    """

    level: int
    cell_type: str
    cell_count: int
    leaf_count: int
    is_node_level: bool
    promised: dict[str, int]
    pinned: dict[str, int]
    spare: int


class DividedChain(
    msgspec.Struct,
    frozen=True,
    rename={
        "name": "chain", "node_count": "nodes", "leaf_count": "leafCells", "tops": "cells",
        "pinned_cells": "pinnedCells",
    },
):  # fmt: skip
    """A chain: its levels from the top down, the addresses of its top-level cells, and its pinned cells in file order.

    leaf_count == sum of spare * leaf_count over all levels + sum of leaves_of(vc) over all VCs
    """

    name: str
    node_count: int
    leaf_count: int
    tops: tuple[str, ...]
    levels: tuple[DividedLevel, ...]
    pinned_cells: tuple[PinnedCell, ...]

    @property
    def spare_leaf_count(self) -> int:
        """The leaf cells that no VC is promised."""
        return sum(level.spare * level.leaf_count for level in self.levels)

    def leaves_of(self, vc: str) -> int:
        """The leaf cells that a VC is promised."""
        counts = ((level.promised.get(vc, 0) + level.pinned.get(vc, 0)) * level.leaf_count for level in self.levels)
        return sum(counts)


def chains_of(cluster: ClusterSpec) -> dict[str, Chain]:
    """The chains that a sound cluster has cells of, by name, in file order."""
    tops = dict.fromkeys(cell.cell_type for cell in cluster.physical_cells)
    return {top: chain_below(cluster.cell_types, top)[0] for top in tops}


def depth_of(chain: Chain, path: str) -> int:
    """The depth of the cells that a dotted path down a chain names."""
    return chain.types.index(path.rsplit(".", 1)[-1])


def divide(cluster: ClusterSpec) -> tuple[DividedChain, ...]:
    """The chains of a sound cluster, in file order. Cost O(entries of the file)."""
    forests = Forests(cluster)
    return tuple(_divide(cluster, forests, forests.chain_index[name]) for name in chains_of(cluster))


def _divide(cluster: ClusterSpec, forests: Forests, index: int) -> DividedChain:
    chain, trees = forests.chains[index], forests.forests[index]
    top, sizes = chain.top_level, [0, *(forests.level_size(trees, level) for level in range(1, chain.top_level + 1))]
    promised, pinned = ([Counter[str]() for _ in sizes] for _ in range(2))
    for vc in cluster.virtual_clusters.values():
        for cell in vc.virtual_cells:
            name, *below = cell.cell_type.split(".")
            if name == chain.name:
                promised[chain.type_levels[below[-1] if below else name]][vc.name] += cell.cell_count
    vc_of_pin = {pin_id: vc.name for vc in cluster.virtual_clusters.values() for pin_id in vc.pinned_cell_ids}
    pins: dict[tuple[int, int], PinnedCell] = {}
    apart: list[set[int]] = [set() for _ in sizes]  # by level, the cells above those that a VC has pinned
    for pin_id, pin in forests.pinned_cells.items():
        level = next((each for each in range(1, top + 1) if 0 <= pin - trees.bases[each] < sizes[each]), 0)
        if level:
            position, owner = pin - trees.bases[level], vc_of_pin.get(pin_id, "")
            address = _address(forests, trees, level, position)
            pins[position * chain.leaf_count(level), -level] = PinnedCell(
                pin_id, chain.types[level - 1], address, owner
            )
            if owner:
                pinned[level][owner] += 1
                for above in range(level + 1, top + 1):
                    apart[above].add(position // (chain.leaf_count(above) // chain.leaf_count(level)))
    levels: list[DividedLevel] = []
    needed = 0  # cells of the level below that are promised, or split
    for level, (count, fan_out) in enumerate(zip(sizes[1:], chain.child_counts, strict=True), 1):
        split = max(len(apart[level]), -(-needed // max(1, fan_out)))
        if levels:
            levels[-1] = replace(levels[-1], spare=split * fan_out - needed)
        needed = split + promised[level].total() + pinned[level].total()
        levels.append(
            DividedLevel(
                level, chain.types[level - 1], count, chain.leaf_count(level), level == chain.node_level,
                promised[level], pinned[level], count - needed,
            )
        )  # fmt: skip
    tops = tuple(_address(forests, trees, top, i) for i in range(trees.tree_count))
    in_order = tuple(pins[place] for place in sorted(pins))
    return DividedChain(chain.name, sizes[chain.node_level], sizes[1], tops, tuple(reversed(levels)), in_order)


def _address(forests: Forests, trees: Forest, level: int, position: int) -> str:
    """The full address of a physical cell (rule 1.6), as `Topology.address` has it."""
    chain = forests.chains[trees.chain]
    parts = []
    for each in range(level, chain.top_level + 1):
        at = position // (chain.leaf_count(each) // chain.leaf_count(level))
        number = forests.default_number(trees, each, at)
        if each < chain.node_level:
            number = at % (chain.leaf_count(chain.node_level) // chain.leaf_count(each))
        parts.append(forests.texts.get(trees.bases[each] + at) or str(number))
    return "/".join(reversed(parts))


CellTypePlace = tuple[str, int]
"""A chain and a depth in it: one cell type, however its path is written."""


class Promise(msgspec.Struct, frozen=True):
    """`count` cells of the type at a place; `path` is how the type is written."""

    place: CellTypePlace
    path: str
    count: int


def place_of(chains: Mapping[str, Chain], path: str) -> CellTypePlace:
    """The place of a sound dotted path."""
    name = path.split(".", 1)[0]
    return name, depth_of(chains[name], path)


def counts_of(cluster: ClusterSpec, vc: str) -> dict[CellTypePlace, int]:
    """The cells that a VC is promised at each place, without pinned ones; none for a VC that does not exist."""
    chains = chains_of(cluster)
    counts: dict[CellTypePlace, int] = {}
    for cell in cluster.virtual_clusters[vc].virtual_cells if vc in cluster.virtual_clusters else ():
        place = place_of(chains, cell.cell_type)
        counts[place] = counts.get(place, 0) + cell.cell_count
    return counts


def resolve(cluster: ClusterSpec, cell_type: str) -> Promise:
    """Resolve a path, or its last part alone, to its cell type; the promise is of 0 cells.

    Raises UserError for a type that is unknown, or of several chains.
    """
    chains = chains_of(cluster)
    chain_name, *below = cell_type.split(".")
    if chain_name in chains:
        chain = chains[chain_name]
        depth = 0
        for part in below:
            if part not in chain.types[depth + 1 :]:
                path = ".".join(chain.types)
                raise UserError(
                    f"cell type {cell_type}: {part} is not below {chain.types[depth]}; expected part of {path}"
                )
            depth = chain.types.index(part)
        return Promise((chain_name, depth), cell_type, 0)
    found = [chain for chain in chains.values() if cell_type in chain.types]
    if not found:
        types = dict.fromkeys(name for chain in chains.values() for name in chain.types)
        raise UserError(f"there is no cell type {cell_type!r} in a chain; {suggest(cell_type, types)}")
    depths = [chain.types.index(cell_type) for chain in found]
    paths = [".".join(chain.types[: depth + 1]) for chain, depth in zip(found, depths, strict=True)]
    if len(found) > 1:
        raise UserError(f"cell type {cell_type} is in several chains; name one of {', '.join(paths)}")
    return Promise((found[0].name, depths[0]), paths[0], 0)


def suggest(name: str, known: Collection[str]) -> str:
    """The known names, for a message about an unknown one."""
    meant = closest(name, known)
    there = ", ".join(known) or "none"
    return f"there are: {there}" + (f" (did you mean {meant}?)" if meant else "")
