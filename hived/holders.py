"""Who has the leaves that a waiting request would need (rule 20.5)."""

import numpy as np

from hived.explanation import HoldingGroup
from hived.state import NO_GROUP, State
from hived.topology import NO_CELL, BoolArray, IntArray

MOST_HOLDERS = 8
"""So many groups are named."""


def holders_of(state: State, first: int, is_held: BoolArray) -> IntArray:
    """The number of the group that holds each of some leaves, from `first` on; NO_GROUP elsewhere.

    A leaf that is reserved counts for the group that reserves it, whoever still uses it.
    """
    here, cells = slice(first, first + len(is_held)), state.cells
    reserving = cells.reserving[here]
    held = np.where(reserving != NO_GROUP, reserving, cells.using[here])
    return np.where(is_held, held, np.int32(NO_GROUP))


def name_holders(state: State, first: int, held: IntArray) -> tuple[tuple[HoldingGroup, ...], int]:
    """The groups with most leaves, most first, then by number, and how many more there are.

    held : as of `holders_of`. Cost O(leaves x log leaves)
    """
    numbers, counts = np.unique(held[held != NO_GROUP], return_counts=True)
    named = numbers[np.lexsort((numbers, -counts))][:MOST_HOLDERS]
    found = []
    for number in named.tolist():
        group = state.group_by_number[number]
        own = group.physical[group.physical != NO_CELL]
        own = own[held[own - first] == number]
        found.append(HoldingGroup(group.name, group.priority, group.vc, group.virtual is None, tuple(own.tolist())))
    return tuple(found), len(numbers) - len(found)
