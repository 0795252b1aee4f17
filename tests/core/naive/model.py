"""Cells, chains, virtual clusters and groups as plain objects, and how a `ClusterSpec` becomes them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hived.values.specs import FREE_PRIORITY, BindInfo, ClusterSpec, PhysicalCellSpec, PodPlacement, PodRequest, PodSpec

FREE, USED, RESERVING, RESERVED = "Free", "Used", "Reserving", "Reserved"
ALLOCATED, PREEMPTING, BEING_PREEMPTED = "Allocated", "Preempting", "BeingPreempted"


class Cell:
    """The common part of physical and virtual cells: a place in a tree, a state, and a binding to the other kind."""

    def __init__(self, chain: str, level: int, cell_type: str, address: str) -> None:
        self.chain = chain
        self.level = level
        self.cell_type = cell_type
        self.address = address
        self.is_node_level = False
        self.parent = None
        self.children = []
        self.leaves = []
        self.state = FREE
        self.leaf_priority = FREE_PRIORITY
        self.bound = None

    @property
    def priority(self) -> int:
        """The maximum over the leaf cells (rule 9.4)."""
        return max(leaf.leaf_priority for leaf in self.leaves)

    def used_count(self, lowest: int, highest: int) -> int:
        """How many leaf cells have a priority in this range, ends included."""
        return sum(lowest <= leaf.leaf_priority <= highest for leaf in self.leaves)

    def is_bad_as_a_whole(self) -> bool:
        return not any(leaf.is_healthy for leaf in self.leaves)

    def is_elastic(self) -> bool:
        """Is a leaf cell used by an elastic group, and nobody reserves it?"""
        hardware = self.bound if isinstance(self, VirtualCell) else self
        return hardware is not None and hardware.state == USED and hardware.using.spec.elastic

    def up(self) -> Iterator["Cell"]:
        """This cell, then its ancestors."""
        cell = self
        while cell is not None:
            yield cell
            cell = cell.parent

    def subtree(self) -> Iterator["Cell"]:
        """This cell and everything below it, depth first."""
        yield self
        for child in self.children:
            yield from child.subtree()

    def ancestor_at(self, level: int) -> "Cell | None":
        return next((cell for cell in self.up() if cell.level == level), None)

    def overlaps(self, other: "Cell") -> bool:
        return self in other.up() or other in self.up()

    def __repr__(self) -> str:
        return f"<{self.address}>"


class PhysicalCell(Cell):
    def __init__(self, chain: str, level: int, cell_type: str, address: str) -> None:
        super().__init__(chain, level, cell_type, address)
        self.is_healthy = True
        self.is_lost = False
        self.is_split = False
        self.vc = ""
        self.pin = ""
        self.nodes = []
        self.index = 0
        self.using = None
        self.reserving = None
        self.opportunistic_entry = None  # (vc, health at that moment) of the "-opp" cell shown in the VC

    @property
    def node(self) -> str:
        return self.nodes[0]

    @property
    def is_pinned(self) -> bool:
        return bool(self.pin)

    @property
    def lost_count(self) -> int:
        return sum(leaf.is_lost for leaf in self.leaves)


class VirtualCell(Cell):
    def __init__(self, vc: "VirtualCluster", chain: str, level: int, cell_type: str, address: str) -> None:
        super().__init__(chain, level, cell_type, address)
        self.vc = vc
        self.root = self
        self.pin = ""

    @property
    def is_healthy(self) -> bool:
        """Unbound counts as healthy (rule 6.5)."""
        return self.bound is None or self.bound.is_healthy


@dataclass(eq=False)
class Chain:
    name: str
    types: dict[int, str]
    child_counts: dict[int, int]  # level -> children of one cell of that level
    node_level: int
    tops: list[PhysicalCell] = field(default_factory=list)

    @property
    def levels(self) -> range:
        return range(1, len(self.types) + 1)

    @property
    def leaf_type(self) -> str:
        return self.types[1]

    def level_of(self, cell_type: str) -> int | None:
        return next((level for level, name in self.types.items() if name == cell_type), None)

    def leaves(self) -> list[PhysicalCell]:
        return [leaf for top in self.tops for leaf in top.leaves]

    def descendant_count(self, level: int, lower: int) -> int:
        """Cells of level `lower` in one cell of `level`."""
        count = 1
        for above in range(level, lower, -1):
            count *= self.child_counts[above]
        return count


@dataclass(eq=False)
class VirtualCluster:
    name: str
    packs_by_topology: bool = False
    preassigned: list[VirtualCell] = field(default_factory=list)  # not the pinned ones, declaration order
    pinned: dict[str, VirtualCell] = field(default_factory=dict)

    def roots(self, chain: str, pin: str = "") -> list[VirtualCell]:
        """The preassigned cells of a chain, or the one pinned cell."""
        if pin:
            return [self.pinned[pin]] if pin in self.pinned and self.pinned[pin].chain == chain else []
        return [cell for cell in self.preassigned if cell.chain == chain]


@dataclass(eq=False)
class Group:
    """An affinity group. Placements are {leaf cell count: [pod][leaf]}; a leaf that is gone is None."""

    name: str
    spec: PodSpec
    state: str
    physical: dict[int, list[list[PhysicalCell | None]]]
    virtual: dict[int, list[list[VirtualCell | None]]] | None
    allocated: dict[int, list[tuple[PodRequest, BindInfo] | None]]
    preempting: dict[str, PodRequest] = field(default_factory=dict)
    lazy_preemptor: str = ""
    created_from: BindInfo | None = None  # the bind info of the pod that made the group known, if it was bound

    @property
    def vc(self) -> str:
        return self.spec.virtual_cluster

    def leaf_pairs(self) -> list[tuple[PhysicalCell | None, VirtualCell | None]]:
        """(physical, virtual) leaf by leaf: size ascending, pod, leaf (rule 2.7)."""
        return [
            (leaf, self.virtual[size][pod][i] if self.virtual is not None else None)
            for size in sorted(self.physical)
            for pod, leaves in enumerate(self.physical[size])
            for i, leaf in enumerate(leaves)
        ]

    def placement_of(self, size: int, slot: int) -> tuple[PodPlacement, str]:
        """Placement and chain of a slot; if leaf cells of it are gone, what the bind info said (rule 16.4)."""
        leaves = self.physical[size][slot]
        chain = leaves[0].chain if leaves[0] is not None else self.created_from.cell_chain
        if any(leaf is None for leaf in leaves):
            member = next(member for member in self.created_from.members if len(member[0].leaf_cell_indices) == size)
            return member[slot], chain
        virtual = self.virtual[size][slot] if self.virtual is not None else None
        types = tuple(v.root.cell_type for v in virtual) if virtual is not None else ("",) * size
        return PodPlacement(leaves[0].node, tuple(leaf.index for leaf in leaves), types), chain

    def bind_info(self, size: int, slot: int) -> BindInfo:
        """The bind info of the pod in this slot."""
        members = tuple(
            tuple(self.placement_of(s, i)[0] for i in range(len(self.physical[s]))) for s in sorted(self.physical)
        )
        mine, chain = self.placement_of(size, slot)
        return BindInfo(mine.node, mine.leaf_cell_indices, chain, members)

    def pods(self) -> list[tuple[PodRequest, BindInfo]]:
        return [pod for size in sorted(self.allocated) for pod in self.allocated[size] if pod is not None]


def build_chain(spec: ClusterSpec, top_type: str) -> Chain:
    names = [top_type]
    while names[-1] in spec.cell_types:
        names.append(spec.cell_types[names[-1]].child_type)
    levels = {name: len(names) - i for i, name in enumerate(names)}
    inner = [spec.cell_types[name] for name in names[:-1]]
    return Chain(
        name=top_type,
        types={level: name for name, level in levels.items()},
        child_counts={levels[t.name]: t.child_count for t in inner},
        node_level=next(levels[t.name] for t in inner if t.is_node_level),
    )


def build_chains(spec: ClusterSpec) -> dict[str, Chain]:
    """All chains by name, ascending, with their physical trees in file order (rules 1.5, 1.6, 1.13)."""
    chains: dict[str, Chain] = {}
    for i, entry in enumerate(spec.physical_cells):
        if entry.cell_type not in chains:
            chains[entry.cell_type] = build_chain(spec, entry.cell_type)
        chain = chains[entry.cell_type]
        chain.tops.append(build_physical(chain, chain.levels[-1], entry, i, ""))
    return {name: chains[name] for name in sorted(chains)}


def build_physical(chain: Chain, level: int, spec: PhysicalCellSpec, default: int, prefix: str) -> PhysicalCell:
    own = spec.address or str(default)
    cell = PhysicalCell(chain.name, level, chain.types[level], prefix + own)
    cell.pin = spec.pinned_cell_id
    cell.is_node_level = level == chain.node_level
    if level == 1:
        cell.index = int(own)
        cell.leaves = [cell]
    else:
        count = chain.child_counts[level]
        first = 0 if level == chain.node_level else default * count
        for i, child_spec in enumerate(spec.children or (PhysicalCellSpec(),) * count):
            child = build_physical(chain, level - 1, child_spec, first + i, cell.address + "/")
            child.parent = cell
            cell.children.append(child)
            cell.leaves += child.leaves
    if level == chain.node_level:
        for below in cell.subtree():
            below.nodes = [own]
    elif level > chain.node_level:
        cell.nodes = [node for child in cell.children for node in child.nodes]
    return cell


def build_virtual_clusters(spec: ClusterSpec, chains: dict[str, Chain]) -> dict[str, VirtualCluster]:
    """All VCs by name, ascending (rules 1.8 to 1.10)."""
    pinned_cells = {
        cell.pin: cell for chain in chains.values() for top in chain.tops for cell in top.subtree() if cell.pin
    }
    vcs = {}
    for name in sorted(spec.virtual_clusters):
        vc_spec = spec.virtual_clusters[name]
        vc = VirtualCluster(name, vc_spec.packs_by_topology)
        roots = [entry.cell_type for entry in vc_spec.virtual_cells for _ in range(entry.cell_count)]
        for i, path in enumerate(roots):
            chain = chains[path.split(".")[0]]
            level = chain.level_of(path.split(".")[-1])
            vc.preassigned.append(build_virtual(vc, chain, level, f"{name}/{i}", None))
        for i, pin in enumerate(vc_spec.pinned_cell_ids, len(roots)):
            cell = pinned_cells[pin]
            vc.pinned[pin] = build_virtual(vc, chains[cell.chain], cell.level, f"{name}/{i}", None)
            vc.pinned[pin].pin = pin
        vcs[name] = vc
    return vcs


def build_virtual(
    vc: VirtualCluster, chain: Chain, level: int, address: str, parent: VirtualCell | None
) -> VirtualCell:
    cell = VirtualCell(vc, chain.name, level, chain.types[level], address)
    cell.is_node_level = level == chain.node_level
    cell.parent = parent
    cell.root = parent.root if parent else cell
    if level == 1:
        cell.leaves = [cell]
        return cell
    count = chain.child_counts[level]
    first = int(address.rsplit("/", maxsplit=1)[-1]) * count if parent else 0
    for i in range(first, first + count):
        child = build_virtual(vc, chain, level - 1, f"{address}/{i}", cell)
        cell.children.append(child)
        cell.leaves += child.leaves
    return cell


def initial_view(roots: list[Cell], node_level: int) -> list[Cell]:
    """The node-level cells, then, going down, cells that have none of those above them (rules 6.1, 6.2)."""
    cells = [cell for root in roots for cell in root.subtree()]
    at_or_above = [cell.level for cell in cells if cell.level >= node_level]
    top = min(at_or_above) if at_or_above else max((cell.level for cell in cells), default=0)
    view: list[Cell] = []
    for level in range(top, 0, -1):
        view += [cell for cell in cells if cell.level == level and not any(c in view for c in cell.up())]
    return view
