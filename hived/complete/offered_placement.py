"""Places a group anywhere in its VC and on the hardware that Kubernetes' offer allows, if it allows any.

Tries are ordered by the loss of others, as in a search without an offer (rule 12.7): idle cells; cells lent to
opportunistic pods; cells of elastic groups of lower priority; cells of groups that are preempted lazily, as few as
possible; cells of all lower priorities. A wish to be near together is tried level by level within each of these. The
leaves are found first; the virtual cells behind them follow, and a decision that is carried out finds them again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from hived.cells.journal import mark, undo_changes
from hived.cells.state import NO_GROUP, Group, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray
from hived.cells.views import chain_of_view
from hived.complete.assignment import Assignment, Place, Tries
from hived.complete.capacity import ELASTIC, IDLE, LENT, LENT_ELASTIC, LOWER, Capacity
from hived.complete.domains import Domains
from hived.complete.pod_classes import PodClass, find_pod_classes
from hived.hived_rules.packing import Request, broken_above, cells_of
from hived.hived_rules.placement import Placement
from hived.life.preemption import preempt_lazily_for
from hived.life.virtual_leaves import choose_virtual
from hived.values.errors import InvariantError, UserError
from hived.values.events import Offer
from hived.values.specs import MIN_GUARANTEED_PRIORITY, Rules, count_pods, sizes_of

_ANYWHERE = 0  # in place of a level
_NO_RANK = -1


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A group, the view it is to be placed in, and Kubernetes' offer for it."""

    request: Request
    view: int
    offer: Offer
    classes: list[PodClass]
    tries: Tries


def fit_offered(state: State, request: Request, view: int, offer: Offer, tries: Tries) -> Placement | None:
    """A placement in one view that the offer allows; none if there is none, or if the tries are over.

    Runs while the journal records; groups that are preempted lazily have left their VC afterwards. Cost O(cells of the
    chain) in sweeps of arrays, then that of `Domains.masks` and `Assignment.find` for each of the steps of preemption.
    """
    problem = Problem(request, view, offer, find_pod_classes(request.pod.spec.group.members, offer), tries)
    priority = request.pod.spec.priority
    capacity, last = Capacity(state, view, priority), _NO_RANK
    for rank in _ranks(state, request):
        found = _fit(state, problem, capacity, rank) if _are_more(state, capacity, last, rank) else None
        if found is not None:
            return found
        last = rank
    if priority <= MIN_GUARANTEED_PRIORITY:
        return None
    return (
        _fit_beside_lazy(state, problem, LENT)
        or (_fit(state, problem, capacity, LOWER) if _are_more(state, capacity, last, LOWER) else None)
        or _fit_beside_lazy(state, problem, LOWER)
    )


def _are_more(state: State, capacity: Capacity, last: int, rank: int) -> bool:
    """True if a view has leaves above the last rank, up to the next.

    without any, a search ends as the one before (rules 19).
    """
    is_new = (capacity.rank > last) & (capacity.rank <= rank)
    return state.spec.rules is Rules.HIVED or last == _NO_RANK or bool(is_new.any())


def fit_idle(
    state: State, request: Request, view: int, tries: Tries, *, offer: Offer | None = None, keeps_good: bool = False
) -> Placement | None:
    """Place a group in one view on cells that are unused, not lent and not reserved; as near together as possible.

    offer : that of Kubernetes; None if the request says which nodes will do
    keeps_good : leave good cells for as many claims as now (rule 18.7)

    Complete but for the bound on tries (rule 12.8). Cost as `fit_offered`, of one step.
    """
    offer = offer or offer_to_all(state, request)
    problem = Problem(request, view, offer, find_pod_classes(request.pod.spec.group.members, offer), tries)
    return _fit(state, problem, Capacity(state, view, request.pod.spec.priority, keeps_good=keeps_good), IDLE)


def offer_to_all(state: State, request: Request) -> Offer:
    """The suggested nodes, or all, as an offer to each pod; all rows are one piece of memory."""
    nodes = len(state.topology.node_names)
    slots = count_pods(request.pod.spec.group.members)
    mask = np.ones(nodes, np.bool_) if request.ignore else request.suggested
    return Offer(np.broadcast_to(mask, (slots, nodes)), np.broadcast_to(np.zeros(nodes, np.bool_), (slots, nodes)))


def _ranks(state: State, request: Request) -> list[int]:
    """The leaves to take, by rank, before any group is preempted in the VC that is not elastic."""
    if not request.is_guaranteed:
        return [IDLE]
    has_elastic = state.elastic_group_count > 0
    more = [ELASTIC] if has_elastic and request.pod.spec.priority > MIN_GUARANTEED_PRIORITY else []
    return [IDLE, *([LENT_ELASTIC] if has_elastic else []), LENT, *more]


def _fit_beside_lazy(state: State, problem: Problem, rank: int) -> Placement | None:
    """Preempt as few groups lazily as possible, lowest priority and youngest first, and place the group."""
    groups = _lazy_groups(state, problem)
    before, name = mark(state), problem.request.pod.spec.group.name
    nothing = np.zeros(0, np.int32)

    def fit_after(count: int) -> Placement | None:
        preempt_lazily_for(state, groups[:count], nothing, nothing, name)
        capacity = Capacity(state, problem.view, problem.request.pod.spec.priority)
        found = _fit(state, problem, capacity, rank)
        if found is None:
            undo_changes(state, before)
        return found

    if not groups or fit_after(len(groups)) is None:
        return None
    low, high = 0, len(groups)  # too few, enough
    while high - low > 1:
        undo_changes(state, before)
        middle = (low + high) // 2
        low, high = (low, middle) if fit_after(middle) is not None else (middle, high)
    undo_changes(state, before)
    found = fit_after(high)
    if found is None:
        return None
    state.last_plan = None  # the event that carries this out reads what to spare from the bind info
    return replace(found, lazily_preempted=tuple(group.name for group in groups[:high]))


def _lazy_groups(state: State, problem: Problem) -> list[Group]:
    """Groups of lower priority that would leave this view and keep their cells, in the order of leaving."""
    spec = problem.request.pod.spec
    vc, chain = state.vc_number(spec.virtual_cluster), chain_of_view(state, problem.view)
    found = []
    for group in state.groups.values() if state.lazy_group_count else ():
        if not group.spec.lazy_preemption or group.virtual is None or group.vc != vc or group.priority >= spec.priority:
            continue
        leaf = next((leaf for leaf in group.physical.tolist() if leaf != NO_CELL), NO_CELL)
        is_here = leaf != NO_CELL and state.topology.chain_of(leaf) is chain
        if is_here and group.spec.pinned_cell_id == spec.pinned_cell_id:
            found.append(group)
    return sorted(found, key=lambda group: (group.priority, -group.number))


def _fit(state: State, problem: Problem, capacity: Capacity, rank: int) -> Placement | None:
    """Place a group on leaves up to a rank, as near together as it wishes or its VC has it."""
    capacity.take_up_to(rank)
    nodes = problem.offer.nodes[[alike.slots[0] for alike in problem.classes]][:, capacity.node]
    after = problem.offer.after[[alike.slots[0] for alike in problem.classes]][:, capacity.node] & capacity.evicts
    domains = Domains(capacity, problem.classes, problem.offer, problem.tries.domains)
    fits = [] if domains.has_rules else _fits_of_classes(problem, capacity, nodes | after)
    for level in _levels(state, problem):
        for area in _areas(state, problem, capacity, level, fits):
            for within in domains.masks((nodes | after) & area):
                search = Assignment(
                    capacity, problem.classes, problem.offer, within, nodes & within, problem.tries.pods
                )
                places = search.find(proves=state.spec.rules is Rules.BETTER)
                if places is not None:
                    return _take_leaves(state, problem, capacity, rank, places)
    return None


def _levels(state: State, problem: Problem) -> Iterator[int]:
    """The levels to try, below one cell of which the group shall be; `_ANYWHERE` for the whole view.

    A group for one cell below node level was searched for there already, with the nodes that all may use.
    """
    spec, chain = problem.request.pod.spec, chain_of_view(state, problem.view)
    if spec.within_cell or not spec.within_is_required:
        lowest = chain.type_levels.get(spec.within_cell, 0) if spec.within_cell else chain.node_level
        if spec.within_is_required:
            levels = [lowest] if lowest >= chain.node_level else []
        else:
            levels = [*range(max(lowest, chain.node_level), chain.top_level + 1), _ANYWHERE] if lowest else []
    elif state.spec.rules is Rules.BETTER or state.spec.virtual_clusters[spec.virtual_cluster].packs_by_topology:
        levels = [*range(chain.node_level, chain.top_level + 1), _ANYWHERE]
    else:
        levels = [_ANYWHERE]
    yield from levels


def _fits_of_classes(problem: Problem, capacity: Capacity, allowed: BoolArray) -> list[LongArray]:
    """Count the pods of each class that each row has room for by itself.

    allowed : shape (classes, rows)
    """
    room = np.where(capacity.reachable(), capacity.room, 0)
    return [
        np.where(own, room // alike.size, 0) for alike, own in zip(problem.classes, allowed, strict=True)
    ]  # fmt: skip


def _areas(
    state: State, problem: Problem, capacity: Capacity, level: int, fits: list[LongArray]
) -> Iterator[BoolArray]:
    """Yield masks of the rows below each cell of a level that may have room, the best cell first.

    fits : for some classes, how many of its pods each row has room for; a cell needs room for all of them
    """
    if level == _ANYWHERE:
        if all(int(own.sum()) >= len(alike.slots) for own, alike in zip(fits, problem.classes, strict=False)):
            yield np.ones(len(capacity.node), np.bool_)
        return
    cells, free = cells_of(state, problem.request, problem.view, level)
    if len(cells) == 0:
        return
    place = (capacity.first_leaf - capacity.shape.base(1)) // capacity.shape.span(level, 1)
    has_room = _sums(place, capacity.room) >= problem.request.wanted
    for own, alike in zip(fits, problem.classes, strict=False):
        has_room &= _sums(place, own) >= len(alike.slots)
    broken = broken_above(state, cells, problem.request.wanted)
    has_wish = bool(problem.request.pod.spec.within_cell)
    order = np.lexsort((broken, free) if has_wish else (free, broken))
    places = cells[order] - capacity.shape.base(level)
    for own_place in places[has_room[places]].tolist():
        yield place == own_place


def _sums(place: IntArray, values: LongArray) -> LongArray:
    """The sum of some numbers by place; exact, as they are small."""
    return np.bincount(place, values).astype(np.int64)


def _take_leaves(state: State, problem: Problem, capacity: Capacity, rank: int, places: list[Place]) -> Placement:
    """Pick the leaves of each pod, and the virtual cells behind them."""
    members = problem.request.pod.spec.group.members
    sizes = sizes_of(members)
    by_row: dict[int, list[int]] = {}
    for slot, place in enumerate(places):
        by_row.setdefault(place.row, []).append(slot)
    leaves: list[list[int]] = [[]] * len(sizes)
    for row, slots in by_row.items():
        node = int(capacity.node[row])
        must_evict = next((slot for slot in slots if not problem.offer.nodes[slot, node]), None)
        picker = _Leaves(state, capacity, row, rank)
        for slot in sorted(slots, key=lambda slot: (slot != must_evict, -sizes[slot])):
            leaves[slot] = picker.pick(sizes[slot], evicts=slot == must_evict)
    physical = np.array([leaf for own in leaves for leaf in own], np.int32)
    if not problem.request.is_guaranteed:
        return Placement(physical, None)
    levels = [int(capacity.root_level[places[slot].row]) for slot, size in enumerate(sizes) for _ in range(size)]
    try:
        virtual = choose_virtual(state, problem.request.pod.spec, physical, np.array(levels, np.int32))
    except UserError as error:
        raise InvariantError(f"a place was found that the VC cannot have: {error.message}") from error
    return Placement(physical, virtual)


class _Leaves:
    """The leaves of one row that may be taken, given to one pod after the other (rules 6.10, 6.11)."""

    def __init__(self, state: State, capacity: Capacity, row: int, rank: int) -> None:
        self._state, self._cell = state, int(capacity.cell[row])
        first, span = int(capacity.first_leaf[row]), capacity.shape.span(int(capacity.level[row]), 1)
        ranks = capacity.rank[first - capacity.shape.base(1) : first - capacity.shape.base(1) + span].tolist()
        self._rank = {first + place: own for place, own in enumerate(ranks) if own <= rank}
        self._idle = sum(own == IDLE for own in self._rank.values())

    def pick(self, wanted: int, *, evicts: bool) -> list[int]:
        """Pick leaves as low in the tree as possible together.

        used ones only if necessary, or one if the pod `evicts`.
        """
        using = self._state.cells.using
        needed = self._best(lambda leaf: using[leaf] != NO_GROUP) if evicts else NO_CELL
        spares = not evicts and self._idle >= wanted
        usable = [leaf for leaf, rank in self._rank.items() if not spares or rank == IDLE]
        chosen = usable if len(usable) == wanted else self._lowest_together(usable, wanted, needed)
        for leaf in chosen:
            self._idle -= self._rank.pop(leaf) == IDLE
        return sorted(chosen)

    def _best(self, is_wanted: Callable[[int], bool]) -> int:
        return min((leaf for leaf in self._rank if is_wanted(leaf)), key=lambda leaf: (self._rank[leaf], leaf))

    def _lowest_together(self, usable: list[int], wanted: int, needed: int) -> list[int]:
        """The first of the lowest cells that has enough of them, and the needed one; its leaves of lowest rank."""
        arrays = self._state.arrays
        for level in range(1, int(arrays.level[self._cell]) + 1):
            span = int(arrays.leaf_count[arrays.chain_level[self._cell] - arrays.level[self._cell] + level])
            by_cell: dict[int, list[int]] = {}
            for leaf in usable:
                by_cell.setdefault((leaf - int(arrays.first_leaf[self._cell])) // span, []).append(leaf)
            found = [
                sorted(own, key=lambda leaf: (leaf != needed, self._rank[leaf], leaf))[:wanted]
                for own in by_cell.values()
                if len(own) >= wanted and (needed == NO_CELL or needed in own)
            ]
            if found:
                return min(found, key=lambda own: ([self._rank[leaf] for leaf in own], own))
        raise InvariantError("a row has fewer leaves than were counted")
