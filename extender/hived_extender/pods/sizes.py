"""Pods that can never run, seen when they are created: they ask for more than any cell of their virtual cluster has.

The configuration alone decides. Only a bound is known here: pods that pass may have to wait forever all the same, and
the scheduler says so then. What is refused could not run in an empty cluster.
"""

from collections.abc import Iterable, Iterator
from math import ceil

from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, PhysicalCellSpec
from hived_config.quantities import exact
from hived_config.rules import PodRules
from hived_extender.pods import dialects
from hived_extender.pods.annotations import SCHEDULING_SPEC, is_quickly_read, read_spec
from hived_extender.pods.asks import Ask, Resolver
from hived_extender.pods.capacity import leaves_below
from hived_extender.pods.dialects.kinds import NoObjects
from hived_extender.pods.gang_annotations import asks_in_own_words
from hived_extender.pods.permissions import LabelsOf
from hived_extender.pods.requests import most_at_once
from hived_extender.pods.wire import Container, Pod

_RESOURCES = {"CPUs": "cpu", "Gi of memory": "memory"}


def _cpu_and_memory(container: Container) -> Iterator[tuple[str, float]]:
    """A container's requests of both; a limit stands for a request that is missing."""
    resources = container.resources
    said = {} if resources is None else (resources.limits or {}) | (resources.requests or {})
    return ((name, float(exact(str(said[name])) or 0)) for name in _RESOURCES.values() if name in said)


class Sizes:
    """The largest pods of one configuration."""

    def __init__(self, cluster: ClusterSpec, rules: PodRules, labels_of: LabelsOf | None = None) -> None:
        """Cost O(cells that the file spells out)."""
        self._cluster = cluster
        self._resolver = Resolver(cluster, rules, labels_of) if labels_of is not None else Resolver(cluster, rules)
        self._anywhere = self._bounds(cell.cell_type for cell in cluster.physical_cells)
        self._pinned = dict(self._pinned_sizes())

    def refusal(self, pod: Pod) -> str:
        """Why a pod that is for hived can never run; "" if it may, or if it cannot be read."""
        try:
            ask = self._ask(pod)
        except UserError:
            return ""  # the scheduler says why
        if ask is None or ask.virtual_cluster not in self._cluster.virtual_clusters:
            return ""
        most, place = self._most(ask)
        if ask.leaf_cell_count <= most or not most:
            return ""
        return (
            f"it asks for {ask.leaf_cell_count} leaf cells in one pod and can never run: the largest cell of {place} "
            f"that a pod can have has {most}; ask for smaller pods"
        )

    def warning(self, pod: Pod) -> str:
        """What a pod that borrows leaf cells asks for beyond their share by `skuTypes`; "" if nothing, or not known."""
        try:
            ask = self._ask(pod)
        except UserError:
            return ""
        if ask is None or ask.priority > OPPORTUNISTIC_PRIORITY or not ask.leaf_cell_count or pod.spec is None:
            return ""
        skus = [sku for name, sku in self._cluster.sku_types.items() if ask.leaf_cell_type in ("", name)]
        if not skus or not all(sku.cpu and sku.memory_mib for sku in skus):
            return ""  # a node's allocatable amounts count, which only the scheduler knows
        wanted, count = most_at_once(pod.spec, _cpu_and_memory), ask.leaf_cell_count
        for resource, unit, share in (
            ("CPUs", 1, max(sku.cpu for sku in skus)),
            ("Gi of memory", 2**30, max(sku.memory_mib for sku in skus) / 1024),
        ):
            asked = wanted.get(_RESOURCES[resource], 0) / unit
            if asked > ceil(share * count):
                return (
                    f"it borrows {count} leaf cells and asks for {asked:g} {resource}, more than their share of "
                    f"{share * count:g}: with borrowedResources: share it waits unless a node has more that is "
                    "promised to nobody"
                )
        return ""

    def _ask(self, pod: Pod) -> Ask | None:
        if asks_in_own_words(pod.annotations):
            text = pod.annotations[SCHEDULING_SPEC]
            if not is_quickly_read(text):
                return None
            spec = read_spec(text)
            return Ask(
                spec.virtual_cluster, spec.priority, spec.leaf_cell_count, spec.leaf_cell_type, spec.pinned_cell_id
            )
        if dialects.objects_of(pod):
            return None  # they may name its virtual cluster
        return self._resolver.resolve(pod, dialects.describe(pod, NoObjects()))

    def _most(self, ask: Ask) -> tuple[int, str]:
        """The leaf cells of the largest cell that the pod could have, and where; 0 if that is not known."""
        if ask.pinned_cell_id:
            return self._pinned.get(ask.pinned_cell_id, 0), f"pinned cell {ask.pinned_cell_id}"
        vc = self._cluster.virtual_clusters[ask.virtual_cluster]
        if ask.priority <= OPPORTUNISTIC_PRIORITY or vc.combines:
            bounds, place = self._anywhere, "the cluster"
        else:
            bounds, place = self._bounds(one.cell_type.rsplit(".", 1)[-1] for one in vc.virtual_cells), f"VC {vc.name}"
        counts = [most for leaf_type, most in bounds.items() if ask.leaf_cell_type in ("", leaf_type)]
        return max(counts, default=0), place

    def _bounds(self, cell_types: Iterable[str]) -> dict[str, int]:
        """By leaf cell type, the leaves of the largest of these cells, or of a node in it."""
        found: dict[str, int] = {}
        for cell_type in dict.fromkeys(cell_types):
            leaf_type, count = self._in_a_node(cell_type)
            found[leaf_type] = max(found.get(leaf_type, 0), count)
        return found

    def _in_a_node(self, cell_type: str) -> tuple[str, int]:
        """The leaf type below a cell type, and the leaves of one such cell, or of a node in it if it is larger."""
        types, inner = self._cluster.cell_types, cell_type
        while inner in types and not types[inner].is_node_level:
            inner = types[inner].child_type
        return leaves_below(self._cluster, inner if inner in types else cell_type)

    def _pinned_sizes(self) -> Iterator[tuple[str, int]]:
        stack: list[tuple[PhysicalCellSpec, str]] = [(cell, cell.cell_type) for cell in self._cluster.physical_cells]
        while stack:
            cell, cell_type = stack.pop()
            if cell.pinned_cell_id:
                yield cell.pinned_cell_id, self._in_a_node(cell_type)[1]
            if cell.children:
                stack += [(child, self._cluster.cell_types[cell_type].child_type) for child in cell.children]
