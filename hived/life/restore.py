"""Creates groups from bind infos: allocated groups, live and after a restart (rules 11, 11.1), and reservations (8.11).

A bind info names physical leaves and the type of each leaf's preassigned cell (`bind_info.named_leaves`); the virtual
cells behind them are chosen here (rule 11.7).

A running group that no longer fits the configuration never fails: a leaf that is gone or taken is left out, and a
group that has lost its place in the VC is lazily preempted and keeps running. A reservation is stricter, as its pods
can be placed anew: if the leaves cannot be reserved as a search would have done it, it is refused and nothing changes.
Groups that use its leaves are its victims.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from hived.cells.binding import plan_everything
from hived.cells.free_lists import is_free
from hived.cells.safety import is_damaged, is_safe, keeps_safety, note_strain, spare_cells, spare_of
from hived.cells.state import NO_GROUP, Cells, CellState, Group, GroupState, State
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.cells.tree import ancestor_at, overlap
from hived.kernels.jit import entry_kernel, kernel
from hived.life.allocation import allocate_leaf, set_state, use_leaf
from hived.life.bind_info import NamedLeaves, canonical_order, check_sizes, find_leaves
from hived.life.checks import check_agreement, check_request
from hived.life.doomed import worst_idle_doomed
from hived.life.groups import add_group, check_members
from hived.life.health import bind_doomed_in_chain, catch_up_after_plan
from hived.life.preassigned import release_doomed, release_idle_doomed
from hived.life.preemption import cancel_preemption, find_preemptors, preempt_lazily, start_preemption
from hived.life.victims import are_claimed
from hived.life.virtual_leaves import choose_virtual, choose_virtual_leaf
from hived.values.errors import UserError
from hived.values.specs import (
    FREE_PRIORITY,
    MIN_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    BindInfo,
    PodRequest,
    PodSpec,
    Rules,
)

_USED = int(CellState.USED)
# places of `progress`
_NEXT, _IS_LAZY, _CHOSEN, _RELEASED_IN = range(4)


def restore_group(state: State, pod: PodRequest, leaves: NamedLeaves) -> tuple[Group, list[str], list[str]]:
    """Create the allocated group that has these leaves, without leaves that other groups use.

    Returns the group, the names of lazily preempted groups, and of preemptors that were cancelled (rule 11.4). Cost
    O(leaves x height).
    """
    physical, cancelled = leaves.physical, []
    is_whole = leaves.slot is not None
    if are_claimed(state.cells, physical):
        cancelled, is_whole = find_preemptors(state, physical), False
        for preemptor in cancelled:
            cancel_preemption(state, preemptor)
        found = np.flatnonzero(physical != NO_CELL)
        physical[found[state.cells.using[physical[found]] != NO_GROUP]] = NO_CELL
    # a guaranteed group that lacks a preassigned type had been lazily preempted when this pod was bound (rule 11.13)
    is_guaranteed = pod.spec.priority >= MIN_GUARANTEED_PRIORITY and leaves.has_types
    virtual = np.empty(len(physical), np.int32)
    virtual.fill(NO_CELL)
    group = add_group(state, pod.spec, GroupState.ALLOCATED, physical, virtual if is_guaranteed else None, leaves.known)
    preempted = _allocate(state, group, virtual, leaves)
    if group.virtual is not None and (is_whole or NO_CELL not in virtual):
        group.placements, group.is_placed_in_vc = leaves.known.members, True
    return group, preempted, [preemptor.name for preemptor in cancelled]


def _allocate(state: State, group: Group, virtual: IntArray, leaves: NamedLeaves) -> list[str]:
    """Allocate every leaf of a new group; returns the names of groups that were lazily preempted."""
    cells, arrays, topology, levels = state.cells, state.arrays, state.topology, leaves.levels
    pinned_root = NO_CELL
    if group.spec.pinned_cell_id:
        pinned_root = topology.pinned_roots.get((group.vc, group.spec.pinned_cell_id), NO_CELL)
    if (group.spec.pinned_cell_id and pinned_root == NO_CELL) or group.vc >= len(topology.vc_names):
        levels = np.zeros_like(levels)
    progress = np.zeros(_RELEASED_IN + len(arrays.top_level), np.int32)
    progress[_CHOSEN] = NO_CELL
    priority = group.priority if group.virtual is not None else OPPORTUNISTIC_PRIORITY
    preempted: list[str] = []
    makes_room = group.virtual is not None and state.spec.rules is Rules.BETTER and _makes_room(state, group, levels)
    if leaves.virtual is not None:
        _clear_of_doomed(state, group.physical, leaves.virtual, progress)
    for part, chosen in _parts(leaves):
        progress[_NEXT], progress[_CHOSEN] = 0, chosen
        while True:
            root = restore_leaves(
                arrays, cells, group.physical, virtual, levels, part, group.vc, priority, pinned_root,
                group.number, int(group.spec.elastic), progress,
            )  # fmt: skip
            if root == NO_CELL:
                break
            preempted.extend(_preempt_below(state, root, group.name))
    done = progress.tolist()
    if makes_room:
        plan_everything(cells, -1)
    if group.virtual is not None and done[_IS_LAZY]:
        preempt_lazily(state, [group], group.name)
        preempted.append(group.name)
    if makes_room:
        catch_up_after_plan(arrays, cells)
    for chain, is_released in enumerate(done[_RELEASED_IN:]):
        if is_released:
            bind_doomed_in_chain(arrays, cells, chain)
    return preempted


def restore_chosen(state: State, group: Group, virtual: IntArray) -> bool:
    """Allocate all leaves of a group behind these virtual ones; False if one is refused or VC safety breaks.

    What could not be is opportunistic then. Cost O(leaves x height).
    """
    arrays, cells = state.arrays, state.cells
    progress = np.zeros(_RELEASED_IN + len(arrays.top_level), np.int32)
    levels, found = arrays.level[arrays.root[virtual]], np.empty_like(virtual)
    for place, chosen in enumerate(virtual.tolist()):
        progress[_NEXT], progress[_CHOSEN] = 0, chosen
        restore_leaves(
            arrays, cells, group.physical, found, levels, np.array([place], np.int32), group.vc, group.priority,
            NO_CELL, group.number, int(group.spec.elastic), progress,
        )  # fmt: skip
    return not progress[_IS_LAZY]


def _parts(leaves: NamedLeaves) -> Iterator[tuple[IntArray, int]]:
    """Split the leaves into runs that are allocated together, each with its first virtual leaf, or NO_CELL.

    Leaves that are to have certain virtual leaves are allocated one by one (rule 18.11).
    """
    if leaves.virtual is None:
        yield leaves.order, NO_CELL
        return
    for place, chosen in enumerate(leaves.virtual.tolist()):
        yield leaves.order[place : place + 1], chosen


def _clear_of_doomed(state: State, physical: IntArray, virtual: IntArray, progress: IntArray) -> None:
    """Release idle doomed cells where another virtual cell than these is bound to their hardware (rule 18.6)."""
    cells, arrays = state.cells, state.arrays
    if not cells.doomed_total.any():
        return
    levels = arrays.level[arrays.root[virtual]]
    roots = physical.copy()
    while (is_below := arrays.level[roots] < levels).any():
        roots[is_below] = arrays.parent[roots[is_below]]
    bound = cells.bound[roots]
    if (bound != arrays.root[virtual]).any():
        chain = int(arrays.chain_of_level[arrays.chain_level[virtual[0]]])
        if release_idle_doomed(arrays, cells, chain):
            progress[_RELEASED_IN + chain] = 1


def _makes_room(state: State, group: Group, levels: IntArray) -> bool:
    """Doom nothing until a group has all preassigned cells that it needs (rule 19.3). Returns True if the caller has to
    end that.

    The reference takes one leaf after the other. A later cell could then be doomed, or be missing when an earlier leaf
    asks for VC safety. Idle doomed cells are released if they keep the group from its cells.
    """
    arrays, cells = state.arrays, state.cells
    if group.vc >= len(state.topology.vc_names) or not (cells.doomed_total.any() or cells.bad_count.any()):
        return False
    needed, is_in_the_way = preassigned_cells_needed(arrays, cells, group.physical, levels, group.vc)
    if is_in_the_way:
        held = group.physical[(group.physical != NO_CELL) & (levels > 0)]
        for chain in np.unique(arrays.chain_of_level[arrays.chain_level[held]]).tolist():
            release_idle_doomed(arrays, cells, chain)
    elif needed < 2:
        return False
    plan_everything(cells, 1)
    return True


@entry_kernel
def preassigned_cells_needed(
    t: TopologyArrays, s: Cells, physical: IntArray, levels: IntArray, vc: int
) -> tuple[int, int]:  # fmt: skip
    """Count the preassigned cells of a group that are not bound yet; and 1 if doomed cells are in the way.

    They are in the way if they overlap a cell of it, or if the VC has too few left beside them. They are too if VC
    safety would break beside them.

    physical, levels : as in `restore_leaves`. Cost O(leaves x height).
    """
    needed = np.zeros(len(t.child_count), np.int32)
    cells = np.empty(len(physical), np.int32)
    found, count = False, 0
    for i in range(len(physical)):
        if physical[i] == NO_CELL or levels[i] == 0:
            continue
        cell = ancestor_at(t, physical[i], levels[i])
        is_own = s.bound[cell] != NO_CELL and t.vc[s.bound[cell]] == vc and t.parent[s.bound[cell]] == NO_CELL
        if is_own or s.mark[cell] == 1:
            continue
        s.mark[cell] = 1
        cells[count] = cell
        count += 1
        needed[t.chain_level[cell]] += 1
        found = found or _meets_doomed(t, s, cell)
    for i in range(count):
        s.mark[cells[i]] = 0
    for level in range(len(needed)):
        slot = vc * len(t.child_count) + level
        found = found or (s.doomed_count[slot] > 0 and needed[level] > s.vc_claims[slot])
    if count > 0 and not found:
        doomed_count = 0
        chain = t.chain_of_level[t.chain_level[cells[0]]]
        for level in range(t.level_offset[chain] + 1, t.level_offset[chain] + t.top_level[chain] + 1):
            doomed_count += s.doomed_total[level]
        if doomed_count > 0:
            found = not is_safe(t, s, chain) or not keeps_safety(t, s, cells[:count], spare_cells(t, s, chain))
    return count, int(found)


def _preempt_below(state: State, root: int, preemptor: str) -> list[str]:
    """Lazily preempt every group that uses a leaf below a preassigned cell."""
    cells, arrays = state.cells, state.arrays
    first, count = arrays.first_leaf[root], arrays.leaf_count[arrays.chain_level[root]]
    physical = cells.bound[first : first + count]
    physical = physical[physical != NO_CELL]
    numbers = dict.fromkeys(cells.using[physical[cells.state[physical] == _USED]].tolist())
    return preempt_lazily(state, [state.group_by_number[number] for number in numbers], preemptor)


@entry_kernel
def restore_leaves(
    t: TopologyArrays, s: Cells, physical: IntArray, virtual: IntArray, levels: IntArray, order: IntArray,
    vc: int, priority: int, pinned_root: int, group: int, elastic: int, progress: IntArray,
) -> int:  # fmt: skip
    """Allocate the leaves of a group in `order`, choosing a virtual leaf for each (rules 11.5 to 11.9).

    physical, levels : leaf, and level of its preassigned type or 0, shape (leaves,)

    virtual : out; the virtual leaf, or NO_CELL for opportunistic use

    progress : next place in `order`; is the group lazily preempted; virtual leaf chosen before a stop; then for each
    chain whether doomed cells were released in it

    Stops and returns a preassigned cell when the groups in it must be lazily preempted first; call again then. Returns
    NO_CELL at the end.
    """
    while progress[_NEXT] < len(order):
        i = order[progress[_NEXT]]
        leaf = physical[i]
        chosen = NO_CELL
        if leaf != NO_CELL and priority >= MIN_GUARANTEED_PRIORITY:
            chosen = progress[_CHOSEN]
            if chosen == NO_CELL:
                chosen = _choose_for_leaf(t, s, leaf, levels[i], vc, priority, pinned_root, progress)
                if chosen != NO_CELL and s.priority[t.root[chosen]] > FREE_PRIORITY and is_free(t, s, leaf):
                    progress[_CHOSEN] = chosen
                    return t.root[chosen]
            progress[_CHOSEN] = NO_CELL
            if chosen == NO_CELL or not _is_consistent(t, s, leaf, chosen):
                chosen = NO_CELL
                progress[_IS_LAZY] = 1
        if leaf != NO_CELL:
            virtual[i] = chosen
            if not allocate_leaf(t, s, leaf, chosen, priority, vc):
                progress[_IS_LAZY] = 1
            note_strain(t, s, t.chain_of_level[t.chain_level[leaf]])
            use_leaf(t, s, leaf, group, elastic)
            set_state(t, s, leaf, _USED)
        progress[_NEXT] += 1
    return NO_CELL


@kernel
def _choose_for_leaf(
    t: TopologyArrays, s: Cells, leaf: int, level: int, vc: int, priority: int, pinned_root: int, progress: IntArray
) -> int:
    """Release doomed cells in the way of a leaf's preassigned cell, then choose its virtual leaf, NO_CELL if none."""
    if level == 0:
        return NO_CELL
    chain_level = t.chain_level[leaf] - 1 + level
    slot = vc * len(t.child_count) + chain_level
    if pinned_root != NO_CELL:
        if t.chain_level[pinned_root] != chain_level:
            return NO_CELL
    elif t.root_count[slot] == 0:
        return NO_CELL
    preassigned = ancestor_at(t, leaf, level)
    if _release_doomed(t, s, preassigned, vc, slot):
        progress[_RELEASED_IN + t.chain_of_level[chain_level]] = 1
    if progress[_IS_LAZY] == 1:
        return NO_CELL
    return choose_virtual_leaf(t, s, leaf, level, vc, priority, pinned_root)


@kernel
def _is_consistent(t: TopologyArrays, s: Cells, physical: int, virtual: int) -> bool:
    """True if this pair of leaves is bound or can be bound, all the way up to the preassigned cell."""
    if s.priority[virtual] != FREE_PRIORITY:
        return False
    while True:
        if s.bound[physical] != virtual and (s.bound[physical] != NO_CELL or s.bound[virtual] != NO_CELL):
            return False
        if t.parent[virtual] == NO_CELL:
            return s.bound[physical] != NO_CELL or is_free(t, s, physical)
        physical, virtual = t.parent[physical], t.parent[virtual]


@kernel
def _meets_doomed(t: TopologyArrays, s: Cells, cell: int) -> bool:
    """True if a physical cell, one above it or one below it is doomed. Cost O(height + split cells below it)."""
    chain = t.chain_of_level[t.chain_level[cell]]
    count = 0
    for level in range(t.level_offset[chain] + 1, t.level_offset[chain] + t.top_level[chain] + 1):
        count += s.doomed_total[level]
    if count == 0:
        return False
    above = cell
    while above != NO_CELL:
        if s.doomed_position[above] != NO_CELL:
            return True
        above = t.parent[above]
    # preassigned cells stand below split cells alone, and in a tree each level has its cells in a row
    below, end = cell, cell + 1
    while s.split[cell] == 1 and t.level[below] > 1:
        last = t.first_child[end - 1] + t.child_count[t.chain_level[below]]
        below, end = t.first_child[below], last
        for each in range(below, end):
            if s.doomed_position[each] != NO_CELL:
                return True
    return False


@kernel
def _release_doomed(t: TopologyArrays, s: Cells, preassigned: int, vc: int, own_slot: int) -> bool:
    """Release idle doomed cells that overlap a physical cell, and one of the VC's own if it has no room (rule 11.6).

    Cost O(levels) if nothing is doomed in the chain; looks at every VC only if doomed cells are in the way.
    """
    released = False
    levels = len(t.child_count)
    chain = t.chain_of_level[t.chain_level[preassigned]]
    for owner in range(len(s.doomed_count) // levels if _meets_doomed(t, s, preassigned) else 0):
        for level in range(t.level_offset[chain] + t.top_level[chain], t.level_offset[chain], -1):
            slot = owner * levels + level
            if s.doomed_count[slot] == 0:
                continue
            base = t.root_base[slot]
            for cell in s.doomed_list[base : base + s.doomed_count[slot]].copy():
                is_own = cell == preassigned and owner == vc
                is_idle = s.doomed_position[cell] != NO_CELL and s.priority[cell] < MIN_GUARANTEED_PRIORITY
                if is_idle and not is_own and overlap(t, cell, preassigned):
                    release_doomed(t, s, slot, cell)
                    released = True
    if s.bound[preassigned] != NO_CELL or s.doomed_count[own_slot] == 0:
        return released
    if s.vc_claims[own_slot] > 0:
        return released
    cell = worst_idle_doomed(t, s, own_slot)
    if cell != NO_CELL:
        release_doomed(t, s, own_slot, cell)
        released = True
    return released


def restore_reservation(
    state: State, pods: Sequence[PodRequest], bind_info: BindInfo, *, may_be_free: bool = False
) -> None:
    """Create the preempting group that waits for the cells of `bind_info`, with these pods in this order (rule 8.11).

    Must run while the journal records; a UserError may come halfway, and the caller undoes. Cost O(leaves x height).
    """
    spec = _check_pods(state, pods)
    check_sizes(pods[0], bind_info)
    known, _ = canonical_order(bind_info)
    physical, levels = find_leaves(state, known)
    _check_leaves(state, spec, physical)
    _check_users(state, spec, physical, may_be_free)
    try:
        virtual = choose_virtual(state, spec, physical, levels)
    except UserError as error:
        raise _refused(spec, error.message) from None
    chain = int(state.arrays.chain_of_level[state.arrays.chain_level[physical[0]]])
    before = spare_of(state, chain)
    start_preemption(state, pods[0], physical, virtual)
    if is_damaged(before, spare_of(state, chain)):
        raise _refused(spec, f"other VCs are promised the cells that are left of chain {_name(state, chain)}")
    group = state.groups[spec.group.name]
    for pod in pods:
        check_agreement(pod, group)
        group.preempting_pods[pod.uid] = pod


def _check_pods(state: State, pods: Sequence[PodRequest]) -> PodSpec:
    """The spec of the first pod; UserError unless all are of one new group, and of one that preempts."""
    if not pods:
        raise UserError("no pod is named for which cells are to be reserved")
    spec = pods[0].spec
    for pod in pods:
        check_members(pod.spec)
        if pod.spec.group.name != spec.group.name:
            raise _refused(spec, f"{pod.label} is of affinity group {pod.spec.group.name}")
    if spec.group.name in state.groups:
        raise _refused(spec, "there is a group of that name already")
    check_request(state, pods[0])
    if spec.priority < MIN_GUARANTEED_PRIORITY:
        raise _refused(spec, "opportunistic pods wait for nobody to leave")
    return spec


def _refused(spec: PodSpec, reason: str) -> UserError:
    return UserError(f"affinity group {spec.group.name} cannot have its reservation again: {reason}")


def _name(state: State, chain: int) -> str:
    return state.topology.chains[chain].name


def _check_leaves(state: State, spec: PodSpec, physical: IntArray) -> None:
    """Raise UserError unless every leaf is there and healthy, and a search could choose them together."""
    arrays, topology = state.arrays, state.topology
    if NO_CELL in physical:
        raise _refused(spec, "a leaf cell of it is not configured any more, or named twice")
    bad = physical[state.cells.bad[physical] == 1]
    if len(bad):
        raise _refused(spec, f"leaf cell {topology.address(int(bad[0]))} is bad")
    chains = np.unique(arrays.chain_of_level[arrays.chain_level[physical]])
    chain = topology.chains[chains[0]]
    if len(chains) > 1:
        raise _refused(spec, f"its leaf cells are in chains {', '.join(_name(state, int(each)) for each in chains)}")
    if spec.leaf_cell_type not in {"", chain.types[0]}:
        raise _refused(spec, f"its leaf cells are of type {chain.types[0]}, not {spec.leaf_cell_type}")
    if spec.within_cell and spec.within_is_required:
        level, cells = chain.type_levels.get(spec.within_cell, 0), physical.copy()
        while (lower := arrays.level[cells] < level).any():
            cells[lower] = arrays.parent[cells[lower]]
        if level == 0 or len(np.unique(cells)) > 1:
            raise _refused(spec, f"its leaf cells are not below one {spec.within_cell}")


def _check_users(state: State, spec: PodSpec, physical: IntArray, may_be_free: bool) -> None:
    """Raise UserError unless groups that may be preempted use the leaves, and no group reserves them.

    With `may_be_free` it is enough that no other group uses them.
    """
    cells, address = state.cells, state.topology.address
    reserved = physical[cells.reserving[physical] != NO_GROUP]
    if len(reserved):
        other = state.group_by_number[int(cells.reserving[reserved[0]])].name
        raise _refused(spec, f"leaf cell {address(int(reserved[0]))} is reserved by affinity group {other}")
    used = physical[cells.using[physical] != NO_GROUP]
    if not len(used) and not may_be_free:
        raise _refused(spec, "nobody uses its cells, so there is nothing to wait for")
    stronger = used[cells.priority[used] >= spec.priority]
    if len(stronger):
        user = state.group_by_number[int(cells.using[stronger[0]])].name
        priority = int(cells.priority[stronger[0]])
        where = address(int(stronger[0]))
        raise _refused(spec, f"leaf cell {where} is used by affinity group {user} at priority {priority}")
