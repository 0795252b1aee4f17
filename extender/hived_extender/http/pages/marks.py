"""Marks on the picture of cells: the cells of some groups, each with the kind of its mark."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

import numpy as np

from hived.cells.state import State
from hived.cells.topology import NO_CELL

Mark = tuple[int, int, int, int]
"""Chain, first leaf cell and the end (not included), counted within the chain, and the kind."""


class Kind(IntEnum):
    """How a mark is drawn."""

    CHOSEN = 0
    LOST = 1
    HARMED = 2
    IN_THE_WAY = 3


def marks_of(state: State, groups: Mapping[str, Kind]) -> list[Mark]:
    """The cells of groups; groups that the state does not have are left out. Cost O(cells of these groups)."""
    return [mark for name, kind in groups.items() for mark in _marks(state, name, kind)]


def _marks(state: State, name: str, kind: Kind) -> Iterable[Mark]:
    group = state.groups.get(name)
    if group is None:
        return
    arrays = state.arrays
    held = np.unique(group.physical[group.physical != NO_CELL])
    chains = arrays.chain_of_level[arrays.chain_level[held]]
    for chain in np.unique(chains).tolist():
        leaves = held[chains == chain] - state.topology.forests[chain].bases[1]
        breaks = np.flatnonzero(np.diff(leaves) != 1) + 1
        for run in np.split(leaves, breaks):
            yield chain, int(run[0]), int(run[-1]) + 1, int(kind)
