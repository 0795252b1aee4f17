"""Counts of the cells of a view for a waiting request: free, in use, in pieces, bad or refused (rules 20.3, 20.4).

A cell is counted at the lowest level that holds the largest pod of the request. Cells that the VC is promised but does
not have count as well: as many of them as could be taken now are free, whichever hardware that is. The groups on the
leaves that the request would need are named (rule 20.5).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hived.cells.state import NO_GROUP, State
from hived.cells.topology import NO_CELL, BoolArray, Chain, IntArray, LongArray
from hived.cells.views import chain_of_view, first_cell
from hived.complete.capacity import Capacity
from hived.complete.owners import by_place
from hived.values.decisions import HoldingGroup
from hived.values.events import Offer
from hived.values.specs import MemberSpec, PodSpec, count_leaves, count_pods


@dataclass(frozen=True, slots=True)
class CellCount:
    """The cells of a level in a view: total == free + in_use + in_pieces + bad + refused. Leaves are leaf cells."""

    level: int
    asked: int
    total: int
    free: int
    in_use: int
    in_pieces: int
    bad: int
    refused: int
    free_leaves: int
    largest_fit: int


class ViewLeaves:
    """The leaves of a view's chain, as a request sees them."""

    def __init__(self, state: State, view: int, spec: PodSpec, offer: Offer | None) -> None:
        """Look at a view. Cost O(cells of the chain), in sweeps of arrays.

        Attributes, bool of shape (leaves of the chain,), of which the first is `first`:

        mine : in the view, be it below a cell that the VC has
        weaker : it is neither used nor reserved, or with less than the request's priority
        bad, on_bad_node : cannot be had; because of its node
        offered : Kubernetes offers the node to one of the largest pods, or will once others leave who have to
        """
        self.capacity = Capacity(state, view, spec.priority)
        self.chain, self._spec, self._state = chain_of_view(state, view), spec, state
        here, cells = self.capacity.shape.cells(1), state.cells
        self._is_within_row = _is_within_row(state, view, self.capacity)
        self.first = here.start
        self.mine = self.capacity.owners.mine(1)
        self.weaker = np.asarray(cells.priority[here] < spec.priority)
        self.bad = cells.bad[here] == 1
        self.node = state.arrays.node[here]
        self.on_bad_node = cells.node_bad[self.node] == 1
        self.offered = np.ones(len(self.bad), np.bool_)
        if offer is not None:
            largest = of_largest(offer, spec.group.members)
            self.offered = largest.nodes[0, self.node]
            if largest.after.any():
                self.offered |= largest.after[0, self.node] & (cells.using[here] != NO_GROUP)
        self.is_bad_anywhere, self.is_refused_anywhere = bool(self.bad.any()), not self.offered.all()

    @property
    def largest(self) -> int:
        """Leaves of the largest pod."""
        return self._spec.group.members[-1].leaf_cell_count

    @property
    def level(self) -> int:
        """The lowest level of which one cell holds the largest pod; that of nodes for pods that no node holds."""
        return level_for(self.chain, self.largest)

    def usable(self, *, heals: bool = False, offers: bool = False) -> BoolArray:
        """The leaves that the request may take: as they are, once bad hardware is healed, or all nodes are offered."""
        found = self.weaker
        if self.is_refused_anywhere and not offers:
            found = found & (self.offered | self.on_bad_node) if heals else found & self.offered
        return found & ~self.bad if self.is_bad_anywhere and not heals else found

    def count(self) -> CellCount:
        """The cells at `level`. Cost O(cells of the chain), in sweeps of arrays."""
        level, capacity = self.level, self.capacity
        span = self.chain.leaf_count(level)
        needed = min(self.largest, span)
        usable = self.usable()
        sums = by_place(usable, span).sum(axis=0)
        kinds = [sums >= needed]
        for heals, offers in ((True, False), (False, True), (True, True)):
            more = self.is_bad_anywhere * heals + self.is_refused_anywhere * offers
            mask = self.usable(heals=heals, offers=offers) if more else None
            kinds.append(kinds[0] if mask is None else by_place(mask, span).sum(axis=0) >= needed)
        is_free, is_healed, is_offered, is_both = kinds
        is_bad = ~is_free & (is_healed | (is_both & ~is_offered))
        is_refused = ~is_free & ~is_bad & is_offered
        is_rest = ~(is_free | is_bad | is_refused)
        mine = capacity.owners.mine(level)
        have = [int((each & mine).sum()) for each in (is_free, is_rest & (sums == 0), is_rest & (sums > 0), is_bad,
                                                      is_refused)]  # fmt: skip
        promised = self._promised(level)
        free, bad, refused = self._to_come(promised, level, kinds)
        rows = self._rows(usable)
        return CellCount(
            level=level, asked=cells_needed(self._spec.group.members, span), total=sum(have) + promised,
            free=have[0] + free, in_use=have[1] + promised - free - bad - refused, in_pieces=have[2],
            bad=have[3] + bad, refused=have[4] + refused,
            free_leaves=int((usable & self.mine).sum()) + (capacity.most_to_open(rows) if promised else 0),
            largest_fit=int((rows if self._is_within_row else rows[capacity.reachable()]).max(initial=0)),
        )  # fmt: skip

    def may_hold(self, *, heals: bool, offers: bool) -> bool:
        """Might the pods of each size by themselves have room, and all of them leaves? If not, they have no place."""
        rows = self._rows(self.usable(heals=heals, offers=offers))
        members = self._spec.group.members
        if self._most(rows) < count_leaves(members):
            return False
        if self._state.spec.virtual_clusters[self._spec.virtual_cluster].combines:  # a pod may take several rows
            return True
        return all(self._most(rows // member.leaf_cell_count) >= member.pod_count for member in members)

    def blockers(self) -> BoolArray:
        """The leaves of the view that others use or reserve, whom the request cannot evict."""
        return self.mine & ~self.weaker

    def _promised(self, level: int) -> int:
        """Return how many cells of a level the VC is promised and does not have."""
        capacity = self.capacity
        above = range(level, capacity.shape.top + 1)
        return sum(max(0, capacity.claims[each]) * capacity.shape.span(each, level) for each in above)

    def _to_come(self, promised: int, level: int, kinds: Sequence[BoolArray]) -> tuple[int, int, int]:
        """Of the cells that the VC does not have: how many are free, bad and refused."""
        if not promised:
            return 0, 0, 0
        known: dict[int, int] = {}
        for kind in kinds:
            if id(kind) not in known:
                known[id(kind)] = min(promised, self.capacity.most_to_open(self._cells_per_row(kind, level)))
        free, healed, offered, both = (known[id(kind)] for kind in kinds)
        refused = min(promised, offered) - free
        bad = min(promised - free - refused, max(healed - free, both - free - refused))
        return free, bad, refused

    def _cells_per_row(self, cells: BoolArray, level: int) -> LongArray:
        """Return how many of these cells of a level each row has."""
        capacity = self.capacity
        return np.concatenate(
            [
                by_place(cells, capacity.shape.span(own, level)).sum(axis=0) if own >= level
                else np.zeros(capacity.shape.size(own), np.int64)
                for own in capacity.levels
            ]
        )  # fmt: skip

    def _rows(self, leaves: BoolArray) -> LongArray:
        """Return how many of these leaves each row has; a view that is part of a row has one of its own."""
        return np.array([(leaves & self.mine).sum()]) if self._is_within_row else self._cells_per_row(leaves, 1)

    def _most(self, fits: LongArray) -> int:
        """Return how many pods can be placed at most, if `fits[row]` fit into a row."""
        return int(fits.sum()) if self._is_within_row else self.capacity.most(fits)


def _is_within_row(state: State, view: int, capacity: Capacity) -> bool:
    """Is it the view of a pinned cell that is smaller than a node-level cell?"""
    arrays = state.arrays
    root = int(arrays.root[first_cell(state, view)])
    return bool(capacity.is_guaranteed and arrays.pinned[root] and arrays.level[root] < capacity.shape.node_level)


def reach_of(state: State, view: int) -> int:
    """Leaves of the largest cell of a view, node-level or lower."""
    arrays = state.arrays
    alike = int(arrays.view_node_leaves[view])
    if alike:
        return alike
    here = arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]]
    return int(arrays.leaf_count[arrays.chain_level[here]].max(initial=0))


def leaves_of(state: State, view: int) -> int:
    """Leaves of all cells of a view."""
    arrays = state.arrays
    here = arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]]
    return int(arrays.leaf_count[arrays.chain_level[here]].sum())


def level_for(chain: Chain, leaves: int) -> int:
    """The lowest level of which one cell has so many leaves; at most that of nodes."""
    levels = range(1, chain.node_level)
    return next((level for level in levels if chain.leaf_count(level) >= leaves), chain.node_level)


def cells_needed(members: tuple[MemberSpec, ...], span: int) -> int:
    """Return how many cells with so many leaves hold these pods, larger pods first, each in the first cell that has
    room.

    A pod that is larger than a cell counts as the cells that it fills. Cost O(sizes x leaves of a cell).
    """
    total, room = 0, dict[int, int]()  # free leaves of a cell -> cells that have as many
    for member in reversed(members):
        left, size = member.pod_count, member.leaf_cell_count
        for free in sorted(free for free in room if free >= size):
            cells = room.pop(free)
            full = min(cells, left // (free // size))
            _add(room, free % size, full)
            left -= full * (free // size)
            cells -= full
            if cells and left:
                _add(room, free - left * size, 1)
                cells, left = cells - 1, 0
            _add(room, free, cells)
        each = span // size
        if not each:
            total += left * -(-size // span)
            continue
        _add(room, span - each * size, left // each)
        _add(room, span - left % each * size, int(left % each > 0))
        total += -(-left // each)
    return total


def of_largest(offer: Offer, members: tuple[MemberSpec, ...]) -> Offer:
    """An offer to one pod: the nodes offered to any of the largest pods of a group, without rules."""
    first = count_pods(members[:-1])
    return Offer(_any_row(offer.nodes[first:])[None], _any_row(offer.after[first:])[None])


def to_any(offer: Offer) -> Offer:
    """An offer to each pod of all nodes that are offered to any pod of the group, without rules."""
    nodes, after = _any_row(offer.nodes), _any_row(offer.after)
    return Offer(np.broadcast_to(nodes, offer.nodes.shape), np.broadcast_to(after, offer.after.shape))


def _any_row(rows: BoolArray) -> BoolArray:
    return rows[0] if len(rows) == 1 or rows.strides[0] == 0 else np.asarray(rows.any(axis=0))


def _add(room: dict[int, int], free: int, cells: int) -> None:
    if cells and free:
        room[free] = room.get(free, 0) + cells


MOST_HOLDERS = 8
"""So many groups are named."""


def holders_of(state: State, first: int, is_held: BoolArray) -> IntArray:
    """The number of the group that holds each of some leaves, from `first` on; NO_GROUP elsewhere.

    A leaf that is reserved counts for the group that reserves it, whoever still uses it.
    """
    here, cells = slice(first, first + len(is_held)), state.cells
    reserving = cells.reserving[here]
    held = np.where(reserving != NO_GROUP, reserving, cells.using[here])
    return np.where(is_held, held, np.int32(NO_GROUP))


def name_holders(state: State, first: int, held: IntArray) -> tuple[tuple[HoldingGroup, ...], int]:
    """The groups with most leaves, most first, then by number, and how many more there are.

    held : as of `holders_of`. Cost O(leaves x log leaves)
    """
    numbers, counts = np.unique(held[held != NO_GROUP], return_counts=True)
    named = numbers[np.lexsort((numbers, -counts))][:MOST_HOLDERS]
    found = []
    for number in named.tolist():
        group = state.group_by_number[number]
        own = group.physical[group.physical != NO_CELL]
        own = own[held[own - first] == number]
        found.append(HoldingGroup(group.name, group.priority, group.vc, group.virtual is None, tuple(own.tolist())))
    return tuple(found), len(numbers) - len(found)
