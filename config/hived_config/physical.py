"""Reads `physicalCells`: each entry as a tree, with checks of unique names (rules 1.3, 1.5 to 1.7, 1.14).

Generated children stay unwritten: a subtree is only ever counted, and the device indices and node names it stands for
are kept as ranges. Children that equal the generated ones are dropped. So a file written down to its GPUs gives the
same, small, specs as one written down to its nodes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable

import msgspec
import yaml
from msgspec.structs import replace

from hived.values.specs import PhysicalCellSpec
from hived_config.chains import CellTypes, Chain, refuse_large_hardware
from hived_config.node_names import VALID_NAME, WRITTEN_NAMES, GeneratedNames, NodeNames, is_possible, made_possible
from hived_config.reader import (
    INT32_MAX,
    Key,
    ListOf,
    Reader,
    Record,
    Schema,
    Text,
    closest,
    name_text,
    required,
    shorten,
)
from hived_config.skus import SkuTypes

_TYPE = Text("the name of a cell type")
_ADDRESS = name_text("an address", "[^/]*")
_PIN_ID = name_text("a pinned cell id", ".*")

CELL = Record(
    "physicalCell",
    "a physical cell (a mapping)",
    "A physical cell, with what is written of the cells below it.",
    (
        Key(
            "cellType",
            _TYPE,
            "required for a top-level cell, which is at node level or above",
            rule="of a child: its parent's `childCellType`",
        ),
        Key(
            "cellAddress",
            _ADDRESS,
            "its part of the address: at node level the name of the Kubernetes node, for a leaf cell the index of its "
            "device",
            rule="the cell's running index",
        ),
        Key("pinnedCellId", _PIN_ID, "a name by which one virtual cluster can have exactly this cell"),
    ),
)
CELLS = ListOf("a list of physical cells", CELL)
# A cell contains cells, so its last key is added behind its definition.
CELL.keys["cellChildren"] = Key(
    "cellChildren", CELLS, "its children, either all `childCellNumber` of them or none", rule="generated"
)

_GENERATED = PhysicalCellSpec()
_INDEX = re.compile(r"[0-9]{1,10}", re.ASCII)

Devices = list[tuple[int, int, yaml.Node]]


class Pin(msgspec.Struct, frozen=True):
    """A pinned cell: `position` is the child number at each depth, so the depth of the cell is its length - 1."""

    node: yaml.Node
    chain: Chain
    position: tuple[int, ...]


class NodeCell(msgspec.Struct, frozen=True):
    """A node-level cell: its devices, as ranges (first, past the last, where they are written).

    `index` is its running index where that is its name, as none is written; else -1.
    """

    chain: Chain
    devices: Devices
    node: yaml.Node
    index: int = -1


class GeneratedNodes(msgspec.Struct, frozen=True):
    """Node-level cells that are not written, named by the numbers start..stop-1; each has the devices 0..n-1."""

    chain: Chain
    start: int
    stop: int
    node: yaml.Node


def _read_address(reader: Reader, node: yaml.Node, is_leaf: bool) -> str:
    address = reader.name(node, _ADDRESS.what)
    if "/" in address:
        reader.note(node, shorten(address), "an address without '/', which joins the levels of a full one")
    elif address and is_leaf and not _is_device_index(address):
        reader.note(node, shorten(address), f"a device index (0 to {INT32_MAX}) as a leaf cell's address")
    return address


def _is_device_index(address: str) -> bool:
    return _INDEX.fullmatch(address) is not None and int(address) <= INT32_MAX


def refuse_equal_addresses(reader: Reader, cells: Iterable[tuple[int, PhysicalCellSpec, yaml.Node]]) -> None:
    """Note cells side by side with one address; each comes with its default address and its place."""
    seen: dict[str, yaml.Node] = {}
    for default, cell, node in cells:
        address = cell.address or str(default)
        if address in seen:
            found = f"address {shorten(address)} given twice (first on line {reader.line(seen[address])})"
            reader.note(node, found, "an address of its own for each cell")
        seen[address] = node


TOP_TYPE = name_text("the cell type of a top-level cell")


class _TopCells(ListOf):
    """Physical cells that no other cell gives a type."""

    def schema(self) -> Schema:
        typed = {"required": ["cellType"], "properties": {"cellType": TOP_TYPE.schema()}}
        return super().schema() | {"items": {"allOf": [self.item.schema(), typed]}}


TOP_CELLS = _TopCells(CELLS.what, CELL, is_never_empty=True)

TWICE = "another name; or, as a part of a node, a cell type between it and its leaf cells"

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
    is_counted : whether there is at least one, and each is of a type that is defined, so sound chains are counted
    unread : by top cell type with a mistake, the addresses and places of its entries
    """

    def __init__(self, reader: Reader, types: CellTypes, node: yaml.Node | None, skus: SkuTypes | None = None) -> None:
        self._reader = reader
        self._types = types
        self._skus = skus or SkuTypes()
        self._nodes: dict[str, list[NodeCell]] = {}
        self._generated: list[GeneratedNodes] = []
        self._lost_pins: set[str] = set()
        self._devices: Devices = []
        self._is_named = False  # the last node
        self.pins: dict[str, Pin] = {}
        self.chains: dict[str, Chain] = {}
        self.top_counts: dict[str, int] = {}
        self._named_chains: set[str] = set()
        self.unread: dict[str, list[tuple[str, yaml.Node]]] = {}
        items = TOP_CELLS.items(reader, node)
        self.is_complete = self.is_counted = bool(items)
        if isinstance(node, yaml.SequenceNode) and not items:
            reader.note(node, "an empty list", "at least one physical cell")
        self.cells = tuple(self._read_top(item, index) for index, item in enumerate(items))
        self._refuse_equal_tops(items)
        self._refuse_nodes_twice()
        self._check_unread()
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
            self.is_counted = self.is_counted and top in types.names
            self._read_shape(fields)
            if top in types.broken:
                self.unread.setdefault(top, []).append((reader.text(fields.get("cellAddress"), ""), node))
            return PhysicalCellSpec(top)
        self.chains.setdefault(top, chain)
        self.top_counts[top] = self.top_counts.get(top, 0) + 1
        cell = self._read_cell(chain, node, fields, (index,), index)
        return PhysicalCellSpec(top, cell.address, cell.pinned_cell_id, cell.children)

    # ---- the trees of sound chains

    def _read_cell(
        self, chain: Chain, node: yaml.Node, fields: dict[str, yaml.Node], position: tuple[int, ...], default: int
    ) -> PhysicalCellSpec:
        """Read a cell and everything below it; its type is left to be inferred.

        Parameters
        ----------
        node, fields : the cell and its values
        position : the child number at each depth, from the top-level entry down to this cell
        default : the index that is the cell's address if none is given
        """
        depth = len(position) - 1
        address = pin_id = ""
        if "cellAddress" in fields:
            address = _read_address(self._reader, fields["cellAddress"], depth == chain.leaf_depth)
        if "cellType" in fields:
            self._check_type(chain, fields["cellType"], depth)
        if "pinnedCellId" in fields:
            pin_id = self._read_pin(chain, fields["pinnedCellId"], position)
        if depth == chain.node_depth:
            self._devices, self._is_named = [], bool(address)
            cell = NodeCell(chain, self._devices, node, -1 if address else default)
            self._nodes.setdefault(address or str(default), []).append(cell)
        children = None
        if "cellChildren" in fields:
            children = self._read_children(chain, fields["cellChildren"], position, default)
        if children is None:
            self._add_leaves(chain, node, depth, address, default)
        if pin_id or children or (address and address != str(default)):
            return PhysicalCellSpec("", address, pin_id, children or ())
        return _GENERATED

    def _read_children(
        self, chain: Chain, node: yaml.Node, position: tuple[int, ...], default: int
    ) -> tuple[PhysicalCellSpec, ...] | None:
        """The written children; () if they equal the generated ones, None if they are to be generated."""
        depth = len(position) - 1
        items = CELLS.items(self._reader, node)
        if not items:
            return None
        wanted = chain.fan_out[depth]
        if depth == chain.leaf_depth:
            self._reader.note(node, f"children of the leaf cell type {chain.types[depth]}", "no children")
            return None
        if len(items) != wanted:
            found = f"{len(items)} children of a cell of type {chain.types[depth]}"
            meant = "the cellAddress of the node itself" if depth == chain.node_depth and not self._is_named else ""
            self._reader.note(node, found, f"{wanted} (its childCellNumber), or none to have them generated", meant)
            # Their default addresses run into those of the next cell: forget the devices, they would be noted twice.
            self._devices = []
        first = 0 if depth == chain.node_depth else default * wanted
        children = []
        for i, item in enumerate(items):
            fields = CELL.nodes(self._reader, item)
            children.append(self._read_cell(chain, item, fields, (*position, i), first + i))
        if depth + 1 not in (chain.node_depth, chain.leaf_depth):
            refuse_equal_addresses(self._reader, zip(range(first, first + len(items)), children, items, strict=True))
        return () if all(child is _GENERATED for child in children) else tuple(children)

    def _add_leaves(self, chain: Chain, node: yaml.Node, depth: int, address: str, default: int) -> None:
        """Account for the devices, or the generated nodes, of a cell without written children."""
        if depth < chain.node_depth:
            count = chain.leaf_counts[depth] // chain.leaf_counts[chain.node_depth]
            self._generated.append(GeneratedNodes(chain, default * count, (default + 1) * count, node))
            return
        index = 0 if depth == chain.node_depth else default
        if depth == chain.leaf_depth and _is_device_index(address):
            index = int(address)
        count = chain.leaf_counts[depth]
        self._devices.append((index * count, (index + 1) * count, node))

    def _check_type(self, chain: Chain, node: yaml.Node, depth: int) -> None:
        given, types = _TYPE.read(self._reader, node), chain.types
        if given and given != types[depth]:
            found = f"cell type {shorten(given)} below a cell of type {types[depth - 1]}"
            self._reader.note(node, found, f"{types[depth]}, its childCellType")

    def _read_pin(self, chain: Chain, node: yaml.Node, position: tuple[int, ...]) -> str:
        pin_id = _PIN_ID.read(self._reader, node)
        if pin_id:
            pin = Pin(node, chain, position)
            first = self.pins.setdefault(pin_id, pin)
            if first is not pin:
                found = f"pinnedCellId {shorten(pin_id)} given twice (first on line {self._reader.line(first.node)})"
                self._reader.note(node, found, "an id of its own for each pinned cell")
        return pin_id

    def _read_shape(self, fields: dict[str, yaml.Node]) -> None:
        """Check a cell without a sound chain as far as possible: keys and kinds of values, all the way down."""
        reader = self._reader
        reader.text(fields.get("cellType"), _TYPE.what)
        if "cellAddress" in fields:
            _read_address(reader, fields["cellAddress"], is_leaf=False)
        self._lost_pins.add(reader.name(fields.get("pinnedCellId"), _PIN_ID.what))
        for item in CELLS.items(reader, fields.get("cellChildren")):
            self._read_shape(CELL.nodes(reader, item))

    # ---- what else asks about them

    def may_have_chain(self, name: str) -> bool:
        """True if an entry has that chain, or may be meant to: the note at the entry explains it."""
        is_defined = name in self._types.names or not self._types.is_given
        return name in self._named_chains or (not self.is_complete and is_defined)

    def may_have_pin(self, pin_id: str) -> bool:
        """True if a cell is pinned with that id, or may be meant to be."""
        return pin_id in self.pins or pin_id in self._lost_pins or not self.cells

    def _refuse_equal_tops(self, items: list[yaml.Node]) -> None:
        """Note top-level cells above node level that share an address within a chain."""
        for name, chain in self.chains.items():
            if chain.node_depth > 0:
                tops = [(i, cell, items[i]) for i, cell in enumerate(self.cells) if cell.cell_type == name]
                refuse_equal_addresses(self._reader, tops)

    def _numbers(self, chain: Chain) -> str:
        """The resource whose devices a chain numbers; the name of the chain if its cells are no devices."""
        return self._skus.resource_of(chain.types[-1]) or chain.name

    def _refuse_nodes_twice(self) -> None:
        """Note a node that is twice in a chain, or has a device of a resource in two chains."""
        for name, cells in self._nodes.items():
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

    def _check_unread(self) -> None:
        """Note what is wrong with the addresses of top-level cells, whatever the mistake in their type is."""
        for top, entries in self.unread.items():
            first: dict[str, yaml.Node] = {}
            for address, node in entries:
                if address in first:
                    self._note_node_twice(address, node, first[address])
                elif address:
                    first[address] = node
                    if top in self._types.broken_nodes and not is_possible(address):
                        self._warn_of_name(address, node)

    def _warn_of_name(self, name: str, node: yaml.Node) -> None:
        self._reader.note(node, f"node name {shorten(name)}", VALID_NAME, made_possible(name), is_warning=True)

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
        """Note names of generated nodes, which are numbers, that are also written or generated in another chain."""
        by_numbers: dict[str, list[GeneratedNodes]] = {}
        for nodes in sorted(self._generated, key=lambda each: each.start):
            apart = by_numbers.setdefault(self._numbers(nodes.chain), [])
            if apart and nodes.start < apart[-1].stop:
                self._note_node_twice(str(nodes.start), nodes.node, apart[-1].node)
            if not apart or nodes.stop > apart[-1].stop:
                apart.append(nodes)
        starts = {numbers: [nodes.start for nodes in apart] for numbers, apart in by_numbers.items()}
        for name, cells in self._nodes.items():
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

    def warn_of_names(self) -> None:
        """Warn of written names that no node can have, unless they are mistakes."""
        for name, cells in self._nodes.items():
            is_mistake = "/" in name or name != name.strip() or not name.isprintable()
            if cells[0].index < 0 and not is_mistake and not is_possible(name):
                self._warn_of_name(name, cells[0].node)

    def node_names(self) -> NodeNames:
        """The names of the nodes in a sound file, with a warning of generated ones."""
        line = self._reader.line
        written = {name: line(cells[0].node) for name, cells in self._nodes.items() if cells[0].index < 0}
        generated = []
        for run in sorted(self._generated_runs(), key=lambda run: line(run.node)):
            names = GeneratedNames(run.start, run.stop, line(run.node))
            self._reader.note(run.node, names.found, WRITTEN_NAMES, is_warning=True)
            generated.append(names)
        return NodeNames(written, tuple(generated))

    def _generated_runs(self) -> list[GeneratedNodes]:
        """Nodes without written names; consecutive names of one chain are together."""
        unnamed = [
            GeneratedNodes(cell.chain, cell.index, cell.index + 1, cell.node)
            for cells in self._nodes.values()
            for cell in cells
            if cell.index >= 0
        ]
        runs: list[GeneratedNodes] = []
        for nodes in sorted([*self._generated, *unnamed], key=lambda each: (each.chain.name, each.start)):
            if runs and runs[-1].chain is nodes.chain and runs[-1].stop == nodes.start:
                runs[-1] = replace(runs[-1], stop=nodes.stop)
            else:
                runs.append(nodes)
        return runs
