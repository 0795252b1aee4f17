"""Checks every rule that a state obeys after each event (rules 4.1 to 4.6).

Each `_check_*` yields its findings; the first broken rule is reported with its cell, level or group. Checks are numpy
over whole arrays; cost O(cells) each.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from hived.cells.safety import spare_of
from hived.cells.state import NO_GROUP, NO_TIME, CellState, GroupState, State
from hived.cells.topology import NO_CELL
from hived.life.losses import since_of, started_of
from hived.life.victims import collect_victims
from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, Rules

AnyArray = npt.NDArray[Any]
Finding = str | tuple[AnyArray, AnyArray, str]
"""A broken rule in words; or cells, which of them break a rule, and the rule."""


def broken_rule(state: State) -> str | None:
    """The first broken rule, or None if all hold."""
    for check in (
        _check_sums, _check_bindings, _check_free_lists, _check_counts, _check_leaves, _check_groups,
        _check_work, _check_bad_cells, _check_lost, _check_doomed, _check_scratch,
    ):  # fmt: skip
        for found in check(state):
            if isinstance(found, str):
                return found
            cells, is_broken, rule = found
            wrong = cells[is_broken.astype(np.bool_)]
            if len(wrong):
                return f"{rule}: {_names(state, wrong)}"
    return None


def _names(state: State, cells: AnyArray) -> str:
    return ", ".join(state.topology.address(int(cell)) for cell in cells[:3])


def _fold_children(state: State, values: AnyArray, combine: np.ufunc) -> tuple[AnyArray, AnyArray]:
    """(parents, combined value of their children) for all cells that have children."""
    arrays = state.arrays
    parents = np.flatnonzero(arrays.first_child != NO_CELL)
    children = np.flatnonzero(arrays.parent != NO_CELL)
    order = np.argsort(arrays.parent[children], kind="stable")
    grouped = values[children[order]]
    owners = arrays.parent[children[order]]
    starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1]))) if len(owners) else owners
    return parents, combine.reduceat(grouped, starts) if len(owners) else grouped


def _check_sums(state: State) -> Iterator[Finding]:
    cells, physical = state.cells, state.topology.physical_count
    parents, highest = _fold_children(state, cells.priority, np.maximum)
    yield parents, cells.priority[parents] != highest, "priority is not the maximum of its children's"
    parents, used = _fold_children(state, cells.used, np.add)
    yield parents, cells.used[parents] != used, "used count is not the sum of its children's"
    leaves = np.flatnonzero(state.arrays.level == 1)
    expected = (cells.priority[leaves] > FREE_PRIORITY).astype(np.int32)
    yield leaves, cells.used[leaves] != expected, "used count of a leaf does not follow its priority"
    padded = np.zeros(len(cells.priority), np.int32)
    padded[:physical] = cells.opportunistic_used
    parents, lent = _fold_children(state, padded, np.add)
    yield parents, padded[parents] != lent, "opportunistic count is not the sum of its children's"
    leaves = leaves[leaves < physical]
    expected = (cells.priority[leaves] == OPPORTUNISTIC_PRIORITY).astype(np.int32)
    yield leaves, padded[leaves] != expected, "opportunistic count of a leaf does not follow its priority"
    padded[:physical] = cells.elastic_lent
    parents, lent = _fold_children(state, padded, np.add)
    yield parents, padded[parents] != lent, "elastic count is not the sum of its children's"
    expected = cells.elastic[leaves] * (cells.priority[leaves] == OPPORTUNISTIC_PRIORITY)
    yield leaves, padded[leaves] != expected, "elastic count of a leaf does not follow its use"
    parents, bad = _fold_children(state, cells.bad, np.maximum)
    is_physical = parents < physical
    yield parents, is_physical & (cells.bad[parents] != bad), "is not bad exactly if a child is"


def _check_bindings(state: State) -> Iterator[Finding]:
    cells, arrays, count = state.cells, state.arrays, state.topology.physical_count
    bound = np.flatnonzero(cells.bound != NO_CELL)
    other = cells.bound[bound]
    yield bound, cells.bound[other] != bound, "binding is not mutual"
    yield bound, (bound < count) == (other < count), "is bound to a cell of its own kind"
    same_level = arrays.chain_level[bound] == arrays.chain_level[other]
    yield bound, ~same_level, "is bound to a cell of another chain or level"
    virtual = bound[bound >= count]
    inner = virtual[arrays.parent[virtual] != NO_CELL]
    parents_bound = cells.bound[arrays.parent[inner]] == arrays.parent[cells.bound[inner]]
    yield inner, ~parents_bound, "is bound but its parent is not bound to the parent"
    yield virtual, cells.bad[virtual] != cells.bad[cells.bound[virtual]], "does not show its health"
    free = np.flatnonzero((cells.bound == NO_CELL) & (np.arange(len(cells.bound)) >= count))
    yield free, (cells.bad[free] != 0) | (cells.state[free] != 0), "is unbound but not free and healthy"


def _check_free_lists(state: State) -> Iterator[Finding]:
    cells, arrays, count = state.cells, state.arrays, state.topology.physical_count
    listed = _listed(state, cells.free_list, cells.free_count)
    if not _are_places_noted(state, cells.free_list, cells.free_count, cells.free_position):
        yield "free lists and the places noted in cells disagree"
        return
    yield listed, cells.bound[listed] != NO_CELL, "is in a free list but bound"
    yield listed, cells.split[listed] != 0, "is in a free list but split"
    covered = np.zeros(count, np.int32)
    first = arrays.first_leaf[listed]
    for start, size in zip(first.tolist(), arrays.leaf_count[arrays.chain_level[listed]].tolist(), strict=True):
        covered[start : start + size] += 1
    owned = np.flatnonzero((arrays.vc[cells.bound[:count]] != NO_CELL) & (cells.bound[:count] != NO_CELL))
    roots = owned[arrays.parent[cells.bound[owned]] == NO_CELL]
    for start, size in zip(
        arrays.first_leaf[roots].tolist(), arrays.leaf_count[arrays.chain_level[roots]].tolist(), strict=True
    ):
        covered[start : start + size] += 1
    leaves = np.flatnonzero(arrays.level[:count] == 1)
    yield leaves, covered[leaves] != 1, "is not covered once by free lists and allocated cells"
    whole = cells.free_position != NO_CELL
    whole[roots] = True
    broken = cells.split[:count] != 1 - _spread_down(state, whole)
    yield np.arange(count), broken, "is not split exactly if it is neither free nor allocated as a whole"


def _listed(state: State, lists: AnyArray, counts: AnyArray) -> AnyArray:
    base = state.arrays.level_base
    parts = [lists[base[level] : base[level] + counts[level]] for level in range(len(counts)) if counts[level]]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _are_places_noted(state: State, lists: AnyArray, counts: AnyArray, position: AnyArray) -> bool:
    """True if position[c] is the place of c in the list of its level, and NO_CELL for cells in no list."""
    noted = np.full(len(position), NO_CELL, np.int32)
    for level in range(len(counts)):
        base = state.arrays.level_base[level]
        noted[lists[base : base + counts[level]]] = np.arange(counts[level])
    return int(counts.sum()) == np.count_nonzero(noted != NO_CELL) and bool((noted == position).all())


def _free_cells(state: State) -> AnyArray:
    """1 for every physical cell that is in a free list or below one that is."""
    return _spread_down(state, state.cells.free_position != NO_CELL)


def _spread_down(state: State, marked: AnyArray) -> AnyArray:
    """1 for every physical cell that is marked or below one that is."""
    arrays, count = state.arrays, state.topology.physical_count
    spread = marked.astype(np.int32)
    for number, chain in enumerate(state.topology.chains):
        for level in range(chain.top_level - 1, 0, -1):
            slot = int(arrays.level_offset[number]) + level
            here = slice(int(arrays.level_base[slot]), int(arrays.level_base[slot] + arrays.level_size[slot]))
            spread[here] |= spread[arrays.parent[here]]
    return np.asarray(spread[:count])


def _check_counts(state: State) -> Iterator[Finding]:
    cells, arrays, count = state.cells, state.arrays, state.topology.physical_count
    levels = len(arrays.child_count)
    free = _free_cells(state)
    left = np.bincount(arrays.chain_level[:count][free == 1], minlength=levels)
    wrong = np.flatnonzero(left != cells.left)
    for level in wrong.tolist():
        yield f"left is {cells.left[level]} at {_level_name(state, level)}, the free lists hold {left[level]}"
    bad = set(np.flatnonzero((free == 1) & (cells.bad[:count] == 1)).tolist())
    listed = set(_listed(state, cells.bad_list, cells.bad_count).tolist())
    if listed != bad:
        yield f"bad lists are not the bad free cells: {_names(state, np.array(sorted(bad ^ listed), np.int32))}"
    elif not _are_places_noted(state, cells.bad_list, cells.bad_count, cells.bad_position):
        yield "bad lists and the places noted in cells disagree"
    unbound = (cells.bound == NO_CELL) & (arrays.parent == NO_CELL) & (arrays.vc != NO_CELL) & (arrays.pinned == 0)
    slots = arrays.vc[unbound] * levels + arrays.chain_level[unbound]
    vc_claims = np.bincount(slots, minlength=len(cells.vc_claims))
    for slot in np.flatnonzero(vc_claims != cells.vc_claims).tolist():
        vc, level = divmod(slot, levels)
        yield f"VC {state.topology.vc_names[vc]} has {vc_claims[slot]} unbound cells at {_level_name(state, level)}"
    total = cells.vc_claims.reshape(-1, levels).sum(axis=0)
    for level in np.flatnonzero(total != cells.claims).tolist():
        yield f"claims is not the sum of vc_claims at {_level_name(state, level)}"
    for chain in np.flatnonzero(cells.strained == 0).tolist():
        spare = spare_of(state, chain)
        if (short := np.flatnonzero(spare < 0)).size:
            level = int(short[-1])
            yield f"VC safety: {-spare[level]} cells too few for the VCs' claims at {_level_name(state, level)}"


def _level_name(state: State, chain_level: int) -> str:
    chain = int(state.arrays.chain_of_level[chain_level])
    return f"chain {state.topology.chains[chain].name} level {chain_level - int(state.arrays.level_offset[chain])}"


def _check_leaves(state: State) -> Iterator[Finding]:
    cells, arrays, count = state.cells, state.arrays, state.topology.physical_count
    leaves = np.flatnonzero(arrays.level[:count] == 1)
    states, using, reserving = cells.state[leaves], cells.using[leaves], cells.reserving[leaves]
    wants_user = (states == CellState.USED) | (states == CellState.RESERVING)
    wants_reserver = (states == CellState.RESERVING) | (states == CellState.RESERVED)
    yield leaves, wants_user != (using != NO_GROUP), "state does not follow its using group"
    yield leaves, wants_reserver != (reserving != NO_GROUP), "state does not follow its reserving group"
    idle = states == CellState.FREE
    yield leaves, idle != (cells.priority[leaves] == FREE_PRIORITY), "is free in state or priority only"
    real = leaves[cells.priority[leaves] >= MIN_GUARANTEED_PRIORITY]
    unbound = cells.bound[real] == NO_CELL
    yield real, unbound, "is guaranteed but unbound"
    real = real[~unbound]
    yield real, cells.priority[real] != cells.priority[cells.bound[real]], "has another priority than its virtual cell"
    virtual = np.flatnonzero((arrays.level == 1) & (arrays.vc != NO_CELL) & (cells.priority > FREE_PRIORITY))
    yield virtual, cells.bound[virtual] == NO_CELL, "is a virtual cell in use that is bound to nothing"
    healthy = leaves[(cells.bad[leaves] == 0) & (cells.priority[leaves] < MIN_GUARANTEED_PRIORITY)]
    healthy = healthy[arrays.pinned[healthy] == 0]
    yield healthy, cells.bound[healthy] != NO_CELL, "is healthy and not in guaranteed use but bound"
    lent = cells.lent_to[leaves] != NO_CELL
    yield leaves, lent != (cells.priority[leaves] == OPPORTUNISTIC_PRIORITY), "is lent without opportunistic use"


def _check_groups(state: State) -> Iterator[Finding]:
    cells = state.cells
    claimed_using = np.full(len(cells.using), NO_GROUP, np.int32)
    claimed_reserving = np.full(len(cells.using), NO_GROUP, np.int32)
    elastic = np.zeros(len(cells.using), np.int32)
    for group in state.groups.values():
        if state.group_by_number.get(group.number) is not group:
            yield f"group {group.name} is not known by its number"
        held = group.physical[group.physical != NO_CELL]
        claimed = claimed_reserving if group.state is GroupState.PREEMPTING else claimed_using
        if (claimed[held] != NO_GROUP).any() or len(np.unique(held)) != len(held):
            yield f"group {group.name} claims leaf cells that another place claims"
        claimed[held] = group.number
        if group.state is not GroupState.PREEMPTING:
            elastic[held] = group.spec.elastic
        if group.state is GroupState.ALLOCATED and (cells.state[held] != CellState.USED).any():
            yield f"group {group.name} is allocated but a preemptor has cells of it"
        is_reserving = group.state is GroupState.PREEMPTING
        if is_reserving and not group.preempting_pods:
            yield f"group {group.name} preempts for no pod"
        if not is_reserving and not group.slots_of:
            yield f"group {group.name} holds cells for no pod"
        seated = {(pod.uid, slot) for slot, pod in enumerate(group.holders) if pod is not None}
        if seated != {(uid, slot) for uid, slots in group.slots_of.items() for slot in slots}:
            yield f"group {group.name} seats a pod in another slot than it says"
        lent = held[cells.lent_to[held] != NO_CELL]
        if (cells.lent_to[lent] != group.vc).any():
            yield f"group {group.name} uses leaf cells that are lent to another VC"
        if group.virtual is not None:
            pair = np.flatnonzero((group.virtual != NO_CELL) & (group.physical != NO_CELL))
            wanted = CellState.RESERVING if is_reserving else CellState.USED
            live = pair[cells.state[group.physical[pair]] == wanted]
            if (cells.bound[group.virtual[live]] != group.physical[live]).any():
                yield f"group {group.name} holds leaf cells that are not bound to its virtual ones"
    if state.lazy_group_count != sum(group.spec.lazy_preemption for group in state.groups.values()):
        yield "the count of groups that may be lazily preempted is wrong"
    if state.elastic_group_count != sum(group.spec.elastic for group in state.groups.values()):
        yield "the count of elastic groups is wrong"
    if (wrong := np.flatnonzero(elastic != cells.elastic)).size:
        yield f"leaf cells are not elastic exactly if their group is: {_names(state, wrong)}"
    for number, victims in state.victims.items():
        found = collect_victims(state, state.group_by_number[number].physical)
        if not found.groups <= victims.groups or list(victims.by_node.items()) != list(found.by_node.items()):
            yield f"group {state.group_by_number[number].name} knows other victims than it has"
    for group in state.groups.values():
        if None in group.holders[: group.first_free]:
            yield f"group {group.name} takes a free slot for a taken one"
    if len(state.group_by_number) != len(state.groups):
        yield "groups and group numbers disagree"
    yield from _claims(state, claimed_using, cells.using, "used")
    yield from _claims(state, claimed_reserving, cells.reserving, "reserved")


def _check_work(state: State) -> Iterator[Finding]:
    since = np.full(state.topology.physical_count, NO_TIME, np.int64)
    leaves = np.zeros(state.topology.physical_count, np.int64)
    for group in state.groups.values():
        if not group.times.keys() <= group.slots_of.keys():
            yield f"group {group.name} knows times of a pod that it does not seat"
        if (group.since_ms, group.started_ms) != (since_of(group), started_of(group)):
            yield f"group {group.name} does not count its work from when its pods say"
        if group.since_ms != NO_TIME:
            held = group.physical[group.physical != NO_CELL]
            since[held], leaves[held] = group.since_ms, len(held)
    work, every = state.work, np.arange(state.topology.physical_count)
    if work is not None:
        yield every, (work.leaf_count != leaves) | (work.since_ms != since), "counts other work than its group's"
    elif state.spec.rules is Rules.BETTER:
        yield every, leaves != 0, "counts no work, but its group has some"


def _claims(state: State, claimed: AnyArray, known: AnyArray, how: str) -> Iterator[str]:
    wrong = np.flatnonzero(claimed != known)
    if len(wrong):
        yield f"leaf cells are {how} by a group that does not know them, or the reverse: {_names(state, wrong)}"


def _check_bad_cells(state: State) -> Iterator[Finding]:
    cells, count = state.cells, state.topology.physical_count
    hidden = (
        (cells.bad[:count] == 1) & (_free_cells(state) == 0) & (cells.split == 0) & (cells.bound[:count] == NO_CELL)
    )
    yield np.arange(count), hidden, "is bad and allocated, but its VC does not see it"
    leaves = np.flatnonzero(state.arrays.level[:count] == 1)
    strange = cells.bad[leaves] != cells.node_bad[state.arrays.node[leaves]] | cells.lost[leaves]
    yield leaves, strange, "is bad, but neither lost nor of a bad node, or the reverse"


def _check_lost(state: State) -> Iterator[Finding]:
    cells, arrays, count = state.cells, state.arrays, state.topology.physical_count
    parents, lost = _fold_children(state, cells.lost, np.add)
    is_physical = parents < count
    wrong = is_physical & (cells.lost[parents] != lost)
    yield parents, wrong, "count of lost leaves is not the sum of its children's"
    virtual = np.arange(count, len(cells.lost))
    shown = np.where(cells.bound[virtual] == NO_CELL, 0, cells.lost[cells.bound[virtual]])
    yield virtual, cells.lost[virtual] != shown, "does not show how many of its leaves are lost"
    leaves = np.flatnonzero(arrays.level[:count] == 1)
    chains = arrays.chain_of_level[arrays.chain_level[leaves]]
    if (np.bincount(chains, cells.lost[leaves], len(cells.lost_total)) != cells.lost_total).any():
        yield "lost totals are not the numbers of lost leaves of the chains"


def _check_doomed(state: State) -> Iterator[Finding]:
    cells, arrays = state.cells, state.arrays
    levels = len(arrays.child_count)
    seen: list[int] = []
    for slot in np.flatnonzero(cells.doomed_count).tolist():
        base = int(arrays.root_base[slot])
        doomed = cells.doomed_list[base : base + int(cells.doomed_count[slot])]
        seen.extend(doomed.tolist())
        if (cells.doomed_position[doomed] != np.arange(len(doomed))).any():
            yield "doomed lists and the places noted in cells disagree"
        yield doomed, cells.bad[doomed] == 0, "is doomed but healthy"
        roots = cells.bound[doomed]
        wrong = (roots == NO_CELL) | (arrays.vc[roots] != slot // levels) | (arrays.parent[roots] != NO_CELL)
        yield doomed, wrong, "is doomed but not bound to a preassigned cell of its VC"
    if sorted(seen) != np.flatnonzero(cells.doomed_position != NO_CELL).tolist():
        yield "doomed lists and the places noted in cells disagree"
    totals = cells.doomed_count.reshape(-1, levels).sum(axis=0)
    if (totals != cells.doomed_total).any():
        yield "doomed totals are not the sums of the VCs' counts"


def _check_scratch(state: State) -> Iterator[Finding]:
    cells = state.cells
    plans = (cells.planned, cells.planned_below, cells.planned_total, cells.intended + 1)
    if cells.mark.any() or any(array.any() for array in plans):
        yield "marks of a placement being made were left behind"
    if cells.journal_control.any():
        yield "the journal still records"
    if sorted(cells.view_order.tolist()) != sorted(state.arrays.view_cell.tolist()):
        yield "a view lost or doubled a cell"
