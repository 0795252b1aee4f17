"""`physicalCells` as a whole: the top-level entries, and the names that no two cells share (rules 1.3, 1.5, 1.14)."""

import re
from bisect import bisect_right

import yaml
from msgspec.structs import replace

from hived.specs import PhysicalCellSpec
from hived_config.chains import CellTypes, Chain
from hived_config.kinds import ListOf, Schema, name_text, required
from hived_config.node_names import VALID_NAME, WRITTEN_NAMES, GeneratedNames, NodeNames, is_possible, made_possible
from hived_config.reader import Reader, closest, shorten
from hived_config.size import refuse_large_hardware
from hived_config.skus import SkuTypes
from hived_config.trees import (
    CELL,
    CELLS,
    Devices,
    GeneratedNodes,
    Inventory,
    NodeCell,
    TreeReader,
    read_shape,
    refuse_equal_addresses,
)

TOP_TYPE = name_text("the cell type of a top-level cell")


class _TopCells(ListOf):
    """Physical cells that no other cell gives a type."""

    def schema(self) -> Schema:
        typed = {"required": ["cellType"], "properties": {"cellType": TOP_TYPE.schema()}}
        return super().schema() | {"items": {"allOf": [self.item.schema(), typed]}}


TOP_CELLS = _TopCells(CELLS.what, CELL, is_never_empty=True)

TWICE = (
    "each node once in a chain, and each of its devices once; parts of a node are cells of a type between it and its "
    "leaf cells"
)

_GENERATED_NAME = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


def _device_rule(numbers: str) -> str:
    return (
        f"one leaf cell for each device of {numbers}: another cellAddress, or leaf cells that skuTypes give another "
        "resource or gpu: 0"
    )


class PhysicalCells:
    """The physical cells of a file.

    Attributes
    ----------
    cells : the top-level entries, in file order
    chains : the sound chains among them by name, in file order
    top_counts : by chain, the number of top-level entries
    pins : the pinned cells in sound chains, by id
    is_complete : whether there is at least one top-level entry, and each has a sound chain
    """

    def __init__(self, reader: Reader, types: CellTypes, node: yaml.Node | None, skus: SkuTypes | None = None) -> None:
        self._reader = reader
        self._types = types
        self._skus = skus or SkuTypes()
        self._inventory = Inventory()
        self.chains: dict[str, Chain] = {}
        self.top_counts: dict[str, int] = {}
        self._named_chains: set[str] = set()
        items = TOP_CELLS.items(reader, node)
        self.is_complete = bool(items)
        if isinstance(node, yaml.SequenceNode) and not items:
            reader.note(node, "an empty list", "at least one physical cell")
        self.cells = tuple(self._read_top(item, index) for index, item in enumerate(items))
        self.pins = self._inventory.pins
        self._refuse_equal_tops(items)
        self._refuse_nodes_twice()
        self._refuse_generated_nodes_twice()
        refuse_large_hardware(
            reader,
            [
                (self.chains[cell.cell_type], item)
                for cell, item in zip(self.cells, items, strict=True)
                if cell.cell_type in self.chains
            ],
        )

    def _read_top(self, node: yaml.Node, index: int) -> PhysicalCellSpec:
        reader, types = self._reader, self._types
        fields = CELL.nodes(reader, node)
        top = required(reader, node, fields, "cellType", TOP_TYPE) or ""
        chain = None
        if top in types.specs:
            chain = types.chain(top, fields["cellType"])
        elif top in types.leaf_types:
            found = f"top cell type {shorten(top)}, which is a leaf cell type"
            reader.note(fields["cellType"], found, "a cell type at node level or above")
        elif top and top not in types.broken and types.is_given:
            found = f"unknown cell type {shorten(top)}"
            reader.note(fields["cellType"], found, "a type of cellTypes", closest(top, types.specs))
        self._named_chains.add(top)
        if chain is None:
            self.is_complete = False
            read_shape(reader, fields, self._inventory)
            return PhysicalCellSpec(top)
        self.chains.setdefault(top, chain)
        self.top_counts[top] = self.top_counts.get(top, 0) + 1
        cell = TreeReader(reader, chain, self._inventory).read(node, fields, (index,), index)
        return PhysicalCellSpec(top, cell.address, cell.pinned_cell_id, cell.children)

    def may_have_chain(self, name: str) -> bool:
        """Whether some entry is of that chain, or could be meant to be: the note at the entry explains it."""
        is_defined = name in self._types.names or not self._types.is_given
        return name in self._named_chains or (not self.is_complete and is_defined)

    def may_have_pin(self, pin_id: str) -> bool:
        """Whether some cell is pinned with that id, or could be meant to be."""
        return pin_id in self.pins or pin_id in self._inventory.lost_pins or not self.cells

    def _refuse_equal_tops(self, items: list[yaml.Node]) -> None:
        """Top-level cells above node level are told apart by their address within a chain."""
        for name, chain in self.chains.items():
            if chain.node_depth > 0:
                tops = [(i, cell, items[i]) for i, cell in enumerate(self.cells) if cell.cell_type == name]
                refuse_equal_addresses(self._reader, tops)

    def _numbers(self, chain: Chain) -> str:
        """The resource whose devices a chain numbers; the name of the chain if its cells are no devices."""
        return self._skus.resource_of(chain.types[-1]) or chain.name

    def _refuse_nodes_twice(self) -> None:
        """A node may be in several chains, once in each, if no device of a resource is in two of them."""
        for name, cells in self._inventory.nodes.items():
            first_in: dict[str, NodeCell] = {}
            devices: dict[str, Devices] = {}
            for cell in cells:
                first = first_in.setdefault(cell.chain.name, cell)
                if first is not cell:
                    self._note_node_twice(name, cell.node, first.node)
                else:
                    devices.setdefault(self._numbers(cell.chain), []).extend(cell.devices)
            for numbers, own in devices.items():
                if len(own) > 1:
                    self._refuse_devices_twice(name, numbers, own)

    def _note_node_twice(self, name: str, node: yaml.Node, first: yaml.Node) -> None:
        found = f"node {shorten(name)} given twice (first on line {self._reader.line(first)})"
        self._reader.note(node, found, TWICE)

    def _refuse_devices_twice(self, name: str, numbers: str, devices: Devices) -> None:
        devices.sort(key=lambda device: device[:2])
        _, furthest, owner = devices[0]
        for start, stop, node in devices[1:]:
            if start < furthest:
                first = self._reader.line(owner)
                found = f"device {start} of node {shorten(name)} given twice (first on line {first})"
                self._reader.note(node, found, _device_rule(numbers))
            if stop > furthest:
                furthest, owner = stop, node

    def _refuse_generated_nodes_twice(self) -> None:
        """Generated nodes are named by numbers, which may also be given, or generated in another chain."""
        by_numbers: dict[str, list[GeneratedNodes]] = {}
        for nodes in sorted(self._inventory.generated, key=lambda each: each.start):
            apart = by_numbers.setdefault(self._numbers(nodes.chain), [])
            if apart and nodes.start < apart[-1].stop:
                self._note_node_twice(str(nodes.start), nodes.node, apart[-1].node)
            if not apart or nodes.stop > apart[-1].stop:
                apart.append(nodes)
        starts = {numbers: [nodes.start for nodes in apart] for numbers, apart in by_numbers.items()}
        for name, cells in self._inventory.nodes.items():
            if not _GENERATED_NAME.fullmatch(name):
                continue
            for cell in cells:
                numbers = self._numbers(cell.chain)
                at = bisect_right(starts.get(numbers, []), int(name)) - 1
                if at < 0 or int(name) >= (generated := by_numbers[numbers][at]).stop:
                    continue
                device_count = generated.chain.leaf_counts[generated.chain.node_depth]
                shares_devices = any(start < device_count for start, _, _ in cell.devices)
                if shares_devices or cell.chain is generated.chain:
                    self._note_node_twice(name, cell.node, generated.node)

    # ---- the names of nodes

    def node_names(self) -> NodeNames:
        """The names of the nodes in a sound file, with a warning where no node will have one."""
        for name, cells in self._inventory.nodes.items():
            if cells[0].index < 0 and not is_possible(name):
                found = f"node name {shorten(name)}"
                self._reader.note(cells[0].node, found, VALID_NAME, made_possible(name), is_warning=True)
        line = self._reader.line
        written = {name: line(cells[0].node) for name, cells in self._inventory.nodes.items() if cells[0].index < 0}
        generated = []
        for run in sorted(self._generated_runs(), key=lambda run: line(run.node)):
            names = GeneratedNames(run.start, run.stop, line(run.node))
            self._reader.note(run.node, names.found, WRITTEN_NAMES, is_warning=True)
            generated.append(names)
        return NodeNames(written, tuple(generated))

    def _generated_runs(self) -> list[GeneratedNodes]:
        """Nodes without written names: those of one chain with consecutive names together."""
        unnamed = [
            GeneratedNodes(cell.chain, cell.index, cell.index + 1, cell.node)
            for cells in self._inventory.nodes.values()
            for cell in cells
            if cell.index >= 0
        ]
        runs: list[GeneratedNodes] = []
        for nodes in sorted([*self._inventory.generated, *unnamed], key=lambda each: (each.chain.name, each.start)):
            if runs and runs[-1].chain is nodes.chain and runs[-1].stop == nodes.start:
                runs[-1] = replace(runs[-1], stop=nodes.stop)
            else:
                runs.append(nodes)
        return runs
