"""Arithmetic on the cell trees, for kernels: the cells above, below and beside a cell."""

import numpy as np

from hived.cells.topology import IntArray, TopologyArrays
from hived.kernels.jit import kernel


@kernel
def ancestor_at(t: TopologyArrays, cell: int, level: int) -> int:
    """The cell of a level that a cell is below, or the cell itself."""
    while t.level[cell] < level:
        cell = t.parent[cell]
    return cell


@kernel
def first_below(t: TopologyArrays, cell: int, level: int) -> tuple[int, int]:
    """The first cell of a level at or below a cell, and how many there are; they are neighbours."""
    count = t.leaf_count[t.chain_level[cell]]
    while t.level[cell] > level:
        cell = t.first_child[cell]
    return cell, count // t.leaf_count[t.chain_level[cell]]


@kernel
def children_of(t: TopologyArrays, cell: int) -> IntArray:
    """The children of a cell, in order."""
    children = np.empty(t.child_count[t.chain_level[cell]], np.int32)
    for i in range(len(children)):
        children[i] = t.first_child[cell] + i
    return children


@kernel
def descend(t: TopologyArrays, cells: IntArray, depth: int) -> IntArray:
    """The cells `depth` levels below `cells`, which are of one level, in order."""
    for _ in range(depth):
        span = t.child_count[t.chain_level[cells[0]]]
        below = np.empty(len(cells) * span, np.int32)
        for i in range(len(cells)):
            for k in range(span):
                below[i * span + k] = t.first_child[cells[i]] + k
        cells = below
    return cells


@kernel
def overlap(t: TopologyArrays, one: int, other: int) -> bool:
    """True if two cells are equal, or one is above the other."""
    first, other_first = t.first_leaf[one], t.first_leaf[other]
    if first < other_first:
        return other_first < first + t.leaf_count[t.chain_level[one]]
    return first < other_first + t.leaf_count[t.chain_level[other]]
