"""New trees for nodes that find no place in a configuration, filled up with placeholders."""

from collections.abc import Sequence

import msgspec
import yaml

from hived_config.chains import Chain
from hived_config.generating.naming import Names
from hived_config.generating.node_places import NodeTrees
from hived_config.generating.writing import NewCell
from hived_config.node_names import PLACEHOLDER

Newcomer = tuple[tuple[str, ...], str]
"""A node to come: what it stands in below the cell in question, one group for each level or none, and its name."""


class NewTrees(msgspec.Struct, frozen=True):
    """New top cells; `placeholders` counts their nodes that do not exist, `left` names nodes that had no room."""

    cells: tuple[NewCell, ...]
    placeholders: int
    left: tuple[str, ...]


class Growth:
    """Makes top cells of the chains of a file; `names` are taken, so placeholders may not use them."""

    def __init__(self, trees: NodeTrees, names: Names) -> None:
        self._names = names
        self._left: list[str] = []
        self._devices: dict[str, tuple[NewCell, ...]] = {}
        for place in trees.places():
            if place.chain.name not in self._devices:
                self._devices[place.chain.name] = _copied(place.children)

    def trees_for(self, chain: Chain, nodes: Sequence[Newcomer]) -> NewTrees:
        """As few trees as hold the nodes, with all nodes of one outermost group in one tree."""
        self._left = []
        cells = [self._tree(chain, 0, group, own) for group, own in _divided(chain, 0, nodes)]
        return self._grown(cells)

    def placeholders_for(self, chain: Chain, count: int) -> NewTrees:
        """As many trees as have `count` nodes, none of which exists."""
        trees = -(-count // _node_count(chain, 0))
        return self._grown([self._tree(chain, 0, "", ()) for _ in range(trees)])

    def _grown(self, cells: Sequence[NewCell]) -> NewTrees:
        names = [name for cell in cells for name in node_names(cell)]
        return NewTrees(tuple(cells), sum(name.startswith(PLACEHOLDER) for name in names), tuple(self._left))

    def _tree(self, chain: Chain, depth: int, group: str, nodes: Sequence[Newcomer], path: str = "") -> NewCell:
        """A cell at a depth with as many of the nodes as it has room for; the others are left."""
        cell_type = "" if depth else chain.name
        path = "-".join(filter(None, (path, group)))
        if depth == chain.node_depth:
            name = nodes[0][1] if nodes else self._placeholder(chain, path)
            return NewCell(name, cell_type, self._devices.get(chain.name, ()), is_node=True)
        if not nodes:
            group = self._placeholder(chain, path)
            path = group.removeprefix(PLACEHOLDER)
        room = chain.fan_out[depth]
        batches = _divided(chain, depth + 1, nodes)
        self._left += [name for _, own in batches[room:] for _, name in own]
        batches = batches[:room] + [("", [])] * (room - len(batches))
        return NewCell(group, cell_type, tuple(self._tree(chain, depth + 1, *batch, path) for batch in batches))

    def _placeholder(self, chain: Chain, path: str) -> str:
        return self._names.numbered(f"{PLACEHOLDER}{path or chain.types[chain.node_depth]}".lower())


def _node_count(chain: Chain, depth: int) -> int:
    return chain.leaf_counts[depth] // chain.leaf_counts[chain.node_depth]


def _divided(chain: Chain, depth: int, nodes: Sequence[Newcomer]) -> list[tuple[str, Sequence[Newcomer]]]:
    """The nodes by the cell at `depth` that each is to be in: by group, or one after the other if that is unknown."""
    if nodes and nodes[0][0]:
        by_group: dict[str, list[Newcomer]] = {}
        for groups, name in nodes:
            by_group.setdefault(groups[0], []).append((groups[1:], name))
        return list(by_group.items())
    size = _node_count(chain, depth)
    return [("", nodes[at : at + size]) for at in range(0, len(nodes), size)]


def node_names(cell: NewCell) -> list[str]:
    """The names of the nodes in a new cell."""
    if cell.is_node:
        return [cell.address]
    return [name for child in cell.children for name in node_names(child)]


def _copied(items: yaml.SequenceNode | None) -> tuple[NewCell, ...]:
    """The cells below a node as they are written, for other nodes like it."""
    cells = []
    for item in items.value if items else ():
        fields = {key.value: value for key, value in item.value} if isinstance(item, yaml.MappingNode) else {}
        address, children = fields.get("cellAddress"), fields.get("cellChildren")
        cells.append(
            NewCell(
                str(address.value) if isinstance(address, yaml.ScalarNode) else "",
                children=_copied(children if isinstance(children, yaml.SequenceNode) else None),
            )
        )
    return tuple(cells)
