"""Victims: the pods that must leave before cells can be taken, always whole groups (rules 8.1, 8.4).

Every pod of a preempting group asks for the same victims. They are collected once, and updated as pods of the victims'
groups come and go; a gang that changes has them collected anew. Groups of a gang that depend on each other leave
together (rule 8.14).

Invariant: `State.victims[number].by_node` equals that of `collect_victims` for the cells of that group, in its order
too. `groups` has the numbers of these groups, and of some that are gone.
"""

from collections.abc import Iterable
from itertools import zip_longest

import numpy as np

from hived.cells.journal import remember
from hived.cells.state import NO_GROUP, Cells, Group, GroupState, State, Victims
from hived.cells.topology import NO_CELL, IntArray
from hived.kernels.jit import entry_kernel
from hived.life.groups import nodes_of_slots
from hived.values.specs import Gang


def change_gang(state: State, gang: Gang) -> None:
    """Replace the groups and limits of the gang of this name. Cost O(groups of the gang, before and after)."""
    before = state.gangs.pop(gang.name, None)
    state.victims.clear()
    for name in before.groups if before is not None else ():
        if state.gang_of.get(name) is before:
            del state.gang_of[name]
    if gang.groups:
        state.gangs[gang.name] = gang
        state.gang_of.update(dict.fromkeys(gang.groups, gang))


def leaving_with(state: State, groups: Iterable[Group]) -> list[Group]:
    """Add to these groups all that depend on them in a gang. Cost O(groups of their gangs)."""
    found = {group.name: group for group in groups}
    if not state.gang_of:
        return list(found.values())
    gangs = {gang.name: gang for name in found if (gang := state.gang_of.get(name)) is not None}
    for gang in gangs.values():
        lost = [
            (sum(len(found[name].slots_of) for name in limit.groups if name in found), limit) for limit in gang.limits
        ]
        if any(pods > limit.spare for pods, limit in lost):
            members = (state.groups.get(name) for name in gang.groups)
            found |= {one.name: one for one in members if one is not None and one.state is not GroupState.PREEMPTING}
    return list(found.values())


@entry_kernel
def are_claimed(s: Cells, leaves: IntArray) -> bool:
    """True if a group uses or reserves any of these leaves; NO_CELL stands for a leaf that is gone."""
    for leaf in leaves:
        if leaf != NO_CELL and (s.using[leaf] != NO_GROUP or s.reserving[leaf] != NO_GROUP):
            return True
    return False


def find_victims(state: State, physical: IntArray) -> dict[str, tuple[str, ...]]:
    """Pods that must leave before these cells can be taken, by node. Cost O(leaves + pods of the victims' groups)."""
    return collect_victims(state, physical).by_node if are_claimed(state.cells, physical) else {}


def has_victims(state: State, physical: IntArray) -> bool:
    """True if a group must leave before these cells can be taken."""
    if not are_claimed(state.cells, physical):  # as a rule, and numpy takes 30 times as long for one leaf
        return False
    return bool((state.cells.using[physical[physical != NO_CELL]] != NO_GROUP).any())


def collect_victims(state: State, physical: IntArray) -> Victims:
    """Find the groups that use these cells, and all that leave with them (rule 8.14).

    Their pods are by node, nodes and pods ascending.
    """
    leaves = physical[physical != NO_CELL]
    leaves = leaves[state.cells.using[leaves] != NO_GROUP]  # Used and Reserving ones
    users, first = np.unique(state.cells.using[leaves], return_index=True)
    names, places = state.topology.node_names, state.arrays.node[leaves[first]].tolist()
    groups = [state.group_by_number[number] for number in users.tolist()]
    if state.gang_of:
        groups = leaving_with(state, groups)
    seats: dict[str, list[str]] = {}
    for group, node in zip_longest(groups, places):
        holders = group.holders
        # most victims are groups of one pod, which is where its leaves are
        nodes = (names[node],) if len(holders) == 1 and node is not None else nodes_of_slots(state, group)
        for name, holder in zip(nodes, holders, strict=True):
            if holder is not None:
                if name in seats:
                    seats[name].append(holder.uid)
                else:
                    seats[name] = [holder.uid]
    return Victims({group.number for group in groups}, seats, {node: _names(seats[node]) for node in sorted(seats)})


def _names(uids: list[str]) -> tuple[str, ...]:
    return tuple(sorted(uids)) if len(uids) < 2 else tuple(sorted(set(uids)))


def victims_of(state: State, group: Group) -> dict[str, tuple[str, ...]]:
    """`find_victims` for the cells of a preempting group; callers must not change it. Cost O(1) as a rule."""
    known = state.victims.get(group.number)
    if known is None:
        known = state.victims[group.number] = collect_victims(state, group.physical)
    known.is_shared = True
    return known.by_node


def note_seats(state: State, group: Group, uid: str, slots: Iterable[int], *, is_taken: bool) -> None:
    """Add a pod to the victims of all groups that wait for its group, or remove it, as it takes or leaves slots.

    While the journal records, victims are forgotten instead, and once more when that is undone.
    """
    is_of_gang = group.name in state.gang_of
    if group.state is not GroupState.BEING_PREEMPTED and not is_of_gang:
        return
    concerned = [number for number, known in state.victims.items() if group.number in known.groups]
    if not concerned:
        return
    if state.cells.journal_control[0] == 1:
        _forget(state, concerned)
        remember(state, lambda: _forget(state, concerned))
        return
    if is_of_gang:  # others may leave with it
        _forget(state, concerned)
        return
    nodes = nodes_of_slots(state, group)
    for slot in slots:
        for number in concerned:
            _change_seat(state.victims[number], nodes[slot], uid, is_taken=is_taken)


def _forget(state: State, numbers: list[int]) -> None:
    for number in numbers:
        state.victims.pop(number, None)


def _change_seat(known: Victims, node: str, uid: str, *, is_taken: bool) -> None:
    if known.is_shared:
        known.by_node, known.is_shared = dict(known.by_node), False
    seats = known.seats.setdefault(node, [])
    if is_taken:
        seats.append(uid)
    else:
        seats.remove(uid)
    if not seats:
        del known.seats[node], known.by_node[node]
        return
    is_new = node not in known.by_node
    known.by_node[node] = _names(seats)
    if is_new:
        known.by_node = dict(sorted(known.by_node.items()))
