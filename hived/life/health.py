"""Bad hardware: bad nodes, lost leaves, and how their VCs see them (rules 10, 14).

A lost leaf is unavailable although its node is healthy; the other leaves of the node can be used. Only its health
tells it from the leaf of a bad node: cells above it are bad. A cell that is bad in part does not count for the promise
of a cell of its type to a VC (rule 10.5). So a VC that is promised whole nodes is doomed to a node with lost leaves
once only bad nodes are left. That node is bound like any other, its VC sees the bad leaves, and its pods use the
others. Healing takes the same steps back. Three things are particular:

- The least bad cell is doomed first, and the worst one released first (`doomed`).
- A free cell can become less bad and stay bad, and a doomed one worse. So when a node's health changes, an unused
  doomed cell is exchanged for a free bad one with fewer bad leaves. One of the two is above or below the node.
- Often only the number of lost leaves is known: `choose_lost` picks them.
"""

from collections import Counter

import numpy as np

from hived.cells.binding import bind_bad_child, unbind_cell
from hived.cells.free_lists import append_bad, is_free, remove_bad
from hived.cells.journal import put
from hived.cells.state import Cells, State
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.cells.tree import ancestor_at
from hived.cells.views import note_change
from hived.kernels.jit import entry_kernel, kernel
from hived.life.doomed import count_bad, least_bad_free, remove_doomed, worst_idle_doomed
from hived.life.preassigned import BIND, RELEASE, UNBIND, release_doomed, settle
from hived.values.events import LeavesLost
from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY


@entry_kernel
def set_node_health(t: TopologyArrays, s: Cells, nodes: IntArray, bad: int) -> None:
    """Turn nodes bad (1) or healthy (0), one by one, their leaves in canonical order (rules 10.1, 10.3).

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
    """Turn a leaf bad: mark it and its ancestors, then list or bind them, ancestors first (rules 10.4, 10.9)."""
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
    """Heal a leaf, then each ancestor whose children are all healthy (rules 10.10, 10.11)."""
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
    """Unbind a healed cell that was bound only to be shown; a doomed one in use becomes ordinary."""
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
    """Mark a physical cell, its ancestors, and the cells bound to them as changed for the views."""
    while cell != NO_CELL:
        note_change(t, s, cell)
        if s.bound[cell] != NO_CELL:
            note_change(t, s, s.bound[cell])
        cell = t.parent[cell]


@entry_kernel
def catch_up_after_plan(t: TopologyArrays, s: Cells) -> None:
    """Do the work that a plan postponed: show hidden bad cells, then check doomed ones (rule 10.13).

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


Rank = tuple[bool, bool, int, bool]


def lose_leaves(state: State, node: int, event: LeavesLost) -> None:
    """Set how many leaves of a type on a node are lost, earlier losses included (rule 14.1).

    A count beyond the node's means all leaves; leaf types and devices that are not configured are ignored. Cost
    O(leaves of the node x height) and `choose_lost`; nothing more if these leaves are lost already.
    """
    arrays, cells, topology = state.arrays, state.cells, state.topology
    leaves = [leaf for leaf in topology.leaves_of(node).tolist() if topology.chain_of(leaf).types[0] == event.leaf_type]
    known = [leaf for leaf in leaves if int(arrays.device[leaf]) in event.known]
    chosen = set(choose_lost(state, leaves, known, event.count))
    was = {leaf for leaf in leaves if cells.lost[leaf] == 1}
    lost = [leaf for leaf in leaves if leaf in chosen - was]
    healed = [leaf for leaf in leaves if leaf in was - chosen]
    if lost or healed:
        set_lost(arrays, cells, np.array(lost, np.int32), np.array(healed, np.int32))


def choose_lost(state: State, leaves: list[int], known: list[int], count: int) -> list[int]:
    """Choose the lost leaves of a node: the known ones, then others up to `count` that hurt least (rule 14.3).

    Unused leaves come before used ones: a device with a pod of ours cannot be in other use. Of these, leaves that are
    lost already, so that the same event again moves nothing; then leaves of lowest priority; then free ones before
    leaves of a VC's cell. Of equals the next breaks fewest larger cells, and has most of the equals still wanted beside
    it. Leaves that heal are the last chosen. Cost O(leaves x height) for each leaf that is chosen.
    """
    parent = state.arrays.parent
    chosen, above = list(known), {leaf: _cells_above(state, leaf) for leaf in leaves}
    rest = {leaf: (_rank(state, leaf), int(parent[leaf])) for leaf in leaves if leaf not in known}
    equals = Counter(rest.values())  # by rank and parent
    broken = {cell for leaf in known for cell in above[leaf]}

    def cost(leaf: int) -> tuple[Rank, int, int, int]:
        newly_broken = sum(cell not in broken for cell in above[leaf])
        return rest[leaf][0], newly_broken, -min(equals[rest[leaf]], count - len(chosen)), leaf

    while len(chosen) < min(count, len(leaves)):
        leaf = min(rest, key=cost)
        chosen.append(leaf)
        equals[rest.pop(leaf)] -= 1
        broken.update(above[leaf])
    return chosen


def _rank(state: State, leaf: int) -> Rank:
    """Rank a leaf by how much its loss hurts: (is used, is not lost yet, priority, is in a cell that a VC has)."""
    cells, cell = state.cells, leaf
    while cell != NO_CELL and cells.free_position[cell] == NO_CELL:
        cell = int(state.arrays.parent[cell])
    priority = int(cells.priority[leaf])
    return priority > FREE_PRIORITY, cells.lost[leaf] == 0, priority, cell == NO_CELL


def _cells_above(state: State, leaf: int) -> list[int]:
    """The cells above a leaf, up to its node, that are not split."""
    arrays, cells = state.arrays, []
    cell = int(arrays.parent[leaf])
    while cell != NO_CELL and arrays.node[cell] != NO_CELL:
        if state.cells.split[cell] == 0:
            cells.append(cell)
        cell = int(arrays.parent[cell])
    return cells


@entry_kernel
def set_lost(t: TopologyArrays, s: Cells, lost: IntArray, healed: IntArray) -> None:
    """Lose leaves, or restore them, in canonical order; leaves of bad nodes stay bad (rule 14.2).

    All are counted first, so that dooming meanwhile goes by the outcome. Cost O(leaves x (height + VCs)).
    """
    for leaf in lost:
        _count_lost(t, s, leaf, 1)
    for leaf in healed:
        _count_lost(t, s, leaf, -1)
    for leaf in lost:
        if s.bad[leaf] == 0:
            set_leaf_bad(t, s, leaf)
    for leaf in healed:
        if s.node_bad[t.node[leaf]] == 0:
            set_leaf_healthy(t, s, leaf)


@kernel
def _count_lost(t: TopologyArrays, s: Cells, leaf: int, change: int) -> None:
    """Add a leaf to the lost ones of its ancestors, or subtract it."""
    note_path(t, s, leaf)
    cell = leaf
    while cell != NO_CELL:
        put(s, s.lost, cell, s.lost[cell] + change)
        if s.bound[cell] != NO_CELL:
            put(s, s.lost, s.bound[cell], s.lost[cell])
        cell = t.parent[cell]
    chain = t.chain_of_level[t.chain_level[leaf]]
    put(s, s.lost_total, chain, s.lost_total[chain] + change)


@entry_kernel
def exchange_doomed(t: TopologyArrays, s: Cells, node: int) -> None:
    """After a change of a node's health, exchange doomed cells for less bad free ones (rule 14.5).

    The cells above and below the node are examined, levels top down: a free one may replace the worst doomed
    unused one, VCs ascending; a doomed one may be replaced by the least bad free one. Below a level where cells were
    exchanged doomed cells are checked, as after a plan. Cost O(leaves of the node x height) where nothing is doomed,
    else also O(doomed and free bad cells of a level).
    """
    for chain in range(len(t.top_level)):
        if s.lost_total[chain] == 0:
            continue
        has_exchanged = False
        for level in range(t.top_level[chain], 0, -1):
            chain_level = t.level_offset[chain] + level
            if has_exchanged:
                settle(t, s, UNBIND, chain_level, 0, 0)
                settle(t, s, BIND, chain_level, 0, 0)
            previous = NO_CELL
            for position in range(t.node_leaf_start[node], t.node_leaf_start[node + 1]):
                leaf = t.node_leaf[position]
                if t.chain_of_level[t.chain_level[leaf]] != chain:
                    continue
                cell = ancestor_at(t, leaf, level)
                if cell != previous and s.doomed_total[chain_level] > 0:
                    has_exchanged = _exchange(t, s, cell) or has_exchanged
                previous = cell


@kernel
def _exchange(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """Exchange a doomed cell for a less bad free one, if this cell is either; returns whether any was exchanged."""
    level, levels = t.chain_level[cell], len(t.child_count)
    if s.bad_position[cell] != NO_CELL:
        for vc in range(len(s.doomed_count) // levels):
            worst = worst_idle_doomed(t, s, vc * levels + level)
            if worst != NO_CELL and count_bad(t, s, cell) < count_bad(t, s, worst):
                release_doomed(t, s, vc * levels + level, worst)
                settle(t, s, BIND, level, 0, 0)
                return True
    elif s.doomed_position[cell] != NO_CELL and s.priority[cell] < MIN_GUARANTEED_PRIORITY:
        best = least_bad_free(t, s, level)
        if best != NO_CELL and count_bad(t, s, best) < count_bad(t, s, cell):
            release_doomed(t, s, t.vc[s.bound[cell]] * levels + level, cell)
            settle(t, s, BIND, level, 0, 0)
            return True
    return False
