"""Victims, reservations and lazy preemption (rules 8)."""

from collections.abc import Iterable

import numpy as np

from hived.allocation import cancel_group, downgrade_group, reserve_group
from hived.binding import intend_placement, plan_placement
from hived.groups import add_group, change_state, nodes_of_pods, remove_group
from hived.health import catch_up_after_plan
from hived.journal import remember
from hived.specs import OPPORTUNISTIC_PRIORITY, PodRequest
from hived.state import NO_GROUP, CellState, Group, GroupState, State
from hived.topology import NO_CELL, IntArray

_USED, _RESERVING, _RESERVED = CellState.USED, CellState.RESERVING, CellState.RESERVED


def find_victims(state: State, physical: IntArray) -> dict[str, tuple[str, ...]]:
    """Pods that must leave before these cells can be taken: whole groups, by node (rules 8.1, 8.4)."""
    users = state.cells.using[physical[physical != NO_CELL]]  # of Used and Reserving leaves
    users = users[users != NO_GROUP]
    if not len(users):
        return {}
    victims: dict[str, set[str]] = {}
    for number in np.unique(users).tolist():
        group = state.group_by_number[number]
        for node, pod in nodes_of_pods(state, group):
            victims.setdefault(node, set()).add(pod.uid)
    return {node: tuple(sorted(victims[node])) for node in sorted(victims)}


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
    for number in np.unique(cells.using[physical[cells.state[physical] == _USED]]).tolist():
        change_state(state, state.group_by_number[number], GroupState.BEING_PREEMPTED)
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
    for number in np.unique(users).tolist():
        victim = state.group_by_number[number]
        own = taken[users == number]
        victim_vc[own] = victim.vc
        if victim.virtual is not None:
            place_of = {leaf: place for place, leaf in enumerate(victim.physical.tolist())}
            victim_virtual[own] = victim.virtual[[place_of[leaf] for leaf in group.physical[own].tolist()]]
            victim_priority[own] = victim.priority
    own_virtual = group.virtual if group.virtual is not None else np.full(count, NO_CELL, np.int32)
    plan_placement(arrays, cells, group.physical, own_virtual, 1)
    cancel_group(arrays, cells, group.physical, victim_virtual, victim_priority, victim_vc)
    plan_placement(arrays, cells, group.physical, own_virtual, -1)
    catch_up_after_plan(arrays, cells)
    remove_group(state, group)


def preempt_lazily(state: State, group: Group, preemptor: str) -> bool:
    """Move a group out of its VC: it keeps its cells at opportunistic priority. Can be undone.

    Returns whether there was anything to do: opportunistic and lazily preempted groups have left their VC already.
    """
    virtual = group.virtual
    if virtual is None:
        return False
    before = (virtual, group.lazy_preemptor, group.placements)

    def restore() -> None:
        group.virtual, group.lazy_preemptor, group.placements = before

    downgrade_group(state.arrays, state.cells, group.physical, virtual, group.vc)
    group.virtual, group.lazy_preemptor, group.placements = None, preemptor, None
    remember(state, restore)
    return True


def lazy_groups_below(state: State, virtual: IntArray) -> list[Group]:
    """Groups to preempt lazily before these virtual leaves can be taken, in the order met (rule 8.7)."""
    if not state.lazy_group_count:
        return []
    cells = state.cells
    physical = cells.bound[virtual]
    physical = physical[physical != NO_CELL]
    used = physical[cells.state[physical] == _USED]
    found: dict[int, Group] = {}
    for number in cells.using[used].tolist():
        if number not in found:
            group = state.group_by_number[number]
            if group.spec.lazy_preemption and group.virtual is not None:
                found[number] = group
    return list(found.values())


def preempt_lazily_for(
    state: State, groups: Iterable[Group], physical: IntArray, virtual: IntArray, preemptor: str
) -> list[str]:
    """Preempt groups lazily for a planned placement, keeping doomed cells away from it (rule 10.12).

    Returns the names of the groups that had not left their VC already.
    """
    plan_placement(state.arrays, state.cells, physical, virtual, 1)
    preempted = [group.name for group in groups if preempt_lazily(state, group, preemptor)]
    plan_placement(state.arrays, state.cells, physical, virtual, -1)
    return preempted
