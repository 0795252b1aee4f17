"""One entry of `physicalCells` -> a tree of `PhysicalCellSpec`, checked while it is read (rules 1.5 to 1.7).

Generated children stay unwritten: a subtree is only ever counted, and the device indices and node names it stands for
are kept as ranges. Children that equal the generated ones are dropped. So a file written down to its GPUs gives the
same, small, specs as one written down to its nodes.
"""

import re
from collections.abc import Iterable

import msgspec
import yaml

from hived.specs import PhysicalCellSpec
from hived_config.chains import Chain
from hived_config.kinds import Key, ListOf, Record, Text, name_text
from hived_config.reader import INT32_MAX, Reader, shorten

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


class Inventory(msgspec.Struct):
    """The contents of a file's trees: node-level cells by node name, generated nodes, pinned cells by id.

    `lost_pins` are the ids of pinned cells whose chain is unsound: they exist, and nothing else is known.
    """

    nodes: dict[str, list[NodeCell]] = msgspec.field(default_factory=dict)
    generated: list[GeneratedNodes] = msgspec.field(default_factory=list)
    pins: dict[str, Pin] = msgspec.field(default_factory=dict)
    lost_pins: set[str] = msgspec.field(default_factory=set)


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


class TreeReader:
    """Reads trees of one sound chain and adds their contents to an inventory."""

    def __init__(self, reader: Reader, chain: Chain, inventory: Inventory) -> None:
        self._reader = reader
        self._chain = chain
        self._inventory = inventory
        self._devices: Devices = []
        self._is_named = False  # the last node

    def read(
        self, node: yaml.Node, fields: dict[str, yaml.Node], position: tuple[int, ...], default: int
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
            address = _read_address(self._reader, fields["cellAddress"], depth == self._chain.leaf_depth)
        if "cellType" in fields:
            self._check_type(fields["cellType"], depth)
        if "pinnedCellId" in fields:
            pin_id = self._read_pin(fields["pinnedCellId"], position)
        if depth == self._chain.node_depth:
            self._devices, self._is_named = [], bool(address)
            cell = NodeCell(self._chain, self._devices, node, -1 if address else default)
            self._inventory.nodes.setdefault(address or str(default), []).append(cell)
        children = self._read_children(fields["cellChildren"], position, default) if "cellChildren" in fields else None
        if children is None:
            self._add_leaves(node, depth, address, default)
        if pin_id or children or (address and address != str(default)):
            return PhysicalCellSpec("", address, pin_id, children or ())
        return _GENERATED

    def _read_children(
        self, node: yaml.Node, position: tuple[int, ...], default: int
    ) -> tuple[PhysicalCellSpec, ...] | None:
        """The written children; () if they equal the generated ones, None if they are to be generated."""
        chain, depth = self._chain, len(position) - 1
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
            children.append(self.read(item, fields, (*position, i), first + i))
        if depth + 1 not in (chain.node_depth, chain.leaf_depth):
            refuse_equal_addresses(self._reader, zip(range(first, first + len(items)), children, items, strict=True))
        return () if all(child is _GENERATED for child in children) else tuple(children)

    def _add_leaves(self, node: yaml.Node, depth: int, address: str, default: int) -> None:
        """Account for the devices, or the generated nodes, of a cell without written children."""
        chain = self._chain
        if depth < chain.node_depth:
            count = chain.leaf_counts[depth] // chain.leaf_counts[chain.node_depth]
            generated = GeneratedNodes(chain, default * count, (default + 1) * count, node)
            self._inventory.generated.append(generated)
            return
        index = 0 if depth == chain.node_depth else default
        if depth == chain.leaf_depth and _is_device_index(address):
            index = int(address)
        count = chain.leaf_counts[depth]
        self._devices.append((index * count, (index + 1) * count, node))

    def _check_type(self, node: yaml.Node, depth: int) -> None:
        types = self._chain.types
        given = _TYPE.read(self._reader, node)
        if given and given != types[depth]:
            found = f"cell type {shorten(given)} below a cell of type {types[depth - 1]}"
            self._reader.note(node, found, f"{types[depth]}, its childCellType")

    def _read_pin(self, node: yaml.Node, position: tuple[int, ...]) -> str:
        pin_id = _PIN_ID.read(self._reader, node)
        if pin_id:
            pin = Pin(node, self._chain, position)
            first = self._inventory.pins.setdefault(pin_id, pin)
            if first is not pin:
                found = f"pinnedCellId {shorten(pin_id)} given twice (first on line {self._reader.line(first.node)})"
                self._reader.note(node, found, "an id of its own for each pinned cell")
        return pin_id


def read_shape(reader: Reader, fields: dict[str, yaml.Node], inventory: Inventory) -> None:
    """Check a cell without a sound chain as far as possible: keys and kinds of values, all the way down."""
    reader.text(fields.get("cellType"), _TYPE.what)
    if "cellAddress" in fields:
        _read_address(reader, fields["cellAddress"], is_leaf=False)
    inventory.lost_pins.add(reader.name(fields.get("pinnedCellId"), _PIN_ID.what))
    for item in CELLS.items(reader, fields.get("cellChildren")):
        read_shape(reader, CELL.nodes(reader, item), inventory)
