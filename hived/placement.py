"""Placing a new group in one view: among the cells of its VC, then on hardware (rules 6, 7, 13).

A group is placed as near together as it wishes, or as its VC packs by topology; else anywhere, as the reference does.
Near together means below one physical cell, beside another group if the group wishes that. Which cell is tried first is
ours: where the group leaves least over, and only if there is no other one where somebody has to leave. A VC that packs
by topology chooses the cell where fewest cells are broken: unused before, and used by the group in part.
"""

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hived.decisions import Wait
from hived.groups import virtual_placement
from hived.journal import mark, undo_changes
from hived.mapping import map_leaves
from hived.packing import BAD_NODE, NO_CAPACITY, PLACED, place_group
from hived.packing_below import most_room, place_within
from hived.preemption import find_victims, lazy_groups_below, preempt_lazily_for
from hived.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, PodRequest, PodSpec
from hived.state import GroupState, State
from hived.topology import NO_CELL, BoolArray, IntArray, LongArray
from hived.views import chain_of_view, first_cell

Attempt = tuple[int, bool]  # leaves below which priority may be taken, used ones only from elastic groups

_WITHOUT_PREEMPTING: Attempt = (OPPORTUNISTIC_PRIORITY, False)

MOST_COMPARED = 32
"""So many cells that have room are compared in a VC that packs by topology; each takes a mapping."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Cells for every pod of a group, one per leaf in canonical order; `virtual` is None if opportunistic."""

    physical: IntArray
    virtual: IntArray | None
    lazily_preempted: tuple[str, ...] = ()


class Request(NamedTuple):
    """A new group as the kernels want it."""

    pod: PodRequest
    sizes: IntArray
    counts: LongArray
    wanted: int
    suggested: BoolArray
    ignore: bool

    @property
    def is_guaranteed(self) -> bool:
        """Does it go through a VC (rule 7.11)?"""
        return self.pod.spec.priority >= MIN_GUARANTEED_PRIORITY

    @property
    def where(self) -> str:
        """Name of the cluster that is searched, for reasons."""
        return f"VC {self.pod.spec.virtual_cluster}" if self.is_guaranteed else "physical cluster"


def no_capacity(request: Request) -> Wait:
    """The answer where not even the VC's own cells have room, let alone the hardware behind them."""
    return Wait(f"insufficient capacity when scheduling in {request.where}")


def fit_in_view(state: State, request: Request, view: int) -> Placement | Wait:
    """As near together as the group wishes or its VC has it; anywhere if neither says anything."""
    spec = request.pod.spec
    has_wish = bool(spec.within_cell) or not spec.within_is_required
    if not has_wish and not state.spec.virtual_clusters[spec.virtual_cluster].packs_by_topology:
        return fit_anywhere(state, request, view)
    chain = chain_of_view(state, view)
    if not has_wish:
        level = next((level for level in range(1, chain.top_level) if chain.leaf_count(level) >= request.wanted), 0)
        return _fit_nearest(state, request, view, level or chain.top_level, packs=True)
    level = chain.type_levels.get(spec.within_cell, 0) if spec.within_cell else chain.node_level
    if level == 0:
        return Wait("")  # another chain has that type, and says why the group waits
    if not spec.within_is_required:
        return _fit_nearest(state, request, view, level, packs=False)
    found = _fit_within(state, request, view, level, with_victims=True)
    return found or _reason(state, request, view, level)


def fit_anywhere(state: State, request: Request, view: int) -> Placement | Wait:
    """As the reference does it (rules 6.6 to 6.9), or why not (rule 5.10)."""
    arrays, cells = state.arrays, state.cells
    leaves = np.empty(min(request.wanted, state.topology.view_leaf_counts[view]), np.int32)
    outcome, blocker = place_group(
        arrays, cells, view, request.pod.spec.priority, state.elastic_group_count > 0, request.sizes, request.counts,
        request.suggested, request.ignore, leaves,
    )  # fmt: skip
    if outcome == NO_CAPACITY:
        return no_capacity(request)
    if outcome != PLACED:
        kind = "bad" if outcome == BAD_NODE else "non-suggested"
        node = state.topology.address(int(blocker))
        return Wait(f"have to use at least one {kind} node {node} when scheduling in {request.where}")
    if not request.is_guaranteed:
        return Placement(leaves, None)
    return map_placement(state, request, leaves)


def map_placement(state: State, request: Request, virtual: IntArray, within: int = NO_CELL) -> Placement | Wait:
    """Put physical cells behind a placement in the VC, with lazy preemption where allowed (rules 7, 7.9).

    A group for which nothing is found waits, also where a strained chain has too few cells for it (rules 4.5, 5.10).
    """
    pod = request.pod
    before = mark(state)
    lazy = lazy_groups_below(state, virtual)
    state.last_plan = None
    if lazy:
        behind = state.cells.bound[state.arrays.root[virtual]]
        # kept for the event that carries the decision out, which must spare the same cells (rule 10.12)
        state.last_plan = (pod.spec.group.name, behind, virtual)
        preempt_lazily_for(state, lazy, behind, virtual, pod.spec.group.name)
    physical = np.empty(len(virtual), np.int32)
    if map_leaves(state.arrays, state.cells, virtual, request.suggested, request.ignore, within, physical):
        return Placement(physical, virtual, tuple(group.name for group in lazy))
    undo_changes(state, before)
    kind = "bad" if pod.spec.ignore_suggested_nodes else "bad or non-suggested"
    return Wait(
        f"Mapping the virtual placement would need to use at least one {kind} node"
        f" (virtual placement : {virtual_placement_text(state, virtual)})"
    )


def virtual_placement_text(state: State, virtual: IntArray) -> str:
    """`groups.virtual_placement` as compact JSON."""
    return json.dumps(virtual_placement(state, virtual), separators=(",", ":"), ensure_ascii=False)


def _fit_nearest(state: State, request: Request, view: int, lowest: int, *, packs: bool) -> Placement | Wait:
    """Below one cell of the lowest level that has room, else anywhere; rather that than with victims (rule 13.2)."""
    before = mark(state)
    for with_victims in (False, True):
        for level in range(lowest, chain_of_view(state, view).top_level + 1):
            near = _fit_packed(state, request, view, level) if packs and not with_victims else None
            near = near or _fit_within(state, request, view, level, with_victims=with_victims)
            if near is not None:
                return near
        found = fit_anywhere(state, request, view)
        if with_victims or (isinstance(found, Placement) and not find_victims(state, found.physical)):
            break
        undo_changes(state, before)
    return found


def _fit_within(state: State, request: Request, view: int, level: int, *, with_victims: bool) -> Placement | None:
    """Below the cell of a level with fewest free leaves, but enough; at last with victims (rules 13.1, 13.3, 13.4).

    Preempting in the VC, cells with most free leaves come first: fewer have to leave. Of cells with equally many free,
    the one where fewest cells are broken comes first, as nobody else may be promised them. Cost O(cells of the level +
    nodes of tried cells), and a mapping for each cell with room in the VC but not behind it.
    """
    cells, free = cells_of(state, request, view, level)
    broken, ways, before = broken_above(state, cells, request.wanted), _ways(state, view, level), mark(state)
    attempts = _attempts(state, request)
    for spares in (True, False) if with_victims else (True,):
        for attempt in attempts:
            is_preempting = attempt != attempts[0]
            order = np.lexsort((broken, -free if is_preempting else free))
            tried = cells[order if is_preempting else order[free[order] >= request.wanted]]
            start = 0
            while (placed := _place(state, request, view, tried, ways, start, attempt, spares)) is not None:
                found, combination = placed
                if isinstance(found, Placement):
                    if not spares or not find_victims(state, found.physical):
                        return found
                    undo_changes(state, before)
                start = combination + 1
    return None


def _attempts(state: State, request: Request) -> list[Attempt]:
    """Without preempting in the VC; then, if there are lower priorities, elastic groups, then any (rules 6.6, 15.1)."""
    priority = request.pod.spec.priority
    if priority <= MIN_GUARANTEED_PRIORITY:
        return [_WITHOUT_PREEMPTING]
    elastic: list[Attempt] = [(priority, True)] if state.elastic_group_count else []
    return [_WITHOUT_PREEMPTING, *elastic, (priority, False)]


def _fit_packed(state: State, request: Request, view: int, level: int) -> Placement | None:
    """Without victims, below the cell of a level with fewest broken cells, then fewest free leaves (rule 13.5).

    Of cells that nobody uses, and that would break as many cells above them, the first stands for all. Cost as
    `_fit_within`, and a mapping for each of `MOST_COMPARED` cells that have room.
    """
    cells, free = cells_of(state, request, view, level)
    broken = broken_above(state, cells, request.wanted)
    order = np.lexsort((free, broken))
    order = order[free[order] >= request.wanted]
    cells, broken = cells[order], broken[order]
    is_untouched = (state.cells.used[cells] == 0) & (state.cells.bad[cells] == 0)
    ways, before = _ways(state, view, level), mark(state)
    best, fewest, compared, start = None, 0, 0, 0
    while compared < MOST_COMPARED:
        placed = _place(state, request, view, cells, ways, start, _WITHOUT_PREEMPTING, True)
        position = NO_CELL if placed is None else placed[1] // len(ways)
        if placed is None or (best is not None and broken[position] >= fewest):
            break
        found, combination = placed
        start = combination + 1
        if isinstance(found, Placement) and not find_victims(state, found.physical):
            count = int(broken[position]) + _broken_below(state, found.physical, level)
            if best is None or count < fewest:
                best, fewest = (cells[position : position + 1], combination % len(ways)), count
            compared += 1
            start = (position + 1) * len(ways)
            if is_untouched[position]:
                is_other = ~is_untouched | (broken != broken[position])
                is_other[: position + 1] = True
                cells, broken, is_untouched = cells[is_other], broken[is_other], is_untouched[is_other]
        undo_changes(state, before)
    undo_changes(state, before)
    if best is None:
        return None
    again = _place(state, request, view, best[0], ways, best[1], _WITHOUT_PREEMPTING, True)
    return again[0] if again is not None and isinstance(again[0], Placement) else None


def broken_above(state: State, cells: IntArray, wanted: int) -> IntArray:
    """How many of each cell and its ancestors nobody uses, and would be used in part by so many leaves below it.

    cells : of one level. Cost O(cells of that level).
    """
    arrays = state.arrays
    if len(cells) == 0:
        return cells
    lowest = int(arrays.chain_level[cells[0]])
    top = lowest - int(arrays.level[cells[0]]) + int(arrays.top_level[arrays.chain_of_level[lowest]])
    broken = np.zeros(int(arrays.level_size[top]), np.int32)
    for level in range(top, lowest - 1, -1):
        base = int(arrays.level_base[level])
        own = state.cells.used[base : base + int(arrays.level_size[level])]
        broken = np.repeat(broken, 1 if level == top else int(arrays.child_count[level + 1]))
        if arrays.leaf_count[level] > wanted:
            broken += own == 0
    return broken[cells - int(arrays.level_base[lowest])]


def _broken_below(state: State, leaves: IntArray, level: int) -> int:
    """How many cells below a level nobody uses, and would be used in part by these leaves."""
    arrays = state.arrays
    broken, cells, counts = 0, leaves, np.ones(len(leaves), np.int64)
    for _ in range(2, level):
        cells, place = np.unique(arrays.parent[cells], return_inverse=True)
        counts = np.bincount(place, weights=counts).astype(np.int64)
        is_part = counts < arrays.leaf_count[arrays.chain_level[cells]]
        broken += int(((state.cells.used[cells] == 0) & is_part).sum())
    return broken


def cells_of(state: State, request: Request, view: int, level: int) -> tuple[IntArray, IntArray]:
    """The physical cells of a level that the group may be below, and their numbers of free leaves (rule 13.7).

    None if they are too small. Cells in opportunistic use are free for others. Lost leaves are not free.
    """
    arrays, cells = state.arrays, state.cells
    first = first_cell(state, view)
    chain_level = int(arrays.chain_level[first] - arrays.level[first]) + level
    if request.wanted > arrays.leaf_count[chain_level]:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    base = int(arrays.level_base[chain_level])
    found = np.arange(base, base + int(arrays.level_size[chain_level]), dtype=np.int32)
    beside = leaf_beside(state, request.pod.spec)
    if beside != NO_CELL:
        while beside != NO_CELL and arrays.level[beside] < level:
            beside = int(arrays.parent[beside])
        found = found[found == beside]
    free = arrays.leaf_count[chain_level] - cells.used[found]
    if request.is_guaranteed:
        free = free + cells.opportunistic_used[found]
    if cells.lost_total[arrays.chain_of_level[chain_level]]:
        free = free - _lost_among_free(state, chain_level, request)[found - base]
    return found, free


def _lost_among_free(state: State, chain_level: int, request: Request) -> IntArray:
    """How many lost leaves each cell of a level has among its free and preemptible ones."""
    arrays, cells = state.arrays, state.cells
    leaf_level = int(arrays.level_offset[arrays.chain_of_level[chain_level]]) + 1
    first = int(arrays.level_base[leaf_level])
    leaves = np.flatnonzero(cells.lost[first : first + int(arrays.level_size[leaf_level])])
    limit = MIN_GUARANTEED_PRIORITY if request.is_guaranteed else OPPORTUNISTIC_PRIORITY
    leaves = leaves[cells.priority[first + leaves] < limit]
    lost = np.bincount(leaves // arrays.leaf_count[chain_level], minlength=int(arrays.level_size[chain_level]))
    return lost.astype(np.int32)


def leaf_beside(state: State, spec: PodSpec) -> int:
    """A leaf of the allocated group that the pod is to be beside; NO_CELL if there is none (rule 13.6)."""
    group = state.groups.get(spec.beside)
    if group is None or group.state is not GroupState.ALLOCATED:
        return NO_CELL
    return next((leaf for leaf in group.physical.tolist() if leaf != NO_CELL), NO_CELL)


def _ways(state: State, view: int, level: int) -> IntArray:
    """In which ways cells of a view can be below a physical cell of a level: the `root_level`s of `packing_below`."""
    arrays, first = state.arrays, first_cell(state, view)
    if arrays.vc[first] == NO_CELL or arrays.pinned[arrays.root[first]]:
        return np.zeros(1, np.int32)
    slot = int(arrays.vc[first]) * len(arrays.child_count) + int(arrays.chain_level[first] - arrays.level[first])
    top = chain_of_view(state, view).top_level
    return np.array([0, *(above for above in range(level, top + 1) if state.cells.vc_claims[slot + above])], np.int32)


def _place(
    state: State, request: Request, view: int, cells: IntArray, ways: IntArray, start: int, attempt: Attempt,
    spares: bool,
) -> tuple[Placement | Wait, int] | None:  # fmt: skip
    """The outcome for the first combination of cell and way, from `start` on, that has room in the view; and which."""
    if start >= len(cells) * len(ways):
        return None
    sizes, counts = request.sizes, request.counts
    is_below_node = state.arrays.level[cells[0]] < chain_of_view(state, view).node_level
    if is_below_node:
        sizes, counts = np.array([request.wanted], np.int32), np.ones(1, np.int64)
    leaves = np.empty(request.wanted, np.int32)
    combination = place_within(
        state.arrays, state.cells, view, cells, ways, start, *attempt, spares, sizes, counts,
        request.suggested, request.ignore, leaves,
    )  # fmt: skip
    if combination == NO_CELL:
        return None
    if is_below_node:
        leaves.sort()
    if not request.is_guaranteed:
        return Placement(leaves, None), combination
    return map_placement(state, request, leaves, int(cells[combination // len(ways)])), combination


def _reason(state: State, request: Request, view: int, level: int) -> Wait:
    """Why no cell of a level has room, naming the one that has most."""
    spec, chain = request.pod.spec, chain_of_view(state, view)
    where = request.where if request.is_guaranteed else f"the {request.where}"
    refused = f"no {spec.within_cell} of {where} has {request.wanted} free {chain.types[0]}s"
    cells, limits = cells_of(state, request._replace(wanted=0), view, level)
    if leaf_beside(state, spec) != NO_CELL:
        refused += f" beside affinity group {spec.beside}"
    if len(cells) == 0:
        return Wait(f"{refused}: that is not in chain {chain.name}")
    if spec.priority > MIN_GUARANTEED_PRIORITY:
        limits = np.full(len(cells), chain.leaf_count(level), np.int32)
    order = np.argsort(-limits, kind="stable")
    best, most = most_room(
        state.arrays, state.cells, view, cells[order], limits[order], spec.priority, request.suggested, request.ignore
    )
    pods = ",".join(f"{member.pod_count}x{member.leaf_cell_count}" for member in spec.group.members)
    needed = "" if most < request.wanted else f" where pods of {pods} fit"
    return Wait(f"{refused}{needed}: most is {most} in {state.topology.address(int(best))}")
