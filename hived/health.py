"""Bad hardware: which cells are bad, and which preassigned cells are doomed to bad ones (rules 10).

Taking a preassigned cell from the free lists, giving it back, and binding or releasing doomed cells set each other
off. `settle` runs them on an explicit stack: kernels may not recurse. Each frame is one of four operations:

    BIND l       while VC.free[l] > left[l] - bad[l], VCs ascending: bind the first bad free cell, then ALLOCATE it
    UNBIND l     while VC.free[l] < left[l] - bad[l], VCs ascending: unbind the VC's first doomed cell, then RELEASE it
    ALLOCATE c   counts and lists at levels L+1 .. the listed ancestor's, L, L-1 .. 1, each followed by BIND or UNBIND
    RELEASE c    the mirror image, up to the level that c merges into
"""

import numpy as np

from hived.binding import bind_bad_child, bind_cell, overlaps_plan, unbind_cell
from hived.free_lists import append_bad, append_cell, give_free_cell, is_free, remove_bad, remove_cell, take_free_cell
from hived.jit import entry_kernel, kernel
from hived.journal import put
from hived.linking import linked_kernel
from hived.safety import holds_at, note_strain
from hived.specs import MIN_GUARANTEED_PRIORITY
from hived.state import Cells
from hived.topology import NO_CELL, IntArray, TopologyArrays
from hived.tree import ancestor_at, first_below
from hived.views import note_change

BIND, UNBIND, ALLOCATE, RELEASE = 1, 2, 3, 4
_NOTHING = 0
# columns of a frame; BIND and UNBIND keep their chain level in _SUBJECT
_OPERATION, _SUBJECT, _VC, _IS_DOOMED, _CURSOR, _LISTED_LEVEL = range(6)


@linked_kernel
def settle(t: TopologyArrays, s: Cells, operation: int, subject: int, vc: int, is_doomed: int) -> bool:
    """Run one operation and all that it sets off; returns whether VC safety held at each of its own steps.

    `subject` is a chain level for BIND and UNBIND (which start at VC 0), else a physical cell that is bound
    (ALLOCATE) or belonged to `vc` (RELEASE). Cost O(levels x VCs) when nothing is bad.
    """
    # every level of a chain can wait for the two operations that one above it set off
    stack = np.empty((4 * len(t.child_count) + 4, 6), np.int32)
    depth = 0
    safe = True
    _push(stack, depth, operation, subject, vc, is_doomed)
    while depth >= 0:
        frame = stack[depth]
        following = _NOTHING
        level = 0
        if frame[_OPERATION] == BIND:
            cell = _bind_next(t, s, frame)
            if cell != NO_CELL:
                depth += 1
                _push(stack, depth, ALLOCATE, cell, t.vc[s.bound[cell]], 1)
                continue
        elif frame[_OPERATION] == UNBIND:
            cell = _unbind_next(t, s, frame)
            if cell != NO_CELL:
                depth += 1
                _push(stack, depth, RELEASE, cell, frame[_VC], 1)
                continue
        elif frame[_CURSOR] > 0 or frame[_LISTED_LEVEL] == 0:
            if frame[_OPERATION] == ALLOCATE:
                following, level, level_safe = _allocate_step(t, s, frame)
                safe = safe and (level_safe or depth > 0)
            else:
                following, level = _release_step(t, s, frame)
            if (following == BIND and s.bad_count[level] > 0) or (following == UNBIND and s.doomed_total[level] > 0):
                depth += 1
                _push(stack, depth, following, level, 0, 0)
            continue
        elif frame[_OPERATION] == ALLOCATE and depth > 0:
            note_strain(t, s, t.chain_of_level[t.chain_level[frame[_SUBJECT]]])
        depth -= 1
    return safe


@kernel
def _push(stack: IntArray, depth: int, operation: int, subject: int, vc: int, is_doomed: int) -> None:
    stack[depth, _OPERATION] = operation
    stack[depth, _SUBJECT] = subject
    stack[depth, _VC] = vc
    stack[depth, _IS_DOOMED] = is_doomed
    stack[depth, _CURSOR] = 0
    stack[depth, _LISTED_LEVEL] = 0


@kernel
def _bind_next(t: TopologyArrays, s: Cells, frame: IntArray) -> int:
    """Bind one more doomed cell at the frame's level, or return NO_CELL when no VC needs or can get one."""
    level, levels = frame[_SUBJECT], len(t.child_count)
    while frame[_VC] * levels < len(s.vc_free):
        slot = frame[_VC] * levels + level
        if s.vc_free[slot] > s.left[level] - s.bad_count[level]:
            cell = least_bad_free(t, s, level)
            root = _first_unbound_root(t, s, slot)
            if cell != NO_CELL and root != NO_CELL:
                bind_cell(t, s, cell, root)
                append_cell(s, s.doomed_list, s.doomed_position, s.doomed_count, t.root_base[slot], slot, cell)
                put(s, s.doomed_total, level, s.doomed_total[level] + 1)
                return cell
        frame[_VC] += 1
    return NO_CELL


@kernel
def _unbind_next(t: TopologyArrays, s: Cells, frame: IntArray) -> int:
    """Unbind one more doomed cell at the frame's level, or return NO_CELL when none is left to unbind."""
    level, levels = frame[_SUBJECT], len(t.child_count)
    while frame[_VC] * levels < len(s.vc_free):
        slot = frame[_VC] * levels + level
        if s.vc_free[slot] < s.left[level] - s.bad_count[level]:
            cell = worst_idle_doomed(t, s, slot)
            if cell != NO_CELL:
                unbind_cell(t, s, cell)
                remove_doomed(t, s, slot, cell)
                return cell
        frame[_VC] += 1
    return NO_CELL


@kernel
def least_bad_free(t: TopologyArrays, s: Cells, level: int) -> int:
    """The first free bad cell of a level that no plan touches, or NO_CELL; where leaves are lost, the least bad one."""
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
def count_bad(t: TopologyArrays, s: Cells, cell: int) -> int:
    """Leaves below a physical cell that are bad, or will be when the event that is being handled is over."""
    node = t.node[cell]
    if node != NO_CELL:
        return int(t.leaf_count[t.chain_level[cell]] if s.node_bad[node] == 1 else s.lost[cell])
    count = 0
    first = t.first_leaf[cell]
    for leaf in range(first, first + t.leaf_count[t.chain_level[cell]]):
        count += s.lost[leaf] == 1 or s.node_bad[t.node[leaf]] == 1
    return count


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
def _leave_out(t: TopologyArrays, s: Cells, chain_level: int) -> None:
    """Remember that a plan kept a doomed cell of this chain from being bound or released."""
    put(s, s.left_out, t.chain_of_level[chain_level], 1)


@kernel
def worst_idle_doomed(t: TopologyArrays, s: Cells, slot: int) -> int:
    """The first doomed cell of a VC at a level that no guaranteed pod uses and no plan touches, or NO_CELL.

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
def release_doomed(t: TopologyArrays, s: Cells, slot: int, cell: int) -> None:
    """Take a doomed cell that no guaranteed pod uses from its VC, with all that follows."""
    vc = t.vc[s.bound[cell]]
    unbind_cell(t, s, cell)
    remove_doomed(t, s, slot, cell)
    settle(t, s, RELEASE, cell, vc, 1)


@kernel
def remove_doomed(t: TopologyArrays, s: Cells, slot: int, cell: int) -> None:
    """Take a cell out of its VC's doomed list; the last one takes its place."""
    remove_cell(s, s.doomed_list, s.doomed_position, s.doomed_count, t.root_base[slot], slot, cell)
    level = t.chain_level[cell]
    put(s, s.doomed_total, level, s.doomed_total[level] - 1)


@kernel
def _allocate_step(t: TopologyArrays, s: Cells, frame: IntArray) -> tuple[int, int, bool]:
    """One level of taking a preassigned cell; returns what to run next, at which chain level, and if that is safe."""
    cell, is_doomed = frame[_SUBJECT], frame[_IS_DOOMED] == 1
    own_level = t.level[cell]
    own = t.chain_level[cell]
    if frame[_LISTED_LEVEL] == 0:
        slot = frame[_VC] * len(t.child_count) + own
        put(s, s.vc_free, slot, s.vc_free[slot] - 1)
        put(s, s.all_vc_free, own, s.all_vc_free[own] - 1)
        _bind_bad_descendants(t, s, cell)
        listed = take_free_cell(t, s, cell)
        frame[_LISTED_LEVEL] = t.level[listed]
        frame[_CURSOR] = own_level + 1 if t.level[listed] > own_level else own_level
    cursor = frame[_CURSOR]
    level = own + cursor - own_level
    frame[_CURSOR] = _next_cursor(cursor, own_level, frame[_LISTED_LEVEL])
    share = t.leaf_count[own] // t.leaf_count[level] if cursor < own_level else 1
    put(s, s.left, level, s.left[level] - share)
    # at the cell's own level left and claims go down together, so nothing can newly break
    safe = cursor == own_level or holds_at(s, level)
    if cursor > own_level:
        ancestor = ancestor_at(t, cell, cursor)
        if s.bad[ancestor] == 1:
            remove_bad(t, s, ancestor)
            return _NOTHING, level, safe
        return BIND, level, safe
    if cursor == own_level and s.bad[cell] == 1:
        _leave_bad_lists(t, s, cell)
        return (_NOTHING if is_doomed else UNBIND), level, safe
    if cursor < own_level and is_doomed:
        return _NOTHING, level, safe
    return BIND, level, safe


@kernel
def _release_step(t: TopologyArrays, s: Cells, frame: IntArray) -> tuple[int, int]:
    """One level of giving a preassigned cell back; returns what to run next and at which chain level."""
    cell, is_doomed = frame[_SUBJECT], frame[_IS_DOOMED] == 1
    own_level = t.level[cell]
    own = t.chain_level[cell]
    if frame[_LISTED_LEVEL] == 0:
        slot = frame[_VC] * len(t.child_count) + own
        put(s, s.vc_free, slot, s.vc_free[slot] + 1)
        put(s, s.all_vc_free, own, s.all_vc_free[own] + 1)
        listed = give_free_cell(t, s, cell)
        frame[_LISTED_LEVEL] = t.level[listed]
        frame[_CURSOR] = own_level + 1 if t.level[listed] > own_level else own_level
    cursor = frame[_CURSOR]
    level = own + cursor - own_level
    frame[_CURSOR] = _next_cursor(cursor, own_level, frame[_LISTED_LEVEL])
    share = t.leaf_count[own] // t.leaf_count[level] if cursor < own_level else 1
    put(s, s.left, level, s.left[level] + share)
    if cursor > own_level:
        ancestor = ancestor_at(t, cell, cursor)
        if s.bad[ancestor] == 1:
            append_bad(t, s, ancestor)
            return _NOTHING, level
        return UNBIND, level
    if cursor == own_level and s.bad[cell] == 1:
        _enter_bad_lists(t, s, cell)
        return (_NOTHING if is_doomed else BIND), level
    if cursor < own_level and is_doomed:
        return _NOTHING, level
    return UNBIND, level


@kernel
def _next_cursor(cursor: int, own_level: int, listed_level: int) -> int:
    """Levels are visited L+1 .. listed, then L, L-1 .. 1; 0 ends the visit."""
    if cursor > own_level:
        return cursor + 1 if cursor < listed_level else own_level
    return cursor - 1


@kernel
def _bind_bad_descendants(t: TopologyArrays, s: Cells, cell: int) -> None:
    """Show the bad descendants of a cell that is being allocated to its VC, from the top down (rule 10.9)."""
    if s.bad[cell] == 0:
        return
    for level in range(t.level[cell] - 1, 0, -1):
        first, count = first_below(t, cell, level)
        for below in range(first, first + count):
            if s.bad[below] == 1:
                bind_bad_child(t, s, below)


@kernel
def _leave_bad_lists(t: TopologyArrays, s: Cells, cell: int) -> None:
    """A bad cell was allocated: it and its bad descendants are not free any more."""
    for level in range(t.level[cell], 0, -1):
        first, count = first_below(t, cell, level)
        for below in range(first, first + count):
            remove_bad(t, s, below)


@kernel
def _enter_bad_lists(t: TopologyArrays, s: Cells, cell: int) -> None:
    """A bad cell was released: it and its bad descendants are free bad cells now, and unbound."""
    for level in range(t.level[cell], 0, -1):
        first, count = first_below(t, cell, level)
        for below in range(first, first + count):
            if s.bad[below] == 1:
                append_bad(t, s, below)
                if s.bound[below] != NO_CELL:
                    unbind_cell(t, s, below)


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
def note_path(t: TopologyArrays, s: Cells, cell: int) -> None:
    """Have the views look anew at a physical cell, those above it, and what is bound to them."""
    while cell != NO_CELL:
        note_change(t, s, cell)
        if s.bound[cell] != NO_CELL:
            note_change(t, s, s.bound[cell])
        cell = t.parent[cell]


@kernel
def _write_health(t: TopologyArrays, s: Cells, cell: int, bad: int) -> None:
    put(s, s.bad, cell, bad)
    note_change(t, s, cell)
    if s.bound[cell] != NO_CELL:
        put(s, s.bad, s.bound[cell], bad)
        note_change(t, s, s.bound[cell])


@entry_kernel
def set_node_health(t: TopologyArrays, s: Cells, nodes: IntArray, bad: int) -> None:
    """Nodes turned bad (1) or healthy (0), one after the other: their leaves in canonical order.

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


@entry_kernel
def bind_pinned_cell(t: TopologyArrays, s: Cells, physical: int, virtual: int) -> None:
    """Give a pinned cell to its VC for ever, at start (rule 10.2). Cost O(height x fan-out)."""
    slot = t.vc[virtual] * len(t.child_count) + t.chain_level[virtual]
    put(s, s.vc_free, slot, s.vc_free[slot] + 1)
    put(s, s.all_vc_free, t.chain_level[virtual], s.all_vc_free[t.chain_level[virtual]] + 1)
    bind_cell(t, s, physical, virtual)
    settle(t, s, ALLOCATE, physical, t.vc[virtual], 0)


@entry_kernel
def catch_up_after_plan(t: TopologyArrays, s: Cells) -> None:
    """Make up for what a plan kept back: show hidden bad cells, then check doomed ones, levels top down (rule 10.13).

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
