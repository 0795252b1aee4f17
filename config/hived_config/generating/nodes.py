"""Kubernetes nodes -> machines. A node is the mapping that the API server sends as JSON; any field may be absent."""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from hived.errors import UserError
from hived_config.access import Operator, Requirement
from hived_config.generating.machines import (
    CPU_PRODUCT,
    NVIDIA_GPU,
    FoundMachines,
    Machine,
    natural_key,
    notes_on,
)
from hived_config.quantities import quantity

AMD_GPU = "amd.com/gpu"
PRODUCT_LABELS = {
    NVIDIA_GPU: "nvidia.com/gpu.product",
    AMD_GPU: "amd.com/gpu.product-name",
    "gpu.intel.com/i915": "gpu.intel.com/product",
}
"""By device resource, the label that its vendor's feature discovery puts on nodes to name the product."""

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_REPLICAS = "nvidia.com/gpu.replicas"
_MIG = re.compile(r"nvidia\.com/mig-.+")
_OPERATORS = {"": Operator.EXISTS, "!": Operator.DOES_NOT_EXIST, "=": Operator.IN, "!=": Operator.NOT_IN}
_TERM = re.compile(r"(!?)([A-Za-z0-9][\w./-]*)(?:(!=|==|=)([\w.-]*))?", re.ASCII)


class Reading(msgspec.Struct, frozen=True):
    """How nodes are read.

    Attributes
    ----------
    levels : the labels of the groups that nodes stand in, outermost first
    resources : the device resources to look for, the first that a node has counts
    product_label : the label that names the product, instead of the vendor's
    selector : labels that a node has to have, as kubectl takes them: `pool=gpu,!spare`
    reserved_cpu, reserved_memory_mib : of every node, not for pods of ours
    with_cpus : whether nodes without devices become cells of one CPU each
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
    TAINTED = "left out, of the control plane and closed to pods"
    REDUCED = "counted with the devices that are allocatable, which are fewer than there are"
    SHARED = "whose devices are shared by time slicing: each leaf cell is a slice"
    SLICED = "with MIG devices under names of their own: name one with --resource"
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
    machines = []
    for node in sorted(nodes, key=lambda node: natural_key(name_of(node))):
        if all(each.holds(labels_of(node)) for each in requirements):
            machine = _machine(node, reading, notes)
            if machine is not None:
                machines.append(machine)
    return FoundMachines(tuple(machines), tuple(notes_on(notes.items())))


def name_of(node: Mapping[str, Any]) -> str:
    """The name of a node."""
    return str((node.get("metadata") or {}).get("name", ""))


def labels_of(node: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of a node."""
    return (node.get("metadata") or {}).get("labels") or {}


def _machine(node: Mapping[str, Any], reading: Reading, notes: _Notes) -> Machine | None:
    name, labels = name_of(node), labels_of(node)
    status = node.get("status") or {}
    capacity = status.get("capacity") or {}
    allocatable = status.get("allocatable") or capacity
    amounts = {resource: quantity(amount) for resource, amount in allocatable.items()}
    cpu, memory = amounts.get("cpu", 0.0), amounts.get("memory", 0.0)
    resource = next((each for each in reading.resources if amounts.get(each, 0) != 0), "")
    if cpu is None or memory is None or amounts.get(resource, 0) is None:
        notes[_Note.BROKEN].append(name)
        return None
    cpu = max(0.0, cpu - reading.reserved_cpu)
    memory_mib = max(0.0, memory / 2**20 - reading.reserved_memory_mib)
    is_closed = any(
        taint.get("key") in _CONTROL_PLANE and taint.get("effect") in ("NoSchedule", "NoExecute")
        for taint in (node.get("spec") or {}).get("taints") or ()
    )
    count = int(amounts.get(resource) or 0) if resource else 0
    if is_closed:
        notes[_Note.TAINTED].append(name)
        return None
    if not count and (not reading.with_cpus or cpu < 1):
        is_sliced = any(_MIG.fullmatch(each) for each in amounts)
        notes[_Note.SLICED if is_sliced else _Note.WITHOUT_DEVICES].append(name)
        return None
    groups = tuple(labels.get(level, "") for level in reading.levels)
    if not count:
        return Machine(name, CPU_PRODUCT, int(cpu), float(int(cpu)), memory_mib, groups, resource="")
    if count < (quantity(capacity.get(resource, count)) or 0):
        notes[_Note.REDUCED].append(name)
    if resource == NVIDIA_GPU and (quantity(labels.get(_REPLICAS, "1")) or 1) > 1:
        notes[_Note.SHARED].append(name)
    label = reading.product_label or PRODUCT_LABELS.get(resource, "")
    product = labels.get(label, "")
    chosen_by = {label: product} if product else {}
    return Machine(name, product or resource, count, cpu, memory_mib, groups, resource=resource, node_labels=chosen_by)


def parse_selector(text: str) -> list[Requirement]:
    """The requirements of a selector, all of which have to hold; KEY!=VALUE also without the key. Raises UserError."""
    requirements = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _TERM.fullmatch(part)
        if match is None or (match[1] and match[3]):
            raise UserError(f"selector {part!r}: expected KEY, !KEY, KEY=VALUE or KEY!=VALUE")
        operator = _OPERATORS[match[1] or (match[3] or "").replace("==", "=")]
        requirements.append(Requirement(match[2], operator, (match[4],) if match[3] else ()))
    return requirements
