"""Copies a state: for questions answered outside of the lock, and for simulations of the queue.

The topology never changes, so both states share it. They also share all values that are only ever replaced: specs,
cells of groups, placements, remembered waits. Values changed in place are copied. Invariant: the same events lead both
states to the same decisions, and no event of one is seen in the other.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hived.cells.state import INITIAL_JOURNAL_LENGTH, Cells, Group, State, Work

_OF_JOURNAL = frozenset({"journal_position", "journal_value", "journal_control"})


def copy_state(state: State, room: State | None = None, groups: Mapping[str, Group] | None = None) -> State:
    """Copy a state; the copy shares nothing that changes, and records nothing.

    room : an earlier copy that is not needed any more; its memory is used again if it has the same topology. The
        caller must not use it afterwards
    groups : copies of some groups, made by `copy_groups` a moment ago; they become part of the copy

    Cost O(cells) of copying memory, and O(groups + pods). Victims of preempting groups are collected anew when asked
    for; the shortcut of a decision that was not carried out yet is left out.
    """
    if room is not None and (room.topology is not state.topology or room is state):
        room = None
    earlier = groups if groups is not None else room.groups if room is not None else {}
    cells = _copy_cells(state.cells) if room is None else _copy_into(state.cells, room.cells)
    copies = {name: _copy_over(group, earlier.get(name)) for name, group in state.groups.items()}
    return State(
        spec=state.spec, topology=state.topology, cells=cells, groups=copies,
        group_by_number={number: copies[group.name] for number, group in state.group_by_number.items()},
        vc_names=list(state.vc_names), group_total=state.group_total, last_plan=state.last_plan,
        lazy_group_count=state.lazy_group_count, elastic_group_count=state.elastic_group_count,
        gangs=dict(state.gangs), gang_of=dict(state.gang_of),
        work=_copy_work(state.work, None if room is None else room.work),
        has_saves=state.has_saves, now_ms=state.now_ms, known_waits=dict(state.known_waits),
    )  # fmt: skip


def copy_groups(state: State, names: Iterable[str]) -> dict[str, Group]:
    """Copy the groups of these names that exist, for a copy of the state a moment later."""
    return {name: _copy_group(group) for name in names if (group := state.groups.get(name)) is not None}


def _copy_cells(cells: Cells) -> Cells:
    """Copy the memory and give its parts the same names."""
    arrays: dict[str, npt.NDArray[Any]] = {"memory": cells.memory.copy()}
    start = cells.memory.ctypes.data
    for name in cells.names:
        array = getattr(cells, name)
        if array.base is cells.memory:
            first = (array.ctypes.data - start) // array.itemsize
            arrays[name] = arrays["memory"][first : first + len(array)]
        elif name not in _OF_JOURNAL and name != "memory":
            arrays[name] = array.copy()
    return Cells(
        **arrays, journal_position=np.empty(INITIAL_JOURNAL_LENGTH, np.int64),
        journal_value=np.empty(INITIAL_JOURNAL_LENGTH, np.int32), journal_control=np.zeros(2, np.int64),
    )  # fmt: skip


def _copy_into(cells: Cells, room: Cells) -> Cells:
    """Overwrite the memory of an earlier copy. Parts of `memory` follow from it; the journal keeps its length."""
    for name in cells.names:
        array = getattr(cells, name)
        if array.base is not cells.memory and name not in _OF_JOURNAL:
            np.copyto(getattr(room, name), array)
    room.journal_control[:] = 0
    return room


def _copy_group(group: Group) -> Group:
    return Group(
        group.number, group.name, group.vc, group.spec, group.state, group.physical, group.virtual, group.bind_info,
        group.holders.copy(), {uid: slots.copy() for uid, slots in group.slots_of.items()},
        group.preempting_pods.copy(), group.lazy_preemptor, group.placements, group.is_placed_in_vc, group.first_free,
        group.slots_on, group.times.copy(), group.since_ms, group.started_ms,
    )  # fmt: skip


def _copy_over(group: Group, room: Group | None) -> Group:
    """Copy a group, or update its earlier copy if its pods are still the same ones.

    This takes half as long, and makes no objects, so that the garbage collector has no reason to run.
    """
    if (
        room is None
        or (room.number, room.vc) != (group.number, group.vc)
        or room.spec is not group.spec
        or room.holders != group.holders
        or room.slots_of != group.slots_of
        or room.preempting_pods  # their order counts as well
        or group.preempting_pods
        or room.times != group.times
    ):
        return _copy_group(group)
    room.state, room.physical, room.virtual = group.state, group.physical, group.virtual
    room.bind_info, room.lazy_preemptor, room.placements = group.bind_info, group.lazy_preemptor, group.placements
    room.is_placed_in_vc, room.first_free, room.slots_on = group.is_placed_in_vc, group.first_free, group.slots_on
    room.since_ms, room.started_ms = group.since_ms, group.started_ms
    return room


def _copy_work(work: Work | None, room: Work | None) -> Work | None:
    if work is None or room is None:
        return None if work is None else Work(work.since_ms.copy(), work.leaf_count.copy())
    np.copyto(room.since_ms, work.since_ms)
    np.copyto(room.leaf_count, work.leaf_count)
    return room
