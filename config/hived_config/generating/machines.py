"""Facts about a machine, whatever the source, and the orders that all sources share."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec

NVIDIA_GPU = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"
"""Resources of MIG devices begin so where each profile has one of its own."""

CPU_PRODUCT = "CPU"
"""The product of machines without devices whose CPUs are the leaf cells."""

_DIGITS = re.compile(r"([0-9]+)")


class DeviceGroups(msgspec.Struct, frozen=True):
    """How the devices of a machine are grouped below the node.

    `levels` are (name, devices of one such cell), lowest first, each size a multiple of the one before; `order` are the
    devices from left to right in the tree, () for 0, 1, 2 and so on.
    """

    levels: tuple[tuple[str, int], ...] = ()
    order: tuple[int, ...] = ()


NOT_GROUPED = DeviceGroups()


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, or the devices of one resource where a node has several.

    Attributes
    ----------
    name : of its Kubernetes node
    product : of its devices, as the source calls it
    device_count : how many leaf cells it is to have, at least 1
    cpu, memory_mib : the amounts that pods can have, 0 if not known
    groups : the groups that it stands in, outermost first (zone, block, rack); "" for an unknown one
    inner : how its devices are grouped
    resource : the Kubernetes resource of a device, "" for CPUs
    node_labels : the labels by which pods choose this product
    """

    name: str
    product: str
    device_count: int
    cpu: float = 0.0
    memory_mib: float = 0.0
    groups: tuple[str, ...] = ()
    inner: DeviceGroups = NOT_GROUPED
    resource: str = NVIDIA_GPU
    node_labels: Mapping[str, str] = field(default_factory=dict, hash=False)


class FoundMachines(msgspec.Struct, frozen=True):
    """The machines that a source tells of, and notes on them for people."""

    machines: tuple[Machine, ...]
    notes: tuple[str, ...] = ()


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts names as people do: node-2 before node-10."""
    parts = _DIGITS.split(name)
    return (*((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part), (-1, 0, name))


def in_order(machines: Iterable[Machine]) -> list[Machine]:
    """The machines by name, those of one node by resource."""
    return sorted(machines, key=lambda machine: (natural_key(machine.name), natural_key(machine.resource)))


def listed(names: Iterable[str], limit: int = 5) -> str:
    """Names for a message: the first few, and how many more."""
    every = list(names)
    rest = len(every) - limit
    return ", ".join(every[:limit]) + (f" and {rest} more" if rest > 0 else "")


def counted(count: int, what: str) -> str:
    """A number of things in words, such as "1 node" or "3 nodes"."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def notes_on(nodes: Iterable[tuple[Enum, Iterable[str]]]) -> Iterator[str]:
    """Notes in words: each note, whose value follows "3 nodes", with the names of its nodes; none for no nodes."""
    for note, names in nodes:
        if every := list(dict.fromkeys(names)):
            yield f"{counted(len(every), 'node')} {note.value}: {listed(every)}"
