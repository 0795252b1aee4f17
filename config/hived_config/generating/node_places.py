"""The places of nodes in the text of a configuration: the groups around them, and where their names are written."""

from collections.abc import Iterator, Mapping

import msgspec
import yaml

from hived_config.chains import CellTypes, Chain
from hived_config.node_names import PLACEHOLDER
from hived_config.openpai import open_configuration
from hived_config.reader import Reader


class NodeGroup(msgspec.Struct, eq=False):
    """A cell above the nodes. `scalar` is its address in the text, None if that is not written or not its alone."""

    address: str
    scalar: yaml.ScalarNode | None
    groups: list["NodeGroup"] = msgspec.field(default_factory=list)
    places: list["NodePlace"] = msgspec.field(default_factory=list)

    def every_place(self) -> Iterator["NodePlace"]:
        """The nodes in it, in file order."""
        yield from self.places
        for group in self.groups:
            yield from group.every_place()


class NodePlace(msgspec.Struct, eq=False):
    """A cell at node level. `scalar` is the node's name in the text, None if that is not written or not its alone;
    `children` its cells, None if not written. `is_generated`: the name follows from where the cell stands.
    """

    name: str
    chain: Chain
    scalar: yaml.ScalarNode | None
    children: yaml.SequenceNode | None
    is_generated: bool = False

    @property
    def node_type(self) -> str:
        """The cell type of the node."""
        return self.chain.types[self.chain.node_depth]

    @property
    def is_placeholder(self) -> bool:
        """Whether the name is one for a node that does not exist yet."""
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
    """Reads cells; a scalar that an alias shares is nobody's to change."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._owners: dict[int, NodeGroup | NodePlace] = {}

    def read(self, node: yaml.Node, chain: Chain, depth: int, index: int, parent: NodeGroup) -> None:
        """Add a cell and the cells below it, down to the nodes, to `parent`; `index` is its running index."""
        fields = {name: value for name, _, value in self._reader.fields(node, "")}
        written = fields.get("cellAddress")
        scalar = written if isinstance(written, yaml.ScalarNode) and written.value else None
        address = self._reader.text(scalar, "")
        children = fields.get("cellChildren")
        items = children if isinstance(children, yaml.SequenceNode) and children.value else None
        cell: NodeGroup | NodePlace
        if depth == chain.node_depth:
            cell = NodePlace(address or str(index), chain, scalar, items, is_generated=not address)
            parent.places.append(cell)
        else:
            cell = NodeGroup(address, scalar)
            parent.groups.append(cell)
            first = index * chain.fan_out[depth]
            for i, item in enumerate(items.value if items else ()):
                self.read(item, chain, depth + 1, first + i, cell)
            if items is None:
                cell.places += _generated(chain, depth, index)
        if scalar is not None:
            owner = self._owners.setdefault(id(scalar), cell)
            if owner is not cell:
                owner.scalar = cell.scalar = None


def _generated(chain: Chain, depth: int, index: int) -> list[NodePlace]:
    """The nodes below a cell whose children are not written: running indices are their names."""
    count = chain.leaf_counts[depth] // chain.leaf_counts[chain.node_depth]
    names = range(index * count, (index + 1) * count)
    return [NodePlace(str(name), chain, None, None, is_generated=True) for name in names]
