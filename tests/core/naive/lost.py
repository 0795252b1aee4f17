"""Leaves that are bad singly: which are lost, and cells that are exchanged for less bad ones."""

from collections.abc import Iterable

from hived.events import LeavesLost
from hived.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY
from tests.core.naive.model import PhysicalCell
from tests.core.naive.world import World


def lose_leaves(world: World, event: LeavesLost) -> None:
    """First what is lost is noted, then leaves turn bad, then others healthy."""
    leaves = [leaf for leaf in world.leaves_of(event.node) if world.chains[leaf.chain].leaf_type == event.leaf_type]
    known = [leaf for leaf in leaves if leaf.index in event.known]
    before = [leaf for leaf in leaves if leaf.is_lost]
    chosen = choose(world, leaves, known, event.count)
    for leaf in leaves:
        leaf.is_lost = leaf in chosen
    for leaf in leaves:
        if leaf in chosen and leaf not in before:
            world.set_bad(leaf)
    for leaf in leaves:
        if leaf in before and leaf not in chosen and event.node not in world.bad_nodes:
            world.set_healthy(leaf)


def choose(world: World, leaves: list[PhysicalCell], known: list[PhysicalCell], count: int) -> list[PhysicalCell]:
    """The known ones, and as many others as are wanted, always the one that hurts least next."""
    chosen = list(known)
    while len(chosen) < min(count, len(leaves)):
        left = [leaf for leaf in leaves if leaf not in chosen]
        chosen.append(min(left, key=lambda leaf: cost(world, leaf, left, chosen, count - len(chosen))))
    return chosen


def rank(world: World, leaf: PhysicalCell) -> tuple:
    return leaf.priority > FREE_PRIORITY, not leaf.is_lost, leaf.priority, not world.is_free(leaf)


def cost(
    world: World, leaf: PhysicalCell, left: list[PhysicalCell], chosen: Iterable[PhysicalCell], wanted: int
) -> tuple:
    """How much it hurts to lose this leaf; then whole cells that it breaks; then how many may follow beside it."""
    inside = [cell for cell in leaf.up() if 1 < cell.level <= world.chains[leaf.chain].node_level]
    broken = [cell for cell in inside if not cell.is_split and not set(chosen) & set(cell.leaves)]
    beside = [other for other in left if other.parent is leaf.parent and rank(world, other) == rank(world, leaf)]
    return *rank(world, leaf), len(broken), -min(len(beside), wanted)


def exchange_doomed(world: World, node: str) -> None:
    """Doomed cells that nobody uses go back for free ones with fewer bad leaves, if either is above or below a node."""
    for name, chain in world.chains.items():
        has_exchanged = False
        for level in reversed(chain.levels) if world.has_lost(name) else ():
            if has_exchanged:
                world.unbind_doomed(name, level)
                world.bind_doomed(name, level)
            leaves = [leaf for leaf in chain.leaves() if leaf.node == node]
            for cell in dict.fromkeys(leaf.ancestor_at(level) for leaf in leaves):
                has_exchanged |= exchange(world, cell)


def exchange(world: World, cell: PhysicalCell) -> bool:
    place = cell.chain, cell.level
    doomed, free = [], []
    if world.is_free(cell) and not cell.is_healthy:
        free = [cell]
        doomed = [world.worst_idle_doomed(vc, *place) for vc in world.vcs]
    elif world.is_doomed(cell) and cell.priority < MIN_GUARANTEED_PRIORITY:
        free = [world.least_bad_free(*place)]
        doomed = [cell]
    for worse in doomed:
        for better in free:
            if worse is not None and better is not None and world.bad_count(better) < world.bad_count(worse):
                world.release_doomed(worse.bound.vc.name, worse)
                world.bind_doomed(*place)
                return True
    return False
