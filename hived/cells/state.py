"""The mutable state of a scheduler, and the rules that it obeys.

All numbers that kernels change lie in one block of int32, `State.memory`; `Cells` gives its parts names. One block
makes undo a list of (position, old value), and comparing or copying a whole state one operation. Outside of it are the
journal itself, scratch, and the order of the candidate nodes with its upkeep: that order survives an undone decision
(rule 6.3).
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, IntEnum

import numpy as np
import numpy.typing as npt

from hived.cells.layout import build_topology
from hived.cells.topology import NO_CELL, IntArray, Topology, TopologyArrays
from hived.kernels.blocks import Block
from hived.values.specs import (
    FREE_PRIORITY,
    BindInfo,
    ClusterSpec,
    Gang,
    MemberSpec,
    Placements,
    PodRequest,
    PodSpec,
    WorkTimes,
)

NO_GROUP = -1
NO_TIME = -1  # stands for an unknown time, in milliseconds since 1970
INITIAL_JOURNAL_LENGTH = 1 << 18


class CellState(IntEnum):
    """State of a cell (rule 9.1)."""

    FREE = 0
    USED = 1
    RESERVING = 2
    RESERVED = 3


class GroupState(Enum):
    """State of an affinity group; a group that is pending or deleted is not in the table."""

    ALLOCATED = "Allocated"
    PREEMPTING = "Preempting"
    BEING_PREEMPTED = "BeingPreempted"


class Cells(Block):
    """The mutable arrays, all int32 views of one block. `c` is a cell, `l` a chain level, `vl` = vc * levels + l."""

    memory: IntArray
    # per cell, shape (cells,)
    priority: IntArray  # priority[c] == max(priority[children]); FREE_PRIORITY if free
    state: IntArray  # CellState
    bad: IntArray  # leaf: node_bad[its node] or lost; else any(bad[children]); virtual: as `lost`
    lost: IntArray  # lost leaves below c, 1 for one itself: lost[c] == sum(lost[children]), healthy node or not;
    # virtual: that of the bound physical cell, 0 if unbound
    used: IntArray  # leaves below c with priority > FREE_PRIORITY; used[c] == sum(used[children])
    bound: IntArray  # bound[bound[c]] == c, or NO_CELL
    planned: IntArray  # > 0: c is part of a placement being made; doomed cells stay away from it (rule 10.12)
    planned_below: IntArray  # planned_below[c] == sum(planned[d] for d below c)
    # per physical cell, shape (physical cells,)
    intended: IntArray  # virtual cell about to be bound to c, or NO_CELL
    opportunistic_used: IntArray  # leaves below c in opportunistic use
    elastic: IntArray  # 1 for a leaf that an elastic group uses: elastic[c] == spec.elastic of using[c]
    elastic_lent: IntArray  # leaves below c in opportunistic use of elastic groups
    split: IntArray  # 1 if c was split, so that its children are in lists of their own or allocated
    free_position: IntArray  # place of c in its level's free list, or NO_CELL
    free_list: IntArray  # free list of level l: free_list[level_base[l] : level_base[l] + free_count[l]]
    bad_position: IntArray  # place of c in its level's list of bad free cells, or NO_CELL
    bad_list: IntArray  # laid out as free_list
    doomed_position: IntArray  # place of c in the doomed list of the VC it is bound to, or NO_CELL
    using: IntArray  # group that uses a leaf, or NO_GROUP
    reserving: IntArray  # group that preempts to get a leaf, or NO_GROUP
    shown_vc: IntArray  # VC that the status of c names, or NO_CELL (rule 9.12)
    lent_to: IntArray  # VC of the "-opp" entry of a leaf, or NO_CELL
    lent_bad: IntArray  # health shown in that entry: as it was when the entry was made
    # per virtual cell that is a root; index as cells, only roots of VC forests are used
    doomed_list: IntArray  # doomed cells of vl: doomed_list[root_base[vl] : root_base[vl] + doomed_count[vl]]
    # per chain level
    free_count: IntArray
    bad_count: IntArray
    left: IntArray  # cells of the level that are in the free list or below a cell of a higher free list
    claims: IntArray  # sum of vc_claims over VCs; with free_count the numbers of VC safety, see safety
    doomed_total: IntArray  # sum of doomed_count over VCs
    # per vl
    vc_claims: IntArray  # unbound non-pinned preassigned cells of the VC
    doomed_count: IntArray
    # per node
    node_bad: IntArray
    # per chain
    left_out: IntArray  # 1 if a doomed cell was left alone because of a plan, until caught up (rule 10.13)
    hidden: IntArray  # 1 if a bad cell got no virtual cell to be seen by, until caught up
    strained: IntArray  # 1 from when a replay or a doomed cell broke VC safety (rule 4.4) until it holds again
    lost_total: IntArray  # sum of lost[top cells]
    # one number
    planned_total: IntArray  # placements being made
    # not part of `memory`
    journal_position: npt.NDArray[np.int64]  # shape (capacity,): position in memory of each write
    journal_value: IntArray  # shape (capacity,): the value before
    journal_control: npt.NDArray[np.int64]  # [is_recording, length]
    view_order: IntArray  # current order of each view, laid out as view_cell
    view_place: IntArray  # view_order[view_place[c]] == c for cells of sorted views; shape (cells,)
    view_keys: npt.NDArray[np.int64]  # keys of `view_order` at the last sort
    changed: IntArray  # cells of each view that changed since, laid out as view_cell; see `views`
    changed_count: IntArray  # how many of them, per view
    is_changed: IntArray  # 1 for these cells; shape (cells,)
    is_sorted: IntArray  # per view: may only changed cells be out of order?
    mark: IntArray  # scratch, all zero between kernel calls; shape (cells,)


@dataclass(slots=True, eq=False)
class Group:
    """An affinity group that holds or reserves cells; changed through `groups` alone.

    `physical` and `virtual` hold one cell per leaf, in the canonical order size ascending, pod, leaf (rule 2.7);
    NO_CELL where the leaf is not configured any more. `virtual` is None for opportunistic and lazily preempted groups.
    Each pod of the group has a slot, numbered in the same order; slots_of[uid] has each i with holders[i].uid == uid.
    """

    number: int
    name: str
    vc: int
    spec: PodSpec
    state: GroupState
    physical: IntArray
    virtual: IntArray | None
    bind_info: BindInfo | None  # of the pod that brought the placement; stands in for leaves not configured any more
    holders: list[PodRequest | None]  # per slot
    slots_of: dict[str, list[int]] = field(default_factory=dict)
    preempting_pods: dict[str, PodRequest] = field(default_factory=dict)
    lazy_preemptor: str | None = None  # None as long as `virtual` is not
    placements: Placements | None = None  # cached, see groups.placements_of
    is_placed_in_vc: bool = False  # do `placements` have types of preassigned cells?
    first_free: int = 0  # a pod holds each slot before this one
    slots_on: dict[str, list[int]] | None = None  # slots by node, once a pod was looked for there
    times: dict[str, WorkTimes] = field(default_factory=dict)  # by uid, of pods in slots; changed by `losses`
    since_ms: int = NO_TIME  # from when on its work would be lost, see losses.since_of
    started_ms: int = NO_TIME  # the earliest start of its pods, see losses.started_of

    @property
    def members(self) -> tuple[MemberSpec, ...]:
        """Sizes of the group, ascending."""
        return self.spec.group.members

    @property
    def priority(self) -> int:
        """Priority that its pods asked for."""
        return self.spec.priority


@dataclass(slots=True)
class Victims:
    """The pods that must leave before a preempting group can start, kept by `victims`."""

    groups: set[int]  # numbers of the groups that use cells of it
    seats: dict[str, list[str]]  # node -> uid of the pod in each slot there that is taken
    by_node: dict[str, tuple[str, ...]]  # node, ascending -> uids, ascending, each once
    is_shared: bool = False  # `by_node` was given away, and is to be copied before it is changed


@dataclass(slots=True, eq=False)
class Work:
    """The times of groups for kernels, kept by `losses` under better rules; int64, shape (physical cells,).

    For a leaf of a group with known times, all else has `leaf_count` 0:
    since_ms[leaf] == group.since_ms and leaf_count[leaf] == number of the group's leaves.
    """

    since_ms: npt.NDArray[np.int64]
    leaf_count: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DecidedBind:
    """The cells behind a `Bind`, so that the event that carries it out need not find them by name.

    Topology never changes, so they are the cells that `bind_info` names for as long as the state is used.
    """

    bind_info: BindInfo
    spec: PodSpec
    slot: int  # of the pod that asked
    physical: IntArray  # as in `Group`; both arrays belong to the group once the decision is carried out
    virtual: IntArray | None
    keeps_virtual: bool = False  # has the group just these virtual leaves, rather than any like them (rule 18.11)?


@dataclass(slots=True, eq=False)
class State:
    """One scheduler: configuration, topology, mutable arrays, groups. Changed by `scheduler.handle` alone."""

    spec: ClusterSpec
    topology: Topology
    cells: Cells
    groups: dict[str, Group] = field(default_factory=dict)
    group_by_number: dict[int, Group] = field(default_factory=dict)
    vc_names: list[str] = field(default_factory=list)  # the configured VCs, then VCs that only old groups still name
    group_total: int = 0  # groups ever made; numbers are not used twice
    last_plan: tuple[str, IntArray, IntArray] | None = (
        None  # group, roots' cells and virtual leaves: see placement.map_placement
    )
    last_bind: DecidedBind | None = None  # of a new group, not carried out yet; serves only to find its cells faster
    lazy_group_count: int = 0  # groups in the table that may be lazily preempted
    elastic_group_count: int = 0  # groups in the table whose cells are the first that others take
    victims: dict[int, Victims] = field(default_factory=dict)  # of preempting groups, once asked for
    gangs: dict[str, Gang] = field(default_factory=dict)  # by name, as told last
    gang_of: dict[str, Gang] = field(default_factory=dict)  # by group; it may be gone by now
    undo_steps: list[Callable[[], None]] = field(default_factory=list)  # how to take group changes back, see journal
    work: Work | None = None  # None as long as no decision looks at it
    has_saves: bool = False  # was any save ever told?
    now_ms: int = NO_TIME  # of the request that was asked last
    known_waits: dict[Hashable, tuple[bool, int]] = field(default_factory=dict)  # of this very state, see `known_waits`

    def vc_number(self, name: str) -> int:
        """The number of a VC; a VC that is not configured gets the next number beyond the others."""
        number = self.topology.vc_index.get(name)
        if number is not None:
            return number
        if name not in self.vc_names:
            self.vc_names.append(name)
        return self.vc_names.index(name)

    @property
    def arrays(self) -> TopologyArrays:
        """Shorthand for the topology's arrays, the first argument of every kernel."""
        return self.topology.arrays


def empty_state(spec: ClusterSpec, topology: Topology | None = None) -> State:
    """A state in which every cell is free and healthy and nothing is bound. Cost O(cells).

    topology : of the same configuration, if there is one already
    """
    topology = topology or build_topology(spec)
    arrays = topology.arrays
    cells, physical = len(arrays.parent), topology.physical_count
    levels, nodes = len(arrays.child_count), len(topology.node_names)
    vc_levels = len(arrays.root_base)
    sizes = dict.fromkeys(
        ("priority", "state", "bad", "lost", "used", "bound", "planned", "planned_below", "doomed_list"), cells
    )
    sizes |= dict.fromkeys(
        ("intended", "opportunistic_used", "elastic", "elastic_lent", "split", "free_position", "free_list",
         "bad_position", "bad_list", "doomed_position", "using", "reserving", "shown_vc", "lent_to", "lent_bad"),
        physical,
    )  # fmt: skip
    sizes |= dict.fromkeys(("free_count", "bad_count", "left", "claims", "doomed_total"), levels)
    sizes |= dict.fromkeys(("vc_claims", "doomed_count"), vc_levels)
    sizes |= {"node_bad": nodes, "left_out": len(arrays.top_level), "hidden": len(arrays.top_level)}
    sizes |= {"strained": len(arrays.top_level), "lost_total": len(arrays.top_level), "planned_total": 1}
    memory = np.zeros(sum(sizes.values()), np.int32)
    views, start = {}, 0
    for name, size in sizes.items():
        views[name] = memory[start : start + size]
        start += size
    for name in ("bound", "free_position", "free_list", "bad_position", "bad_list", "doomed_position", "doomed_list",
                 "using", "reserving", "shown_vc", "lent_to", "intended"):  # fmt: skip
        views[name][:] = NO_CELL
    views["priority"][:] = FREE_PRIORITY
    _fill_free_lists(topology, views)
    mutable = Cells(
        memory=memory, **views,
        journal_position=np.empty(INITIAL_JOURNAL_LENGTH, np.int64),
        journal_value=np.empty(INITIAL_JOURNAL_LENGTH, np.int32), journal_control=np.zeros(2, np.int64),
        view_order=arrays.view_cell.copy(), view_place=np.zeros(cells, np.int32),
        view_keys=np.zeros(len(arrays.view_cell), np.int64), changed=np.zeros(len(arrays.view_cell), np.int32),
        changed_count=np.zeros(len(arrays.view_node_leaves), np.int32), is_changed=np.zeros(cells, np.int32),
        is_sorted=np.zeros(len(arrays.view_node_leaves), np.int32),
        mark=np.zeros(cells, np.int32),
    )  # fmt: skip
    return State(spec, topology, mutable, vc_names=list(topology.vc_names))


def _fill_free_lists(topology: Topology, views: dict[str, IntArray]) -> None:
    """List every top cell as free, in declaration order (rule 3.1), and give every VC its full claims."""
    arrays = topology.arrays
    for chain, offset in enumerate(arrays.level_offset.tolist()):
        top = offset + int(arrays.top_level[chain])
        base, size = int(arrays.level_base[top]), int(arrays.level_size[top])
        views["free_list"][base : base + size] = np.arange(base, base + size)
        views["free_position"][base : base + size] = np.arange(size)
        views["free_count"][top] = size
    views["left"][:] = arrays.level_size
    views["vc_claims"][:] = arrays.root_count
    views["claims"][:] = arrays.root_count.reshape(-1, len(arrays.child_count)).sum(axis=0)
