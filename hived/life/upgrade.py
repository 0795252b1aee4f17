"""Opportunistic groups become guaranteed where they are (rule 18.12): the same leaves, behind cells of their VC.

The VC names the virtual leaves, as in its own schedule. Each leaf in use gets one of them, so that cells
above leaves agree: two leaves of one node stand behind virtual leaves of one virtual node, and so on up to the
preassigned cell. Virtual cells that are bound already fix their hardware; of unbound ones any of the same form will do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hived.cells.binding import plan_placement
from hived.cells.journal import remember
from hived.cells.state import Group, GroupState, State
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.life.allocation import release_group
from hived.life.checks import differing_field
from hived.life.health import catch_up_after_plan
from hived.life.restore import restore_chosen
from hived.values.errors import UserError
from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, PodRequest, PodSpec


class _Form(NamedTuple):
    """The leaves of one cell that count: `shape` is equal for cells in which they lie alike, `leaves` in that order."""

    shape: tuple[object, ...]
    leaves: tuple[int, ...]


def upgrade_groups(state: State, pods: Sequence[PodRequest], own: IntArray) -> None:
    """Give groups that run on lent cells these virtual leaves of their VC, on the hardware that they have.

    pods : all that hold cells of the groups, as they ask from now on: guaranteed, and else as before
    own : int32 ids of free virtual leaves of the VC, one for each leaf of the groups at the least, in any order

    Raises UserError if the hardware is another's, the forms differ, or VC safety would not hold. Must run while the
    journal records, as only an undo takes a refused attempt back. Cost O(leaves x height).
    """
    groups = _groups_of(state, pods)
    before = [(group, group.spec, list(group.holders), group.virtual, group.lazy_preemptor) for group in groups]
    placements = [(group, group.placements, group.is_placed_in_vc) for group in groups]

    def restore() -> None:
        for group, spec, holders, virtual, preemptor in before:
            group.spec, group.holders, group.virtual, group.lazy_preemptor = spec, holders, virtual, preemptor
        for group, known, is_in_vc in placements:
            group.placements, group.is_placed_in_vc = known, is_in_vc

    remember(state, restore)
    physical = np.concatenate([group.physical for group in groups])
    if (physical == NO_CELL).any() or len(physical) > len(own):
        raise UserError("the groups have not all of their leaf cells")
    virtual = match_leaves(state, physical, own)
    _put_specs(groups, pods)
    arrays, cells = state.arrays, state.cells
    release_group(arrays, cells, physical)
    plan_placement(arrays, cells, physical, virtual, 1)
    is_placed, start = True, 0
    for group in groups:
        part = virtual[start : start + len(group.physical)]
        start += len(part)
        group.virtual, group.lazy_preemptor = part.copy(), None
        group.placements, group.is_placed_in_vc = None, False
        is_placed = restore_chosen(state, group, part) and is_placed
    plan_placement(arrays, cells, physical, virtual, -1)
    catch_up_after_plan(arrays, cells)
    if not is_placed:
        raise UserError("the cells are another's, or VC safety would not hold")


def _groups_of(state: State, pods: Sequence[PodRequest]) -> list[Group]:
    """The groups of these pods, in order. UserError unless all of them run, and only ask to be guaranteed."""
    groups = dict[str, Group]()
    for pod in pods:
        name = pod.spec.group.name
        group = state.groups.get(name)
        if group is None or group.state is not GroupState.ALLOCATED or pod.uid not in group.slots_of:
            raise UserError(f"[{pod.label}]: affinity group {name} does not run, or not with this pod")
        field = differing_field(_lent(pod.spec), _lent(group.spec))
        if pod.spec.group.members != group.members:
            field = "members"
        if field is not None or pod.spec.priority < MIN_GUARANTEED_PRIORITY:
            raise UserError(f"[{pod.label}]: it asks for another {field or 'use than a guaranteed one'}")
        groups[name] = group
    uids = {pod.uid for pod in pods}
    lacking = [name for name, group in groups.items() if not group.slots_of.keys() <= uids]
    if lacking:
        raise UserError(f"affinity group {lacking[0]} has pods that are not named")
    if any(group.virtual is not None for group in groups.values()):
        raise UserError("a group has its place in its VC already")
    return list(groups.values())


def _lent(spec: PodSpec) -> PodSpec:
    """The request of a pod on lent cells."""
    return replace(spec, priority=OPPORTUNISTIC_PRIORITY, pinned_cell_id="")


def _put_specs(groups: Sequence[Group], pods: Sequence[PodRequest]) -> None:
    by_uid = {pod.uid: pod for pod in pods}
    for group in groups:
        group.holders = [None if holder is None else by_uid[holder.uid] for holder in group.holders]
        first = next(pod for pod in pods if pod.spec.group.name == group.name)
        group.spec = first.spec


def match_leaves(state: State, physical: IntArray, own: IntArray) -> IntArray:
    """Match each physical leaf with one of these virtual leaves, so that all cells above can be bound as well.

    Where there are as many of both, a choice is found if there is one. Raises UserError if none is found, or a virtual
    leaf is not free. Nothing changes.
    """
    arrays, bound = state.arrays, state.cells.bound
    if (state.cells.priority[own] != FREE_PRIORITY).any():
        raise UserError("a virtual leaf cell is not free")
    found = dict[int, int]()
    left = dict.fromkeys(physical.tolist())
    roots = _parted(own.tolist(), arrays.root[own].tolist())
    for root in [root for root in roots if bound[root] != NO_CELL]:
        here = [leaf for leaf in left if _is_below(arrays, leaf, int(bound[root]))]
        _match_below(state, root, roots.pop(root), int(bound[root]), here, found)
        for leaf in here:
            del left[leaf]
    levels = dict.fromkeys(sorted(map(int, arrays.level[list(roots)]), reverse=True))  # larger cells first
    for level in levels:
        cells = _parted(list(left), [_ancestor(arrays, leaf, level) for leaf in left])
        cells.pop(NO_CELL, None)
        of_level = {root: leaves for root, leaves in roots.items() if arrays.level[root] == level}
        for leaf in _match_alike(state, of_level, cells, found):
            del left[leaf]
    if left:
        raise UserError("the hardware of the groups has not the form of their virtual cells")
    return np.array([found[leaf] for leaf in physical.tolist()], np.int32)


def _match_below(
    state: State, virtual: int, leaves: list[int], physical: int, here: list[int], found: dict[int, int]
) -> None:
    """Match leaves as `match_leaves`, below a virtual cell that is or will be bound to this physical one."""
    arrays, bound, level = state.arrays, state.cells.bound, int(state.arrays.level[virtual]) - 1
    if level == 0:
        found |= dict.fromkeys(here, virtual)
        return
    wanted = _parted(leaves, [_ancestor(arrays, leaf, level) for leaf in leaves])
    cells = _parted(here, [_ancestor(arrays, leaf, level) for leaf in here])
    for child in [child for child in wanted if bound[child] != NO_CELL]:
        there = cells.pop(int(bound[child]), [])
        _match_below(state, child, wanted.pop(child), int(bound[child]), there, found)
    matched = _match_alike(state, wanted, cells, found)
    if len(matched) < sum(map(len, cells.values())):
        raise UserError(f"the hardware of the groups has not the form of {state.topology.address(virtual)}")


def _match_alike(
    state: State, wanted: dict[int, list[int]], cells: dict[int, list[int]], found: dict[int, int]
) -> list[int]:
    """Match physical cells, with their leaves, to unbound virtual ones of their level; returns the leaves matched.

    Fullest cells first, each to a virtual cell of the same form, else to one with more leaves that could have them.
    """
    arrays, left = state.arrays, dict(wanted)
    forms = {cell: _form(arrays, cell, leaves) for cell, leaves in (wanted | cells).items()}
    matched = list[int]()
    for cell in sorted(cells, key=lambda each: -len(cells[each])):
        if state.cells.bound[cell] != NO_CELL:
            continue
        alike = next((each for each in left if forms[each].shape == forms[cell].shape), None)
        if alike is not None:
            found.update(zip(forms[cell].leaves, forms[alike].leaves, strict=True))
        else:
            alike = next((each for each in left if _has_room(state, each, left[each], cell, cells[cell], found)), None)
        if alike is not None:
            del left[alike]
            matched += cells[cell]
    return matched


def _has_room(
    state: State, virtual: int, leaves: list[int], physical: int, here: list[int], found: dict[int, int]
) -> bool:
    """Match these leaves below an unbound virtual cell with more of them, as well as possible."""
    if len(leaves) <= len(here):
        return False
    try:
        _match_below(state, virtual, leaves, physical, here, found)
    except UserError:
        return False
    return True


def _form(arrays: TopologyArrays, cell: int, leaves: Sequence[int]) -> _Form:
    level = int(arrays.level[cell]) - 1
    if level == 0:
        return _Form((), (cell,))
    parts = _parted(leaves, [_ancestor(arrays, leaf, level) for leaf in leaves])
    forms = sorted((_form(arrays, child, own) for child, own in parts.items()), key=lambda each: repr(each.shape))
    shape = (int(arrays.chain_level[cell]), *(each.shape for each in forms))
    return _Form(shape, tuple(leaf for each in forms for leaf in each.leaves))


def _parted(leaves: Iterable[int], by: Iterable[int]) -> dict[int, list[int]]:
    found = dict[int, list[int]]()
    for leaf, cell in zip(leaves, by, strict=True):
        found.setdefault(cell, []).append(leaf)
    return found


def _ancestor(arrays: TopologyArrays, cell: int, level: int) -> int:
    """The cell of a level at or above one; NO_CELL if there is none."""
    while cell != NO_CELL and arrays.level[cell] < level:
        cell = int(arrays.parent[cell])
    return cell


def _is_below(arrays: TopologyArrays, cell: int, above: int) -> bool:
    return _ancestor(arrays, cell, int(arrays.level[above])) == above
