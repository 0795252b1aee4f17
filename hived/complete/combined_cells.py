"""Pods over several cells of their VC that are on one node, for a VC that `combines` (rules 19.4, 19.5).

The pod is asked for as pods of one leaf each that have to be together on a node. So the search for the places that
an offer allows finds them, and each leaf is within the promises by itself: it is below a cell that the VC has, or
below one that it can take.
"""

from dataclasses import replace

import numpy as np

from hived.cells.state import State
from hived.cells.topology import NO_CELL, IntArray, TopologyArrays
from hived.hived_rules.packing import Request
from hived.hived_rules.placement import Placement
from hived.kernels.jit import entry_kernel
from hived.values.events import Limit, Offer, Spread, Together
from hived.values.specs import GroupSpec, MemberSpec, sizes_of

MOST_LEAVES = 256
"""Groups with more leaves are not searched for in this way: each leaf is a pod to the search."""


def can_combine(state: State, request: Request, view: int) -> bool:
    """True if a pod of a group may find more room over several cells of a view.

    The VC must have some below node level.
    """
    if not request.is_guaranteed or request.sizes[-1] == 1 or request.wanted > MOST_LEAVES:
        return False
    return has_cells_below_nodes(state.arrays, view)


@entry_kernel
def has_cells_below_nodes(t: TopologyArrays, view: int) -> bool:
    """True if a view is of a VC with several preassigned cells below node level."""
    first = t.view_cell[t.view_start[view]]
    if t.vc[first] == NO_CELL or t.pinned[t.root[first]] == 1:
        return False
    chain, count = t.chain_of_level[t.chain_level[first]], 0
    for level in range(1, t.node_level[chain]):
        count += t.root_count[t.vc[first] * len(t.child_count) + t.level_offset[chain] + level]
    return bool(count > 1)


def leaf_by_leaf(state: State, request: Request, offer: Offer) -> tuple[Request, Offer]:
    """The same group as pods of one leaf, each pod together on a node, and the offer for these."""
    members = request.pod.spec.group.members
    sizes = np.array(sizes_of(members))
    slot_of = np.repeat(np.arange(len(sizes)), sizes)
    is_first = np.append(True, slot_of[1:] != slot_of[:-1])
    by_node = np.arange(offer.nodes.shape[1], dtype=np.int32)
    rules: list[Limit | Spread | Together] = [
        Together(by_node, slot_of == slot) for slot, size in enumerate(sizes.tolist()) if size > 1
    ]
    for rule in offer.rules:
        match rule:
            case Limit():
                rules.append(Limit(rule.domain, np.where(is_first, rule.weight[slot_of], 0), rule.room))
            case Spread():
                rules.append(Spread(rule.domain, rule.counts[slot_of] & is_first, rule.present, rule.max_skew))
            case Together():
                rules.append(Together(rule.domain, rule.slots[slot_of]))
    group = GroupSpec(request.pod.spec.group.name, (MemberSpec(request.wanted, 1),))
    pod = replace(request.pod, spec=replace(request.pod.spec, leaf_cell_count=1, group=group))
    single = request._replace(pod=pod, sizes=np.ones(1, np.int32), counts=np.full(1, request.wanted, np.int64))
    return single, Offer(offer.nodes[slot_of], offer.after[slot_of], tuple(rules))


def by_pod(state: State, request: Request, found: Placement) -> Placement:
    """A placement of `leaf_by_leaf` with the leaves of each node dealt out anew, so that pods have near ones.

    Pods of one node get its leaves in the order of the tree, larger pods first.
    """
    assert found.virtual is not None
    sizes = sizes_of(request.pod.spec.group.members)
    starts = np.cumsum([0, *sizes])
    node = state.arrays.node[found.physical]
    physical, virtual = found.physical.copy(), found.virtual.copy()
    slots: dict[int, list[int]] = {}
    for slot in range(len(sizes)):
        slots.setdefault(int(node[starts[slot]]), []).append(slot)
    for own in slots.values():
        own.sort(key=lambda slot: (-sizes[slot], slot))
        places: IntArray = np.concatenate([np.arange(starts[slot], starts[slot + 1]) for slot in own])
        order = places[np.argsort(found.physical[places], kind="stable")]
        physical[places], virtual[places] = found.physical[order], found.virtual[order]
    assert NO_CELL not in virtual
    return replace(found, physical=physical, virtual=virtual)
