"""Which virtual cells stand behind physical leaves that were chosen first.

The cells of a leaf's path, from the leaf up to its preassigned cell, get virtual cells from the top down: what is bound
keeps its virtual cell, what is not gets the first one that is neither bound nor chosen for an earlier leaf.
"""

from collections.abc import Iterator

import numpy as np

from hived.errors import UserError
from hived.specs import PodSpec
from hived.state import State
from hived.topology import NO_CELL


class Chooser:
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
        """The virtual leaf for a physical one whose preassigned cell is of this level. Cost O(height).

        Raises UserError, which says why, if the VC cannot have the leaf in this way.
        """
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
        return UserError(f"leaf cell {self._state.topology.address(leaf)}: {reason}")

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
