"""Shares of a node that come with lent cells (rule 27.14): a borrower gets no more, so that CPU breaks no guarantee.

A share by `skuTypes` is less on a node with less. Amounts other than bytes are rounded up to whole ones. Not
thread-safe.
"""

import math
from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from hived.cells.topology import Topology
from hived.values.specs import ClusterSpec
from hived_extender.kube_rules.demands import Demands
from hived_extender.kube_rules.nodes import Mask, NodeRules
from hived_extender.kube_rules.selectors import CPU
from hived_extender.machine.devices.table import leaves_by_type

MEMORY = "memory"

_MIB = 2**20
_BYTES = (MEMORY, "ephemeral-storage", "storage", "hugepages-")

Amounts = npt.NDArray[np.float64]


class Shares:
    """Shares on the nodes of one topology. `devices` are the resources behind leaf cells."""

    def __init__(self, spec: ClusterSpec, topology: Topology, leaves: npt.NDArray[np.int32], devices: Collection[str]):
        """Cost O(leaf cells)."""
        self._devices = devices
        self._leaves = np.maximum(leaves, 1)
        self._counts = leaves_by_type(topology)
        said = {name: sku for name, sku in spec.sku_types.items() if name in self._counts}
        self._promised = {
            CPU: {name: sku.cpu * 1000 for name, sku in said.items() if sku.cpu},
            MEMORY: {name: sku.memory_mib * _MIB for name, sku in said.items() if sku.memory_mib},
        }  # by leaf cell type, of each leaf cell; not of types of which the file does not say it

    def most(self, rules: NodeRules, resource: str, cells: int, leaf_type: str = "") -> Amounts:
        """The most that a borrower of so many leaf cells of a node may have there, for each configured node.

        leaf_type : of the cells; "" for any: the type with the least share counts on a node with several
        """
        has = rules.allocatable(resource).astype(np.float64)
        promised = self._promised.get(resource, {})
        whole = sum((amount * self._counts[name] for name, amount in promised.items()), np.zeros(len(has)))
        kept = np.minimum(whole, has)
        scale = np.divide(kept, whole, out=np.ones(len(has)), where=whole > 0)
        share = np.full(len(has), np.inf)
        for name, amount in promised.items():
            is_there = self._counts[name] > 0
            if name != leaf_type:
                is_there = is_there & (self._counts.get(leaf_type, np.zeros(len(has))) == 0)
            share = np.where(is_there, np.minimum(share, amount * scale), share)
        share = np.where(whole > 0, np.where(np.isfinite(share), share, 0), has / self._leaves)
        most = share * cells + np.where(whole > 0, has - kept, np.maximum(has - share * self._leaves, 0))
        if resource.startswith(_BYTES):
            return most
        unit = 1000 if resource == CPU else 1
        return np.ceil(np.round(most / unit, 6)) * unit

    def allow(self, rules: NodeRules, demands: Demands, cells: int, leaf_type: str = "") -> Mask:
        """The nodes on which a borrower of so many leaf cells of a type asks for at most its share."""
        allowed = np.ones(rules.node_count, np.bool_)
        for resource, wanted in self._counted(demands):
            allowed &= self.most(rules, resource, cells, leaf_type) >= wanted
        return allowed

    def excess(self, rules: NodeRules, demands: Demands, cells: int, leaf_type: str, node: int) -> tuple[str, str]:
        """The amount that a borrower asks for beyond its share on a node, and the share, as texts; "" for none."""
        for resource, wanted in self._counted(demands):
            most = float(self.most(rules, resource, cells, leaf_type)[node])
            if most < wanted:
                return _told(resource, wanted), _told(resource, most)
        return "", ""

    def _counted(self, demands: Demands) -> Iterator[tuple[str, int]]:
        return (one for one in demands.requests if one[0] not in self._devices)


def _told(resource: str, amount: float) -> str:
    if resource == CPU:
        return f"{amount / 1000:g} CPUs"
    if resource.startswith(_BYTES):
        return f"{math.floor(amount / 2**30 * 100) / 100:g}Gi of {resource}"
    return f"{amount:g} {resource}"
