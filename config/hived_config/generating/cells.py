"""Arranges machines in trees of cells, all cells of one type with equally many children of one type.

A group of machines is one cell only as far as its parts are alike: a block with two racks of four nodes and one of
three becomes a cell of two racks and another one of the third. Machines of several products in one rack become a cell
for each product. Parts of different shape are different cell chains. With padding, groups of one kind are filled up to
the largest of them with placeholders, nodes that do not exist, and stay one chain.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hived_config.generating.machines import Machine, Names, in_order, natural_key
from hived_config.node_names import PLACEHOLDER


class Shape(msgspec.Struct, frozen=True):
    """A cell type before it has a name.

    A node has no `child` here but `count` devices, grouped by `inner`: (name, devices of one such cell), lowest first.
    """

    level: str
    product: str
    child: "Shape | None"
    count: int
    inner: tuple[tuple[str, int], ...] = ()

    @property
    def node_count(self) -> int:
        """The number of nodes in a cell of this shape."""
        return self.count * self.child.node_count if self.child else 1

    @property
    def node(self) -> "Shape":
        """The shape of its nodes."""
        return self.child.node if self.child else self

    def down(self) -> Iterator["Shape"]:
        """This shape and the shapes below it, down to the node."""
        yield self
        if self.child:
            yield from self.child.down()


class Cell(msgspec.Struct, frozen=True):
    """A cell at node level or above; a node that does not exist yet is a placeholder.

    `devices` are a node's in the order of its tree, () for 0, 1, 2 and so on.
    """

    shape: Shape
    address: str
    children: tuple["Cell", ...] = ()
    devices: tuple[int, ...] = ()
    is_placeholder: bool = False

    def nodes(self) -> Iterator["Cell"]:
        """The nodes in it, from left to right."""
        if self.shape.child is None:
            yield self
        for child in self.children:
            yield from child.nodes()

    @property
    def is_complete(self) -> bool:
        """True if all of its nodes exist."""
        return not any(node.is_placeholder for node in self.nodes())


Placed = tuple[tuple[str, ...], Cell]


def trees_of(machines: Iterable[Machine], levels: Sequence[str], pads: bool) -> list[Cell]:
    """The top cells, by product, largest shapes first, and by name.

    Parameters
    ----------
    machines : each with as many groups as there are levels, or none
    levels : the name of each level's groups (ZONE, RACK), outermost first
    pads : fill groups up with placeholders to the largest of their kind
    """
    machines = in_order(machines)
    names = Names(machine.name for machine in machines)
    placed: list[Placed] = []
    for machine in machines:
        shape = Shape("NODE", machine.product, None, machine.device_count, machine.inner.levels)
        groups = machine.groups or ("",) * len(levels)
        placed.append((groups[: len(levels)], Cell(shape, machine.name, devices=machine.inner.order)))
    for depth in reversed(range(len(levels))):
        placed = _grouped(placed, depth, levels[depth], names if pads else None)
    weights = Counter(cell.shape for _, cell in placed)
    placed.sort(key=lambda each: (*map(natural_key, each[0]), natural_key(each[1].address)))
    order = {
        shape: (natural_key(shape.product), -shape.node_count * weights[shape], -shape.node_count, -shape.count)
        for shape in weights
    }
    return [cell for _, cell in sorted(placed, key=lambda each: order[each[1].shape])]


def _grouped(placed: list[Placed], depth: int, level: str, padding: Names | None) -> list[Placed]:
    """Join cells of the same group at `depth` into one cell for each shape; cells in no group stay as they are."""
    buckets: dict[tuple[tuple[str, ...], Shape], list[Cell]] = {}
    kept: list[Placed] = []
    for groups, cell in placed:
        if groups[depth]:
            buckets.setdefault((groups[: depth + 1], cell.shape), []).append(cell)
        else:
            kept.append((groups[:depth], cell))
    largest: dict[Shape, int] = {}
    for (_, child), cells in buckets.items():
        largest[child] = max(largest.get(child, 0), len(cells))
    for (groups, child), cells in buckets.items():
        cells.sort(key=lambda cell: natural_key(cell.address))
        if padding is not None:
            path = "-".join(filter(None, groups))
            cells += [placeholder(child, path, padding) for _ in range(largest[child] - len(cells))]
        shape = Shape(level, child.product, child, len(cells))
        kept.append((groups[:depth], Cell(shape, groups[depth], tuple(cells))))
    return kept


def placeholder(shape: Shape, path: str, names: Names) -> Cell:
    """A cell of nodes that do not exist, named after where they stand."""
    address = names.numbered(f"{PLACEHOLDER}{path}".lower())
    path = address.removeprefix(PLACEHOLDER)
    if shape.child is None:
        return Cell(shape, address, is_placeholder=True)
    children = tuple(placeholder(shape.child, path, names) for _ in range(shape.count))
    return Cell(shape, address, children)


class TypeNames(msgspec.Struct, frozen=True):
    """Names of cell types: `leaves` by product, `cells` from the node upwards, `inner` ones lowest first."""

    leaves: Mapping[str, str]
    cells: Mapping[Shape, str]
    inner: Mapping[Shape, tuple[str, ...]]


def names_of(cells: Iterable[Cell], leaves: Mapping[str, str]) -> TypeNames:
    """A name for each shape: `V100-NODE`; if several shapes share it, with the number of devices or nodes:
    `V100x4-NODE`, `V100-RACK-3`.

    Of several kinds above the node, the one that most nodes are in has the plain name.
    """
    weights: Counter[Shape] = Counter()
    for top in cells:
        for shape in top.shape.down():
            weights[shape] += top.shape.node_count
    used, stem_names = Names(leaves.values()), Names()
    stems: dict[Shape, str] = {}
    names: dict[Shape, str] = {}
    inner: dict[Shape, tuple[str, ...]] = {}
    nodes = [shape for shape in weights if shape.child is None]
    for shape in sorted(nodes, key=lambda shape: _node_key(shape, weights)):
        counts = {other.count for other in nodes if other.product == shape.product}
        leaf = leaves[shape.product]
        stem = stems[shape] = stem_names.new(leaf if len(counts) == 1 else f"{leaf}x{shape.count}")
        names[shape] = used.new(f"{stem}-NODE")
        inner[shape] = tuple(used.new(f"{stem}-{level}") for level, _ in shape.inner)
    for shape in sorted(weights.keys() - names.keys(), key=lambda shape: _upper_key(shape, names, weights)):
        plain = f"{stems[shape.node]}-{shape.level}"
        is_first = plain not in names.values()
        names[shape] = used.new(plain if is_first else f"{plain}-{shape.node_count}")
    return TypeNames(leaves, names, inner)


def _node_key(shape: Shape, weights: Counter[Shape]) -> tuple[object, ...]:
    return (natural_key(shape.product), -shape.count, -weights[shape], shape.inner)


def _upper_key(shape: Shape, names: Mapping[Shape, str], weights: Counter[Shape]) -> tuple[object, ...]:
    """Sort the shape of most nodes first, whatever the order of machines."""
    down = list(shape.down())
    counts, levels = tuple(each.count for each in down), tuple(each.level for each in down)
    return (names[shape.node], -weights[shape], len(down), -shape.node_count, counts, levels)
