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
    whole : all leaf cells, also of bad nodes
    first_leaf : the node's first physical leaf
    cell_type : the node's place among `cell_types`, the cell types of nodes
    """

    names: tuple[str, ...]
    numbers: dict[str, int]
    cell_types: tuple[str, ...]
    free: LongArray
    lent: LongArray
    size: LongArray
    whole: LongArray
    first_leaf: LongArray
    cell_type: LongArray


def nodes_by_type(topology: Topology) -> dict[str, Nodes]:
    """All nodes of a topology, idle and healthy, by leaf cell type. Cost O(leaf cells)."""
    arrays = topology.arrays
    found: dict[str, dict[str, list[int]]] = {}
    for node, name in enumerate(topology.node_names):
        for leaf in arrays.node_leaf[arrays.node_leaf_start[node] : arrays.node_leaf_start[node + 1]].tolist():
            found.setdefault(topology.chain_of(leaf).types[0], {}).setdefault(name, []).append(leaf)
    return {leaf_type: _nodes(topology, found[leaf_type]) for leaf_type in sorted(found)}


def _nodes(topology: Topology, leaves: Mapping[str, list[int]]) -> Nodes:
    names = tuple(leaves)
    size = np.array([len(own) for own in leaves.values()], np.int64)
    first = np.array([own[0] for own in leaves.values()], np.int64)
    chains = map(topology.chain_of, first.tolist())
    types = [chain.types[chain.node_level - 1] for chain in chains]
    cell_types = tuple(dict.fromkeys(types))
    return Nodes(
        names=names,
        numbers={name: number for number, name in enumerate(names)},
        cell_types=cell_types,
        free=size.copy(),
        lent=np.zeros_like(size),
        size=size.copy(),
        whole=size,
        first_leaf=first,
        cell_type=np.array([cell_types.index(name) for name in types], np.int64),
    )


def find_seats(shape: Shape, types: Mapping[str, Nodes], free: Mapping[str, LongArray], spreads: bool) -> Seats | None:
    """A node for each pod, of one leaf type, largest pods first; None if there is no room for all.

    free : leaf cells that may be taken on each node, by leaf type; not above 0 where none may
    spreads : each pod takes the node of which the smallest share is in use with it, not the fullest one that has room

    Of equal nodes the first one is taken. Cost O(n log n) for n nodes and pods, for each size of pods.
    """
    for kind, name in enumerate(types):
        if not shape.leaf_type or name == shape.leaf_type:
            seats = _seats_of_type(shape, kind, types[name], np.maximum(free[name], 0), spreads)
            if seats is not None:
                return seats
    return None


def _seats_of_type(shape: Shape, kind: int, nodes: Nodes, usable: LongArray, spreads: bool) -> Seats | None:
    seats: list[tuple[int, int, int]] = []
    for count, leaves in reversed(shape.pods):
        room = np.minimum(usable // leaves, count)
        if room.sum() < count:
            return None
        chosen = _spread(room, usable, nodes.whole, count, leaves) if spreads else _packed(room, usable, count)
        np.subtract.at(usable, chosen, leaves)
        seats += [(kind, node, leaves) for node in chosen.tolist()]
    return tuple(seats)


def _packed(room: LongArray, usable: LongArray, count: int) -> LongArray:
    """The node of each of `count` equal pods: once one has the fullest node, that is the fullest for the next one, too.

    `room` has the pods that fit on each node.
    """
    fits = np.flatnonzero(room)
    if count == 1:
        return fits[[usable[fits].argmin()]]
    order = fits[usable[fits].argsort(kind="stable")]
    return np.repeat(order, room[order])[:count]


def _spread(room: LongArray, usable: LongArray, whole: LongArray, count: int, leaves: int) -> LongArray:
    """The node of each of `count` equal pods: the share that is free with another pod only falls on each node.

    So the pods have the places with the largest such shares, taking each node's places in turn.
    """
    fits = np.flatnonzero(room)
    if count == 1:
        return fits[[((usable[fits] - leaves) / whole[fits]).argmax()]]
    places = np.repeat(fits, room[fits])
    before = np.repeat(room[fits].cumsum() - room[fits], room[fits])
    pods = np.arange(1, len(places) + 1) - before  # on the node, with this one
    share = (usable[places] - pods * leaves) / whole[places]
    return places[(-share).argsort(kind="stable")[:count]]
