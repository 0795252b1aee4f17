"""Places a new group in one view: among the cells of its VC, then on hardware (rules 6, 7, 13).

A group is placed as near together as it wishes, or as its VC packs by topology; else anywhere, as the reference does.
Near together means below one physical cell, beside another group if the group wishes that. The reference has no order
of such cells: here the cell with fewest leaves left over is tried first, and cells that need preemption last. A VC that
packs by topology chooses the cell where fewest cells are broken: unused before, and used by the group in part.
"""

import json
from dataclasses import dataclass
from functools import partial

import numpy as np

from hived.cells.journal import mark, undo_changes
from hived.cells.state import State
from hived.cells.topology import NO_CELL, BoolArray, IntArray
from hived.cells.views import chain_of_view, first_cell
from hived.hived_rules.mapping import map_leaves
from hived.hived_rules.packing import (
    BAD_NODE,
    NO_CAPACITY,
    PLACED,
    Attempt,
    DeadEnds,
    Request,
    broken_above,
    broken_below,
    cells_of,
    leaf_beside,
    place_group,
)
from hived.hived_rules.packing_below import most_room, place_within
from hived.life.groups import virtual_placement
from hived.life.preemption import lazy_groups_below, preempt_lazily_for
from hived.life.victims import has_victims
from hived.values.decisions import Wait
from hived.values.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY

_WITHOUT_PREEMPTING: Attempt = (OPPORTUNISTIC_PRIORITY, False)

MOST_COMPARED = 32
"""So many cells that have room are compared in a VC that packs by topology; each takes a mapping."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Cells for every pod of a group, one per leaf in canonical order; `virtual` is None if opportunistic."""

    physical: IntArray
    virtual: IntArray | None
    lazily_preempted: tuple[str, ...] = ()
    gave_up: bool = False  # might other victims lose less? Too many sets of them were tried (rule 18.9)
    keeps_virtual: bool = False  # is a group to have just these virtual leaves (rule 18.11)?


def no_capacity(request: Request) -> Wait:
    """The answer if even the VC's own cells have no room."""
    return Wait(f"insufficient capacity when scheduling in {request.where}")


def fit_in_view(state: State, request: Request, view: int) -> Placement | Wait:
    """Place a group as near together as it wishes or its VC has it; anywhere if neither says anything."""
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
    found = _fit_within(state, request, view, level, DeadEnds(state, request), sparing=(True, False))
    return found or _reason(state, request, view, level)


def fit_anywhere(state: State, request: Request, view: int) -> Placement | Wait:
    """Place a group as the reference does (rules 6.6 to 6.9), or give the reason (rule 5.10)."""
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
    found = map_placement(state, request, leaves)
    if found is not None:
        return found
    if not request.explains:
        return Wait("")
    kind = "bad" if request.pod.spec.ignore_suggested_nodes else "bad or non-suggested"
    return Wait(
        f"Mapping the virtual placement would need to use at least one {kind} node"
        f" (virtual placement : {virtual_placement_text(state, leaves)})"
    )


def map_placement(state: State, request: Request, virtual: IntArray, within: int = NO_CELL) -> Placement | None:
    """Put physical cells behind a placement in the VC, with lazy preemption where allowed (rules 7, 7.9).

    None, with nothing changed, if there are none, also where a strained chain has too few (rules 4.5, 5.10).
    """
    pod = request.pod
    before = mark(state)
    lazy, preempted = lazy_groups_below(state, virtual), list[str]()
    state.last_plan = None
    if lazy:
        behind = state.cells.bound[state.arrays.root[virtual]]
        # kept for the event that carries the decision out, which must spare the same cells (rule 10.12)
        state.last_plan = (pod.spec.group.name, behind, virtual)
        preempted = preempt_lazily_for(state, lazy, behind, virtual, pod.spec.group.name)
    physical = np.empty(len(virtual), np.int32)
    if map_leaves(state.arrays, state.cells, virtual, request.suggested, request.ignore, within, physical):
        return Placement(physical, virtual, tuple(preempted))
    undo_changes(state, before)
    return None


def virtual_placement_text(state: State, virtual: IntArray) -> str:
    """`groups.virtual_placement` as compact JSON."""
    return json.dumps(virtual_placement(state, virtual), separators=(",", ":"), ensure_ascii=False)


def _fit_nearest(state: State, request: Request, view: int, lowest: int, *, packs: bool) -> Placement | Wait:
    """Place a group below one cell of the lowest level with room, else anywhere; both before preemption (rule 13.2)."""
    before, ends = mark(state), DeadEnds(state, request)
    for with_victims in (False, True):
        for level in range(lowest, chain_of_view(state, view).top_level + 1):
            near = _fit_packed(state, request, view, level, ends) if packs and not with_victims else None
            near = near or _fit_within(state, request, view, level, ends, sparing=(not with_victims,))
            if near is not None:
                return near
        found = fit_anywhere(state, request._replace(explains=with_victims and request.explains), view)
        if with_victims or (isinstance(found, Placement) and not has_victims(state, found.physical)):
            break
        undo_changes(state, before)
    return found


def _fit_within(
    state: State, request: Request, view: int, level: int, ends: DeadEnds, *, sparing: tuple[bool, ...]
) -> Placement | None:  # fmt: skip
    """Place a group below the cell of a level with fewest free leaves, but enough (rules 13.1, 13.3, 13.4).

    sparing : if no group may have to leave; the values are tried one after the other

    Preempting in the VC, cells with most free leaves come first: fewer have to leave. Of cells with equally many free,
    the one where fewest cells are broken comes first, as others may be promised them. Cost O(cells of the level +
    nodes of tried cells), and a mapping for each kind of cells with room in the VC but not behind it.
    """
    cells, free = cells_of(state, request, view, level)
    if len(cells) == 0:
        return None
    broken, ways, before = broken_above(state, cells, request.wanted), _ways(state, view, level), mark(state)
    attempts = _attempts(state, request)
    for spares in sparing:
        for attempt in attempts:
            is_preempting = attempt != attempts[0]
            if is_preempting and not _are_others_weaker(state, request, view):
                break
            order = np.lexsort((broken, -free if is_preempting else free))
            tried = cells[order if is_preempting else order[free[order] >= request.wanted]]
            search = _SearchBelow(state, request, view, tried, ways, attempt, spares, ends)
            while (found := search.next()) is not None:
                if not spares or not has_victims(state, found.physical):
                    return found
                undo_changes(state, before)
    return None


def _are_others_weaker(state: State, request: Request, view: int) -> bool:
    """True if the group's VC has users of lower priority in a view's chain, so that preemption may help.

    Cost O(leaves of the chain), in sweeps of an array.
    """
    arrays, cells = state.arrays, state.cells
    first = first_cell(state, view)
    leaf_level = int(arrays.chain_level[first] - arrays.level[first]) + 1
    base = int(arrays.level_base[leaf_level])
    priority = cells.priority[base : base + int(arrays.level_size[leaf_level])]
    is_weaker = (priority >= MIN_GUARANTEED_PRIORITY) & (priority < request.pod.spec.priority)
    return bool((arrays.vc[cells.bound[base + np.flatnonzero(is_weaker)]] == arrays.vc[first]).any())


def _attempts(state: State, request: Request) -> list[Attempt]:
    """Without preempting in the VC; then, if there are lower priorities, elastic groups, then any (rules 6.6, 15.1)."""
    priority = request.pod.spec.priority
    if priority <= MIN_GUARANTEED_PRIORITY:
        return [_WITHOUT_PREEMPTING]
    elastic: list[Attempt] = [(priority, True)] if state.elastic_group_count else []
    return [_WITHOUT_PREEMPTING, *elastic, (priority, False)]


def _fit_packed(state: State, request: Request, view: int, level: int, ends: DeadEnds) -> Placement | None:
    """Place a group without victims, below the cell of a level with fewest broken cells, then fewest free leaves (rule
    13.5).

    Of unused cells that would break as many cells above them, the first stands for all. Cost as
    `_fit_within`, and a mapping for each of `MOST_COMPARED` cells that have room.
    """
    cells, free = cells_of(state, request, view, level)
    broken = broken_above(state, cells, request.wanted)
    order = np.lexsort((free, broken))
    order = order[free[order] >= request.wanted]
    cells, broken = cells[order], broken[order]
    is_untouched = (state.cells.used[cells] == 0) & (state.cells.bad[cells] == 0)
    ways, before = _ways(state, view, level), mark(state)
    search = _SearchBelow(state, request, view, cells, ways, _WITHOUT_PREEMPTING, True, ends)
    best, fewest, compared = None, 0, 0
    while compared < MOST_COMPARED and (found := search.next()) is not None:
        position = search.position
        if best is not None and broken[position] >= fewest:
            break
        if not has_victims(state, found.physical):
            count = int(broken[position]) + broken_below(state, found.physical, level)
            if best is None or count < fewest:
                best, fewest = (cells[position : position + 1], search.way), count
            compared += 1
            search.leave_cell()
            if is_untouched[position]:
                search.pass_over(is_untouched & (broken == broken[position]))
        undo_changes(state, before)
    undo_changes(state, before)
    if best is None:
        return None
    again = _place(state, request, view, best[0], ways, best[1], _WITHOUT_PREEMPTING, True)
    return again[0] if again is not None else None


def _ways(state: State, view: int, level: int) -> IntArray:
    """The ways in which cells of a view can be below a cell of a level: the `root_level`s of `packing_below`."""
    arrays, first = state.arrays, first_cell(state, view)
    if arrays.vc[first] == NO_CELL or arrays.pinned[arrays.root[first]]:
        return np.zeros(1, np.int32)
    slot = int(arrays.vc[first]) * len(arrays.child_count) + int(arrays.chain_level[first] - arrays.level[first])
    top = chain_of_view(state, view).top_level
    return np.array([0, *(above for above in range(level, top + 1) if state.cells.vc_claims[slot + above])], np.int32)


class _SearchBelow:
    """Places a group below one of some physical cells after the other, and skips dead ends.

    `position` and `way` say where the last one was. Costs no sweep of the cells, unless some are passed over.
    """

    def __init__(
        self, state: State, request: Request, view: int, cells: IntArray, ways: IntArray, attempt: Attempt,
        spares: bool, ends: DeadEnds,
    ) -> None:  # fmt: skip
        self._place = partial(_place, state, request, view, attempt=attempt, spares=spares)
        self._cells, self._ways, self._ends, self._attempt = cells, ways, ends, attempt
        self.position = self.way = NO_CELL
        self._left, self._next = np.arange(len(cells)), 0  # positions, and the first of them that was not tried
        self._cells_left = cells
        self.pass_over(ends.among(cells, attempt))
        self._is_dead = False  # does the group fit in no way below the present cell, as far as they were tried?

    def next(self) -> Placement | None:
        """The next placement, none at the end; the changes of the one before must have been undone."""
        while True:
            placed = None
            if self.position != NO_CELL:
                own = slice(self.position, self.position + 1)
                placed = self._place(self._cells[own], self._ways, self.way + 1)
            if placed is None:
                self.leave_cell()
                placed = self._place(self._cells_left[self._next :], self._ways, 0)
                if placed is None:
                    return None
                self._next += placed[1] // len(self._ways) + 1
                self.position, self._is_dead = int(self._left[self._next - 1]), True
            found, combination = placed
            self.way = combination % len(self._ways)
            if found is not None:
                self._is_dead = False
                return found

    def leave_cell(self) -> None:
        """Continue with the next cell, without the other ways for this one."""
        if self.position != NO_CELL and self._is_dead:
            has_others = self._ends.note(int(self._cells[self.position]), self._attempt)
            if has_others:
                self.pass_over(self._ends.among(self._cells, self._attempt))
        self.position = NO_CELL

    def pass_over(self, is_out: BoolArray) -> None:
        """Skip these cells from now on."""
        left = self._left[self._next :]
        self._left, self._next = left[~is_out[left]], 0
        self._cells_left = self._cells[self._left]


def _place(
    state: State, request: Request, view: int, cells: IntArray, ways: IntArray, start: int, attempt: Attempt,
    spares: bool,
) -> tuple[Placement | None, int] | None:  # fmt: skip
    """Find the first combination of cell and way, from `start` on, with room in the view; returns outcome and
    combination.

    returns it with its outcome.
    """
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
    """Explain that no cell of a level has room, naming the one that has most."""
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
