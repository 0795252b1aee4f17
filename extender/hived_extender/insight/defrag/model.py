"""A puzzle from a state: the bins, movers and spots of one virtual cluster in one cell chain."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from hived.cells.state import Group, GroupState, State
from hived.cells.topology import NO_CELL, BoolArray, Chain, IntArray, LongArray
from hived.cells.views import chain_of_view
from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY
from hived_extender.insight.defrag.puzzle import NO_BINS, Kind, Mover, Puzzle, Shape, Spot, cost_of

NO_BIN = -1


Refused = Mapping[str, Mapping[int, frozenset[int]]]
"""By job and size of pods, the nodes that Kubernetes' rules keep its pods from, by number."""


class Allowed(msgspec.Struct, frozen=True):
    """A group that may be moved: leaf-seconds that this loses, and the gang of another dialect that goes with it.

    `refused` are the nodes that the pod of each slot may not come to, by number; empty if there are none.
    """

    lost: int
    gang: str = ""
    refused: tuple[frozenset[int], ...] = ()


class View:
    """One virtual cluster's cells in one chain, without those that are pinned; or one pinned cell.

    `bins` are its candidate nodes; positions in it are the bins of a puzzle.
    """

    def __init__(self, state: State, view: int) -> None:
        """Cost O(cells)."""
        arrays = state.arrays
        self.state, self.view = state, view
        self.chain: Chain = chain_of_view(state, view)
        self.bins: IntArray = arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]]
        self.vc = int(arrays.vc[self.bins[0]])
        self.behind: IntArray = state.cells.bound[self.bins]
        self._bin_of = np.full(len(arrays.parent), NO_BIN, np.int32)
        self._bin_of[self.bins] = np.arange(len(self.bins))
        is_bound = self.behind != NO_CELL
        self._bin_of[self.behind[is_bound]] = np.flatnonzero(is_bound)
        self.leaf_count: IntArray = arrays.leaf_count[arrays.chain_level[self.bins]]

    def bins_of(self, leaves: IntArray) -> IntArray:
        """The bin of each leaf, virtual or physical; NO_BIN for leaves of others. Cost O(leaves x height)."""
        parent, cells = self.state.arrays.parent, leaves.copy()
        found = self._bin_of[cells]
        while True:
            lost = np.flatnonzero((found == NO_BIN) & (cells != NO_CELL))
            if not len(lost):
                return found
            cells[lost] = parent[cells[lost]]
            above = lost[cells[lost] != NO_CELL]
            found[above] = self._bin_of[cells[above]]

    def capacity(self) -> LongArray:
        """Leaves of each bin that can be had: those that are healthy, as far as the hardware is known."""
        arrays, bad = self.state.arrays, self.state.cells.bad
        found = self.leaf_count.astype(np.int64)
        for bin_ in np.flatnonzero(self.behind != NO_CELL).tolist():
            cell = self.behind[bin_]
            if bad[cell]:
                first = int(arrays.first_leaf[cell])
                found[bin_] -= int(bad[first : first + int(self.leaf_count[bin_])].sum())
        return found

    def bins_on(self, nodes: frozenset[int]) -> frozenset[int]:
        """The bins of which the hardware is known to be on some nodes."""
        if not nodes:
            return NO_BINS
        bound = np.flatnonzero(self.behind != NO_CELL)
        found = np.isin(self.state.arrays.node[self.behind[bound]], sorted(nodes))
        return frozenset(bound[found].tolist())

    def above(self, level: int) -> IntArray:
        """The virtual cell of a level above each bin, the bin itself at its own; NO_CELL where there is none."""
        arrays, cells = self.state.arrays, self.bins.copy()
        while (lower := (cells != NO_CELL) & (arrays.level[cells] < level)).any():
            cells[lower] = arrays.parent[cells[lower]]
        cells[arrays.level[self.bins] > level] = NO_CELL
        return cells


def make_puzzle(
    view: View, allowed: Mapping[str, Allowed], shapes: Sequence[Shape], refused: Refused | None = None
) -> Puzzle:
    """The puzzle of these shapes. `allowed` are the groups that may move, by name; `refused` is about jobs that are
    wanted. Cost O(cells + leaves of groups).
    """
    state = view.state
    own, guests = _groups_in(view)
    movers = [_mover(view, [state.groups[name] for name in names], allowed) for names in _movable(view, own, allowed)]
    movers = [mover for mover in movers if mover.has_elsewhere(len(view.bins))]
    gone = {name for mover in movers for name in mover.names}
    fixed = _leaves_of(view, [group for group in own if group.name not in gone])
    fixed_bins = view.bins_of(fixed)
    is_healthy = state.cells.bad[fixed] == 0
    amounts = np.bincount(fixed_bins[is_healthy], minlength=len(view.bins))
    lent = np.zeros(len(view.bins), np.int64)
    for group in guests:
        counts = _guest_bins(view, group)
        if group.name in allowed and group.state is GroupState.ALLOCATED and not allowed[group.name].gang:
            pods = tuple(sorted(counts.items()))
            movers.append(Mover((group.name,), pods, cost_of(allowed[group.name].lost, 1), is_guest=True))
        else:
            for bin_, count in counts.items():
                lent[bin_] += count
    capacity = view.capacity()
    taken = _Taken(view, fixed, movers, capacity)
    return Puzzle(
        tuple(capacity.tolist()),
        tuple(amounts.tolist()),
        tuple(lent.tolist()),
        tuple(state.arrays.parent[view.bins].tolist()),
        tuple(movers),
        tuple(_kind(view, taken, shape, count, (refused or {}).get(shape.job, {})) for shape, count in _alike(shapes)),
    )


def _groups_in(view: View) -> tuple[list[Group], list[Group]]:
    """The groups that have cells of a view, and those that use the hardware behind it opportunistically."""
    own, guests = [], []
    for group in view.state.groups.values():
        if group.virtual is not None:
            if group.vc == view.vc and (view.bins_of(group.virtual[group.virtual != NO_CELL][:1]) != NO_BIN).any():
                own.append(group)
        elif (view.bins_of(group.physical[group.physical != NO_CELL]) != NO_BIN).any():
            guests.append(group)
    return own, guests


def _movable(view: View, own: Iterable[Group], allowed: Mapping[str, Allowed]) -> list[tuple[str, ...]]:
    """The groups that may be moved, by name; those of one gang together."""
    gangs: dict[str, list[Group]] = {}
    for group in own:
        entry = allowed.get(group.name)
        gang = entry.gang if entry is not None else ""
        gangs.setdefault(f"gang {gang}" if gang else f"group {group.name}", []).append(group)
    return [
        tuple(group.name for group in groups)
        for groups in gangs.values()
        if all(group.name in allowed and _can_move(view, group) for group in groups)
    ]


def _can_move(view: View, group: Group) -> bool:
    """Is a group whole, healthy and of this view alone (rule 28.2), each pod in one bin?"""
    if group.state is not GroupState.ALLOCATED or group.virtual is None or group.priority < MIN_GUARANTEED_PRIORITY:
        return False
    if NO_CELL in group.physical or NO_CELL in group.virtual or view.state.cells.bad[group.physical].any():
        return False
    bins = view.bins_of(group.virtual)
    return bool((bins != NO_BIN).all()) and all(len(set(each)) == 1 for each in _by_pod(group, bins))


def _by_pod(group: Group, values: IntArray) -> Iterable[list[int]]:
    start = 0
    for member in group.members:
        for _ in range(member.pod_count):
            yield values[start : start + member.leaf_cell_count].tolist()
            start += member.leaf_cell_count


def _mover(view: View, groups: Sequence[Group], allowed: Mapping[str, Allowed]) -> Mover:
    pods: list[tuple[int, int]] = []
    for group in groups:
        assert group.virtual is not None
        pods += [(each[0], len(each)) for each in _by_pod(group, view.bins_of(group.virtual))]
    names = tuple(group.name for group in groups)
    cost = cost_of(sum(allowed[name].lost for name in names), len(names))
    refused: tuple[frozenset[int], ...] = ()
    if any(allowed[name].refused for name in names):
        slots = [(name, slot) for name, group in zip(names, groups, strict=True) for slot in range(len(group.holders))]
        by_slot = {name: allowed[name].refused or (frozenset[int](),) * len(pods) for name in names}
        refused = tuple(view.bins_on(by_slot[name][slot]) for name, slot in slots)
    return Mover(names, tuple(pods), cost, refused=refused)


def _leaves_of(view: View, groups: Iterable[Group]) -> IntArray:
    """The virtual leaves of groups, each once."""
    found = [group.virtual[group.virtual != NO_CELL] for group in groups if group.virtual is not None]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int32)


def _guest_bins(view: View, group: Group) -> dict[int, int]:
    leaves = group.physical[group.physical != NO_CELL]
    leaves = leaves[view.state.cells.bad[leaves] == 0]
    bins = view.bins_of(leaves)
    numbers, counts = np.unique(bins[bins != NO_BIN], return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def _alike(shapes: Sequence[Shape]) -> list[tuple[Shape, int]]:
    counts: dict[Shape, int] = {}
    for shape in shapes:
        counts[shape] = counts.get(shape, 0) + 1
    return list(counts.items())


class _Taken:
    """The places of all, for spots: fixed leaves, movers by bin, and bins that are not whole."""

    def __init__(self, view: View, fixed: IntArray, movers: Sequence[Mover], capacity: LongArray) -> None:
        self.is_fixed: BoolArray = np.zeros(len(view.state.arrays.parent), np.bool_)
        self.is_fixed[fixed] = True
        self.has_fixed = np.zeros(len(view.bins), np.bool_)
        self.has_fixed[view.bins_of(fixed)] = True
        self.is_whole = capacity == view.leaf_count
        self.by_bin: dict[int, set[int]] = {}
        self.by_leaf: dict[int, int] = {}
        for number, mover in enumerate(movers):
            if not mover.is_guest:
                for bin_, _ in mover.pods:
                    self.by_bin.setdefault(bin_, set()).add(number)
        self.movers = movers

    def note_leaves(self, view: View) -> None:
        """Fill `by_leaf`: which mover uses a virtual leaf."""
        for number, mover in enumerate(self.movers):
            if not mover.is_guest:
                for name in mover.names:
                    virtual = view.state.groups[name].virtual
                    assert virtual is not None
                    self.by_leaf.update(dict.fromkeys(virtual.tolist(), number))


def _kind(view: View, taken: _Taken, shape: Shape, count: int, refused: Mapping[int, frozenset[int]]) -> Kind:
    if shape.cell_type:
        level = view.chain.type_levels[shape.cell_type]
        spots = (*_whole_cells(view, taken, level), *_inner_cells(view, taken, level))
        return Kind(shape.text, count, spots=spots)
    sizes = tuple(member.leaf_cell_count for member in reversed(shape.members) for _ in range(member.pod_count))
    level = view.chain.type_levels.get(shape.within_cell, 0)
    kept_from = tuple((size, view.bins_on(nodes)) for size, nodes in sorted(refused.items()))
    return Kind(shape.text, count, sizes=sizes, ranges=_ranges(view, level) if level else (), refused=kept_from)


def _whole_cells(view: View, taken: _Taken, level: int) -> Iterable[Spot]:
    """The cells of a level at or above the bins without groups that must stay."""
    for start, end in _ranges(view, level):
        bins = range(start, end)
        if taken.is_whole[start:end].all() and not taken.has_fixed[start:end].any():
            movers = frozenset[int]().union(*(taken.by_bin.get(bin_, ()) for bin_ in bins))
            yield Spot(tuple(bins), tuple(view.leaf_count[start:end].tolist()), movers)


def _inner_cells(view: View, taken: _Taken, level: int) -> Iterable[Spot]:
    """The same of a level below the bins."""
    arrays = view.state.arrays
    inner = np.flatnonzero(arrays.level[view.bins] > level)
    if len(inner) and not taken.by_leaf:
        taken.note_leaves(view)
    for bin_ in inner.tolist():
        for cell in _below(view, int(view.bins[bin_]), level):
            first, count = int(arrays.first_leaf[cell]), int(arrays.leaf_count[arrays.chain_level[cell]])
            leaves = range(first, first + count)
            if taken.is_fixed[first : first + count].any() or view.state.cells.bad[cell]:
                continue
            movers = frozenset(taken.by_leaf[leaf] for leaf in leaves if leaf in taken.by_leaf)
            yield Spot((bin_,), (count,), movers)


def _below(view: View, cell: int, level: int) -> Collection[int]:
    arrays, cells = view.state.arrays, range(cell, cell + 1)
    while int(arrays.level[cells[0]]) > level:
        count = int(arrays.child_count[arrays.chain_level[cells[0]]])
        cells = range(int(arrays.first_child[cells[0]]), int(arrays.first_child[cells[-1]]) + count)
    return cells


def _ranges(view: View, level: int) -> tuple[tuple[int, int], ...]:
    """The bins below each cell of a level, as (first, past the last); only for levels at or above the bins."""
    above = view.above(level)
    starts = np.flatnonzero(np.concatenate(([True], above[1:] != above[:-1])))
    ends = np.append(starts[1:], len(above))
    return tuple((int(start), int(end)) for start, end in zip(starts, ends, strict=True) if above[start] != NO_CELL)


def views_for(state: State, vc: str, shape: Shape) -> list[int]:
    """The views of a VC in which a shape could be. Raises UserError if there are none."""
    topology = state.topology
    number = topology.vc_index.get(vc)
    if number is None:
        raise UserError(f"there is no virtual cluster {vc}; there are {', '.join(topology.vc_names) or 'none'}")
    views = [view for (owner, _), view in sorted(topology.vc_views.items()) if owner == number]
    if not shape.cell_type:
        if not views:
            raise UserError(f"virtual cluster {vc} has no cells of its own, but pinned ones at most")
        return views
    types = dict.fromkeys(name for view in views for name in _types_in(state, view))
    found = [view for view in views if shape.cell_type in _types_in(state, view)]
    if not found:
        raise UserError(
            f"virtual cluster {vc} is promised no {shape.cell_type}, nor a cell with one inside; it has cells of "
            f"{', '.join(types) or 'no type'}"
        )
    return found


def _types_in(state: State, view: int) -> tuple[str, ...]:
    """The types of a VC's cells in a view and inside them, highest first."""
    arrays = state.arrays
    cells = arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]]
    highest = int(arrays.level[arrays.root[cells]].max())
    return chain_of_view(state, view).types[highest - 1 :: -1]
