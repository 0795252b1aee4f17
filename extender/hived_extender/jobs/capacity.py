"""The capacity of a virtual cluster, counted in SKUs (leaf cells), and how many of them a task needs.

Read from the configuration alone: submission checks a job before any pod exists. A SKU of a type that `skuTypes` does
not describe counts as one GPU and says nothing of CPU and memory.
"""

from collections.abc import Iterable, Iterator
from math import ceil

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec, PhysicalCellSpec, SkuTypeSpec

_UNDESCRIBED_SKU = SkuTypeSpec(gpu=1)


class Resources(msgspec.Struct, frozen=True):
    """The request of one task. Units: devices, cores, MiB."""

    gpu: int
    cpu: float
    memory_mib: float


class Capacity(msgspec.Struct, frozen=True):
    """Leaf cells by leaf cell type, and by pinned cell as (leaf cell type, count)."""

    by_type: dict[str, int]
    pinned: dict[str, tuple[str, int]]

    @property
    def leaf_types(self) -> set[str]:
        """Every leaf cell type, those of the pinned cells included."""
        return set(self.by_type) | {leaf_type for leaf_type, _ in self.pinned.values()}

    def largest(self) -> int:
        """The largest number of SKUs of one type outside pinned cells."""
        return max(self.by_type.values(), default=0)


def cluster_capacity(spec: ClusterSpec) -> Capacity:
    """All leaf cells of the cluster; nothing counts as pinned."""
    by_type: dict[str, int] = {}
    for cell in spec.physical_cells:
        leaf_type, count = leaves_below(spec, cell.cell_type)
        by_type[leaf_type] = by_type.get(leaf_type, 0) + count
    return Capacity(by_type, {})


def vc_capacity(spec: ClusterSpec, vc: str) -> Capacity:
    """The leaf cells promised to a virtual cluster. Raises UserError if there is no such VC."""
    if vc not in spec.virtual_clusters:
        known = ", ".join(sorted(spec.virtual_clusters))
        raise UserError(f"virtual cluster {vc} does not exist; the configuration has {known}")
    by_type: dict[str, int] = {}
    for cells in spec.virtual_clusters[vc].virtual_cells:
        leaf_type, count = leaves_below(spec, cells.cell_type.rsplit(".", 1)[-1])
        by_type[leaf_type] = by_type.get(leaf_type, 0) + count * cells.cell_count
    pins = spec.virtual_clusters[vc].pinned_cell_ids
    pinned = {pin: leaves_below(spec, cell_type) for pin, cell_type in _pinned_cells(spec) if pin in pins}
    return Capacity(by_type, pinned)


def sku(spec: ClusterSpec, leaf_types: Iterable[str]) -> SkuTypeSpec:
    """The SKU that any of these types is sure to offer: of each resource the smallest that is not zero."""
    skus = [spec.sku_types.get(leaf_type, _UNDESCRIBED_SKU) for leaf_type in leaf_types]
    return SkuTypeSpec(
        gpu=min((one.gpu for one in skus if one.gpu), default=0),
        cpu=min((one.cpu for one in skus if one.cpu), default=0.0),
        memory_mib=min((one.memory_mib for one in skus if one.memory_mib), default=0.0),
    )


def skus_needed(asked: Resources, offered: SkuTypeSpec) -> int:
    """The number of SKUs that cover every resource asked for, at least 1 (a SKU's unknown CPU or memory counts not).

    Raises UserError if GPUs are asked for and the SKU has none.
    """
    if asked.gpu and not offered.gpu:
        raise UserError(f"asks for {asked.gpu} GPUs, but the SKU has none")
    pairs = ((asked.gpu, offered.gpu), (asked.cpu, offered.cpu), (asked.memory_mib, offered.memory_mib))
    # 0.1 and 0.2 CPUs are 0.3, though not in floating point.
    return max(1, *(ceil(round(wanted / unit, 9)) for wanted, unit in pairs if unit))


def leaves_below(spec: ClusterSpec, cell_type: str) -> tuple[str, int]:
    """The leaf cell type below a cell type, and how many leaf cells one such cell has."""
    count = 1
    while cell_type in spec.cell_types:
        count *= spec.cell_types[cell_type].child_count
        cell_type = spec.cell_types[cell_type].child_type
    return cell_type, count


def _pinned_cells(spec: ClusterSpec) -> Iterator[tuple[str, str]]:
    """Every pinned cell as (id, cell type)."""
    stack: list[tuple[PhysicalCellSpec, str]] = [(cell, cell.cell_type) for cell in spec.physical_cells]
    while stack:
        cell, cell_type = stack.pop()
        if cell.pinned_cell_id:
            yield cell.pinned_cell_id, cell_type
        stack += [(child, spec.cell_types[cell_type].child_type) for child in cell.children]
