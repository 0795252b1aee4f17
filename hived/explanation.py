"""The answer to "why not": the cause of a refusal, and the cells that were counted for it (docs/waiting.md)."""

from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """What stands between a group and its cells.

    IN_USE: others of its priority or a higher one have them. IN_PIECES: enough leaves are free, in pieces that are too
    small. BAD: on bad, cordoned or lost hardware. KUBERNETES: on nodes that are not offered. NEVER: nobody's end, no
    repair and no offer would help.
    """

    IN_USE = "in-use"
    IN_PIECES = "in-pieces"
    BAD = "bad"
    KUBERNETES = "kubernetes"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class HoldingGroup:
    """A group with leaves where the request looked; `leaves` are indices of physical leaf cells."""

    name: str
    priority: int
    vc: int
    is_lent: bool
    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request was refused; `causes` has the least set, its first one first.

    Counts are of cells of `level` (a cell type), the lowest one that holds the largest pod, in the view that came
    closest: total == free + in_use + in_pieces + bad + refused. `free_leaves`, `largest_fit` and `largest_ever` count
    leaf cells: free ones, the largest pod that starts now, and the largest one that ever could. `holders` are in the
    order of how many leaves they have, most first; at most `explaining.MOST_HOLDERS`, `more_holders` are left out.
    """

    causes: tuple[Cause, ...]
    chain: str
    level: str
    leaf_type: str
    asked: int
    total: int
    free: int
    in_use: int
    in_pieces: int
    bad: int
    refused: int
    free_leaves: int
    largest_fit: int
    largest_ever: int
    holders: tuple[HoldingGroup, ...]
    more_holders: int
    bad_nodes: tuple[str, ...]
