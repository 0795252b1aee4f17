"""The life of an affinity group: where its pods' slots are, and which cells they stand for.

    new ----------> PREEMPTING --(all cells Reserved, a pod is allocated)--> ALLOCATED
    new ------------------------(a pod is allocated)-----------------------> ALLOCATED
    ALLOCATED --(a preemptor reserves a cell of it)--> BEING_PREEMPTED
    any --(last pod deleted, or its preemption cancelled)--> gone

A group that is lazily preempted keeps its state and its cells, but leaves its VC: `virtual` becomes None.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from hived.specs import BindInfo, MemberSpec, PodPlacement, PodRequest, PodSpec
from hived.state import Group, GroupState, State
from hived.topology import NO_CELL, IntArray


def add_group(
    state: State, spec: PodSpec, group_state: GroupState, physical: IntArray, virtual: IntArray | None,
    bind_info: BindInfo | None,
) -> Group:  # fmt: skip
    """Enter a new group into the table. Cost O(pods)."""
    group = Group(
        number=state.group_total,
        name=spec.group.name,
        vc=state.vc_number(spec.virtual_cluster),
        spec=spec,
        state=group_state,
        physical=physical,
        virtual=virtual,
        bind_info=bind_info,
        slots=[[None] * member.pod_count for member in spec.group.members],
    )
    state.group_total += 1
    _enter(state, group)
    return group


def _enter(state: State, group: Group) -> None:
    state.groups[group.name] = group
    state.group_by_number[group.number] = group
    state.lazy_group_count += group.spec.lazy_preemption


def remove_group(state: State, group: Group) -> None:
    """Take a group out of the table; its cells must have been released. Can be undone."""
    del state.groups[group.name]
    del state.group_by_number[group.number]
    state.lazy_group_count -= group.spec.lazy_preemption
    state.undo_steps.append(partial(_enter, state, group))


def pod_ranges(members: tuple[MemberSpec, ...]) -> Iterator[tuple[int, int, int, int]]:
    """(member, pod, first leaf, end leaf) of every slot, in canonical order (FORMAT 4.5)."""
    start = 0
    for number, member in enumerate(members):
        for pod in range(member.pod_count):
            yield number, pod, start, start + member.leaf_cell_count
            start += member.leaf_cell_count


def slot_range(group: Group, member: int, pod: int) -> slice:
    """The leaves of one slot in `group.physical`."""
    start = sum(m.pod_count * m.leaf_cell_count for m in group.members[:member])
    size = group.members[member].leaf_cell_count
    return slice(start + pod * size, start + (pod + 1) * size)


def member_of_size(group: Group, leaf_cell_count: int) -> int:
    """Position of the member with this many leaves per pod; the spec was checked to have it."""
    return next(i for i, member in enumerate(group.members) if member.leaf_cell_count == leaf_cell_count)


def first_free_slot(group: Group, member: int) -> int | None:
    """The first slot of a member that no pod holds."""
    slots = group.slots[member]
    return slots.index(None) if None in slots else None


def describe_placement(
    state: State, members: tuple[MemberSpec, ...], physical: IntArray, virtual: IntArray | None, known: BindInfo | None
) -> tuple[tuple[PodPlacement, ...], ...]:
    """Placements of all pods of a group, as its bind info has them.

    known : bind info of a pod of the group; a slot with leaves that are not configured any more is copied from it

    Cost O(leaves).
    """
    arrays, topology = state.arrays, state.topology
    names = topology.node_names
    nodes, devices = arrays.node[physical].tolist(), arrays.device[physical].tolist()
    if virtual is None:
        types = [""] * len(nodes)
    else:
        roots = arrays.root[virtual]
        level_types = {
            int(level): topology.chains[arrays.chain_of_level[level]].types[
                level - arrays.level_offset[arrays.chain_of_level[level]] - 1
            ]
            for level in np.unique(arrays.chain_level[roots])
        }
        types = [level_types[level] for level in arrays.chain_level[roots].tolist()]
        types = [text if leaf != NO_CELL else "" for text, leaf in zip(types, virtual.tolist(), strict=True)]
    is_whole = bool((physical != NO_CELL).all())
    placements: list[list[PodPlacement]] = [[] for _ in members]
    for member, pod, start, end in pod_ranges(members):
        if not is_whole and known is not None and NO_CELL in physical[start:end]:
            placements[member].append(known.members[member][pod])
        else:
            placements[member].append(
                PodPlacement(names[nodes[start]], tuple(devices[start:end]), tuple(types[start:end]))
            )
    return tuple(tuple(pods) for pods in placements)


def placements_of(state: State, group: Group) -> tuple[tuple[PodPlacement, ...], ...]:
    """Bind-info members of a group, made once and shared by its pods until the group is lazily preempted."""
    if group.placements is None:
        group.placements = describe_placement(state, group.members, group.physical, group.virtual, group.bind_info)
    return group.placements


def bind_info_of_slot(state: State, group: Group, member: int, pod: int) -> BindInfo:
    """The bind info of the pod in one slot of a group."""
    members = placements_of(state, group)
    placement = members[member][pod]
    leaf = int(group.physical[slot_range(group, member, pod)][0])
    if leaf != NO_CELL:
        chain = state.topology.chain_of(leaf).name
    else:
        chain = group.bind_info.cell_chain if group.bind_info else ""
    return BindInfo(placement.node, placement.leaf_cell_indices, chain, members)


def find_slot(members: tuple[tuple[PodPlacement, ...], ...], member: int, bind_info: BindInfo) -> int | None:
    """The slot of a member whose placement is that of this pod: same node, holding its first leaf."""
    if not bind_info.leaf_cell_indices:
        return None
    for pod, placement in enumerate(members[member]):
        if placement.node == bind_info.node and bind_info.leaf_cell_indices[0] in placement.leaf_cell_indices:
            return pod
    return None


def pods_of(group: Group) -> Iterator[tuple[int, int, PodRequest]]:
    """(member, slot, pod) of every pod that holds a slot."""
    for member, slots in enumerate(group.slots):
        for pod, holder in enumerate(slots):
            if holder is not None:
                yield member, pod, holder


def is_empty(group: Group) -> bool:
    """Has every pod of the group gone?"""
    return all(holder is None for slots in group.slots for holder in slots)
