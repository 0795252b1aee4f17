"""A configuration as people like to read it: types in blocks of one line each, one line for each node."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hived_config.generating.cells import Cell, Shape, TypeNames
from hived_config.generating.machines import NVIDIA_GPU, Machine
from hived_config.generating.shares import Allotment
from hived_config.text.places import scalar

_OTHER = re.compile(r"[^a-z0-9]+", re.ASCII)

DEFAULT_NAMESPACE = "default"
"""Where kubectl and `hived submit` create pods unless they are told otherwise."""


class NewCell(msgspec.Struct, frozen=True):
    """A cell to be written; a node is written on one line, with everything below it."""

    address: str = ""
    cell_type: str = ""
    children: tuple["NewCell", ...] = ()
    is_node: bool = False


def _device_cells(shape: Shape, devices: Sequence[int]) -> tuple[NewCell, ...]:
    """The children of a node, spelled out only if its devices are not in order."""
    if list(devices) == list(range(len(devices))):
        return ()
    cells = [NewCell(str(device)) for device in devices]
    below = 1
    for _, size in shape.inner:
        ratio = size // below
        cells = [NewCell(children=tuple(cells[at : at + ratio])) for at in range(0, len(cells), ratio)]
        below = size
    return tuple(cells)


def sku_lines(machines: Sequence[Machine], names: TypeNames) -> Iterator[str]:
    """A line for each product: the least that a device's share of CPUs and memory is on any of its machines."""
    by_product: dict[str, list[Machine]] = {}
    for machine in machines:
        by_product.setdefault(machine.product, []).append(machine)
    for product, name in names.leaves.items():
        own = by_product[product]
        fields = [f"gpu: {int(bool(own[0].resource))}"]
        cpu = min(machine.cpu / machine.device_count for machine in own)
        memory = min(machine.memory_mib / machine.device_count for machine in own)
        if cpu >= 0.1:
            fields.append(f"cpu: {int(cpu) if cpu >= 1 else int(cpu * 10) / 10}")
        if memory >= 1:
            fields.append(f"memory: {int(memory)}Mi")
        if own[0].resource not in ("", NVIDIA_GPU):
            fields.append(f"resource: {scalar(own[0].resource)}")
        if own[0].node_labels:
            labels = ", ".join(f"{scalar(key)}: {scalar(value)}" for key, value in own[0].node_labels.items())
            fields.append(f"nodeLabels: {{{labels}}}")
        yield f"    {scalar(name)}: {{{', '.join(fields)}}}"


def type_lines(shape: Shape, names: TypeNames) -> Iterator[str]:
    """A line for each cell type of a chain, from the lowest up."""
    for each in reversed(list(shape.down())):
        if each.child is not None:
            yield _type_line(names.cells[each], names.cells[each.child], each.count)
            continue
        child, size = names.leaves[each.product], 1
        for name, (_, devices) in zip(names.inner[each], each.inner, strict=True):
            yield _type_line(name, child, devices // size)
            child, size = name, devices
        yield _type_line(names.cells[each], child, each.count // size, ", isNodeLevel: true")


def _type_line(name: str, child: str, count: int, more: str = "") -> str:
    return f"    {scalar(name)}: {{childCellType: {scalar(child)}, childCellNumber: {count}{more}}}"


def new_cell(cell: Cell, cell_type: str = "") -> NewCell:
    """A cell as it is written; only top cells have a type."""
    if cell.shape.child is None:
        return NewCell(cell.address, cell_type, _device_cells(cell.shape, cell.devices), is_node=True)
    return NewCell(cell.address, cell_type, tuple(map(new_cell, cell.children)))


def flow(cell: NewCell) -> str:
    """A cell in flow style, every text in quotes: so it is JSON as well."""
    fields = []
    if cell.cell_type:
        fields.append(f'"cellType": {json.dumps(cell.cell_type)}')
    if cell.address:
        fields.append(f'"cellAddress": {json.dumps(cell.address, ensure_ascii=False)}')
    if cell.children:
        fields.append(f'"cellChildren": [{", ".join(map(flow, cell.children))}]')
    return "{" + ", ".join(fields) + "}"


def block(cell: NewCell, indent: str) -> Iterator[str]:
    """A cell as lines."""
    if cell.is_node:
        yield f"{indent}- {compact(cell)}"
        return
    fields = []
    if cell.cell_type:
        fields.append(f"cellType: {scalar(cell.cell_type)}")
    if cell.address:
        fields.append(f"cellAddress: {scalar(cell.address)}")
    fields.append("cellChildren:")
    for i, line in enumerate(fields):
        yield f"{indent}{'  ' if i else '- '}{line}"
    for child in cell.children:
        yield from block(child, f"{indent}  ")


def compact(cell: NewCell) -> str:
    """A cell in flow style, plain where that is safe; devices are numbers."""
    fields = [f"cellType: {scalar(cell.cell_type)}"] if cell.cell_type else []
    if cell.address:
        address = cell.address if cell.address.isdecimal() and not cell.is_node else scalar(cell.address)
        fields.append(f"cellAddress: {address}")
    if cell.children:
        fields.append(f"cellChildren: [{', '.join(map(compact, cell.children))}]")
    return "{" + ", ".join(fields) + "}"


def vc_lines(shared: Mapping[str, Iterable[Allotment]], names: TypeNames) -> Iterator[str]:
    """The virtual clusters with the namespaces that may use each, and its promised cells."""
    for vc, allotments in shared.items():
        cells = [f"    - {{cellType: {scalar(_path(each, names))}, cellNumber: {each.count}}}" for each in allotments]
        yield f"  {scalar(vc)}:"
        yield f"    namespaces: [{', '.join(map(scalar, namespaces_of(vc)))}]"
        if cells:
            yield "    virtualCells:"
        yield from cells


def namespaces_of(vc: str) -> list[str]:
    """The namespaces that may use a virtual cluster at first: the one that commands create pods in, and its own."""
    own = _OTHER.sub("-", vc.lower())[:63].strip("-")
    return list(dict.fromkeys(name for name in (DEFAULT_NAMESPACE, own) if name))


def _path(allotment: Allotment, names: TypeNames) -> str:
    return ".".join(names.cells[shape] for shape in allotment.path)


def document(comment: Iterable[str], machines: Sequence[Machine], tops: Sequence[Cell], names: TypeNames,
             shared: Mapping[str, Iterable[Allotment]]) -> str:  # fmt: skip
    """The whole file."""
    shapes = list(dict.fromkeys(top.shape for top in tops))
    types = list(dict.fromkeys(line for shape in shapes for line in type_lines(shape, names)))
    lines = [f"# {line}" for line in comment]
    lines += [
        "rules: 2",
        "access: namespaces",
        "physicalCluster:",
        "  skuTypes:",
        *sku_lines(machines, names),
        "  cellTypes:",
        *types,
    ]
    lines.append("  physicalCells:")
    for top in tops:
        lines += block(new_cell(top, names.cells[top.shape]), "  ")
    lines += ["virtualClusters:", *vc_lines(shared, names)]
    return "\n".join(lines) + "\n"
