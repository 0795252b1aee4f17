"""Proofs for large clusters, where not every placement can be tried: a placement without victims that certainly exists.

If a filter finds one, it is allowed: within the VC's rights, VC safety kept, on healthy leaves that nobody uses. If it
finds none, there may be one still; so what it counts is a lower bound. Clusters have one chain, nodes of one size, and
VCs whose cells are nodes or larger; groups have pods of one size.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tests.quality.exhaustive import Wanted
from tests.quality.plain import OPPORTUNISTIC, Facts, Plain, Running, is_safe

Ints = npt.NDArray[np.int64]


class Hall:
    """Nodes of a cluster in rows of numbers: cells of a level above them are ranges of nodes of one length.

    width : level -> nodes in a cell, from the nodes' level to the top level
    """

    def __init__(self, plain: Plain) -> None:
        self.plain = plain
        self.node_level = plain.level[plain.node_cells[0]]
        self.top_level = plain.level[plain.tops[0]]
        self.leaf_count = len(plain.leaves[plain.node_cells[0]])
        self.number = {cell: i for i, cell in enumerate(plain.node_cells)}
        self.width: dict[int, int] = {}
        for level in range(self.node_level, self.top_level + 1):
            top = plain.above(plain.node_cells[0], level)
            self.width[level] = len(plain.leaves[top]) // self.leaf_count
        self.node_of = np.full(len(plain.parent), -1, np.int64)
        for i, cell in enumerate(plain.node_cells):
            self.node_of[list(plain.leaves[cell])] = i

    def idle(self, facts: Facts) -> Ints:
        """Healthy leaves of each node that nobody uses."""
        users = np.fromiter(facts.user, np.int64, len(facts.user))
        idle = self.leaf_count - np.bincount(self.node_of[users], minlength=len(self.number))
        for i, cell in enumerate(self.plain.node_cells):
            if facts.bad and self.plain.node[cell] in facts.bad:
                idle[i] = 0
        return idle

    def nodes_of(self, cell: int) -> slice:
        """The nodes of a cell at or above the nodes' level."""
        first = int(self.node_of[self.plain.leaves[cell][0]])
        return slice(first, first + self.width[self.plain.level[cell]])


class _Room:
    """Free and taken cells by level, while cells are taken on trial."""

    def __init__(self, hall: Hall, facts: Facts, vc: str) -> None:
        plain = hall.plain
        self.hall = hall
        self.owned = np.zeros(len(hall.number), bool)
        self.mine = np.zeros(len(hall.number), bool)
        for cell, (owner, _) in facts.owner.items():
            nodes = hall.nodes_of(cell)
            self.owned[nodes] = True
            self.mine[nodes] = owner == vc
        owners = facts.owners()
        self.claims = dict.fromkeys(hall.width, 0)
        for name in plain.promises:
            for (_, level), count in facts.claims(owners, name).items():
                self.claims[level] += count
        self.own = {level: count for (_, level), count in facts.claims(owners, vc).items()}

    def free(self, level: int) -> npt.NDArray[np.bool_]:
        """Is nothing of a cell taken? One for each cell of the level."""
        taken: npt.NDArray[np.bool_] = np.logical_or.reduce(self.owned.reshape(-1, self.hall.width[level]), axis=1)
        return np.logical_not(taken)

    def is_safe(self) -> bool:
        """VC safety with what is taken now."""
        spare, above, wide = 0, np.zeros(0, bool), 0
        for level in sorted(self.hall.width, reverse=True):
            width, free = self.hall.width[level], self.free(level)
            whole = int(free.sum())
            listed = whole - int(above.sum()) * (wide // width) if wide else whole
            spare = listed - self.claims[level] + spare * (wide // width if wide else 1)
            if spare < 0:
                return False
            above, wide = free, width
        return True

    def take(self, level: int, cell: int) -> bool:
        """Take a free cell for the VC, if that is safe."""
        width = self.hall.width[level]
        nodes = slice(cell * width, (cell + 1) * width)
        self.owned[nodes] = True
        self.claims[level] -= 1
        if self.is_safe():
            self.own[level] -= 1
            self.mine[nodes] = True
            return True
        self.owned[nodes] = False
        self.claims[level] += 1
        return False


def lowest_level(hall: Hall, facts: Facts, wanted: Wanted, below: int) -> int | None:
    """A level below `below` with a cell in which the group could be without victims, the lowest that is found.

    One more than the top level stands for anywhere. None if nothing is found.
    """
    size, count = wanted.sizes[0], len(wanted.sizes)
    if wanted.within:
        below = min(below, hall.plain.level_of(wanted.within) + 1)
    if any(each != size for each in wanted.sizes):
        return None
    room = hall.idle(facts) // size
    if wanted.priority <= OPPORTUNISTIC:
        allowed = room
    else:
        state = _Room(hall, facts, wanted.vc)
        allowed = np.where(state.mine | ~state.owned, room, 0)
    for level in range(hall.node_level, min(below, hall.top_level + 2)):
        width = hall.width.get(level, len(room))
        for cell in np.flatnonzero(allowed.reshape(-1, width).sum(axis=1) >= count).tolist():
            nodes = slice(cell * width, (cell + 1) * width)
            if wanted.priority <= OPPORTUNISTIC or _fits(hall, facts, wanted, room, nodes):
                return level
    return None


def _fits(hall: Hall, facts: Facts, wanted: Wanted, room: Ints, nodes: slice) -> bool:
    """Can a VC have as many cells of these nodes as its group needs? Tries small cells first, then large ones."""
    need = len(wanted.sizes)
    for order in (sorted(hall.width), sorted(hall.width, reverse=True)):
        state = _Room(hall, facts, wanted.vc)
        if int(room[nodes][state.mine[nodes]].sum()) >= need:
            return True
        for level in order:
            width = hall.width[level]
            sums = room.reshape(-1, width).sum(axis=1)
            cells = [i for i in range(nodes.start // width, -(-nodes.stop // width)) if sums[i]]
            cells.sort(key=lambda i: (-int(sums[i]), _height(state, level, i), i))
            for cell in cells:
                if state.own.get(level, 0) <= 0:
                    break
                if not state.owned[cell * width : (cell + 1) * width].any():
                    state.take(level, cell)
                if int(room[nodes][state.mine[nodes]].sum()) >= need:
                    return True
    return False


def equal_one_is_clean(facts: Facts, running: Running, within: str = "") -> bool:
    """Could the group have run without victims, so that its VC has the same future? Any cluster.

    `facts` are those before the group ran. Below each preassigned cell, parts that are empty for the VC may change
    places; a new preassigned cell may be any free one of its level that leaves VC safety as it is. A group that has to
    be `within` a cell of a type stays in the one where it is.
    """
    plain = facts.plain
    demand = {leaf for pod in running.pods for leaf in pod}
    own = {
        leaf
        for group in facts.groups.values()
        if group.vc == running.vc and group.priority > OPPORTUNISTIC
        for pod in group.pods
        for leaf in pod
    }

    def is_clean(leaf: int) -> bool:
        return leaf not in facts.user and plain.node[leaf] not in facts.bad

    def fits(cell: int, target: int) -> bool:
        wanted = demand.intersection(plain.leaves[cell])
        if not wanted:
            return True
        children = plain.children[cell]
        if not plain.children[children[0]]:
            return len(wanted) <= sum(map(is_clean, plain.children[target]))
        used = [child for child in children if demand.intersection(plain.leaves[child])]
        fixed = [child for child in used if own.intersection(plain.leaves[child])]
        if not all(fits(child, child) for child in fixed):
            return False
        loose = [child for child in used if child not in fixed]
        empty = [child for child in plain.children[target] if not own.intersection(plain.leaves[child])]
        return _match(loose, empty, fits) is not None

    area = plain.above(running.pods[0][0], plain.level_of(within)) if within else -1
    new = [root for root in running.roots if root not in facts.owner]
    if not all(fits(root, root) for root in running.roots if root in facts.owner):
        return False
    owner = facts.owners()
    for level in sorted({plain.level[root] for root in new}, reverse=True):
        roots = [root for root in new if plain.level[root] == level]
        free = [
            cell
            for cell in (plain.below(area) if area >= 0 else range(len(plain.parent)))
            if plain.level[cell] == level and _is_free(plain, owner, cell)
        ]
        free.sort(key=lambda cell: (_free_height(plain, owner, cell), cell))
        matched = _match(roots, free, fits)
        if matched is None:
            return False
        owner.update(dict.fromkeys(matched, running.vc))
    return not new or is_safe(facts, owner)


def _height(state: _Room, level: int, cell: int) -> int:
    """Level of the largest free cell that a free cell is part of."""
    hall, node = state.hall, cell * state.hall.width[level]
    return max((up for up in hall.width if up >= level and state.free(up)[node // hall.width[up]]), default=level)


def _is_free(plain: Plain, owner: dict[int, str], cell: int) -> bool:
    at = plain.parent[cell]
    while at >= 0:
        if at in owner:
            return False
        at = plain.parent[at]
    return not any(below in owner for below in plain.below(cell))


def _free_height(plain: Plain, owner: dict[int, str], cell: int) -> int:
    while plain.parent[cell] >= 0 and not any(below in owner for below in plain.below(plain.parent[cell])):
        cell = plain.parent[cell]
    return plain.level[cell]


def _match(wanted: Sequence[int], offered: Sequence[int], fits: Callable[[int, int], bool]) -> list[int] | None:
    """One of the offered cells for each wanted one, in order; None if that is impossible."""
    taken: dict[int, int] = {}

    def assign(one: int, seen: set[int]) -> bool:
        for other in offered:
            if other in seen or not fits(one, other):
                continue
            seen.add(other)
            if other not in taken or assign(taken[other], seen):
                taken[other] = one
                return True
        return False

    for one in wanted:
        if not assign(one, set()):
            return None
    by_wanted = {one: other for other, one in taken.items()}
    return [by_wanted[one] for one in wanted]
