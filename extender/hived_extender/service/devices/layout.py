"""The leaf cells of each configured node, and the devices that they stand for."""

from collections.abc import Iterator

import msgspec
import numpy as np

from hived.cells.topology import IntArray, Topology
from hived.values.specs import ClusterSpec
from hived_config.rules import Foreign, PodRules
from hived_extender.pods.device_words import is_numbered


class LeafKind(msgspec.Struct, frozen=True):
    """A leaf cell type of devices: `per_leaf` for each leaf cell, of a resource and of a DeviceClass ("" for none)."""

    leaf_type: str
    resource: str
    device_class: str
    per_leaf: int
    foreign: Foreign


Kinds = tuple[tuple[LeafKind, int], ...]
"""Kinds of leaf cells, and how many of each."""


class Layout:
    """Leaf cells by node and type, and what their types mean. Cost to make: O(leaf cells), in numpy."""

    def __init__(self, topology: Topology, cluster: ClusterSpec, rules: PodRules) -> None:
        self._topology = topology
        classes = rules.device_classes_in(cluster)
        counts = leaves_by_type(topology)
        self._counts: dict[str, list[int]] = {}
        self._known: dict[tuple[int, ...], Kinds] = {}  # nodes are alike
        kinds = []
        for leaf_type, resource in rules.resources_in(cluster).items():
            if leaf_type in counts:
                sku = cluster.sku_types.get(leaf_type)
                per_leaf = sku.gpu if sku is not None else 1
                kinds.append(
                    LeafKind(leaf_type, resource, classes.get(leaf_type, ""), per_leaf, rules.foreign(resource))
                )
                self._counts[leaf_type] = counts[leaf_type].tolist()
        self.kinds = tuple(kinds)

    def kinds_of(self, node: str) -> Kinds:
        """The kinds of leaf cells that a node has, and how many; none for a node that is not configured."""
        index = self._topology.node_index.get(node)
        if index is None:
            return ()
        counts = tuple([column[index] for column in self._counts.values()])
        known = self._known.get(counts)
        if known is None:
            known = tuple((kind, count) for kind, count in zip(self.kinds, counts, strict=True) if count)
            self._known[counts] = known
        return known

    def nodes_of(self, leaf_type: str) -> Iterator[str]:
        """The nodes that have leaf cells of this type."""
        names = self._topology.node_names
        return (name for name, count in zip(names, self._counts[leaf_type], strict=True) if count)

    def is_misread(self, node: str, chain: str) -> bool:
        """Are the numbers of a chain's cells on a node those of other cells' devices to a container runtime?"""
        kinds, at = self.kinds_of(node), self._topology.chain_index.get(chain)
        leaf_type = "" if at is None else self._topology.chains[at].types[0]
        numbered = {kind.leaf_type for kind, _ in kinds if is_numbered(kind.resource)}
        return bool(numbered) and leaf_type not in numbered

    def indices(self, node: str, leaf_type: str) -> set[int]:
        """The device indices of a node's leaf cells of this type."""
        arrays, index = self._topology.arrays, self._topology.node_index[node]
        leaves = arrays.node_leaf[arrays.node_leaf_start[index] : arrays.node_leaf_start[index + 1]]
        return {int(arrays.device[leaf]) for leaf in leaves if self._topology.cell_type(int(leaf)) == leaf_type}


def leaves_by_type(topology: Topology) -> dict[str, IntArray]:
    """By leaf cell type, how many leaf cells of it each node has: int, shape (nodes,)."""
    counts: dict[str, IntArray] = {}
    for number, chain in enumerate(topology.chains):
        forest = topology.forests[number]
        first = forest.bases[1]
        nodes = topology.arrays.node[first : first + forest.tree_count * chain.leaf_count(chain.top_level)]
        found = np.bincount(nodes, minlength=len(topology.node_names)).astype(np.int32)
        known = counts.get(chain.types[0])
        counts[chain.types[0]] = found if known is None else known + found
    return counts
