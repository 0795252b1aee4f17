"""What goes into the core: `scheduler.handle(state, event)`.

Only `ScheduleRequested` asks for a decision. The others report facts; Kubernetes may report them in any order and more
than once.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from hived.specs import BindInfo, PodRequest


class Phase(Enum):
    """Which verb of the extender asks; cells are reserved in PREEMPTING only (SEMANTICS 4e.3)."""

    FILTERING = "Filtering"
    PREEMPTING = "Preempting"


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleRequested:
    """Where could this pod run? `suggested` is a bool per node of `Topology.node_names`; None suggests every node."""

    pod: PodRequest
    phase: Phase = Phase.FILTERING
    suggested: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class PodAllocated:
    """The pod is bound, or its binding is decided: live after `Bind`, and at recovery from its annotations.

    `lazily_preempted` repeats the field of the `Bind` being carried out; it is empty at recovery.
    """

    pod: PodRequest
    bind_info: BindInfo
    lazily_preempted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """The pod is gone (deleted or completed), whether it held cells, was preempting or only waited."""

    pod: PodRequest


@dataclass(frozen=True, slots=True)
class GroupSplit:
    """The pods of an allocated group go on as groups of one pod: `pods[i]` has what was slot i. No cell moves.

    Who brought the placement, a pod or a stand-in for all of them, is gone unless it is one of `pods`.
    """

    group: str
    pods: tuple[PodRequest, ...]


@dataclass(frozen=True, slots=True)
class GroupReserved:
    """A group had reserved the cells of `bind_info` before this state was made, and its pods wait for their users.

    Told after the pods that use those cells. Refused if the cells cannot be had in this way any more, or nobody uses
    them; then the pods are scheduled like any others.
    """

    pods: tuple[PodRequest, ...]
    bind_info: BindInfo


@dataclass(frozen=True, slots=True)
class NodeHealthChanged:
    """The node turned healthy or bad; a deleted node is bad. A node that is not configured is ignored."""

    node: str
    is_healthy: bool


Event = ScheduleRequested | PodAllocated | PodDeleted | GroupSplit | GroupReserved | NodeHealthChanged
