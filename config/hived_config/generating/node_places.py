"""The places of nodes in the text of a configuration: the groups around them, and where their names are written."""

from collections.abc import Iterator, Mapping

import msgspec
import yaml

from hived_config.chains import CellTypes, Chain
from hived_config.node_names import PLACEHOLDER
from hived_config.openpai import open_configuration
from hived_config.reader import Reader


class NodeGroup(msgspec.Struct, eq=False):
    """A cell above the nodes.

    Attributes
    ----------
    scalar : its address in the text, None if that is not written or not its alone
    groups, places : the cells below it, written or generated
    mapping : the cell in the text, to which children can be added as none are written; else None
    """

    address: str
    scalar: yaml.ScalarNode | None
    groups: list["NodeGroup"] = msgspec.field(default_factory=list)
    places: list["NodePlace"] = msgspec.field(default_factory=list)
    mapping: yaml.MappingNode | None = None

    def every_place(self) -> Iterator["NodePlace"]:
        """The nodes in it, in file order."""
        yield from self.places
        for group in self.groups:
            yield from group.every_place()


class NodePlace(msgspec.Struct, eq=False):
    """A cell at node level.

    Attributes
    ----------
    scalar : the node's name in the text, None if that is not written or not its alone
    children : its cells, None if not written
    is_generated : the name follows from where the cell stands
    mapping : the cell in the text, to which a name can be added as none is written; else None
    root : the written cell above it whose children are all generated; None where this cell is written
    """

    name: str
    chain: Chain
    scalar: yaml.ScalarNode | None
    children: yaml.SequenceNode | None
    is_generated: bool = False
    mapping: yaml.MappingNode | None = None
    root: NodeGroup | None = None

    @property
    def is_writable(self) -> bool:
        """True if another name can be written here."""
        return (
            self.scalar is not None or self.mapping is not None or (self.root is not None and bool(self.root.mapping))
        )

    @property
    def node_type(self) -> str:
        """The cell type of the node."""
        return self.chain.types[self.chain.node_depth]

    @property
    def is_placeholder(self) -> bool:
        """True for a node that does not exist yet."""
        return self.name.startswith(PLACEHOLDER)


class NodeTrees(msgspec.Struct, frozen=True):
    """The physical cells of a sound configuration.

    Attributes
    ----------
    chains : by name, in file order
    tops : by chain, the cells above the nodes; of a chain whose top cells are nodes one group of them all
    cells : the list of physical cells in the text
    """

    chains: Mapping[str, Chain]
    tops: Mapping[str, NodeGroup]
    cells: yaml.SequenceNode

    def places(self) -> Iterator[NodePlace]:
        """Every node, chain by chain."""
        for top in self.tops.values():
            yield from top.every_place()

    def addresses(self) -> Iterator[str]:
        """The address of every cell above the nodes, "" where none is written."""
        stack = [group for top in self.tops.values() for group in top.groups]
        while stack:
            group = stack.pop()
            stack += group.groups
            yield group.address


def read_trees(text: str, file: str) -> NodeTrees:
    """The trees in the text of a sound configuration. Cost O(text + nodes)."""
    reader = open_configuration(text, file, lenient=True)
    physical = _value(reader, reader.root, "physicalCluster")
    types = CellTypes(reader, _value(reader, physical, "cellTypes"))
    cells = _value(reader, physical, "physicalCells")
    assert isinstance(cells, yaml.SequenceNode)
    chains: dict[str, Chain] = {}
    tops: dict[str, NodeGroup] = {}
    walk = _TreeWalk(reader)
    for index, item in enumerate(cells.value):
        top_type = _value(reader, item, "cellType")
        assert isinstance(top_type, yaml.ScalarNode)
        chain = types.chain(top_type.value, item)
        assert chain is not None
        chains.setdefault(chain.name, chain)
        walk.read(item, chain, 0, index, tops.setdefault(chain.name, NodeGroup("", None)))
    return NodeTrees(chains, tops, cells)


def _value(reader: Reader, node: yaml.Node | None, key: str) -> yaml.Node | None:
    return next((value for name, _, value in reader.fields(node, "") if name == key), None)


class _TreeWalk:
    """Reads cells; a scalar or a cell that an alias shares is not changed."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._owners: dict[int, NodeGroup | NodePlace] = {}
        self._holders: dict[int, list[NodeGroup | NodePlace]] = {}

    def read(self, node: yaml.Node, chain: Chain, depth: int, index: int, parent: NodeGroup) -> None:
        """Add a cell and the cells below it, down to the nodes, to `parent`; `index` is its running index."""
        fields = {name: value for name, _, value in self._reader.fields(node, "")}
        written = fields.get("cellAddress")
        scalar = written if isinstance(written, yaml.ScalarNode) and written.value else None
        address = self._reader.text(scalar, "")
        children = fields.get("cellChildren")
        items = children if isinstance(children, yaml.SequenceNode) and children.value else None
        is_node = depth == chain.node_depth
        mapping = node if isinstance(node, yaml.MappingNode) else None
        if ("cellAddress" if is_node else "cellChildren") in fields:
            mapping = None
        cell: NodeGroup | NodePlace
        if is_node:
            cell = NodePlace(address or str(index), chain, scalar, items, is_generated=not address, mapping=mapping)
            parent.places.append(cell)
        else:
            cell = NodeGroup(address, scalar, mapping=mapping)
            parent.groups.append(cell)
            first = index * chain.fan_out[depth]
            for i, item in enumerate(items.value if items else ()):
                self.read(item, chain, depth + 1, first + i, cell)
            if items is None:
                _generate(chain, depth, index, cell, cell)
        self._hold(node, scalar, cell)

    def _hold(self, node: yaml.Node, scalar: yaml.ScalarNode | None, cell: NodeGroup | NodePlace) -> None:
        holders = self._holders.setdefault(id(node), [])
        holders.append(cell)
        if len(holders) > 1:
            for each in holders:
                each.mapping = None
        if scalar is not None:
            owner = self._owners.setdefault(id(scalar), cell)
            if owner is not cell:
                owner.scalar = cell.scalar = None


def _generate(chain: Chain, depth: int, index: int, cell: NodeGroup, root: NodeGroup) -> None:
    """Add the cells below a cell whose children are not written: running indices are the names of nodes."""
    count = chain.fan_out[depth]
    for child in range(index * count, (index + 1) * count):
        if depth + 1 == chain.node_depth:
            cell.places.append(NodePlace(str(child), chain, None, None, is_generated=True, root=root))
        else:
            cell.groups.append(NodeGroup("", None))
            _generate(chain, depth + 1, child, cell.groups[-1], root)
