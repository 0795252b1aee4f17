"""Affinity groups: the life of a group, the slots of its pods, and the cells of each slot.

    new ----------> PREEMPTING --(all cells Reserved, a pod is allocated)--> ALLOCATED
    new ------------------------(a pod is allocated)-----------------------> ALLOCATED
    ALLOCATED --(a preemptor reserves a cell of it)--> BEING_PREEMPTED
    any --(last pod deleted, or its preemption cancelled)--> gone

A group that is lazily preempted keeps its state and its cells, but leaves its VC: `virtual` becomes None.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import TypeVar

from hived.cells.journal import remember
from hived.cells.state import Group, GroupState, State
from hived.cells.topology import NO_CELL, IntArray
from hived.values.errors import UserError
from hived.values.specs import BindInfo, MemberSpec, Placements, PodPlacement, PodRequest, PodSpec

Value = TypeVar("Value")


def add_group(
    state: State, spec: PodSpec, group_state: GroupState, physical: IntArray, virtual: IntArray | None,
    bind_info: BindInfo | None,
) -> Group:  # fmt: skip
    """Enter a new group into the table. Cost O(pods). Can be undone."""
    slot_count = 0
    for member in spec.group.members:
        slot_count += member.pod_count
    group = Group(
        number=state.group_total,
        name=spec.group.name,
        vc=state.vc_number(spec.virtual_cluster),
        spec=spec,
        state=group_state,
        physical=physical,
        virtual=virtual,
        bind_info=bind_info,
        holders=[None] * slot_count,
    )
    state.group_total += 1
    _enter(state, group)
    remember(state, _take_back, state, group)
    return group


def remove_group(state: State, group: Group) -> None:
    """Take a group out of the table; its cells must have been released. Can be undone."""
    _leave(state, group)
    remember(state, _enter_again, state, group)


def remember_order(state: State) -> None:
    """Defer the order of groups to the end of an undo, instead of restoring it for each group. Cost O(groups)."""
    remember(state, _put_in_order, state, dict(state.groups), dict(state.group_by_number))


def _enter(state: State, group: Group) -> None:
    state.groups[group.name] = group
    state.group_by_number[group.number] = group
    state.lazy_group_count += group.spec.lazy_preemption
    state.elastic_group_count += group.spec.elastic


def _enter_again(state: State, group: Group) -> None:
    """Undo `remove_group`: before the groups that came later, as the order of groups decides about replays.

    Cost O(groups that came later), or O(1) if an undo puts all in order at its end.
    """
    if state.undo_steps and getattr(state.undo_steps[0], "func", None) is _put_in_order:
        _enter(state, group)
        return
    later = list(takewhile(lambda each: each.number > group.number, reversed(state.groups.values())))
    _enter(state, group)
    for each in reversed(later):
        state.groups[each.name] = state.groups.pop(each.name)
        state.group_by_number[each.number] = state.group_by_number.pop(each.number)


def _put_in_order(state: State, groups: dict[str, Group], by_number: dict[int, Group]) -> None:
    """Put all groups back in the order of these tables."""
    if list(state.group_by_number) != list(by_number):
        state.groups.clear()
        state.groups.update(groups)
        state.group_by_number.clear()
        state.group_by_number.update(by_number)


def _leave(state: State, group: Group) -> None:
    del state.groups[group.name]
    del state.group_by_number[group.number]
    state.victims.pop(group.number, None)
    state.lazy_group_count -= group.spec.lazy_preemption
    state.elastic_group_count -= group.spec.elastic


def _take_back(state: State, group: Group) -> None:
    """Undo `add_group`; the number is given out again, so a search that is tried again ends in the same state."""
    _leave(state, group)
    state.group_total = group.number


def change_states(state: State, groups: Sequence[Group], group_state: GroupState) -> None:
    """Set the state of some groups. Can be undone."""
    before = [group.state for group in groups]

    def restore() -> None:
        for group, earlier in zip(groups, before, strict=True):
            group.state = earlier

    remember(state, restore)
    for group in groups:
        group.state = group_state


def remember_members(state: State, group: Group) -> None:
    """Record changes of a group's pods for an undo from now on: slots taken, preemption begun or ended."""
    before = (group.state, list(group.holders), {uid: list(slots) for uid, slots in group.slots_of.items()})
    preempting_pods = dict(group.preempting_pods)

    def restore() -> None:
        group.state, group.holders, group.slots_of = before
        group.first_free = 0
        group.preempting_pods = preempting_pods

    remember(state, restore)


def check_members(spec: PodSpec) -> None:
    """Raise UserError unless the sizes of a pod's group are merged, ascending, and the pod's own is one of them."""
    members = spec.group.members
    if len(members) > 1 and any(one.leaf_cell_count >= other.leaf_cell_count for one, other in pairwise(members)):
        raise UserError(f"affinity group {spec.group.name}: members must be merged by leaf cell number, ascending")
    member_slots(members, spec.leaf_cell_count)


def member_slots(members: tuple[MemberSpec, ...], leaf_cell_count: int) -> range:
    """The slots of the pods with this many leaves. UserError if the group has no pods of that size."""
    start = 0
    for member in members:
        if member.leaf_cell_count == leaf_cell_count:
            return range(start, start + member.pod_count)
        start += member.pod_count
    raise UserError(f"the affinity group has no pod of {leaf_cell_count} leaf cells")


def leaf_range(members: tuple[MemberSpec, ...], slot: int) -> slice:
    """The leaves of one slot in `Group.physical` and `Group.virtual`."""
    leaf = 0
    for member in members:
        if slot < member.pod_count:
            leaf += slot * member.leaf_cell_count
            return slice(leaf, leaf + member.leaf_cell_count)
        slot -= member.pod_count
        leaf += member.pod_count * member.leaf_cell_count
    raise IndexError("no such slot")


def first_free_slot(group: Group, slots: range) -> int | None:
    """The first free slot of some. Cost O(1) for pods of the first size that come one after the other."""
    start = max(slots.start, group.first_free)
    try:
        slot = group.holders.index(None, start, max(start, slots.stop))
    except ValueError:
        return None
    if slots.start <= group.first_free:
        group.first_free = slot
    return slot


def find_slot(state: State, group: Group, pod: PodRequest, bind_info: BindInfo) -> int:
    """The slot for a bound pod: of its size, at its place, free or its own (rule 11.11). UserError if there is none.

    A pod that was just decided has the first free slot. Others look among the slots of their node; the first of them
    pays O(pods of the group) for an index.
    """
    slots = member_slots(group.members, pod.spec.leaf_cell_count)
    places = _places(state, group)
    member = next(m for m in places if len(m[0].leaf_cell_indices) == pod.spec.leaf_cell_count)
    free = first_free_slot(group, slots)
    if free is not None and pod.uid not in group.slots_of and is_placed(bind_info, member[free - slots.start]):
        return free
    if group.slots_on is None:
        group.slots_on = _slots_on_nodes(places)
    for slot in group.slots_on.get(bind_info.node, ()):
        if slot in slots and is_placed(bind_info, member[slot - slots.start]):
            holder = group.holders[slot]
            if holder is None or holder.uid == pod.uid:
                return slot
    raise UserError(
        f"[{pod.label}]: Invalid pod bind info: affinity group {group.name} has no free placement for it"
        f" on node {bind_info.node}"
    )


def _slots_on_nodes(placements: Placements) -> dict[str, list[int]]:
    slots_on: dict[str, list[int]] = {}
    for slot, placement in enumerate(placement for member in placements for placement in member):
        slots_on.setdefault(placement.node, []).append(slot)
    return slots_on


def is_placed(bind_info: BindInfo, placement: PodPlacement) -> bool:
    """True if this is the placement that a bind info means: the same node, with its first leaf cell."""
    indices = bind_info.leaf_cell_indices
    return placement.node == bind_info.node and bool(indices) and indices[0] in placement.leaf_cell_indices


def take_slot(group: Group, slot: int, pod: PodRequest) -> bool:
    """Seat a pod in a slot that is free or its own; returns True if it was free.

    A pod that is bound twice holds two slots.
    """
    is_free = group.holders[slot] is None
    if is_free:
        group.slots_of.setdefault(pod.uid, []).append(slot)
    group.holders[slot] = pod
    return is_free


def leave_slots(group: Group, uid: str) -> list[int]:
    """Free every slot of a pod, and return them (rule 2.13)."""
    slots = group.slots_of.pop(uid, [])
    for slot in slots:
        group.holders[slot] = None
        group.first_free = min(group.first_free, slot)
    return slots


def describe_placement(
    state: State, members: tuple[MemberSpec, ...], physical: IntArray, virtual: IntArray | None, known: BindInfo | None
) -> Placements:
    """Placements of all pods of a group, as its bind info has them (rule 16.4).

    known : bind info of a pod of the group; a slot with leaves that are not configured any more is copied from it

    Cost O(leaves).
    """
    if known is not None and (physical == NO_CELL).all():
        return known.members
    arrays, topology = state.arrays, state.topology
    names = topology.node_names
    nodes, devices, held = arrays.node.take(physical).tolist(), arrays.device.take(physical).tolist(), physical.tolist()
    types = [""] * len(nodes)
    if virtual is not None:
        levels = arrays.chain_level.take(arrays.root.take(virtual))
        levels[virtual == NO_CELL] = 0  # no level of a chain, and without a type
        types = list(map(topology.level_types.__getitem__, levels.tolist()))
    placements: list[tuple[PodPlacement, ...]] = []
    start = 0
    for number, member in enumerate(members):
        size = member.leaf_cell_count
        own = slice(start, start + member.pod_count * size)
        start = own.stop
        heads = map(names.__getitem__, nodes[own][::size])
        pods = list(map(PodPlacement, heads, _by_pod(devices[own], size), _by_pod(types[own], size)))
        if known is not None and NO_CELL in held[own]:
            for pod, leaves in enumerate(_by_pod(held[own], size)):
                if NO_CELL in leaves:
                    pods[pod] = known.members[number][pod]
        placements.append(tuple(pods))
    return tuple(placements)


def _by_pod(values: list[Value], size: int) -> Iterator[tuple[Value, ...]]:
    """Group the values of leaves into a tuple for each pod."""
    return zip(*[iter(values)] * size, strict=True)


def placements_of(state: State, group: Group) -> Placements:
    """Bind-info members of a group, made once and shared by its pods until the group is lazily preempted."""
    if group.placements is None or group.is_placed_in_vc != (group.virtual is not None):
        group.placements = describe_placement(state, group.members, group.physical, group.virtual, group.bind_info)
        group.is_placed_in_vc = group.virtual is not None
    return group.placements


def bind_info_of_slot(state: State, group: Group, slot: int) -> BindInfo:
    """The bind info of the pod in one slot of a group."""
    leaf = int(group.physical[leaf_range(group.members, slot).start])
    if leaf != NO_CELL:
        chain = state.topology.chain_of(leaf).name
    else:
        chain = group.bind_info.cell_chain if group.bind_info else ""
    return bind_info_for(placements_of(state, group), slot, chain)


def without_place(members: Placements) -> Placements:
    """The same cells without a place in the VC: without preassigned cell types, as for a lazily preempted group."""
    return tuple(
        tuple(replace(pod, preassigned_cell_types=("",) * len(pod.preassigned_cell_types)) for pod in member)
        for member in members
    )


def bind_info_for(placements: Placements, slot: int, chain: str) -> BindInfo:
    """The bind info that places a pod in one slot."""
    place = slot
    for member in placements:
        if place < len(member):
            return BindInfo(member[place].node, member[place].leaf_cell_indices, chain, placements)
        place -= len(member)
    raise IndexError("no such slot")


def nodes_of_slots(state: State, group: Group) -> list[str]:
    """The node of each slot. Cost O(pods)."""
    return [placement.node for member in _places(state, group) for placement in member]


def _places(state: State, group: Group) -> Placements:
    """As `placements_of`, but the types of preassigned cells may be from before a lazy preemption."""
    return group.bind_info.members if group.bind_info is not None else placements_of(state, group)


def virtual_leaves(state: State, name: str) -> tuple[int, ...]:
    """The virtual leaf cells of an allocated group in slot order, as `ScheduleRequested.own` takes them.

    Empty if the group has no place in its VC, lacks a leaf of it, or is not known.
    """
    group = state.groups.get(name)
    if group is None or group.state is GroupState.PREEMPTING or group.virtual is None:
        return ()
    found = group.virtual.tolist()
    return () if NO_CELL in found else tuple(found)


def virtual_placement(state: State, virtual: IntArray) -> dict[str, list[str]]:
    """Preassigned address -> leaf addresses, keys ascending, leaves in group order."""
    address = state.topology.address
    placement: dict[str, list[str]] = {}
    for root, leaf in zip(state.arrays.root[virtual].tolist(), virtual.tolist(), strict=True):
        placement.setdefault(address(root), []).append(address(leaf))
    return dict(sorted(placement.items()))
