"""Builds the arrays of a `Topology` from a `ClusterSpec`: numbers, names and links the cells.

`forests` numbers the cells. Forests are regular, so their links are arithmetic over whole levels.
"""

import numpy as np

from hived.cells.topology import NO_CELL, Forests, IntArray, Topology, TopologyArrays
from hived.values.errors import UserError
from hived.values.specs import ClusterSpec

MAX_DEVICE_INDEX = 2**31 - 1


def build_topology(spec: ClusterSpec) -> Topology:
    """Lay the cells of a checked configuration out in arrays.

    Raises UserError for input that would corrupt the arrays: two physical cells for one leaf cell, a tree of the wrong
    shape, an unknown type, pins used twice or nested. Whether the VCs fit is for the configuration to check.

    Cost O(cells), nearly all of it in numpy.
    """
    numbering = Forests(spec)
    per_cell, per_level, roots = _cell_arrays(numbering), _level_arrays(numbering), _root_arrays(numbering)
    node_names, node_arrays = _name_nodes(numbering, per_cell)
    views, vc_views, pinned_views = _make_views(numbering, per_cell, per_level)
    pinned_roots = {
        (each.vc, each.pinned_cell_id): each.first_root for each in numbering.forests if each.pinned_cell_id
    }
    for (_, pinned_id), root in pinned_roots.items():
        per_cell["pinned"][root] = 1
        per_cell["pinned"][numbering.pinned_cells[pinned_id]] = 1
    _refuse_nested_pins(per_cell, [numbering.pinned_cells[pinned_id] for _, pinned_id in pinned_roots])
    leaf_chains: dict[str, tuple[int, ...]] = {}
    for i, chain in enumerate(numbering.chains):
        leaf_chains[chain.types[0]] = (*leaf_chains.get(chain.types[0], ()), i)
    arrays = TopologyArrays(**(per_cell | per_level | roots | node_arrays | views))
    return Topology(
        arrays=arrays, chains=numbering.chains, chain_index=numbering.chain_index, forests=tuple(numbering.forests),
        physical_count=numbering.physical_count, vc_names=numbering.vc_names, vc_index=numbering.vc_index,
        node_names=node_names, node_index={name: i for i, name in enumerate(node_names)},
        leaf_type_chains=dict(sorted(leaf_chains.items())), vc_views=vc_views, pinned_views=pinned_views,
        pinned_roots=pinned_roots, pinned_cells=numbering.pinned_cells, preassigned=numbering.preassigned,
        level_types=tuple(name for chain in numbering.chains for name in ("", *chain.types)),
        view_leaf_counts=_count_view_leaves(arrays), _texts=numbering.texts, _addresses=[""] * numbering.cell_total,
    )  # fmt: skip


def _cell_arrays(numbering: Forests) -> dict[str, IntArray]:
    names = ("parent", "first_child", "first_leaf", "chain_level", "level", "root", "vc", "node", "device", "pinned")
    arrays = {name: np.full(numbering.cell_total, NO_CELL, np.int32) for name in names}
    arrays["pinned"][:] = 0
    for forest in numbering.forests:
        chain = numbering.chains[forest.chain]
        for level in range(forest.top_level, 0, -1):
            base, size = forest.bases[level], numbering.level_size(forest, level)
            here = slice(base, base + size)
            order = np.arange(size, dtype=np.int32)
            arrays["level"][here] = level
            arrays["chain_level"][here] = numbering.level_offset[forest.chain] + level
            arrays["vc"][here] = forest.vc
            arrays["first_leaf"][here] = forest.bases[1] + order * chain.leaf_count(level)
            per_root = chain.leaf_count(forest.top_level) // chain.leaf_count(level)
            arrays["root"][here] = forest.first_root + order // per_root
            if level > 1:
                arrays["first_child"][here] = forest.bases[level - 1] + order * chain.child_counts[level - 1]
            if level < forest.top_level:
                arrays["parent"][here] = forest.bases[level + 1] + order // chain.child_counts[level]
    return arrays


def _level_arrays(numbering: Forests) -> dict[str, IntArray]:
    names = ("child_count", "leaf_count", "level_base", "level_size", "chain_of_level")
    arrays = {name: np.zeros(numbering.level_total, np.int32) for name in names}
    for i, chain in enumerate(numbering.chains):
        forest = numbering.forests[i]
        for level in range(1, chain.top_level + 1):
            slot = numbering.level_offset[i] + level
            arrays["child_count"][slot] = chain.child_counts[level - 1]
            arrays["leaf_count"][slot] = chain.leaf_count(level)
            arrays["level_base"][slot] = forest.bases[level]
            arrays["level_size"][slot] = numbering.level_size(forest, level)
        arrays["chain_of_level"][numbering.level_offset[i] : numbering.level_offset[i + 1]] = i
    arrays["level_offset"] = numbering.level_offset[:-1].copy()
    arrays["top_level"] = np.array([chain.top_level for chain in numbering.chains], np.int32)
    arrays["node_level"] = np.array([chain.node_level for chain in numbering.chains], np.int32)
    return arrays


def _name_nodes(numbering: Forests, per_cell: dict[str, IntArray]) -> tuple[tuple[str, ...], dict[str, IntArray]]:
    """Number the nodes, give every cell at or below node level its node, every leaf its device index (rule 1.13)."""
    names: list[str] = []
    spans: list[tuple[int, int, int, int]] = []  # first name, first node cell, count, forest
    for i, chain in enumerate(numbering.chains):
        forest = numbering.forests[i]
        base, size = forest.bases[chain.node_level], numbering.level_size(forest, chain.node_level)
        spans.append((len(names), base, size, i))
        names.extend(
            numbering.texts.get(base + k) or str(numbering.default_number(forest, chain.node_level, k))
            for k in range(size)
        )
    node_names = tuple(sorted(set(names)))
    node_index = {name: i for i, name in enumerate(node_names)}
    numbers = np.array([node_index[name] for name in names], np.int32)
    leaves, leaf_nodes = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for first, _, size, i in spans:
        chain, forest = numbering.chains[i], numbering.forests[i]
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
    _read_devices(numbering, per_cell["device"])
    all_leaves, all_nodes = np.concatenate(leaves), np.concatenate(leaf_nodes)
    order = np.argsort(all_nodes, kind="stable")
    node_leaf = all_leaves[order]
    start = np.searchsorted(all_nodes[order], np.arange(len(node_names) + 1)).astype(np.int32)
    _refuse_double_leaves(all_nodes, per_cell["device"], leaves, node_names)
    return node_names, {"node_leaf_start": start, "node_leaf": node_leaf}


def _refuse_nested_pins(per_cell: dict[str, IntArray], pinned: list[int]) -> None:
    for cell in pinned:
        above = int(per_cell["parent"][cell])
        while above != NO_CELL:
            if per_cell["pinned"][above]:
                raise UserError("a pinned cell lies inside another pinned cell")
            above = int(per_cell["parent"][above])


def _read_devices(numbering: Forests, device: IntArray) -> None:
    for i in range(len(numbering.chains)):
        base = numbering.forests[i].bases[1]
        end = base + numbering.level_size(numbering.forests[i], 1)
        for cell, text in numbering.texts.items():
            if base <= cell < end:
                if not text.isdecimal() or int(text) > MAX_DEVICE_INDEX:
                    raise UserError(f"leaf cell address {text!r} is not a device index")
                device[cell] = int(text)


def _refuse_double_leaves(
    nodes: IntArray, devices: IntArray, by_chain: list[IntArray], node_names: tuple[str, ...]
) -> None:
    """Refuse two physical cells for one leaf: each chain numbers the devices of a node by itself.

    `nodes` has the nodes of all chains' leaves, in this order.
    """
    start = 0
    for leaves in by_chain:
        keys = nodes[start : start + len(leaves)].astype(np.int64) << 32 | devices[leaves]
        start += len(leaves)
        keys.sort()
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            key = int(keys[twice[0]])
            raise UserError(f"two physical cells for leaf cell {key & 0xFFFFFFFF} of node {node_names[key >> 32]}")


def _root_arrays(numbering: Forests) -> dict[str, IntArray]:
    size = max(1, len(numbering.vc_names)) * numbering.level_total
    base, count = np.full(size, NO_CELL, np.int32), np.zeros(size, np.int32)
    for forest in numbering.forests:
        if forest.vc != NO_CELL and not forest.pinned_cell_id:
            slot = forest.vc * numbering.level_total + numbering.level_offset[forest.chain] + forest.top_level
            base[slot], count[slot] = forest.first_root, forest.tree_count
    most = count.reshape(-1, numbering.level_total).max(axis=0)
    return {"root_base": base, "root_count": count, "most_roots": most}


def _make_views(
    numbering: Forests, per_cell: dict[str, IntArray], per_level: dict[str, IntArray]
) -> tuple[dict[str, IntArray], dict[tuple[int, int], int], dict[tuple[int, str], int]]:
    """Build the lists of cells that count as nodes, in initial order (rules 6.1, 6.2)."""
    views: list[IntArray] = []
    for i, chain in enumerate(numbering.chains):
        forest = numbering.forests[i]
        base = forest.bases[chain.node_level]
        views.append(np.arange(base, base + numbering.level_size(forest, chain.node_level), dtype=np.int32))
    vc_views: dict[tuple[int, int], int] = {}
    pinned_views: dict[tuple[int, str], int] = {}
    pinned_ids = {forest.first_root: forest.pinned_cell_id for forest in numbering.forests if forest.pinned_cell_id}
    for vc, roots in numbering.preassigned.items():
        by_chain: dict[int, list[int]] = {}
        for root in roots:
            chain_number = int(np.searchsorted(numbering.level_offset, per_cell["chain_level"][root], side="right")) - 1
            if root in pinned_ids:
                pinned_views[vc, pinned_ids[root]] = len(views)
                views.append(_view_of_roots(numbering, per_cell, chain_number, [root]))
            else:
                by_chain.setdefault(chain_number, []).append(root)
        for chain_number, own in by_chain.items():
            vc_views[vc, chain_number] = len(views)
            views.append(_view_of_roots(numbering, per_cell, chain_number, own))
    start = np.cumsum([0] + [len(view) for view in views]).astype(np.int32)
    cells = np.concatenate(views) if views else np.zeros(0, np.int32)
    view_of = np.full(numbering.cell_total, NO_CELL, np.int32)
    alike = np.zeros(len(views), np.int32)
    for number, view in enumerate(views):
        view_of[view] = number
        counts = np.unique(per_level["leaf_count"][per_cell["chain_level"][view]])
        alike[number] = counts[0] if len(counts) == 1 else 0
    view_arrays = {"view_start": start, "view_cell": cells, "view_of": view_of, "view_node_leaves": alike}
    return view_arrays, vc_views, pinned_views


def _count_view_leaves(arrays: TopologyArrays) -> tuple[int, ...]:
    counts = arrays.leaf_count[arrays.chain_level[arrays.view_cell]].astype(np.int64)
    sums = np.concatenate(([0], np.cumsum(counts)))[arrays.view_start]
    return tuple(np.diff(sums).tolist())


def _view_of_roots(numbering: Forests, per_cell: dict[str, IntArray], chain_number: int, roots: list[int]) -> IntArray:
    """List the node-level cells below the roots in file order, then lower roots, higher levels first."""
    chain = numbering.chains[chain_number]
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
