"""Random clusters: chains of 2 to 6 levels, shared nodes, non-standard device indices, pins, and VCs that fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, VirtualCellSpec, VirtualClusterSpec
from tests.property.choices import Choices

MAX_LEAVES_PER_TOP = 16
MAX_LEAVES = (48, 24, 48, 96)


@dataclass(frozen=True)
class Family:
    """A chain of cell types, leaf type first; each chain is the part of a family up to some type."""

    types: tuple[str, ...]
    child_counts: tuple[int, ...]  # child_counts[i] cells of types[i] make one of types[i + 1]
    node_level: int
    first_device: int  # the first device index in a node; 0 is standard

    def leaf_count(self, level: int) -> int:
        count = 1
        for children in self.child_counts[: level - 1]:
            count *= children
        return count


@dataclass(frozen=True)
class Hardware:
    """Trees to choose from: (family, level of the top cell, its nodes) per tree."""

    families: tuple[Family, ...]
    trees: tuple[tuple[Family, int, tuple[str, ...]], ...]


def make_hardware(choices: Choices, most_leaves: int = 0) -> Hardware:
    """Trees with about `most_leaves` leaf cells, or a small number drawn at random."""
    families = [_make_family(choices, "A", "GPU", 0)]
    if choices.chance(40):
        leaf_type = choices.pick(["GPU", "CPU"])
        families.append(_make_family(choices, "B", leaf_type, choices.pick([32, 0])))
    trees: list[tuple[Family, int, tuple[str, ...]]] = []
    leaf_count, tree_count = 0, choices.integer(2, 12) if most_leaves == 0 else most_leaves
    most_leaves = most_leaves or choices.pick(MAX_LEAVES)
    for i in range(tree_count):
        family = choices.pick(families)
        level = choices.pick([len(family.types), choices.integer(family.node_level, len(family.types))])
        leaf_count += family.leaf_count(level)
        if trees and leaf_count > most_leaves:
            break
        count = family.leaf_count(level) // family.leaf_count(family.node_level)
        trees.append((family, level, tuple(f"n{i}-{k}" for k in range(count))))
    return Hardware(tuple(families), tuple(_share_nodes(choices, trees)))


def pack_some(choices: Choices, spec: ClusterSpec) -> ClusterSpec:
    """The same cluster, in which some VCs keep their gangs near together."""
    vcs = {
        name: replace(vc, packs_by_topology=choices.chance(40)) for name, vc in sorted(spec.virtual_clusters.items())
    }
    return replace(spec, virtual_clusters=vcs)


def _make_family(choices: Choices, name: str, leaf_type: str, first_device: int) -> Family:
    counts: list[int] = []
    product = 1
    for _ in range(choices.integer(1, 5)):
        count = min(choices.pick([2, 1, 3, 4]), MAX_LEAVES_PER_TOP // product)
        product *= count
        counts.append(count)
    types = (leaf_type, *(f"{name}{level}" for level in range(2, len(counts) + 2)))
    return Family(types, tuple(counts), choices.integer(2, len(types)), first_device)


def _share_nodes(
    choices: Choices, trees: list[tuple[Family, int, tuple[str, ...]]]
) -> Iterator[tuple[Family, int, tuple[str, ...]]]:
    """Let some trees of the second family sit on nodes of the first: one node, two chains. Those of the same leaf type
    have high device indices, others may number their leaves alike.

    Only trees above node level: two top cells that are the same node would have the same address.
    """
    may_share = {family for family, _, _ in trees if family.first_device > 0 or family.types[0] == "CPU"}
    hosts = [node for family, _, nodes in trees if family not in may_share for node in nodes]
    for family, level, nodes in trees:
        if family in may_share and level > family.node_level and choices.chance(70):
            shared = [hosts.pop(0) if hosts else node for node in nodes]
            yield family, level, tuple(shared)
        else:
            yield family, level, nodes


def make_cluster(choices: Choices, hardware: Hardware) -> ClusterSpec:
    """A configuration on this hardware: maybe without one of its trees, with its own pins and VCs."""
    trees = list(hardware.trees)
    if len(trees) > 1 and choices.chance(25):
        trees.pop(choices.integer(0, len(trees) - 1))
    free = [cell for i, (family, level, _) in enumerate(trees) for cell in _cells(i, family, level)]
    names = [f"VC{i}" for i in range(1, choices.integer(1, 4) + 1)]
    pins: dict[tuple[int, ...], str] = {}
    pinned_ids: dict[str, list[str]] = {name: [] for name in names}
    virtual: dict[str, list[VirtualCellSpec]] = {name: [] for name in names}
    for _ in range(choices.pick([0, 0, 1, 2])):
        if free:
            path, _, _ = _take(choices, free)
            pins[path] = f"pin{len(pins)}"
            pinned_ids[choices.pick(names)].append(pins[path])
    for _ in range(choices.integer(2, 14) if len(trees) <= 12 else 2 * len(trees)):
        if free:
            path, family, level = _take(choices, free)
            top_level = trees[path[0]][1]
            cell_type = ".".join(reversed(family.types[level - 1 : top_level]))
            _append(virtual[choices.pick(names)], cell_type)
    return ClusterSpec(
        cell_types=_cell_types(hardware.families),
        physical_cells=tuple(
            _physical(family, level, nodes, (i,), pins) for i, (family, level, nodes) in enumerate(trees)
        ),
        virtual_clusters={n: VirtualClusterSpec(n, tuple(virtual[n]), tuple(pinned_ids[n])) for n in names},
    )


def _cell_types(families: tuple[Family, ...]) -> dict[str, CellTypeSpec]:
    return {
        family.types[i + 1]: CellTypeSpec(family.types[i + 1], family.types[i], count, i + 2 == family.node_level)
        for family in families
        for i, count in enumerate(family.child_counts)
    }


Slot = tuple[tuple[int, ...], Family, int]  # path of child numbers from the tree's number, family, level


def _cells(tree: int, family: Family, top_level: int) -> Iterator[Slot]:
    def walk(path: tuple[int, ...], level: int) -> Iterator[Slot]:
        yield path, family, level
        for i in range(family.child_counts[level - 2] if level > 1 else 0):
            yield from walk((*path, i), level - 1)

    yield from walk((tree,), top_level)


def _take(choices: Choices, free: list[Slot]) -> Slot:
    """Choose a cell; it and all that overlap it are no longer free."""
    levels = sorted({level for _, _, level in free}, reverse=True)
    level = levels[min(choices.integer(0, len(levels) - 1), choices.integer(0, len(levels) - 1))]
    chosen = choices.pick([slot for slot in free if slot[2] == level])
    path = chosen[0]
    free[:] = [slot for slot in free if slot[0][: len(path)] != path and path[: len(slot[0])] != slot[0]]
    return chosen


def _append(cells: list[VirtualCellSpec], cell_type: str) -> None:
    if cells and cells[-1].cell_type == cell_type:
        cells[-1] = VirtualCellSpec(cell_type, cells[-1].cell_count + 1)
    else:
        cells.append(VirtualCellSpec(cell_type, 1))


def _physical(
    family: Family, level: int, nodes: tuple[str, ...], path: tuple[int, ...], pins: dict[tuple[int, ...], str]
) -> PhysicalCellSpec:
    """An explicit tree. Only nodes and non-standard leaf cells get an address, the others their running index."""
    address = ""
    if level == family.node_level:
        address = nodes[0]
    elif level == 1 and family.first_device:
        address = str(family.first_device + _device(family, path))
    children: list[PhysicalCellSpec] = []
    if level > 1:
        count = family.child_counts[level - 2]
        share = len(nodes) // count if level > family.node_level else 0
        for i in range(count):
            below = nodes[i * share : (i + 1) * share] if share else nodes
            children.append(_physical(family, level - 1, below, (*path, i), pins))
    return PhysicalCellSpec(
        cell_type=family.types[level - 1], address=address, pinned_cell_id=pins.get(path, ""), children=tuple(children)
    )


def _device(family: Family, path: tuple[int, ...]) -> int:
    """The standard device index of a leaf: its number within its node."""
    device = 0
    for level, child in zip(range(family.node_level - 1, 0, -1), path[-(family.node_level - 1) :], strict=True):
        device = device * family.child_counts[level - 1] + child
    return device
