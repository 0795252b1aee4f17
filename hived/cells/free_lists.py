"""The free lists of a chain: one list of physical cells per level, split and merged like buddies (rules 3).

List order is behaviour: new members go to the end, a removed one is replaced by the last. Each cell knows its place, so
membership and removal cost O(1). Invariant: cells in the lists are disjoint, unbound, unsplit (rule 3.5), and together
with the bound ones cover the chain.
"""

from hived.cells.journal import put
from hived.cells.state import Cells
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.kernels.jit import kernel
from hived.values.errors import InvariantError


@kernel
def append_cell(
    s: Cells, cells: IntArray, places: IntArray, counts: IntArray, base: int, counter: int, cell: int
) -> None:
    """Put a cell at the end of a list (rule 3.2).

    cells : the list is cells[base : base + counts[counter]]; places : place of each cell in its list, or NO_CELL
    """
    count = counts[counter]
    put(s, cells, base + count, cell)
    put(s, places, cell, count)
    put(s, counts, counter, count + 1)


@kernel
def remove_cell(
    s: Cells, cells: IntArray, places: IntArray, counts: IntArray, base: int, counter: int, cell: int
) -> None:
    """Take a cell out of a list, described as in `append_cell`; the last one takes its place (rule 3.2)."""
    place, last = places[cell], counts[counter] - 1
    moved = cells[base + last]
    put(s, cells, base + place, moved)
    put(s, places, moved, place)
    put(s, places, cell, NO_CELL)
    put(s, counts, counter, last)


@kernel
def append_free(t: TopologyArrays, s: Cells, cell: int) -> None:
    """Put a cell at the end of its level's free list."""
    level = t.chain_level[cell]
    append_cell(s, s.free_list, s.free_position, s.free_count, t.level_base[level], level, cell)


@kernel
def remove_free(t: TopologyArrays, s: Cells, cell: int) -> None:
    """Take a cell out of its level's free list."""
    level = t.chain_level[cell]
    remove_cell(s, s.free_list, s.free_position, s.free_count, t.level_base[level], level, cell)


@kernel
def append_bad(t: TopologyArrays, s: Cells, cell: int) -> None:
    """Put a cell at the end of its level's list of bad free cells."""
    level = t.chain_level[cell]
    append_cell(s, s.bad_list, s.bad_position, s.bad_count, t.level_base[level], level, cell)


@kernel
def remove_bad(t: TopologyArrays, s: Cells, cell: int) -> None:
    """Take a cell out of its level's list of bad free cells, if it is in it."""
    if s.bad_position[cell] != NO_CELL:
        level = t.chain_level[cell]
        remove_cell(s, s.bad_list, s.bad_position, s.bad_count, t.level_base[level], level, cell)


@kernel
def is_free(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """True if the cell is in a free list, or below one that is. Cost O(height)."""
    while cell != NO_CELL:
        if s.free_position[cell] != NO_CELL:
            return True
        cell = t.parent[cell]
    return False


@kernel
def take_free_cell(t: TopologyArrays, s: Cells, cell: int) -> int:
    """Take a cell out of the free lists, with splits above it as needed; returns the listed ancestor (rule 3.3).

    `left` is not touched: `preassigned.settle` does that level by level.
    """
    while s.free_position[cell] == NO_CELL:
        parent = t.parent[cell]
        if parent == NO_CELL:
            raise InvariantError("a cell that is not free was taken from the free lists")
        first = t.first_child[parent]
        for child in range(first, first + t.child_count[t.chain_level[parent]]):
            append_free(t, s, child)
        put(s, s.split, parent, 1)
        remove_free(t, s, cell)
        cell = parent
    remove_free(t, s, cell)
    return cell


@kernel
def give_free_cell(t: TopologyArrays, s: Cells, cell: int) -> int:
    """Put a cell back and merge upwards while all buddies are free; returns the cell listed in the end (rule 3.4)."""
    while True:
        parent = t.parent[cell]
        if parent == NO_CELL:
            break
        first = t.first_child[parent]
        end = first + t.child_count[t.chain_level[parent]]
        for buddy in range(first, end):
            if buddy != cell and s.free_position[buddy] == NO_CELL:
                append_free(t, s, cell)
                return cell
        for buddy in range(first, end):
            if buddy != cell:
                remove_free(t, s, buddy)
        put(s, s.split, parent, 0)
        cell = parent
    append_free(t, s, cell)
    return cell
