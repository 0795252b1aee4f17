"""The output of the core: the answers of `scheduler.handle`, and the explanation of a refusal (docs/waiting.md).

`cancelled` names the groups whose preemption ended with the event; cells that they reserved may be free now.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hived.values.specs import BindInfo


@dataclass(frozen=True, slots=True)
class Bind:
    """The pod can run here now. Carried out by feeding `PodAllocated(pod, bind_info, lazily_preempted)` back.

    `gave_up` is as in `Preempt`, for groups that leave lazily.
    """

    bind_info: BindInfo
    lazily_preempted: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    gave_up: bool = False


@dataclass(frozen=True, slots=True)
class Preempt:
    """Cells are chosen, but these pods (uids, ascending, by node name, ascending) must leave first.

    `lazily_preempted` names the groups that had to leave their VC when the cells were reserved. `gave_up`: others might
    lose less work, as too many sets of groups would have had to be tried (rule 18.9).
    """

    victims_by_node: Mapping[str, tuple[str, ...]]
    cancelled: tuple[str, ...] = ()
    lazily_preempted: tuple[str, ...] = ()
    gave_up: bool = False

    @property
    def victims(self) -> tuple[str, ...]:
        """The uids of all, each once, by node."""
        return tuple(dict.fromkeys(uid for uids in self.victims_by_node.values() for uid in uids))


@dataclass(frozen=True, slots=True)
class Wait:
    """No room now. The reason names the places searched and the obstacle (rule 5.10).

    `is_emptied`: the group has all its cells to itself, on nodes that are not offered. It keeps them until an offer no
    longer has them among the nodes that will do once pods leave.
    """

    reason: str
    cancelled: tuple[str, ...] = ()
    is_emptied: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """A fact was applied. `lazily_preempted` names the groups that had to leave their VC for it."""

    lazily_preempted: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


Decision = Bind | Preempt | Wait | Applied


class Cause(Enum):
    """The obstacle between a group and its cells.

    IN_USE: others of its priority or a higher one have them. IN_PIECES: enough leaves are free, in pieces that are too
    small. BAD: on bad, cordoned or lost hardware. KUBERNETES: on nodes that are not offered. NEVER: no group's end, no
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
    """The reason for a refusal; `causes` has the least set, its first one first.

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
