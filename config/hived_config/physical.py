"""`physicalCells` -> trees of `PhysicalCellSpec`, checked while they are read (SEMANTICS 2.2, 2.3).

Generated children stay unwritten: a subtree is only ever counted, and the device indices and node names it stands for
are kept as ranges. Children that spell out what would be generated anyway are dropped, so a file written down to its
GPUs becomes as small as one written down to its nodes.
"""

import re
from dataclasses import dataclass

import yaml

from hived.specs import PhysicalCellSpec
from hived_config.chains import CellTypes, Chain
from hived_config.reader import INT32_MAX, Reader, closest, shorten

CELL_KEYS = ("cellType", "cellAddress", "pinnedCellId", "cellChildren")
MAX_CELL_COUNT = 100_000_000

_GENERATED = PhysicalCellSpec()
_INDEX = re.compile(r"[0-9]{1,10}", re.ASCII)
_NUMERIC_NAME = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned cell: `position` is the child number at each depth, so the depth of the cell is its length - 1."""

    node: yaml.Node
    chain: Chain
    position: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    """The whole numbers start..stop-1: device indices, or names of generated nodes. `node` is where they come from."""

    start: int
    stop: int
    node: yaml.Node
    chain: Chain


class PhysicalCells:
    """The physical cells of a file.

    `cells` are the top-level entries, `top_counts[chain]` their number by chain, `chains` the chains in file order and
    `pins` the pinned cells by id.
    """

    def __init__(self, reader: Reader, types: CellTypes, node: yaml.Node) -> None:
        self._reader = reader
        self._types = types
        self._devices: dict[str, list[_Range]] = {}
        self._generated_nodes: list[_Range] = []
        self.chains: dict[str, Chain] = {}
        self.top_counts: dict[str, int] = {}
        self.pins: dict[str, Pin] = {}
        self.top_types: set[str] = set()
        self.is_broken = False
        items = reader.items(node, "a list of physical cells")
        if not items:
            reader.note(node, "no physical cells", "at least one")
        self.cells = tuple(self._read_top(item, index) for index, item in enumerate(items))
        self._refuse_shared_devices()
        self._refuse_absurd_size(node)

    # ---- reading

    def _read_top(self, node: yaml.Node, index: int) -> PhysicalCellSpec:
        reader, types = self._reader, self._types
        fields = reader.known_fields(node, "a physical cell", CELL_KEYS)
        type_node = fields.get("cellType")
        top = reader.text(type_node, "the name of a cell type") if type_node is not None else ""
        if not top:
            reader.note(type_node or node, "a top-level cell without cellType", "the name of its cell type")
        elif top not in types.names:
            expected = "a cell type of physicalCluster.cellTypes"
            reader.note(type_node, f"unknown cell type {shorten(top)}", expected, closest(top, types.specs))
        elif top in types.leaf_types:
            found = f"the leaf cell type {shorten(top)} as a top-level cell"
            reader.note(type_node, found, "a cell type at node level or above")
        chain = types.chain(top, type_node) if top in types.specs else None
        self.top_types.add(top)
        if chain is None:
            self.is_broken = True
            self._read_shape(fields)
            return PhysicalCellSpec(top)
        self.chains.setdefault(top, chain)
        self.top_counts[top] = self.top_counts.get(top, 0) + 1
        cell = self._read_cell(node, fields, chain, (index,), index, [])
        return PhysicalCellSpec(top, cell.address, cell.pinned_cell_id, cell.children)

    def _read_cell(
        self,
        node: yaml.Node,
        fields: dict[str, yaml.Node],
        chain: Chain,
        position: tuple[int, ...],
        default: int,
        devices: list[_Range],
    ) -> PhysicalCellSpec:
        """Read one cell of a sound chain and everything below it.

        `default` is the index that is the cell's address if it has none; `devices` collects the leaf cells of its node.
        """
        depth = len(position) - 1
        address, pin = self._read_names(fields, chain, depth)
        if pin:
            self._add_pin(pin, Pin(fields["pinnedCellId"], chain, position))
        if depth == chain.node_depth:
            devices = []
        children_node = fields.get("cellChildren")
        items = self._reader.items(children_node, "a list of cells") if children_node is not None else []
        children: tuple[PhysicalCellSpec, ...] = ()
        if items:
            children = self._read_children(items, chain, position, 0 if depth == chain.node_depth else default, devices)
        else:
            self._add_generated(chain, depth, default, address, node, devices)
        if depth == chain.node_depth:
            self._devices.setdefault(address or str(default), []).extend(devices)
        if pin or children or (address and address != str(default)):
            return PhysicalCellSpec("", address, pin, children)
        return _GENERATED

    def _read_names(self, fields: dict[str, yaml.Node], chain: Chain, depth: int) -> tuple[str, str]:
        """The address and pinned cell id of a cell, "" if not given; its type has to agree with its parent's."""
        reader = self._reader
        address = pin = ""
        if "cellAddress" in fields:
            address = reader.text(fields["cellAddress"], "an address")
            self._check_address(address, fields["cellAddress"], depth == chain.leaf_depth)
        if "pinnedCellId" in fields:
            pin = reader.text(fields["pinnedCellId"], "a pinned cell id")
        if "cellType" in fields:
            given = reader.text(fields["cellType"], "the name of a cell type")
            if given and given != chain.types[depth]:
                found = f"cell type {shorten(given)} below {chain.types[depth - 1]}"
                reader.note(fields["cellType"], found, f"its childCellType {chain.types[depth]}")
        return address, pin

    def _check_address(self, address: str, node: yaml.Node, is_leaf: bool) -> None:
        if "/" in address:
            self._reader.note(node, f"address {shorten(address)}", "no '/', which joins the levels of an address")
        elif address != address.strip() or not address.isprintable():
            self._reader.note(node, f"address {shorten(address)}", "printable text without blanks around it")
        elif is_leaf and address and not (_INDEX.fullmatch(address) and int(address) <= INT32_MAX):
            self._reader.note(node, f"device index {shorten(address)}", f"a whole number from 0 to {INT32_MAX}")

    def _read_children(
        self, items: list[yaml.Node], chain: Chain, position: tuple[int, ...], base: int, devices: list[_Range]
    ) -> tuple[PhysicalCellSpec, ...]:
        reader, depth = self._reader, len(position)
        wanted = chain.fan_out[depth - 1]
        if len(items) != wanted:
            found = f"{len(items)} children of a cell of type {chain.types[depth - 1]}"
            reader.note(items[0], found, f"{wanted} (its childCellNumber), or none to have them generated")
        children = []
        for i, item in enumerate(items):
            if isinstance(item, yaml.ScalarNode):
                reader.note(item, "nothing" if not item.value else shorten(item.value), "a physical cell (a mapping)")
            fields = reader.known_fields(item, "a physical cell", CELL_KEYS)
            children.append(self._read_cell(item, fields, chain, (*position, i), base * wanted + i, devices))
        if depth not in (chain.node_depth, chain.leaf_depth):
            self._refuse_equal_addresses(items, children, base * wanted)
        return () if all(child is _GENERATED for child in children) else tuple(children)

    def _read_shape(self, fields: dict[str, yaml.Node]) -> None:
        """Check what can be checked of a cell whose chain is unknown: keys and kinds of values, all the way down."""
        for name in ("cellType", "cellAddress", "pinnedCellId"):
            if name in fields:
                self._reader.text(fields[name], "text")
        if "cellChildren" in fields:
            for item in self._reader.items(fields["cellChildren"], "a list of cells"):
                self._read_shape(self._reader.known_fields(item, "a physical cell", CELL_KEYS))

    # ---- what a cell adds to the whole

    def _add_pin(self, pin_id: str, pin: Pin) -> None:
        first = self.pins.setdefault(pin_id, pin)
        if first is not pin:
            line = self._reader.line(first.node)
            found = f"pinned cell id {shorten(pin_id)} given twice (first on line {line})"
            self._reader.note(pin.node, found, "an id of its own for each pinned cell")

    def _add_generated(
        self, chain: Chain, depth: int, default: int, address: str, node: yaml.Node, devices: list[_Range]
    ) -> None:
        """Account for the leaf cells (and nodes) of a cell without written children."""
        if depth < chain.node_depth:
            nodes = chain.leaf_counts[depth] // chain.leaf_counts[chain.node_depth]
            self._generated_nodes.append(_Range(default * nodes, (default + 1) * nodes, node, chain))
            return
        leaves = chain.leaf_counts[depth]
        if depth == chain.leaf_depth and _INDEX.fullmatch(address):
            default = int(address)
        elif depth == chain.node_depth:
            default = 0
        devices.append(_Range(default * leaves, (default + 1) * leaves, node, chain))

    def _refuse_equal_addresses(self, items: list[yaml.Node], cells: list[PhysicalCellSpec], base: int) -> None:
        seen: set[str] = set()
        for i, cell in enumerate(cells):
            address = cell.address or str(base + i)
            if address in seen:
                self._reader.note(items[i], f"address {shorten(address)} of a cell next to it", "an address of its own")
            seen.add(address)

    def _refuse_shared_devices(self) -> None:
        """Note every device that two cells stand for; a node may only be in two chains if its devices differ."""
        for name, ranges in self._devices.items():
            if len(ranges) > 1:
                self._refuse_overlaps(f"node {shorten(name)}", ranges)
        if self._generated_nodes:
            named = [
                _Range(int(name), int(name) + 1, each.node, each.chain)
                for name, ranges in self._devices.items()
                if _NUMERIC_NAME.fullmatch(name)
                for each in ranges[:1]
            ]
            self._refuse_overlaps("", self._generated_nodes + named)

    def _refuse_overlaps(self, name: str, ranges: list[_Range]) -> None:
        ordered = sorted(ranges, key=lambda each: each.start)
        for first, second in zip(ordered, ordered[1:], strict=False):
            if second.start < first.stop:
                what = f"device {second.start} of {name}" if name else f"node '{second.start}'"
                line = self._reader.line(first.node)
                self._reader.note(second.node, f"{what} given twice (first on line {line})", "one cell for each device")

    def _refuse_absurd_size(self, node: yaml.Node) -> None:
        total = sum(count * self.chains[name].cell_counts[0] for name, count in self.top_counts.items())
        if total > MAX_CELL_COUNT:
            self._reader.note(node, f"a cluster of {total} cells", f"at most {MAX_CELL_COUNT}")
