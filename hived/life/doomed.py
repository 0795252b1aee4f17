"""Doomed cells: binds bad cells to claims that no good cell can meet, and releases them (rules 10.5, 10.6).

Here a doomed cell is chosen, bound and listed; `preassigned` takes it from the free lists and gives it back.
"""

from hived.cells.binding import bind_cell, overlaps_plan, unbind_cell
from hived.cells.free_lists import append_cell, remove_cell
from hived.cells.journal import put
from hived.cells.state import Cells
from hived.cells.topology import NO_CELL, TopologyArrays
from hived.kernels.jit import kernel
from hived.values.specs import MIN_GUARANTEED_PRIORITY


@kernel
def bind_next(t: TopologyArrays, s: Cells, level: int, vc: int) -> tuple[int, int]:
    """Bind one more doomed cell of a chain level, for the first VC from `vc` on that needs and can get one (rule 10.5).

    Returns the cell and the VC; NO_CELL if there is none. Cost O(1) where good cells are left for any one VC.
    """
    levels, good = len(t.child_count), s.left[level] - s.bad_count[level]
    if good >= t.most_roots[level]:
        return NO_CELL, vc
    while vc * levels < len(s.vc_claims):
        slot = vc * levels + level
        if s.vc_claims[slot] > good:
            cell = least_bad_free(t, s, level)
            root = _first_unbound_root(t, s, slot)
            if cell != NO_CELL and root != NO_CELL:
                bind_cell(t, s, cell, root)
                append_cell(s, s.doomed_list, s.doomed_position, s.doomed_count, t.root_base[slot], slot, cell)
                put(s, s.doomed_total, level, s.doomed_total[level] + 1)
                return cell, vc
        vc += 1
    return NO_CELL, vc


@kernel
def unbind_next(t: TopologyArrays, s: Cells, level: int, vc: int) -> tuple[int, int]:
    """Unbind one more doomed cell of a chain level, of the first VC from `vc` on that has one too many (rule 10.6).

    Returns the cell and the VC; NO_CELL if there is none.
    """
    levels = len(t.child_count)
    while vc * levels < len(s.vc_claims):
        slot = vc * levels + level
        if s.vc_claims[slot] < s.left[level] - s.bad_count[level]:
            cell = worst_idle_doomed(t, s, slot)
            if cell != NO_CELL:
                unbind_cell(t, s, cell)
                remove_doomed(t, s, slot, cell)
                return cell, vc
        vc += 1
    return NO_CELL, vc


@kernel
def least_bad_free(t: TopologyArrays, s: Cells, level: int) -> int:
    """The first free bad cell of a level that no plan touches, or NO_CELL; the least bad one where leaves are lost
    (rule 14.4).
    """
    base = t.level_base[level]
    best, fewest = NO_CELL, 0
    for position in range(base, base + s.bad_count[level]):
        cell = s.bad_list[position]
        if overlaps_plan(t, s, cell):
            _leave_out(t, s, level)
            continue
        if s.lost_total[t.chain_of_level[level]] == 0:
            return cell
        count = count_bad(t, s, cell)
        if best == NO_CELL or count < fewest:
            best, fewest = cell, count
    return best


@kernel
def _first_unbound_root(t: TopologyArrays, s: Cells, slot: int) -> int:
    base = t.root_base[slot]
    for root in range(base, base + t.root_count[slot]):
        if s.bound[root] == NO_CELL:
            if s.planned[root] == 0:
                return root
            _leave_out(t, s, t.chain_level[root])
    return NO_CELL


@kernel
def worst_idle_doomed(t: TopologyArrays, s: Cells, slot: int) -> int:
    """The first doomed cell of a VC at a level that no guaranteed pod uses and no plan touches, or NO_CELL (rule 14.4).

    Where leaves are lost, the one with most bad leaves.
    """
    base = t.root_base[slot]
    worst, most = NO_CELL, 0
    for position in range(base, base + s.doomed_count[slot]):
        cell = s.doomed_list[position]
        if s.priority[cell] >= MIN_GUARANTEED_PRIORITY:
            continue
        if s.planned[s.bound[cell]] != 0 or overlaps_plan(t, s, cell):
            _leave_out(t, s, t.chain_level[cell])
            continue
        if s.lost_total[t.chain_of_level[t.chain_level[cell]]] == 0:
            return cell
        count = count_bad(t, s, cell)
        if worst == NO_CELL or count > most:
            worst, most = cell, count
    return worst


@kernel
def count_bad(t: TopologyArrays, s: Cells, cell: int) -> int:
    """Count the leaves below a physical cell that are bad, or will be once the present event is handled."""
    node = t.node[cell]
    if node != NO_CELL:
        return int(t.leaf_count[t.chain_level[cell]] if s.node_bad[node] == 1 else s.lost[cell])
    count = 0
    first = t.first_leaf[cell]
    for leaf in range(first, first + t.leaf_count[t.chain_level[cell]]):
        count += s.lost[leaf] == 1 or s.node_bad[t.node[leaf]] == 1
    return count


@kernel
def _leave_out(t: TopologyArrays, s: Cells, chain_level: int) -> None:
    """Record that a plan kept a doomed cell of this chain from being bound or released."""
    put(s, s.left_out, t.chain_of_level[chain_level], 1)


@kernel
def remove_doomed(t: TopologyArrays, s: Cells, slot: int, cell: int) -> None:
    """Take a cell out of its VC's doomed list; the last one takes its place."""
    remove_cell(s, s.doomed_list, s.doomed_position, s.doomed_count, t.root_base[slot], slot, cell)
    level = t.chain_level[cell]
    put(s, s.doomed_total, level, s.doomed_total[level] - 1)
