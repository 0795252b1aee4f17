"""A reservation from the bind info of its pods: how a preempting group outlives the state that it was made in.

It takes the same physical leaves again; which virtual cells stand behind them is chosen here. Whoever uses the leaves
are its victims. Where that cannot be, or would take more than a search could have given it, it is refused and nothing
changes: unlike work that runs, pods that wait can be placed anew.

The cells of a leaf's path, from the leaf up to its preassigned cell, get virtual cells from the top down: what is bound
keeps its virtual cell, what is not gets the first one that is neither bound nor chosen for an earlier leaf.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from hived.agreement import check_agreement
from hived.bind_info import canonical_order, check_sizes, find_leaves
from hived.chains import check_request
from hived.errors import UserError
from hived.groups import check_members
from hived.preemption import start_preemption
from hived.specs import MIN_GUARANTEED_PRIORITY, BindInfo, PodRequest, PodSpec
from hived.state import NO_GROUP, State
from hived.topology import NO_CELL, IntArray


def restore_reservation(state: State, pods: Sequence[PodRequest], bind_info: BindInfo) -> None:
    """Create the preempting group that waits for the cells of `bind_info`, with these pods of it in this order.

    Must run while the journal records; a UserError may come halfway, and the caller undoes. Cost O(leaves x height).
    """
    spec = _check_pods(state, pods)
    check_sizes(pods[0], bind_info)
    known, _ = canonical_order(bind_info)
    physical, levels = find_leaves(state, known)
    _check_leaves(state, spec, physical)
    _check_users(state, spec, physical)
    chooser = _Chooser(state, spec)
    virtual = [chooser.choose(leaf, level) for leaf, level in zip(physical.tolist(), levels.tolist(), strict=True)]
    chain = int(state.arrays.chain_of_level[state.arrays.chain_level[physical[0]]])
    before = _spare_cells(state, chain)
    start_preemption(state, pods[0], physical, np.array(virtual, np.int32))
    if any(now < 0 and now < then for now, then in zip(_spare_cells(state, chain), before, strict=True)):
        raise _refused(spec, f"other VCs are promised the cells that are left of chain {_name(state, chain)}")
    group = state.groups[spec.group.name]
    for pod in pods:
        check_agreement(pod, group)
        group.preempting_pods[pod.uid] = pod


def _check_pods(state: State, pods: Sequence[PodRequest]) -> PodSpec:
    """The spec of the first pod; UserError unless all are of one new group, and of one that preempts."""
    if not pods:
        raise UserError("no pod is named for which cells are to be reserved")
    spec = pods[0].spec
    for pod in pods:
        check_members(pod.spec)
        if pod.spec.group.name != spec.group.name:
            raise _refused(spec, f"{pod.label} is of affinity group {pod.spec.group.name}")
    if spec.group.name in state.groups:
        raise _refused(spec, "there is a group of that name already")
    check_request(state, pods[0])
    if spec.priority < MIN_GUARANTEED_PRIORITY:
        raise _refused(spec, "opportunistic pods wait for nobody to leave")
    return spec


def _refused(spec: PodSpec, reason: str) -> UserError:
    return UserError(f"affinity group {spec.group.name} cannot have its reservation again: {reason}")


def _name(state: State, chain: int) -> str:
    return state.topology.chains[chain].name


def _check_leaves(state: State, spec: PodSpec, physical: IntArray) -> None:
    """Raise UserError unless every leaf is there and healthy, and a search could choose them together."""
    arrays, topology = state.arrays, state.topology
    if NO_CELL in physical:
        raise _refused(spec, "a leaf cell of it is not configured any more, or named twice")
    bad = physical[state.cells.bad[physical] == 1]
    if len(bad):
        raise _refused(spec, f"leaf cell {topology.address(int(bad[0]))} is bad")
    chains = np.unique(arrays.chain_of_level[arrays.chain_level[physical]])
    chain = topology.chains[chains[0]]
    if len(chains) > 1:
        raise _refused(spec, f"its leaf cells are in chains {', '.join(_name(state, int(each)) for each in chains)}")
    if spec.leaf_cell_type not in {"", chain.types[0]}:
        raise _refused(spec, f"its leaf cells are of type {chain.types[0]}, not {spec.leaf_cell_type}")
    if spec.within_cell and spec.within_is_required:
        level, cells = chain.type_levels.get(spec.within_cell, 0), physical.copy()
        while (lower := arrays.level[cells] < level).any():
            cells[lower] = arrays.parent[cells[lower]]
        if level == 0 or len(np.unique(cells)) > 1:
            raise _refused(spec, f"its leaf cells are not below one {spec.within_cell}")


def _check_users(state: State, spec: PodSpec, physical: IntArray) -> None:
    """Raise UserError unless somebody uses the leaves whom the group may preempt, and nobody reserves them."""
    cells, address = state.cells, state.topology.address
    reserved = physical[cells.reserving[physical] != NO_GROUP]
    if len(reserved):
        other = state.group_by_number[int(cells.reserving[reserved[0]])].name
        raise _refused(spec, f"leaf cell {address(int(reserved[0]))} is reserved by affinity group {other}")
    used = physical[cells.using[physical] != NO_GROUP]
    if not len(used):
        raise _refused(spec, "nobody uses its cells, so there is nothing to wait for")
    stronger = used[cells.priority[used] >= spec.priority]
    if len(stronger):
        user = state.group_by_number[int(cells.using[stronger[0]])].name
        priority = int(cells.priority[stronger[0]])
        where = address(int(stronger[0]))
        raise _refused(spec, f"leaf cell {where} is used by affinity group {user} at priority {priority}")


class _Chooser:
    """Virtual cells for the leaves of one group, leaf by leaf; nothing of the state changes."""

    def __init__(self, state: State, spec: PodSpec) -> None:
        self._state = state
        self._spec = spec
        self._vc = state.topology.vc_index[spec.virtual_cluster]
        self._pinned_root = state.topology.pinned_roots.get((self._vc, spec.pinned_cell_id), NO_CELL)
        self._chosen: dict[int, int] = {}  # physical cell -> virtual cell
        self._taken: set[int] = set()  # physical cells that are to be bound to preassigned ones
        self._split: set[int] = set()  # physical cells above those
        self._unbound: dict[int, Iterator[int]] = {}  # what is left of a row of virtual cells, by the first of the row

    def choose(self, leaf: int, level: int) -> int:
        """The virtual leaf for a physical one whose preassigned cell is of this level. Cost O(height)."""
        arrays = self._state.arrays
        if level == 0:
            raise self._refused(leaf, "its preassigned cell has no type, or one that does not exist any more")
        path = [leaf]
        while self._behind(path[-1]) == NO_CELL and arrays.level[path[-1]] < level:
            path.append(int(arrays.parent[path[-1]]))
        virtual = self._behind(path[-1])
        if virtual == NO_CELL:
            virtual = self._take_root(leaf, path[-1])
        elif not self._is_ours(int(arrays.root[virtual]), level):
            address = self._state.topology.address
            raise self._refused(leaf, f"{address(path[-1])} is bound to virtual cell {address(virtual)}")
        for cell in reversed(path[:-1]):
            span = int(arrays.child_count[arrays.chain_level[virtual]])
            virtual = next(self._unbound_of(int(arrays.first_child[virtual]), span))
            self._chosen[cell] = virtual
        return virtual

    def _refused(self, leaf: int, reason: str) -> UserError:
        return _refused(self._spec, f"leaf cell {self._state.topology.address(leaf)}: {reason}")

    def _behind(self, cell: int) -> int:
        return self._chosen.get(cell, int(self._state.cells.bound[cell]))

    def _is_ours(self, root: int, level: int) -> bool:
        """May the group be in this preassigned cell?"""
        arrays = self._state.arrays
        if arrays.level[root] != level:
            return False
        if self._spec.pinned_cell_id:
            return root == self._pinned_root
        return bool(arrays.vc[root] == self._vc and arrays.pinned[root] == 0)

    def _unbound_of(self, first: int, count: int) -> Iterator[int]:
        """The virtual cells of a row that are not bound; each is given once."""
        if first not in self._unbound:
            bound = self._state.cells.bound[first : first + count]
            self._unbound[first] = iter((first + np.flatnonzero(bound == NO_CELL)).tolist())
        return self._unbound[first]

    def _take_root(self, leaf: int, cell: int) -> int:
        """The first preassigned cell to be had for a physical cell that is free as a whole."""
        arrays, spec, topology = self._state.arrays, self._spec, self._state.topology
        if spec.pinned_cell_id:
            raise self._refused(leaf, f"it is not in pinned cell {spec.pinned_cell_id}")
        if not self._is_free(cell):
            raise self._refused(leaf, f"{topology.address(cell)} is not free as a whole")
        slot = self._vc * len(arrays.child_count) + int(arrays.chain_level[cell])
        root = next(self._unbound_of(int(arrays.root_base[slot]), int(arrays.root_count[slot])), NO_CELL)
        if root == NO_CELL:
            raise self._refused(leaf, f"VC {spec.virtual_cluster} has no {topology.cell_type(cell)} left for it")
        self._chosen[cell] = root
        self._taken.add(cell)
        above = int(arrays.parent[cell])
        while above != NO_CELL:
            self._split.add(above)
            above = int(arrays.parent[above])
        return root

    def _is_free(self, cell: int) -> bool:
        """Is a cell in a free list or below one that is, and will be when earlier leaves have theirs?"""
        if cell in self._split:
            return False
        while cell != NO_CELL and cell not in self._taken:
            if self._state.cells.free_position[cell] != NO_CELL:
                return True
            cell = int(self._state.arrays.parent[cell])
        return False


def _spare_cells(state: State, chain: int) -> list[int]:
    """For each level, from the top, how many cells the VCs' claims leave over; negative where VC safety is broken."""
    cells, arrays = state.cells, state.arrays
    spare, found = 0, []
    bottom, top = int(arrays.level_offset[chain]) + 1, int(arrays.level_offset[chain] + arrays.top_level[chain])
    for level in range(top, bottom - 1, -1):
        spare += int(cells.free_count[level]) - int(cells.all_vc_free[level])
        found.append(spare)
        spare *= int(arrays.child_count[level])
    return found
