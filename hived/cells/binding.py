"""Virtual cells and the physical cells they are bound to.

Invariant: bindings are one-to-one and level-preserving, and the parents of bound cells are bound to each other.
"""

from hived.cells.journal import put
from hived.cells.state import Cells, CellState
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.cells.views import note_change
from hived.kernels.jit import entry_kernel, kernel

_FREE = int(CellState.FREE)
_EVERYTHING = 1 << 20  # more placements than are ever being made at once


@kernel
def bind_cell(t: TopologyArrays, s: Cells, physical: int, virtual: int) -> None:
    """Tie one virtual cell to one physical cell; the virtual one takes over its health (rules 9.12, 10.14)."""
    put(s, s.bound, physical, virtual)
    put(s, s.bound, virtual, physical)
    put(s, s.shown_vc, physical, t.vc[virtual])
    put(s, s.bad, virtual, s.bad[physical])
    if s.lost[physical] > 0:
        put(s, s.lost, virtual, s.lost[physical])
    note_change(t, s, virtual)


@kernel
def unbind_cell(t: TopologyArrays, s: Cells, physical: int) -> None:
    """Untie one physical cell; its virtual cell looks free and healthy again (rules 9.3, 10.14)."""
    virtual = s.bound[physical]
    put(s, s.bound, physical, NO_CELL)
    put(s, s.bound, virtual, NO_CELL)
    put(s, s.shown_vc, physical, NO_CELL)
    put(s, s.bad, virtual, 0)
    if s.lost[virtual] > 0:
        put(s, s.lost, virtual, 0)
    put(s, s.state, virtual, _FREE)
    note_change(t, s, virtual)


@kernel
def bind_path(t: TopologyArrays, s: Cells, physical: int, virtual: int) -> None:
    """Bind a pair of leaves and their ancestors up to the first bound pair (rule 9.8)."""
    while virtual != NO_CELL and s.bound[virtual] == NO_CELL:
        bind_cell(t, s, physical, virtual)
        physical, virtual = t.parent[physical], t.parent[virtual]


@kernel
def unbind_path(t: TopologyArrays, s: Cells, physical: int) -> None:
    """Unbind a leaf and its ancestors up to the first with another bound child, never a pinned cell (rule 9.9)."""
    virtual = s.bound[physical]
    while t.pinned[physical] == 0:
        unbind_cell(t, s, physical)
        virtual = t.parent[virtual]
        if virtual == NO_CELL or has_bound_child(t, s, virtual):
            return
        physical = s.bound[virtual]


@kernel
def has_bound_child(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """True if any child of the cell is bound."""
    first = t.first_child[cell]
    for child in range(first, first + t.child_count[t.chain_level[cell]]):
        if s.bound[child] != NO_CELL:
            return True
    return False


@kernel
def first_unbound_child(t: TopologyArrays, s: Cells, virtual: int) -> int:
    """The first child of a virtual cell that is neither bound nor planned, or NO_CELL."""
    first = t.first_child[virtual]
    for child in range(first, first + t.child_count[t.chain_level[virtual]]):
        if s.bound[child] == NO_CELL and s.planned[child] == 0:
            return child
    return NO_CELL


@kernel
def bind_bad_child(t: TopologyArrays, s: Cells, physical: int) -> None:
    """Show a bad cell to the VC that owns its parent, by the first free virtual child (rule 10.9).

    A cell above leaves that are about to be bound is bound to the virtual child that will stand there.
    """
    if s.bound[physical] != NO_CELL or t.parent[physical] == NO_CELL:
        return
    virtual_parent = s.bound[t.parent[physical]]
    if virtual_parent == NO_CELL:
        return
    virtual = s.intended[physical]
    if virtual == NO_CELL or s.bound[virtual] != NO_CELL or t.parent[virtual] != virtual_parent:
        virtual = first_unbound_child(t, s, virtual_parent)
    if virtual != NO_CELL:
        bind_cell(t, s, physical, virtual)
    else:
        put(s, s.hidden, t.chain_of_level[t.chain_level[physical]], 1)


@entry_kernel
def intend_placement(t: TopologyArrays, s: Cells, physical: IntArray, virtual: IntArray) -> None:
    """Mark leaves, and with them their ancestors, as about to be bound. Cost O(leaves x height).

    NO_CELL in `virtual` intends nothing.
    """
    for i in range(len(physical)):
        cell, behind = physical[i], virtual[i]
        while behind != NO_CELL and s.intended[cell] == NO_CELL:
            put(s, s.intended, cell, behind)
            cell, behind = t.parent[cell], t.parent[behind]


@kernel
def forget_placement(t: TopologyArrays, s: Cells, physical: IntArray) -> None:
    """Undo `intend_placement`."""
    for leaf in physical:
        cell = leaf
        while cell != NO_CELL and s.intended[cell] != NO_CELL:
            put(s, s.intended, cell, NO_CELL)
            cell = t.parent[cell]


@kernel
def _plan_physical(t: TopologyArrays, s: Cells, cell: int, change: int) -> None:
    put(s, s.planned, cell, s.planned[cell] + change)
    cell = t.parent[cell]
    while cell != NO_CELL:
        put(s, s.planned_below, cell, s.planned_below[cell] + change)
        cell = t.parent[cell]


@entry_kernel
def plan_placement(t: TopologyArrays, s: Cells, physical: IntArray, virtual: IntArray, change: int) -> None:
    """Mark (change = 1) or unmark (-1) a placement being made, so that no doomed cell crosses it (rule 10.12).

    Planned are each virtual leaf with its ancestors, and the physical cell of each preassigned cell, found above
    `physical[i]`; NO_CELL in either array plans nothing.
    """
    for i in range(len(virtual)):
        cell = virtual[i]
        if cell == NO_CELL:
            continue
        root = t.root[cell]
        behind = physical[i]
        while behind != NO_CELL and t.level[behind] < t.level[root]:
            behind = t.parent[behind]
        if behind != NO_CELL:
            _plan_physical(t, s, behind, change)
        while cell != NO_CELL:
            put(s, s.planned, cell, s.planned[cell] + change)
            cell = t.parent[cell]
    put(s, s.planned_total, 0, s.planned_total[0] + change)


@entry_kernel
def plan_everything(s: Cells, change: int) -> None:
    """Mark (change = 1) or unmark (-1) all cells as part of a placement being made: nothing is doomed meanwhile."""
    put(s, s.planned_total, 0, s.planned_total[0] + change * _EVERYTHING)


@kernel
def overlaps_plan(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """True if the cell, one above it or one below it is planned."""
    if s.planned_total[0] == 0:
        return False
    if s.planned_total[0] >= _EVERYTHING:
        return True
    if s.planned_below[cell] > 0:
        return True
    while cell != NO_CELL:
        if s.planned[cell] > 0:
            return True
        cell = t.parent[cell]
    return False
