"""Facts about a machine from any source, the orders that all sources share, and names of cell types.

Products and labels become names: `NVIDIA-A100-SXM4-80GB` becomes `A100`, `example.com/rack` `RACK`. A name has neither
dots, which separate types in paths, nor slashes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from hived.values.errors import UserError
from hived_config.words import counted, listed

NVIDIA_GPU = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"
"""Resources of MIG devices begin so where each profile has one of its own."""

CPU_PRODUCT = "CPU"
"""The product of machines without devices whose CPUs are the leaf cells."""

_DIGITS = re.compile(r"([0-9]+)")


class DeviceGroups(msgspec.Struct, frozen=True):
    """The groups of a machine's devices below the node.

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
    """The machines of a source, and notes on them for people."""

    machines: tuple[Machine, ...]
    notes: tuple[str, ...] = ()


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key of names in natural order: node-2 before node-10."""
    parts = _DIGITS.split(name)
    return (*((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part), (-1, 0, name))


def in_order(machines: Iterable[Machine]) -> list[Machine]:
    """The machines by name, and of one node by resource."""
    return sorted(machines, key=lambda machine: (natural_key(machine.name), natural_key(machine.resource)))


def notes_on(nodes: Iterable[tuple[Enum, Iterable[str]]]) -> Iterator[str]:
    """Notes in words: each note, whose value follows "3 nodes", with the names of its nodes; none for no nodes."""
    for note, names in nodes:
        if every := list(dict.fromkeys(names)):
            yield f"{counted(len(every), 'node')} {note.value}: {listed(every)}"


_VENDORS = re.compile(r"(?i)(nvidia|amd|intel|tesla|geforce|quadro|instinct|radeon)")
_FORMS = re.compile(r"(?i:sxm\d*|pcie|nvl\d*|oam|hbm\d*e?)|\d+Gi?B")
_ODD = re.compile(r"[^A-Za-z0-9]+")
_NAME = re.compile(r"[A-Za-z0-9]([\w-]*[A-Za-z0-9])?", re.ASCII)


def words_of(product: str) -> list[str]:
    """The words of a product; of a resource such as nvidia.com/gpu only its own name, in capitals."""
    if "/" in product:
        product = product.rsplit("/", 1)[1].upper()
    return [word for word in _ODD.split(product) if word]


def full_name(product: str) -> str:
    """A product without its vendor."""
    words = words_of(product)
    return "-".join([word for word in words if not _VENDORS.fullmatch(word)] or words or ["DEVICE"])


def short_name(product: str) -> str:
    """A product without its vendor, its size of memory and its form."""
    words = [word for word in full_name(product).split("-") if not _FORMS.fullmatch(word)]
    return "-".join(words) if words else full_name(product)


def leaf_names(products: Iterable[str], given: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Name the leaf cells of each product: as `given`, else short, or in full where short names are alike.

    Raises UserError for a given name, or a prefix, that cannot be one; for a name that is given twice, or for a product
    that there is not.
    """
    every = sorted(set(products), key=natural_key)
    if not _NAME.fullmatch(f"{prefix}0"):
        raise UserError(f"prefix {prefix!r} of names: expected letters, digits, '-' and '_'")
    for product, name in given.items():
        if not _NAME.fullmatch(name):
            raise UserError(f"name {name!r} of {product}: expected letters, digits, '-' and '_'")
        if product not in every:
            raise UserError(f"no machine has {product!r}; expected one of {', '.join(every)}")
    names: dict[str, str] = dict(given)
    used = Names(given.values())
    if len(set(given.values())) < len(given):
        raise UserError(f"the same name for two products: {', '.join(given.values())}")
    free = [product for product in every if product not in given]
    shorts = [short_name(product) for product in free]
    for product, short in zip(free, shorts, strict=True):
        names[product] = used.new(short if shorts.count(short) == 1 else full_name(product))
    return {product: prefix + names[product] for product in every}


def level_names(labels: Iterable[str]) -> tuple[str, ...]:
    """Name the cells that stand for groups by these labels, each its own."""
    used = Names(["NODE"])
    return tuple(used.new(_ODD.sub("-", label.rsplit("/", 1)[-1]).strip("-").upper() or "GROUP") for label in labels)


class Names:
    """Names that are given out once; a repeated name gets a number."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        self._last: dict[str, int] = {}

    def new(self, name: str) -> str:
        """The name itself, or with the first number that makes it new."""
        candidate, number = name, 1
        while candidate in self._used:
            number += 1
            candidate = f"{name}-{number}"
        self._used.add(candidate)
        return candidate

    def numbered(self, stem: str) -> str:
        """The stem with the first number from 1 that makes it new."""
        number = self._last.get(stem, 0) + 1
        while f"{stem}-{number}" in self._used:
            number += 1
        self._last[stem] = number
        self._used.add(f"{stem}-{number}")
        return f"{stem}-{number}"
