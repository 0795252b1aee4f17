"""The share of a node that comes with lent cells: a borrower gets no more of it, so that no guarantee is broken by CPU.

A leaf cell's share of CPU and memory is what `skuTypes` say of its type, else the node's allocatable amount divided by
its leaf cells, as of all other resources. Whatever of a node is beyond the shares of all of its leaf cells is promised
to nobody, and any borrower may have it. Amounts other than bytes are rounded up to whole ones. Not thread-safe.
"""

import math
from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from hived.specs import ClusterSpec
from hived.topology import Topology
from hived_extender.kube_rules.demands import Demands
from hived_extender.kube_rules.quantities import CPU
from hived_extender.kube_rules.table import Mask, NodeRules

MEMORY = "memory"

_MIB = 2**20
_BYTES = (MEMORY, "ephemeral-storage", "storage", "hugepages-")

Amounts = npt.NDArray[np.float64]


class Shares:
    """For the nodes of one topology. `devices` are the resources that leaf cells stand for."""

    def __init__(self, spec: ClusterSpec, topology: Topology, leaves: npt.NDArray[np.int32], devices: Collection[str]):
        """Cost O(leaf cells)."""
        self._devices = devices
        self._leaves = np.maximum(leaves, 1)
        self._promised = {
            resource: np.zeros(len(leaves)) for resource in ((CPU, MEMORY) if spec.sku_types else ())
        }  # of each leaf cell, on each node; 0 where the file does not say
        arrays = topology.arrays
        first = arrays.node_leaf[np.minimum(arrays.node_leaf_start[:-1], max(len(arrays.node_leaf) - 1, 0))]
        for node, leaf in enumerate(first.tolist()):
            sku = spec.sku_types.get(topology.cell_type(leaf))
            if sku is not None and self._promised:
                self._promised[CPU][node] = sku.cpu * 1000
                self._promised[MEMORY][node] = sku.memory_mib * _MIB

    def most(self, rules: NodeRules, resource: str, cells: int) -> Amounts:
        """The most that a borrower of so many leaf cells of a node may have there, for each configured node."""
        has = rules.allocatable(resource).astype(np.float64)
        share = has / self._leaves
        promised = self._promised.get(resource)
        if promised is not None:
            share = np.where(promised > 0, np.minimum(promised, share), share)
        most = share * cells + np.maximum(has - share * self._leaves, 0)
        if resource.startswith(_BYTES):
            return most
        unit = 1000 if resource == CPU else 1
        return np.ceil(np.round(most / unit, 6)) * unit

    def allow(self, rules: NodeRules, demands: Demands, cells: int) -> Mask:
        """The nodes on which a borrower of so many leaf cells asks for no more than it may have."""
        allowed = np.ones(rules.node_count, np.bool_)
        for resource, wanted in self._counted(demands):
            allowed &= self.most(rules, resource, cells) >= wanted
        return allowed

    def excess(self, rules: NodeRules, demands: Demands, cells: int, node: int) -> str:
        """What a borrower asks for beyond that on a node, in words; "" if nothing."""
        for resource, wanted in self._counted(demands):
            most = float(self.most(rules, resource, cells)[node])
            if most < wanted:
                return f"{_told(resource, wanted)} of at most {_told(resource, most)}"
        return ""

    def _counted(self, demands: Demands) -> Iterator[tuple[str, int]]:
        return (one for one in demands.requests if one[0] not in self._devices)


def _told(resource: str, amount: float) -> str:
    if resource == CPU:
        return f"{amount / 1000:g} CPUs"
    if resource.startswith(_BYTES):
        return f"{math.floor(amount / 2**30 * 100) / 100:g}Gi of {resource}"
    return f"{amount:g} {resource}"
