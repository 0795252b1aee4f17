"""Giving leaf cells to groups and taking them back, one leaf or one whole group at a time (rules 9).

The order of the steps for one leaf is behaviour: allocate = virtual priority, physical priority, binding, preassigned
cell, then the state; release = virtual priority, unbinding, preassigned cell, physical priority, then the state.
Arrays of leaves may hold NO_CELL: leaves that are not configured any more.
"""

from hived.binding import bind_path, forget_placement, unbind_path
from hived.errors import InvariantError
from hived.jit import entry_kernel, kernel, shared_kernel
from hived.journal import put
from hived.preassigned import ALLOCATE, RELEASE, settle
from hived.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived.state import NO_GROUP, Cells, CellState
from hived.topology import NO_CELL, IntArray, TopologyArrays
from hived.views import note_change

_FREE, _USED = int(CellState.FREE), int(CellState.USED)
_RESERVING, _RESERVED = int(CellState.RESERVING), int(CellState.RESERVED)


@kernel
def set_priority(t: TopologyArrays, s: Cells, leaf: int, priority: int) -> None:
    """Set a leaf's priority and the maximum in its ancestors; count it as used or not (rule 9.4). Cost O(height)."""
    old = s.priority[leaf]
    change = int(old == FREE_PRIORITY) - int(priority == FREE_PRIORITY)
    if change != 0:
        cell = leaf
        while cell != NO_CELL:
            put(s, s.used, cell, s.used[cell] + change)
            note_change(t, s, cell)
            cell = t.parent[cell]
    put(s, s.priority, leaf, priority)
    cell = t.parent[leaf]
    while cell != NO_CELL:
        known = s.priority[cell]
        if priority > known:
            put(s, s.priority, cell, priority)
        elif priority < old == known:
            highest = priority
            first = t.first_child[cell]
            for child in range(first, first + t.child_count[t.chain_level[cell]]):
                highest = max(highest, s.priority[child])
            if highest == known:
                return
            put(s, s.priority, cell, highest)
            priority = highest
        else:
            return
        old = known
        cell = t.parent[cell]


@kernel
def count_opportunistic(t: TopologyArrays, s: Cells, leaf: int, change: int) -> None:
    """Count a physical leaf in or out of opportunistic use, up to the root."""
    if s.elastic[leaf] == 1:
        _count_elastic(t, s, leaf, change)
    while leaf != NO_CELL:
        put(s, s.opportunistic_used, leaf, s.opportunistic_used[leaf] + change)
        note_change(t, s, leaf)
        leaf = t.parent[leaf]


@kernel
def _count_elastic(t: TopologyArrays, s: Cells, leaf: int, change: int) -> None:
    """Count a physical leaf in or out of opportunistic use by an elastic group, up to the root."""
    while leaf != NO_CELL:
        put(s, s.elastic_lent, leaf, s.elastic_lent[leaf] + change)
        leaf = t.parent[leaf]


@kernel
def use_leaf(t: TopologyArrays, s: Cells, leaf: int, group: int, elastic: int) -> None:
    """Note which group uses a leaf, if any, and whether that is elastic."""
    put(s, s.using, leaf, group)
    if s.elastic[leaf] != elastic:
        put(s, s.elastic, leaf, elastic)
        if s.priority[leaf] == OPPORTUNISTIC_PRIORITY:
            _count_elastic(t, s, leaf, 1 if elastic == 1 else -1)


@kernel
def set_state(t: TopologyArrays, s: Cells, cell: int, state: int) -> None:
    """Set the state of a physical cell, its virtual cell, and each ancestor that follows (rule 9.2)."""
    while True:
        put(s, s.state, cell, state)
        if s.bound[cell] != NO_CELL:
            put(s, s.state, s.bound[cell], state)
        cell = t.parent[cell]
        if cell == NO_CELL:
            return
        if state != _USED:
            first = t.first_child[cell]
            for child in range(first, first + t.child_count[t.chain_level[cell]]):
                if s.state[child] != state:
                    return


@shared_kernel
def allocate_leaf(t: TopologyArrays, s: Cells, physical: int, virtual: int, priority: int, vc: int) -> bool:
    """Give a leaf to a VC, through `virtual`, or opportunistically if that is NO_CELL; returns if safe (rule 9.5).

    The leaf must be free of priority; its state and its group are the caller's to set.
    """
    if virtual == NO_CELL:
        set_priority(t, s, physical, OPPORTUNISTIC_PRIORITY)
        count_opportunistic(t, s, physical, 1)
        put(s, s.shown_vc, physical, vc)
        put(s, s.lent_to, physical, vc)
        put(s, s.lent_bad, physical, s.bad[physical])
        return True
    set_priority(t, s, virtual, priority)
    set_priority(t, s, physical, priority)
    root = t.root[virtual]
    is_newly_bound = s.bound[root] == NO_CELL
    if s.bound[physical] == NO_CELL:
        bind_path(t, s, physical, virtual)
    if s.bound[physical] != virtual or s.bound[root] == NO_CELL:
        raise InvariantError("a leaf cell was allocated through a virtual cell that is bound elsewhere")
    if is_newly_bound:
        return settle(t, s, ALLOCATE, s.bound[root], vc, 0)
    return True


@kernel
def release_leaf(t: TopologyArrays, s: Cells, physical: int) -> None:
    """Take a leaf back from its VC; a leaf of priority >= 0 is released as guaranteed (rules 9.6, 9.10, 9.11)."""
    if s.priority[physical] < MIN_GUARANTEED_PRIORITY:
        put(s, s.lent_to, physical, NO_CELL)
        virtual = s.bound[physical]
        put(s, s.shown_vc, physical, t.vc[virtual] if virtual != NO_CELL else NO_CELL)
        if s.priority[physical] == OPPORTUNISTIC_PRIORITY:
            count_opportunistic(t, s, physical, -1)
    else:
        virtual = s.bound[physical]
        root = t.root[virtual]
        preassigned = s.bound[root]
        set_priority(t, s, virtual, FREE_PRIORITY)
        if s.bad[physical] == 0:
            unbind_path(t, s, physical)
        if (
            s.priority[root] < MIN_GUARANTEED_PRIORITY
            and t.pinned[root] == 0
            and s.doomed_position[preassigned] == NO_CELL
        ):
            settle(t, s, RELEASE, preassigned, t.vc[root], 0)
    set_priority(t, s, physical, FREE_PRIORITY)


@entry_kernel
def release_group(t: TopologyArrays, s: Cells, physical: IntArray) -> None:
    """Delete an allocated group: Used leaves become Free, Reserving ones Reserved for their preemptor (rule 8.5)."""
    for leaf in physical:
        if leaf != NO_CELL:
            if s.state[leaf] == _USED:
                release_leaf(t, s, leaf)
                set_state(t, s, leaf, _FREE)
            else:
                set_state(t, s, leaf, _RESERVED)
            use_leaf(t, s, leaf, NO_GROUP, 0)


@entry_kernel
def reserve_group(
    t: TopologyArrays, s: Cells, physical: IntArray, virtual: IntArray, priority: int, vc: int, group: int
) -> None:
    """Reserve the leaves of a preempting group: Used becomes Reserving, Free becomes Reserved (rule 8.3).

    `intend_placement` must have been told of them.
    """
    for i in range(len(physical)):
        leaf = physical[i]
        was_used = s.state[leaf] == _USED
        if was_used:
            release_leaf(t, s, leaf)
        allocate_leaf(t, s, leaf, virtual[i], priority, vc)
        put(s, s.reserving, leaf, group)
        set_state(t, s, leaf, _RESERVING if was_used else _RESERVED)
    forget_placement(t, s, physical)


@entry_kernel
def cancel_group(
    t: TopologyArrays,
    s: Cells,
    physical: IntArray,
    victim_virtual: IntArray,
    victim_priority: IntArray,
    victim_vc: IntArray,
) -> None:
    """Cancel a preemption: Reserving leaves go back to their victims, Reserved ones become Free (rules 8.6, 9.7).

    `victim_*` say for each leaf how its victim held it; their values for Reserved leaves are not read.
    """
    for i in range(len(physical)):
        leaf = physical[i]
        if leaf == NO_CELL:
            continue
        release_leaf(t, s, leaf)
        put(s, s.reserving, leaf, NO_GROUP)
        if s.state[leaf] == _RESERVING:
            set_state(t, s, leaf, _USED)
            allocate_leaf(t, s, leaf, victim_virtual[i], victim_priority[i], victim_vc[i])
        else:
            set_state(t, s, leaf, _FREE)


@entry_kernel
def occupy_reserved(t: TopologyArrays, s: Cells, physical: IntArray, group: int, elastic: int) -> None:
    """A preempting group starts: its Reserved leaves become Used."""
    for leaf in physical:
        if leaf != NO_CELL:
            set_state(t, s, leaf, _USED)
            put(s, s.reserving, leaf, NO_GROUP)
            use_leaf(t, s, leaf, group, elastic)


@entry_kernel
def hand_over(t: TopologyArrays, s: Cells, physical: IntArray, group: int, elastic: int) -> None:
    """Used leaves go on in the use of another group of the same VC and priority."""
    for leaf in physical:
        if leaf != NO_CELL:
            use_leaf(t, s, leaf, group, elastic)


@entry_kernel
def downgrade_groups(t: TopologyArrays, s: Cells, physical: IntArray) -> None:
    """Lazily preempt groups: their Used leaves leave the VC and stay in opportunistic use (rules 8.7, 8.8)."""
    for leaf in physical:
        if leaf != NO_CELL and s.state[leaf] == _USED and s.priority[leaf] >= MIN_GUARANTEED_PRIORITY:
            vc = t.vc[s.bound[leaf]]
            release_leaf(t, s, leaf)
            allocate_leaf(t, s, leaf, NO_CELL, OPPORTUNISTIC_PRIORITY, vc)
