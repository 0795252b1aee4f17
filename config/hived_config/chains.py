"""Builds chains from cell types: the shape of every tree under a top cell type (rules 1.1 to 1.3), within limits.

A text of 300 bytes may ask for millions of cells. They are counted by arithmetic, before anything of that size is
built: a plan of them takes seconds of CPU at these limits, and minutes beyond.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate
from operator import mul

import yaml

from hived.values.specs import MAX_LEVELS, CellTypeSpec
from hived_config.reader import (
    Boolean,
    Integer,
    Key,
    MapOf,
    Reader,
    Record,
    closest,
    is_clearly,
    is_null,
    name_text,
    shorten,
)

MAX_CHILD_COUNT = 32_768
"""Of one cell: some rules look at each of a cell's children for each of them."""

CELL_TYPE = Record(
    "cellType",
    "a cell type (a mapping)",
    f"A cell type above the leaf cells. A chain has at most {MAX_LEVELS} levels, exactly one of them the node level.",
    (
        Key(
            "childCellType",
            name_text("the name of the children's cell type"),
            "the type of its children; a type that is not defined is a leaf cell type: one device",
            is_required=True,
        ),
        Key(
            "childCellNumber",
            Integer("a whole number of children", 1, MAX_CHILD_COUNT),
            "how many children a cell has, at least 1",
            is_required=True,
        ),
        Key("isNodeLevel", Boolean(), "a cell of this type is one Kubernetes node", False),
    ),
)

CELL_TYPES = MapOf(
    "cell types by name", CELL_TYPE, "cell type", name_text("a name, printable and without blanks around it")
)


@dataclass(frozen=True)
class Chain:
    """A cell chain by depth: depth 0 is the top cell, the last depth the leaf cell (rule 1.2).

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
        return tuple(accumulate(self.fan_out[-2::-1], mul, initial=1))[::-1]

    @cached_property
    def cell_counts(self) -> tuple[int, ...]:
        """cell_counts[d] == 1 + fan_out[d] * cell_counts[d + 1]: the cells of one tree rooted at depth d."""
        return tuple(accumulate(self.fan_out[-2::-1], lambda below, fan_out: 1 + fan_out * below, initial=1))[::-1]

    @cached_property
    def node_count(self) -> int:
        """The number of nodes below one top cell."""
        return self.leaf_counts[0] // self.leaf_counts[self.node_depth]

    @cached_property
    def pair_count(self) -> int:
        """The sum of the squares of the numbers of children, over all cells of one tree."""
        return reduce(lambda below, fan_out: fan_out * (fan_out + below), self.fan_out[-2::-1], 0)

    def level(self, depth: int) -> int:
        """The cell level at a depth; a leaf cell is level 1."""
        return len(self.types) - depth


def chain_below(specs: Mapping[str, CellTypeSpec], top: str) -> tuple[Chain, list[int]]:
    """The chain below a top type, and the depths of its node levels, of which a sound one has exactly one."""
    types, node_depths = [top], []
    fan_out: list[int] = []
    while (spec := specs.get(types[-1])) is not None:
        if spec.is_node_level:
            node_depths.append(len(fan_out))
        fan_out.append(spec.child_count)
        types.append(spec.child_type)
    return Chain(tuple(types), (*fan_out, 0), node_depths[0] if node_depths else 0), node_depths


class CellTypes:
    """The cell types of a file and the chains that can be made of them.

    `specs` holds the sound types in file order; `broken` names the types whose definition has a mistake, and `is_given`
    tells whether there are any definitions: a mistake noted there is not reported a second time where types are used.
    `broken_nodes` are those of the broken types that are one node.
    """

    def __init__(self, reader: Reader, node: yaml.Node | None) -> None:
        self._reader = reader
        self._keys: dict[str, yaml.Node] = {}
        self._chains: dict[str, Chain | None] = {}
        self.specs: dict[str, CellTypeSpec] = {}
        self.broken: set[str] = set()
        self.broken_nodes: set[str] = set()
        self._children: dict[str, yaml.Node] = {}
        self.is_given = isinstance(node, yaml.MappingNode)
        for name, key, value in CELL_TYPES.fields(reader, node):
            self._read(name, key, value)
        self._refuse_cycles()
        self.leaf_types = {spec.child_type for spec in self.specs.values()} - self.specs.keys() - self.broken

    def warn_of_misspelt(self) -> None:
        """Warn of a leaf cell type that is a defined type but for a typing error, unless a mistake says so already."""
        told = {chain_below(self.specs, top)[0].types[-1] for top, chain in self._chains.items() if chain is None}
        for name, spec in self.specs.items():
            leaf = spec.child_type
            meant = closest(leaf, self.names - {name}) if leaf in self.leaf_types - told else ""
            if meant and is_clearly(leaf, meant):
                expected = "a type of cellTypes, or another name for a leaf cell type"
                found = f"leaf cell type {shorten(leaf)}, which is not defined"
                self._reader.note(self._children[name], found, expected, meant, is_warning=True)

    @property
    def names(self) -> set[str]:
        """The names of all types that the file defines, sound or not."""
        return self.specs.keys() | self.broken

    @property
    def unsound(self) -> set[str]:
        """The top cell types in use below which all types are sound, and that are no chain all the same."""
        ends = {top: chain_below(self.specs, top)[0].types[-1] for top, chain in self._chains.items() if chain is None}
        return {top for top, end in ends.items() if end not in self.broken}

    def _read(self, name: str, key: yaml.Node, node: yaml.Node) -> None:
        reader = self._reader
        self._keys[name] = key
        if is_null(node):
            reader.note(node, "nothing", CELL_TYPE.what)
        given = CELL_TYPE.given(reader, node)
        child, count = given.value("childCellType"), given.value("childCellNumber")
        is_node_level = given.value("isNodeLevel")
        if child and count is not None and is_node_level is not None:
            self.specs[name] = CellTypeSpec(name, child, count, is_node_level)
            self._children[name] = given.nodes["childCellType"]
        else:
            self.broken.add(name)
            if is_node_level:
                self.broken_nodes.add(name)

    def _refuse_cycles(self) -> None:
        """Note each cycle once, at the type where a walk through the file first meets it, and mark its types broken."""
        done: set[str] = set()
        for start in list(self.specs):
            walk: dict[str, None] = {}
            name = start
            while name in self.specs and name not in done and name not in walk:
                walk[name] = None
                name = self.specs[name].child_type
            if name in walk:
                cycle = list(walk)[list(walk).index(name) :]
                found = f"a cycle of cell types ({' > '.join([*cycle, name])})"
                self._reader.note(self._keys[name], found, "children that do not contain their parents")
                self.broken.update(cycle)
            done.update(walk)
        for name in self.broken:
            self.specs.pop(name, None)

    def chain(self, top: str, node: yaml.Node) -> Chain | None:
        """The chain under a sound top type, or None after noting, once, why there is none.

        `node` is where the type is first used as a top cell.
        """
        if top not in self._chains:
            self._chains[top] = self._build(top, node)
        return self._chains[top]

    def _build(self, top: str, node: yaml.Node) -> Chain | None:
        chain, node_depths = chain_below(self.specs, top)
        level_count = len(chain.types)
        if chain.types[-1] in self.broken:
            return None
        if level_count > MAX_LEVELS:
            self._reader.note(node, f"chain {shorten(top)} of {level_count} levels", f"at most {MAX_LEVELS} levels")
            return None
        if len(node_depths) != 1:
            self._note_node_level(chain.types, node_depths, node)
            return None
        return chain

    def _note_node_level(self, types: Sequence[str], node_depths: list[int], node: yaml.Node) -> None:
        top, path = types[0], " > ".join(types)
        if node_depths:
            found = f"{len(node_depths)} node levels in chain {top}: {', '.join(types[d] for d in node_depths)}"
            self._reader.note(self._keys[types[node_depths[1]]], found, f"isNodeLevel once in {path}")
        elif above := self._node_type_above(top):
            found = f"top cell type {top}, which is below node level ({above})"
            self._reader.note(node, found, "a cell type at node level or above")
        else:
            hint = closest(types[-1], self.specs.keys() - set(types))
            at = self._children[types[-2]] if hint else node
            self._reader.note(at, f"chain {top} without a node level", f"isNodeLevel: true once in {path}", hint)

    def _node_type_above(self, below: str) -> str:
        """A node-level type that has `below` somewhere under it, or ""."""
        for start, spec in self.specs.items():
            name = start
            while spec.is_node_level and name in self.specs:
                name = self.specs[name].child_type
                if name == below:
                    return start
        return ""


MAX_CELL_COUNT = 2_000_000
"""Physical or virtual. 16,384 nodes of 8 devices, with switches and sockets, have about 300,000."""

MAX_NODE_COUNT = 200_000
"""Each has a name of its own, and is looked at singly."""

MAX_PAIR_COUNT = 5_000_000_000
"""Of cells side by side: some rules look at each child of a cell, or each cell of a VC, for each of them."""

Counted = tuple[int, str, yaml.Node]
"""The count that one entry of the file adds, how to lower it, and where the entry is."""


def refuse_large_hardware(reader: Reader, entries: Iterable[tuple[Chain, yaml.Node]]) -> None:
    """Note the first top-level cell that is beyond a limit."""
    entries = list(entries)

    def counted(count_of: Callable[[Chain], int]) -> list[Counted]:
        return [(count_of(chain), _remedy(chain), node) for chain, node in entries]

    _refuse(reader, counted(lambda chain: chain.cell_counts[0]), "physical cells", MAX_CELL_COUNT)
    _refuse(reader, counted(lambda chain: chain.node_count), "nodes", MAX_NODE_COUNT)
    _refuse(reader, counted(lambda chain: chain.pair_count), "pairs of cells with the same parent", MAX_PAIR_COUNT)


def refuse_large_claims(reader: Reader, claims: Iterable[tuple[object, int, Chain, int, yaml.Node]]) -> None:
    """Note the first claim that is beyond a limit; each is (VC, number, chain, depth, where)."""
    claims = list(claims)
    remedy = "lower cellNumber"
    cells = [(number * chain.cell_counts[depth], remedy, node) for _, number, chain, depth, node in claims]
    _refuse(reader, cells, "virtual cells", MAX_CELL_COUNT)
    side_by_side: dict[tuple[object, str, int], int] = {}
    pairs = []
    for vc, number, chain, depth, node in claims:
        before = side_by_side.get((vc, chain.name, depth), 0)
        side_by_side[vc, chain.name, depth] = before + number
        pairs.append(((before + number) ** 2 - before**2, f"{remedy}, or promise cells of a higher level", node))
    _refuse(reader, pairs, "pairs of virtual cells of one VC and type", MAX_PAIR_COUNT)


def _remedy(chain: Chain) -> str:
    below = " or a type below it" if len(chain.types) > 2 else ""
    return f"lower childCellNumber of {chain.name}{below}, or remove cells"


def _refuse(reader: Reader, counted: list[Counted], what: str, most: int) -> None:
    totals = list(accumulate(count for count, _, _ in counted))
    for total, (_, remedy, node) in zip(totals, counted, strict=True):
        if total > most:
            reader.note(node, f"{totals[-1]} {what} in all", f"at most {most}: {remedy}")
            return
