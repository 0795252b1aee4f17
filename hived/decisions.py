"""The output of the core: the answers of `scheduler.handle`.

`cancelled` names the groups whose preemption ended with the event; cells that they reserved may be free now.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hived.specs import BindInfo


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
    """A fact was taken in. `lazily_preempted` names the groups that had to leave their VC for it."""

    lazily_preempted: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


Decision = Bind | Preempt | Wait | Applied
