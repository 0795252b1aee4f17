"""Which nodes differ between two topologies, and how: their devices, their chains, the cells above them."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np

from hived.topology import NO_CELL, Chain, IntArray, Topology
from hived_config.changes import NamedChanges, NodeChange


class NodeCell(NamedTuple):
    """A cell at node level. A node that is in several chains has several.

    `above` is the address of the cell above it, "" for none; `types` and `fan_out` go from its own type to the leaf
    type; `devices` are of its leaves, in tree order, as bytes of int32; `inner` are the addresses, within the node, of
    the cells between.
    """

    chain: str
    above: str
    types: tuple[str, ...]
    fan_out: tuple[int, ...]
    devices: bytes
    inner: tuple[str, ...]


class Nodes(msgspec.Struct, frozen=True):
    """`cells` of each node; `order` has (chain, node) of each of them, chains ascending, then as in the file."""

    cells: dict[str, list[NodeCell]]
    order: list[tuple[str, str]]


def read_nodes(topology: Topology) -> Nodes:
    """The node-level cells of a topology. Cost O(cells above the leaves)."""
    nodes = Nodes({}, [])
    for chain in topology.chains:
        for name, cell in _read_chain(topology, chain):
            nodes.cells.setdefault(name, []).append(cell)
            nodes.order.append((chain.name, name))
    return nodes


def _read_chain(topology: Topology, chain: Chain) -> list[tuple[str, NodeCell]]:
    arrays, level = topology.arrays, chain.node_level
    first, size = _level(topology, chain, level)
    cells = slice(first, first + size)
    above = [topology.address(parent) if parent != NO_CELL else "" for parent in arrays.parent[cells].tolist()]
    names = [topology.node_names[node] for node in arrays.node[cells].tolist()]
    leaf, _ = _level(topology, chain, 1)
    per_node = chain.leaf_count(level)
    devices: IntArray = arrays.device[leaf : leaf + size * per_node].reshape(size, per_node)
    inner = _inner_addresses(topology, chain, size)
    types, fan_out = chain.types[level - 1 :: -1], chain.child_counts[level - 1 :: -1]
    rows = zip(names, above, devices, inner, strict=True)
    return [(name, NodeCell(chain.name, up, types, fan_out, row.tobytes(), within)) for name, up, row, within in rows]


def _inner_addresses(topology: Topology, chain: Chain, size: int) -> list[tuple[str, ...]]:
    """Of each node-level cell, the last address parts of the cells below it and above the leaves, level by level."""
    parts: list[list[str]] = [[] for _ in range(size)]
    for level in range(chain.node_level - 1, 1, -1):
        first, count = _level(topology, chain, level)
        per_node = count // size
        for position in range(count):
            parts[position // per_node].append(topology.address(first + position).rpartition("/")[2])
    return [tuple(each) for each in parts]


def _level(topology: Topology, chain: Chain, level: int) -> tuple[int, int]:
    """(first physical cell, number of physical cells) of a level."""
    arrays = topology.arrays
    slot = int(arrays.level_offset[topology.chain_index[chain.name]]) + level
    return int(arrays.level_base[slot]), int(arrays.level_size[slot])


def compare_nodes(old: Nodes, new: Nodes) -> NamedChanges[NodeChange]:
    """Which nodes came, went and changed, by name."""
    before, after = old.cells, new.cells
    differing = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    renamed = _renamed_cells(before, after, differing)
    return NamedChanges(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(NodeChange(name, _explain(before[name], after[name], renamed)) for name in differing),
    )


def is_reordered(old: Nodes, new: Nodes) -> bool:
    """Whether nodes that are otherwise unchanged stand in another order: ties are broken by it."""
    same = {name for name in old.cells.keys() & new.cells.keys() if old.cells[name] == new.cells[name]}
    before, after = ([each for each in nodes.order if each[1] in same] for nodes in (old, new))
    return before != after


def _renamed_cells(
    old: dict[str, list[NodeCell]], new: dict[str, list[NodeCell]], differing: Sequence[str]
) -> dict[tuple[str, str], str]:
    """(chain, address above nodes) -> its new address, if most of the nodes below it are now below that one.

    Cells without an address are numbered, and another number is not another place.
    """
    common: Counter[tuple[str, str, str]] = Counter()
    for name in differing:
        for was, now in zip(old[name], new[name], strict=False):
            if was.chain == now.chain and was.above and now.above:
                common[was.chain, was.above, now.above] += 1
    total = Counter((cell.chain, cell.above) for name, cells in old.items() if name in new for cell in cells)
    return {
        (chain, above): now for (chain, above, now), count in sorted(common.items()) if 2 * count > total[chain, above]
    }


def _explain(old: Sequence[NodeCell], new: Sequence[NodeCell], renamed: dict[tuple[str, str], str]) -> str:
    """How a node differs, a clause per chain that it was or is in."""
    if len(old) == len(new) == 1:
        return ", ".join(_explain_cell(old[0], new[0], renamed))
    clauses = []
    for chain in dict.fromkeys(cell.chain for cell in (*old, *new)):
        was, now = ([cell for cell in cells if cell.chain == chain] for cells in (old, new))
        if not was or not now:
            clauses.append(f"{'also' if now else 'no longer'} in chain {chain}")
        elif len(was) == len(now) == 1 and was != now:
            clauses.append(f"in chain {chain}: {', '.join(_explain_cell(was[0], now[0], renamed))}")
        elif was != now:
            clauses.append(f"in chain {chain}: {_cells(len(was))} become {_cells(len(now))}, or are divided otherwise")
    return "; ".join(clauses) or "its cells stand in another order"


def _explain_cell(old: NodeCell, new: NodeCell, renamed: dict[tuple[str, str], str]) -> list[str]:
    what = []
    if old.chain != new.chain:
        what.append(f"in chain {new.chain}, formerly {old.chain}")
    if old.above != new.above:
        what.append(_explain_move(old, new, renamed))
    if old.types[-1] != new.types[-1]:
        what.append(f"leaf cell type {new.types[-1]}, formerly {old.types[-1]}")
    if old.types[0] != new.types[0]:
        what.append(f"cell type {new.types[0]}, formerly {old.types[0]}")
    if old.devices != new.devices:
        what.append(f"devices {_devices(new)}, formerly {_devices(old)}")
    if (old.types[1:-1], old.fan_out) != (new.types[1:-1], new.fan_out) and len(old.devices) == len(new.devices):
        what.append("its devices are divided otherwise")
    if old.inner != new.inner and not what:
        what.append("other addresses of cells inside it")
    return what


def _explain_move(old: NodeCell, new: NodeCell, renamed: dict[tuple[str, str], str]) -> str:
    if not new.above:
        return f"a top-level cell, formerly in {old.above}"
    if not old.above:
        return f"moved to {new.above}, formerly a top-level cell"
    is_renamed = old.chain == new.chain and renamed.get((old.chain, old.above)) == new.above
    verb = "the cell above it is now called" if is_renamed else "moved to"
    return f"{verb} {new.above}, formerly {old.above}"


def _cells(count: int) -> str:
    return f"{count} cell{'s' * (count != 1)}"


def _devices(cell: NodeCell) -> str:
    """`0-3,6`, in tree order."""
    indices = np.frombuffer(cell.devices, np.int32).tolist()
    runs = [list(run) for _, run in groupby(enumerate(indices), key=lambda each: each[1] - each[0])]
    return ",".join(f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else f"{run[0][1]}" for run in runs)
