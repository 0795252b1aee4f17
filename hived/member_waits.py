"""Why a pod waits whose group has its cells, or reserves them (rules 5.4, 12.9, 12.10, 20.8)."""

import numpy as np

from hived.cell_counts import cells_needed, level_for
from hived.events import Offer
from hived.explanation import Cause, Explanation
from hived.holders import holders_of, name_holders
from hived.offers import slot_sizes
from hived.state import NO_GROUP, Group, State
from hived.topology import NO_CELL, BoolArray, IntArray


def explain_member(state: State, group: Group, offer: Offer | None, largest_ever: int) -> Explanation:
    """The cells of the group: those that others have reserved, and those on nodes that are not offered.

    Counted are cells of the group alone. Nodes count as refused only for pods that are not there yet. Cost O(leaves of
    the chain) in sweeps of arrays.
    """
    arrays, members = state.arrays, group.members
    physical = group.physical[group.physical != NO_CELL]
    chain = state.topology.chain_of(int(physical[0])) if len(physical) else state.topology.chains[0]
    level = level_for(chain, members[-1].leaf_cell_count)
    offset, span = int(arrays.level_offset[state.topology.chain_index[chain.name]]), chain.leaf_count(level)
    first, count = int(arrays.level_base[offset + 1]), int(arrays.level_size[offset + 1])
    own = np.zeros(count, np.bool_)
    own[physical - first] = True
    held = holders_of(state, first, own)
    held[held == group.number] = NO_GROUP
    is_taken = held[physical - first] != NO_GROUP
    is_refused = _refused(state, group, offer)[group.physical != NO_CELL] & ~is_taken
    cells, in_use = _cells(physical - first, span), _cells((physical - first)[is_taken], span)
    refused = np.setdiff1d(_cells((physical - first)[is_refused], span), in_use)
    holders, more = name_holders(state, first, held)
    return Explanation(
        causes=(Cause.IN_USE,) if len(in_use) and not len(refused) else (Cause.KUBERNETES,), chain=chain.name,
        level=chain.types[level - 1], leaf_type=chain.types[0], asked=cells_needed(members, span), total=len(cells),
        free=len(cells) - len(in_use) - len(refused), in_use=len(in_use), in_pieces=0, bad=0, refused=len(refused),
        free_leaves=int((~is_taken & ~is_refused).sum()), largest_fit=0, largest_ever=largest_ever, holders=holders,
        more_holders=more, bad_nodes=(),
    )  # fmt: skip


def _cells(leaves: IntArray, span: int) -> IntArray:
    """The cells that these leaves are below, each once."""
    return np.unique(leaves // span)


def _refused(state: State, group: Group, offer: Offer | None) -> BoolArray:
    """Which leaves of a group are on nodes that are not offered to their pod, which is not there yet?"""
    slots = np.repeat(np.arange(len(group.holders)), slot_sizes(group.members))
    if offer is None:
        return np.zeros(len(slots), np.bool_)
    is_open = np.array([holder is None for holder in group.holders], np.bool_)
    nodes = np.where(group.physical == NO_CELL, 0, state.arrays.node[group.physical])
    return np.asarray(is_open[slots] & ~offer.nodes[slots, nodes])
