"""A cluster as plain facts: cells, promises, who runs where. Written without the core, so that it can judge it.

Nothing here reads the core's state. A placement is known from the answer of the core: nodes, device indices and types
of preassigned cells, which say all that a tenant may rely on. So VC safety (rule 4.3) is worked out a second time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hived.values.specs import ClusterSpec, PhysicalCellSpec, Placements

OPPORTUNISTIC = -1
NOBODY = ""


class Plain:
    """The cells of a configuration, numbered depth first, a cell before its children.

    parent : the cell above, -1 for top cells
    level : 1 for leaves
    kind : cell type
    chain : type of the top cell
    node : name of the node that the cell is in or is; "" above the nodes
    leaves : leaf cells below a cell, ascending; a leaf has itself
    promises : VC -> (chain, level) -> number of cells, without pinned ones
    pins : VC -> pinned cell id -> cell
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.parent: list[int] = []
        self.level: list[int] = []
        self.kind: list[str] = []
        self.chain: list[str] = []
        self.node: list[str] = []
        self.children: list[list[int]] = []
        self.leaves: list[tuple[int, ...]] = []
        self.tops: list[int] = []
        self.leaf_at: dict[tuple[str, str, int], int] = {}
        self.device: dict[int, int] = {}
        self._pinned: dict[str, int] = {}
        for number, top in enumerate(spec.physical_cells):
            self.tops.append(self._add(top, top.cell_type, top.cell_type, -1, number, ""))
        self.nodes = list(dict.fromkeys(name for name in self.node if name))
        self.node_cells = [c for c in range(len(self.parent)) if self.node[c] and not self._is_in_node(c)]
        self.promises: dict[str, dict[tuple[str, int], int]] = {}
        self.pins: dict[str, dict[str, int]] = {}
        for name, vc in spec.virtual_clusters.items():
            own: dict[tuple[str, int], int] = {}
            for entry in vc.virtual_cells:
                path = entry.cell_type.split(".")
                key = (path[0], self.level_of(path[-1]))
                own[key] = own.get(key, 0) + entry.cell_count
            self.promises[name] = own
            self.pins[name] = {pin: self._pinned[pin] for pin in vc.pinned_cell_ids}

    def level_of(self, kind: str) -> int:
        """Level of a cell type."""
        level = 1
        while kind in self.spec.cell_types:
            kind = self.spec.cell_types[kind].child_type
            level += 1
        return level

    def above(self, cell: int, level: int) -> int:
        """The cell of a level at or above `cell`."""
        while self.level[cell] < level:
            cell = self.parent[cell]
        return cell

    def up(self, cell: int) -> Iterator[int]:
        """The cell and all above it."""
        while cell >= 0:
            yield cell
            cell = self.parent[cell]

    def node_cell(self, cell: int) -> int:
        """The node-level cell at or above `cell`, which is at or below a node."""
        while self.parent[cell] >= 0 and self.node[self.parent[cell]]:
            cell = self.parent[cell]
        return cell

    def below(self, cell: int) -> Iterator[int]:
        """The cell and all below it."""
        yield cell
        for child in self.children[cell]:
            yield from self.below(child)

    def common_level(self, leaves: Iterable[int]) -> int:
        """Level of the lowest cell that has all these leaves; one more than the top level if none has."""
        cells = set(leaves)
        level = 1
        while len(cells) > 1:
            cells = {self.parent[cell] for cell in cells}
            level += 1
        return level

    def _is_in_node(self, cell: int) -> bool:
        return self.parent[cell] >= 0 and bool(self.node[self.parent[cell]])

    def _add(self, spec: PhysicalCellSpec, kind: str, chain: str, parent: int, number: int, node: str) -> int:
        cell = len(self.parent)
        types = self.spec.cell_types
        part = spec.address.rsplit("/", 1)[-1] or str(number)
        is_node = kind in types and types[kind].is_node_level
        node = part if is_node else node
        self.parent.append(parent)
        self.level.append(self.level_of(kind))
        self.kind.append(kind)
        self.chain.append(chain)
        self.node.append(node)
        self.children.append([])
        self.leaves.append(())
        if spec.pinned_cell_id:
            self._pinned[spec.pinned_cell_id] = cell
        if kind not in types:
            self.leaves[cell] = (cell,)
            self.leaf_at[chain, node, int(part)] = cell
            self.device[cell] = int(part)
            return cell
        count, child_kind = types[kind].child_count, types[kind].child_type
        first = 0 if is_node else number * count
        for i in range(count):
            child = spec.children[i] if i < len(spec.children) else PhysicalCellSpec()
            self.children[cell].append(self._add(child, child_kind, chain, cell, first + i, node))
        self.leaves[cell] = tuple(leaf for child in self.children[cell] for leaf in self.leaves[child])
        return cell


@dataclass(frozen=True, slots=True)
class Running:
    """A group with its cells.

    priority : -1 for opportunistic, also of a group that was lazily preempted
    pods : the leaves of each pod
    roots : for guaranteed groups the physical cells behind their preassigned ones
    started : when it got its cells, in any unit
    """

    name: str
    vc: str
    priority: int
    pods: tuple[tuple[int, ...], ...]
    roots: frozenset[int]
    started: float = 0.0

    @property
    def leaf_count(self) -> int:
        """Leaves of all pods."""
        return sum(map(len, self.pods))


@dataclass
class Facts:
    """Who runs where, and which nodes are bad.

    user : leaf -> name of its group
    owner : physical cell -> VC whose preassigned cell it is, and the number of groups that use it; 1 more for pinned
    """

    plain: Plain
    groups: dict[str, Running] = field(default_factory=dict)
    user: dict[int, str] = field(default_factory=dict)
    owner: dict[int, tuple[str, int]] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for vc, pins in self.plain.pins.items():
            for cell in pins.values():
                self.owner.setdefault(cell, (vc, 1))

    def add(self, group: Running) -> None:
        """A group has got its cells. Raises AssertionError if somebody else has one of them."""
        self.groups[group.name] = group
        for leaf in (leaf for pod in group.pods for leaf in pod):
            assert leaf not in self.user, f"{group.name} and {self.user[leaf]} have one leaf"
            self.user[leaf] = group.name
        for root in group.roots:
            vc, count = self.owner.get(root, (group.vc, 0))
            assert vc == group.vc, f"cell {root} is both {vc}'s and {group.vc}'s"
            self.owner[root] = (vc, count + 1)

    def remove(self, name: str) -> Running:
        """A group is gone."""
        group = self.groups.pop(name)
        for leaf in (leaf for pod in group.pods for leaf in pod):
            del self.user[leaf]
        self._give_up(group.roots)
        return group

    def copy(self) -> "Facts":
        """The same facts, which change by themselves from now on."""
        return Facts(self.plain, dict(self.groups), dict(self.user), dict(self.owner), set(self.bad))

    def leave_vc(self, name: str) -> None:
        """A group is lazily preempted: it runs on without its place in the VC (rule 8.7)."""
        group = self.groups[name]
        self._give_up(group.roots)
        self.groups[name] = Running(name, group.vc, OPPORTUNISTIC, group.pods, frozenset(), group.started)

    def _give_up(self, roots: Iterable[int]) -> None:
        for root in roots:
            vc, count = self.owner[root]
            if count > 1:
                self.owner[root] = (vc, count - 1)
            else:
                del self.owner[root]

    def running(
        self, name: str, vc: str, priority: int, placements: Placements, chain: str, started: float = 0.0
    ) -> Running:
        """A group of which the core has said the place."""
        plain, pods, roots = self.plain, [], set()
        for placement in (each for member in placements for each in member):
            leaves = tuple(plain.leaf_at[chain, placement.node, i] for i in placement.leaf_cell_indices)
            pods.append(leaves)
            for leaf, kind in zip(leaves, placement.preassigned_cell_types, strict=True):
                if priority >= 0 and kind:
                    roots.add(plain.above(leaf, plain.level_of(kind)))
        return Running(name, vc, priority, tuple(pods), frozenset(roots), started)

    def claims(self, owner: dict[int, str], vc: str) -> dict[tuple[str, int], int]:
        """Cells that a VC is promised beyond those that it has: (chain, level) -> number."""
        plain = self.plain
        left = dict(plain.promises[vc])
        pinned = set(plain.pins[vc].values())
        for cell, name in owner.items():
            if name == vc and cell not in pinned:
                left[plain.chain[cell], plain.level[cell]] -= 1
        return left

    def owners(self) -> dict[int, str]:
        """Physical cell -> VC whose preassigned cell it is."""
        return {cell: vc for cell, (vc, _) in self.owner.items()}


def is_safe(facts: Facts, owner: dict[int, str]) -> bool:
    """Can all VCs have at once all that they are promised, if these cells are taken? Cost O(cells)."""
    plain = facts.plain
    listed: dict[tuple[str, int], int] = {}
    for top in plain.tops:
        _count_free(plain, owner, top, listed)
    claims: dict[tuple[str, int], int] = {}
    for vc in plain.promises:
        for key, count in facts.claims(owner, vc).items():
            if count < 0:
                return False
            claims[key] = claims.get(key, 0) + count
    for top_kind in {plain.chain[top]: top for top in plain.tops}.values():
        chain, spare, cell = plain.chain[top_kind], 0, top_kind
        while True:
            level = plain.level[cell]
            spare += listed.get((chain, level), 0) - claims.get((chain, level), 0)
            if spare < 0:
                return False
            if not plain.children[cell]:
                break
            spare *= len(plain.children[cell])
            cell = plain.children[cell][0]
    return True


def unmet_by_good(facts: Facts, owner: dict[int, str]) -> tuple[int, ...]:
    """How many promised cells could have no free cell without bad leaves, if these cells are taken; larger cells first.

    Cost O(leaves).
    """
    plain = facts.plain
    good: Counter[tuple[str, int]] = Counter()
    for top in plain.tops:
        _count_good(facts, owner, top, good)
    claims: Counter[tuple[str, int]] = Counter()
    for vc in plain.promises:
        claims.update(facts.claims(owner, vc))
    unmet = []
    for top in {plain.chain[top]: top for top in plain.tops}.values():
        taken, cell = 0, top  # good cells of the level that are below those which meet claims above
        while cell >= 0:
            key = plain.chain[cell], plain.level[cell]
            met = min(claims[key], max(good[key] - taken, 0))
            unmet.append(claims[key] - met)
            taken, cell = (taken + met) * len(plain.children[cell]), (plain.children[cell] or (-1,))[0]
    return tuple(unmet)


def _count_good(facts: Facts, owner: dict[int, str], cell: int, good: Counter[tuple[str, int]]) -> bool:
    """Count the free cells without bad leaves at a cell and below; is it one itself?"""
    plain = facts.plain
    if cell in owner:
        return False
    is_good = plain.node[cell] not in facts.bad if not plain.children[cell] else True
    for child in plain.children[cell]:
        is_good = _count_good(facts, owner, child, good) and is_good
    good[plain.chain[cell], plain.level[cell]] += is_good
    return is_good


def _count_free(plain: Plain, owner: dict[int, str], cell: int, listed: dict[tuple[str, int], int]) -> bool:
    """Count the largest free cells below a cell; is it free as a whole?"""
    if cell in owner:
        return False
    before = dict(listed) if plain.children[cell] else {}
    frees = [_count_free(plain, owner, child, listed) for child in plain.children[cell]]
    if not all(frees):
        return False
    listed.clear()
    listed.update(before)
    key = (plain.chain[cell], plain.level[cell])
    listed[key] = listed.get(key, 0) + 1
    return True
