"""The cells of a cluster, numbered: a forest for each chain, for the preassigned cells of a VC and level, for each pin.

Children and addresses that the file leaves out are never expanded into objects: forests are regular, so a forest is
its shape and where each of its levels begins.
"""

import numpy as np

from hived.errors import UserError
from hived.specs import MAX_LEVELS, CellTypeSpec, ClusterSpec, PhysicalCellSpec
from hived.topology import NO_CELL, Chain, Forest


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
        """How many cells of a level a forest has."""
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
        """Chain and level of a physical cell."""
        for forest in self.forests:
            for level in range(1, forest.top_level + 1):
                count = self.level_size(forest, level)
                if forest.bases[level] <= cell < forest.bases[level] + count:
                    return forest.chain, level
        raise UserError(f"no physical cell has index {cell}")
