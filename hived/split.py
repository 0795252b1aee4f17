"""A group that was placed as a whole goes on as groups of one pod each, which come and go on their own (rule 15.3).

So the pods of a gang start together, and yet one of them can end, be replaced or be preempted like any other pod.
"""

from collections.abc import Sequence
from dataclasses import replace

from hived.allocation import hand_over
from hived.checks import differing_field
from hived.errors import UserError
from hived.groups import add_group, bind_info_of_slot, leaf_range, placements_of, remove_group, take_slot
from hived.losses import forget_times, note_times
from hived.specs import BindInfo, MemberSpec, PodRequest
from hived.state import Group, GroupState, State


def split_group(state: State, name: str, pods: Sequence[PodRequest]) -> None:
    """Give slot i of an allocated group to `pods[i]`, the only one of a new group. Cost O(leaves). Can be undone.

    Each pod keeps its own times (rule 8.12).

    Raises UserError if the group is not allocated, a pod asks for other cells than its slot has, or a group name is
    taken. Nothing changes then.
    """
    group = state.groups.get(name)
    if group is None or group.state is not GroupState.ALLOCATED:
        raise UserError(f"affinity group {name} cannot be split: it is not allocated")
    _check_pods(state, group, pods)
    infos = [bind_info_of_slot(state, group, slot) for slot in range(len(pods))]
    placements = [placement for member in placements_of(state, group) for placement in member]
    times = dict(group.times)
    for uid in times:
        forget_times(state, group, uid)
    remove_group(state, group)
    for slot, pod in enumerate(pods):
        leaves = leaf_range(group.members, slot)
        virtual = None if group.virtual is None else group.virtual[leaves].copy()
        info = replace(infos[slot], members=((placements[slot],),))
        own = add_group(state, pod.spec, GroupState.ALLOCATED, group.physical[leaves].copy(), virtual, info)
        own.lazy_preemptor = group.lazy_preemptor
        hand_over(state.arrays, state.cells, own.physical, own.number, int(pod.spec.elastic))
        take_slot(own, 0, pod)
        if pod.uid in times:
            note_times(state, own, pod.uid, times[pod.uid])


def _check_pods(state: State, group: Group, pods: Sequence[PodRequest]) -> None:
    """Raise UserError unless the pods can have the group's slots, one by one."""
    refused = f"affinity group {group.name} cannot be split:"
    sizes = [member.leaf_cell_count for member in group.members for _ in range(member.pod_count)]
    if len(pods) != len(sizes):
        raise UserError(f"{refused} it has {len(sizes)} pods, {len(pods)} are given")
    taken = set(state.groups)
    for slot, (pod, size) in enumerate(zip(pods, sizes, strict=True)):
        own = pod.spec.group
        if pod.spec.leaf_cell_count != size or own.members != (MemberSpec(1, size),):
            raise UserError(f"{refused} slot {slot} has {size} leaf cells for one pod, {pod.label} asks for others")
        field = differing_field(pod.spec, group.spec)
        if field is not None:
            raise UserError(f"{refused} {pod.label} has another {field}")
        if own.name in taken:
            raise UserError(f"{refused} there is a group {own.name} already")
        taken.add(own.name)


def split_bind_info(info: BindInfo) -> list[BindInfo]:
    """For each slot of a group, the bind info of a pod that has its placement alone."""
    return [
        BindInfo(placement.node, placement.leaf_cell_indices, info.cell_chain, ((placement,),))
        for member in info.members
        for placement in member
    ]
