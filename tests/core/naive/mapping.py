"""From a virtual placement to physical cells: buddy allocation, safe relaxed split, matching (rules 7)."""

from hived.values.specs import OPPORTUNISTIC_PRIORITY
from tests.core.naive.cluster import Cluster, swap_remove
from tests.core.naive.model import PhysicalCell, VirtualCell
from tests.core.naive.placement import Suggestions
from tests.core.naive.safety import spare_cells

Tree = dict[VirtualCell, "Tree"]  # an unbound virtual cell -> its branches to bind, in order of first use
Mapping = dict[VirtualCell, PhysicalCell]


def map_leaves(cluster: Cluster, leaves: list[VirtualCell], suggestions: Suggestions) -> Mapping | None:
    """A physical leaf for every virtual leaf, or None. Nothing in `cluster` changes."""
    roots, below = unbound_trees(leaves)
    mapping: Mapping = {}
    free = {chain: {level: list(cells) for level, cells in lists.items()} for chain, lists in cluster.free.items()}
    claims = {
        name: {level: cluster.claims(name, level) for level in chain.levels} for name, chain in cluster.chains.items()
    }
    for root, branches in roots.items():
        found = buddy(root, branches, free[root.chain], suggestions)
        if found is not None:
            claims[root.chain][root.level] -= 1
        else:
            spare = spare_cells(cluster.chains[root.chain], root.level + 1, free[root.chain], claims[root.chain])
            found = relaxed_split(root, branches, free[root.chain], spare, suggestions)
        if found is None:
            return None
        mapping |= found
    if not keeps_safety(cluster, [mapping[root] for root in roots]):
        return None
    for parent, trees in below.items():
        found = match(trees, usable(parent.bound.children, suggestions), suggestions)
        if found is None:
            return None
        mapping |= found
    return {leaf: leaf.bound or mapping[leaf] for leaf in leaves}


def unbound_trees(leaves: list[VirtualCell]) -> tuple[Tree, dict[VirtualCell, Tree]]:
    """The trees to bind: those rooted at preassigned cells, and those below a bound parent, by parent (rule 7.1)."""
    roots: Tree = {}
    below: dict[VirtualCell, Tree] = {}
    for leaf in leaves:
        path = [cell for cell in leaf.up() if cell.bound is None]
        if not path:
            continue
        top = path[-1]
        branches = roots if top is top.root else below.setdefault(top.parent, {})
        for cell in reversed(path):
            branches = branches.setdefault(cell, {})
    return roots, below


def usable(cells: list[PhysicalCell], suggestions: Suggestions) -> list[PhysicalCell]:
    """Candidates in list order, fewest opportunistic leaves first, at last those of elastic groups.

    Cells with lost leaves come after all others, fewest first, then with fewest opportunistic leaves (rules 7.4, 7.5).
    """
    good = [
        cell
        for cell in cells
        if cell.bound is None and not (cell.is_bad_as_a_whole() and len(cell.nodes) == 1) and suggestions.allow(cell)
    ]

    def rank(cell: PhysicalCell) -> tuple[int, int, int]:
        leaves = [leaf for leaf in cell.leaves if leaf.priority == OPPORTUNISTIC_PRIORITY]
        if cell.lost_count:
            return cell.lost_count, len(leaves), 0
        return 0, sum(not leaf.using.spec.elastic for leaf in leaves), len(leaves)

    return sorted(good, key=rank)


def match(trees: Tree, candidates: list[PhysicalCell], suggestions: Suggestions) -> Mapping | None:
    """Rule 7.8: the lexicographically first complete assignment of the trees to the candidates."""
    fits = {
        cell: {c: found for c in candidates if (found := fit(cell, branches, c, suggestions)) is not None}
        for cell, branches in trees.items()
    }
    assigned: Mapping = {}
    mapping: Mapping = {}
    for cell in trees:
        later = [other for other in trees if other not in assigned and other is not cell]
        for candidate in candidates:
            remaining = [c for c in candidates if c not in assigned.values() and c is not candidate]
            if (
                candidate in fits[cell]
                and candidate not in assigned.values()
                and is_matchable([[c for c in remaining if c in fits[other]] for other in later])
            ):
                assigned[cell] = candidate
                mapping |= fits[cell][candidate]
                break
        else:
            return None
    return mapping


def fit(cell: VirtualCell, branches: Tree, candidate: PhysicalCell, suggestions: Suggestions) -> Mapping | None:
    if not branches:
        return {cell: candidate}
    below = match(branches, usable(candidate.children, suggestions), suggestions)
    return None if below is None else {cell: candidate} | below


def is_matchable(options: list[list[PhysicalCell]]) -> bool:
    """Can every row get an option of its own? Augmenting paths."""
    owner: dict[PhysicalCell, int] = {}

    def augment(row: int, seen: set[PhysicalCell]) -> bool:
        for option in options[row]:
            if option in seen:
                continue
            seen.add(option)
            if option not in owner or augment(owner[option], seen):
                owner[option] = row
                return True
        return False

    return all(augment(row, set()) for row in range(len(options)))


def buddy(
    root: VirtualCell, branches: Tree, free: dict[int, list[PhysicalCell]], suggestions: Suggestions
) -> Mapping | None:
    """Rule 7.3; on success the cell found and those split for it have left `free`, else `free` is as before."""
    start = next((level for level in sorted(free) if level >= root.level and free[level]), None)
    return None if start is None else descend(root, branches, free, start, suggestions)


def descend(
    root: VirtualCell, branches: Tree, free: dict[int, list[PhysicalCell]], level: int, suggestions: Suggestions
) -> Mapping | None:
    if level == root.level:
        found = match({root: branches}, usable(free[level], suggestions), suggestions)
        if found is not None:
            swap_remove(free[level], found[root])
        return found
    for cell in usable(free[level], suggestions):
        before = list(free[level - 1])
        free[level - 1] += cell.children
        found = descend(root, branches, free, level - 1, suggestions)
        if found is not None:
            swap_remove(free[level], cell)
            return found
        free[level - 1][:] = before
    return None


def keeps_safety(cluster: Cluster, cells: list[PhysicalCell]) -> bool:
    """May these preassigned cells be taken? Each cell that is split for them takes one from the spare of its level.

    Stricter than the reference, whose relaxed split offers the pieces of several cells at once and does not look at the
    levels in between: cells that other VCs are promised could be split for a second root. A spare that was negative
    before (after a replay) does not count.
    """
    split: set[PhysicalCell] = set()
    for cell in cells:
        for above in list(cell.up())[1:]:
            if above.is_split:
                break
            split.add(above)
    for name in cluster.chains:
        for level, spare in cluster.spare(name).items():
            if 0 <= spare < sum(above.chain == name and above.level == level for above in split):
                return False
    return True


def relaxed_split(
    root: VirtualCell,
    branches: Tree,
    free: dict[int, list[PhysicalCell]],
    spare: dict[int, int],
    suggestions: Suggestions,
) -> Mapping | None:
    """Rule 7.6; the cells split stay split in `free`, whether or not the root fits.

    Stricter than the reference: it ends at a level without spare cells. Splitting a cell from above it down to the
    root's level would split one of that level too.
    """
    if any(count < 0 for count in spare.values()):
        return None
    for level in sorted(spare):
        if spare[level] == 0:
            return None
        pieces: list[PhysicalCell] = []
        inside = [cell for cell in free[level] if _meets(cell, suggestions.within)]
        for _ in range(min(spare[level], len(inside))):
            head = next(cell for cell in free[level] if cell in inside)
            swap_remove(free[level], head)
            pieces += [cell for cell in head.subtree() if cell.level == root.level]
        free[root.level][:0] = pieces
        found = descend(root, branches, free, root.level, suggestions) if pieces else None
        if found is not None:
            return found
    return None


def _meets(cell: PhysicalCell, within: PhysicalCell | None) -> bool:
    """Is a cell at, above or below the one that all that is bound is to be within?"""
    return within is None or cell in within.subtree() or within in cell.subtree()
