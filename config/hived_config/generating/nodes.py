"""Turns Kubernetes nodes into machines. A node is the JSON of the API server as a mapping; any field may be absent."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived_config.generating.machines import (
    CPU_PRODUCT,
    MIG_PREFIX,
    NVIDIA_GPU,
    FoundMachines,
    Machine,
    natural_key,
    notes_on,
)
from hived_config.quantities import quantity
from hived_config.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN, Requirement, Selector, matches
from hived_config.words import listed

AMD_GPU = "amd.com/gpu"
PRODUCT_LABELS = {
    NVIDIA_GPU: "nvidia.com/gpu.product",
    AMD_GPU: "amd.com/gpu.product-name",
    "gpu.intel.com/i915": "gpu.intel.com/product",
}
"""By device resource, the label that its vendor's feature discovery puts on nodes to name the product."""

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_DEVICE = re.compile(
    r"[^/]+/[pv]?gpu.*|nvidia\.com/mig-.+|gpu\.intel\.com/.+|habana\.ai/.+|(?:huawei|enflame|mthreads|cambricon)\.com/.+"
    r"|google\.com/tpu|aws\.amazon\.com/neuron.*"
)
"""Resources of devices that hived can be given; others, such as rdma/hca, leave a node one of CPUs."""

_REPLICAS = "nvidia.com/gpu.replicas"
_PROFILE = re.compile(re.escape(MIG_PREFIX) + r"([1-7])g\..+")
_OPERATORS = {"": EXISTS, "!": DOES_NOT_EXIST, "=": IN, "!=": NOT_IN}
_TERM = re.compile(r"(!?)([A-Za-z0-9][\w./-]*)(?:(!=|==|=)([\w.-]*))?", re.ASCII)


class Reading(msgspec.Struct, frozen=True):
    """Options for reading nodes.

    Attributes
    ----------
    levels : the labels of the groups that nodes stand in, outermost first
    resources : the device resources to look for; a node with several is a machine for each
    product_label : the label that names the product, instead of the vendor's
    selector : labels that a node has to have, as kubectl takes them: `pool=gpu,!spare`
    reserved_cpu, reserved_memory_mib : of every node, not for pods of ours
    with_cpus : whether nodes without devices, whatever their resource, become cells of one CPU each
    """

    levels: tuple[str, ...] = ()
    resources: tuple[str, ...] = (NVIDIA_GPU, AMD_GPU)
    product_label: str = ""
    selector: str = ""
    reserved_cpu: float = 0.0
    reserved_memory_mib: float = 0.0
    with_cpus: bool = False


class _Note(Enum):
    """A note on nodes, in the order in which people read them."""

    WITHOUT_DEVICES = "left out, without devices"
    UNALLOCATABLE = "left out, none of whose devices is allocatable"
    UNNAMED = "left out, whose devices are not looked for: name their resource with --resource"
    TAINTED = "left out, of the control plane and closed to pods"
    REDUCED = "counted with the devices that are allocatable, which are fewer than there are"
    SHARED = "whose devices are shared by time slicing: each leaf cell is a slice"
    SLICED_TOO = "whose MIG devices are left out: name these with --resource as well"
    BROKEN = "with a number of devices, CPUs or memory that cannot be read"


_Notes = Mapping[_Note, list[str]]


def machines_of(nodes: Iterable[Mapping[str, Any]], reading: Reading | None = None) -> FoundMachines:
    """The machines among the nodes, by name, and notes on the others for people.

    Nodes without devices are left out, and so are nodes of the control plane that no pod may run on. Raises UserError
    for a selector that cannot be read.
    """
    reading = reading or Reading()
    requirements = parse_selector(reading.selector)
    notes: _Notes = {note: [] for note in _Note}
    machines: list[Machine] = []
    chosen = [node for node in nodes if matches(requirements, labels_of(node))]
    for node in sorted(chosen, key=lambda node: natural_key(name_of(node))):
        machines += _machines(node, reading, notes)
    return FoundMachines(tuple(machines), (*absent_resources(chosen, reading), *notes_on(notes.items())))


def absent_resources(nodes: Iterable[Mapping[str, Any]], reading: Reading) -> Iterator[str]:
    """Note named resources that no node has, with the resources that nodes have."""
    if reading.resources == Reading().resources:
        return
    has = {resource for node in nodes for resource in _devices(node.get("status") or {}, reading.resources)}
    if absent := [each for each in dict.fromkeys(reading.resources) if each not in has]:
        yield f"no node has {' or '.join(absent)} (--resource); nodes have {listed(sorted(has)) or 'no devices'}"


def _devices(status: Mapping[str, Any], named: Collection[str]) -> dict[str, tuple[str, str]]:
    """Capacity and allocatable amount of the device resources of a node: the `named` ones, and likely ones."""
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    found = {}
    for resource in dict.fromkeys((*capacity, *allocatable)):
        amounts = str(capacity.get(resource, "0")), str((allocatable or capacity).get(resource, "0"))
        if (resource in named or _DEVICE.fullmatch(resource)) and any(quantity(each) != 0 for each in amounts):
            found[resource] = amounts
    return found


def name_of(node: Mapping[str, Any]) -> str:
    """The name of a node."""
    return str((node.get("metadata") or {}).get("name", ""))


def labels_of(node: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of a node."""
    return (node.get("metadata") or {}).get("labels") or {}


def _machines(node: Mapping[str, Any], reading: Reading, notes: _Notes) -> list[Machine]:
    """A machine for each resource that a node has, which share its CPUs and memory."""
    name, labels = name_of(node), labels_of(node)
    status = node.get("status") or {}
    capacity = status.get("capacity") or {}
    allocatable = status.get("allocatable") or capacity
    amounts = {resource: quantity(amount) for resource, amount in allocatable.items()}
    cpu, memory = amounts.get("cpu", 0.0), amounts.get("memory", 0.0)
    found = [each for each in dict.fromkeys(reading.resources) if amounts.get(each, 0) != 0]
    if cpu is None or memory is None or any(amounts[each] is None for each in found):
        notes[_Note.BROKEN].append(name)
        return []
    cpu = max(0.0, cpu - reading.reserved_cpu)
    memory_mib = max(0.0, memory / 2**20 - reading.reserved_memory_mib)
    is_closed = any(
        taint.get("key") in _CONTROL_PLANE and taint.get("effect") in ("NoSchedule", "NoExecute")
        for taint in (node.get("spec") or {}).get("taints") or ()
    )
    counts = {resource: count for resource in found if (count := int(amounts[resource] or 0))}
    if is_closed:
        notes[_Note.TAINTED].append(name)
        return []
    groups = tuple(labels.get(level, "") for level in reading.levels)
    if not counts:
        devices = _devices(status, reading.resources)
        if devices or not reading.with_cpus or cpu < 1:
            is_named = devices.keys() <= {*reading.resources}
            unused = _Note.UNALLOCATABLE if is_named else _Note.UNNAMED
            told = "; ".join(f"{each}: {has}, allocatable {can_have}" for each, (has, can_have) in devices.items())
            notes[unused if devices else _Note.WITHOUT_DEVICES].append(f"{name} ({told})" if told else name)
            return []
        return [Machine(name, CPU_PRODUCT, int(cpu), float(int(cpu)), memory_mib, groups, resource="")]
    sliced = [each for each, amount in amounts.items() if each.startswith(MIG_PREFIX) and amount]
    if left := [each for each in sliced if each not in reading.resources]:
        notes[_Note.SLICED_TOO].append(f"{name} ({', '.join(left)})")
    if any(count < (quantity(capacity.get(resource, count)) or 0) for resource, count in counts.items()):
        notes[_Note.REDUCED].append(name)
    if NVIDIA_GPU in counts and (quantity(labels.get(_REPLICAS, "1")) or 1) > 1:
        notes[_Note.SHARED].append(name)
    weights = {resource: count * _weight(resource) for resource, count in counts.items()}
    labels_by = {resource: PRODUCT_LABELS.get(resource, "") for resource in counts}
    if reading.product_label:
        labels_by[min(counts, key=lambda each: each.startswith(MIG_PREFIX))] = reading.product_label
    machines = []
    for resource, count in counts.items():
        product = labels.get(labels_by[resource], "")
        chosen_by = {labels_by[resource]: product} if product else {}
        share = weights[resource] / sum(weights.values())
        has = count, cpu * share, memory_mib * share
        machines.append(Machine(name, product or resource, *has, groups, resource=resource, node_labels=chosen_by))
    return machines


def _weight(resource: str) -> float:
    """The share of a node's CPUs and memory that comes with a device: a MIG device is so many sevenths of a GPU."""
    profile = _PROFILE.fullmatch(resource)
    return int(profile[1]) / 7 if profile else 1.0


def parse_selector(text: str) -> Selector:
    """Parse a selector into requirements that all have to hold.

    KEY!=VALUE also holds without the key. Raises UserError.
    """
    requirements = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _TERM.fullmatch(part)
        if match is None or (match[1] and match[3]):
            raise UserError(f"selector {part!r}: expected KEY, !KEY, KEY=VALUE or KEY!=VALUE")
        operator = _OPERATORS[match[1] or (match[3] or "").replace("==", "=")]
        requirements.append(Requirement(match[2], operator, (match[4],) if match[3] else ()))
    return tuple(requirements)
