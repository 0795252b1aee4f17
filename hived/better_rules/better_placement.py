"""Places a new group in one view under better rules: the VC's own choice of cells, then the hardware (rules 18).

The cells of a VC are chosen by its own state alone, as it would be in a private cluster: that is the guarantee (rule
18.5). The hardware behind them is chosen without preemption if possible, then near together. The VC's key `placement`
is ignored (rule 18.10).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from hived.better_rules.close_mapping import map_closely
from hived.better_rules.close_packing import pack_closely
from hived.better_rules.like_cells import like_choices
from hived.better_rules.victim_choice import Candidates, candidates_among, choose_victims
from hived.cells.journal import mark, undo_changes
from hived.cells.state import NO_GROUP, State
from hived.cells.topology import NO_CELL, IntArray
from hived.cells.views import chain_of_view, first_cell, forget_moves
from hived.complete.assignment import Tries
from hived.complete.offered_placement import fit_idle
from hived.hived_rules.packing import Request
from hived.hived_rules.placement import Placement, fit_anywhere, fit_in_view, no_capacity
from hived.life.preassigned import release_idle_doomed
from hived.life.preemption import lazy_groups_below, preempt_lazily_for
from hived.life.victims import has_victims
from hived.values.decisions import Wait
from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY

_NOBODY = np.zeros(0, np.int32)
_ANYWHERE = 0  # in place of a level


def fit_better(state: State, request: Request, view: int) -> Placement | Wait:
    """Place a group in one view, or give the reason; replaces `placement.fit_in_view` under `rules: 2`."""
    spec = request.pod.spec
    if spec.beside:
        forget_moves(state.arrays, state.cells, view)
        return fit_in_view(state, request, view)
    if not spec.within_cell or not spec.within_is_required:
        is_wish = bool(spec.within_cell) or not spec.within_is_required
        found = _fit(state, request, view, _ANYWHERE, _ANYWHERE)
        return found or _fit_otherwise(state, request, view, fit_in_view if is_wish else fit_anywhere)
    level = chain_of_view(state, view).type_levels.get(spec.within_cell, 0)
    for own_level in (level, _ANYWHERE) if level else ():
        found = _fit(state, request, view, own_level, level)
        if found is not None:
            return found
    return _fit_otherwise(state, request, view, fit_in_view)


def _fit_otherwise(
    state: State, request: Request, view: int, fit: Callable[[State, Request, int], Placement | Wait]
) -> Placement | Wait:
    """Place a group whose own choice has no hardware, as with bad nodes: as the reference does, or anywhere without
    victims.

    The private cluster would not have it either, so there is nothing to keep to. Equal nodes keep their
    initial order (rule 6.2), so that earlier requests have no part in it.
    """
    if fit is fit_anywhere and len(request.sizes) == 1:
        before, full = mark(state), no_capacity(request)
        if fit(state, request._replace(explains=False), view) == full:
            return full  # in any order of nodes
        undo_changes(state, before)
    forget_moves(state.arrays, state.cells, view)
    found = fit(state, request, view)
    if isinstance(found, Wait) or found.lazily_preempted or not has_victims(state, found.physical):
        return found
    return fit_idle(state, request, view, Tries()) or found


def _fit(state: State, request: Request, view: int, own_level: int, level: int) -> Placement | None:
    """Place a group below one cell of the view, and below one physical cell, of these levels at most; or anywhere."""
    if not request.is_guaranteed:
        leaves = _pack(state, request, view, level, _NOBODY)
        return None if leaves is None else Placement(leaves, None)
    before = mark(state)
    virtual, gave_up = _own_choice(state, request, view, own_level)
    own = None if virtual is None else _map(state, request, virtual, level, gave_up=gave_up)
    if not state.spec.virtual_clusters[request.pod.spec.virtual_cluster].spares:
        return own
    if own is not None and not own.lazily_preempted and not has_victims(state, own.physical):
        return own
    undo_changes(state, before)
    found = fit_idle(state, request, view, Tries(), keeps_good=True)
    if found is None and virtual is not None:
        found = _map(state, request, virtual, level, gave_up=gave_up)
    if found is None and _has_bad(state, first_cell(state, view)):
        found = fit_idle(state, request, view, Tries())
    return found


def map_chosen(state: State, request: Request, virtual: IntArray, level: int) -> Placement | None:
    """Find hardware behind free virtual leaves, below one physical cell of this level unless it is 0.

    None, with nothing changed, if there is none.
    """
    return _map(state, request, virtual, level, gave_up=False)


def _pack(state: State, request: Request, view: int, level: int, pardoned: IntArray) -> IntArray | None:
    """Pack a group onto leaves of a view that are free or pardoned."""
    if request.wanted > state.topology.view_leaf_counts[view]:
        return None
    leaves = np.empty(request.wanted, np.int32)
    is_found = pack_closely(
        state.arrays, state.cells, view, request.sizes, request.counts, request.suggested, request.ignore, level,
        pardoned, leaves,
    )  # fmt: skip
    return leaves if is_found else None


def _own_choice(state: State, request: Request, view: int, level: int) -> tuple[IntArray | None, bool]:
    """Choose the virtual leaves that a VC would take in a private cluster; tell if the search for victims gave up.

    Lower priorities of the VC are preempted only if necessary, least lost work first (rule 18.9).
    """
    leaves = _pack(state, request, view, level, _NOBODY)
    if leaves is not None or request.pod.spec.priority <= MIN_GUARANTEED_PRIORITY:
        return leaves, False
    lower = _own_candidates(state, request, view)
    found = choose_victims(
        lower, lambda more: _pack(state, request, view, level, more), lower.most_sets(request.wanted)
    )
    return (None, False) if found is None else (found.taken, found.gave_up)


def _own_candidates(state: State, request: Request, view: int) -> Candidates:
    """The groups of lower priority in a view, with their virtual leaves. Cost O(leaves of the VC), in numpy."""
    arrays, cells = state.arrays, state.cells
    nodes = arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]]
    spans = arrays.leaf_count[arrays.chain_level[nodes]]
    ends = np.cumsum(spans)
    leaves = (np.repeat(arrays.first_leaf[nodes] - ends + spans, spans) + np.arange(ends[-1])).astype(np.int32)
    leaves = leaves[(cells.priority[leaves] > FREE_PRIORITY) & (cells.priority[leaves] < request.pod.spec.priority)]
    physical = cells.bound[leaves]
    reserving = cells.reserving[physical]
    holders = np.where(reserving != NO_GROUP, reserving, cells.using[physical])
    return candidates_among(state, physical, holders, leaves, int(ends[-1]))


def _map(state: State, request: Request, virtual: IntArray, level: int, *, gave_up: bool) -> Placement | None:
    """Find hardware behind virtual leaves, as `_map_among`; new preassigned cells are sound if such cells exist.

    They have no bad leaf, and leave good cells for all claims: the VC and others will need all of their leaves, and
    would have healthy ones in private clusters (rule 18.7).
    """
    if _has_bad(state, int(virtual[0])) and _may_take_new(state, virtual):
        found = _map_among(state, request._replace(is_sound=True), virtual, level, gave_up=gave_up)
        if found is not None:
            return found
    return _map_among(state, request, virtual, level, gave_up=gave_up)


def _may_take_new(state: State, virtual: IntArray) -> bool:
    """True if any of these leaves may need a new preassigned cell, as lazily preempted groups can keep the old one."""
    is_unbound = state.cells.bound[state.arrays.root[virtual]] == NO_CELL
    return bool(is_unbound.any()) or bool(lazy_groups_below(state, virtual))


def _has_bad(state: State, cell: int) -> bool:
    """True if any leaf in the chain of a cell is bad. Cost O(top cells)."""
    arrays, cells = state.arrays, state.cells
    chain = int(arrays.chain_of_level[arrays.chain_level[cell]])
    top = int(arrays.level_offset[chain] + arrays.top_level[chain])
    base = int(arrays.level_base[top])
    return bool(cells.lost_total[chain] or cells.bad[base : base + int(arrays.level_size[top])].any())


def _map_among(state: State, request: Request, virtual: IntArray, level: int, *, gave_up: bool) -> Placement | None:
    """Find hardware behind virtual leaves, below one physical cell of a level at most; None, with nothing changed, if
    none.

    Groups that leave lazily do so first (rule 8.7). Then a place without victims is tried, then the least loss. A VC
    that is sparing also takes other virtual leaves that are like these.
    """
    before, pod = mark(state), request.pod
    lazy, preempted = lazy_groups_below(state, virtual), list[str]()
    state.last_plan = None
    if lazy:
        behind = state.cells.bound[state.arrays.root[virtual]]
        state.last_plan = (pod.spec.group.name, behind, virtual)
        preempted = preempt_lazily_for(state, lazy, behind, virtual, pod.spec.group.name)
    physical = _hardware(state, request, virtual, level, _NOBODY)
    if physical is not None:
        return Placement(physical, virtual, tuple(preempted), gave_up)
    spares = state.spec.virtual_clusters[pod.spec.virtual_cluster].spares
    likes = like_choices(state, virtual) if spares and not lazy else []
    for other in likes:
        physical = _hardware(state, request, other, level, _NOBODY)
        if physical is not None:
            return Placement(physical, other, (), gave_up)
    found = _with_victims(state, request, [virtual, *likes], level)
    if found is None:
        undo_changes(state, before)
        return None
    if not lazy and (other_hardware := _without_doomed(state, request, found, level)) is not None:
        return Placement(other_hardware, found.virtual, (), gave_up)
    return replace(found, lazily_preempted=tuple(preempted), gave_up=gave_up or found.gave_up)


def _without_doomed(state: State, request: Request, found: Placement, level: int) -> IntArray | None:
    """Find hardware without victims behind the virtual leaves of a placement with victims; None if there is none.

    There is none, and nothing changes, unless idle doomed cells are in the way and as much of it is healthy. Doomed
    cells only show bad hardware, and any bad cell does that. Carrying it out releases the ones in the way (rules 18.6,
    19.3). Costs nothing where no cell is doomed.
    """
    assert found.virtual is not None
    chain = int(state.arrays.chain_of_level[state.arrays.chain_level[found.virtual[0]]])
    before = mark(state)
    if not release_idle_doomed(state.arrays, state.cells, chain):
        return None
    physical = _hardware(state, request, found.virtual, level, _NOBODY)
    if physical is not None:
        was_bad = _bad_beside(state, found.virtual, found.physical)
        if _bad_beside(state, found.virtual, physical) <= was_bad:
            return physical
    undo_changes(state, before)
    return None


def _bad_beside(state: State, virtual: IntArray, physical: IntArray) -> int:
    """Count the bad leaves below the physical cells that would be behind the preassigned cells of some leaves."""
    arrays, cells, roots = state.arrays, state.cells, set[int]()
    for leaf, own in zip(virtual.tolist(), physical.tolist(), strict=True):
        root = own
        for _ in range(int(arrays.level[arrays.root[leaf]]) - 1):
            root = int(arrays.parent[root])
        roots.add(root)
    spans = [(int(arrays.first_leaf[root]), int(arrays.leaf_count[arrays.chain_level[root]])) for root in roots]
    return sum(int(cells.bad[first : first + span].sum()) for first, span in spans)


def _hardware(
    state: State, request: Request, virtual: IntArray, level: int, pardoned: IntArray
) -> IntArray | None:  # fmt: skip
    """Find unused or pardoned physical leaves behind virtual ones."""
    physical = np.empty(len(virtual), np.int32)
    is_found = map_closely(
        state.arrays,
        state.cells,
        virtual,
        request.suggested,
        request.ignore,
        level,
        request.is_sound,
        pardoned,
        physical,
    )
    return physical if is_found else None


def _with_victims(state: State, request: Request, choices: list[IntArray], level: int) -> Placement | None:
    """Choose virtual leaves, and hardware behind them, where opportunistic groups lose least (rule 18.9)."""
    lent = _lent(state, int(choices[0][0]))
    best, least, gave_up, left = None, None, False, lent.most_sets(request.wanted)
    for virtual in choices:
        found = choose_victims(lent, partial(_hardware, state, request, virtual, level), left)
        if found is None:
            continue
        gave_up, left = gave_up or found.gave_up, found.left
        if least is None or found.cost < least:
            best, least = Placement(found.taken, virtual), found.cost
    return None if best is None else replace(best, gave_up=gave_up)


def _lent(state: State, cell: int) -> Candidates:
    """The opportunistic groups on the hardware of a cell's chain. Cost O(leaves of the chain), in numpy."""
    arrays, cells = state.arrays, state.cells
    leaf_level = int(arrays.level_offset[arrays.chain_of_level[arrays.chain_level[cell]]]) + 1
    base = int(arrays.level_base[leaf_level])
    priority = cells.priority[base : base + int(arrays.level_size[leaf_level])]
    leaves = (base + np.flatnonzero(priority == OPPORTUNISTIC_PRIORITY)).astype(np.int32)
    return candidates_among(state, leaves, cells.using[leaves], leaves, len(priority), are_lent=True)
