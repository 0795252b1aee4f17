"""Chooses the virtual leaf behind a physical leaf that was chosen first (rules 11.7, 11.8).

A binding at or above the leaf decides, as far up as the preassigned cell. Below it, or without one, each level takes
the first virtual cell that is free and unbound.
"""

import numpy as np

from hived.cells.journal import put, undo_writes
from hived.cells.state import Cells, State
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.kernels.jit import entry_kernel, kernel
from hived.values.errors import UserError
from hived.values.specs import FREE_PRIORITY, PodSpec

# why a VC cannot have a leaf
_FOUND, _NO_TYPE, _BOUND, _NOT_PINNED, _NOT_FREE, _NONE_LEFT = range(6)


@kernel
def choose_virtual_leaf(
    t: TopologyArrays, s: Cells, leaf: int, level: int, vc: int, priority: int, pinned_root: int
) -> int:
    """Choose the virtual leaf for a physical one with a preassigned cell of this level, or NO_CELL. Cost O(height x
    fan-out).

    priority : if no virtual cell is free and unbound, the one of lowest priority below this is taken

    pinned_root : the preassigned cell of a group with a pinned cell, else NO_CELL
    """
    bound = _bound_above(t, s, leaf, level)
    virtual = s.bound[bound]
    if virtual != NO_CELL:
        if not _is_own(t, t.root[virtual], level, vc, pinned_root):
            return NO_CELL
    elif pinned_root != NO_CELL:
        virtual = _choose_cell(s, pinned_root, 1, priority)
    else:
        slot = vc * len(t.child_count) + t.chain_level[bound]
        virtual = _choose_cell(s, t.root_base[slot], t.root_count[slot], priority)
    while virtual != NO_CELL and t.level[virtual] > 1:
        virtual = _choose_cell(s, t.first_child[virtual], t.child_count[t.chain_level[virtual]], priority)
    return virtual


@kernel
def _bound_above(t: TopologyArrays, s: Cells, cell: int, level: int) -> int:
    """The lowest bound cell at or above a cell, or the one of this level."""
    while s.bound[cell] == NO_CELL and t.level[cell] < level:
        cell = t.parent[cell]
    return cell


@kernel
def _is_own(t: TopologyArrays, root: int, level: int, vc: int, pinned_root: int) -> bool:
    """True if a group may be in this preassigned cell."""
    if t.level[root] != level:
        return False
    if pinned_root != NO_CELL:
        return root == pinned_root
    return bool(t.vc[root] == vc and t.pinned[root] == 0)


@kernel
def _choose_cell(s: Cells, first: int, count: int, priority: int) -> int:
    """Choose the first virtual cell that is free and unbound, else the one of lowest priority below `priority`."""
    lowest = NO_CELL
    for cell in range(first, first + count):
        if s.priority[cell] == FREE_PRIORITY and s.bound[cell] == NO_CELL:
            return cell
        if lowest == NO_CELL or s.priority[cell] < s.priority[lowest]:
            lowest = cell
    if lowest != NO_CELL and s.priority[lowest] < priority:
        return lowest
    return NO_CELL


def choose_virtual(state: State, spec: PodSpec, physical: IntArray, levels: IntArray) -> IntArray:
    """Choose the virtual leaves for the physical leaves of a new group, from free virtual cells alone.

    levels : of the preassigned cell of each leaf, 0 if that has no type any more

    Raises UserError, which says why, if the VC cannot have a leaf. Must run while the journal records; nothing changes.
    Cost O(leaves x height x fan-out).
    """
    topology, address = state.topology, state.topology.address
    vc = topology.vc_index[spec.virtual_cluster]
    pinned_root = topology.pinned_roots.get((vc, spec.pinned_cell_id), NO_CELL)
    virtual = np.empty(len(physical), np.int32)
    why, place, cell, bound = choose_virtual_leaves(
        state.arrays, state.cells, physical, levels, vc, pinned_root, virtual
    )
    if why == _FOUND:
        return virtual
    reason = "its preassigned cell has no type, or one that does not exist any more"
    if why == _BOUND:
        reason = f"{address(cell)} is bound to virtual cell {address(bound)}"
    elif why == _NOT_PINNED:
        reason = f"it is not in pinned cell {spec.pinned_cell_id}"
    elif why == _NOT_FREE:
        reason = f"{address(cell)} is not free as a whole"
    elif why == _NONE_LEFT:
        reason = f"VC {spec.virtual_cluster} has no {topology.cell_type(cell)} left for it"
    raise UserError(f"leaf cell {address(int(physical[place]))}: {reason}")


@entry_kernel
def choose_virtual_leaves(
    t: TopologyArrays, s: Cells, physical: IntArray, levels: IntArray, vc: int, pinned_root: int, virtual: IntArray
) -> tuple[int, int, int, int]:
    """Choose virtual leaves as `choose_virtual`, and write them to `virtual`.

    Returns _FOUND or why not, the place of the leaf, the cell in the way, and the virtual cell that this is bound to.
    """
    mark = s.journal_control[1]
    why, place, cell, bound = _FOUND, 0, NO_CELL, NO_CELL
    while why == _FOUND and place < len(physical):
        leaf, level = physical[place], levels[place]
        cell = _bound_above(t, s, leaf, level)
        bound = s.bound[cell]
        if level == 0:
            why = _NO_TYPE
        elif bound != NO_CELL:
            if not _is_own(t, t.root[bound], level, vc, pinned_root):
                why = _BOUND
        elif pinned_root != NO_CELL:
            why = _NOT_PINNED
        elif not _is_whole(t, s, cell):
            why = _NOT_FREE
        if why == _FOUND:
            virtual[place] = choose_virtual_leaf(t, s, leaf, level, vc, FREE_PRIORITY, pinned_root)
            if virtual[place] == NO_CELL:
                why = _NONE_LEFT
            else:
                _take(t, s, leaf, virtual[place])
                place += 1
    undo_writes(s, mark)
    return why, place, cell, bound


@kernel
def _take(t: TopologyArrays, s: Cells, physical: int, virtual: int) -> None:
    """Bind this pair of leaves, with their ancestors, for later leaves, and split cells further up."""
    while virtual != NO_CELL and s.bound[virtual] == NO_CELL:
        put(s, s.bound, physical, virtual)
        put(s, s.bound, virtual, physical)
        physical, virtual = t.parent[physical], t.parent[virtual]
    while virtual == NO_CELL and physical != NO_CELL:
        put(s, s.split, physical, 1)
        physical = t.parent[physical]


@kernel
def _is_whole(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """True if a cell is free as a whole, and not taken by an earlier leaf."""
    if s.split[cell] == 1:
        return False
    while cell != NO_CELL and s.bound[cell] == NO_CELL:
        if s.free_position[cell] != NO_CELL:
            return True
        cell = t.parent[cell]
    return False
