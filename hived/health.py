"""Bad hardware: which cells are bad, and how their VCs see it (rules 10)."""

from hived.binding import bind_bad_child, unbind_cell
from hived.doomed import remove_doomed
from hived.free_lists import append_bad, is_free, remove_bad
from hived.jit import entry_kernel, kernel
from hived.journal import put
from hived.preassigned import BIND, RELEASE, UNBIND, settle
from hived.specs import MIN_GUARANTEED_PRIORITY
from hived.state import Cells
from hived.topology import NO_CELL, IntArray, TopologyArrays
from hived.tree import ancestor_at
from hived.views import note_change


@entry_kernel
def set_node_health(t: TopologyArrays, s: Cells, nodes: IntArray, bad: int) -> None:
    """Nodes turned bad (1) or healthy (0), one after the other: their leaves in canonical order (rules 10.1, 10.3).

    A node that was so already is left alone, and so are lost leaves, which are bad in either case.
    Cost O(leaves of the nodes x (height + VCs)).
    """
    for node in nodes:
        if s.node_bad[node] == bad:
            continue
        put(s, s.node_bad, node, bad)
        for position in range(t.node_leaf_start[node], t.node_leaf_start[node + 1]):
            leaf = t.node_leaf[position]
            if s.lost[leaf] == 1:
                note_path(t, s, leaf)
            elif bad == 1:
                set_leaf_bad(t, s, leaf)
            else:
                set_leaf_healthy(t, s, leaf)


@kernel
def set_leaf_bad(t: TopologyArrays, s: Cells, leaf: int) -> None:
    """A leaf turned bad: mark it and its ancestors, then list or bind them, ancestors first (rules 10.4, 10.9)."""
    top = leaf
    cell = leaf
    while cell != NO_CELL and s.bad[cell] == 0:
        _write_health(t, s, cell, 1)
        top = cell
        cell = t.parent[cell]
    for level in range(t.level[top], 0, -1):
        cell = ancestor_at(t, leaf, level)
        if is_free(t, s, cell):
            append_bad(t, s, cell)
            settle(t, s, BIND, t.chain_level[cell], 0, 0)
        elif s.split[cell] == 0:
            bind_bad_child(t, s, cell)


@kernel
def set_leaf_healthy(t: TopologyArrays, s: Cells, leaf: int) -> None:
    """A leaf healed: it, then each ancestor whose children are all healthy (rules 10.10, 10.11)."""
    cell = leaf
    while cell != NO_CELL and s.bad[cell] == 1 and not _has_bad_child(t, s, cell):
        _write_health(t, s, cell, 0)
        if is_free(t, s, cell):
            remove_bad(t, s, cell)
            settle(t, s, UNBIND, t.chain_level[cell], 0, 0)
        elif s.bound[cell] != NO_CELL and t.pinned[cell] == 0:
            _drop_binding_of_bad_cell(t, s, cell)
        cell = t.parent[cell]


@kernel
def _drop_binding_of_bad_cell(t: TopologyArrays, s: Cells, cell: int) -> None:
    """A healed cell that nobody uses was bound only to be seen; a doomed one in real use is now an ordinary one."""
    virtual = s.bound[cell]
    is_doomed = s.doomed_position[cell] != NO_CELL
    slot = t.vc[virtual] * len(t.child_count) + t.chain_level[cell]
    if s.priority[cell] < MIN_GUARANTEED_PRIORITY:
        unbind_cell(t, s, cell)
        if is_doomed:
            remove_doomed(t, s, slot, cell)
            settle(t, s, RELEASE, cell, t.vc[virtual], 1)
    elif is_doomed:
        remove_doomed(t, s, slot, cell)


@kernel
def _has_bad_child(t: TopologyArrays, s: Cells, cell: int) -> bool:
    first = t.first_child[cell]
    for child in range(first, first + t.child_count[t.chain_level[cell]]):
        if s.bad[child] == 1:
            return True
    return False


@kernel
def _write_health(t: TopologyArrays, s: Cells, cell: int, bad: int) -> None:
    put(s, s.bad, cell, bad)
    note_change(t, s, cell)
    if s.bound[cell] != NO_CELL:
        put(s, s.bad, s.bound[cell], bad)
        note_change(t, s, s.bound[cell])


@kernel
def note_path(t: TopologyArrays, s: Cells, cell: int) -> None:
    """Have the views look anew at a physical cell, its ancestors, and the cells bound to them."""
    while cell != NO_CELL:
        note_change(t, s, cell)
        if s.bound[cell] != NO_CELL:
            note_change(t, s, s.bound[cell])
        cell = t.parent[cell]


@entry_kernel
def catch_up_after_plan(t: TopologyArrays, s: Cells) -> None:
    """Do the work that a plan put off: show hidden bad cells, then check doomed ones, levels top down (rule 10.13).

    Does nothing while another plan is still open. Cost O(levels x VCs), and O(cells) of a chain with hidden cells.
    """
    if s.planned_total[0] > 0:
        return
    for chain in range(len(t.top_level)):
        if s.hidden[chain] == 1:
            put(s, s.hidden, chain, 0)
            _show_bad_cells(t, s, chain)
    for chain in range(len(t.top_level)):
        if s.left_out[chain] == 1:
            put(s, s.left_out, chain, 0)
            for level in range(t.top_level[chain], 0, -1):
                settle(t, s, UNBIND, t.level_offset[chain] + level, 0, 0)
                settle(t, s, BIND, t.level_offset[chain] + level, 0, 0)


@kernel
def _show_bad_cells(t: TopologyArrays, s: Cells, chain: int) -> None:
    for level in range(t.level_offset[chain] + t.top_level[chain] - 1, t.level_offset[chain], -1):
        base = t.level_base[level]
        for cell in range(base, base + t.level_size[level]):
            if s.bad[cell] == 1:
                bind_bad_child(t, s, cell)


@entry_kernel
def bind_doomed_in_chain(t: TopologyArrays, s: Cells, chain: int) -> None:
    """Bind doomed cells wherever one is missing in a chain, levels top down (rule 11.10). Cost O(levels x VCs)."""
    for level in range(t.top_level[chain], 0, -1):
        settle(t, s, BIND, t.level_offset[chain] + level, 0, 0)
