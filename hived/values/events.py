"""The input of the core: `scheduler.handle(state, event)`.

Only `ScheduleRequested` asks for a decision. The others report facts, which may come in any order (rule 11.12) and more
than once.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from hived.values.specs import BindInfo, Gang, PodRequest, WorkTimes


class Phase(Enum):
    """The verb of the extender behind a request; cells are reserved in PREEMPTING only (rule 8.3)."""

    FILTERING = "Filtering"
    PREEMPTING = "Preempting"


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """The most that pods of one group may put into a domain of nodes, together (rule 12.3).

    domain : int32, shape (node_count,); the domain of each node, -1 for nodes that no pod with a weight may use
    weight : int64, shape (slot_count,); the weight of each pod: 1 for anti-affinity and host ports, an amount for CPU
    room : int64, shape (domain_count,); how much weight a domain can still take
    """

    domain: npt.NDArray[np.int32]
    weight: npt.NDArray[np.int64]
    room: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Topology spread: domains of nodes may not differ by more than `max_skew` in how many pods they have (rule 12.4).

    domain : int32, shape (node_count,); -1 for nodes that pods which count may not use
    counts : bool, shape (slot_count,); whether each pod of the group is counted, and held to the rule
    present : int64, shape (domain_count,); how many pods are counted already. A pod may go to a domain d if
    `present[d] + 1 - min(present) <= max_skew`, and is counted there from then on
    """

    domain: npt.NDArray[np.int32]
    counts: npt.NDArray[np.bool_]
    present: npt.NDArray[np.int64]
    max_skew: int


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Affinity: pods of one group that have to be in one domain of nodes (rule 12.5).

    domain : int32, shape (node_count,); -1 for nodes that these pods may not use
    slots : bool, shape (slot_count,)
    """

    domain: npt.NDArray[np.int32]
    slots: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """The nodes that Kubernetes allows each pod of a group, and the rules between its pods there (rules 12.1, 12.2).

    Slots are in canonical order: members by ascending size, then pod by pod.

    nodes : bool, shape (slot_count, node_count); the nodes that will do as they are
    after : bool, same shape; nodes that will do as well once pods leave them. A placement may use them only if it takes
        cells there from others, who leave. Includes no node whose refusal no leaving can cure
    rules : each has to hold while the pods come one by one, in some order
    """

    nodes: npt.NDArray[np.bool_]
    after: npt.NDArray[np.bool_]
    rules: tuple[Limit | Spread | Together, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleRequested:
    """Ask for a place for a pod.

    `suggested` is a bool per node of `Topology.node_names`; None suggests every node. It is heeded as the reference
    does it: the first placement that is found is mapped, or the pod waits. With an `offer`, which stands in its place,
    the search goes on over all other choices of the VC before it gives up.

    `now_s` is the present time, in seconds since 1970; None means unknown, and then no lost work counts (rule 8.12).

    `own` are the virtual leaf cells that a guaranteed new group is to have if they are free: int32, shape (leaves,), in
    the order of `Group.virtual` (rule 18.11).
    """

    pod: PodRequest
    phase: Phase = Phase.FILTERING
    suggested: npt.NDArray[np.bool_] | None = None
    offer: Offer | None = None
    now_s: float | None = None
    own: npt.NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class PodAllocated:
    """The pod is bound, or its binding is decided: live after `Bind`, and at recovery from its annotations.

    `lazily_preempted` repeats the field of the `Bind` being carried out; it is empty at recovery. `times` are the times
    of the pod, as far as they are known; `PodProgressed` updates them later. None at all change nothing.
    """

    pod: PodRequest
    bind_info: BindInfo
    lazily_preempted: tuple[str, ...] = ()
    times: WorkTimes | None = None


@dataclass(frozen=True, slots=True)
class PodProgressed:
    """The pod has started, or has saved its work (rule 8.12). `times` replaces its earlier times.

    A pod that holds no cells is ignored.
    """

    pod: PodRequest
    times: WorkTimes


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """The pod is gone (deleted or completed), whether it held cells, was preempting or only waited."""

    pod: PodRequest


@dataclass(frozen=True, slots=True)
class GroupSplit:
    """The pods of an allocated group continue as other groups. No cell moves.

    Without `slots`, `pods[i]` is alone in its group, and has the cells of slot i. With them, the group of `pods[i]` has
    the cells of `slots[i]`, in the order of its own slots, and the pod holds the first of its size. Each slot goes to
    one group.

    The pod that brought the placement, or the stand-in for all of them, is gone unless it is one of `pods`.
    """

    group: str
    pods: tuple[PodRequest, ...]
    slots: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class GroupsUpgraded:
    """Groups that run on lent cells have their place in their VC from now on, on the same hardware (rule 18.12).

    `pods` are all pods of the groups, as they ask now: guaranteed, and else as before. `own` are the virtual leaf cells
    that the groups get, one for each leaf, in any order: int32. Refused, with nothing changed, if the hardware cannot
    be behind them.
    """

    pods: tuple[PodRequest, ...]
    own: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class GangChanged:
    """These groups depend on each other from now on (rule 8.14), in place of an earlier gang of this name.

    A group is in one gang at most: the one that names it last. A gang without groups is forgotten. Groups that hold no
    cells are ignored until they do. If it comes late, only the choice of victims differs.
    """

    gang: Gang


@dataclass(frozen=True, slots=True)
class GroupReserved:
    """A group had reserved the cells of `bind_info` before this state was made, and waits for their users.

    Sent after the pods that use the cells. Refused if the cells cannot be reserved any more, or are unused; then the
    pods are scheduled like any others. With `may_be_free` they may be unused: pods that hold other cells, or none, have
    to leave first.
    """

    pods: tuple[PodRequest, ...]
    bind_info: BindInfo
    may_be_free: bool = False


@dataclass(frozen=True, slots=True)
class NodeHealthChanged:
    """The node turned healthy or bad; a deleted node is bad. A node that is not configured is ignored."""

    node: str
    is_healthy: bool


@dataclass(frozen=True, slots=True)
class LeavesLost:
    """So many leaf cells of a type on a node are unavailable, although the node is healthy.

    Replaces the earlier count of that type and node; 0 heals all. `known` are device indices that are certainly among
    them, such as unhealthy ones by a device plugin. The core chooses the others where guarantees suffer least; after
    a repeated event it chooses anew in place of leaves that pods use by now.
    """

    node: str
    leaf_type: str
    count: int
    known: tuple[int, ...] = ()


Event = (
    ScheduleRequested
    | PodAllocated
    | PodProgressed
    | PodDeleted
    | GroupSplit
    | GroupsUpgraded
    | GangChanged
    | GroupReserved
    | NodeHealthChanged
    | LeavesLost
)
