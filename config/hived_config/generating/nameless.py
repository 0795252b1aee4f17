"""Names for nodes that nobody has named: where a node takes such a place, the text gets what it has left out.

A cell at node level without `cellAddress` gets one. Below a cell without `cellChildren` all children are written, down
to the nodes, as a list of children is complete or absent; cells between keep their generated addresses.
"""

from collections.abc import Callable, Iterator, Mapping

import yaml

from hived_config.generating.naming import Names
from hived_config.generating.node_places import NodeGroup, NodePlace
from hived_config.generating.writing import NewCell, block, compact, flow
from hived_config.node_names import PLACEHOLDER
from hived_config.text.places import Splice, add, is_flow, scalar

_CHILDREN = "cellChildren"
_ADDRESS = "cellAddress"


class Nameless:
    """Writes names into a text. `keeps` tells of a generated name whether it is that of a node; others become
    placeholders.
    """

    def __init__(self, text: str, names: Names, keeps: Callable[[str], bool]) -> None:
        self._text = text
        self._names = names
        self._keeps = keeps

    def edits(self, taken: Mapping[NodePlace, str]) -> Iterator[Splice]:
        """The edits for nodes that take places, some of which have no name in the text."""
        roots: dict[NodeGroup, None] = {}
        for place, name in taken.items():
            if place.mapping is not None:
                yield from self._name(place.mapping, name)
            elif place.root is not None:
                roots[place.root] = None
        for root in roots:
            assert root.mapping is not None  # its places would not be writable
            cells = self._children(root, taken, root.address)
            lines = [f"{_CHILDREN}:", *(line for cell in cells for line in block(cell, ""))]
            yield from self._add(root.mapping, _CHILDREN, lines, f"[{', '.join(map(compact, cells))}]",
                                 f"[{', '.join(map(flow, cells))}]")  # fmt: skip

    def _children(self, group: NodeGroup, taken: Mapping[NodePlace, str], path: str) -> tuple[NewCell, ...]:
        below = [NewCell(children=self._children(each, taken, path)) for each in group.groups]
        return (*below, *(NewCell(self._name_of(place, taken, path), is_node=True) for place in group.places))

    def _name_of(self, place: NodePlace, taken: Mapping[NodePlace, str], path: str) -> str:
        if place in taken:
            return taken[place]
        if self._keeps(place.name):
            return place.name
        return self._names.numbered(f"{PLACEHOLDER}{path or place.node_type}".lower())

    def _name(self, mapping: yaml.MappingNode, name: str) -> Iterator[Splice]:
        quoted = flow(NewCell(name)).removeprefix(f'{{"{_ADDRESS}": ').removesuffix("}")
        return self._add(mapping, _ADDRESS, [f"{_ADDRESS}: {scalar(name)}"], scalar(name), quoted)

    def _add(self, mapping: yaml.MappingNode, key: str, lines: list[str], plain: str, quoted: str) -> Iterator[Splice]:
        """Give a cell a key: as `lines` in block style, else on one line, as JSON where its keys are quoted."""
        is_json = any(each.style == '"' for each, _ in mapping.value)
        short = f'"{key}": {quoted}' if is_json else f"{key}: {plain}"
        if mapping.value:
            yield from add(self._text, mapping, lines, short)
        else:
            assert is_flow(mapping)  # YAML has no other way to write an empty one
            close = int(mapping.end_mark.index) - 1
            yield Splice(close, close, short)
