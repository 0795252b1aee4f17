"""The cell trees of a cluster as dense arrays: built once from a `ClusterSpec`, never changed.

All cells share one index space: physical cells first, then virtual ones. Cells come in *forests*: trees of one shape,
stored level by level, top level first. A chain's physical cells are one forest; so are the preassigned cells that a VC
has of one chain and level, and so is each pinned cell. Forests are regular, so children and addresses that the file
leaves out are never expanded into objects. Within a level, cells stand in declaration order, therefore

    children of `cell`  == first_child[cell] .. first_child[cell] + child_count[chain_level[cell]] - 1
    leaves below `cell` == first_leaf[cell]  .. first_leaf[cell]  + leaf_count[chain_level[cell]] - 1
    parent[child] == cell   for each of these children

A (chain, level) pair has a dense index too, `chain_level = level_offset[chain] + level`; a leaf is level 1. Chains,
VCs and nodes are numbered in ascending order of their names, which makes index order the canonical order (rule 1.13).
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

from hived.kernels.blocks import Block
from hived.values.errors import UserError
from hived.values.specs import MAX_LEVELS, CellTypeSpec, ClusterSpec, PhysicalCellSpec

NO_CELL = -1
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class TopologyArrays(Block):
    """The topology as kernels read it. `cells` = number of cells, `levels` = number of chain levels (all int32)."""

    # per cell, shape (cells,)
    parent: IntArray  # NO_CELL for roots
    first_child: IntArray  # NO_CELL for leaves
    first_leaf: IntArray  # the cell itself for leaves
    chain_level: IntArray
    level: IntArray
    root: IntArray  # top physical cell, or preassigned cell
    vc: IntArray  # owner of a virtual cell; NO_CELL for physical cells
    node: IntArray  # node of a physical cell at or below node level, else NO_CELL
    device: IntArray  # device index of a physical leaf, else NO_CELL
    pinned: IntArray  # 1 for a pinned physical cell and for its virtual root
    # per chain level, shape (levels,); slot level_offset[chain] itself is unused because levels start at 1
    child_count: IntArray  # children of a cell at this level; 0 for leaves
    leaf_count: IntArray  # leaves below a cell at this level
    level_base: IntArray  # first physical cell of this level
    level_size: IntArray  # number of physical cells of this level
    most_roots: IntArray  # most non-pinned preassigned cells that one VC has: at least every vc_claims of the level
    chain_of_level: IntArray
    # per chain
    level_offset: IntArray
    top_level: IntArray
    node_level: IntArray
    # per (vc, chain level), index vc * levels + chain_level
    root_base: IntArray  # first non-pinned preassigned cell, NO_CELL if none
    root_count: IntArray
    # leaves of each node in canonical order: node_leaf[node_leaf_start[n] : node_leaf_start[n + 1]]
    node_leaf_start: IntArray
    node_leaf: IntArray
    # views (rules 6.1, 6.2): cells in initial order are view_cell[view_start[w] : view_start[w + 1]]; view w < chains
    # is the opportunistic view of chain w
    view_start: IntArray
    view_cell: IntArray
    view_of: IntArray  # the view that a cell is in, NO_CELL if none; shape (cells,)
    view_node_leaves: IntArray  # leaves of each cell of a view, 0 if they differ


@dataclass(frozen=True, slots=True)
class Chain:
    """A cell chain: its name and the type of each level, `types[0]` the leaf type."""

    name: str
    types: tuple[str, ...]
    child_counts: tuple[int, ...]  # child_counts[i] children in a cell of types[i]; 0 for leaves
    node_level: int
    type_levels: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def top_level(self) -> int:
        """Level of the chain's top cells."""
        return len(self.types)

    def leaf_count(self, level: int) -> int:
        """Leaves below a cell of `level`."""
        return prod(self.child_counts[1:level])


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees of one shape: `bases[level]` is their first cell of `level`, `numbers` are the roots' address numbers."""

    chain: int
    top_level: int
    tree_count: int
    bases: tuple[int, ...]
    vc: int = NO_CELL
    pinned_cell_id: str = ""
    numbers: tuple[int, ...] = ()

    @property
    def first_root(self) -> int:
        """The first root, which is also the lowest index of the forest."""
        return self.bases[self.top_level]


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """Names of cells, chains, VCs and nodes, beside the arrays that kernels read."""

    arrays: TopologyArrays
    chains: tuple[Chain, ...]
    chain_index: dict[str, int]
    forests: tuple[Forest, ...]
    physical_count: int
    vc_names: tuple[str, ...]
    vc_index: dict[str, int]
    node_names: tuple[str, ...]
    node_index: dict[str, int]
    leaf_type_chains: dict[str, tuple[int, ...]]  # leaf cell type -> chains, both ascending
    vc_views: dict[tuple[int, int], int]  # (vc, chain) -> view of its non-pinned cells
    pinned_views: dict[tuple[int, str], int]  # (vc, pinned cell id) -> view
    pinned_roots: dict[tuple[int, str], int]  # (vc, pinned cell id) -> preassigned cell
    pinned_cells: dict[str, int]  # pinned cell id -> physical cell
    preassigned: dict[int, tuple[int, ...]]  # vc -> preassigned cells in file order
    level_types: tuple[str, ...]  # cell type of each chain level, "" for the unused ones
    view_leaf_counts: tuple[int, ...]  # leaves below all cells of each view
    _texts: dict[int, str]  # address parts as written
    _addresses: list[str]

    def address(self, cell: int) -> str:
        """Full address of a cell (rule 1.6). Cost O(height) the first time."""
        known = self._addresses[cell]
        if known:
            return known
        parent = int(self.arrays.parent[cell])
        part = self._texts.get(cell) or str(self._number(cell))
        if parent != NO_CELL:
            text = f"{self.address(parent)}/{part}"
        elif self.arrays.vc[cell] == NO_CELL:
            text = part
        else:
            text = f"{self.vc_names[self.arrays.vc[cell]]}/{part}"
        self._addresses[cell] = text
        return text

    def addresses(self, cells: IntArray) -> list[str]:
        """Full addresses of cells that are all physical or all virtual, of one chain and level.

        Cost O(cells), also the first time: numbers are counted for all cells of a level at once.
        """
        found = [self._addresses[cell] for cell in cells.tolist()]
        if all(found):
            return found
        numbers, known, texts, starts = self._numbers(cells).tolist(), self._addresses, self._texts, self._starts(cells)
        for i, (cell, start) in enumerate(zip(cells.tolist(), starts, strict=True)):
            if not found[i]:
                found[i] = known[cell] = start + (texts.get(cell) or str(numbers[i]))
        return found

    def _starts(self, cells: IntArray) -> list[str]:
        """The addresses without their last part."""
        parents = self.arrays.parent[cells]
        others = np.unique(parents[parents != NO_CELL])
        by_parent = dict(zip(others.tolist(), (f"{each}/" for each in self.addresses(others)), strict=True))
        vcs = self.arrays.vc[cells].tolist()
        return [
            by_parent[parent] if parent != NO_CELL else "" if vc == NO_CELL else f"{self.vc_names[vc]}/"
            for parent, vc in zip(parents.tolist(), vcs, strict=True)
        ]

    def _numbers(self, cells: IntArray) -> IntArray:
        """`_number` of cells that are all physical or all virtual, of one chain and level."""
        arrays = self.arrays
        parents = arrays.parent[cells]
        numbers = np.zeros(len(cells), np.int32)
        is_root = parents == NO_CELL
        numbers[is_root] = [self._number(cell) for cell in cells[is_root].tolist()]
        below, parents = np.flatnonzero(~is_root), parents[~is_root]
        if len(below):
            is_physical = cells[0] < self.physical_count
            numbers[below] = cells[below] - arrays.first_child[parents]
            is_counted_on = arrays.parent[parents] != NO_CELL if not is_physical else np.full(len(parents), True)
            if is_physical and arrays.level[parents[0]] == self.chain_of(int(parents[0])).node_level:
                is_counted_on[:] = False
            if is_counted_on.any():
                above = self._numbers(parents[is_counted_on])
                numbers[below[is_counted_on]] += above * int(arrays.child_count[arrays.chain_level[parents[0]]])
        return numbers

    def _number(self, cell: int) -> int:
        """Default address number: roots are counted by the file, below it `parent * children + i` (rules 1.6, 1.10)."""
        arrays = self.arrays
        parent = int(arrays.parent[cell])
        if parent == NO_CELL:
            forest = self.forest_of(cell)
            return forest.numbers[cell - forest.first_root]
        position = cell - int(arrays.first_child[parent])
        chain = self.chains[arrays.chain_of_level[arrays.chain_level[cell]]]
        is_physical = cell < self.physical_count
        if arrays.parent[parent] == NO_CELL and not is_physical:
            return position
        if is_physical and int(arrays.level[parent]) == chain.node_level:
            return position
        return self._number(parent) * int(arrays.child_count[arrays.chain_level[parent]]) + position

    def forest_of(self, cell: int) -> Forest:
        """The forest that holds a cell; cost O(log forests)."""
        return self.forests[bisect_right(self.forests, cell, key=lambda forest: forest.first_root) - 1]

    def chain_of(self, cell: int) -> Chain:
        """The chain that a cell belongs to."""
        return self.chains[self.arrays.chain_of_level[self.arrays.chain_level[cell]]]

    def cell_type(self, cell: int) -> str:
        """The type name of a cell."""
        return self.chain_of(cell).types[int(self.arrays.level[cell]) - 1]

    def promised_leaves(self) -> dict[str, int]:
        """Leaf cells of every virtual cluster, pinned ones included. Cost O(preassigned cells)."""
        arrays = self.arrays
        return {
            name: int(arrays.leaf_count[arrays.chain_level[np.array(self.preassigned[vc], np.int32)]].sum())
            for vc, name in enumerate(self.vc_names)
        }

    def leaves_of(self, node: int) -> IntArray:
        """The physical leaves of a node, in canonical order; not to be changed."""
        start = self.arrays.node_leaf_start
        leaves: IntArray = self.arrays.node_leaf[start[node] : start[node + 1]]
        return leaves

    def children(self, cell: int) -> range:
        """The children of a cell; empty for leaves."""
        arrays = self.arrays
        count = int(arrays.child_count[arrays.chain_level[cell]])
        first = int(arrays.first_child[cell])
        return range(first, first + count)


def resolve_chain(cell_types: dict[str, CellTypeSpec], top: str) -> Chain:
    """Follow child types from `top` down to the leaf type."""
    types: list[str] = []
    counts: list[int] = []
    node_level_from_top: list[int] = []
    name = top
    while name in cell_types:
        if name in types:
            raise UserError(f"cell type {name} contains itself")
        cell_type = cell_types[name]
        if cell_type.is_node_level:
            node_level_from_top.append(len(types))
        if cell_type.child_count < 1:
            raise UserError(f"cell type {name} must have at least one child, it has {cell_type.child_count}")
        types.append(name)
        counts.append(cell_type.child_count)
        name = cell_type.child_type
    types.append(name)
    counts.append(0)
    if len(types) > MAX_LEVELS:
        raise UserError(f"chain {top} has {len(types)} levels, at most {MAX_LEVELS} are supported")
    if len(node_level_from_top) != 1:
        raise UserError(f"chain {top} must have exactly one node level, it has {len(node_level_from_top)}")
    types.reverse()
    counts.reverse()
    levels = {cell_type: level for level, cell_type in enumerate(types, 1)}
    return Chain(top, tuple(types), tuple(counts), len(types) - node_level_from_top[0], levels)


class Forests:
    """All forests of a checked configuration, physical ones first.

    `preassigned` has the roots of each VC in file order, `texts` the parts of addresses that the file spells out.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        cell_types = dict(spec.cell_types)
        tops: dict[str, list[int]] = {}
        for number, cell in enumerate(spec.physical_cells):
            tops.setdefault(cell.cell_type, []).append(number)
        self._tops = tops
        self.chains = tuple(resolve_chain(cell_types, name) for name in sorted(tops))
        self.chain_index = {chain.name: i for i, chain in enumerate(self.chains)}
        self.vc_names = tuple(sorted(spec.virtual_clusters))
        self.vc_index = {name: i for i, name in enumerate(self.vc_names)}
        self.level_offset = np.cumsum([0] + [chain.top_level + 1 for chain in self.chains]).astype(np.int32)
        self.level_total = max(1, int(self.level_offset[-1]))
        self.forests: list[Forest] = []
        self.cell_total = 0
        self.texts: dict[int, str] = {}
        self.pinned_cells: dict[str, int] = {}
        self._add_physical_forests()
        self.physical_count = self.cell_total
        self._read_physical_cells()
        self.preassigned = self._add_virtual_forests()

    def level_size(self, forest: Forest, level: int) -> int:
        """The number of cells of a level in a forest."""
        chain = self.chains[forest.chain]
        return forest.tree_count * chain.leaf_count(forest.top_level) // chain.leaf_count(level)

    def default_number(self, forest: Forest, level: int, position: int) -> int:
        """Default address number of the `position`-th cell of a physical forest, at or above node level."""
        chain = self.chains[forest.chain]
        per_root = chain.leaf_count(forest.top_level) // chain.leaf_count(level)
        return forest.numbers[position // per_root] * per_root + position % per_root

    def _add_forest(
        self, chain: int, top_level: int, count: int, numbers: tuple[int, ...], vc: int = NO_CELL, pinned_id: str = ""
    ) -> Forest:
        bases = [0] * (top_level + 1)
        size = count
        for level in range(top_level, 0, -1):
            bases[level] = self.cell_total
            self.cell_total += size
            size *= self.chains[chain].child_counts[level - 1]
        if self.cell_total > np.iinfo(np.int32).max:
            raise UserError(f"chain {self.chains[chain].name} has too many cells")
        forest = Forest(chain, top_level, count, tuple(bases), vc, pinned_id, numbers)
        self.forests.append(forest)
        return forest

    def _add_physical_forests(self) -> None:
        for i, chain in enumerate(self.chains):
            numbers = self._tops[chain.name]
            self._add_forest(i, chain.top_level, len(numbers), tuple(numbers))

    def _read_physical_cells(self) -> None:
        """Walk the cells written in the file; generated cells need no visit."""
        for forest in self.forests:
            chain = self.chains[forest.chain]
            base = forest.first_root
            tops = [self._spec.physical_cells[number] for number in forest.numbers]
            stack = [(top, base + i, chain.top_level) for i, top in enumerate(tops)]
            while stack:
                cell_spec, cell, level = stack.pop()
                self._read_physical_cell(chain, cell_spec, cell, level)
                if not cell_spec.children:
                    continue
                count = chain.child_counts[level - 1]
                if len(cell_spec.children) != count:
                    raise UserError(f"a cell of type {chain.types[level - 1]} must have {count} children")
                first = forest.bases[level - 1] + (cell - forest.bases[level]) * count
                stack.extend((child, first + i, level - 1) for i, child in enumerate(cell_spec.children))

    def _read_physical_cell(self, chain: Chain, cell_spec: PhysicalCellSpec, cell: int, level: int) -> None:
        if cell_spec.cell_type and cell_spec.cell_type != chain.types[level - 1]:
            raise UserError(f"cell type {cell_spec.cell_type} found where {chain.types[level - 1]} was expected")
        if cell_spec.address:
            self.texts[cell] = cell_spec.address
        if cell_spec.pinned_cell_id:
            if cell_spec.pinned_cell_id in self.pinned_cells:
                raise UserError(f"pinned cell {cell_spec.pinned_cell_id} is defined twice")
            self.pinned_cells[cell_spec.pinned_cell_id] = cell

    def _add_virtual_forests(self) -> dict[int, tuple[int, ...]]:
        """One forest per VC, chain and preassigned level, then one per pinned cell; returns the file order of roots."""
        in_file_order: dict[int, tuple[int, ...]] = {}
        pinned_users: set[str] = set()
        for vc, name in enumerate(self.vc_names):
            vc_spec = self._spec.virtual_clusters[name]
            numbers: dict[tuple[int, int], list[int]] = {}
            counter = 0
            for virtual_cell in vc_spec.virtual_cells:
                key = self._resolve_virtual_type(name, virtual_cell.cell_type)
                numbers.setdefault(key, []).extend(range(counter, counter + virtual_cell.cell_count))
                counter += virtual_cell.cell_count
            roots = [NO_CELL] * counter
            for (chain, level), own in sorted(numbers.items()):
                if not own:
                    continue
                forest = self._add_forest(chain, level, len(own), tuple(own), vc)
                for i, number in enumerate(own):
                    roots[number] = forest.bases[level] + i
            for pinned_id in vc_spec.pinned_cell_ids:
                if pinned_id not in self.pinned_cells or pinned_id in pinned_users:
                    raise UserError(f"pinned cell {pinned_id} of VC {name} is unknown or used twice")
                pinned_users.add(pinned_id)
                chain, level = self._place_of(self.pinned_cells[pinned_id])
                forest = self._add_forest(chain, level, 1, (counter,), vc, pinned_id)
                roots.append(forest.bases[level])
                counter += 1
            in_file_order[vc] = tuple(roots)
        return in_file_order

    def _resolve_virtual_type(self, vc: str, path: str) -> tuple[int, int]:
        parts = path.split(".")
        chain = self.chain_index.get(parts[0])
        if chain is None or parts[-1] not in self.chains[chain].type_levels:
            raise UserError(f"VC {vc}: cell type {path} does not name a chain and a type in it")
        return chain, self.chains[chain].type_levels[parts[-1]]

    def _place_of(self, cell: int) -> tuple[int, int]:
        for forest in self.forests:
            for level in range(1, forest.top_level + 1):
                count = self.level_size(forest, level)
                if forest.bases[level] <= cell < forest.bases[level] + count:
                    return forest.chain, level
        raise UserError(f"no physical cell has index {cell}")
