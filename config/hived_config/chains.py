"""Cell types -> chains: the shape of every tree under one top cell type (SEMANTICS 1, 2.1, 2.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import yaml

from hived.specs import CellTypeSpec
from hived_config.reader import Reader, closest, shorten

CELL_TYPE_KEYS = ("childCellType", "childCellNumber", "isNodeLevel")
MAX_LEVELS = 64


@dataclass(frozen=True)
class Chain:
    """A cell chain by depth: depth 0 is the top cell, the last depth the leaf cell.

    `types[d]` is the cell type at depth d and `fan_out[d]` its number of children, 0 for the leaf;
    `node_depth` is the depth of the node level.
    """

    types: tuple[str, ...]
    fan_out: tuple[int, ...]
    node_depth: int

    @property
    def name(self) -> str:
        """The name of the chain: its top cell type."""
        return self.types[0]

    @property
    def leaf_depth(self) -> int:
        """The depth of the leaf cells."""
        return len(self.types) - 1

    @cached_property
    def leaf_counts(self) -> tuple[int, ...]:
        """leaf_counts[d] == fan_out[d] * leaf_counts[d + 1], and 1 for a leaf."""
        counts = [1]
        for children in reversed(self.fan_out[:-1]):
            counts.append(children * counts[-1])
        return tuple(reversed(counts))

    @cached_property
    def cell_counts(self) -> tuple[int, ...]:
        """cell_counts[d] == 1 + fan_out[d] * cell_counts[d + 1]: the cells of one tree rooted at depth d."""
        counts = [1]
        for children in reversed(self.fan_out[:-1]):
            counts.append(1 + children * counts[-1])
        return tuple(reversed(counts))

    def level(self, depth: int) -> int:
        """The cell level at a depth; a leaf cell is level 1."""
        return len(self.types) - depth


class CellTypes:
    """The cell types of a file and the chains that can be made of them.

    `specs` holds every type that was readable; `broken` names the types whose definition has a mistake that was noted,
    so that what depends on them is not reported a second time.
    """

    def __init__(self, reader: Reader, node: yaml.Node | None) -> None:
        self._reader = reader
        self.specs: dict[str, CellTypeSpec] = {}
        self.broken: set[str] = set()
        self._keys: dict[str, yaml.Node] = {}
        self._chains: dict[str, Chain | None] = {}
        if node is not None:
            for name, key, value in reader.fields(node, "cell types by name"):
                self._read(name, key, value)
        self._refuse_cycles()

    @property
    def leaf_types(self) -> set[str]:
        """The types that are named as a child and not defined."""
        return {spec.child_type for spec in self.specs.values()} - self.specs.keys() - self.broken

    @property
    def names(self) -> set[str]:
        """Every name that is a cell type, leaf or not."""
        return self.specs.keys() | self.broken | self.leaf_types

    def _read(self, name: str, key: yaml.Node, node: yaml.Node) -> None:
        reader = self._reader
        self._keys[name] = key
        if not name.strip():
            reader.note(key, "an empty cell type name", "a name")
        values = reader.known_fields(node, "a cell type", CELL_TYPE_KEYS)
        child_node = values.get("childCellType")
        count_node = values.get("childCellNumber")
        child = reader.text(child_node, "the name of a cell type") if child_node is not None else ""
        count = reader.integer(count_node, "a number of children", 1) if count_node is not None else None
        is_node_level = "isNodeLevel" in values and reader.boolean(values["isNodeLevel"], "true or false")
        if child_node is None or (not child and isinstance(child_node, yaml.ScalarNode)):
            reader.note(key, f"cell type {shorten(name)} without childCellType", "the name of its children's cell type")
        if count_node is None:
            reader.note(key, f"cell type {shorten(name)} without childCellNumber", "its number of children")
        if child and count is not None:
            self.specs[name] = CellTypeSpec(name, child, count, is_node_level)
        else:
            self.broken.add(name)

    def _refuse_cycles(self) -> None:
        """Note each cycle once, at the type of it that comes first in the file, and call its types broken."""
        state: dict[str, int] = {}
        for start in list(self.specs):
            walk: list[str] = []
            name = start
            while name in self.specs and name not in state:
                state[name] = id(walk)
                walk.append(name)
                name = self.specs[name].child_type
            if state.get(name) == id(walk) and name in walk:
                cycle = walk[walk.index(name) :]
                text = " -> ".join([*cycle, name])
                self._reader.note(self._keys[name], f"a cycle of cell types ({text})", "children below their parents")
                self.broken.update(cycle)
            state.update(dict.fromkeys(walk, 0))
        for name in self.broken:
            self.specs.pop(name, None)

    def chain(self, top: str, node: yaml.Node) -> Chain | None:
        """The chain under a defined top type, or None after noting (once, at the type) why there is none."""
        if top not in self._chains:
            self._chains[top] = self._build(top, node)
        return self._chains[top]

    def _build(self, top: str, node: yaml.Node) -> Chain | None:
        types, fan_out, name = [top], [], top
        node_depths = []
        while name in self.specs:
            spec = self.specs[name]
            if spec.is_node_level:
                node_depths.append(len(fan_out))
            fan_out.append(spec.child_count)
            name = spec.child_type
            types.append(name)
        if name in self.broken:
            return None
        if len(types) > MAX_LEVELS:
            self._reader.note(node, f"a chain of {len(types)} levels under {top}", f"at most {MAX_LEVELS} levels")
            return None
        if len(node_depths) != 1:
            self._note_node_level(top, types, node_depths, node)
            return None
        return Chain(tuple(types), (*fan_out, 0), node_depths[0])

    def _note_node_level(self, top: str, types: list[str], node_depths: list[int], node: yaml.Node) -> None:
        path = " > ".join(types)
        if node_depths:
            nodes = " and ".join(types[depth] for depth in node_depths)
            found = f"isNodeLevel at {nodes} of chain {top} ({path})"
            self._reader.note(self._keys.get(types[node_depths[1]], node), found, "one node level in a chain")
            return
        above = self._node_type_above(top)
        if above:
            found = f"top cell type {top}, which is below node level ({above})"
            self._reader.note(node, found, "a cell type at node level or above")
            return
        hint = closest(types[-1], self.specs.keys() - set(types))
        found = f"chain {top} without a node level ({path})"
        self._reader.note(node, found, "isNodeLevel: true at one of its cell types", hint)

    def _node_type_above(self, below: str) -> str:
        """A node-level type that has `below` somewhere under it, or ""."""
        for start, spec in self.specs.items():
            name = start
            while spec.is_node_level and name in self.specs:
                name = self.specs[name].child_type
                if name == below:
                    return start
        return ""
