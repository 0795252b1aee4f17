"""A group that was placed as a whole goes on as other groups, mostly of one pod each (rules 15.3, 15.6).

So the pods of a gang start together, and yet one of them can end, be replaced or be preempted like any other pod. A
stand-in for pods to come gives them its cells, some at a time.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hived.allocation import hand_over
from hived.checks import differing_field
from hived.errors import UserError
from hived.groups import (
    add_group,
    bind_info_for,
    bind_info_of_slot,
    leaf_range,
    member_slots,
    placements_of,
    remove_group,
    take_slot,
)
from hived.losses import forget_times, note_times
from hived.specs import BindInfo, MemberSpec, PodPlacement, PodRequest
from hived.state import Group, GroupState, State

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
    """The new group of a pod, which holds the first slot of its size."""
    ranges = [leaf_range(group.members, slot) for slot in slots]
    physical = np.concatenate([group.physical[leaves] for leaves in ranges])
    virtual = None if group.virtual is None else np.concatenate([group.virtual[leaves] for leaves in ranges])
    own = add_group(state, pod.spec, GroupState.ALLOCATED, physical, virtual, info)
    own.lazy_preemptor = group.lazy_preemptor
    hand_over(state.arrays, state.cells, own.physical, own.number, int(pod.spec.elastic))
    take_slot(own, member_slots(own.members, pod.spec.leaf_cell_count).start, pod)
    return own


def _check_pods(state: State, group: Group, pods: Sequence[PodRequest], slots: Slots) -> None:
    """Raise UserError unless the pods' groups can have these slots of a group."""
    refused = f"affinity group {group.name} cannot be split:"
    sizes = _sizes(group.members)
    if len(pods) != len(slots):
        raise UserError(f"{refused} it has {len(slots)} pods, {len(pods)} are given")
    if sorted(slot for own in slots for slot in own) != list(range(len(sizes))):
        raise UserError(f"{refused} each of its {len(sizes)} slots has to go to one pod's group")
    taken = set(state.groups) - {group.name}
    for pod, own in zip(pods, slots, strict=True):
        held = [sizes[slot] for slot in own]
        if not held or pod.spec.leaf_cell_count not in held or _sizes(pod.spec.group.members) != held:
            what = f"slot {own[0]} has {held[0]} leaf cells for one pod" if len(held) == 1 else f"slots {list(own)}"
            raise UserError(f"{refused} {what}, {pod.label} asks for others")
        field = differing_field(pod.spec, group.spec)
        if field is not None:
            raise UserError(f"{refused} {pod.label} has another {field}")
        if pod.spec.group.name in taken:
            raise UserError(f"{refused} there is a group {pod.spec.group.name} already")
        taken.add(pod.spec.group.name)


def _sizes(members: Sequence[MemberSpec]) -> list[int]:
    return [member.leaf_cell_count for member in members for _ in range(member.pod_count)]


def _by_size(placements: Sequence[PodPlacement], members: Sequence[MemberSpec]) -> tuple[tuple[PodPlacement, ...], ...]:
    """Placements in slot order, one tuple for each size."""
    found, start = [], 0
    for member in members:
        found.append(tuple(placements[start : start + member.pod_count]))
        start += member.pod_count
    return tuple(found)


def split_bind_info(info: BindInfo, pods: Sequence[PodRequest], slots: Slots = ()) -> list[BindInfo]:
    """For each pod that brings a group when one is split, as in `GroupSplit`, its bind info in that group."""
    placements = [placement for member in info.members for placement in member]
    found = []
    for pod, own in zip(pods, slots or [(slot,) for slot in range(len(placements))], strict=False):
        members = pod.spec.group.members
        parts = _by_size([placements[slot] for slot in own], members)
        found.append(bind_info_for(parts, member_slots(members, pod.spec.leaf_cell_count).start, info.cell_chain))
    return found
