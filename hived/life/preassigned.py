"""Taking preassigned cells from the free lists and giving them back, and the doomed cells that follow (rules 10).

Each change of a level's numbers can doom a cell there or free a doomed one, which takes or gives back a cell itself.
`settle` runs all of it on an explicit stack, because kernels may not recurse. A frame is one of four operations:

    BIND l       while vc_claims[l] > left[l] - bad[l], VCs ascending: bind the first bad free cell, ALLOCATE it
    UNBIND l     while vc_claims[l] < left[l] - bad[l], VCs ascending: unbind the VC's first doomed cell, RELEASE it
    ALLOCATE c   counts and lists at levels L+1 .. the listed ancestor's, L, L-1 .. 1, each followed by BIND or UNBIND
    RELEASE c    the mirror image, up to the level that c merges into

One node failing, in the cluster of the worked example (docs/rules.md): A is promised a rack, B and C a node each, and a
pod of B runs on n0, for which rack 0 was split. Now n3 fails. Its rack 1 is free, so the rack enters the bad list, and
`health` asks for BIND at the level of racks:

    operation             left:  RACK  NODE  GPU
    BIND RACK                       1     3    6
      ALLOCATE 1 for A              1     3    6
      - RACK                        0     3    6
      - NODE                        0     1    6
      - GPU                         0     1    2

BIND finds that A claims one rack, and that 1 left - 1 bad = 0 good ones remain. It binds rack 1 to `A/0`. ALLOCATE
first shows n3 to A as `A/0/0`, then lowers the counts level by level. The cell is doomed, so nothing below it is
checked (rule 10.8). BIND looks again: no VC claims a rack any more. The node n3 is not free now, so its own level asks
for nothing.

Had n3 failed first, rack 0 would have met A's claim. Then the pod of B splits it, and one allocation sets off another:

    operation             left:  RACK  NODE  GPU
    ALLOCATE 0/n0 for B             2     4    8
    - RACK                          1     4    8
      BIND RACK                     1     4    8
        ALLOCATE 1 for A            1     4    8
        - RACK                      0     4    8
        - NODE                      0     2    8
        - GPU                       0     2    4
    - NODE                          0     1    4
    - GPU                           0     1    2
"""

import numpy as np

from hived.cells.binding import bind_bad_child, bind_cell, unbind_cell
from hived.cells.free_lists import append_bad, give_free_cell, remove_bad, take_free_cell
from hived.cells.journal import put
from hived.cells.safety import holds_at, note_strain
from hived.cells.state import Cells
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.cells.tree import ancestor_at, first_below
from hived.kernels.jit import entry_kernel, kernel, shared_kernel
from hived.life.doomed import bind_next, remove_doomed, unbind_next
from hived.values.specs import MIN_GUARANTEED_PRIORITY

BIND, UNBIND, ALLOCATE, RELEASE = 1, 2, 3, 4
_NOTHING = 0
# columns of a frame; BIND and UNBIND keep their chain level in _SUBJECT
_OPERATION, _SUBJECT, _VC, _IS_DOOMED, _CURSOR, _LISTED_LEVEL = range(6)


@shared_kernel
def settle(t: TopologyArrays, s: Cells, operation: int, subject: int, vc: int, is_doomed: int) -> bool:
    """Run one operation and all that it triggers; returns True if VC safety held at each of its own steps.

    `subject` is a chain level for BIND and UNBIND, which start at VC 0. Else it is a physical cell that is bound
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
            cell, frame[_VC] = bind_next(t, s, frame[_SUBJECT], frame[_VC])
            if cell != NO_CELL:
                depth += 1
                _push(stack, depth, ALLOCATE, cell, frame[_VC], 1)
                continue
        elif frame[_OPERATION] == UNBIND:
            cell, frame[_VC] = unbind_next(t, s, frame[_SUBJECT], frame[_VC])
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
def _allocate_step(t: TopologyArrays, s: Cells, frame: IntArray) -> tuple[int, int, bool]:
    """Take a preassigned cell at one level; returns the next step, its chain level, and True if the step is safe."""
    cell, is_doomed = frame[_SUBJECT], frame[_IS_DOOMED] == 1
    own_level = t.level[cell]
    own = t.chain_level[cell]
    if frame[_LISTED_LEVEL] == 0:
        slot = frame[_VC] * len(t.child_count) + own
        put(s, s.vc_claims, slot, s.vc_claims[slot] - 1)
        put(s, s.claims, own, s.claims[own] - 1)
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
    """Give a preassigned cell back at one level; returns the next step and its chain level."""
    cell, is_doomed = frame[_SUBJECT], frame[_IS_DOOMED] == 1
    own_level = t.level[cell]
    own = t.chain_level[cell]
    if frame[_LISTED_LEVEL] == 0:
        slot = frame[_VC] * len(t.child_count) + own
        put(s, s.vc_claims, slot, s.vc_claims[slot] + 1)
        put(s, s.claims, own, s.claims[own] + 1)
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
    """Levels are visited L+1 .. listed, then L, L-1 .. 1 (rule 10.7); 0 ends the visit."""
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
    """Remove an allocated bad cell and its bad descendants from the lists of bad free cells."""
    for level in range(t.level[cell], 0, -1):
        first, count = first_below(t, cell, level)
        for below in range(first, first + count):
            remove_bad(t, s, below)


@kernel
def _enter_bad_lists(t: TopologyArrays, s: Cells, cell: int) -> None:
    """List a released bad cell and its bad descendants as free bad cells, now unbound (rule 9.11)."""
    for level in range(t.level[cell], 0, -1):
        first, count = first_below(t, cell, level)
        for below in range(first, first + count):
            if s.bad[below] == 1:
                append_bad(t, s, below)
                if s.bound[below] != NO_CELL:
                    unbind_cell(t, s, below)


@kernel
def release_doomed(t: TopologyArrays, s: Cells, slot: int, cell: int) -> None:
    """Take a doomed cell without guaranteed pods from its VC, with all that follows."""
    vc = t.vc[s.bound[cell]]
    unbind_cell(t, s, cell)
    remove_doomed(t, s, slot, cell)
    settle(t, s, RELEASE, cell, vc, 1)


@entry_kernel
def release_idle_doomed(t: TopologyArrays, s: Cells, chain: int) -> bool:
    """Take all doomed cells of a chain without guaranteed pods from their VCs; returns True if there were any.

    The chain is to be caught up with (rule 10.13). Cost O(levels x VCs) if there are none.
    """
    levels, is_any = len(t.child_count), False
    for level in range(t.level_offset[chain] + t.top_level[chain], t.level_offset[chain], -1):
        if s.doomed_total[level] == 0:
            continue
        for owner in range(len(s.doomed_count) // levels):
            slot = owner * levels + level
            base = t.root_base[slot]
            for cell in s.doomed_list[base : base + s.doomed_count[slot]].copy():
                if s.doomed_position[cell] != NO_CELL and s.priority[cell] < MIN_GUARANTEED_PRIORITY:
                    release_doomed(t, s, slot, cell)
                    is_any = True
    if is_any:
        put(s, s.left_out, chain, 1)
    return is_any


@entry_kernel
def bind_pinned_cell(t: TopologyArrays, s: Cells, physical: int, virtual: int) -> None:
    """Give a pinned cell to its VC for ever, at start (rule 10.2). Cost O(height x fan-out)."""
    slot = t.vc[virtual] * len(t.child_count) + t.chain_level[virtual]
    put(s, s.vc_claims, slot, s.vc_claims[slot] + 1)
    put(s, s.claims, t.chain_level[virtual], s.claims[t.chain_level[virtual]] + 1)
    bind_cell(t, s, physical, virtual)
    settle(t, s, ALLOCATE, physical, t.vc[virtual], 0)
