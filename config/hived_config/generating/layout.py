"""OpenPAI's layout.yaml -> machines.

    machine-sku:
      gpu-machine:
        mem: 220Gi
        cpu: {vcore: 24}
        computing-device: {type: nvidia.com/gpu, model: K80, count: 4}
    machine-list:
    - {hostname: worker-1, hostip: 10.0.0.2, machine-type: gpu-machine, pai-worker: "true"}

Only workers count. Sections of OpenPAI's other services are not looked at. Its figures are of whole machines, so part
of each is kept back for the system.
"""

from collections.abc import Mapping, Sequence

import msgspec
import yaml

from hived_config.document import ConfigError, compose
from hived_config.generating.machines import (
    CPU_PRODUCT,
    NVIDIA_GPU,
    FoundMachines,
    Machine,
    in_order,
)
from hived_config.quantities import quantity
from hived_config.reader import TRUES, Integer, Number, Reader, closest, describe, is_null, name_text, required, shorten
from hived_config.words import counted, listed

RESERVED_CPU = 1.0
RESERVED_MEMORY_MIB = 2048.0
"""The needs of a machine's own system, unless its owner knows better."""

_SKU = "a machine type (a mapping)"
_A_TYPE = "a machine type of machine-sku"
_DEVICES = "devices (a mapping of type, model and count)"
_MACHINE = "a machine (a mapping)"
_MEMORY = "an amount of memory, such as 220Gi"


class _Sku(msgspec.Struct, frozen=True):
    """One machine type; `device_count` is 0 without devices."""

    cpu: float = 0.0
    memory_mib: float = 0.0
    resource: str = ""
    model: str = ""
    device_count: int = 0


def read_layout(
    text: str,
    file: str,
    reserved_cpu: float = RESERVED_CPU,
    reserved_memory_mib: float = RESERVED_MEMORY_MIB,
    with_cpus: bool = False,
    levels: Sequence[str] = (),
) -> FoundMachines:
    """Read the workers of a layout, by name; workers without devices are left out, or become cells of one CPU each.

    A machine stands in the groups that its own keys say, named as the `levels`: OpenPAI ignores keys such as `rack`.

    Raises ConfigError with every mistake in the sections read.
    """
    reader = Reader(file, compose(text, file))
    fields = {name: value for name, _, value in reader.fields(reader.root, "a layout (a mapping)")}
    skus: dict[str, _Sku] = {}
    for key, what in (("machine-sku", "machine types by name"), ("machine-list", "a list of machines")):
        if key not in fields:
            reader.missing(reader.root, key, what)
    for name, _, value in reader.fields(fields.get("machine-sku"), "machine types by name"):
        skus[name] = _read_sku(reader, value)
    machines: dict[str, Machine] = {}
    without: list[str] = []
    for node in reader.items(fields.get("machine-list"), "a list of machines", _MACHINE):
        read = _read_worker(reader, node, skus, levels)
        if read is None:
            continue
        name, sku, groups = read
        if name in machines or name in without:
            reader.note(node, f"hostname {shorten(name)} given twice", "each machine once")
        cpu = max(0.0, sku.cpu - reserved_cpu)
        memory_mib = max(0.0, sku.memory_mib - reserved_memory_mib)
        if sku.device_count:
            product = sku.model or sku.resource
            machines[name] = Machine(name, product, sku.device_count, cpu, memory_mib, groups, resource=sku.resource)
        elif with_cpus and cpu >= 1:
            machines[name] = Machine(name, CPU_PRODUCT, int(cpu), float(int(cpu)), memory_mib, groups, resource="")
        else:
            without.append(name)
    mistakes = reader.mistakes()
    if mistakes:
        raise ConfigError(mistakes)
    notes = [f"{counted(len(without), 'worker')} left out, without devices: {listed(without)}"] if without else []
    return FoundMachines(tuple(in_order(machines.values())), tuple(notes))


def _read_sku(reader: Reader, node: yaml.Node) -> _Sku:
    fields = {name: value for name, _, value in reader.fields(node, _SKU)}
    cpus = {name: value for name, _, value in reader.fields(fields.get("cpu"), "CPUs (a mapping of vcore)")}
    cpu = Number("a number of CPUs").read(reader, cpus["vcore"]) if "vcore" in cpus else 0.0
    memory_mib = _read_memory(reader, fields["mem"]) if "mem" in fields else 0.0
    devices = fields.get("computing-device", fields.get("gpu"))
    if devices is None or is_null(devices):
        meant = closest("computing-device", set(fields) - {"mem", "cpu"})
        if meant:
            key = next(key for name, key, _ in reader.fields(node, _SKU) if name == meant)
            reader.note(key, f"unknown key {shorten(meant)}", "computing-device", "computing-device")
        return _Sku(cpu, memory_mib)
    parts = {name: value for name, _, value in reader.fields(devices, _DEVICES)}
    count = required(reader, devices, parts, "count", Integer("a whole number of devices", 0))
    kind = reader.text(parts.get("type"), "a device resource, such as nvidia.com/gpu")
    model = reader.text(parts.get("model"), "the model of the devices")
    if "computing-device" not in fields:  # layouts of old have `gpu: {type: teslak80, count: 4}`
        kind, model = NVIDIA_GPU, model or kind
    elif "/" not in kind:
        reader.note(parts.get("type", devices), shorten(kind), "a device resource, such as nvidia.com/gpu")
    return _Sku(cpu, memory_mib, kind, model, count or 0)


def _read_memory(reader: Reader, node: yaml.Node) -> float:
    """Read memory in MiB; a number without a unit is GiB, as authors of old layouts meant it."""
    text = reader.text(node, _MEMORY)
    value = quantity(text.removesuffix("B") if text.endswith(("GB", "MB", "TB")) else text)
    if value is None:
        reader.note(node, describe(node), _MEMORY)
        return 0.0
    return value * 1024 if text.replace(".", "").isdigit() else value / 2**20


def _read_worker(
    reader: Reader, node: yaml.Node, skus: Mapping[str, _Sku], levels: Sequence[str]
) -> tuple[str, _Sku, tuple[str, ...]] | None:
    """Read name, type and groups of a machine; None if it is no worker, or has a mistake."""
    fields = {name: value for name, _, value in reader.fields(node, _MACHINE)}
    hostname = name_text("the name of the machine, which is that of its node")
    name = required(reader, node, fields, "hostname", hostname)
    kind = required(reader, node, fields, "machine-type", name_text(_A_TYPE))
    if kind and kind not in skus:
        reader.note(fields["machine-type"], shorten(kind), _A_TYPE, closest(kind, skus))
    is_worker = reader.text(fields.get("pai-worker"), "true or false") in TRUES
    groups = tuple(reader.text(fields.get(level), f"the {level} of the machine") for level in levels)
    return (name, skus[kind], groups) if is_worker and name and kind in skus else None
