"""Amounts of resources: what Kubernetes sets aside for a pod, what quotas count, and what virtual clusters have.

A virtual cluster's capacity is counted in SKUs (leaf cells), from the configuration alone: submission checks a job
before any pod exists. A SKU of a type that `skuTypes` does not describe counts as one GPU, of unknown CPU and memory.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from math import ceil

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec, PhysicalCellSpec, SkuTypeSpec
from hived_config.quantities import amount
from hived_config.rules import PodRules
from hived_config.words import counted
from hived_extender.jobs.annotations import MAX_COUNT, PREFIX
from hived_extender.jobs.wire import ENABLE_LIMIT, Container, Pod, PodSpec, Resources

Quantity = str | int | float
Measure = Callable[[str, Quantity], float | None]
"""(resource, quantity) to the amount, None for a resource that does not count."""

DEVICE_REQUESTS = PREFIX + "device-requests"
"""The devices of a pod whose containers request none any more: the admission webhook removed them."""

_SHOWN = 100
_OF_PODS = re.compile(r"cpu|memory|hugepages-.*")
"""Resources that a pod may ask for as a whole; only containers ask for devices."""


# ---- of a pod


def requested(pod: Pod, resource: str) -> float:
    """The amount of a resource that Kubernetes sets aside for a pod."""
    return all_requested(pod, {resource}).get(resource, 0.0)


def all_requested(pod: Pod, names: Set[str]) -> dict[str, float]:
    """The amount of each of these resources that Kubernetes sets aside for a pod. Cost as of `set_aside`."""
    return set_aside(pod.spec or PodSpec(), lambda name, quantity: amount(quantity) if name in names else None)


def amounts_of(pod: Pod) -> dict[str, float]:
    """The amounts that count in quotas, with the devices that the admission webhook has removed.

    The limit that enables a pod counts for nothing. Raises UserError for a malformed annotation of the webhook.
    """
    removed = removed_devices(pod)
    spec = pod.spec or PodSpec()
    found = set_aside(spec, lambda name, quantity: None if name == ENABLE_LIMIT else amount(quantity))
    return dict([removed] if removed else ()) | found


def set_aside(spec: PodSpec, measure: Measure) -> dict[str, float]:
    """The amounts that Kubernetes sets aside for a pod, as kube-scheduler adds them up (rule 21.1).

    Cost O(containers x resources that they name): both are the author's to choose.
    """
    found = most_at_once(spec, lambda container: _measured(own_requests(container.resources), measure))
    if spec.resources is not None:
        limits = {name: limit for name, limit in (spec.resources.limits or {}).items() if not found.get(name)}
        said = limits | (spec.resources.requests or {})
        found |= {name: each for name, each in _measured(said, measure) if _OF_PODS.fullmatch(name)}
    for name, each in _measured(spec.overhead or {}, measure):
        found[name] = found.get(name, 0) + each
    return found


def _measured(quantities: Mapping[str, Quantity], measure: Measure) -> Iterator[tuple[str, float]]:
    for name, quantity in quantities.items():
        found = measure(name, quantity)
        if found is not None:
            yield name, found


def most_at_once(spec: PodSpec, amounts: Callable[[Container], Iterable[tuple[str, float]]]) -> dict[str, float]:
    """The sums of all containers that run at once, or of an init container and those that run on beside it."""
    running: dict[str, float] = {}
    peak: dict[str, float] = {}
    for each in spec.init_containers or ():
        for name, own in amounts(each):
            peak[name] = max(peak.get(name, 0), running.get(name, 0) + own)
            if each.restart_policy == "Always":
                running[name] = running.get(name, 0) + own
    for each in spec.containers or ():
        for name, own in amounts(each):
            running[name] = running.get(name, 0) + own
    return {name: max(running.get(name, 0), peak.get(name, 0)) for name in running.keys() | peak.keys()}


def own_requests(resources: Resources | None) -> dict[str, Quantity]:
    """The requests of a container; a limit stands for a request that is missing."""
    return {} if resources is None else (resources.limits or {}) | (resources.requests or {})


class DeviceRequests(msgspec.Struct):
    """The content of the annotation `DEVICE_REQUESTS`.

    `total` is as Kubernetes counts a pod, whose init containers end before the others begin.
    """

    resource: str
    total: int
    containers: dict[str, int] = {}


def removed_devices(pod: Pod) -> tuple[str, int] | None:
    """(resource, count) of the devices that the admission webhook removed; None without any. Raises UserError."""
    text = pod.annotations.get(DEVICE_REQUESTS)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=DeviceRequests)
    except (ValueError, RecursionError) as error:
        said = f"{DEVICE_REQUESTS} is {text[:_SHOWN]!r}: {error}"
        raise UserError(f"{said}; the admission webhook writes it, remove it") from None
    return (found.resource, min(found.total, MAX_COUNT)) if found.total > 0 else None


# ---- of leaf cells


class CellAmounts:
    """The devices of leaf cells: a pod has at least those of its cells, whatever it requests (rule 24.7)."""

    def __init__(self, cluster: ClusterSpec, rules: PodRules) -> None:
        skus = cluster.sku_types
        self._devices = {
            leaf_type: (resource, float(skus[leaf_type].gpu if leaf_type in skus else 1))
            for leaf_type, resource in rules.resources_in(cluster).items()
        }

    def at_least(self, amounts: Mapping[str, float], leaf_type: str, leaf_count: int) -> dict[str, float]:
        """The amounts of pods with `leaf_count` leaf cells together, of any type if `leaf_type` is "".

        With any type, each device that the pods name counts; all of them if they name none.
        """
        found = dict(amounts)
        if leaf_type in self._devices:
            devices = [self._devices[leaf_type]]
        else:
            devices = [each for each in self._devices.values() if each[0] in amounts] or list(self._devices.values())
        for resource, per_leaf in devices:
            found[resource] = max(found.get(resource, 0.0), per_leaf * leaf_count)
        return found


_UNDESCRIBED_SKU = SkuTypeSpec(gpu=1)


class Request(msgspec.Struct, frozen=True):
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
        """Every leaf cell type, also of pinned cells."""
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
    pinned = {pin: leaves_below(spec, cell_type) for pin, cell_type in pinned_cells(spec) if pin in pins}
    return Capacity(by_type, pinned)


def sku(spec: ClusterSpec, leaf_types: Iterable[str]) -> SkuTypeSpec:
    """The SKU that all of these types offer: the smallest amount of each resource that is not zero."""
    skus = [spec.sku_types.get(leaf_type, _UNDESCRIBED_SKU) for leaf_type in leaf_types]
    return SkuTypeSpec(
        gpu=min((one.gpu for one in skus if one.gpu), default=0),
        cpu=min((one.cpu for one in skus if one.cpu), default=0.0),
        memory_mib=min((one.memory_mib for one in skus if one.memory_mib), default=0.0),
    )


def skus_needed(asked: Request, offered: SkuTypeSpec) -> int:
    """The number of SKUs that cover every requested resource, at least 1 (rule 21.6); unknown amounts are ignored.

    Raises UserError if GPUs are asked for and the SKU has none.
    """
    if asked.gpu and not offered.gpu:
        raise UserError(f"asks for {counted(asked.gpu, 'GPU')}, but the SKU has none")
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


def pinned_cells(spec: ClusterSpec) -> Iterator[tuple[str, str]]:
    """Every pinned cell as (id, cell type)."""
    stack: list[tuple[PhysicalCellSpec, str]] = [(cell, cell.cell_type) for cell in spec.physical_cells]
    while stack:
        cell, cell_type = stack.pop()
        if cell.pinned_cell_id:
            yield cell.pinned_cell_id, cell_type
        stack += [(child, spec.cell_types[cell_type].child_type) for child in cell.children]
