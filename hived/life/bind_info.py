"""The bind info of a pod: its consistency, and the cells that it names (rules 2.10, 2.11, 11.3)."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hived.cells.state import State
from hived.cells.topology import NO_CELL, Chain, IntArray, Topology, TopologyArrays
from hived.kernels.jit import entry_kernel
from hived.life.groups import is_placed
from hived.values.errors import UserError
from hived.values.specs import BindInfo, PodRequest


def check_bind_info(pod: PodRequest, bind_info: BindInfo) -> None:
    """Raise UserError unless the bind info has the pods and sizes of the spec and this pod among them (rule 2.11)."""
    check_sizes(pod, bind_info)
    own = next(p for p in bind_info.members if len(p[0].leaf_cell_indices) == pod.spec.leaf_cell_count)
    if not any(is_placed(bind_info, placement) for placement in own):
        raise UserError(f"{_invalid(pod)} the pod on node {bind_info.node} is not among the placements")


def check_sizes(pod: PodRequest, bind_info: BindInfo) -> None:
    """Raise UserError unless the bind info places as many pods of each size as the pod's group has."""
    counts: dict[int, int] = {}
    for placements in bind_info.members:
        sizes = {len(placement.leaf_cell_indices) for placement in placements}
        if len(sizes) != 1 or 0 in sizes or sizes <= counts.keys():
            raise UserError(f"{_invalid(pod)} members are empty, uneven or listed twice")
        counts[sizes.pop()] = len(placements)
    wanted = {member.leaf_cell_count: member.pod_count for member in pod.spec.group.members}
    if counts != wanted:
        raise UserError(f"{_invalid(pod)} it places {_sizes(counts)}, the affinity group has {_sizes(wanted)}")


def _invalid(pod: PodRequest) -> str:
    return f"[{pod.label}]: Invalid pod bind info:"


def _sizes(counts: dict[int, int]) -> str:
    return ",".join(f"{counts[size]}x{size}" for size in sorted(counts))


def canonical_order(bind_info: BindInfo) -> tuple[BindInfo, IntArray]:
    """The bind info with members by ascending size, and the leaves of that in the order in which it listed them."""
    if len(bind_info.members) == 1:
        (placements,) = bind_info.members
        return bind_info, np.arange(len(placements) * len(placements[0].leaf_cell_indices), dtype=np.int32)
    sizes = [len(placements[0].leaf_cell_indices) for placements in bind_info.members]
    leaves = [size * len(placements) for size, placements in zip(sizes, bind_info.members, strict=True)]
    if sizes == sorted(sizes):
        return bind_info, np.arange(sum(leaves), dtype=np.int32)
    ascending = sorted(range(len(sizes)), key=sizes.__getitem__)
    starts = dict(zip(ascending, np.cumsum([0] + [leaves[i] for i in ascending]).tolist(), strict=False))
    order = [np.arange(starts[i], starts[i] + leaves[i], dtype=np.int32) for i in range(len(sizes))]
    return replace(bind_info, members=tuple(bind_info.members[i] for i in ascending)), np.concatenate(order)


NO_NODE = -1
NO_CHAIN = -1


class NamedLeaves(NamedTuple):
    """The cells that a bind info names; arrays of one entry per leaf, in canonical order.

    known : the bind info with members by ascending size
    physical, levels : leaf, and level of its preassigned type; NO_CELL and 0 for none
    order : the leaves in the order in which the bind info lists them
    has_types : whether each leaf has a preassigned type
    slot : of the pod that the bind info is about; None if it is yet to be found
    virtual : the virtual leaves that the group is to have (rule 18.11); None if they are yet to be chosen
    """

    known: BindInfo
    physical: IntArray
    levels: IntArray
    order: IntArray
    has_types: bool
    slot: int | None
    virtual: IntArray | None = None


def named_leaves(state: State, pod: PodRequest, bind_info: BindInfo) -> NamedLeaves:
    """The cells of a pod's group. UserError as `check_bind_info`. Cost O(leaves), a tenth for the last `Bind`.

    The cells of a decision are the source of its names, so both ways give the same.
    """
    decided = state.last_bind
    if decided is not None and decided.bind_info is bind_info and decided.spec is pod.spec:
        state.last_bind = None
        physical, virtual = decided.physical, decided.virtual
        levels = np.zeros(len(physical), np.int32)
        if virtual is not None:
            levels = state.arrays.level.take(state.arrays.root.take(virtual))
        order = np.arange(len(physical), dtype=np.int32)
        kept = virtual if decided.keeps_virtual else None
        return NamedLeaves(bind_info, physical, levels, order, virtual is not None, decided.slot, kept)
    check_bind_info(pod, bind_info)
    known, order = canonical_order(bind_info)
    physical, levels = find_leaves(state, known, pod.spec.leaf_cell_type)
    has_types = all(each and all(each) for each in {p.preassigned_cell_types for m in known.members for p in m})
    return NamedLeaves(known, physical, levels, order, has_types, None)


def find_leaves(state: State, bind_info: BindInfo, leaf_type: str = "") -> tuple[IntArray, IntArray]:
    """Find the physical leaf and the level of the preassigned type of each leaf in `bind_info` (rule 11.3); NO_CELL and
    0 for none.

    A leaf that is named twice counts once. `leaf_type` is the one that the group asked for. Cost O(leaves).
    """
    found = _find_in_one_chain(state.topology, bind_info)
    return _find_one_by_one(state.topology, bind_info, leaf_type) if found is None else found


def _find_in_one_chain(topology: Topology, bind_info: BindInfo) -> tuple[IntArray, IntArray] | None:
    """Find the leaves if all of them are configured, in one chain, and on a node for each pod; else None."""
    nodes: list[int] = []
    sizes: list[int] = []
    devices: list[int] = []
    for placements in bind_info.members:
        for placement in placements:
            nodes.append(topology.node_index.get(placement.node, NO_NODE))
            sizes.append(len(placement.leaf_cell_indices))
            devices += placement.leaf_cell_indices
            if len(placement.preassigned_cell_types) != sizes[-1]:
                return None
    if len(set(nodes)) < len(nodes):
        return None
    try:
        leaves = np.array(devices, np.int32)
    except OverflowError:  # no device has such an index
        return None
    written = topology.chain_index.get(bind_info.cell_chain, NO_CHAIN)
    chain = find_in_chain(topology.arrays, np.array(nodes, np.int32), np.array(sizes, np.int32), leaves, written)
    if chain == NO_CHAIN:
        return None
    type_levels = topology.chains[chain].type_levels
    levels: list[int] = []
    known: dict[tuple[str, ...], list[int]] = {}
    for placements in bind_info.members:
        for placement in placements:
            types = placement.preassigned_cell_types
            if types not in known:
                known[types] = [type_levels.get(each, 0) for each in types]
            levels += known[types]
    return leaves, np.array(levels, np.int32)


@entry_kernel
def find_in_chain(t: TopologyArrays, nodes: IntArray, sizes: IntArray, leaves: IntArray, written: int) -> int:
    """Replace device indices by the leaves of these nodes that have them, and return their chain.

    leaves : in and out; `sizes[i]` of them stand for devices of `nodes[i]`, in this order
    written : the chain whose leaf is meant where a node has a device in several

    Returns NO_CHAIN if a node or a device is not configured or named twice, or if there are several chains; `leaves`
    are of no use then. Cost O(leaves x leaves of a node).
    """
    chain = NO_CHAIN
    place = 0
    for i in range(len(nodes)):
        if nodes[i] == NO_NODE:
            return NO_CHAIN
        first, end = t.node_leaf_start[nodes[i]], t.node_leaf_start[nodes[i] + 1]
        if sizes[i] > end - first:
            return NO_CHAIN
        begin = place
        while place < begin + sizes[i]:
            found = NO_CELL
            for each in range(first, end):
                leaf = t.node_leaf[each]
                if t.device[leaf] == leaves[place]:
                    if found == NO_CELL or t.chain_of_level[t.chain_level[leaf]] == written:
                        found = leaf
                    elif t.chain_of_level[t.chain_level[found]] != written:
                        return NO_CHAIN
            if found == NO_CELL:
                return NO_CHAIN
            for earlier in range(begin, place):
                if leaves[earlier] == found:
                    return NO_CHAIN
            its_chain = t.chain_of_level[t.chain_level[found]]
            if chain != NO_CHAIN and chain != its_chain:
                return NO_CHAIN
            chain = its_chain
            leaves[place] = found
            place += 1
    return int(chain)


def _find_one_by_one(topology: Topology, bind_info: BindInfo, leaf_type: str = "") -> tuple[IntArray, IntArray]:
    leaves: list[int] = []
    levels: list[int] = []
    nodes: dict[str, dict[int, list[tuple[int, Chain]]]] = {}
    for placements in bind_info.members:
        for placement in placements:
            if placement.node not in nodes:
                nodes[placement.node] = _leaves_of_node(topology, placement.node)
            found = nodes[placement.node]
            types = placement.preassigned_cell_types
            for i, device in enumerate(placement.leaf_cell_indices):
                candidates = found.pop(device, [])
                cell_type = types[i] if i < len(types) else ""
                leaf, level = NO_CELL, 0
                if candidates:
                    best = max(
                        candidates, key=lambda each: _likeness(each[1], bind_info.cell_chain, leaf_type, cell_type)
                    )
                    leaf, level = best[0], best[1].type_levels.get(cell_type, 0)
                leaves.append(leaf)
                levels.append(level)
    return np.array(leaves, np.int32), np.array(levels, np.int32)


def _likeness(chain: Chain, name: str, leaf_type: str, cell_type: str) -> tuple[bool, bool, bool]:
    """Score a leaf of this chain as the one meant, where several chains of a node have its device index."""
    return chain.name == name, chain.types[0] == leaf_type, cell_type in chain.type_levels


def _leaves_of_node(topology: Topology, name: str) -> dict[int, list[tuple[int, Chain]]]:
    """Map device index to leaves and their chains, ascending; empty for a node that is not configured."""
    node = topology.node_index.get(name)
    if node is None:
        return {}
    arrays = topology.arrays
    leaves = topology.leaves_of(node)
    chains = arrays.chain_of_level[arrays.chain_level[leaves]].tolist()
    found: dict[int, list[tuple[int, Chain]]] = {}
    for device, leaf, chain in zip(arrays.device[leaves].tolist(), leaves.tolist(), chains, strict=True):
        found.setdefault(device, []).append((leaf, topology.chains[chain]))
    return found


def planned_roots(state: State, bind_info: BindInfo) -> tuple[IntArray, IntArray]:
    """The bound preassigned cells that a bind info stands on: physical and virtual, one pair per leaf."""
    leaves, levels = find_leaves(state, bind_info)
    leaves, levels = leaves[levels > 0], levels[levels > 0]
    parent, level = state.arrays.parent, state.arrays.level
    while (lower := level[leaves] < levels).any():
        leaves[lower] = parent[leaves[lower]]
    bound = state.cells.bound[leaves]
    return leaves[bound != NO_CELL], bound[bound != NO_CELL]
