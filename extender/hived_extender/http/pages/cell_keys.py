"""What each leaf cell looks like, as one number, and what a larger cell looks like, as the count of each number below.

A key has the virtual cluster in its low bits, number + 1 or 0 for nobody, then the use, then one bit for bad cells:

    key == vc + 1 | use << USE_SHIFT | bad << BAD_SHIFT

Keys ascend in the order in which a page draws them: what is used, reserved, lent, free, then whatever is bad.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from hived.cells.state import CellState
from hived.cells.topology import NO_CELL
from hived.life.status import CellStatus

USE_SHIFT, BAD_SHIFT = 10, 12
MOST_VCS = (1 << USE_SHIFT) - 1
"""Virtual clusters with a number of their own; all others look like the last of them."""

Keys = npt.NDArray[np.uint16]


class Use(IntEnum):
    """The use of a leaf cell."""

    USED = 0
    RESERVED = 1
    LENT = 2
    FREE = 3


@dataclass(frozen=True, slots=True)
class Runs:
    """The looks of some cells of one level: cell i has `lengths[i]` runs, each with a key and a count of leaf cells.

    `sum(lengths) == len(keys) == len(counts)`; counts of one cell sum to its leaves, keys of one cell ascend.
    """

    lengths: npt.NDArray[np.uint16]
    keys: Keys
    counts: npt.NDArray[np.uint32]


def leaf_keys(cells: CellStatus) -> tuple[Keys, ...]:
    """The keys of all physical leaf cells, chain by chain. Cost O(leaf cells)."""
    chains, forests = cells.topology.chains, cells.topology.forests
    return tuple(
        _keys(cells, forest.bases[1], forest.tree_count * chain.leaf_count(chain.top_level))
        for chain, forest in zip(chains, forests, strict=False)
    )


def _keys(cells: CellStatus, first: int, count: int) -> Keys:
    leaves = slice(first, first + count)
    state, lent_to = cells.state[leaves], cells.lent_to[leaves]
    is_held = (state == CellState.RESERVING) | (state == CellState.RESERVED)
    is_lent = (lent_to != NO_CELL) & ~is_held
    is_free = (state == CellState.FREE) & ~is_lent
    use = np.where(is_held, Use.RESERVED, np.where(is_lent, Use.LENT, np.where(is_free, Use.FREE, Use.USED)))
    vc = np.where(is_lent, lent_to, np.where(is_free, NO_CELL, cells.shown_vc[leaves])) + 1
    bad = cells.bad[leaves] != 0
    keys: Keys = (np.minimum(vc, MOST_VCS) | use << USE_SHIFT | bad.astype(np.int64) << BAD_SHIFT).astype(np.uint16)
    return keys


def runs_of(keys: Keys, leaf_count: int) -> Runs:
    """The looks of cells of `leaf_count` leaves each, whose leaves' keys stand one after the other in `keys`."""
    rows = np.sort(keys.reshape(-1, leaf_count), axis=1)
    begins = np.ones(rows.shape, np.bool_)
    begins[:, 1:] = rows[:, 1:] != rows[:, :-1]
    firsts = np.flatnonzero(begins)
    counts = np.diff(firsts, append=rows.size)
    return Runs(begins.sum(axis=1).astype(np.uint16), rows.ravel()[firsts], counts.astype(np.uint32))


def use_of(key: int) -> Use:
    """The use in a key."""
    return Use(key >> USE_SHIFT & 3)


def vc_of(key: int) -> int:
    """The number of the virtual cluster in a key, NO_CELL for nobody."""
    return (key & MOST_VCS) - 1


def is_bad(key: int) -> bool:
    """Whether a key is that of bad cells."""
    return bool(key >> BAD_SHIFT & 1)
