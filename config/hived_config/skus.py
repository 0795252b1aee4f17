"""Reads `skuTypes`: the devices, CPUs and memory of one leaf cell when a job is turned into pods (rule 1.4).

Each also has the device resource and node labels by which pods of other dialects choose it.
"""

import re
from typing import Any

import msgspec
import yaml

from hived.values.specs import SkuTypeSpec
from hived_config.chains import CellTypes
from hived_config.quantities import amount
from hived_config.reader import (
    Integer,
    Key,
    MapOf,
    Number,
    Reader,
    Record,
    Schema,
    Text,
    ValueKind,
    closest,
    describe,
    shorten,
)

GPU_RESOURCE = "nvidia.com/gpu"
"""A leaf cell is this to Kubernetes, unless its SKU type says otherwise."""

GPU_DEVICE_CLASS = "gpu.nvidia.com"
"""The DeviceClass of leaf cells that are `nvidia.com/gpu`, unless their SKU type says otherwise."""

RESOURCE = Text(
    "a device resource of Kubernetes, such as nvidia.com/gpu", r"[a-z0-9.-]+/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
)
LABEL_PATTERN = r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
LABEL_VALUE = Text(
    "the value of a label: at most 63 letters, digits, '-', '_' and '.'",
    r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?",
)

_MEMORY = re.compile(r"([0-9]{1,15}(\.[0-9]{1,15})?)(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?", re.ASCII)


class _Memory(ValueKind):
    """A Kubernetes quantity of memory; a plain number is bytes."""

    what = "an amount of memory, such as 4096Mi or 32Gi, or no such key"
    words = "text or number"

    def read(self, reader: Reader, node: yaml.Node) -> float:
        """In MiB; 0 after noting why it is none."""
        match = _MEMORY.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
        if match is None:
            reader.note(node, describe(node), self.what)
            return 0.0
        return amount(match[0]) / 2**20

    def schema(self) -> Schema:
        """With a unit, or as bytes."""
        return {"type": ["string", "number"], "pattern": f"^{_MEMORY.pattern}$", "minimum": 0}


SKU_TYPE = Record(
    "skuType",
    "a SKU type (a mapping)",
    "What one leaf cell of a type stands for to those who ask for devices, CPUs and memory.",
    (
        Key(
            "gpu",
            Integer("a whole number of GPUs", 0),
            "devices; a type without any is only had by pods that name it in HiveD's own words",
            rule="`1`, but `0` where `cpu` or `memory` is given and no `resource`",
            is_nullable=False,
        ),
        Key("cpu", Number("a number of CPUs"), "CPUs", 0, is_nullable=False),
        Key("memory", _Memory(), "memory, such as `4096Mi` or `32Gi`; a plain number is bytes", 0, is_nullable=False),
        Key("resource", RESOURCE, "the resource that a device is to Kubernetes", GPU_RESOURCE, is_nullable=False),
        Key(
            "deviceClass",
            Text("the name of a DeviceClass, such as gpu.nvidia.com", r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?"),
            "the DeviceClass by which claims ask for its devices; `''` for none",
            rule=f"`{GPU_DEVICE_CLASS}` where `resource` is `{GPU_RESOURCE}`",
            is_nullable=False,
        ),
        Key(
            "nodeLabels",
            MapOf(
                "labels of nodes by name",
                LABEL_VALUE,
                "label",
                Text("the name of a label, such as example.com/gpu-model", LABEL_PATTERN),
            ),
            "labels that its nodes have; a pod whose nodeSelector has one of them wants this type",
        ),
    ),
    is_nullable=True,
)


class SkuTypes(msgspec.Struct, frozen=True):
    """The SKU types of a file, by name; `resources`, `device_classes` and `node_labels` where given."""

    specs: dict[str, SkuTypeSpec] = msgspec.field(default_factory=dict)
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    device_classes: dict[str, str] = msgspec.field(default_factory=dict)
    node_labels: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)

    def resource_of(self, leaf_type: str) -> str:
        """The device resource that leaf cells of a type are, "" for cells without devices."""
        sku = self.specs.get(leaf_type)
        return self.resources.get(leaf_type, GPU_RESOURCE) if sku is None or sku.gpu else ""


SKU_TYPES = MapOf("SKU types by name", SKU_TYPE)


def read_sku_types(reader: Reader, node: yaml.Node | None, types: CellTypes) -> SkuTypes:
    """Read the SKU types of a file; one that names no leaf cell type is unused, and only a warning."""
    skus = SkuTypes()
    by_key: dict[str, dict[str, Any]] = {
        "resource": skus.resources, "deviceClass": skus.device_classes, "nodeLabels": skus.node_labels
    }  # fmt: skip
    are_types_known = types.is_given and not types.broken
    for name, key, value in SKU_TYPES.fields(reader, node):
        if are_types_known and name not in types.leaf_types:
            expected = "a leaf cell type, or nothing can use it"
            reader.note(key, f"SKU type {shorten(name)}", expected, closest(name, types.leaf_types), is_warning=True)
        given = SKU_TYPE.given(reader, value)
        is_of_devices = "resource" in given.nodes or given.nodes.keys().isdisjoint(("cpu", "memory"))
        gpu = given.value("gpu", int(is_of_devices)) or 0
        skus.specs[name] = SkuTypeSpec(gpu, float(given.value("cpu")), float(given.value("memory")))
        for part, values in by_key.items():
            if part in given.nodes:
                values[name] = given.value(part, {})
    return skus
