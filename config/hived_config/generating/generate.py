"""Generates a configuration from machines, in the usual layout: types and nodes on one line each."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.generating.cells import Cell, Shape, TypeNames, names_of, trees_of
from hived_config.generating.machines import NVIDIA_GPU, Machine, in_order, leaf_names, level_names
from hived_config.generating.shares import Allotment, Shares, allotted
from hived_config.loader import load_text
from hived_config.text.places import scalar
from hived_config.words import counted, listed

_OTHER = re.compile(r"[^a-z0-9]+", re.ASCII)

DEFAULT_NAMESPACE = "default"
"""The namespace of pods that kubectl and `hived submit` create by default."""


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
    """A line for each product: the least share of CPUs and memory of a device on any of its machines."""
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


def compact(cell: NewCell, is_json: bool = False) -> str:
    """A cell in flow style, plain where that is safe; devices are numbers. JSON has every name and text in quotes."""
    fields = [("cellType", scalar(cell.cell_type, is_json))] if cell.cell_type else []
    if cell.address:
        is_number = cell.address.isdecimal() and not cell.is_node and not is_json
        fields.append(("cellAddress", cell.address if is_number else scalar(cell.address, is_json)))
    if cell.children:
        fields.append(("cellChildren", f"[{', '.join(compact(each, is_json) for each in cell.children)}]"))
    return "{" + ", ".join(f"{scalar(name, is_json)}: {value}" for name, value in fields) + "}"


def vc_lines(
    shared: Mapping[str, Iterable[Allotment]], names: TypeNames, keys: Mapping[str, Sequence[str]] | None = None
) -> Iterator[str]:
    """The virtual clusters with their keys, by default the namespaces that may use each, and their promised cells."""
    for vc, allotments in shared.items():
        cells = [f"    - {{cellType: {scalar(_path(each, names))}, cellNumber: {each.count}}}" for each in allotments]
        yield f"  {scalar(vc)}:"
        own = [f"namespaces: {flow_list(namespaces_of(vc))}"] if keys is None else keys[vc]
        yield from (f"    {line}" for line in own)
        if cells:
            yield "    virtualCells:"
        yield from cells


def flow_list(texts: Iterable[str]) -> str:
    """Texts as a list on one line."""
    return f"[{', '.join(map(scalar, texts))}]"


def namespaces_of(vc: str) -> list[str]:
    """The first namespaces of a virtual cluster: the one that commands create pods in, and its own."""
    own = _OTHER.sub("-", vc.lower())[:63].strip("-")
    return list(dict.fromkeys(name for name in (DEFAULT_NAMESPACE, own) if name))


def _path(allotment: Allotment, names: TypeNames) -> str:
    types = [names.cells[shape] for shape in allotment.path]
    return ".".join([*types, names.leaves[allotment.path[-1].product]] if allotment.is_leaf else types)


def document(comment: Iterable[str], machines: Sequence[Machine], tops: Sequence[Cell], names: TypeNames,
             shared: Mapping[str, Iterable[Allotment]], keys: Iterable[str] = (),
             vc_keys: Mapping[str, Sequence[str]] | None = None) -> str:  # fmt: skip
    """The whole file. `keys` are more lines at its top, `vc_keys` those of each virtual cluster before its cells."""
    shapes = list(dict.fromkeys(top.shape for top in tops))
    types = list(dict.fromkeys(line for shape in shapes for line in type_lines(shape, names)))
    lines = [f"# {line}" for line in comment]
    lines += [
        "rules: 2",
        "access: namespaces",
        *keys,
        "physicalCluster:",
        "  skuTypes:",
        *sku_lines(machines, names),
        "  cellTypes:",
        *types,
    ]
    lines.append("  physicalCells:")
    for top in tops:
        lines += block(new_cell(top, names.cells[top.shape]), "  ")
    lines += ["virtualClusters:", *vc_lines(shared, names, vc_keys)]
    return "\n".join(lines) + "\n"


class Generated(msgspec.Struct, frozen=True):
    """A configuration as text and as values, the number of its machines, and notes for people."""

    text: str
    cluster: ClusterSpec
    machine_count: int
    notes: tuple[str, ...]


def generated(
    machines: Iterable[Machine],
    levels: Sequence[str] = (),
    shares: Shares | None = None,
    pads: bool = False,
    names: Mapping[str, str] | None = None,
    prefix: str = "",
    source: str = "",
) -> Generated:
    """A configuration of these machines, the same whatever their order.

    Parameters
    ----------
    machines : each name once for a resource, with one group for each of the levels
    levels : the labels that the groups come from, outermost first
    shares : how much each virtual cluster gets
    pads : fill groups up with placeholders, so that all of one level are of one type
    names : by product, the name of its leaf cells
    prefix : the beginning of all names of cell types
    source : where the machines come from, for the comment at the top

    Raises UserError if there are no machines, or a name is given to several of them.
    """
    ordered = in_order(machines)
    if not ordered:
        raise UserError("no machine with devices: expected at least one (see --resource, --selector and --cpu)")
    twice = [name for (name, _), count in Counter((each.name, each.resource) for each in ordered).items() if count > 1]
    if twice:
        raise UserError(f"machines given twice: {listed(twice)}; expected each once")
    types = leaf_names((machine.product for machine in ordered), names or {}, prefix)
    tops = trees_of(ordered, level_names(levels), pads)
    named = names_of(tops, types)
    shared, notes = allotted(tops, shares or Shares())
    notes += _about_labels(ordered, levels)
    if not pads:
        notes += _about_chains(ordered, [named.cells[top.shape] for top in tops])
    count = len({machine.name for machine in ordered})
    text = document(_comment(count, levels, source), ordered, tops, named, shared)
    cluster = load_text(text, "the generated configuration", environ={}).cluster
    return Generated(text, cluster, count, tuple(notes))


def _comment(count: int, levels: Sequence[str], source: str) -> list[str]:
    machine_count = counted(count, "machine") + (source and f" of {source}")
    by_level = f", grouped by {', '.join(levels)}" if levels else ""
    return [
        f"Made by `hived config generate` from {machine_count}{by_level}.",
        "A virtual cluster is for the pods of its `namespaces`: write there who may use it.",
        "`hived config sync` keeps the nodes up to date; what virtual clusters are promised stays as written here.",
    ]


def _about_labels(machines: Sequence[Machine], levels: Sequence[str]) -> list[str]:
    """Notes on machines without a label of a level."""
    notes = []
    for depth, label in enumerate(levels):
        has_label = {machine.name: bool(machine.groups and machine.groups[depth]) for machine in machines}
        without = [name for name, has in has_label.items() if not has]
        if without:
            notes.append(f"{counted(len(without), 'machine')} without label {label}: {listed(without)}")
    return notes


def _about_chains(machines: Sequence[Machine], tops: Sequence[str]) -> list[str]:
    """A note if there are more chains than kinds of machines, as groups are not all alike."""
    chains = list(dict.fromkeys(tops))
    kinds = {(machine.product, machine.device_count, machine.inner.levels) for machine in machines}
    if len(chains) <= len(kinds):
        return []
    return [
        f"groups are not all alike, so there are {len(chains)} cell chains ({listed(chains, 8)}); no gang spans two of "
        "them. To have fewer, leave an outer level out, or fill groups up with placeholders (--pad)"
    ]
