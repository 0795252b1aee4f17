"""Victims, reservations and lazy preemption (rules 8)."""

from collections.abc import Iterable

import numpy as np

from hived.cells.binding import intend_placement, plan_placement
from hived.cells.journal import remember
from hived.cells.state import NO_GROUP, CellState, Group, GroupState, State
from hived.cells.topology import NO_CELL, IntArray
from hived.life.allocation import cancel_group, downgrade_groups, reserve_group
from hived.life.groups import add_group, change_states, remove_group
from hived.life.health import catch_up_after_plan
from hived.values.specs import OPPORTUNISTIC_PRIORITY, PodRequest

_USED, _RESERVING, _RESERVED = CellState.USED, CellState.RESERVING, CellState.RESERVED


def find_preemptors(state: State, physical: IntArray) -> list[Group]:
    """Groups that reserve any of these cells, ascending by name (rule 8.2)."""
    reserving = state.cells.reserving[physical[physical != NO_CELL]]
    numbers = set(reserving[reserving != NO_GROUP].tolist())
    return sorted((state.group_by_number[number] for number in numbers), key=lambda group: group.name)


def start_preemption(state: State, pod: PodRequest, physical: IntArray, virtual: IntArray | None) -> tuple[str, ...]:
    """Create a preempting group: cancel other preemptors of its cells, then take and reserve them (rule 8.3).

    Returns the names of the preemptors that were cancelled. Cost O(leaves x height).
    """
    cells, arrays = state.cells, state.arrays
    through = virtual if virtual is not None else np.full(len(physical), NO_CELL, np.int32)
    plan_placement(arrays, cells, physical, through, 1)
    intend_placement(arrays, cells, physical, through)
    preemptors = find_preemptors(state, physical)
    for preemptor in preemptors:
        cancel_preemption(state, preemptor)
    users = set(cells.using[physical[cells.state[physical] == _USED]].tolist())
    change_states(state, [state.group_by_number[number] for number in users], GroupState.BEING_PREEMPTED)
    group = add_group(state, pod.spec, GroupState.PREEMPTING, physical, virtual, None)
    reserve_group(arrays, cells, physical, through, pod.spec.priority, group.vc, group.number)
    plan_placement(arrays, cells, physical, through, -1)
    catch_up_after_plan(arrays, cells)
    group.preempting_pods[pod.uid] = pod
    return tuple(preemptor.name for preemptor in preemptors)


def cancel_preemption(state: State, group: Group) -> None:
    """Give a preempting group's cells back to their victims, or free them, and drop the group (rules 8.6, 8.9).

    Can be undone.
    """
    cells, arrays = state.cells, state.arrays
    count = len(group.physical)
    victim_virtual = np.full(count, NO_CELL, np.int32)
    victim_priority = np.full(count, OPPORTUNISTIC_PRIORITY, np.int32)
    victim_vc = np.full(count, NO_CELL, np.int32)
    taken = np.flatnonzero((group.physical != NO_CELL) & (cells.state[group.physical] == _RESERVING))
    users = cells.using[group.physical[taken]]
    numbers, which = np.unique(users, return_inverse=True)
    victims = [state.group_by_number[number] for number in numbers.tolist()]
    victim_vc[taken] = np.array([victim.vc for victim in victims], np.int32)[which]
    in_vc = [victim for victim in victims if victim.virtual is not None]
    if in_vc:
        leaves = np.concatenate([victim.physical for victim in in_vc])
        behind = np.concatenate([victim.virtual for victim in in_vc if victim.virtual is not None])
        priorities = np.array(
            [OPPORTUNISTIC_PRIORITY if victim.virtual is None else victim.spec.priority for victim in victims], np.int32
        )
        own = taken[priorities[which] != OPPORTUNISTIC_PRIORITY]
        by_leaf = np.argsort(leaves)
        victim_virtual[own] = behind[by_leaf[np.searchsorted(leaves, group.physical[own], sorter=by_leaf)]]
        victim_priority[taken] = priorities[which]
    own_virtual = group.virtual if group.virtual is not None else np.full(count, NO_CELL, np.int32)
    plan_placement(arrays, cells, group.physical, own_virtual, 1)
    cancel_group(arrays, cells, group.physical, victim_virtual, victim_priority, victim_vc)
    plan_placement(arrays, cells, group.physical, own_virtual, -1)
    catch_up_after_plan(arrays, cells)
    remove_group(state, group)


def preempt_lazily(state: State, groups: Iterable[Group], preemptor: str) -> list[str]:
    """Move groups out of their VCs, one after the other: they keep their cells at opportunistic priority.

    Returns the names of the groups that had not left their VC already, as opportunistic ones have. Can be undone. Cost
    O(leaves x height), and one call of a kernel for all groups.
    """
    leaving = [group for group in groups if group.virtual is not None]
    if not leaving:
        return []
    before = [group.virtual for group in leaving]

    def restore() -> None:
        for group, virtual in zip(leaving, before, strict=True):
            group.virtual, group.lazy_preemptor = virtual, None

    downgrade_groups(state.arrays, state.cells, np.concatenate([group.physical for group in leaving]))
    for group in leaving:
        group.virtual, group.lazy_preemptor = None, preemptor
    remember(state, restore)
    return [group.name for group in leaving]


def lazy_groups_below(state: State, virtual: IntArray) -> list[Group]:
    """Groups to preempt lazily before these virtual leaves can be taken, in the order met (rule 8.7)."""
    if not state.lazy_group_count:
        return []
    cells = state.cells
    physical = cells.bound[virtual]
    physical = physical[physical != NO_CELL]
    users = cells.using[physical[cells.state[physical] == _USED]].tolist()
    groups = map(state.group_by_number.__getitem__, dict.fromkeys(users))
    return [group for group in groups if group.virtual is not None and group.spec.lazy_preemption]


def preempt_lazily_for(
    state: State, groups: Iterable[Group], physical: IntArray, virtual: IntArray, preemptor: str
) -> list[str]:
    """Preempt groups lazily for a planned placement, keeping doomed cells away from it (rule 10.12).

    Returns the names of the groups that had not left their VC already.
    """
    plan_placement(state.arrays, state.cells, physical, virtual, 1)
    preempted = preempt_lazily(state, groups, preemptor)
    plan_placement(state.arrays, state.cells, physical, virtual, -1)
    return preempted
