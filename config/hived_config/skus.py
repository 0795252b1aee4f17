"""`skuTypes` -> `SkuTypeSpec`: what one leaf cell stands for when a job is turned into pods (SEMANTICS 2.1)."""

import re

import yaml

from hived.specs import SkuTypeSpec
from hived_config.chains import CellTypes
from hived_config.reader import Reader, closest, describe, shorten

SKU_TYPE_KEYS = ("gpu", "cpu", "memory")

_MEMORY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)", re.ASCII)
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{prefix}i": 2 ** (10 * power) for power, prefix in enumerate("KMGTP", start=1)
}


def read_sku_types(reader: Reader, node: yaml.Node, types: CellTypes) -> dict[str, SkuTypeSpec]:
    """The SKU types of a file by name. One that names no leaf cell type is only warned of: nothing will use it."""
    skus = {}
    are_types_known = types.is_given and not types.broken
    for name, key, value in reader.fields(node, "SKU types by name"):
        if are_types_known and name not in types.leaf_types:
            expected = "a leaf cell type, or nothing can use it"
            reader.note(key, f"SKU type {shorten(name)}", expected, closest(name, types.leaf_types), is_warning=True)
        fields = reader.known_fields(value, "a SKU type (a mapping)", SKU_TYPE_KEYS)
        gpu = reader.integer(fields["gpu"], "a whole number of GPUs", 0) if "gpu" in fields else 0
        cpu = reader.number(fields["cpu"], "a number of CPUs") if "cpu" in fields else 0.0
        memory = _read_memory(reader, fields["memory"]) if "memory" in fields else 0.0
        skus[name] = SkuTypeSpec(gpu or 0, cpu, memory)
    return skus


def _read_memory(reader: Reader, node: yaml.Node) -> float:
    """A Kubernetes quantity of memory, in MiB; a plain number is bytes."""
    match = _MEMORY.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
    if match is None:
        reader.note(node, describe(node), "an amount of memory, such as 4096Mi or 32Gi")
        return 0.0
    return float(match[1]) * float(_BYTES[match[2]]) / 2**20
