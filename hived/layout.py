"""From a `ClusterSpec` to the arrays of a `Topology`: cells are numbered, named and linked, once.

What the file leaves out (children, addresses) is never expanded into objects: forests are regular, so their links are
arithmetic over whole levels.
"""

import numpy as np

from hived.errors import UserError
from hived.specs import MAX_LEVELS, CellTypeSpec, ClusterSpec, PhysicalCellSpec
from hived.topology import NO_CELL, Chain, Forest, IntArray, Topology, TopologyArrays

MAX_DEVICE_INDEX = 2**31 - 1


def build_topology(spec: ClusterSpec) -> Topology:
    """Lay the cells of a checked configuration out in arrays.

    Raises UserError for what would corrupt the arrays (two physical cells for one leaf cell, a tree of the wrong
    shape, an unknown type, pins used twice or nested). Whether the VCs fit is for the configuration to check.

    Cost O(cells), nearly all of it in numpy.
    """
    return _Builder(spec).build()


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


class _Builder:
    """Collects the pieces of one topology; `build` is read from top to bottom."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        cell_types = dict(spec.cell_types)
        tops: dict[str, list[int]] = {}
        for number, cell in enumerate(spec.physical_cells):
            tops.setdefault(cell.cell_type, []).append(number)
        self.tops = tops
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

    def build(self) -> Topology:
        self.add_physical_forests()
        physical_count = self.cell_total
        self.read_physical_cells()
        preassigned = self.add_virtual_forests()
        per_cell = self.cell_arrays()
        per_level = self.level_arrays()
        nodes = self.name_nodes(per_cell)
        roots = self.root_arrays()
        views, vc_views, pinned_views = self.make_views(per_cell, per_level, preassigned)
        pinned_roots = {(f.vc, f.pinned_cell_id): f.first_root for f in self.forests if f.pinned_cell_id}
        for (_, pinned_id), root in pinned_roots.items():
            per_cell["pinned"][root] = 1
            per_cell["pinned"][self.pinned_cells[pinned_id]] = 1
        self.refuse_nested_pins(per_cell, [self.pinned_cells[pinned_id] for _, pinned_id in pinned_roots])
        leaf_chains: dict[str, tuple[int, ...]] = {}
        for i, chain in enumerate(self.chains):
            leaf_chains[chain.types[0]] = (*leaf_chains.get(chain.types[0], ()), i)
        node_names, node_arrays = nodes
        arrays = TopologyArrays(**(per_cell | per_level | roots | node_arrays | views))
        return Topology(
            arrays=arrays, chains=self.chains, chain_index=self.chain_index, forests=tuple(self.forests),
            physical_count=physical_count, vc_names=self.vc_names, vc_index=self.vc_index, node_names=node_names,
            node_index={name: i for i, name in enumerate(node_names)},
            leaf_type_chains=dict(sorted(leaf_chains.items())), vc_views=vc_views, pinned_views=pinned_views,
            pinned_roots=pinned_roots, pinned_cells=self.pinned_cells, preassigned=preassigned,
            level_types=tuple(name for chain in self.chains for name in ("", *chain.types)),
            view_leaf_counts=self.count_view_leaves(arrays), _texts=self.texts, _addresses=[""] * self.cell_total,
        )  # fmt: skip

    def add_forest(
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

    def add_physical_forests(self) -> None:
        for i, chain in enumerate(self.chains):
            numbers = self.tops[chain.name]
            self.add_forest(i, chain.top_level, len(numbers), tuple(numbers))

    def read_physical_cells(self) -> None:
        """Walk what the file spells out; generated cells need no visit."""
        for forest in self.forests:
            chain = self.chains[forest.chain]
            base = forest.first_root
            stack = [
                (self.spec.physical_cells[number], base + i, chain.top_level) for i, number in enumerate(forest.numbers)
            ]
            while stack:
                cell_spec, cell, level = stack.pop()
                self.read_physical_cell(chain, cell_spec, cell, level)
                if not cell_spec.children:
                    continue
                count = chain.child_counts[level - 1]
                if len(cell_spec.children) != count:
                    raise UserError(f"a cell of type {chain.types[level - 1]} must have {count} children")
                first = forest.bases[level - 1] + (cell - forest.bases[level]) * count
                stack.extend((child, first + i, level - 1) for i, child in enumerate(cell_spec.children))

    def read_physical_cell(self, chain: Chain, cell_spec: PhysicalCellSpec, cell: int, level: int) -> None:
        if cell_spec.cell_type and cell_spec.cell_type != chain.types[level - 1]:
            raise UserError(f"cell type {cell_spec.cell_type} found where {chain.types[level - 1]} was expected")
        if cell_spec.address:
            self.texts[cell] = cell_spec.address
        if cell_spec.pinned_cell_id:
            if cell_spec.pinned_cell_id in self.pinned_cells:
                raise UserError(f"pinned cell {cell_spec.pinned_cell_id} is defined twice")
            self.pinned_cells[cell_spec.pinned_cell_id] = cell

    def add_virtual_forests(self) -> dict[int, tuple[int, ...]]:
        """One forest per VC, chain and preassigned level, then one per pinned cell; returns the file order of roots."""
        in_file_order: dict[int, tuple[int, ...]] = {}
        pinned_users: set[str] = set()
        for vc, name in enumerate(self.vc_names):
            vc_spec = self.spec.virtual_clusters[name]
            numbers: dict[tuple[int, int], list[int]] = {}
            counter = 0
            for virtual_cell in vc_spec.virtual_cells:
                key = self.resolve_virtual_type(name, virtual_cell.cell_type)
                numbers.setdefault(key, []).extend(range(counter, counter + virtual_cell.cell_count))
                counter += virtual_cell.cell_count
            roots = [NO_CELL] * counter
            for (chain, level), own in sorted(numbers.items()):
                if not own:
                    continue
                forest = self.add_forest(chain, level, len(own), tuple(own), vc)
                for i, number in enumerate(own):
                    roots[number] = forest.bases[level] + i
            for pinned_id in vc_spec.pinned_cell_ids:
                if pinned_id not in self.pinned_cells or pinned_id in pinned_users:
                    raise UserError(f"pinned cell {pinned_id} of VC {name} is unknown or used twice")
                pinned_users.add(pinned_id)
                chain, level = self.place_of(self.pinned_cells[pinned_id])
                forest = self.add_forest(chain, level, 1, (counter,), vc, pinned_id)
                roots.append(forest.bases[level])
                counter += 1
            in_file_order[vc] = tuple(roots)
        return in_file_order

    def resolve_virtual_type(self, vc: str, path: str) -> tuple[int, int]:
        parts = path.split(".")
        chain = self.chain_index.get(parts[0])
        if chain is None or parts[-1] not in self.chains[chain].type_levels:
            raise UserError(f"VC {vc}: cell type {path} does not name a chain and a type in it")
        return chain, self.chains[chain].type_levels[parts[-1]]

    def place_of(self, cell: int) -> tuple[int, int]:
        """Chain and level of a physical cell."""
        for forest in self.forests:
            for level in range(1, forest.top_level + 1):
                count = self.forest_level_size(forest, level)
                if forest.bases[level] <= cell < forest.bases[level] + count:
                    return forest.chain, level
        raise UserError(f"no physical cell has index {cell}")

    def forest_level_size(self, forest: Forest, level: int) -> int:
        chain = self.chains[forest.chain]
        return forest.tree_count * chain.leaf_count(forest.top_level) // chain.leaf_count(level)

    def cell_arrays(self) -> dict[str, IntArray]:
        names = (
            "parent",
            "first_child",
            "first_leaf",
            "chain_level",
            "level",
            "root",
            "vc",
            "node",
            "device",
            "pinned",
        )
        arrays = {name: np.full(self.cell_total, NO_CELL, np.int32) for name in names}
        arrays["pinned"][:] = 0
        for forest in self.forests:
            chain = self.chains[forest.chain]
            for level in range(forest.top_level, 0, -1):
                base, size = forest.bases[level], self.forest_level_size(forest, level)
                here = slice(base, base + size)
                order = np.arange(size, dtype=np.int32)
                arrays["level"][here] = level
                arrays["chain_level"][here] = self.level_offset[forest.chain] + level
                arrays["vc"][here] = forest.vc
                arrays["first_leaf"][here] = forest.bases[1] + order * chain.leaf_count(level)
                per_root = chain.leaf_count(forest.top_level) // chain.leaf_count(level)
                arrays["root"][here] = forest.first_root + order // per_root
                if level > 1:
                    arrays["first_child"][here] = forest.bases[level - 1] + order * chain.child_counts[level - 1]
                if level < forest.top_level:
                    arrays["parent"][here] = forest.bases[level + 1] + order // chain.child_counts[level]
        return arrays

    def level_arrays(self) -> dict[str, IntArray]:
        names = ("child_count", "leaf_count", "level_base", "level_size", "chain_of_level")
        arrays = {name: np.zeros(self.level_total, np.int32) for name in names}
        for i, chain in enumerate(self.chains):
            forest = self.forests[i]
            for level in range(1, chain.top_level + 1):
                slot = self.level_offset[i] + level
                arrays["child_count"][slot] = chain.child_counts[level - 1]
                arrays["leaf_count"][slot] = chain.leaf_count(level)
                arrays["level_base"][slot] = forest.bases[level]
                arrays["level_size"][slot] = self.forest_level_size(forest, level)
            arrays["chain_of_level"][self.level_offset[i] : self.level_offset[i + 1]] = i
        arrays["level_offset"] = self.level_offset[:-1].copy()
        arrays["top_level"] = np.array([chain.top_level for chain in self.chains], np.int32)
        arrays["node_level"] = np.array([chain.node_level for chain in self.chains], np.int32)
        return arrays

    def name_nodes(self, per_cell: dict[str, IntArray]) -> tuple[tuple[str, ...], dict[str, IntArray]]:
        """Number the nodes, give every cell at or below node level its node, every leaf its device index."""
        names: list[str] = []
        spans: list[tuple[int, int, int, int]] = []  # first name, first node cell, count, forest
        for i, chain in enumerate(self.chains):
            forest = self.forests[i]
            base, size = forest.bases[chain.node_level], self.forest_level_size(forest, chain.node_level)
            spans.append((len(names), base, size, i))
            names.extend(
                self.texts.get(base + k) or str(self.default_number(forest, chain.node_level, k)) for k in range(size)
            )
        node_names = tuple(sorted(set(names)))
        node_index = {name: i for i, name in enumerate(node_names)}
        numbers = np.array([node_index[name] for name in names], np.int32)
        leaves, leaf_nodes = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for first, _, size, i in spans:
            chain, forest = self.chains[i], self.forests[i]
            own = numbers[first : first + size]
            for level in range(1, chain.node_level + 1):
                per_node = chain.leaf_count(chain.node_level) // chain.leaf_count(level)
                base = forest.bases[level]
                per_cell["node"][base : base + size * per_node] = np.repeat(own, per_node)
            per_node = chain.leaf_count(chain.node_level)
            base = forest.bases[1]
            per_cell["device"][base : base + size * per_node] = np.tile(np.arange(per_node, dtype=np.int32), size)
            leaves.append(np.arange(base, base + size * per_node, dtype=np.int32))
            leaf_nodes.append(np.repeat(own, per_node))
        self.read_devices(per_cell["device"])
        all_leaves, all_nodes = np.concatenate(leaves), np.concatenate(leaf_nodes)
        order = np.argsort(all_nodes, kind="stable")
        node_leaf = all_leaves[order]
        start = np.searchsorted(all_nodes[order], np.arange(len(node_names) + 1)).astype(np.int32)
        self.refuse_double_leaves(all_nodes[order], per_cell["device"][node_leaf], node_names)
        return node_names, {"node_leaf_start": start, "node_leaf": node_leaf}

    @staticmethod
    def refuse_nested_pins(per_cell: dict[str, IntArray], pinned: list[int]) -> None:
        for cell in pinned:
            above = int(per_cell["parent"][cell])
            while above != NO_CELL:
                if per_cell["pinned"][above]:
                    raise UserError("a pinned cell lies inside another pinned cell")
                above = int(per_cell["parent"][above])

    def default_number(self, forest: Forest, level: int, position: int) -> int:
        """Default address number of the `position`-th cell of a physical forest, at or above node level."""
        chain = self.chains[forest.chain]
        per_root = chain.leaf_count(forest.top_level) // chain.leaf_count(level)
        return forest.numbers[position // per_root] * per_root + position % per_root

    def read_devices(self, device: IntArray) -> None:
        for i in range(len(self.chains)):
            base = self.forests[i].bases[1]
            end = base + self.forest_level_size(self.forests[i], 1)
            for cell, text in self.texts.items():
                if base <= cell < end:
                    if not text.isdecimal() or int(text) > MAX_DEVICE_INDEX:
                        raise UserError(f"leaf cell address {text!r} is not a device index")
                    device[cell] = int(text)

    @staticmethod
    def refuse_double_leaves(nodes: IntArray, devices: IntArray, node_names: tuple[str, ...]) -> None:
        keys = nodes.astype(np.int64) << 32 | devices
        keys.sort()
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            key = int(keys[twice[0]])
            raise UserError(f"two physical cells for leaf cell {key & 0xFFFFFFFF} of node {node_names[key >> 32]}")

    def root_arrays(self) -> dict[str, IntArray]:
        size = max(1, len(self.vc_names)) * self.level_total
        base, count = np.full(size, NO_CELL, np.int32), np.zeros(size, np.int32)
        for forest in self.forests:
            if forest.vc != NO_CELL and not forest.pinned_cell_id:
                slot = forest.vc * self.level_total + self.level_offset[forest.chain] + forest.top_level
                base[slot], count[slot] = forest.first_root, forest.tree_count
        return {"root_base": base, "root_count": count}

    def make_views(
        self, per_cell: dict[str, IntArray], per_level: dict[str, IntArray], preassigned: dict[int, tuple[int, ...]]
    ) -> tuple[dict[str, IntArray], dict[tuple[int, int], int], dict[tuple[int, str], int]]:
        """Lists of cells that count as nodes, in initial order (rules 6.1, 6.2)."""
        views: list[IntArray] = []
        for i, chain in enumerate(self.chains):
            forest = self.forests[i]
            base = forest.bases[chain.node_level]
            views.append(np.arange(base, base + self.forest_level_size(forest, chain.node_level), dtype=np.int32))
        vc_views: dict[tuple[int, int], int] = {}
        pinned_views: dict[tuple[int, str], int] = {}
        pinned_ids = {f.first_root: f.pinned_cell_id for f in self.forests if f.pinned_cell_id}
        for vc, roots in preassigned.items():
            by_chain: dict[int, list[int]] = {}
            for root in roots:
                chain_number = int(np.searchsorted(self.level_offset, per_cell["chain_level"][root], side="right")) - 1
                if root in pinned_ids:
                    pinned_views[vc, pinned_ids[root]] = len(views)
                    views.append(self.view_of_roots(per_cell, chain_number, [root]))
                else:
                    by_chain.setdefault(chain_number, []).append(root)
            for chain_number, own in by_chain.items():
                vc_views[vc, chain_number] = len(views)
                views.append(self.view_of_roots(per_cell, chain_number, own))
        start = np.cumsum([0] + [len(view) for view in views]).astype(np.int32)
        cells = np.concatenate(views) if views else np.zeros(0, np.int32)
        view_of = np.full(self.cell_total, NO_CELL, np.int32)
        alike = np.zeros(len(views), np.int32)
        for number, view in enumerate(views):
            view_of[view] = number
            counts = np.unique(per_level["leaf_count"][per_cell["chain_level"][view]])
            alike[number] = counts[0] if len(counts) == 1 else 0
        view_arrays = {"view_start": start, "view_cell": cells, "view_of": view_of, "view_node_leaves": alike}
        return view_arrays, vc_views, pinned_views

    @staticmethod
    def count_view_leaves(arrays: TopologyArrays) -> tuple[int, ...]:
        counts = arrays.leaf_count[arrays.chain_level[arrays.view_cell]].astype(np.int64)
        sums = np.concatenate(([0], np.cumsum(counts)))[arrays.view_start]
        return tuple(np.diff(sums).tolist())

    def view_of_roots(self, per_cell: dict[str, IntArray], chain_number: int, roots: list[int]) -> IntArray:
        """Node-level cells below the roots in file order, then lower roots, higher levels first."""
        chain = self.chains[chain_number]
        parts: list[IntArray] = []
        for root in roots:
            level = int(per_cell["level"][root])
            if level >= chain.node_level:
                per_node = chain.leaf_count(chain.node_level)
                count = chain.leaf_count(level) // per_node
                first = root
                for _ in range(level - chain.node_level):
                    first = int(per_cell["first_child"][first])
                parts.append(np.arange(first, first + count, dtype=np.int32))
        for level in range(chain.node_level - 1, 0, -1):
            own = [root for root in roots if per_cell["level"][root] == level]
            parts.append(np.array(own, np.int32))
        return np.concatenate(parts)
