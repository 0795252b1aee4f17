"""Nodes as numbers of free leaf cells, and a seat on them for each pod of a task."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hived.topology import LongArray, Topology
from hived_simulator.tasks import Shape

Seats = tuple[tuple[int, int, int], ...]
"""(kind of node, node, leaf cells) of each pod."""


class Nodes(NamedTuple):
    """The nodes that have leaf cells of one type; arrays of shape (node_count,), int64.

    free : leaf cells that nobody has or reserves; below 0 while victims still use reserved ones
    lent : leaf cells of opportunistic tasks
    size : all leaf cells; 0 for a bad node, so that nothing fits there
    first_leaf : the node's first physical leaf
    """

    names: tuple[str, ...]
    numbers: dict[str, int]
    free: LongArray
    lent: LongArray
    size: LongArray
    first_leaf: LongArray


def nodes_by_type(topology: Topology) -> dict[str, Nodes]:
    """All nodes of a topology, idle and healthy, by leaf cell type. Cost O(leaf cells)."""
    arrays = topology.arrays
    found: dict[str, dict[str, list[int]]] = {}
    for node, name in enumerate(topology.node_names):
        for leaf in arrays.node_leaf[arrays.node_leaf_start[node] : arrays.node_leaf_start[node + 1]].tolist():
            found.setdefault(topology.chain_of(leaf).types[0], {}).setdefault(name, []).append(leaf)
    by_type = {}
    for leaf_type in sorted(found):
        names = tuple(found[leaf_type])
        size = np.array([len(leaves) for leaves in found[leaf_type].values()], np.int64)
        first = np.array([leaves[0] for leaves in found[leaf_type].values()], np.int64)
        numbers = {name: number for number, name in enumerate(names)}
        by_type[leaf_type] = Nodes(names, numbers, size.copy(), np.zeros_like(size), size, first)
    return by_type


def find_seats(shape: Shape, types: Mapping[str, Nodes], free: Mapping[str, LongArray], spreads: bool) -> Seats | None:
    """A node for each pod, of one leaf type; None if there is no room for all. Cost O(nodes x pods).

    free : leaf cells that may be taken on each node, by leaf type
    spreads : take the emptiest node that has room, not the fullest one
    """
    for kind, name in enumerate(types):
        if not shape.leaf_type or name == shape.leaf_type:
            usable = np.where(types[name].size > 0, free[name], -1)
            seats = _seats_of_type(shape, kind, usable, spreads)
            if seats is not None:
                return seats
    return None


def _seats_of_type(shape: Shape, kind: int, usable: LongArray, spreads: bool) -> Seats | None:
    seats = []
    for count, leaves in reversed(shape.pods):
        for _ in range(count):
            fits = np.flatnonzero(usable >= leaves)
            if not len(fits):
                return None
            room = usable[fits]
            node = int(fits[room.argmax() if spreads else room.argmin()])
            usable[node] -= leaves
            seats.append((kind, node, leaves))
    return tuple(seats)
