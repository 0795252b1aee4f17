"""Placing a gang below one physical cell, as near together as it wishes."""

from collections.abc import Iterator

from hived.values.specs import (
    FREE_PRIORITY,
    MIN_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    GroupSpec,
    MemberSpec,
    PodSpec,
)
from tests.core.naive.cluster import Cluster
from tests.core.naive.model import ALLOCATED, Cell, Chain, PhysicalCell, VirtualCell
from tests.core.naive.placement import Attempt, Placement, Suggestions, choose_all_leaves, choose_nodes, view_key


def leaf_total(group: GroupSpec) -> int:
    return sum(member.pod_count * member.leaf_cell_count for member in group.members)


def cell_beside(cluster: Cluster, spec: PodSpec) -> PhysicalCell | None:
    """The first leaf cell that the group named by `beside` has, if it is allocated."""
    group = cluster.groups.get(spec.beside)
    if group is None or group.state != ALLOCATED:
        return None
    return next((leaf for leaf, _ in group.leaf_pairs() if leaf is not None), None)


def candidates(cluster: Cluster, chain: Chain, spec: PodSpec, level: int) -> list[PhysicalCell]:
    """The cells that the group may be below, in order."""
    cells = [cell for top in chain.tops for cell in top.subtree() if cell.level == level]
    beside = cell_beside(cluster, spec)
    if beside is not None:
        cells = [cell for cell in cells if cell in beside.up()]
    return cells


def free_count(cell: PhysicalCell, spec: PodSpec) -> int:
    """Leaf cells that are not lost and nobody uses; for a guaranteed group also those in opportunistic use."""
    highest = FREE_PRIORITY if spec.priority < MIN_GUARANTEED_PRIORITY else OPPORTUNISTIC_PRIORITY
    return sum(leaf.priority <= highest and not leaf.is_lost for leaf in cell.leaves)


def nodes_below(cell: Cell, node_level: int) -> list[Cell]:
    """Its node-level cells; a cell below node level stands for itself."""
    return [below for below in cell.subtree() if below.level == min(node_level, cell.level)]


def ways(cluster: Cluster, chain: Chain, cell: PhysicalCell, spec: PodSpec) -> Iterator[list[Cell]]:
    """The cells of the view that are below `cell`, or can come to be there, in each way in which that can be."""
    if spec.priority < MIN_GUARANTEED_PRIORITY:
        yield nodes_below(cell, chain.node_level)
        return
    roots = cluster.vcs[spec.virtual_cluster].roots(chain.name, spec.pinned_cell_id)
    bound = next((above for above in cell.up() if above.bound is not None), None)
    if bound is not None:
        virtual = bound.bound if bound.bound.root in roots else None
        if virtual is not None and bound is not cell:
            virtual = first_unbound(virtual.children)
        if virtual is not None:
            yield nodes_below(descend(virtual, cell.level), chain.node_level)
        return
    below = list(cell.subtree())
    lower: list[Cell] = []
    for level in range(1, cell.level):
        room = sum(each.level == level for each in below)
        for root in roots:
            if root.level != level:
                continue
            if root.bound is None:
                room -= 1
            if (root.bound is None and room >= 0 and not spec.pinned_cell_id) or root.bound in below:
                lower += nodes_below(root, chain.node_level)
    yield sorted(lower, key=lambda each: (each.root.bound is None, -each.root.level))
    if not spec.pinned_cell_id:
        for level in range(cell.level, chain.levels[-1] + 1):
            root = first_unbound([root for root in roots if root.level == level])
            if root is not None:
                yield nodes_below(descend(root, cell.level), chain.node_level)


def first_unbound(cells: list[VirtualCell]) -> VirtualCell | None:
    return next((cell for cell in cells if cell.bound is None), None)


def descend(cell: VirtualCell, level: int) -> VirtualCell:
    while cell.level > level:
        cell = cell.children[0]
    return cell


def place_below(
    cells: list[Cell], chain: Chain, spec: PodSpec, level: int, attempt: Attempt, suggestions: Suggestions
) -> Placement | None:
    """The gang on these cells; below node level all its leaf cells are one pod's, or else each is its own."""
    cells = sorted(cells, key=lambda cell: view_key(cell, attempt.priority, suggestions))
    total = leaf_total(spec.group)
    shapes = [spec.group.members]
    if level < chain.node_level:
        shapes = [(MemberSpec(1, total),), (MemberSpec(total, 1),)]
    for shape in shapes:
        nodes, _ = choose_nodes(cells, shape, attempt, suggestions)
        if nodes is not None:
            found = choose_all_leaves(nodes, attempt)
            return found if level >= chain.node_level else deal_out(found, spec.group.members)
    return None


def deal_out(found: Placement, members: tuple[MemberSpec, ...]) -> Placement:
    """Give the leaf cells of a cell below node level to the pods, in tree order."""
    leaves = [leaf for pods in found.values() for pod in pods for leaf in pod]
    everywhere = [leaf for root in roots_in_order(leaves) for leaf in root.leaves if leaf in leaves]
    left = iter(everywhere)
    return {
        member.leaf_cell_count: [[next(left) for _ in range(member.leaf_cell_count)] for _ in range(member.pod_count)]
        for member in members
    }


def roots_in_order(leaves: list[Cell]) -> list[Cell]:
    """The trees that leaf cells are in, lower preassigned cells first, then as declared."""
    roots = list(dict.fromkeys(list(leaf.up())[-1] for leaf in leaves))
    if isinstance(roots[0], VirtualCell):
        declared = [*roots[0].vc.preassigned, *roots[0].vc.pinned.values()]
        roots.sort(key=lambda root: (root.level, declared.index(root)))
    return roots


def most_room(
    cluster: Cluster, chain: Chain, cells: list[PhysicalCell], spec: PodSpec, suggestions: Suggestions
) -> tuple[int, PhysicalCell]:
    """The cell with most leaf cells that the VC could have, and how many: those of a VC's unbound cells count once."""
    vc = cluster.vcs[spec.virtual_cluster]
    roots = vc.roots(chain.name, spec.pinned_cell_id)
    left = sum(len(root.leaves) for root in vc.roots(chain.name) if root.bound is None and not spec.pinned_cell_id)

    def room(cell: PhysicalCell) -> int:
        mine = unbound = 0
        for leaf in cell.leaves:
            if not leaf.is_healthy or not suggestions.allow(leaf):
                continue
            bound = next((above for above in leaf.up() if above.bound is not None), None)
            if spec.priority < MIN_GUARANTEED_PRIORITY:
                mine += leaf.priority == FREE_PRIORITY
            elif bound is None:
                unbound += 1
            else:
                mine += bound.bound.root in roots and leaf.priority < spec.priority
        return mine + min(unbound, left)

    def limit(cell: PhysicalCell) -> int:
        return len(cell.leaves) if spec.priority > MIN_GUARANTEED_PRIORITY else free_count(cell, spec)

    best = max(cells, key=lambda cell: (room(cell), limit(cell), -cells.index(cell)))
    return room(best), best
