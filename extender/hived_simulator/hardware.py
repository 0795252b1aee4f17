"""Facts about a topology and a state that results show: levels, idle cells, promises."""

from collections import Counter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hived.cells.state import CellState, State
from hived.cells.topology import NO_CELL, Chain, IntArray, Topology
from hived.values.errors import UserError

ACROSS = "across"
BoolArray: TypeAlias = NDArray[np.bool_]


def common_level(topology: Topology, leaves: IntArray) -> int:
    """The level of the lowest physical cell that holds all these leaves; one above the top if there is none.

    Leaves of a level stand in order, so a cell's are an interval. Cost O(leaves + levels).
    """
    leaves = leaves[leaves != NO_CELL]
    arrays, chain = topology.arrays, topology.chain_of(int(leaves[0]))
    offset = int(arrays.level_offset[topology.chain_index[chain.name]])
    base = int(arrays.level_base[offset + 1])
    low, high = int(leaves.min()) - base, int(leaves.max()) - base
    for level in range(1, chain.top_level + 1):
        size = int(arrays.leaf_count[offset + level])
        if low // size == high // size:
            return level
    return chain.top_level + 1


def best_level(topology: Topology, pods: tuple[tuple[int, int], ...], leaf_type: str) -> int:
    """The lowest level of which an empty cell could hold all pods, in the chain where that is lowest."""
    chains = [chain for chain in topology.chains if not leaf_type or chain.types[0] == leaf_type]
    return min((_best_level(chain, pods) for chain in chains), default=1)


def _best_level(chain: Chain, pods: tuple[tuple[int, int], ...]) -> int:
    total = sum(count * leaves for count, leaves in pods)
    node_leaves = chain.leaf_count(chain.node_level)
    for level in range(1, chain.top_level + 1):
        size = chain.leaf_count(level)
        if total > size:
            continue
        if level <= chain.node_level:
            return level
        if (needed := _nodes_for(pods, node_leaves)) is not None and needed * node_leaves <= size:
            return level
    return chain.top_level + 1


def _nodes_for(pods: tuple[tuple[int, int], ...], node_leaves: int) -> int | None:
    """Nodes that these pods take, largest first, each on the first node with room; None if one is too large.

    Cost O(pods) times the nodes that are taken in part.
    """
    nodes, room = 0, list[int]()
    for count, leaves in reversed(pods):
        if leaves > node_leaves:
            return None
        for _ in range(count):
            node = next((i for i, free in enumerate(room) if free >= leaves), None)
            if node is None:
                nodes += 1
                room.append(node_leaves - leaves)
                node = len(room) - 1
            else:
                room[node] -= leaves
            if not room[node]:
                del room[node]
    return nodes


def level_name(topology: Topology, level: int) -> str:
    """The cell type of a level, of the first chain that has it; `across` above the top."""
    chain = max(topology.chains, key=lambda each: each.top_level)
    return chain.types[level - 1] if level <= chain.top_level else ACROSS


def bad_leaves(state: State) -> int:
    """Bad physical leaf cells, in use or not."""
    return int(np.count_nonzero(state.cells.bad[state.arrays.node_leaf]))


def bad_leaves_of(state: State, vc: str) -> int:
    """Leaf cells of a virtual cluster that are bound to bad ones."""
    is_leaf = (state.arrays.vc == state.topology.vc_index[vc]) & (state.arrays.level == 1)
    return int(np.count_nonzero(state.cells.bad[is_leaf]))


def configured_leaves(state: State, group: str) -> int:
    """Return how many leaf cells of a group are configured; 0 if the state does not know it."""
    found = state.groups.get(group)
    return 0 if found is None else int(np.count_nonzero(found.physical != NO_CELL))


def leaves_below(topology: Topology, cell: int) -> slice:
    """The leaf cells of a physical cell: they have consecutive numbers."""
    arrays = topology.arrays
    first = int(arrays.first_leaf[cell])
    return slice(first, first + int(arrays.leaf_count[arrays.chain_level[cell]]))


def idle_leaves(state: State) -> BoolArray:
    """The leaf cells that are healthy, and neither used nor reserved, of shape (cells,). Cost O(cells)."""
    found = np.zeros(len(state.arrays.node), np.bool_)
    leaves = state.arrays.node_leaf
    found[leaves] = (state.cells.state[leaves] == CellState.FREE) & (state.cells.bad[leaves] == 0)
    return found


def whole_cells(topology: Topology, is_idle: BoolArray) -> dict[str, int]:
    """By cell type, lowest first: physical cells of which every leaf is idle; `is_idle` is that of `idle_leaves`."""
    arrays, found = topology.arrays, Counter[str]()
    for number, chain in enumerate(topology.chains):
        offset = int(arrays.level_offset[number])
        base, size = int(arrays.level_base[offset + 1]), int(arrays.level_size[offset + 1])
        for level, name in enumerate(chain.types, 1):
            whole = is_idle[base : base + size].reshape(-1, chain.leaf_count(level)).all(axis=1)
            found[name] += int(np.count_nonzero(whole))
    return dict(found)


def nodes_below(topology: Topology, cell: str) -> list[str]:
    """The nodes of a physical cell by its address, or the node of that name. UserError if there is none."""
    if cell in topology.node_index:
        return [cell]
    arrays = topology.arrays
    for each in range(topology.physical_count):
        chain = topology.chain_of(each)
        if int(arrays.level[each]) > chain.node_level and topology.address(each) == cell:
            nodes = dict.fromkeys(arrays.node[leaves_below(topology, each)].tolist())
            return [topology.node_names[node] for node in nodes]
    raise UserError(f"{cell!r}: expected a node, or the address of a physical cell above nodes")
