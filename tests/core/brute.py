"""Every way in which a group could be placed, one after the other: slow, and complete in an obvious way.

For each pod every set of leaves of one node is tried: below a preassigned cell that is there, or below a new one of
each level that the VC has. Whether the VC may have them so is not worked out here. The pod is allocated as after a
restart; the core says whether it keeps its place in the VC, and whether VC safety still holds. Cells that somebody
reserves are left out.
"""

from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np

from hived.cells.journal import mark, start_recording, stop_recording, undo_changes
from hived.cells.state import NO_GROUP, CellState, Group, State
from hived.cells.topology import NO_CELL
from hived.cells.views import forget_order
from hived.life.allocation import release_group
from hived.life.groups import member_slots
from hived.life.preemption import preempt_lazily_for
from hived.scheduler import _allocate_first
from hived.values.events import Limit, Offer, PodAllocated, Spread, Together
from hived.values.specs import BindInfo, GroupSpec, MemberSpec, PodPlacement, PodRequest, PodSpec

Choice = tuple[tuple[int, ...], int]  # leaves of one pod, and the level of their preassigned cell


def has_place(state: State, pod: PodRequest, offer: Offer) -> bool:
    """Is there a place for the pod's group? Nothing of the state changes."""
    start_recording(state)
    try:
        return any(_places(state, pod, offer))
    finally:
        undo_changes(state, (0, 0))
        stop_recording(state)
        forget_order(state.arrays, state.cells)


def _places(state: State, pod: PodRequest, offer: Offer) -> Iterator[bool]:
    sizes = [member.leaf_cell_count for member in pod.spec.group.members for _ in range(member.pod_count)]
    lazy = [group for group in state.groups.values() if _may_leave_vc(pod, group)]
    before, users = mark(state), state.cells.using.copy()
    for count in range(len(lazy) + 1):
        for leaving in combinations(lazy, count):
            preempt_lazily_for(state, leaving, np.zeros(0, np.int32), np.zeros(0, np.int32), pod.spec.group.name)
            yield from _place_rest(state, pod, offer, sizes, [], users)
            undo_changes(state, before)


def _may_leave_vc(pod: PodRequest, group: Group) -> bool:
    is_below = group.spec.priority < pod.spec.priority
    return is_below and group.spec.lazy_preemption and group.virtual is not None


def _place_rest(
    state: State, pod: PodRequest, offer: Offer, sizes: list[int], placed: list[tuple[int, ...]], users: np.ndarray
) -> Iterator[bool]:
    slot = len(placed)
    if slot == len(sizes):
        yield is_allowed(state, placed, offer, users) and is_near(state, pod, placed)
        return
    for node in np.flatnonzero(offer.nodes[slot] | offer.after[slot]).tolist():
        for choice in _choices(state, pod, node, sizes[slot]):
            before = mark(state)
            if _take(state, pod, slot, choice):
                yield from _place_rest(state, pod, offer, sizes, [*placed, choice[0]], users)
            undo_changes(state, before)


def is_allowed(state: State, placed: list[tuple[int, ...]], offer: Offer, users: np.ndarray) -> bool:
    """Does the offer allow these leaves, and its rules in some order of the pods?"""
    nodes = [int(state.arrays.node[leaves[0]]) for leaves in placed]
    left = {int(state.arrays.node[leaf]) for leaves in placed for leaf in leaves if users[leaf] != NO_GROUP}
    for slot, node in enumerate(nodes):
        if not offer.nodes[slot, node] and not (offer.after[slot, node] and node in left):
            return False
    return any(_come(offer, nodes, order) for order in permutations(range(len(nodes))))


def is_near(state: State, pod: PodRequest, placed: list[tuple[int, ...]]) -> bool:
    """Are these leaves below one cell of the type that the pods have to be within?"""
    spec, leaves = pod.spec, [leaf for own in placed for leaf in own]
    if not spec.within_cell or not spec.within_is_required:
        return True
    level = state.topology.chain_of(leaves[0]).type_levels[spec.within_cell]
    return len({_above(state, leaf, level) for leaf in leaves}) == 1


def _come(offer: Offer, nodes: list[int], order: tuple[int, ...]) -> bool:
    """Do all rules hold while pods come in this order?"""
    for rule in offer.rules:
        room = rule.room.tolist() if isinstance(rule, Limit) else []
        present = rule.present.tolist() if isinstance(rule, Spread) else []
        first = None
        for slot in order:
            domain = int(rule.domain[nodes[slot]])
            match rule:
                case Limit() if rule.weight[slot] > 0:
                    if domain < 0 or room[domain] < rule.weight[slot]:
                        return False
                    room[domain] -= int(rule.weight[slot])
                case Spread() if rule.counts[slot]:
                    if domain < 0 or present[domain] + 1 - min(present) > rule.max_skew:
                        return False
                    present[domain] += 1
                case Together() if rule.slots[slot]:
                    if domain < 0 or domain != (domain if first is None else first):
                        return False
                    first = domain
    return True


def _choices(state: State, pod: PodRequest, node: int, size: int) -> Iterator[Choice]:
    arrays = state.arrays
    leaves = arrays.node_leaf[arrays.node_leaf_start[node] : arrays.node_leaf_start[node + 1]].tolist()
    usable = [leaf for leaf in leaves if _is_usable(state, pod, leaf)]
    for chosen in combinations(usable, size):
        if pod.spec.priority < 0:
            yield chosen, 0
            continue
        roots = {_root_level(state, leaf) for leaf in chosen}
        levels = range(1, int(arrays.level[arrays.root[chosen[0]]]) + 1) if roots == {0} else roots
        for level in levels:
            top = {_above(state, leaf, min(level, _node_level(state, leaf))) for leaf in chosen}
            if len(roots) == 1 and len(top) == 1:
                yield chosen, level


def _node_level(state: State, leaf: int) -> int:
    return state.topology.chain_of(leaf).node_level


def _is_usable(state: State, pod: PodRequest, leaf: int) -> bool:
    cells, priority = state.cells, int(state.cells.priority[leaf])
    if cells.bad[leaf] or cells.state[leaf] not in {CellState.FREE, CellState.USED}:
        return False
    if priority == -2:
        return True
    if priority >= pod.spec.priority:
        return False
    if priority == -1:
        return True
    user = state.group_by_number[int(cells.using[leaf])]
    return user.vc == state.vc_number(pod.spec.virtual_cluster) and not user.spec.lazy_preemption


def _above(state: State, leaf: int, level: int) -> int:
    while state.arrays.level[leaf] < level:
        leaf = int(state.arrays.parent[leaf])
    return leaf


def _root_level(state: State, leaf: int) -> int:
    """The level of the preassigned cell that a leaf is below, 0 if there is none."""
    cell = leaf
    while cell != NO_CELL and state.cells.bound[cell] == NO_CELL:
        cell = int(state.arrays.parent[cell])
    return 0 if cell == NO_CELL else int(state.arrays.level[state.arrays.root[state.cells.bound[cell]]])


def _take(state: State, pod: PodRequest, slot: int, choice: Choice) -> bool:
    """Allocate one pod by itself; does it get its place, and is the cluster safe?"""
    leaves, level = choice
    chosen = np.array(leaves, np.int32)
    release_group(state.arrays, state.cells, chosen[state.cells.using[chosen] != NO_GROUP])
    spec, arrays, topology = pod.spec, state.arrays, state.topology
    chain = topology.chain_of(leaves[0])
    kind = chain.types[level - 1] if level else ""
    node = topology.node_names[int(arrays.node[leaves[0]])]
    devices = tuple(int(arrays.device[leaf]) for leaf in leaves)
    info = BindInfo(node, devices, chain.name, ((PodPlacement(node, devices, (kind,) * len(devices)),),))
    alone = GroupSpec(f"{spec.group.name}/{slot}", (MemberSpec(1, len(devices)),))
    own = PodRequest(f"{pod.uid}/{slot}", "", "", _alone(spec, alone))
    applied = _allocate_first(state, PodAllocated(own, info))
    group = state.groups[alone.name]
    assert member_slots(group.members, len(devices)) == range(1)
    if applied.lazily_preempted or state.cells.strained.any():
        return False
    return spec.priority < 0 or (group.virtual is not None and NO_CELL not in group.virtual)


def _alone(spec: PodSpec, group: GroupSpec) -> PodSpec:
    size = group.members[0].leaf_cell_count
    return PodSpec(spec.virtual_cluster, spec.priority, size, group, pinned_cell_id=spec.pinned_cell_id)
