"""`skuTypes` -> `SkuTypeSpec`: what one leaf cell stands for when a job is turned into pods (rule 1.4).

And by which device resource and node labels pods of other dialects mean it.
"""

import re
from dataclasses import dataclass, field

import yaml

from hived.specs import SkuTypeSpec
from hived_config.chains import CellTypes
from hived_config.reader import Reader, closest, describe, shorten

SKU_TYPE_KEYS = ("gpu", "cpu", "memory", "resource", "deviceClass", "nodeLabels")

A_RESOURCE = "a device resource of Kubernetes, such as nvidia.com/gpu"
RESOURCE = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)

A_LABEL_VALUE = "the value of a label: at most 63 letters, digits, '-', '_' and '.'"
LABEL = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)

_MEMORY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)", re.ASCII)
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{prefix}i": 2 ** (10 * power) for power, prefix in enumerate("KMGTP", start=1)
}
_DEVICE_CLASS = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SkuTypes:
    """The SKU types of a file, by name; `resources`, `device_classes` and `node_labels` of those that say any."""

    specs: dict[str, SkuTypeSpec] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    device_classes: dict[str, str] = field(default_factory=dict)
    node_labels: dict[str, dict[str, str]] = field(default_factory=dict)


def read_sku_types(reader: Reader, node: yaml.Node, types: CellTypes) -> SkuTypes:
    """The SKU types of a file. One that names no leaf cell type is only warned of: nothing will use it."""
    skus = SkuTypes()
    are_types_known = types.is_given and not types.broken
    for name, key, value in reader.fields(node, "SKU types by name"):
        if are_types_known and name not in types.leaf_types:
            expected = "a leaf cell type, or nothing can use it"
            reader.note(key, f"SKU type {shorten(name)}", expected, closest(name, types.leaf_types), is_warning=True)
        fields = reader.known_fields(value, "a SKU type (a mapping)", SKU_TYPE_KEYS)
        is_of_devices = "resource" in fields or not ("cpu" in fields or "memory" in fields)
        gpu = reader.integer(fields["gpu"], "a whole number of GPUs", 0) if "gpu" in fields else int(is_of_devices)
        cpu = reader.number(fields["cpu"], "a number of CPUs") if "cpu" in fields else 0.0
        memory = _read_memory(reader, fields["memory"]) if "memory" in fields else 0.0
        skus.specs[name] = SkuTypeSpec(gpu or 0, cpu, memory)
        if "resource" in fields:
            skus.resources[name] = _read_resource(reader, fields["resource"])
        if "deviceClass" in fields:
            skus.device_classes[name] = _read_device_class(reader, fields["deviceClass"])
        if "nodeLabels" in fields:
            skus.node_labels[name] = _read_labels(reader, fields["nodeLabels"])
    return skus


def _read_resource(reader: Reader, node: yaml.Node) -> str:
    resource = reader.text(node, A_RESOURCE)
    if not RESOURCE.fullmatch(resource):
        reader.note(node, describe(node), A_RESOURCE)
    return resource


def _read_device_class(reader: Reader, node: yaml.Node) -> str:
    """The name of a DeviceClass; "" for none."""
    expected = "the name of a DeviceClass, such as gpu.nvidia.com"
    name = reader.text(node, expected)
    if name and not _DEVICE_CLASS.fullmatch(name):
        reader.note(node, describe(node), expected)
    return name


def _read_labels(reader: Reader, node: yaml.Node) -> dict[str, str]:
    labels = {}
    expected = A_LABEL_VALUE
    for name, key, value in reader.fields(node, "labels of nodes by name"):
        labels[name] = reader.text(value, expected)
        if not LABEL.fullmatch(name):
            reader.note(key, f"label {shorten(name)}", "the name of a label, such as example.com/gpu-model")
        if not LABEL_VALUE.fullmatch(labels[name]):
            reader.note(value, describe(value), expected)
    return labels


def _read_memory(reader: Reader, node: yaml.Node) -> float:
    """A Kubernetes quantity of memory, in MiB; a plain number is bytes."""
    match = _MEMORY.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
    if match is None:
        reader.note(node, describe(node), "an amount of memory, such as 4096Mi or 32Gi")
        return 0.0
    return float(match[1]) * float(_BYTES[match[2]]) / 2**20
