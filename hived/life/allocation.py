"""Gives leaf cells to groups and takes them back, one leaf or one whole group at a time (rules 9).

The order of the steps for one leaf is behaviour: allocate = virtual priority, physical priority, binding, preassigned
cell, then the state; release = virtual priority, unbinding, preassigned cell, physical priority, then the state.
Arrays of leaves may hold NO_CELL: leaves that are not configured any more.

A group that was placed as a whole can be split into others, mostly of one pod each (rules 15.3, 15.6). So the pods of
a gang start together, and each can still end, be replaced or be preempted by itself. A stand-in for later pods gives
them its cells, some at a time.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hived.cells.binding import bind_path, forget_placement, unbind_path
from hived.cells.journal import put
from hived.cells.state import NO_GROUP, Cells, CellState, Group, GroupState, State
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.cells.views import note_change
from hived.kernels.jit import entry_kernel, kernel, shared_kernel
from hived.life.checks import differing_field
from hived.life.groups import (
    add_group,
    bind_info_for,
    bind_info_of_slot,
    leaf_range,
    member_slots,
    placements_of,
    remove_group,
    take_slot,
)
from hived.life.losses import forget_times, note_times
from hived.life.preassigned import ALLOCATE, RELEASE, settle
from hived.values.errors import InvariantError, UserError
from hived.values.specs import (
    FREE_PRIORITY,
    MIN_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    BindInfo,
    MemberSpec,
    PodPlacement,
    PodRequest,
    sizes_of,
)

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
    """Add a physical leaf to the opportunistic use of its ancestors, or subtract it."""
    if s.elastic[leaf] == 1:
        _count_elastic(t, s, leaf, change)
    while leaf != NO_CELL:
        put(s, s.opportunistic_used, leaf, s.opportunistic_used[leaf] + change)
        note_change(t, s, leaf)
        leaf = t.parent[leaf]


@kernel
def _count_elastic(t: TopologyArrays, s: Cells, leaf: int, change: int) -> None:
    """Add a physical leaf to the use of its ancestors by elastic groups, or subtract it."""
    while leaf != NO_CELL:
        put(s, s.elastic_lent, leaf, s.elastic_lent[leaf] + change)
        leaf = t.parent[leaf]


@kernel
def use_leaf(t: TopologyArrays, s: Cells, leaf: int, group: int, elastic: int) -> None:
    """Record the group that uses a leaf, NO_GROUP for none, and if it is elastic."""
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

    `intend_placement` must have marked them.
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
    """Give Used leaves to another group of the same VC and priority."""
    for leaf in physical:
        if leaf != NO_CELL:
            use_leaf(t, s, leaf, group, elastic)


@entry_kernel
def downgrade_groups(t: TopologyArrays, s: Cells, physical: IntArray) -> None:
    """Preempt groups lazily: their Used leaves leave the VC and stay in opportunistic use (rules 8.7, 8.8)."""
    for leaf in physical:
        if leaf != NO_CELL and s.state[leaf] == _USED and s.priority[leaf] >= MIN_GUARANTEED_PRIORITY:
            vc = t.vc[s.bound[leaf]]
            release_leaf(t, s, leaf)
            allocate_leaf(t, s, leaf, NO_CELL, OPPORTUNISTIC_PRIORITY, vc)


Slots = Sequence[Sequence[int]]


def split_group(state: State, name: str, pods: Sequence[PodRequest], slots: Slots = ()) -> None:
    """Give the slots of an allocated group to new groups, as `GroupSplit` says. Cost O(leaves). Can be undone.

    Each pod keeps its own times (rule 8.12).

    Raises UserError if the group is not allocated, a pod asks for other cells than its slots have, or a group name is
    taken. Nothing changes then.
    """
    group = state.groups.get(name)
    if group is None or group.state is not GroupState.ALLOCATED:
        raise UserError(f"affinity group {name} cannot be split: it is not allocated")
    taken = slots or [(slot,) for slot in range(len(group.holders))]
    _check_pods(state, group, pods, taken)
    infos = [bind_info_of_slot(state, group, own[0]) for own in taken]
    placements = [placement for member in placements_of(state, group) for placement in member]
    times = dict(group.times)
    for uid in times:
        forget_times(state, group, uid)
    remove_group(state, group)
    for pod, own, info in zip(pods, taken, infos, strict=True):
        members = _by_size([placements[slot] for slot in own], pod.spec.group.members)
        own_group = _add(state, group, pod, own, replace(info, members=members))
        if pod.uid in times:
            note_times(state, own_group, pod.uid, times[pod.uid])


def _add(state: State, group: Group, pod: PodRequest, slots: Sequence[int], info: BindInfo) -> Group:
    """Add the new group of a pod, and seat the pod in the first slot of its size."""
    ranges = [leaf_range(group.members, slot) for slot in slots]
    physical = np.concatenate([group.physical[leaves] for leaves in ranges])
    virtual = None if group.virtual is None else np.concatenate([group.virtual[leaves] for leaves in ranges])
    own = add_group(state, pod.spec, GroupState.ALLOCATED, physical, virtual, info)
    own.lazy_preemptor = group.lazy_preemptor
    hand_over(state.arrays, state.cells, own.physical, own.number, int(pod.spec.elastic))
    take_slot(own, member_slots(own.members, pod.spec.leaf_cell_count).start, pod)
    return own


def _check_pods(state: State, group: Group, pods: Sequence[PodRequest], slots: Slots) -> None:
    """Raise UserError unless the pods' groups can take these slots of a group."""
    refused = f"affinity group {group.name} cannot be split:"
    sizes = sizes_of(group.members)
    if len(pods) != len(slots):
        raise UserError(f"{refused} it has {len(slots)} pods, {len(pods)} are given")
    if sorted(slot for own in slots for slot in own) != list(range(len(sizes))):
        raise UserError(f"{refused} each of its {len(sizes)} slots has to go to one pod's group")
    taken = set(state.groups) - {group.name}
    for pod, own in zip(pods, slots, strict=True):
        held = [sizes[slot] for slot in own]
        if not held or pod.spec.leaf_cell_count not in held or sizes_of(pod.spec.group.members) != held:
            what = (
                f"slot {own[0]} has {held[0]} leaf cell{'s' * (held[0] != 1)} for one pod"
                if len(held) == 1
                else f"slots {list(own)}"
            )
            raise UserError(f"{refused} {what}, {pod.label} asks for others")
        field = differing_field(pod.spec, group.spec)
        if field is not None:
            raise UserError(f"{refused} {pod.label} has another {field}")
        if pod.spec.group.name in taken:
            raise UserError(f"{refused} there is a group {pod.spec.group.name} already")
        taken.add(pod.spec.group.name)


def _by_size(placements: Sequence[PodPlacement], members: Sequence[MemberSpec]) -> tuple[tuple[PodPlacement, ...], ...]:
    """Placements in slot order, one tuple for each size."""
    found, start = [], 0
    for member in members:
        found.append(tuple(placements[start : start + member.pod_count]))
        start += member.pod_count
    return tuple(found)


def split_bind_info(info: BindInfo, pods: Sequence[PodRequest], slots: Slots = ()) -> list[BindInfo]:
    """The bind info of each pod that brings a group in a `GroupSplit`."""
    placements = [placement for member in info.members for placement in member]
    found = []
    for pod, own in zip(pods, slots or [(slot,) for slot in range(len(placements))], strict=False):
        members = pod.spec.group.members
        parts = _by_size([placements[slot] for slot in own], members)
        found.append(bind_info_for(parts, member_slots(members, pod.spec.leaf_cell_count).start, info.cell_chain))
    return found
