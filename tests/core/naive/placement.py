"""Which nodes, then which leaf cells, for a gang (rules 6)."""

from dataclasses import dataclass

from hived.values.specs import (
    FREE_PRIORITY,
    MAX_GUARANTEED_PRIORITY,
    MIN_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    MemberSpec,
)
from tests.core.naive.model import Cell, PhysicalCell, VirtualCell

Placement = dict[int, list[list[Cell]]]  # leaf cell count -> pod -> leaf cells


@dataclass(frozen=True)
class Suggestions:
    """Which nodes Kubernetes suggests, and whether the pod cares."""

    nodes: frozenset[str] | None  # None: every node
    is_ignored: bool
    within: PhysicalCell | None = None  # what is bound shall be below or above this cell

    def allow(self, cell: PhysicalCell) -> bool:
        """At least one node of the cell is suggested, or it does not matter."""
        if self.within is not None and not cell.overlaps(self.within):
            return False
        return self.is_ignored or self.nodes is None or any(node in self.nodes for node in cell.nodes)


@dataclass(frozen=True)
class Attempt:
    """Leaf cells below this priority may be taken; with `only_elastic`, of those in use only elastic groups'."""

    priority: int
    only_elastic: bool = False

    def may_take(self, leaf: Cell) -> bool:
        is_spared = self.only_elastic and leaf.priority > FREE_PRIORITY and not leaf.is_elastic()
        return leaf.priority < self.priority and not is_spared


def is_refused(cell: Cell) -> bool:
    """None of its leaves is healthy."""
    hardware = physical(cell)
    return hardware is not None and hardware.is_bad_as_a_whole()


def offered(cell: Cell) -> list[Cell]:
    """Its leaves that are healthy; all of them if none is, so that it is refused for that."""
    return [leaf for leaf in cell.leaves if leaf.is_healthy or is_refused(cell)]


def physical(cell: Cell) -> PhysicalCell | None:
    return cell.bound if isinstance(cell, VirtualCell) else cell


def place(
    view: list[Cell], members: tuple[MemberSpec, ...], priority: int, suggestions: Suggestions
) -> tuple[Placement | None, str]:
    """A placement or the reason why there is none: first at opportunistic priority, then at the pod's (rule 6.6)."""
    for below in attempts(priority):
        result, reason = attempt(view, members, below, suggestions)
        if result is not None:
            break
    return result, reason


def attempts(priority: int) -> list[Attempt]:
    """Users whose leaf cells may be taken: nobody's, those of elastic groups, those of all groups of lower priority."""
    if priority <= MIN_GUARANTEED_PRIORITY:
        return [Attempt(OPPORTUNISTIC_PRIORITY)]
    return [Attempt(OPPORTUNISTIC_PRIORITY), Attempt(priority, only_elastic=True), Attempt(priority)]


def attempt(
    view: list[Cell], members: tuple[MemberSpec, ...], below: Attempt, suggestions: Suggestions
) -> tuple[Placement | None, str]:
    sort_view(view, below.priority, suggestions)
    nodes, reason = choose_nodes(view, members, below, suggestions)
    return (choose_all_leaves(nodes, below), "") if nodes is not None else (None, reason)


def sort_view(view: list[Cell], priority: int, suggestions: Suggestions) -> None:
    """In place and stable (rules 6.3, 6.4)."""
    view.sort(key=lambda cell: view_key(cell, priority, suggestions))


def view_key(cell: Cell, priority: int, suggestions: Suggestions) -> tuple[bool, bool, int, int]:
    hardware = physical(cell)
    if isinstance(cell, VirtualCell):
        same, higher = cell.used_count(OPPORTUNISTIC_PRIORITY, MAX_GUARANTEED_PRIORITY), 0
    else:
        same = cell.used_count(priority, priority)
        higher = cell.used_count(priority + 1, MAX_GUARANTEED_PRIORITY)
    is_suggested = hardware is None or suggestions.allow(hardware)
    return is_refused(cell), not is_suggested, -same, higher


def choose_nodes(
    view: list[Cell], members: tuple[MemberSpec, ...], below: Attempt, suggestions: Suggestions
) -> tuple[list[tuple[int, Cell]] | None, str]:
    """The pods in ascending size, each with the node it got (rule 6.8)."""
    chosen: list[tuple[int, Cell]] = []
    sizes = iter_sizes(members)
    size = next(sizes, None)
    for cell in view:
        room = sum(below.may_take(leaf) for leaf in offered(cell))
        while size is not None and size <= room:
            hardware = physical(cell)
            if is_refused(cell):
                return None, f"have to use at least one bad node {hardware.address}"
            if hardware is not None and not suggestions.allow(hardware):
                return None, f"have to use at least one non-suggested node {hardware.address}"
            chosen.append((size, cell))
            room -= size
            size = next(sizes, None)
    return (chosen, "") if size is None else (None, "insufficient capacity")


def iter_sizes(members: tuple[MemberSpec, ...]):
    """The size of each pod, ascending; one at a time, because there may be 2^31 of them (rule 2.6)."""
    for member in members:
        for _ in range(member.pod_count):
            yield member.leaf_cell_count


def choose_all_leaves(nodes: list[tuple[int, Cell]], below: Attempt) -> Placement:
    placement: Placement = {}
    taken: set[Cell] = set()
    for size, node in nodes:
        leaves = choose_leaves(node, size, below, taken)
        taken.update(leaves)
        placement.setdefault(size, []).append(leaves)
    return placement


def choose_leaves(node: Cell, count: int, below: Attempt, taken: set[Cell]) -> list[Cell]:
    """Rules 6.10, 6.11: the lowest level at which one cell has enough candidates; of such the first in the list."""
    left = [leaf for leaf in offered(node) if leaf not in taken]
    candidates = [leaf for leaf in left if leaf.priority == FREE_PRIORITY]
    preemptible = [leaf for leaf in left if leaf.priority > FREE_PRIORITY and below.may_take(leaf)]
    candidates += sorted(preemptible, key=lambda leaf: not leaf.is_elastic())
    for level in range(1, node.level + 1):
        for first in candidates:
            inside = [leaf for leaf in candidates if leaf.ancestor_at(level) is first.ancestor_at(level)]
            if len(inside) >= count:
                return inside[:count]
    raise AssertionError("the node has room, so its leaf cells suffice")
